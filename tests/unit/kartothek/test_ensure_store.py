"""`ensure_store` and `lazy_store` take the same things, one now and one later."""

from __future__ import annotations

import pickle
from functools import partial

import pytest
import storefact

from kartothek_cube.core.kartothek.dataset_metadata import ensure_store, lazy_store
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.stores.open import StoreFactory, open_store
from kartothek_cube.errors import InvalidInput, InvalidType


def keyvalue(path):
    return storefact.get_store_from_url(f"hfs://{path}")


FORMS = {
    "url": lambda path: f"hfs://{path}",
    "path": lambda path: path,
    "store": open_store,
    "key-value store": keyvalue,
    "function": lambda path: lambda: keyvalue(path),
    "partial": lambda path: partial(keyvalue, path),
    "factory": lambda path: StoreFactory(partial(keyvalue, path)),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_opens_the_same_store(tmp_path, form):  # A01
    given, expected = FORMS[form](tmp_path), open_store(tmp_path)
    assert ensure_store(given) == lazy_store(given)() == lazy_store(lazy_store(given))() == expected
    assert isinstance(ensure_store(given), Store)


@pytest.mark.parametrize("form", sorted(FORMS.keys() - {"function"}))
def test_a_lazy_store_pickles_if_its_argument_does(tmp_path, form):
    assert pickle.loads(pickle.dumps(lazy_store(FORMS[form](tmp_path))))() == open_store(tmp_path)


@pytest.mark.parametrize("function", [ensure_store, lazy_store])
@pytest.mark.parametrize("wrong", [None, 1, {}, b"/data"])
def test_anything_else_is_refused(function, wrong):
    with pytest.raises(InvalidType, match="Provided incompatible store type"):
        function(wrong)


def test_an_unknown_url_fails_at_its_first_use():  # A06
    opens = lazy_store("hunknown://a")
    with pytest.raises(InvalidInput, match="Unknown storage type"):
        opens()
    with pytest.raises(InvalidInput, match="Unknown storage type"):
        ensure_store("hunknown://a")


def test_a_store_in_memory_stays_itself():  # A03
    store = open_store("hmemory://")
    assert lazy_store(store)() is store
    assert lazy_store(lambda: store)() is store

"""Two writers of one cube: what goes together, `on_conflict` in every verb that removes, results
that say what was done.
"""

from __future__ import annotations

import pyarrow as pa
import pytest

from kartothek_cube.api.cube import (
    C,
    append_to_cube,
    build_cube,
    extend_cube,
    query_cube_arrow,
    remove_partitions,
    update_cube,
)
from kartothek_cube.api.dataset import update_dataset_from_dataframes
from kartothek_cube.core.dataset.read import read_table_arrow
from kartothek_cube.core.metadata.naming import document_key
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.cube.cube import Cube
from kartothek_cube.errors import CommitConflict, InvalidInput
from kartothek_cube.testing.stores import CountingStore
from tests.caches import forget

CUBE = Cube(["x"], ["p"], "cube")
SEED = pa.table({"x": [1, 2], "p": ["a", "b"], "v1": [10, 20]})
EXTRA = pa.table({"x": [1, 2], "p": ["a", "b"], "v2": [1.0, 2.0]})
MORE = pa.table({"x": [3], "p": ["a"], "v1": [30]})
MORE_EXTRA = pa.table({"x": [3], "p": ["a"], "v2": [3.0]})
NEW = pa.table({"x": [4], "p": ["b"], "v1": [40]})


@pytest.fixture
def store():
    store = MemoryStore()
    build_cube({"seed": SEED, "e": EXTRA}, CUBE, store)
    return store


class Meanwhile(CountingStore):
    """Somebody else does something once, right before the first document of these is put."""

    def __init__(self, inner, action, dataset="seed"):
        super().__init__(inner)
        self.action, self.key = action, document_key(f"cube++{dataset}")

    def around(self, operation, key, action):
        if operation == "put_if" and key == self.key and self.action is not None:
            act, self.action = self.action, None
            act()
        return super().around(operation, key, action)


def cells(store, dataset="seed"):
    forget(store)
    return sorted(read_table_arrow(f"cube++{dataset}", store, columns=["x"]).column("x").to_pylist())


def append_more(store):
    """As a writer of the dataset does, who does not look at the cube."""
    update_dataset_from_dataframes([MORE], store, "cube++seed")


REMOVING = {
    "update": lambda store, **more: update_cube(NEW, CUBE, store, C("p") == "a", **more),
    "remove": lambda store, **more: remove_partitions(CUBE, store, C("p") == "a", ["seed"], **more),
    "build": lambda store, **more: build_cube({"seed": NEW, "e": EXTRA}, CUBE, store, overwrite=True, **more),
}


@pytest.mark.parametrize("verb", REMOVING)
def test_who_removes_what_was_changed_in_between_is_told(store, verb):
    # A build puts the enrichment first, so that the others' commit to the seed is found by its
    # check.
    dataset = "e" if verb == "build" else "seed"
    with pytest.raises((CommitConflict, RuntimeError)):
        REMOVING[verb](Meanwhile(store, lambda: append_more(store), dataset))
    assert 3 in cells(store)
    assert 4 not in cells(store)


@pytest.mark.parametrize(("verb", "left"), [("update", [2, 4]), ("remove", [2]), ("build", [4])])
def test_with_reapply_the_last_writer_wins(store, verb, left):
    result = REMOVING[verb](Meanwhile(store, lambda: append_more(store)), on_conflict="reapply")
    assert cells(store) == left
    assert (result["seed"].commit.reapplied, result["seed"].commit.tries) == (True, 2)
    if verb == "build":
        assert not result["e"].commit.reapplied
    if verb == "remove":
        assert result["e"].commit is None


@pytest.mark.parametrize("mode", ["raise", "reapply"])
def test_an_extension_replaces_what_others_have_added_to_only_if_it_may(store, mode):
    def extend():
        changed = Meanwhile(store, lambda: append_to_cube({"e": MORE_EXTRA}, CUBE, store), "e")
        return extend_cube({"e": EXTRA}, CUBE, changed, overwrite=True, on_conflict=mode)

    if mode == "raise":
        with pytest.raises(CommitConflict):
            extend()
        assert cells(store, "e") == [1, 2, 3]
    else:
        assert extend()["e"].commit.reapplied
        assert cells(store, "e") == [1, 2]


@pytest.mark.parametrize("verb", REMOVING)
@pytest.mark.parametrize("wrong", ["ignore", None, 1])
def test_on_conflict_is_one_of_two_words(store, verb, wrong):
    before = {key: store.get(key) for key in store.list(recursive=True).keys}
    with pytest.raises(InvalidInput, match="on_conflict"):
        REMOVING[verb](store, on_conflict=wrong)
    assert {key: store.get(key) for key in store.list(recursive=True).keys} == before


def test_appends_to_both_datasets_go_together(store):
    changed = Meanwhile(store, lambda: append_to_cube({"seed": MORE, "e": MORE_EXTRA}, CUBE, store), "e")
    result = append_to_cube({"seed": NEW, "e": pa.table({"x": [4], "p": ["b"], "v2": [4.0]})}, CUBE, changed)
    assert {name: d.commit.tries for name, d in result.items()} == {"e": 2, "seed": 2}
    found = query_cube_arrow(CUBE, store).select(["x", "v1", "v2"]).sort_by("x").to_pydict()
    assert found == {"x": [1, 2, 3, 4], "v1": [10, 20, 30, 40], "v2": [1.0, 2.0, 3.0, 4.0]}


def test_an_update_of_other_partitions_is_no_conflict(store):
    result = update_cube(NEW, CUBE, Meanwhile(store, lambda: append_more(store)), C("p") == "b")
    assert cells(store) == [1, 3, 4]
    assert not result["seed"].commit.reapplied

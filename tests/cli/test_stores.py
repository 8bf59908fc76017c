from __future__ import annotations

import pytest

from kartothek_cube.cli.failures import Failure
from kartothek_cube.cli.stores import store_named, store_names

ENTRIES = """
old: {type: hfs, path: store}
url: hfs://store
settings: {url: store, readonly: true}
nothing: {}
wrong: 3
"""


@pytest.fixture
def skv(folder):
    (folder / "stores.yml").write_text(ENTRIES, encoding="utf-8")
    return "stores.yml"


def test_an_entry_is_as_storefact_has_it_or_a_url(skv):
    stores = [store_named(skv, name) for name in ("old", "url", "settings")]
    assert [len(store.list("my_cube++seed/", recursive=True).keys) > 0 for store in stores] == [True, True, True]
    assert [store.capabilities.writable for store in stores] == [True, True, False]
    assert store_names(skv) == ["nothing", "old", "settings", "url", "wrong"]


@pytest.mark.parametrize(("name", "message"), [("nothing", "has neither a type nor a url"), ("wrong", "should be a URL or a mapping")])
def test_other_entries_are_refused(run, skv, name, message):
    ran = run("--skv", skv, "--store", name, "my_cube", "info")
    assert ran.code == 2
    assert message in ran.err


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "null\n"])
def test_an_empty_file_has_no_store(folder, text):
    (folder / "empty.yml").write_text(text, encoding="utf-8")
    with pytest.raises(Failure, match=r"Could not find store dataset in empty\.yml"):
        store_named("empty.yml", "dataset")


def test_a_file_of_something_else_is_refused(folder):
    (folder / "list.yml").write_text("[a, b]", encoding="utf-8")
    with pytest.raises(Failure, match="should map names of stores to their settings"):
        store_named("list.yml", "a")


def test_a_json_file_is_yaml(folder):
    (folder / "skv.json").write_text('{"dataset": {"type": "hfs", "path": "store"}}', encoding="utf-8")
    assert store_named("skv.json", "dataset").contains("my_cube++seed.by-dataset-metadata.json")

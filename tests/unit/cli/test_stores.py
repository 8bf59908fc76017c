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


def test_a_setting_that_is_missing_is_named(run, folder):
    (folder / "stores.yml").write_text("pathless: {type: hfs}\nbroken: {type: nope, path: x}", encoding="utf-8")
    ran = run("--skv", "stores.yml", "--store", "pathless", "my_cube", "info")
    assert (ran.code, ran.err) == (2, "Error: Could not load cube: Store pathless cannot be opened: a store of type hfs needs the setting 'path'.\n")


def test_a_file_that_is_no_yaml_is_told_where(run, folder):
    (folder / "broken.yml").write_text("dataset:\n  type: hfs\n path: x\n", encoding="utf-8")
    ran = run("--skv", "broken.yml", "my_cube", "info")
    assert ran.err.startswith("Error: Could not parse provided YAML file: broken.yml, line 3, column 2: ")
    assert len(ran.err.splitlines()) == 1


@pytest.mark.parametrize("url", ["hsf://store", "hmemry://", "htfs:///data"])
def test_a_mistyped_scheme_is_recognised(run, url):
    assert " Did you mean '" in run("--url", url, "my_cube", "info").err


def test_a_directory_that_is_not_there_is_named(run, folder):
    assert run("--url", "nowhere").err == f"There is no cube in this store. There is no directory {folder / 'nowhere'}.\n"
    assert run("--url", "nowhere", "my_cube", "info").err.endswith(f" Cubes of this store: none. There is no directory {folder / 'nowhere'}.\n")


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

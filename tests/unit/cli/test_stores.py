from __future__ import annotations

import pyarrow as pa
import pytest

from kartothek_cube.api.dataset import store_dataframes_as_dataset
from kartothek_cube.cli.context import Failure, store_named, store_names

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


@pytest.mark.parametrize(
    ("name", "message"), [("nothing", "has neither a type nor a url"), ("wrong", "should be a URL or a mapping")]
)
def test_other_entries_are_refused(run, skv, name, message):
    ran = run("--skv", skv, "--store", name, "my_cube", "info")
    assert ran.code == 2
    assert message in ran.err


def test_a_setting_that_is_missing_is_named(run, folder):
    (folder / "stores.yml").write_text("pathless: {type: hfs}\nbroken: {type: nope, path: x}", encoding="utf-8")
    ran = run("--skv", "stores.yml", "--store", "pathless", "my_cube", "info")
    assert (ran.code, ran.err) == (
        2,
        "Error: Could not load cube: Store pathless cannot be opened: a store of type hfs needs the setting 'path'.\n",
    )


def test_a_file_that_is_no_yaml_is_told_where(run, folder):
    (folder / "broken.yml").write_text("dataset:\n  type: hfs\n path: x\n", encoding="utf-8")
    ran = run("--skv", "broken.yml", "my_cube", "info")
    assert ran.err.startswith("Error: Could not parse provided YAML file: broken.yml, line 3, column 2: ")
    assert len(ran.err.splitlines()) == 1


@pytest.mark.parametrize("url", ["hsf://store", "hmemry://", "htfs:///data"])
def test_a_mistyped_scheme_is_recognised(run, url):
    assert " Did you mean '" in run("--url", url, "my_cube", "info").err


def test_a_directory_that_is_not_there_is_named(run, folder):
    assert (
        run("--url", "nowhere").err == f"There is no cube in this store. There is no directory {folder / 'nowhere'}.\n"
    )
    assert run("--url", "nowhere", "my_cube", "info").err.endswith(
        f" Cubes of this store: none. There is no directory {folder / 'nowhere'}.\n"
    )


@pytest.mark.parametrize("url", ["nowhere", "hfs://nowhere", "hfs://nowhere?readonly=1"])
@pytest.mark.parametrize("words", [[], ["check-migration"], ["my_cube", "info"], ["my_cube", "verify"]], ids=" ".join)
def test_a_directory_that_is_not_there_is_no_empty_store(run, folder, url, words):
    ran = run("--url", url, *words)
    assert ran.code == 2
    assert ran.err.endswith(f" There is no directory {folder / 'nowhere'}.\n")
    assert not (folder / "nowhere").exists()


def test_a_store_without_a_cube_says_what_it_has(run):
    assert run("--store", "two", "check-migration").err == "There is no dataset in this store.\n"
    store_dataframes_as_dataset("two", "sales", [pa.table({"x": [1]})])
    store_dataframes_as_dataset("two", "prices", [pa.table({"x": [1]})])
    ran = run("--store", "two")
    assert (ran.code, ran.out) == (0, "")
    assert ran.err == "There is no cube in this store. Datasets of this store: prices, sales.\n"
    assert run("--store", "two", "--format", "json").json == {"cubes": []}


@pytest.mark.parametrize(
    "words",
    [
        ["info"],
        ["stats"],
        ["files"],
        ["query", "--limit", "1"],
        ["explain"],
        ["history"],
        ["verify"],
        ["report"],
        ["tag"],
        ["changes", "--since", "2024-01-31"],
        ["check-migration"],
        ["cleanup"],
        ["compact"],
        ["copy", "--tgt_url", "new"],
        ["delete"],
        ["delete-rows", "--where", "x == 1", "--yes"],
        ["forget", "--where", "x == 1", "--yes"],
        ["index", "seed", "x"],
        ["rename", "new"],
        ["undo"],
    ],
    ids=" ".join,
)
def test_a_cube_that_is_not_there_is_an_error_of_each_command(run, words):
    ran = run("--store", "two", "my_cube", *words)
    assert (ran.code, ran.out) == (2, "")
    assert "my_cube" in ran.err
    assert ran.err.endswith(" Cubes of this store: none.\n")


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

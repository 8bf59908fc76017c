"""The command `tag`, tags as the value of --as-of, and what `forget` says to them."""

from __future__ import annotations

import pytest

from kartothek_cube.api.cube import append_to_cube, list_cube_tags, query_cube_arrow, tag_cube
from kartothek_cube.api.dataset import list_dataset_tags, tag_dataset
from kartothek_cube.core.metadata.tag import is_tag_object, tag_key
from kartothek_cube.core.stores.open import open_store
from tests.support.cli_cubes import CUBE, SEED

UUID = "my_cube++seed"


@pytest.fixture
def store(folder):
    return open_store(str(folder / "store"))


def names(store):
    return list_cube_tags(CUBE, store)["name"].to_list()


def test_tags_are_made_listed_and_dropped(run, store):
    assert run("my_cube", "tag").out == "There are no tags.\n"
    assert run("my_cube", "tag", "model 7").out == "Tagged: model 7\n"
    assert names(store) == ["model 7"]
    listed = run("my_cube", "tag", "--format", "json").json["tags"]
    assert [tag["name"] for tag in listed] == ["model 7"]
    lines = run("my_cube", "tag").out.splitlines()
    assert lines[0].split() == ["name", "commit", "time"]
    assert listed[0]["commit"] in lines[1]
    assert run("my_cube", "tag", "model 7", "--drop", "--yes").out == "Dropped: model 7\n"
    assert names(store) == []


def test_as_of_takes_tags_everywhere(run, store):
    rows = query_cube_arrow(CUBE, store).num_rows
    run("my_cube", "tag", "before")
    append_to_cube(SEED, CUBE, store)
    commit = run("my_cube", "history", "seed", "--format", "json").json["commits"][-1]["commit"]
    assert run("my_cube", "tag", "first", "--as-of", commit[:6]).code == 0
    assert run("my_cube", "tag", "second", "--as-of", "before", "--format", "json").json == {"tagged": "second"}
    out = run("my_cube", "query", "--as-of", "before", "--where", "x >= 0", "--output", "-").out
    assert len(out.splitlines()) == rows + 1
    assert run("my_cube", "explain", "--as-of", "second").code == 0
    assert run("my_cube", "changes", "--since", "before").code == 0
    assert run("sql", "FROM my_cube", "--as-of", "before").code == 0
    found = run("my_cube", "query", "--as-of", "befor", "--output", "-")
    assert found.code == 2
    assert "Did you mean 'before'?" in found.err


def test_history_shows_tags(run):
    run("my_cube", "tag", "model 7")
    lines = run("my_cube", "history", "seed").out.splitlines()
    assert lines[0].split()[-1] == "tags"
    assert lines[1].endswith("model 7")
    assert run("my_cube", "history", "seed", "--format", "json").json["commits"][0]["tags"] == ["model 7"]


def test_tags_are_completed(run, store):
    from kartothek_cube.cli.context import LoadedCube, tag_names

    tag_cube(CUBE, store, "model 7")
    assert tag_names(LoadedCube(CUBE, store, {})) == ["model 7"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["0f1e2d"], "would be the id of a commit"),
        (["2024-05-01"], "would be a moment"),
        (["model", "--as-of", "gone"], "has no tag 'gone'"),
        (["gone", "--drop", "--yes"], "has no tag 'gone'"),
        (["--drop"], "--drop takes the NAME"),
        (["--as-of", "2999-01-01"], "--as-of needs a NAME"),
        (["model", "--as-of", "2999-01-01", "--drop"], "--drop takes the NAME"),
    ],
)
def test_bad_input_changes_nothing(run, store, arguments, text):
    before = store.list(recursive=True).keys
    ran = run("my_cube", "tag", *arguments)
    assert ran.code == 2
    assert text in ran.err
    assert store.list(recursive=True).keys == before


def test_a_tag_exists_once(run):
    run("my_cube", "tag", "model")
    ran = run("my_cube", "tag", "model")
    assert ran.code == 2
    assert "has a tag 'model' already" in ran.err


def test_renaming_a_cube_keeps_its_tags(run, store):
    rows = query_cube_arrow(CUBE, store).num_rows
    tag_cube(CUBE, store, "model 7")
    tag_dataset(UUID, store, "alone")
    append_to_cube(SEED, CUBE, store)
    assert run("my_cube", "rename", "your_cube", "--yes").code == 0
    cube = CUBE.copy(uuid_prefix="your_cube")
    assert list_cube_tags(cube, store)["name"].to_list() == ["model 7"]
    assert query_cube_arrow(cube, store, as_of="model 7").num_rows == rows
    assert list_dataset_tags("your_cube++seed", store)["name"].to_list() == ["alone", "model 7"]
    assert not [key for key in store.list("my_cube++", recursive=True).keys if is_tag_object(key)]


# --- forget ---------------------------------------------------------------------------------------


@pytest.fixture
def contents(store):
    def read():
        return {key: store.get(key) for key in store.list(recursive=True).keys}

    return read


def test_forget_refuses_as_long_as_tags_keep_older_states(run, store, contents):
    tag_cube(CUBE, store, "model 7")
    tag_dataset("my_cube++enrich", store, "alone")
    before = contents()
    for answer in ("--yes", "--dry-run"):
        ran = run("my_cube", "forget", "--where", "x == 1", answer)
        assert ran.code == 2
        assert "may have the cells: alone of my_cube++enrich, model 7. Give --drop-tags" in ran.err
        assert contents() == before
    assert run("my_cube", "forget", "--where", "x == 1", "--drop-tags", "--dry-run").code == 0
    assert contents() == before
    ran = run("my_cube", "forget", "--where", "x == 1", "--drop-tags", "--yes", "--format", "json")
    assert ran.json["dropped_tags"] == ["alone of my_cube++enrich", "model 7"]
    assert not [key for key in contents() if is_tag_object(key)]
    assert (
        run("my_cube", "cleanup", "--grace", "0", "--retain", "0", "--dry-run", "--format", "json").json["removed"]
        == []
    )


def test_forget_names_and_drops_a_tag_that_cannot_be_read(run, store, contents):
    store.put(tag_key(UUID, "bad"), b"{")
    assert "bad of my_cube++seed" in run("my_cube", "forget", "--where", "x == 1", "--yes").err
    assert run("my_cube", "forget", "--where", "x == 1", "--yes", "--drop-tags").code == 0
    assert not [key for key in contents() if is_tag_object(key)]


def test_forget_takes_a_share_without_its_tag_along(run, store, contents):
    tag_cube(CUBE, store, "model 7")
    store.delete(tag_key(UUID, "model 7"))
    assert run("my_cube", "forget", "--where", "x == 1", "--yes").code == 0
    assert not [key for key in contents() if is_tag_object(key)]


@pytest.mark.usefixtures("at_a_terminal")
def test_forget_asks_with_the_names_of_the_tags(run, store, contents):
    tag_cube(CUBE, store, "model 7")
    before = contents()
    ran = run("my_cube", "forget", "--where", "x == 1", "--drop-tags", typed="n\n")
    assert "and the tags model 7?" in ran.err
    assert contents() == before

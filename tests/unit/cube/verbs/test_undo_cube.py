"""`undo_cube`: a write goes from all of its datasets, or nothing changes in any of them."""

from __future__ import annotations

import pytest

from kartothek_cube.api.cube import (
    C,
    append_to_cube,
    build_cube,
    build_cube_index,
    cube_history,
    delete_cube,
    drop_cube_index,
    extend_cube,
    remove_partitions,
    undo_cube,
    update_cube,
    verify_cube,
)
from kartothek_cube.api.dataset import history, undo, update_dataset_from_dataframes
from kartothek_cube.core.commit.change import Change
from kartothek_cube.core.commit.commit import commit_change
from kartothek_cube.core.metadata.commit_log import CubeCommit
from kartothek_cube.core.metadata.history_entry import history_key
from kartothek_cube.core.snapshots.loader import load_snapshot, with_indices
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import CommitConflict, InvalidInput, InvalidRequest, InvalidType, KeyNotFound
from kartothek_cube.testing.stores import CountingStore
from tests.support.cubes import CUBE, ENRICH, SEED, answers, refused, table

NEW = table(x=[5], y=["c"], p=[2], i1=[30], v1=[4.5])
NEW_E = table(x=[5, 0], i2=["five", "zero"], v2=[50, 0])


@pytest.fixture
def store():
    store = MemoryStore()
    build_cube({"seed": SEED, "e": ENRICH}, CUBE, store, partition_on={"e": []})
    return store


def newest(store):
    return cube_history("cube", store)["commit"][0]


def to_both(store):
    append_to_cube({"seed": NEW, "e": NEW_E}, CUBE, store)
    return newest(store)


def of(store, name):
    """The newest commit of a dataset."""
    return history(f"cube++{name}", store)["commit"][0]


WRITES = {
    "append to both": to_both,
    "append to one": lambda store: append_to_cube(NEW, CUBE, store),
    "update": lambda store: update_cube({"seed": NEW, "e": NEW_E}, CUBE, store, C("p") == 0, ["seed", "e"]),
    "remove from the seed": lambda store: remove_partitions(CUBE, store, C("p") == 0, ["seed"]),
    "overwrite": lambda store: build_cube(
        {"seed": NEW, "e": NEW_E}, CUBE, store, partition_on={"e": []}, overwrite=True
    ),
    "new column": lambda store: build_cube(
        {"seed": SEED.append_column("v9", [[1, 2, 3, 4]]), "e": ENRICH},
        CUBE,
        store,
        partition_on={"e": []},
        overwrite=True,
    ),
    "undo": lambda store: (to_both(store), undo_cube(CUBE, store)),
}


@pytest.mark.parametrize("name", WRITES)
def test_the_newest_write_is_undone_and_done_again(store, name):
    if name == "undo":
        to_both(store)
        before = answers(store)
        undo_cube(CUBE, store)
    else:
        before = answers(store)
        WRITES[name](store)
    after = answers(store)
    assert before != after
    count = len(cube_history(CUBE, store))
    datasets = cube_history(CUBE, store)["datasets"][0]
    undone = undo_cube(CUBE, store)
    assert sorted(undone) == datasets
    assert next(iter(undone)) == ("seed" if "seed" in datasets else "e")
    assert {name: dataset.uuid for name, dataset in undone.items()} == {name: f"cube++{name}" for name in datasets}
    assert answers(store) == before
    assert len(cube_history(CUBE, store)) == count + 1
    assert cube_history(CUBE, store)["datasets"][0] == datasets
    undo_cube("cube", store)
    assert answers(store) == after
    assert verify_cube(CUBE, store).ok


@pytest.mark.parametrize("which", ["write", "commit of the seed", "commit of the enrichment"])
def test_an_older_write_is_undone_and_later_ones_stay(store, which):
    write = to_both(store)
    named = {"write": write, "commit of the seed": of(store, "seed"), "commit of the enrichment": of(store, "e")}
    append_to_cube(table(x=[6], y=["c"], p=[2], i1=[30], v1=[1.0]), CUBE, store)
    extend_cube({"f": table(x=[1], v3=[1])}, CUBE, store, partition_on={"f": []})
    assert list(undo_cube(CUBE, store, named[which])) == ["seed", "e"]
    assert sorted((row["x"], row["v2"]) for row in answers(store)) == [(0, None)] * 2 + [(1, 10)] * 2 + [(6, None)]


@pytest.mark.slow
def test_a_write_that_is_older_than_the_chains_is_found(store):
    write = to_both(store)
    for n in range(36):
        for name in ("seed", "e"):
            update_dataset_from_dataframes([], store, f"cube++{name}", metadata={"n": n})
    assert list(undo_cube(CUBE, store, write)) == ["seed", "e"]
    assert len(answers(store)) == 4


def test_a_seed_that_was_only_touched_is_left_alone(store):
    cube = CubeCommit("w", ("cube++e", "cube++seed"))
    for name, metadata in (("e", {"n": 1}), ("seed", {})):
        snapshot = load_snapshot(store, f"cube++{name}")
        columns = tuple(sorted(snapshot.secondary_columns))
        base = with_indices(store, snapshot, columns)
        change = Change(base.uuid, (), base.schemas, base.partition_keys, columns, metadata=metadata, cube=cube)
        commit_change(store, change, base)
    assert list(undo_cube(CUBE, store)) == ["e"]
    assert "n" not in load_snapshot(store, "cube++e").document.user_metadata


def test_a_dataset_that_is_gone_or_was_made_again_is_left_out(store):
    write = to_both(store)
    delete_cube(CUBE, store, datasets=["e"])
    assert list(undo_cube(CUBE, store, write)) == ["seed"]
    undo_cube(CUBE, store)
    extend_cube({"e": ENRICH}, CUBE, store, partition_on={"e": []})
    assert list(undo_cube(CUBE, store, write)) == ["seed"]


def test_indices_of_single_datasets_are_undone(store):
    build_cube_index(CUBE, store, "v1")
    undo_cube(CUBE, store)
    assert load_snapshot(store, "cube++seed").secondary_columns == {"x", "y", "i1"}
    # The cube is not valid now, and is so again after the undo.
    drop_cube_index(CUBE, store, "i1")
    undo_cube(CUBE, store)
    assert load_snapshot(store, "cube++seed").secondary_columns == {"x", "y", "i1"}


# --- refused --------------------------------------------------------------------------------------


def test_a_write_that_made_datasets_stays(store):
    first = newest(store)
    with refused(store, InvalidRequest, first, "it made e, seed.", "delete_cube deletes"):
        undo_cube(CUBE, store)
    extend_cube({"f": table(x=[1], v3=[1])}, CUBE, store, partition_on={"f": []})
    with refused(store, InvalidRequest, "it made f.", "Cube 'cube'"):
        undo_cube(CUBE, store)


def test_what_later_commits_contradict_changes_no_dataset(store):
    write = to_both(store)
    remove_partitions(CUBE, store, C("p") == 2, ["seed"])
    later = of(store, "seed")
    with refused(store, CommitConflict, f"write {write}", "'cube++seed'", "'p=2/", f"commit {later}."):
        undo_cube(CUBE, store, write)
    undo_cube(CUBE, store)
    update_dataset_from_dataframes([NEW_E.to_pandas()], store, "cube++e", delete_scope=[{"i2": "five"}])
    later = of(store, "e")
    with refused(store, CommitConflict, f"write {write}", "'cube++e'", f"commit {later}."):
        undo_cube(CUBE, store, write)


def test_a_change_of_columns_below_later_commits_changes_no_dataset(store):
    WRITES["new column"](store)
    write = newest(store)
    append_to_cube(NEW.append_column("v9", [[5]]), CUBE, store)
    with refused(store, InvalidRequest, write, "'cube++seed'", of(store, "seed"), "no dataset was changed"):
        undo_cube(CUBE, store, write)


def test_files_that_are_gone_change_no_dataset(store):
    update_cube({"seed": NEW, "e": NEW_E}, CUBE, store, C("p") == 0, ["seed", "e"])
    gone = next(key for key in store.list("cube++seed/table/p=0/", recursive=True).keys)
    store.delete(gone)
    with refused(store, KeyNotFound, gone):
        undo_cube(CUBE, store)


@pytest.mark.parametrize("name", ["seed", "e"])
def test_a_part_that_history_has_forgotten_changes_no_dataset(store, name):
    write = to_both(store)
    store.delete(history_key(f"cube++{name}", of(store, name)))
    with refused(store, InvalidInput, write, f"'cube++{name}'", "does not say any more"):
        undo_cube(CUBE, store)
    append_to_cube(NEW, CUBE, store)
    with refused(store, InvalidInput, write, f"'cube++{name}'"):
        undo_cube(CUBE, store, write)


def test_a_conflict_that_comes_meanwhile_changes_no_dataset(store):
    to_both(store)
    before = of(store, "e")

    class Interloper(CountingStore):
        """Somebody removes what the undo removes, after the plans and before the first commit."""

        armed = True

        def around(self, operation, key, action):
            if self.armed and operation == "put_if" and key.endswith(".json"):
                self.armed = False
                remove_partitions(CUBE, self.inner, C("p") == 2, ["seed"])
            return super().around(operation, key, action)

    with pytest.raises(CommitConflict, match="seed"):
        undo_cube(CUBE, Interloper(store))
    assert of(store, "e") == before
    assert cube_history(CUBE, store)["datasets"].tolist() == [["seed"], ["e", "seed"], ["e", "seed"]]


def test_unknown_writes_and_wrong_arguments_are_refused(store):
    with refused(store, InvalidInput, "'nope'", "`cube_history` lists"):
        undo_cube(CUBE, store, "nope")
    with refused(store, InvalidType, "commit is the id of a write"):
        undo_cube(CUBE, store, 7)
    with refused(store, InvalidInput, "nope"):
        undo_cube("nope", store)


def test_a_part_can_be_undone_alone(store):
    """Which splits the write."""
    write = to_both(store)
    undo("cube++e", store, write)
    assert len(answers(store)) == 5
    assert {row["v2"] for row in answers(store)} == {None, 10}
    assert cube_history(CUBE, store)["datasets"].tolist()[:2] == [["e"], ["e", "seed"]]

"""`cube_history`: one row for each write to a cube, of which every kept one can be read."""

from __future__ import annotations

import datetime as dt

import pandas as pd
import pyarrow as pa
import pytest
from msgspec.structs import replace

from kartothek_cube.api.cube import (
    append_to_cube,
    build_cube,
    build_cube_index,
    compact_cube,
    cube_history,
    delete_cube,
    extend_cube,
    query_cube_arrow,
    remove_partitions,
    undo_cube,
    update_cube,
)
from kartothek_cube.api.dataset import history, undo
from kartothek_cube.core.commit.change import Change
from kartothek_cube.core.commit.commit import commit_change
from kartothek_cube.core.expressions.conditions import C
from kartothek_cube.core.metadata.commit_log import CubeCommit
from kartothek_cube.core.metadata.history_entry import history_key
from kartothek_cube.core.snapshots.loader import load_snapshot, with_indices
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.cube.write import commit as write_commit
from kartothek_cube.errors import ForeignWriterWarning, InvalidInput, InvalidType
from kartothek_cube.testing.stores import CountingStore
from tests.support.commits import make_foreign
from tests.support.cubes import CUBE, ENRICH, SEED, answers, table

NEW = table(x=[5], y=["c"], p=[2], i1=[30], v1=[4.5])
NEW_E = table(x=[5, 0], i2=["five", "zero"], v2=[50, 0])


@pytest.fixture
def store():
    store = MemoryStore()
    build_cube(SEED, CUBE, store)
    extend_cube({"e": ENRICH}, CUBE, store, partition_on={"e": []})
    return store


def touch(store, name, cube):
    """A commit that changes nothing."""
    base = load_snapshot(store, f"cube++{name}")
    base = with_indices(store, base, sorted(base.secondary_columns))
    columns = tuple(sorted(base.secondary_columns))
    commit_change(store, Change(base.uuid, (), base.schemas, base.partition_keys, columns, cube=cube), base)


def test_the_table_looks_like_that_of_one_dataset(store):
    append_to_cube({"seed": NEW, "e": NEW_E}, CUBE, store)
    found = cube_history(CUBE, store)
    assert found.columns.tolist() == ["commit", "time", "datasets", "tags", "added", "removed", "kept"]
    of_seed = history("cube++seed", store)
    shared = ["commit", "time", "added", "removed", "kept"]
    assert found[shared].dtypes.to_dict() == of_seed[shared].dtypes.to_dict()
    assert found.index.equals(pd.RangeIndex(3))
    assert found["datasets"].tolist() == [["e", "seed"], ["e"], ["seed"]]
    assert found["tags"].tolist() == [[], [], []]
    assert found["added"].tolist() == [2, 1, 2]
    assert found["removed"].tolist() == [0, 0, 0]
    assert found["commit"][0] == of_seed["cube"][0]
    assert found["commit"].tolist()[1:] == [history("cube++e", store)["commit"][1], of_seed["commit"][1]]
    assert found["time"].is_monotonic_decreasing
    assert found.equals(cube_history("cube", store))


def test_every_commit_is_an_older_state(store):
    seen = {}

    def note():
        seen[cube_history(CUBE, store)["commit"][0]] = answers(store)

    note()
    for step in (
        lambda: append_to_cube({"seed": NEW, "e": NEW_E}, CUBE, store),
        lambda: remove_partitions(CUBE, store, C("p") == 0, ["seed"]),
        lambda: undo("cube++seed", store),
        lambda: update_cube({"seed": NEW, "e": NEW_E}, CUBE, store, C("p") == 2, ["seed", "e"]),
        lambda: extend_cube({"f": table(x=[1], v3=[1])}, CUBE, store, partition_on={"f": []}),
        lambda: append_to_cube(SEED, CUBE, store),
        lambda: compact_cube(CUBE, store),
        lambda: build_cube_index(CUBE, store, "v1"),
        lambda: undo_cube(CUBE, store),
    ):
        step()
        note()
    found = cube_history(CUBE, store)
    assert found["kept"].tolist() == [True] * len(found)
    for name in found["commit"][:-1]:
        if name in seen:
            assert query_cube_arrow(CUBE, store, as_of=name).to_pylist() == seen[name]
    assert set(seen) <= set(found["commit"])


def test_a_slow_clock_does_not_reverse_the_commits_of_a_dataset(store, monkeypatch):
    append_to_cube(NEW, CUBE, store)
    first = cube_history(CUBE, store)["commit"][0]

    class Slow(dt.datetime):
        @classmethod
        def now(cls, tz=None):
            return dt.datetime(2020, 1, 1, tzinfo=tz)

    monkeypatch.setattr(write_commit, "datetime", Slow)
    append_to_cube({"seed": NEW, "e": NEW_E}, CUBE, store)
    monkeypatch.undo()
    late = history("cube++seed", store)["cube"][0]
    found = cube_history(CUBE, store)
    assert found["commit"].tolist()[:2] == [late, first]
    assert found["time"][0] < found["time"][1]
    assert sorted(undo_cube(CUBE, store)) == ["e", "seed"]


def test_a_seed_that_was_only_touched_is_not_named(store):
    write = CubeCommit("w", ("cube++e",))
    append_to_cube(NEW, CUBE, store)
    touch(store, "e", write)
    touch(store, "seed", write)
    # Also where another commit came since, and where the write says that the seed takes part.
    append_to_cube(NEW, CUBE, store)
    base = with_indices(store, load_snapshot(store, "cube++e"), ["i2"])
    both = CubeCommit("v", ("cube++e", "cube++seed"))
    change = Change(base.uuid, (), base.schemas, base.partition_keys, ("i2",), metadata={"n": 1}, cube=both)
    commit_change(store, change, base)
    touch(store, "seed", both)
    found = cube_history(CUBE, store)
    assert found["commit"][0] == "v"
    assert found["commit"][2] == "w"
    assert found["datasets"].tolist() == [["e"], ["seed"], ["e"], ["seed"], ["e"], ["seed"]]
    assert found["added"].tolist() == [0, 1, 0, 1, 1, 2]


def test_only_commits_that_change_nothing_are_empty(store):
    """A change of metadata, indices or columns alone counts."""
    write = CubeCommit("w", ("cube++e", "cube++seed"))
    for more in (
        {"metadata": {"n": 1}},
        {"forgotten": frozenset({"n"})},
        {"index_columns": (), "dropped": frozenset({"i2"})},
        {"schemas": {"table": ENRICH.schema.append(pa.field("v3", pa.int64()))}, "add_columns": True},
    ):
        snapshot = load_snapshot(store, "cube++e")
        base = with_indices(store, snapshot, sorted(snapshot.secondary_columns))
        columns = tuple(sorted(base.secondary_columns))
        change = Change(base.uuid, (), base.schemas, base.partition_keys, columns, cube=replace(write, id=str(more)))
        commit_change(store, replace(change, **more), base)
        touch(store, "seed", change.cube)
        assert cube_history("cube", store)["datasets"][0] == ["e"], more
    assert cube_history("cube", store)["datasets"].tolist()[:4] == [["e"]] * 4


def test_a_foreign_commit_ends_what_can_be_read(store):
    append_to_cube({"seed": NEW, "e": NEW_E}, CUBE, store)
    make_foreign(store, "cube++e")
    found = cube_history("cube", store)
    assert found["datasets"].tolist() == [["e", "seed"], ["e"], ["seed"]]
    assert found["kept"].tolist() == [False] * 3
    assert found["added"].isna().tolist() == [True, True, False]
    with pytest.raises(InvalidInput, match="keeps no history"):
        query_cube_arrow(CUBE, store, as_of=found["commit"][0])


def test_an_undo_of_what_came_before_a_foreign_commit_says_so(store):
    only_seed = append_to_cube(NEW, CUBE, store)["seed"].commit.id
    make_foreign(store, "cube++seed")
    with pytest.raises(InvalidInput, match=f"Dataset 'cube..seed'.* came last, after commit {only_seed} of 20"):
        undo_cube(CUBE, store, only_seed)
    with pytest.warns(ForeignWriterWarning):
        ours = append_to_cube(NEW, CUBE, store)["seed"].commit.id
    with pytest.raises(InvalidInput) as told:
        undo_cube(CUBE, store, only_seed)
    assert f"Cube 'cube' has no write or commit {only_seed!r} in its history" in str(told.value)
    assert f"Nothing was changed. Dataset 'cube++seed': before commit {ours} of 20" in str(told.value)
    assert str(told.value).endswith("came a writer that keeps no history (kartothek, plateau).")
    assert list(undo_cube(CUBE, store, ours)) == ["seed"]


def test_a_state_whose_history_has_expired_is_not_kept(store):
    for _ in range(2):
        append_to_cube({"seed": NEW, "e": NEW_E}, CUBE, store)
        append_to_cube(NEW, CUBE, store)
    of_e = history("cube++e", store)
    store.delete(history_key("cube++e", of_e["commit"][1]))
    found = cube_history(CUBE, store)
    assert found["kept"].tolist() == [True] * 4 + [False, False]
    assert found["added"].isna().tolist() == [False, False, False, True, True, False]
    for name, kept in zip(found["commit"], found["kept"], strict=True):
        if kept:
            query_cube_arrow(CUBE, store, as_of=name)
        else:
            with pytest.raises(InvalidInput, match="cannot be read as of"):
                query_cube_arrow(CUBE, store, as_of=name)


def test_a_dataset_that_is_gone_is_not_named(store):
    append_to_cube({"seed": NEW, "e": NEW_E}, CUBE, store)
    delete_cube(CUBE, store, datasets=["e"])
    found = cube_history(CUBE, store)
    assert found["datasets"].tolist() == [["seed"], ["seed"]]


@pytest.mark.slow
def test_the_history_of_a_cube_is_longer_than_the_chains(store):
    for _ in range(40):
        undo_cube(CUBE, store) if len(cube_history(CUBE, store)) > 3 else append_to_cube(NEW, CUBE, store)
    for n in range(36):
        append_to_cube({"e": NEW_E} if n % 2 else NEW, CUBE, store)
    found = cube_history(CUBE, store)
    assert len(found) == 78
    assert found["kept"].all()
    assert len(query_cube_arrow(CUBE, store, as_of=found["commit"].iloc[-1])) == 4


def test_the_entries_of_every_dataset_are_read_once(store):
    append_to_cube({"seed": NEW, "e": NEW_E}, CUBE, store)
    counting = CountingStore(store)
    cube_history(CUBE, counting)
    entries = [key for key in counting.touched("get") if "/_history/" in key]
    assert len(entries) == len(set(entries)) == 4


def test_a_cube_that_does_not_exist_is_refused(store):
    with pytest.raises(InvalidInput, match="nope"):
        cube_history("nope", store)
    with pytest.raises(InvalidType, match="Expected a Cube"):
        cube_history(7, store)

"""Taking commits back: the state is that of before, in content and order, or the undo is refused
before anything is written.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kartothek_cube.api.dataset import (
    DatasetFactory,
    build_dataset_indices,
    compact_dataset,
    create_empty_dataset_header,
    history,
    read_table,
    store_dataframes_as_dataset,
    undo,
    update_dataset_from_dataframes,
    verify_dataset,
)
from kartothek_cube.core.commit.change import Change
from kartothek_cube.core.commit.commit import commit_change
from kartothek_cube.core.metadata.commit_log import CubeCommit
from kartothek_cube.core.metadata.history_entry import history_key
from kartothek_cube.core.metadata.naming import document_key
from kartothek_cube.core.snapshots.loader import load_snapshot, with_indices
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import CommitConflict, InvalidInput, InvalidRequest, InvalidType, KeyNotFound
from kartothek_cube.testing.stores import CountingStore
from tests.caches import forget
from tests.support.datasets import UUID


def frame(*rows: tuple[int, str, int]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["x", "p", "i1"])


def newest(store: Any) -> str:
    return str(load_snapshot(store, UUID).chain[-1].id)


def state(store: Any) -> Any:
    """All of a dataset that an undo gives back, read afresh."""
    forget(store)
    snapshot = load_snapshot(store, UUID)
    snapshot = with_indices(store, snapshot, sorted(snapshot.secondary_columns))
    pairs = {
        c: sorted(zip(i.values.to_pylist(), i.labels.to_pylist(), strict=True)) for c, i in snapshot.indices.items()
    }
    partitions = snapshot.partitions
    files = {t: keys.to_pylist() for t, keys in partitions.files.items()} if len(partitions) else {}
    schemas = {t: [(f.name, str(f.type)) for f in s] for t, s in snapshot.schemas.items()}
    return (
        partitions.labels.to_pylist(),
        files,
        pairs,
        schemas,
        snapshot.partition_keys,
        snapshot.document.user_metadata,
    )


def append(store: Any, *rows: tuple[int, str, int], **more: Any) -> None:
    update_dataset_from_dataframes([frame(*rows)], store, UUID, **more)


def labelled(store: Any, label: str, x: int) -> None:
    update_dataset_from_dataframes([{"label": label, "data": [("table", frame((x, "", 0))[["x"]])]}], store, UUID)


@pytest.fixture
def store():
    store = MemoryStore()
    store_dataframes_as_dataset(
        store,
        UUID,
        [frame((1, "a", 10), (2, "b", 20), (3, "c", 10))],
        partition_on=["p"],
        secondary_indices=["i1"],
        metadata={"n": 1},
    )
    return store


STEPS = {
    "append": lambda store: append(store, (4, "d", 30)),
    "replace in the middle": lambda store: append(
        store, (4, "b", 30), delete_scope=[{"p": "b"}], metadata={"n": 2, "m": 1}
    ),
    "remove the first": lambda store: update_dataset_from_dataframes([], store, UUID, delete_scope=[{"p": "a"}]),
    "remove by index": lambda store: update_dataset_from_dataframes([], store, UUID, delete_scope=[{"i1": 10}]),
    "remove everything": lambda store: update_dataset_from_dataframes(
        [], store, UUID, delete_scope=[{"p": p} for p in "abc"]
    ),
    "metadata": lambda store: update_dataset_from_dataframes(
        [], store, UUID, metadata_merger=lambda _: {"other": True}
    ),
    "index": lambda store: build_dataset_indices(store, UUID, ["x"]),
    "compaction": lambda store: (append(store, (9, "a", 90)), compact_dataset(UUID, store)),
    "new column": lambda store: update_dataset_from_dataframes(
        [frame((4, "d", 30)).assign(v1=0.5)], store, UUID, add_columns=True
    ),
    "overwrite": lambda store: store_dataframes_as_dataset(
        store, UUID, [frame((5, "e", 1))], overwrite=True, partition_on=["p"], secondary_indices=["i1"]
    ),
    "other keys": lambda store: store_dataframes_as_dataset(
        store, UUID, [frame((5, "e", 1))], overwrite=True, partition_on=["p", "i1"]
    ),
    "other schema": lambda store: store_dataframes_as_dataset(
        store, UUID, [pd.DataFrame({"y": ["t"]})], overwrite=True, secondary_indices=["y"]
    ),
    "several tables": lambda store: store_dataframes_as_dataset(
        store, UUID, [{"a": frame((5, "e", 1)), "b": frame((6, "e", 1))}], overwrite=True
    ),
}


def before_last(store: Any, step: str) -> Any:
    """Carry out a step, and the state before its last commit."""
    if step == "compaction":
        append(store, (9, "a", 90))
        before = state(store)
        compact_dataset(UUID, store)
        return before
    before = state(store)
    STEPS[step](store)
    return before


@pytest.mark.parametrize("index_files", ["there", "gone"])
@pytest.mark.parametrize("step", STEPS)
def test_the_newest_commit_is_taken_back(store, step, index_files):
    before, files = before_last(store, step), set(store.list(f"{UUID}/", recursive=True).keys)
    after = state(store)
    assert before != after
    if index_files == "gone":
        for key in files:
            if "/indices/" in key and key not in load_snapshot(store, UUID).document.indices.values():
                store.delete(key)
    undo(UUID, store)
    assert state(store) == before
    assert {k for k in set(store.list(f"{UUID}/", recursive=True).keys) - files if "/indices/" not in k} == {
        history_key(UUID, newest(store))
    }
    undo(UUID, store)
    assert state(store) == after
    undo(UUID, store)
    assert state(store) == before
    assert verify_dataset(UUID, store, deep=True).ok


def test_an_older_commit_is_taken_back_and_the_later_ones_stay(store):
    append(store, (4, "b", 30), delete_scope=[{"p": "b"}], metadata={"n": 2, "m": 1})
    wrong = newest(store)
    append(store, (5, "d", 10), metadata={"m": 2})
    update_dataset_from_dataframes([], store, UUID, delete_scope=[{"p": "a"}])
    undo(UUID, store, wrong)
    assert read_table(UUID, store)[["p", "x", "i1"]].to_numpy().tolist() == [["b", 2, 20], ["c", 3, 10], ["d", 5, 10]]
    assert [value for value, _ in state(store)[2]["i1"]] == [10, 10, 20]
    metadata = state(store)[5]
    assert (metadata["n"], metadata["m"]) == (1, 2)


def test_what_comes_back_has_its_place_though_its_neighbours_are_gone(store):
    update_dataset_from_dataframes([], store, UUID, delete_scope=[{"p": "b"}])
    wrong = newest(store)
    update_dataset_from_dataframes([], store, UUID, delete_scope=[{"p": "a"}])
    append(store, (7, "z", 1))
    undo(UUID, store, wrong)
    assert read_table(UUID, store)["p"].tolist() == ["b", "c", "z"]


def test_an_index_that_was_made_later_knows_what_comes_back(store):
    update_dataset_from_dataframes([], store, UUID, delete_scope=[{"p": "b"}])
    wrong = newest(store)
    build_dataset_indices(store, UUID, ["x"])
    undo(UUID, store, wrong)
    assert [value for value, _ in state(store)[2]["x"]] == [1, 2, 3]


def test_a_column_that_was_added_later_is_null_in_what_comes_back(store):
    update_dataset_from_dataframes([], store, UUID, delete_scope=[{"p": "b"}])
    wrong = newest(store)
    STEPS["new column"](store)
    undo(UUID, store, wrong)
    assert read_table(UUID, store)["v1"].isna().tolist() == [True, True, True, False]


def test_an_index_that_was_made_is_dropped_and_made_again(store):
    build_dataset_indices(store, UUID, ["x"])
    wrong = newest(store)
    append(store, (4, "d", 30))
    undo(UUID, store, wrong)
    assert set(state(store)[2]) == {"i1"}
    undo(UUID, store)
    assert [value for value, _ in state(store)[2]["x"]] == [1, 2, 3, 4]


def test_a_factory_says_where_and_forgets_what_it_read(store):
    factory = DatasetFactory(UUID, store)
    append(store, (4, "d", 30))
    assert len(factory.partitions) == 4
    assert len(undo(factory=factory).partitions) == 3
    assert len(factory.partitions) == 3


def test_a_write_to_a_cube_is_taken_back_by_its_id(store):
    base = load_snapshot(store, UUID)
    change = Change(
        UUID,
        (),
        base.schemas,
        base.partition_keys,
        ("i1",),
        metadata={"n": 9},
        cube=CubeCommit("together", (UUID, "other")),
    )
    commit_change(store, change, base)
    append(store, (4, "d", 30))
    assert history(UUID, store)["cube"].tolist()[1] == "together"
    undo(UUID, store, "together")
    assert state(store)[5]["n"] == 1
    assert len(state(store)[0]) == 4


def test_a_commit_that_changed_nothing_is_left_out_unless_it_is_named(store):
    def touch():
        base = load_snapshot(store, UUID)
        change = Change(UUID, (), base.schemas, base.partition_keys, ("i1",), cube=CubeCommit("w", (UUID, "other")))
        return commit_change(store, change, base).commit

    append(store, (4, "d", 30))
    touched = [touch(), touch()][0]
    undo(UUID, store, touched)
    assert len(state(store)[0]) == 4
    undo(UUID, store)
    assert len(state(store)[0]) == 3


# --- refused --------------------------------------------------------------------------------------


def refused(store: Any, error: type[Exception], match: str, commit: str | None = None) -> None:
    before, counting = state(store), CountingStore(store)
    with pytest.raises(error, match=match):
        undo(UUID, counting, commit)
    assert counting.touched("put", "put_if", "put_file", "delete") == []
    assert state(store) == before


def test_the_commit_that_made_the_dataset_stays(store):
    first = newest(store)
    refused(store, InvalidRequest, "delete_dataset")
    append(store, (4, "d", 30))
    refused(store, InvalidRequest, "delete_dataset", first)


def test_a_header_has_nothing_to_undo():
    store = MemoryStore()
    create_empty_dataset_header(store, UUID, {"table": pa.schema([("x", pa.int64())])})
    refused(store, InvalidRequest, "delete_dataset")


@pytest.mark.parametrize("step", ["new column", "other keys", "other schema", "several tables"])
def test_a_change_of_the_header_is_taken_back_only_as_the_newest(store, step):
    STEPS[step](store)
    wrong = newest(store)
    update_dataset_from_dataframes(
        [],
        store,
        UUID,
        delete_scope=[{c: state(store)[2][c][0][0]} for c in sorted(state(store)[2])],
        metadata={"later": 1},
    )
    store_dataframes_as_dataset(store, UUID, [frame((5, "e", 1))], overwrite=True)
    refused(store, InvalidRequest, f"{wrong} changed the schema.*{newest(store)}", wrong)


@pytest.mark.parametrize("step", ["new column", "other keys", "other schema", "several tables"])
def test_a_change_of_the_header_is_taken_back_below_undone_commits_and_metadata(store, step):
    before = state(store)
    STEPS[step](store)
    wrong = newest(store)
    store_dataframes_as_dataset(store, UUID, [frame((5, "e", 1))], overwrite=True)
    undo(UUID, store)
    update_dataset_from_dataframes([], store, UUID, metadata={"later": 1})
    undo(UUID, store, wrong)
    assert state(store) == (*before[:5], {**before[5], "later": 1})


def test_what_a_later_commit_removed_cannot_be_taken_back(store):
    append(store, (4, "d", 30))
    wrong = newest(store)
    update_dataset_from_dataframes([], store, UUID, delete_scope=[{"p": "d"}])
    later = newest(store)
    append(store, (6, "e", 30))
    refused(store, CommitConflict, rf"{wrong} cannot be undone.*p=d/.*commit {later}\.", wrong)


def test_a_label_that_was_used_again_cannot_come_back():
    store = MemoryStore()
    store_dataframes_as_dataset(store, UUID, [{"label": "one", "data": [("table", frame((1, "", 0))[["x"]])]}])
    labelled(store, "two", 2)
    snapshot = load_snapshot(store, UUID)
    commit_change(store, Change(UUID, (), snapshot.schemas, (), (), removed=pa.array(["one"])), snapshot)
    wrong = newest(store)
    labelled(store, "one", 3)
    refused(store, CommitConflict, f"'one'.*made again.*{newest(store)}", wrong)


def test_what_does_not_fit_any_more_cannot_come_back(store):
    update_dataset_from_dataframes([], store, UUID, delete_scope=[{"p": "a"}])
    wrong = newest(store)
    store_dataframes_as_dataset(store, UUID, [frame((5, "e", 1))], overwrite=True, partition_on=["p", "i1"])
    refused(store, CommitConflict, f"does not fit.*{newest(store)}", wrong)


@pytest.mark.parametrize("step", ["remove the first", "other keys"])
def test_files_that_are_gone_are_named(store, step):
    STEPS[step](store)
    gone = next(key for key in store.list(f"{UUID}/table/p=a/", recursive=True).keys)
    store.delete(gone)
    refused(store, KeyNotFound, f"{gone}.*garbage collection")


def test_unknown_and_forgotten_commits_are_refused(store):
    append(store, (4, "d", 30))
    refused(store, InvalidInput, "no commit 'unknown' in its history", "unknown")
    store.delete(history_key(UUID, newest(store)))
    refused(store, InvalidInput, "does not say any more what it changed")
    refused(store, InvalidType, "commit is the id", 7)  # type: ignore[arg-type]


def test_a_later_commit_that_comes_meanwhile_is_a_conflict(store):
    STEPS["other schema"](store)

    class Interloper(CountingStore):
        """Somebody commits right before the swap."""

        armed = True

        def around(self, operation: str, key: str, action: Any) -> Any:
            if self.armed and operation == "put_if" and key.endswith(".json"):
                self.armed = False
                update_dataset_from_dataframes([], self.inner, UUID, metadata={"meanwhile": 1})
            return super().around(operation, key, action)

    with pytest.raises(CommitConflict, match="not the newest any more"):
        undo(UUID, Interloper(store))
    assert state(store)[5]["meanwhile"] == 1


def test_metadata_and_rows_that_come_meanwhile_stay(store):
    append(store, (4, "d", 30), metadata={"n": 2, "m": 1})

    class Interloper(CountingStore):
        armed = True

        def around(self, operation: str, key: str, action: Any) -> Any:
            if self.armed and operation == "put_if" and key.endswith(".json"):
                self.armed = False
                append(self.inner, (5, "e", 40), metadata={"m": 7})
            return super().around(operation, key, action)

    undo(UUID, Interloper(store))
    assert read_table(UUID, store)["x"].tolist() == [1, 2, 3, 5]
    assert (state(store)[5]["n"], state(store)[5]["m"]) == (1, 7)


# --- history --------------------------------------------------------------------------------------


def test_history_lists_commits_the_newest_first(store):
    append(store, (4, "b", 30), delete_scope=[{"p": "b"}])
    found = history(UUID, store)
    assert {c: str(t) for c, t in found.dtypes.items() if c in ("time", "added", "removed", "kept", "tags")} == {
        "time": "datetime64[us, UTC]",
        "added": "Int64",
        "removed": "Int64",
        "kept": "bool",
        "tags": "object",
    }
    chain = load_snapshot(store, UUID).chain
    assert found["commit"].tolist() == [c.id for c in reversed(chain)]
    assert found["parent"].iloc[0] == chain[0].id
    assert pd.isna(found["parent"].iloc[1])
    assert found["time"].tolist() == [pd.Timestamp(c.time) for c in reversed(chain)]
    assert found[["added", "removed"]].to_numpy().tolist() == [[1, 1], [3, 0]]
    assert history(factory=DatasetFactory(UUID, store)).equals(found)


def test_history_says_what_is_kept(store):
    append(store, (4, "d", 30))
    append(store, (5, "d", 30))
    store.put(history_key(UUID, history(UUID, store)["commit"][1]), b"rubbish")
    found = history(UUID, store)
    assert found["kept"].tolist() == [True, True, False]
    assert found["added"].isna().tolist() == [False, True, True]
    for name, kept in zip(found["commit"], found["kept"], strict=True):
        if kept:
            read_table(UUID, store, as_of=name)


def test_a_dataset_of_other_libraries_has_an_empty_history(store):
    document = json.loads(store.get(document_key(UUID)))
    store.put(
        document_key(UUID), json.dumps({**document, "metadata": {"creation_time": "2024-05-01T00:00:00"}}).encode()
    )
    found = history(UUID, store)
    assert len(found) == 0
    assert found.dtypes.astype(str).to_dict() | {"commit": "", "parent": "", "cube": ""} == {
        "commit": "",
        "parent": "",
        "time": "datetime64[us, UTC]",
        "added": "Int64",
        "removed": "Int64",
        "cube": "",
        "kept": "bool",
        "tags": "object",
    }


def test_commits_before_a_foreign_one_are_listed_and_not_kept(store):
    document = json.loads(store.get(document_key(UUID)))
    store.put(document_key(UUID), json.dumps({**document, "partitions": {}}).encode())
    forget(store)
    assert history(UUID, store)["kept"].tolist() == [False]
    with pytest.raises(InvalidInput, match="keeps no history"):
        undo(UUID, store)


# --- any sequence ---------------------------------------------------------------------------------


@settings(max_examples=settings().max_examples // 2)
@given(
    st.lists(
        st.sampled_from([s for s in STEPS if s not in ("other schema", "several tables", "compaction")]), max_size=5
    )
)
def test_a_sequence_is_taken_back_step_by_step(steps):
    store = MemoryStore()
    store_dataframes_as_dataset(
        store,
        UUID,
        [frame((1, "a", 10), (2, "b", 20), (3, "c", 10))],
        partition_on=["p"],
        secondary_indices=["i1"],
        metadata={"n": 1},
    )
    states = [state(store)]
    commits = []
    for step in steps:
        with suppress(InvalidInput):  # rows without a column that a step before has added
            STEPS[step](store)
        if newest(store) in commits[-1:] or len(load_snapshot(store, UUID).chain) == 1:
            continue
        states.append(state(store))
        commits.append(newest(store))
    for name, expected in zip(reversed(commits), reversed(states[:-1]), strict=True):
        undo(UUID, store, name)
        assert state(store) == expected

"""Reading older states: whatever commits a dataset saw, each of them reads again as it was, by
every reader.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal

from kartothek_cube.api.dataset import (
    DatasetFactory,
    DatasetMetadata,
    build_dataset_indices,
    collect_dataset_metadata,
    hash_dataset,
    plan_table_scan,
    read_dataset_as_dataframes,
    read_dataset_as_dataframes__iterator,
    read_table,
    read_table_arrow,
    store_dataframes_as_dataset,
    stream_table,
    update_dataset_from_dataframes,
)
from kartothek_cube.core.snapshots.loader import load_snapshot
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import InvalidInput, InvalidType
from kartothek_cube.testing.stores import CountingStore
from tests.caches import forget
from tests.support.datasets import UUID


def frame(*rows: tuple[int, str, int]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["x", "p", "i1"])


def newest(store: Any) -> Any:
    return load_snapshot(store, UUID).chain[-1]


@pytest.fixture
def store():
    return MemoryStore()


@pytest.fixture
def commits(store):
    """Three states: two partitions, one of them replaced, another column."""
    store_dataframes_as_dataset(
        store,
        UUID,
        [frame((1, "a", 10), (2, "b", 20))],
        partition_on=["p"],
        secondary_indices=["i1"],
        metadata={"n": 1},
    )
    found = [newest(store)]
    update_dataset_from_dataframes([frame((3, "a", 30))], store, UUID, delete_scope=[{"p": "a"}], metadata={"n": 2})
    found.append(newest(store))
    update_dataset_from_dataframes([frame((4, "c", 10)).assign(v1=0.5)], store, UUID, add_columns=True)
    return [*found, newest(store)]


XS = [[1, 2], [2, 3], [2, 3, 4]]

READERS = {
    "read_table": lambda store, when, **more: read_table(UUID, store, as_of=when, **more)["x"].tolist(),
    "read_table of a factory": lambda store, when, **more: read_table(
        factory=DatasetFactory(UUID, store), as_of=when, **more
    )["x"].tolist(),
    "read_table of an older factory": lambda store, when, **more: read_table(
        factory=DatasetFactory(UUID, store, as_of=when), **more
    )["x"].tolist(),
    "a factory without schema": lambda store, when, **more: read_table(
        factory=DatasetFactory(UUID, store, False, as_of=when), **more
    )["x"].tolist(),
    "read_table_arrow": lambda store, when, **more: (
        read_table_arrow(UUID, store, as_of=when, **more).column("x").to_pylist()
    ),
    "stream_table": lambda store, when, **more: (
        stream_table(UUID, store, as_of=when, **more).read_all().column("x").to_pylist()
    ),
    "frames": lambda store, when, **more: [
        x for d in read_dataset_as_dataframes(UUID, store, as_of=when, **more) for x in d["table"]["x"]
    ],
    "iterator": lambda store, when, **more: [
        x for d in read_dataset_as_dataframes__iterator(UUID, store, as_of=when, **more) for x in d["table"]["x"]
    ],
    "dispatched": lambda store, when, **more: [
        x
        for d in read_dataset_as_dataframes(UUID, store, as_of=when, dispatch_by="i1", **more)
        for x in d["table"]["x"]
    ],
    "files": lambda store, when, **more: [
        x
        for key in plan_table_scan(UUID, store, as_of=when, **more).files()
        for x in pa.parquet.read_table(pa.BufferReader(store.get(key)))["x"].to_pylist()
    ],
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("by", ["id", "time"])
def test_every_reader_reads_older_states(store, commits, reader, by):
    for commit, expected in zip(commits, XS, strict=True):
        assert sorted(READERS[reader](store, getattr(commit, by))) == expected


@pytest.mark.parametrize("reader", READERS)
def test_predicates_need_no_index_file(store, commits, reader):
    asked = [[("i1", "==", 10)]]
    for index_files_are_gone in (False, True):
        if index_files_are_gone:
            current = load_snapshot(store, UUID).document.indices["i1"]
            for key in [k for k in store.list(f"{UUID}/indices/", recursive=True).keys if k != current]:
                store.delete(key)
        found = [sorted(READERS[reader](store, commit.id, predicates=asked)) for commit in commits]
        # Statistics stand in for an index that is gone.
        assert found == [[1], [], [4]]


def test_schema_metadata_and_labels_are_those_of_the_state(store, commits):
    assert list(read_table(UUID, store, as_of=commits[1].id)) == ["p", "i1", "x"]
    assert list(read_table(UUID, store, as_of=commits[2].id)) == ["p", "i1", "v1", "x"]
    older = DatasetMetadata.load_from_store(UUID, store, load_all_indices=True, as_of=commits[0].id)
    assert older.metadata["n"] == 1
    assert len(older.partitions) == 2
    assert set(older.indices["i1"].index_dct) == {10, 20}
    assert DatasetFactory(UUID, store, as_of=commits[1].time).metadata["n"] == 2


def test_figures_are_those_of_the_state(store, commits):
    assert len(collect_dataset_metadata(store, UUID, as_of=commits[0].id)) == 2
    hashes = [hash_dataset(store, UUID, group_key="p", as_of=c.id) for c in commits[:2]]
    assert hashes[0]["b"] == hashes[1]["b"]
    assert hashes[0]["a"] != hashes[1]["a"]


def test_a_stream_of_an_older_state_is_not_moved_by_later_commits(store, commits):
    stream = stream_table(UUID, store, as_of=commits[0].id)
    update_dataset_from_dataframes([], store, UUID, delete_scope=[{"p": "b"}])
    assert sorted(stream.read_all().column("x").to_pylist()) == [1, 2]


def test_a_lost_index_is_made_for_dispatch(store, commits):
    for key in store.list(f"{UUID}/indices/", recursive=True).keys:
        if key != load_snapshot(store, UUID).document.indices["i1"]:
            store.delete(key)
    assert [
        d["table"]["x"].tolist() for d in read_dataset_as_dataframes(UUID, store, dispatch_by="i1", as_of=commits[1].id)
    ] == [[2], [3]]
    assert set(
        DatasetMetadata.load_from_store(UUID, store, load_all_indices=True, as_of=commits[0].id).indices["i1"].index_dct
    ) == {10, 20}


def test_an_index_that_came_later_is_not_used(store):
    store_dataframes_as_dataset(store, UUID, [frame((1, "a", 10))])
    first = newest(store)
    build_dataset_indices(store, UUID, ["i1"])
    assert plan_table_scan(UUID, store, as_of=first.id).secondary_indices == ()
    with pytest.raises(InvalidInput, match="indexed"):
        read_dataset_as_dataframes(UUID, store, dispatch_by="i1", as_of=first.id)


def test_without_as_of_no_call_is_added(store, commits):
    forget(store)
    counting = CountingStore(store)
    read_table(UUID, counting)
    assert not [call for call in counting.calls if "_history" in call.key]
    counting.reset()
    read_table(UUID, counting, columns=[])
    assert counting.touched("get", "get_versioned") == []


def test_wrong_moments_are_refused(store, commits):
    with pytest.raises(InvalidInput, match=f"'{UUID}'.*history"):
        read_table(UUID, store, as_of="unknown")
    with pytest.raises(InvalidInput, match="cannot be read as of 1999"):
        read_table(UUID, store, as_of=dt.datetime(1999, 1, 1, tzinfo=dt.UTC))
    with pytest.raises(InvalidType, match="as_of"):
        read_table(UUID, store, as_of=dt.date(2024, 1, 1))


@pytest.mark.parametrize(
    "form", [pd.Timestamp, dt.datetime.isoformat, str, lambda time: time.replace(tzinfo=None).isoformat()]
)
def test_a_moment_may_be_of_pandas_or_text(store, commits, form):
    assert [sorted(read_table(UUID, store, as_of=form(commit.time))["x"]) for commit in commits] == XS


# --- any sequence of commits ----------------------------------------------------------------------

ROWS = st.lists(st.tuples(st.integers(0, 9), st.sampled_from("abc"), st.integers(0, 3)), min_size=1, max_size=4)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["append", "replace scope", "remove", "metadata", "overwrite", "two tables", "index"]), ROWS
    ),
    max_size=9,
)


def carry_out(store: Any, kind: str, rows: list[tuple[int, str, int]], n: int) -> None:
    data, keys = frame(*rows), list(load_snapshot(store, UUID).partition_keys)
    tables = load_snapshot(store, UUID).tables
    given = [data] if tables == ("table",) else [dict.fromkeys(tables, data)]
    scope = [{keys[0]: rows[0][1]}] if keys else []
    same = {"metadata_storage_format": "msgpack" if load_snapshot(store, UUID).key.endswith(".zstd") else "json"}
    if kind == "overwrite":
        by = ["p"] if n % 2 else None
        store_dataframes_as_dataset(
            store, UUID, [data], partition_on=by, secondary_indices=["i1"], metadata={"n": n}, overwrite=True, **same
        )
    elif kind == "two tables":
        store_dataframes_as_dataset(
            store, UUID, [{"table": data, "other": data.assign(v1=n)}], partition_on=["p"], overwrite=True, **same
        )
    elif kind == "index" and len(tables) == 1:
        build_dataset_indices(store, UUID, ["x"])
    elif kind == "metadata":
        update_dataset_from_dataframes([], store, UUID, metadata={"n": n})
    elif len(tables) == 1:
        update_dataset_from_dataframes(
            [] if kind == "remove" else given,
            store,
            UUID,
            delete_scope=[] if kind == "append" else scope,
            metadata={"m": n},
        )


def contents(store: Any, when: Any = None) -> list[Any]:
    """Everything that a reader sees, in its order."""
    factory = DatasetFactory(UUID, store, load_all_indices=True, as_of=when)
    tables = {t: read_table(UUID, store, table=t, as_of=when) for t in factory.tables}
    filtered = {
        t: read_table(UUID, store, table=t, predicates=[[("i1", "==", 1)], [("x", ">", 7)]], as_of=when)
        for t in factory.tables
    }
    return [
        tables,
        filtered,
        factory.metadata,
        factory.partition_keys,
        list(factory.partitions),
        sorted(factory.indices),
    ]


def assert_same(one: list[Any], other: list[Any]) -> None:
    assert one[2:] == other[2:]
    for left, right in zip(one[:2], other[:2], strict=True):
        assert left.keys() == right.keys()
        for name in left:
            assert_frame_equal(left[name], right[name])


@pytest.mark.slow
@given(STEPS, st.sampled_from(["json", "msgpack"]), ROWS, st.booleans())
def test_whatever_was_committed_can_be_read_again(steps, encoding, rows, without_old_indices):
    store = MemoryStore()
    store_dataframes_as_dataset(
        store, UUID, [frame(*rows)], partition_on=["p"], secondary_indices=["i1"], metadata_storage_format=encoding
    )
    seen = {newest(store).id: (newest(store).time, contents(store))}
    for n, (kind, more) in enumerate(steps):
        carry_out(store, kind, more, n)
        seen[newest(store).id] = (newest(store).time, contents(store))
    if without_old_indices:
        current = set(load_snapshot(store, UUID).document.indices.values())
        for key in [k for k in store.list(f"{UUID}/indices/", recursive=True).keys if k not in current]:
            store.delete(key)
    for commit, (time, expected) in seen.items():
        assert_same(contents(store, commit), expected)
        assert_same(contents(store, time), expected)
    assert_same(contents(store), list(seen.values())[-1][1])

"""Cubes as they were."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

from kartothek_cube.api.cube import (
    C,
    append_to_cube,
    build_cube,
    collect_stats,
    count_cube,
    describe_cube,
    extend_cube,
    iter_cube,
    load_group,
    open_cube,
    plan_cube_query,
    query_cube,
    query_cube_arrow,
    remove_partitions,
    stream_cube,
)
from kartothek_cube.api.dataset import history, undo
from kartothek_cube.api.discover import discover_cube, discover_datasets
from kartothek_cube.core.snapshots.loader import load_snapshot
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import InvalidInput, InvalidType
from tests.caches import forget
from tests.support.cubes import CUBE, ENRICH, SEED, table

SEED_UUID, E_UUID = "cube++seed", "cube++e"
NEW = table(x=[5], y=["c"], p=[2], i1=[30], v1=[4.5])
NEW_E = table(x=[5, 0], i2=["five", "zero"], v2=[50, 0])


def last(store, uuid=SEED_UUID):
    forget(store)
    return load_snapshot(store, uuid).chain[-1]


def rows(table):
    return sorted(map(tuple, (row.values() for row in table.to_pylist())), key=str)


@pytest.fixture
def store():
    return MemoryStore()


@pytest.fixture
def moments(store):
    """A seed; with an enrichment; with a write to both; with a partition less.

    Each with its moment and rows.
    """
    steps = [
        lambda: build_cube(SEED, CUBE, store),
        lambda: extend_cube({"e": ENRICH}, CUBE, store, partition_on={"e": []}),
        lambda: append_to_cube({"seed": NEW, "e": NEW_E}, CUBE, store),
        lambda: remove_partitions(CUBE, store, C("p") == 0, ["seed"]),
    ]
    found = []
    for step in steps:
        step()
        found.append((dt.datetime.now(dt.UTC), rows(query_cube_arrow(CUBE, store))))
    return found


READERS = {
    "query_cube_arrow": lambda store, when: query_cube_arrow(CUBE, store, as_of=when),
    "query_cube": lambda store, when: pa.table(
        {"n": range(sum(map(len, query_cube(CUBE, store, partition_by="i1", as_of=when))))}
    ),
    "stream_cube": lambda store, when: stream_cube(CUBE, store, as_of=when).read_all(),
    "iter_cube": lambda store, when: pa.concat_tables([t for _, t in iter_cube(CUBE, store, as_of=when)]),
    "plan_cube_query": lambda store, when: pa.concat_tables(
        [load_group(g, store) for g in plan_cube_query(CUBE, store, as_of=when).groups]
    ),
    "count_cube": lambda store, when: pa.table({"n": range(count_cube(CUBE, store, as_of=when))}),
}


@pytest.mark.parametrize("old_indices", ["there", "gone"])
@pytest.mark.parametrize("reader", READERS)
def test_every_reader_reads_the_cube_as_it_was(store, moments, reader, old_indices):
    if old_indices == "gone":
        current = {key for uuid in (SEED_UUID, E_UUID) for key in load_snapshot(store, uuid).document.indices.values()}
        for key in [k for k in store.list("", recursive=True).keys if "/indices/" in k and k not in current]:
            store.delete(key)
    for when, expected in moments:
        found = READERS[reader](store, when)
        assert len(found) == len(expected) if found.column_names == ["n"] else rows(found) == expected


def test_conditions_and_groups_of_an_older_state(store, moments):
    when = moments[1][0]
    assert query_cube_arrow(CUBE, store, C("v2") > 0, as_of=when).num_rows == 2
    assert [key for key, _ in iter_cube(CUBE, store, C("i2") == "one", partition_by="i1", as_of=when)] == [
        {"i1": 10},
        {"i1": 20},
    ]


def test_a_dataset_that_did_not_exist_is_absent(store, moments):
    assert sorted(discover_datasets(CUBE, store, as_of=moments[0][0])) == ["seed"]
    assert sorted(discover_cube("cube", store, as_of=moments[1][0])[1]) == ["e", "seed"]
    assert [d.id for d in describe_cube("cube", store, as_of=moments[0][0]).datasets] == ["seed"]
    assert open_cube("cube", store, as_of=moments[1][0]) == CUBE
    assert collect_stats(CUBE, store, as_of=moments[1][0])["e"]["rows"] == 2
    with pytest.raises(InvalidInput, match=r"requested datasets as of .*: e"):
        query_cube(CUBE, store, datasets=["seed", "e"], as_of=moments[0][0])
    for read in (
        lambda: query_cube(CUBE, store, as_of="1999-01-01"),
        lambda: discover_cube("cube", store, as_of=dt.datetime(1999, 1, 1)),
    ):
        with pytest.raises(
            InvalidInput,
            match=(
                r"Cube 'cube' cannot be read as of 1999-01-01T00:00:00\+00:00: "
                r"of its datasets e, seed none existed then"
            ),
        ):
            read()


def test_a_moment_may_be_text(store, moments):
    for moment, expected in moments:
        assert rows(query_cube_arrow(CUBE, store, as_of=moment.isoformat(" "))) == expected


def test_the_id_of_a_write_to_the_cube_takes_all_its_datasets(store, moments):
    [cube] = {c for uuid in (SEED_UUID, E_UUID) for c in history(uuid, store)["cube"].dropna()}
    assert rows(query_cube_arrow(CUBE, store, as_of=cube)) == moments[2][1]
    undone = history(SEED_UUID, store)["commit"][1]
    assert rows(query_cube_arrow(CUBE, store, as_of=undone)) == moments[2][1]


def test_the_id_of_one_dataset_takes_the_others_at_its_time(store, moments):
    extended = history(E_UUID, store)["commit"].iloc[-1]
    assert rows(query_cube_arrow(CUBE, store, as_of=extended)) == moments[1][1]
    assert query_cube_arrow(CUBE, store, datasets=["seed"], as_of=extended).num_rows == 4
    built = history(SEED_UUID, store)["commit"].iloc[-1]
    assert sorted(discover_datasets(CUBE, store, as_of=built)) == ["seed"]


@pytest.mark.slow
def test_ids_older_than_the_chains_are_found(store, moments):
    for _ in range(33):
        undo(SEED_UUID, store)
        undo(E_UUID, store)
    ids = history(E_UUID, store)["cube"].dropna()
    assert rows(query_cube_arrow(CUBE, store, as_of=ids.iloc[-1])) == moments[2][1]
    for _ in range(33):
        undo(E_UUID, store)
    assert rows(query_cube_arrow(CUBE, store, as_of=history(E_UUID, store)["commit"].iloc[-1])) == moments[1][1]


def test_wrong_moments_are_refused(store, moments):
    with pytest.raises(
        InvalidInput, match=f"Cube 'cube' cannot be read as of commit '{'0' * 32}': none of the datasets e, seed"
    ):
        query_cube(CUBE, store, as_of="0" * 32)
    with pytest.raises(InvalidType, match="as_of"):
        query_cube(CUBE, store, as_of=1)
    for read in (query_cube, collect_stats):
        with pytest.raises(InvalidInput, match="loaded already"):
            read(CUBE, store, datasets=discover_datasets(CUBE, store), as_of=moments[0][0])
    store.delete(f"{E_UUID}/_history/{last(store, E_UUID).id}.json.zst")
    with pytest.raises(InvalidInput, match="Dataset 'cube\\+\\+e' cannot be read as of"):
        query_cube(CUBE, store, as_of=moments[1][0])

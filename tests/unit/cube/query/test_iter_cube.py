"""`iter_cube`: the groups of `query_cube`, one after the other, also when they have to wait on
disk.
"""

from __future__ import annotations

import datetime
import pickle
import tempfile
import threading
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

from kartothek_cube import options
from kartothek_cube.api.cube import (
    C,
    Cube,
    append_to_cube,
    build_cube,
    extend_cube,
    iter_cube,
    load_group,
    plan_cube_query,
    query_cube,
    query_cube_arrow,
)
from kartothek_cube.core.arrow.keys import AMPLIFICATION_LIMIT
from kartothek_cube.core.arrow.pandas import to_frame
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.testing.stores import Call, CountingStore
from tests.support.cubes import ColdStore, table

CUBE = Cube(["x", "y"], ["p"], "cube", index_columns=["i1", "i2"])
DAYS = [datetime.date(2024, 1, 1) + datetime.timedelta(d) for d in range(7)]


@pytest.fixture
def store():
    """Every value of i1 is in every partition, so that loading groups alone would read each file
    seven times.
    """
    store = MemoryStore()
    n = 210
    build_cube(
        table(
            x=list(range(n)),
            y=["a"] * n,
            p=[x % 3 for x in range(n)],
            i1=[DAYS[x // 3 % 7] for x in range(n)],
            v1=[x / 2 for x in range(n)],
        ),
        CUBE,
        store,
    )
    extend_cube(
        {"e": table(x=list(range(0, n, 2)), i2=[f"k{x % 5}" for x in range(0, n, 2)])},
        CUBE,
        store,
        partition_on={"e": []},
    )
    return store


def assert_same_groups(store, **arguments):
    groups = list(iter_cube(CUBE, store, **arguments))
    frames = query_cube(CUBE, store, **arguments)
    assert len(groups) == len(frames)
    for (key, rows), frame in zip(groups, frames, strict=True):
        pd.testing.assert_frame_equal(to_frame(rows), frame)
        assert all(set(rows.column(c).to_pylist()) == {value} for c, value in key.items())


QUERIES = [
    {"partition_by": "i1"},
    {"partition_by": ["i1", "p"]},
    {"partition_by": "i2"},
    {"partition_by": "p"},
    {"partition_by": "x", "conditions": C("x") < 20},
    {"partition_by": "i1", "conditions": (C("i2") == "k0") & (C("v1") > 30.0)},
    {"partition_by": "i2", "payload_columns": []},
]


@pytest.mark.parametrize("arguments", QUERIES, ids=str)
@pytest.mark.parametrize("limit", [1, 3000, 2**28])
def test_groups_are_those_of_query_cube_however_little_memory_there_is(store, arguments, limit):
    append_to_cube(table(x=[1, 999], y=["a", "a"], p=[1, 0], i1=[DAYS[6], DAYS[0]], v1=[-1.0, -2.0]), CUBE, store)
    with options(bytes_in_flight=limit):
        assert_same_groups(store, **arguments)


def test_without_partition_by_a_group_is_a_partition(store):
    groups = list(iter_cube(CUBE, store))
    assert [key for key, _ in groups] == [{"p": 0}, {"p": 1}, {"p": 2}]
    assert sum(rows.num_rows for _, rows in groups) == query_cube_arrow(CUBE, store).num_rows


def test_the_spilling_path_is_taken_and_leaves_nothing_behind(store, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert plan_cube_query(CUBE, store, partition_by="i1").amplification() > AMPLIFICATION_LIMIT
    with options(bytes_in_flight=1):
        groups = iter_cube(CUBE, store, partition_by="i1")
        next(groups)
        assert list(Path(tmp_path).rglob("*.arrow"))
        groups.close()
    assert list(tmp_path.iterdir()) == []


def test_files_that_groups_share_are_read_once(store):
    counting = ColdStore(store)
    assert len(list(iter_cube(CUBE, counting, partition_by="i1"))) == 7
    reads = [key for key in counting.touched("tail") if "/table/" in key]
    assert len(reads) == len(set(reads)) == 4


def test_nothing_is_read_before_the_first_step_but_arguments_are_checked(store):
    counting = ColdStore(store)
    groups = iter_cube(CUBE, counting)
    assert not [key for key in counting.touched("tail") if "/table/" in key]
    with pytest.raises(ValueError, match="zz"):
        iter_cube(CUBE, counting, payload_columns="zz")
    assert next(groups)[0] == {"p": 0}
    groups.close()
    assert all(isinstance(call, Call) for call in counting.calls)


def test_empty_groups_are_left_out(store):  # cube 192
    assert [key for key, _ in iter_cube(CUBE, store, C("v1") == 1.0)] == [{"p": 2}]
    assert list(iter_cube(CUBE, store, C("v1") == -5.0)) == []


def test_the_first_group_comes_before_the_last_file_is_read_where_only_enrichments_are_shared():
    cube = Cube(["x"], ["p"], "lazy", index_columns=["i1"])
    store = CountingStore(MemoryStore())
    seed = pa.table({"x": list(range(40)), "p": list(range(40))})
    build_cube(
        {"seed": seed, "a": pa.table({"x": [1], "v1": [1]}), "b": pa.table({"x": [2], "v2": [1]})},
        cube,
        store,
        partition_on={"a": [], "b": []},
    )
    store.reset()
    next(iter_cube(cube, store, partition_by="p", options=options(threads=1)))
    assert len([key for key in store.touched("tail") if "seed/table" in key]) < 5


def test_options_of_the_call_hold_for_groups_that_are_asked_for_later():
    cube = Cube(["x"], ["p"], "later")
    store = MemoryStore()
    build_cube(pa.table({"x": list(range(9)), "p": list(range(9))}), cube, store)
    with options(threads=1):
        groups = iter_cube(cube, store)
    before = threading.active_count()
    next(groups)
    assert threading.active_count() == before


def test_a_plan_carries_only_the_files_that_it_reads():
    cube = Cube(["x"], ["p"], "small")
    store = MemoryStore()
    build_cube(pa.table({"x": list(range(500)), "p": list(range(500))}), cube, store)
    plan = plan_cube_query(cube, store, C("p") == 7)
    assert len(pickle.dumps(plan)) < 20_000
    assert load_group(pickle.loads(pickle.dumps(plan)).groups[0], store).to_pylist() == [{"p": 7, "x": 7}]

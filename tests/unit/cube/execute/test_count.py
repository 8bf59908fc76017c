"""Counts from statistics: how often the store is asked, and that the number is that of the rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from kartothek_cube import options
from kartothek_cube.api.cube import C, Cube, append_to_cube, build_cube, collect_stats, count_cube, query_cube_arrow
from kartothek_cube.core.expressions.predicates import Bounds
from kartothek_cube.core.snapshots import statistics
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.cube.execute.run import disjoint_groups
from kartothek_cube.testing.stores import CountingStore
from tests.caches import forget
from tests.support.cubes import contents

CUBE = Cube(["DAY", "SHOP"], ["MONTH"], "sales")


def sales(days, months, shop="a"):
    return pa.table({"DAY": days, "SHOP": [shop] * len(days), "MONTH": months, "UNITS": [1.0] * len(days)})


def data_calls(counting):
    used = [call for call in counting.calls if call.key.endswith(".parquet") and "/indices/" not in call.key]
    return [call for call in used if call.operation != "local_path"]


def counted(store, **arguments):
    """The number of rows, and the calls for files of an empty cache."""
    forget(store)
    counting = CountingStore(store)
    number = count_cube(CUBE, counting, **arguments)
    assert number == query_cube_arrow(CUBE, store, **arguments, payload_columns=[]).num_rows
    return number, data_calls(counting)


def test_a_count_of_many_files_asks_once_for_a_statistics_file(monkeypatch):
    monkeypatch.setattr(statistics, "_MOST_INSIDE", 0)
    store, months = MemoryStore(), [m for m in range(300) for _ in range(2)]
    build_cube(
        {"seed": sales(range(600), months), "costs": sales(range(600), months).rename_columns({"UNITS": "COST"})},
        CUBE,
        store,
    )
    number, calls = counted(store)
    assert number == 600
    assert [(c.operation, "/_statistics/" in c.key) for c in calls] == [("tail", True)]

    forget(store)
    counting = CountingStore(store)
    found = collect_stats(CUBE, counting)
    assert {call.key.split("/")[1] for call in data_calls(counting)} == {"_statistics"}
    assert len(data_calls(counting)) == 2
    for key in [key for key in contents(store) if "/_statistics/" in key]:
        store.delete(key)
    forget(store)
    assert found == collect_stats(CUBE, store)
    assert found["seed"]["rows"] == 600


def test_a_count_asks_for_no_file_where_statistics_are_inside_the_document():
    store = MemoryStore()
    build_cube(sales([1, 2, 3], [1, 1, 2]), CUBE, store)
    assert counted(store) == (3, [])
    assert counted(store, conditions=C("MONTH") == 1) == (2, [])


def test_files_without_statistics_are_counted_by_footers():
    store = MemoryStore()
    build_cube(sales([1, 2], [1, 2]), CUBE, store, options=options(statistics=False))
    append_to_cube(sales([3], [3]), CUBE, store)
    number, calls = counted(store)
    assert (number, len(calls)) == (3, 2)


@pytest.mark.parametrize(
    ("appended", "files"),
    [
        (sales([11, 12], [1, 1]), 0),
        (sales([2, 12], [1, 1]), 2),  # a cell of both files
        (sales([4], [1]), 2),  # between those of the other file
        (sales([2], [1], "b"), 0),  # apart by the other dimension
    ],
)
def test_several_files_of_a_partition_are_counted_if_they_hold_no_cell_twice(appended, files):
    store = MemoryStore()
    build_cube(sales([1, 2, 10, 7], [1, 1, 1, 2]), CUBE, store)
    append_to_cube(appended, CUBE, store)
    assert len(counted(store)[1]) == files


def test_conditions_on_rows_and_fewer_dimensions_read_cells():
    store = MemoryStore()
    build_cube(sales([1, 2, 3], [1, 1, 2]), CUBE, store)
    assert len(counted(store, conditions=C("DAY") > 1)[1]) == 2
    assert len(counted(store, dimension_columns=["SHOP"])[1]) == 2


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pa.array([1, 5, 3]), [True, True]),
        (pa.array([-0.0, 5.0, 0.0]), [False, True]),  # equal zeros
        (pa.array([1, 5, None]), [False, True]),
        (pa.array(["a", "b", "a"]), [False, True]),
    ],
)
def test_files_are_apart_if_no_value_can_be_in_two_of_a_group(values, expected):
    bounds = Bounds(values, values, np.zeros(3, dtype=bool))
    assert disjoint_groups(np.array([0, 1, 0]), bounds).tolist() == expected
    assert disjoint_groups(np.array([0, 1, 0]), Bounds(values, values, np.ones(3, dtype=bool))).tolist() == [
        False,
        True,
    ]


def test_no_file_is_in_no_group():
    empty = pa.array([], type=pa.int64())
    bounds = Bounds(empty, empty, np.zeros(0, dtype=bool))
    assert disjoint_groups(np.zeros(0, dtype=np.int64), bounds).tolist() == []


def test_a_condition_that_no_partition_satisfies_counts_nothing():
    store = MemoryStore()
    build_cube(sales([1], [1]), CUBE, store)
    assert counted(store, conditions=C("MONTH") > 1) == (0, [])

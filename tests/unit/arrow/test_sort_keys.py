from __future__ import annotations

import datetime as dt
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from kartothek_cube.core.arrow.keys import (
    ascends,
    expand_ranges,
    group_starts,
    pack,
    pack_one,
    stable_order,
    take_rows,
)
from tests.support.key_tables import tables


def sort_keys(table):
    """Rows as tuples that sort null last."""
    columns = [c.to_pylist() for c in table.columns]
    return [tuple((v is None, 0 if v is None else v) for v in row) for row in zip(*columns, strict=True)]


@given(tables())
def test_keys_compare_as_the_rows_do(found):
    (table,) = found
    rows, keys = sort_keys(table), pack_one(table, table.column_names).tolist()
    for left, a in zip(rows, keys, strict=True):
        for right, b in zip(rows, keys, strict=True):
            assert (left < right, left == right) == (a < b, a == b)


@given(tables(n_tables=3))
def test_keys_compare_across_tables(found):
    rows = [row for table in found for row in sort_keys(table)]
    keys = [key for keys in pack(found, found[0].column_names) for key in keys.tolist()]
    order = sorted(range(len(rows)), key=rows.__getitem__)
    assert [rows[i] for i in np.argsort(keys, kind="stable")] == [rows[i] for i in order]
    assert len(set(keys)) == len({tuple(map(str, row)) for row in rows}) or len(set(keys)) == len(set(rows))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (pa.array([1, None], pa.int8()), pa.array([2**40, 1], pa.int64())),
        (pa.array([1, 2], pa.int8()), pa.array([2**40, 1], pa.int64())),
        (pa.array([1.5, 2.0], pa.float32()), pa.array([1e300, 1.5], pa.float64())),
        (pa.array(["a", "b"]).dictionary_encode(), pa.array(["c", "a"])),
        (pa.array(["a", "b"], pa.large_string()), pa.array(["c", "a"], pa.string())),
    ],
    ids=["null and width", "width", "float", "dictionary", "large"],
)
def test_columns_of_other_widths_compare(left, right):
    a, b = pack([pa.table({"x": left}), pa.table({"x": right})], ["x"])
    assert a[0] == b[1]
    assert a.max() < b[0] or left.null_count


def test_three_columns_of_the_full_range_still_fit():
    edge = pa.array([-(2**63), 2**63 - 1, 0])
    table = pa.table({"x": edge, "y": edge, "z": edge})
    assert np.argsort(pack_one(table, ["x", "y", "z"])).tolist() == [0, 2, 1]
    assert pack_one(table, []).tolist() == [0, 0, 0]


def test_nan_and_null_come_last():
    table = pa.table({"x": pa.array([None, float("nan"), 1.0, float("inf")])})
    assert np.argsort(pack_one(table, ["x"])).tolist() == [2, 3, 1, 0]


def test_negative_zero_is_zero():
    keys = pack_one(pa.table({"x": [0.0, -0.0, -1.0]}), ["x"])
    assert keys[0] == keys[1] > keys[2]


def test_a_column_that_is_null_throughout_comes_last():
    a, b = pack([pa.table({"x": pa.nulls(1)}), pa.table({"x": [3]})], ["x"])
    assert a[0] > b[0]


def test_order_is_stable_and_none_where_there_is_nothing_to_do():
    assert stable_order(np.array([1, 1, 2])) is None
    assert stable_order(np.array([], dtype=np.int64)) is None
    assert stable_order(np.array([2, 1, 2, 1])).tolist() == [1, 3, 0, 2]


@given(tables())
def test_rows_that_ascend_are_strictly_sorted(found):
    (table,) = found
    keys = pack_one(table, table.column_names)
    for rows in (table, table.take(pa.array(np.unique(keys, return_index=True)[1]))):
        sorted_rows = sort_keys(rows)
        strictly = all(a < b for a, b in pairwise(sorted_rows))
        assert ascends(rows, rows.column_names) == strictly or any(column.null_count for column in rows.columns)


def test_what_is_not_decided_without_keys_does_not_ascend():
    assert ascends(pa.table({"x": [1, 1, 2], "y": ["a", "b", "a"]}), ["x", "y"])
    assert not ascends(pa.table({"x": [1, None]}), ["x"])
    assert not ascends(pa.table({"x": [1, 2, 2]}), ["x"])
    assert ascends(pa.table({"x": [1]})[:0], ["x"])
    assert ascends(pa.table({"x": pa.array(["a", "b"]).dictionary_encode()}), ["x"])


def test_runs():
    assert group_starts(np.array([5, 5, 7, 8, 8])).tolist() == [0, 2, 3]
    assert group_starts(np.array([], dtype=np.int64)).tolist() == []


def test_ranges_without_positions_are_passed_over():
    rows, positions = expand_ranges(np.array([5, 7, 9]), np.array([2, 0, 1]))
    assert (rows.tolist(), positions.tolist()) == ([0, 0, 2], [5, 6, 9])


def test_rows_without_columns_can_be_taken():
    empty = pa.table({"x": [1, 2]}).select([])
    assert take_rows(empty, np.array([0, 0, 1])).num_rows == 3
    assert take_rows(pa.table({"x": [1, 2]}), np.array([1, 1])).to_pydict() == {"x": [2, 2]}


def test_dates_and_times_keep_their_order():
    days = pa.array([dt.date(9999, 12, 31), dt.date(1, 1, 1)])
    assert np.argsort(pack_one(pa.table({"x": days, "y": days.cast(pa.timestamp("us"))}), ["x", "y"])).tolist() == [
        1,
        0,
    ]

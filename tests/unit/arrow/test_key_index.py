"""Finding rows by the values of some columns, against a dictionary."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kartothek_cube.core.arrow.keys import KeyIndex, position_type
from tests.support.key_tables import tables


def rows_of(table):
    return [tuple(row.values()) for row in table.to_pylist()]


def expected(table, other):
    last = {row: number for number, row in enumerate(rows_of(table))}
    return [last.get(row, -1) for row in rows_of(other)]


@settings(max_examples=12, deadline=None)
@given(tables(n_tables=3), st.booleans())
def test_the_last_row_with_the_same_values_is_found(found, few_hits):
    table, *others = found
    lookup = KeyIndex(table, table.column_names, few_hits=few_hits)
    for other in (table, *others):
        assert lookup.positions(other).tolist() == expected(table, other)
    assert lookup.is_unique == (len(set(rows_of(table))) == len(table))


@settings(max_examples=12, deadline=None)
@given(
    st.lists(st.tuples(st.integers(-5, 5), st.integers(-5, 5))),
    st.lists(st.tuples(st.integers(-9, 9), st.integers(-9, 9))),
    st.sampled_from([1, 1000, 2**61]),
    st.booleans(),
)
def test_near_and_far_integers_are_found_alike(own, others, stride, few_hits):
    def table(rows):
        return pa.table(
            {
                "x": pa.array([x * (stride % 2**59) for x, _ in rows], pa.int64()),
                "y": pa.array([y for _, y in rows], pa.int64()),
            }
        )

    index = KeyIndex(table(own), ["x", "y"], few_hits=few_hits)
    assert index.positions(table(others)).tolist() == expected(table(own), table(others))
    assert index.is_unique == (len(set(own)) == len(own))


@pytest.mark.parametrize(
    ("own", "others", "positions"),
    [
        (pa.array([1, 2], pa.int8()), pa.array([2, 2**40, None]), [1, -1, -1]),
        (pa.array(["a", "b"]).dictionary_encode(), pa.array(["b", "c"]), [1, -1]),
        (pa.array(["a", "b"]), pa.array(["b", "c"]).dictionary_encode(), [1, -1]),
        (pa.array([0.5, -0.0], pa.float32()), pa.array([0.0, 0.5]), [1, 0]),
        (pa.array([5, None]), pa.array([None, 5], pa.int16()), [1, 0]),
        (pa.array([-(2**63), 2**63 - 1]), pa.array([0, 2**63 - 1]), [-1, 1]),
        (pa.array([7, 7, 7]), pa.array([7, 8]), [2, -1]),
        (pa.array([], pa.int64()), pa.array([7]), [-1]),
        (pa.array([7]), pa.array([], pa.int64()), []),
    ],
    ids=["width", "dictionary", "other dictionary", "float", "null", "whole range", "repeated", "nothing", "nobody"],
)
def test_columns_of_other_types(own, others, positions):
    assert KeyIndex(pa.table({"x": own}), ["x"]).positions(pa.table({"x": others})).tolist() == positions


@pytest.mark.parametrize("stride", [1, 10, 1000])
def test_memory_is_bounded_by_the_rows(stride):
    lookup = KeyIndex(pa.table({"x": np.arange(1000) * stride}), ["x"])
    assert 0 < lookup.nbytes <= 16 * 1000 * 4
    assert lookup.positions(pa.table({"x": [-1, 0, 500 * stride, 1000 * stride]})).tolist() == [-1, 0, 500, -1]


def test_rows_are_numbered_by_the_narrow_type():
    assert position_type(2**31 - 1) is np.int32
    assert position_type(2**31) is np.int64

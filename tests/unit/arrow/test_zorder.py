"""Z-order: the order of interleaved bits."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kartothek_cube.core.arrow.keys import interleave, z_order_keys


def naive(numbers, bits):
    """The bits of the numbers in turns, as text."""
    return int("".join("".join(digits) for digits in zip(*(f"{n:0{bits}b}" for n in numbers), strict=True)), 2)


@given(st.integers(1, 8).flatmap(lambda n: st.lists(st.lists(st.integers(0), min_size=n, max_size=n), max_size=5)))
def test_the_bits_of_all_numbers_take_turns(rows):
    columns = len(rows[0]) if rows else 2
    bits = 62 // columns
    rows = [[number % 2**bits for number in row] for row in rows]
    arrays = [np.array([row[i] for row in rows], dtype=np.int64) for i in range(columns)]
    assert interleave(arrays, bits).tolist() == [naive(row, bits) for row in rows]


def test_a_grid_is_walked_as_the_letter_z():
    cells = [(x, y) for x in range(4) for y in range(4)]
    table = pa.table({"x": [x for x, _ in cells], "y": [y for _, y in cells]})
    order = np.argsort(z_order_keys(table, ["x", "y"]), kind="stable")
    assert [cells[i] for i in order][:8] == [(0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (0, 3), (1, 2), (1, 3)]


VALUES = {
    "int": [3, 1, None, 2],
    "float": [float("nan"), -1.5, None, 0.0],
    "text": ["b", "", None, "ab"],
    "day": [dt.date(2024, 2, 29), dt.date(1969, 1, 1), None, dt.date(2000, 1, 1)],
    "decimal": [Decimal("9.99"), Decimal("-0.50"), None, Decimal("1.00")],
    "bool": [True, False, None, False],
}


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_columns_of_any_type_count_alike_and_nulls_are_last(values):
    both = pa.table({"x": [*values, *values], "y": [0] * 4 + [1] * 4})
    order = np.argsort(z_order_keys(both, ["y", "x"]), kind="stable").tolist()
    assert order[:4] in ([1, 3, 0, 2], [3, 1, 0, 2])
    assert order[4:] == [i + 4 for i in order[:4]]


def test_skewed_values_share_the_bits_evenly():
    # By value, all but one of these would be in the first half.
    table = pa.table({"x": [*range(1023), 2**60], "y": list(range(1024))})
    keys = z_order_keys(table, ["x", "y"])
    assert sum(int(key) >= 2**61 for key in keys) == 512


def test_no_rows_have_no_keys():
    assert len(z_order_keys(pa.table({"x": pa.array([], pa.int64()), "y": pa.array([], pa.string())}), ["x", "y"])) == 0

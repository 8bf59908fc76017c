"""Bringing aligned partitions into one order: the same as putting them together and sorting."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kartothek_cube.core.arrow.keys import pack
from kartothek_cube.cube.execute import run
from kartothek_cube.cube.execute.load import BuildSide, JoinedRows, join_cells
from kartothek_cube.cube.execute.run import concat_sorted, merged_order

SCHEMA = pa.schema(
    {
        "p": pa.int64(),
        "q": pa.string(),
        "v1": pa.float64(),
        "v2": pa.string(),
        "v3": pa.int8(),
        "x": pa.int64(),
        "y": pa.string(),
    }
)


def int64s(values):
    return np.array(values, dtype=np.int64)


@settings(max_examples=12, deadline=None)
@given(st.lists(st.lists(st.integers(0, 30)).map(int64s)).filter(lambda found: any(map(len, found))))
def test_the_order_is_stable(keys):
    order = merged_order(keys)
    values = np.concatenate(keys)
    if isinstance(order, list):
        assert sorted(order) == [i for i, own in enumerate(keys) if len(own)]
        begins = np.cumsum([0, *map(len, keys)])
        order = np.concatenate([np.arange(begins[i], begins[i + 1]) for i in order])
    assert order.tolist() == np.argsort(values, kind="stable").tolist()


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ([[4, 5], [], [1, 2]], [2, 0]),
        ([[1, 2], [2, 3]], [0, 1]),
        ([[2, 3], [1, 2]], [2, 0, 3, 1]),
        ([[0, 2], [1, 3]], [0, 2, 1, 3]),
        ([[0, 3], [2, 4]], [0, 2, 1, 3]),
        ([[0, 3], [0, 1]], [0, 2, 3, 1]),
        ([[0, 10**6], [1, 10**6]], [0, 2, 1, 3]),
        ([[2, 1]], [1, 0]),
    ],
    ids=["apart", "touching", "touching the wrong way", "dense", "with a gap", "equal", "far", "unsorted"],
)
@pytest.mark.parametrize("rows_of_a_thread", [1, 250_000])
def test_ways_to_an_order(monkeypatch, keys, expected, rows_of_a_thread):
    monkeypatch.setattr(run, "_SHARE_ROWS", rows_of_a_thread)
    order = merged_order([int64s(own) for own in keys])
    assert (order if isinstance(order, list) else order.tolist()) == expected


values = st.integers(0, 12)


@st.composite
def joined(draw):
    """Aligned partitions, the enrichment `products` being the same in all, and the rows of each as
    a table.
    """
    products = BuildSide(product_rows(draw(st.lists(values, unique=True))), ["x"])
    parts = []
    for p in range(draw(st.integers(1, 4))):
        cells = sorted(draw(st.sets(st.tuples(values, st.sampled_from("ab")), max_size=12)))
        seed = pa.table(
            {"x": pa.array([x for x, _ in cells], pa.int64()), "y": pa.array([y for _, y in cells], pa.string())}
        )
        some = draw(st.sets(st.tuples(values, st.sampled_from("ab")))) if draw(st.booleans()) else cells
        own = {"x": pa.array([x for x, _ in some], pa.int64()), "y": pa.array([y for _, y in some], pa.string())}
        other = BuildSide(pa.table({**own, "v1": pa.array([x / 2 for x, _ in some], pa.float64())}), ["x", "y"])
        inner, left = draw(st.sampled_from([([other], [products]), ([], [other, products])]))
        parts.append(join_cells(seed, ["x", "y"], inner, left, {"p": p, "q": draw(st.none() | st.just("k"))}))
    return parts


def product_rows(numbers):
    return pa.table(
        {
            "x": pa.array(numbers, pa.int64()),
            "v2": pa.array([None if n == 3 else f"product {n}" for n in numbers], pa.string()),
        }
    )


@settings(max_examples=12, deadline=None)
@given(joined(), st.sampled_from([["x", "y"], ["y", "x"], ["y"]]))
def test_rows_are_those_of_the_parts_one_after_the_other_and_sorted(parts, columns):
    parts = [part for part in parts if part.rows]
    plain = pa.concat_tables([part.table(SCHEMA) for part in parts]) if parts else SCHEMA.empty_table()
    found = concat_sorted(parts, SCHEMA, columns)
    found.validate(full=True)
    assert found.schema.equals(SCHEMA)
    order = np.argsort(pack([plain], columns)[0], kind="stable")
    assert found.to_pylist() == plain.take(pa.array(order)).to_pylist()


def test_no_parts_are_no_rows():
    assert concat_sorted([], SCHEMA, ["x"]).equals(SCHEMA.empty_table())
    assert JoinedRows().table(SCHEMA).equals(SCHEMA.empty_table())

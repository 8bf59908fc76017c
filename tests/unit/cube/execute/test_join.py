"""Joining rows of one partition: positions by key, whatever the keys look like."""

from __future__ import annotations

import datetime

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kartothek_cube.cube.execute.load import (
    BuildSide,
    join_cells,
    newest_rows,
    positions_of,
    rows_at,
    take_indices,
    with_overlays,
)
from tests.support.cubes import table


def naive_positions(left, right, on):
    known = {tuple(row[c] for c in on): i for i, row in enumerate(right.to_pylist())}
    return [known.get(tuple(row[c] for c in on), -1) for row in left.to_pylist()]


def found_positions(left, right):
    found = positions_of(left, BuildSide(right, left.column_names), left.column_names)
    return list(range(left.num_rows)) if found is None else found.tolist()


KEYS = {
    "equal": (table(x=[1, 2, 3]), table(x=[1, 2, 3])),
    "sorted": (table(x=[1, 2, 3, 5]), table(x=[2, 3, 4])),
    "unsorted": (table(x=[3, 1, 2, 2]), table(x=[2, 9, 1])),
    "nothing left": (table(x=[1])[:0], table(x=[1])),
    "nothing right": (table(x=[1, 2]), table(x=[1])[:0]),
    "two keys": (table(x=[1, 1, 2], y=["b", "a", "a"]), table(x=[2, 1], y=["a", "b"])),
    "negative": (table(x=[-(2**62), 0, 2**62]), table(x=[2**62, -(2**62)])),
    "whole range": (table(x=[-(2**63), 2**63 - 1, 0]), table(x=[2**63 - 1, -(2**63)])),
    "two wide keys": (table(x=[-(2**62), 2**62], y=[2**62, -(2**62)]), table(x=[2**62, 5], y=[-(2**62), 5])),
    "unsigned": (
        pa.table({"x": pa.array([0, 2**64 - 1], pa.uint64())}),
        pa.table({"x": pa.array([2**64 - 1], pa.uint64())}),
    ),
    "widths": (pa.table({"x": pa.array([1, 2], pa.int8())}), pa.table({"x": pa.array([2, 2**40], pa.int64())})),
    "float widths": (
        pa.table({"x": pa.array([0.5, 2], pa.float32())}),
        pa.table({"x": pa.array([2, 0.5], pa.float64())}),
    ),
    "unsigned widths": (pa.table({"x": pa.array([1, 2], pa.uint8())}), pa.table({"x": pa.array([2], pa.uint64())})),
    "text": (table(x=["b", "", "ä"]), table(x=["ä", "b", "zz"])),
    "bytes": (table(x=[b"b", b""]), table(x=[b"", b"zz"])),
    "booleans": (table(x=[True, False]), table(x=[False])),
    "dates": (table(x=[datetime.date(1969, 1, 1), datetime.date(2024, 1, 1)]), table(x=[datetime.date(2024, 1, 1)])),
    "timestamps": (
        table(x=[datetime.datetime(1969, 1, 1), datetime.datetime(2024, 1, 1, 0, 0, 0, 1)]),
        table(x=[datetime.datetime(2024, 1, 1, 0, 0, 0, 1)]),
    ),
    "null key": (table(x=["a", None]), table(x=[None, "a"])),
}


@pytest.mark.parametrize("name", KEYS)
def test_positions_are_those_of_a_nested_loop(name):
    left, right = KEYS[name]
    assert found_positions(left, right) == naive_positions(left, right, left.column_names)


def test_many_random_keys():
    rng = np.random.default_rng(1)
    left = pa.table({"x": rng.integers(0, 50, 400), "y": [str(n) for n in rng.integers(0, 50, 400)]})
    right = newest_rows(
        pa.table({"x": rng.integers(0, 50, 300), "y": [str(n) for n in rng.integers(0, 50, 300)]}), ["x", "y"]
    )
    assert found_positions(left, right) == naive_positions(left, right, ["x", "y"])


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([(2, "old"), (1, "a"), (2, "new")], [(1, "a"), (2, "new")]),
        ([(1, "a"), (2, "b")], [(1, "a"), (2, "b")]),
        ([(1, "a"), (1, "b"), (1, "c")], [(1, "c")]),
        ([(1, "a")], [(1, "a")]),
        ([], []),
    ],
)
def test_the_last_row_of_a_cell_is_kept_and_cells_are_sorted(rows, expected):
    data = pa.table(
        {"x": pa.array([x for x, _ in rows], pa.int64()), "v1": pa.array([v for _, v in rows], pa.string())}
    )
    assert [tuple(row.values()) for row in newest_rows(data, ["x"]).to_pylist()] == expected


def test_a_table_that_needs_nothing_is_not_copied():
    data = table(x=[1, 2, 3])
    assert newest_rows(data, ["x"]) is data


# --- overlays -------------------------------------------------------------------------------------

TYPES = {
    **{
        str(t): (t, lambda n: n % 100)
        for t in (pa.int8(), pa.uint16(), pa.int32(), pa.int64(), pa.date32(), pa.timestamp("ns"))
    },
    **{str(t): (t, float) for t in (pa.float32(), pa.float64())},
    "bool": (pa.bool_(), bool),
    "string": (pa.string(), str),
    "list": (pa.list_(pa.int64()), lambda n: [n] * (n % 3)),
}


def rows_of_file(cells, number, *, nulls=False):
    """Rows of some cells, with a column of each type; also in memory that is nobody else's."""
    values = [10 * number + i for i in range(len(cells))]
    columns = {
        name: pa.array([None if nulls and n % 4 == 0 else make(n) for n in values], data_type)
        for name, (data_type, make) in TYPES.items()
    }
    return pa.table({"x": pa.array(cells, pa.int64()), **columns})


def decoded(rows):
    """The rows as a file gives them."""
    file = pa.BufferOutputStream()
    pq.write_table(rows, file)
    return pq.read_table(pa.BufferReader(file.getvalue()))


@pytest.mark.parametrize(
    "cells",
    [
        [[1, 2, 3, 5], [3], [1, 3]],
        [[1, 2, 3], [3, 1, 3]],
        [[1, 2, 3], [2, 4]],
        [[1, 3, 2], [2]],
        [[1, 2, 2], [2]],
        [[], [1]],
        [[1, 2], [], [2]],
        [[1, 2], []],
        [[1, 2]],
        [list(range(400)), list(range(0, 400, 7)), list(range(399, 0, -13))],
    ],
)
@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.usefixtures("fast_paths")
def test_overlays_replace_rows_as_if_all_were_sorted(cells, nulls):
    files = [rows_of_file(found, n, nulls=nulls and n != 1) for n, found in enumerate(cells)]
    expected = newest_rows(pa.concat_tables(files), ["x"])
    found = with_overlays([decoded(file) for file in files], ["x"])
    assert newest_rows(found, ["x"]).equals(expected)
    assert newest_rows(with_overlays([f.slice(0) for f in map(decoded, files)], ["x"]), ["x"]).equals(expected)


@pytest.mark.usefixtures("fast_paths")
def test_numbers_are_replaced_in_place_and_texts_are_not():
    base, overlay = (decoded(rows_of_file(cells, n)) for n, cells in enumerate([range(50), [7]]))
    found = with_overlays([base, overlay], ["x"])
    in_place = {
        c
        for c in base.column_names
        if found[c].chunk(0).buffers()[-1].address == base[c].chunk(0).buffers()[-1].address
    }
    assert in_place == {"x"}
    assert found["double"].to_pylist()[6:9] == [6.0, 10.0, 8.0]


def test_the_sign_of_zero_is_that_of_the_newest_row():
    base, overlay = (
        decoded(pa.table({"x": [zero, 1.0][: 2 - n], "v1": [n] * (2 - n)})) for n, zero in enumerate([0.0, -0.0])
    )
    assert str(with_overlays([base, overlay], ["x"])["x"].to_pylist()) == "[-0.0, 1.0]"


def test_bytes_of_others_are_never_written():
    lent = pa.py_buffer(np.arange(8).tobytes())
    column = pa.chunked_array([pa.Array.from_buffers(pa.int64(), 8, [None, lent])])
    with_overlays([pa.table({"x": column, "v1": column}), table(x=[2], v1=[100])], ["x"])
    assert column.to_pylist() == list(range(8))


SEED = table(x=[1, 2, 3], p=[0, 0, 0])
SCHEMA = pa.schema({"p": pa.int64(), "v1": pa.string(), "v2": pa.int8(), "x": pa.int64()})


def joined(one, two):
    others = [
        (BuildSide(table(x=[3, 1], v1=["c", "a"]), ["x"]), one),
        (BuildSide(pa.table({"x": [2, 3], "v2": pa.array([2, 3], pa.int8())}), ["x"]), two),
    ]
    found = join_cells(
        SEED, ["x"], [other for other, inner in others if inner], [other for other, inner in others if not inner], {}
    )
    return [(row["x"], row["v1"], row["v2"]) for row in found.table(SCHEMA).to_pylist()]


def test_rows_that_stay_keep_the_rows_of_a_dataset_with_equal_keys():
    same = BuildSide(table(x=[1, 2, 3], v1=["a", "b", "c"]), ["x"])
    found = join_cells(SEED, ["x"], [BuildSide(table(x=[3, 1], i1=[0, 0]), ["x"])], [same], {"p": 7}).table(SCHEMA)
    assert found.select(["p", "v1", "x"]).to_pylist() == [{"p": 7, "v1": "a", "x": 1}, {"p": 7, "v1": "c", "x": 3}]


@pytest.mark.parametrize("seed", [SEED, SEED[:0]], ids=["restricted", "empty"])
def test_where_no_row_is_left_nothing_more_is_asked_for(seed):
    def one():
        if not seed.num_rows:
            pytest.fail("asked for")
        yield BuildSide(table(x=[9]), ["x"])
        pytest.fail("asked for")

    def other():
        yield pytest.fail("asked for")

    assert join_cells(seed, ["x"], one(), other(), {}).rows == 0


def test_equal_keys_that_are_not_cells_may_occur_more_than_once():
    seed = table(x=[1, 1], y=["a", "b"])
    found = join_cells(seed, ["x", "y"], [], [BuildSide(table(x=[1, 1], v1=["old", "new"]), ["x"])], {}).table(SCHEMA)
    assert found.column("v1").to_pylist() == ["new", "new"]


def test_payload_is_not_moved_where_keys_are_equal():
    same = table(x=[1, 2, 3], v1=["a", "b", "c"])
    found = join_cells(SEED, ["x"], [], [BuildSide(same, ["x"])], {})
    assert [part.positions for part in found.parts] == [None, None]
    assert (
        found.table(SCHEMA).column("v1").chunk(0).buffers()[2].address
        == same.column("v1").chunk(0).buffers()[2].address
    )


def test_inner_joins_restrict_and_left_joins_do_not():
    assert joined(one=False, two=False) == [(1, "a", None), (2, None, 2), (3, "c", 3)]
    assert joined(one=True, two=False) == [(1, "a", None), (3, "c", 3)]
    assert joined(one=False, two=True) == [(2, None, 2), (3, "c", 3)]
    assert joined(one=True, two=True) == [(3, "c", 3)]


def test_a_column_that_no_table_has_is_null():
    found = join_cells(SEED, ["x"], [], [], {}).table(SCHEMA)
    assert found.column("v2").to_pylist() == [None] * 3
    assert found.schema.equals(SCHEMA)


def test_keys_of_others_are_not_held():
    found = join_cells(
        SEED, ["x"], [BuildSide(table(x=[3, 1, 2], i1=[0, 1, 2]), ["x"])], [BuildSide(table(x=[9]), ["x"])], {}
    )
    assert [part.table.column_names for part in found.parts[1:]] == [["i1"], []]
    assert found.compacted([2]).table(SCHEMA).equals(found.table(SCHEMA))


COLUMNS = {
    "numbers": pa.chunked_array([[1, 2], [3]]),
    "with null": pa.chunked_array([[1, None], [3]]),
    "booleans": pa.chunked_array([[True, False, True]]),
    "dates": pa.chunked_array([pa.array([1, 2, 3], pa.date32())]),
    "texts": pa.chunked_array([["a", None], ["c"]]),
    "sliced": pa.chunked_array([pa.array([0, 1, 2, 3])[1:]]),
}


@pytest.mark.parametrize("positions", [[2, -1, 0, 1], [-1, -1], [0, 2], [], [-1, 0, 1, 2, -1, 2, 1, 0, -1, 0]])
@pytest.mark.parametrize("name", COLUMNS)
def test_rows_at_positions_are_null_where_there_is_none(name, positions):
    values = COLUMNS[name].to_pylist()
    found = rows_at(COLUMNS[name], take_indices(np.array(positions, dtype=np.int32)))
    found.validate(full=True)
    assert found.type.equals(COLUMNS[name].type)
    assert found.to_pylist() == [None if at < 0 else values[at] for at in positions]
    assert found.null_count == found.to_pylist().count(None)

"""The difference of two tables: equal rows cancel one by one, and rows of one key replace each
other. In memory and on disk.
"""

from __future__ import annotations

import struct
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from kartothek_cube.core.arrow.difference import (
    CHANGE_TYPE,
    CHANGE_TYPES,
    DifferenceBuffer,
    changes_schema,
    row_difference,
)
from kartothek_cube.core.arrow.keys import take_rows
from kartothek_cube.core.arrow.types import stored_schema
from tests.support.all_types import ALL_TYPES, SPELLINGS
from tests.support.changes import check_changes, rows_of

NAN = float("nan")
OTHER_NAN = struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000001))[0]
TABLE = ALL_TYPES.cast(stored_schema(ALL_TYPES.schema))
MORE = pa.table(dict(SPELLINGS))


def changes(difference, schema):
    """All changes of a difference as one table."""
    result = changes_schema(schema)
    return pa.concat_tables([difference.updates(result), difference.others(result)])


def compared(before, after, on=None, within=(), **more):
    return changes(row_difference(before, after, on, within, **more), before.schema)


def buffered(before, after, on=None, within=(), limit=0, pieces=3, **more):
    """The same through a buffer, in pieces."""
    found = [changes_schema(before.schema).empty_table()]
    with DifferenceBuffer(before.schema, on, within, limit, **more) as buffer:
        size = -(-max(before.num_rows, after.num_rows, 1) // pieces)
        for start in range(0, size * pieces, size):
            buffer.add(*(take_rows(side, np.arange(side.num_rows)[start : start + size]) for side in (before, after)))
        found += [changes(difference, before.schema) for difference in buffer.differences()]
    return pa.concat_tables(found)


WAYS = {
    "in memory": compared,
    "on disk": buffered,
    "in a buffer": lambda *arguments, **more: buffered(*arguments, **more, limit=2**30),
}


@pytest.fixture(params=list(WAYS))
def compare(request):
    return WAYS[request.param]


def kinds(table):
    return Counter(table.column(CHANGE_TYPE).to_pylist())


# --- what is equal --------------------------------------------------------------------------------


@pytest.mark.parametrize("column", TABLE.column_names)
@pytest.mark.parametrize("on", [None, "id", "column"])
def test_every_stored_type_is_equal_to_itself_and_to_nothing_else(compare, column, on):
    rows = TABLE.select([column]).append_column("id", pa.array(range(TABLE.num_rows)))
    key = {None: None, "id": ["id"], "column": [column]}[on]
    shuffled = rows.take(pa.array([2, 0, 1]))
    assert compare(rows, shuffled, key).num_rows == 0
    assert compare(pa.concat_tables([rows, rows]), pa.concat_tables([shuffled, rows]), key).num_rows == 0
    if column != "n":
        moved = rows.set_column(0, rows.field(0), rows.column(0).take(pa.array([1, 2, 0])))
        found = compare(rows, moved, key)
        check_changes(found, rows, moved, key)
        assert found.num_rows == 6


@pytest.mark.parametrize("column", MORE.column_names)
def test_other_spellings_of_the_types_are_compared_too(compare, column):
    rows = MORE.select([column]).append_column("id", pa.array(range(MORE.num_rows)))
    assert compare(rows, rows.take(pa.array([2, 0, 1]))).num_rows == 0
    assert compare(rows, rows.slice(1)).num_rows == 1


@pytest.mark.parametrize("data_type", [pa.float64(), pa.float32(), pa.list_(pa.float64())])
@pytest.mark.parametrize("on", [None, ["id"], ["v"], ["id", "v"]])
def test_null_is_null_nan_is_nan_and_null_is_not_nan(compare, data_type, on):
    def column(*values):
        values = [[v] for v in values] if pa.types.is_list(data_type) else values
        return pa.array(values, data_type, from_pandas=False)

    before = pa.table({"id": range(5), "v": column(None, NAN, NAN, 0.0, -0.0)})
    after = pa.table({"id": range(5), "v": column(None, OTHER_NAN, NAN, -0.0, 0.0)})
    assert compare(before, after, on).num_rows == 0
    swapped = pa.table({"id": range(5), "v": column(NAN, None, NAN, 0.0, 0.0)})
    found = compare(before, swapped, on)
    check_changes(found, before, swapped, on)
    assert found.num_rows == 4


def test_sign_and_bits_of_nan_do_not_count_where_keys_occur_twice(compare):
    before = pa.table({"id": [1, 1, 2], "v": pa.array([NAN, 1.0, OTHER_NAN])})
    after = pa.table({"id": [1, 1, 2], "v": pa.array([1.0, -NAN, NAN])})
    assert compare(before, after, ["id"]).num_rows == 0
    assert compare(before, after, ["id", "v"]).num_rows == 0


def test_moments_that_python_cannot_show_are_compared(compare):
    far = pa.array([2**60, -(2**60), None], pa.int64())
    rows = pa.table({"us": far.cast(pa.timestamp("us")), "utc": far.cast(pa.timestamp("us", "UTC")), "id": range(3)})
    assert compare(rows, rows.take(pa.array([2, 1, 0]))).num_rows == 0
    assert kinds(compare(rows, rows.slice(1))) == {"delete": 1}


def test_texts_of_values_do_not_mix_up_types(compare):
    before = pa.table({"v": pa.array([["None"], None, [], ["1"]], pa.list_(pa.string()))})
    after = pa.table({"v": pa.array([[None], ["None"], [], ["1"]], pa.list_(pa.string()))})
    found = compare(before, after)
    check_changes(found, before, after)
    assert found.num_rows == 2


def test_large_integers_are_not_compared_as_floats(compare):
    before = pa.table({"v": pa.array([2**53, 2**63 - 1])})
    after = pa.table({"v": pa.array([2**53 + 1, 2**63 - 1])})
    assert kinds(compare(before, after)) == {"delete": 1, "insert": 1}


# --- which rows belong together -------------------------------------------------------------------


def test_equal_rows_cancel_one_by_one(compare):
    before, after = pa.table({"x": [1, 1, 1, 2]}), pa.table({"x": [1, 3, 1]})
    found = compare(before, after)
    check_changes(found, before, after)
    assert kinds(found) == {"delete": 2, "insert": 1}


def test_a_key_that_occurs_once_is_an_update_with_its_images_side_by_side(compare):
    before = pa.table({"x": [1, 2, 3], "v": [1, 2, 3]})
    after = pa.table({"x": [3, 2, 4], "v": [30, 2, 4]})
    found = compare(before, after, ["x"])
    assert Counter(rows_of(found)) == Counter(
        [("update_preimage", 3, 3), ("update_postimage", 3, 30), ("delete", 1, 1), ("insert", 4, 4)]
    )
    check_changes(found, before, after, ["x"])


def test_null_is_a_key_too(compare):
    before = pa.table({"x": [None, 1], "v": [1, 2]})
    after = pa.table({"x": [None, 1], "v": [10, 2]})
    assert kinds(compare(before, after, ["x"])) == {"update_preimage": 1, "update_postimage": 1}


def test_what_is_left_of_a_key_pairs_inside_its_partition_first(compare):
    before = pa.table({"x": [1, 1, 1], "p": ["a", "b", "c"], "v": [1, 2, 3]})
    after = pa.table({"x": [1, 1, 1, 1], "p": ["d", "b", "a", "c"], "v": [9, 20, 10, 3]})
    found = compare(before, after, ["x"], ["p"])
    check_changes(found, before, after, ["x"], ["p"])
    assert kinds(found) == {"update_preimage": 2, "update_postimage": 2, "insert": 1}


def test_a_row_that_moved_pairs_with_any_row_of_its_key(compare):
    before = pa.table({"x": [1, 1], "p": ["a", "a"], "v": [1, 2]})
    after = pa.table({"x": [1, 1], "p": ["b", "c"], "v": [1, 2]})
    found = compare(before, after, ["x"], ["p"])
    assert kinds(found) == {"update_preimage": 2, "update_postimage": 2}


def test_columns_that_are_not_shown_do_not_make_rows_differ(compare):
    """They only tell which rows belong together first."""
    before = pa.table({"x": [1, 2, 3, 3], "v": [1, 2, 3, 4], "p": ["a", "b", "a", "b"]})
    after = pa.table({"x": [1, 2, 3, 3], "v": [1, 20, 30, 40], "p": ["z", "z", "b", "a"]})
    found = compare(before, after, ["x"], ["p"], hidden=["p"])
    rows = {(r[CHANGE_TYPE], r["x"], r["v"]) for r in found.to_pylist()}
    assert rows == {
        (kind, x, v)
        for x, old, new in [(2, 2, 20), (3, 3, 40), (3, 4, 30)]
        for kind, v in [("update_preimage", old), ("update_postimage", new)]
    }
    images = [r["v"] for r in found.to_pylist() if r["x"] == 3]
    assert sorted(zip(images[::2], images[1::2], strict=True)) == [(3, 40), (4, 30)]
    twice = pa.table({"x": [1, 1], "v": [1, 2], "p": ["a", "a"]})
    moved = pa.table({"x": [1, 1], "v": [2, 1], "p": ["b", "b"]})
    assert compare(twice, moved, ["x"], ["p"], hidden=["p"]).num_rows == 0


# --- shapes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("on", [None, ["x"]])
def test_nothing_on_one_side_or_on_both(compare, on):
    rows = pa.table({"x": [1, 1, 2], "v": [[1], None, [None]]})
    nothing = rows.slice(0, 0)
    assert kinds(compare(rows, nothing, on)) == {"delete": 3}
    assert kinds(compare(nothing, rows, on)) == {"insert": 3}
    assert compare(nothing, nothing, on).schema == changes_schema(rows.schema)


def test_rows_without_columns_are_counted(compare):
    three, one = (pa.table({"x": range(n)}).select([]) for n in (3, 1))
    assert kinds(compare(three, one)) == {"delete": 2}
    assert kinds(compare(one, three)) == {"insert": 2}


def test_columns_in_chunks(compare):
    rows = pa.table({"x": pa.chunked_array([[1, 2], [], [3]]), "s": pa.chunked_array([["a"], [None, "c"]])})
    assert compare(rows, rows.combine_chunks().take(pa.array([2, 1, 0]))).num_rows == 0
    assert compare(rows, rows.combine_chunks(), ["s"]).num_rows == 0


def test_kinds_of_changes_are_those_of_delta():
    assert set(CHANGE_TYPES) == {"insert", "update_preimage", "update_postimage", "delete"}


# --- on disk --------------------------------------------------------------------------------------


def temporary():
    return sorted(Path(tempfile.gettempdir()).glob("kartothek_cube-*"))


@pytest.mark.parametrize("on", [None, ["x"], ["s"], ["f", "d"]])
def test_a_small_limit_changes_nothing(on):
    random = np.random.default_rng(1)

    def rows(n):
        return pa.table(
            {
                "x": random.integers(0, 50, n),
                "s": pa.array([[None, "a", "b", "ä"][i] for i in random.integers(0, 4, n)]),
                "f": pa.array([[None, NAN, 0.0, -0.0, 1.5][i] for i in random.integers(0, 5, n)], from_pandas=False),
                "d": pa.array(random.integers(0, 3, n), pa.int32()).cast(pa.date32()),
            }
        )

    before, after = rows(500), rows(400)
    before = pa.concat_tables([before, after.slice(0, 200)])
    for limit in (0, 1000, 2**30):
        check_changes(buffered(before, after, on, limit=limit, pieces=7), before, after, on)


def test_rows_beyond_the_limit_are_on_disk_and_the_file_goes_at_the_end(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    rows = pa.table({"x": range(10_000)})
    limit = rows.nbytes // 10
    with DifferenceBuffer(rows.schema, None, (), limit) as buffer:
        assert not temporary()
        for start in range(0, 10_000, 100):
            buffer.add(rows.slice(start, 100), None)
            buffer.add(None, rows.slice(start, 100))
            assert held(buffer) <= limit + 2 * rows.slice(0, 100).nbytes
        assert len(temporary()) == 1
        differences = buffer.differences()
        next(differences)
    assert not temporary()


def held(buffer):
    """The bytes that a buffer has in memory."""
    waiting = [*buffer._held[0], *buffer._held[1]]
    if buffer._spill is not None:
        waiting += [table for tables in buffer._spill._waiting.values() for table in tables]
    return sum(table.nbytes for table in waiting)


def test_the_parts_of_a_buffer_are_about_of_one_size(monkeypatch):
    """Keys of few values, or in steps, do not all go to one part, nor to one piece of a part."""
    monkeypatch.setattr("kartothek_cube.core.arrow.difference._LEAST_ROOM", 1)
    for keys in (range(0, 64_000, 64), range(1000), [i * 2**32 for i in range(1000)]):
        rows = pa.table({"x": list(keys)})
        with DifferenceBuffer(rows.schema, ["x"], (), 0) as buffer:
            buffer.add(rows, None)
            sizes = np.array([difference.deleted.num_rows for difference in buffer.differences()])
        parts = sizes.reshape(64, -1).sum(axis=1)
        assert parts.sum() == len(rows)
        assert parts.max() < 5 * len(rows) / len(parts)
        # A part that is too large for the limit is cut into pieces by other bits of the same hash.
        assert sizes.max() < 0.5 * parts.max()


def test_a_spilled_difference_of_nothing(tmp_path):
    schema = pa.schema([("x", pa.int64())])
    with DifferenceBuffer(schema, None, (), 0) as buffer:
        assert not any(kinds(changes(difference, schema)) for difference in buffer.differences())

from __future__ import annotations

import tempfile

import pyarrow as pa
import pytest

from kartothek_cube.core.arrow.keys import Spill, group_numbers, split_groups

TABLE = pa.table(
    {"x": pa.array([2, 1, None, 2, 9, 1], pa.int8()), "y": ["u", "v", "u", "u", "u", None], "v1": range(6)}
)
KEYS = pa.table({"x": [1, 2], "y": ["v", "u"]})


def test_rows_go_to_their_groups_in_their_order():
    assert group_numbers(KEYS, TABLE).tolist() == [1, 0, -1, 1, -1, -1]
    assert [(number, rows.column("v1").to_pylist()) for number, rows in split_groups(KEYS, TABLE)] == [
        (0, [1]),
        (1, [0, 3]),
    ]


@pytest.mark.parametrize(
    ("keys", "table"),
    [(KEYS.slice(0, 0), TABLE), (KEYS, TABLE.slice(0, 0)), (KEYS, TABLE.slice(4))],
    ids=["keys", "rows", "match"],
)
def test_without_rows_of_a_group_there_is_none(keys, table):
    assert list(split_groups(keys, table)) == []
    assert group_numbers(keys, table).tolist() == [-1] * table.num_rows


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


ROWS = [(3, ["a", None]), (1, ["b"]), (3, ["c"]), (1, []), (2, ["d"] * 50), (3, ["e"])]


@pytest.mark.parametrize(("limit", "on_disk"), [(1, True), (40, True), (float("inf"), False)])
def test_what_is_added_is_taken_as_it_was_however_little_memory_there_is(folder, limit, on_disk):
    schema = pa.schema([("y", pa.string())])
    with Spill(schema, limit) as spill:
        for number, values in ROWS:
            spill.add(number, pa.table({"y": values}, schema=schema))
        assert bool(list(folder.rglob("*.arrow"))) == on_disk
        assert spill.numbers() == [1, 2, 3]
        for number in (3, 1, 2):
            assert [table.column("y").to_pylist() for table in spill.take(number)] == [
                values for n, values in ROWS if n == number
            ]
        assert spill.take(3) == spill.take(7) == spill.numbers() == []
    assert list(folder.iterdir()) == []


def test_a_table_of_several_chunks_stays_one_table(folder):
    rows = pa.concat_tables([TABLE, TABLE.slice(2, 3)])
    with Spill(TABLE.schema, 1) as spill:
        spill.add(0, rows)
        [taken] = spill.take(0)
    assert taken.equals(rows)


def test_memory_is_given_up_when_rows_go_to_disk(folder):
    before = pa.total_allocated_bytes()
    with Spill(pa.schema([("v1", pa.float64())]), 1_000_000) as spill:
        for number in range(100):
            spill.add(number, pa.table({"v1": pa.nulls(50_000, pa.float64())}))
            assert pa.total_allocated_bytes() - before < 1_700_000
        assert sum(spill.take(number)[0].num_rows for number in range(100)) == 5_000_000


def test_an_error_removes_the_file(folder):
    with Spill(TABLE.schema, 1) as spill:
        spill.add(0, TABLE)
        assert list(folder.rglob("*.arrow"))
        with pytest.raises(pa.ArrowInvalid):
            spill.add(0, TABLE.select(["x"]))
    assert list(folder.iterdir()) == []

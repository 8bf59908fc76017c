"""Rows of any number as one table, in memory or in a temporary file."""

from __future__ import annotations

import pyarrow as pa
import pytest

from kartothek_cube.core.arrow.keys import Spill

SCHEMA = pa.schema([("x", pa.int64()), ("v1", pa.string())])
PIECES = [pa.table({"x": [n, n + 1], "v1": [None, f"text {n}"]}, schema=SCHEMA) for n in range(5)]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("limit", [0, PIECES[0].nbytes, 2 * PIECES[0].nbytes, 10**9])
def test_rows_come_back_in_order(folder, limit):
    with Spill(SCHEMA, limit) as spill:
        for piece in PIECES:
            spill.add(0, piece)
        assert spill.table().equals(pa.concat_tables(PIECES))
        assert bool(list(folder.iterdir())) == (limit < 10**9)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("pieces", [[], [SCHEMA.empty_table()]])
def test_no_rows_need_no_file(folder, pieces):
    with Spill(SCHEMA, 0) as spill:
        for piece in pieces:
            spill.add(0, piece)
        assert spill.table().equals(SCHEMA.empty_table())
        assert list(folder.iterdir()) == []


def test_rows_in_a_file_do_not_count_as_memory(folder):
    rows = pa.table({"x": range(100_000), "v1": ["a"] * 100_000}, schema=SCHEMA)
    with Spill(SCHEMA, rows.nbytes) as spill:
        before, size = pa.total_allocated_bytes(), rows.nbytes
        held = []
        for _ in range(10):
            spill.add(0, pa.concat_tables([rows]).take(list(range(100_000))))
            held.append(pa.total_allocated_bytes() - before)
        assert max(held) < 4 * size
        assert spill.table().num_rows == 1_000_000
        assert pa.total_allocated_bytes() - before < 4 * size


def test_the_file_goes_also_after_an_error(folder):
    def fail():
        with Spill(SCHEMA, 0) as spill:
            spill.add(0, PIECES[0])
            assert list(folder.iterdir())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert list(folder.iterdir()) == []

"""Results that are larger than memory: how much is loaded while the reader is slow."""

from __future__ import annotations

import threading

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kartothek_cube import Cube, connect, options, scan_cube, scan_dataset
from kartothek_cube.api.cube import build_cube
from kartothek_cube.core.stores.local import MemoryStore
from tests.support.reads import MeasuredStore

pytestmark = pytest.mark.skipif(
    not hasattr(pl.LazyFrame, "collect_batches") or not hasattr(duckdb.DuckDBPyRelation, "to_arrow_reader"),
    reason="these releases of Polars and DuckDB give no batches",
)

PARTITIONS, ROWS, PAYLOAD = 60, 16_384, [f"v{n}" for n in range(6)]
NBYTES = ROWS * 8 * (len(PAYLOAD) + 2)
CUBE = Cube(["x"], ["p"], "cube")
# Threads would load twice as many tables ahead as there are threads, if these were small.
SMALL = options(threads=16, bytes_in_flight=3 * NBYTES)
# Tables that may be there: those in flight, before the first of them tells their size, and what the
# engine has taken. Both keep a few megabytes of rows that nobody has asked for.
MOST = 8 + 16


@pytest.fixture(scope="module")
def written():
    inner = MemoryStore()
    x = np.arange(PARTITIONS * ROWS)
    build_cube(pa.table({"x": x, "p": x // ROWS, **dict.fromkeys(PAYLOAD, x * 0.5)}), CUBE, inner)
    return inner


@pytest.fixture
def store(written, only_fast):
    return MeasuredStore(written)


@pytest.fixture(params=["cube", "dataset"])
def frame(request, store):
    if request.param == "cube":
        return scan_cube("cube", store, options=SMALL)
    return scan_dataset("cube++seed", store, options=SMALL)


@pytest.fixture(params=["cube", '"cube++seed"'])
def reader(request, store):
    with connect(store, options=SMALL) as connection:
        yield connection.sql(f"FROM {request.param}").to_arrow_reader(ROWS)


def threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("kartothek_cube")]


def most_waiting(batches, store):
    """The most partitions that were loaded and not taken, and the number of rows."""
    rows, most = 0, 0
    for batch in batches:
        rows += len(batch)
        most = max(most, len(store.files()) - rows // ROWS)
    return most, rows


def test_polars_loads_no_more_than_fits(frame, store):
    most, rows = most_waiting(frame.collect_batches(chunk_size=ROWS), store)
    assert rows == PARTITIONS * ROWS
    assert 0 < most <= MOST


def test_duckdb_loads_no_more_than_fits(reader, store):
    most, rows = most_waiting(reader, store)
    assert rows == PARTITIONS * ROWS
    assert 0 < most <= MOST


def test_a_filter_of_the_engine_loads_no_more_than_fits(frame, store):
    filtered = frame.filter(pl.col("v0").sin() > -2)
    most, rows = most_waiting(filtered.collect_batches(chunk_size=ROWS), store)
    assert rows == PARTITIONS * ROWS
    assert most <= MOST


def test_a_frame_is_written_piece_by_piece(frame, tmp_path):
    path = tmp_path / "all.parquet"
    frame.sink_parquet(path, engine="streaming")
    assert pq.read_metadata(path).num_rows == PARTITIONS * ROWS


def test_closing_a_reader_ends_the_read(reader, store):
    reader.read_next_batch()
    assert threads() != []
    reader.close()
    assert threads() == []
    assert len(store.files()) <= MOST + 1


def test_an_abandoned_reader_ends_the_read(store):
    with connect(store, options=SMALL) as connection:
        reader = connection.sql("FROM cube").to_arrow_reader(ROWS)
        reader.read_next_batch()
        del reader
    assert threads() == []
    assert len(store.files()) <= MOST + 1


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
def test_a_limit_ends_the_read(frame, store, engine):
    assert frame.limit(ROWS + 1).collect(engine=engine).height == ROWS + 1
    assert threads() == []
    assert len(store.files()) <= MOST


def test_a_limit_of_sql_ends_the_read(store):
    with connect(store, options=SMALL) as connection:
        assert len(connection.sql("SELECT x FROM cube LIMIT 7").fetchall()) == 7
    assert threads() == []
    assert len(store.files()) <= MOST

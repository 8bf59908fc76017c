"""Files are cut at the target size, each a partition with a label of its own."""

from __future__ import annotations

from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kartothek_cube import Cube, append_to_cube, build_cube, open_store, options, query_cube
from kartothek_cube.api.dataset import (
    read_table_arrow,
    store_dataframes_as_dataset,
    update_dataset_from_dataframes,
    verify_dataset,
)
from kartothek_cube.api.serialization import ParquetSerializer
from kartothek_cube.core.io.formats import ParquetFormat
from kartothek_cube.core.runtime.options import current_options
from kartothek_cube.core.write.layout import StageRequest
from kartothek_cube.core.write.stage import stage_stream
from kartothek_cube.errors import InvalidInput, InvalidType

N, TARGET = 40_000, 60_000
rng = np.random.default_rng(1)
ROWS = pa.table({"x": range(N), "p": np.arange(N) * 3 // N, "v1": rng.random(N), "v2": ["text"] * N})


@pytest.fixture
def store():
    return open_store("hmemory://")


def sizes(store, uuid):
    return [len(store.get(key)) for key in store.list(f"{uuid}/table/", recursive=True).keys if key.endswith("parquet")]


@pytest.mark.parametrize("rows", [ROWS, ROWS.slice(0, 20_000).to_pandas(), ROWS.to_reader(5000)])
def test_files_have_about_the_target_size(store, rows):
    dataset = store_dataframes_as_dataset(
        store, "d", [rows], partition_on="p", secondary_indices="x", options=options(target_file_bytes=TARGET)
    )
    found = sizes(store, "d")
    assert len(found) == len(dataset.partitions) > 4
    assert max(found) <= 1.5 * TARGET
    assert sorted(found)[len(found) // 2] >= TARGET / 3
    read = read_table_arrow("d", store)
    assert sorted(read["x"].to_pylist()) == list(range(len(read)))
    assert verify_dataset("d", store, deep=True).clean


def test_rows_keep_their_order_over_the_files(store):
    store_dataframes_as_dataset(store, "d", [ROWS], options=options(target_file_bytes=TARGET))
    assert read_table_arrow("d", store)["x"].to_pylist() == list(range(N))


def test_small_rows_are_one_file(store):
    with options(target_file_bytes=10**9):
        assert len(store_dataframes_as_dataset(store, "d", [ROWS]).partitions) == 1
    with options(target_file_bytes=1):
        assert len(store_dataframes_as_dataset(store, "one", [ROWS.slice(0, 1)]).partitions) == 1


def test_a_target_that_no_row_fits_makes_a_file_a_row(store):
    with options(target_file_bytes=1):
        assert len(store_dataframes_as_dataset(store, "d", [ROWS.slice(0, 7)]).partitions) == 7


def test_labels_of_users_and_several_tables_are_not_cut(store):
    with options(target_file_bytes=TARGET):
        labelled = [{"label": "mine", "data": {"table": ROWS}}]
        assert list(store_dataframes_as_dataset(store, "d", labelled).partitions) == ["mine"]
        both = {"a": ROWS, "b": ROWS.slice(0, 1)}
        assert len(store_dataframes_as_dataset(store, "e", [both]).partitions) == 1


def test_a_cube_is_cut(store):
    cube = Cube(["x"], ["p"], "cube", index_columns=["v2"])
    build_cube(ROWS, cube, store, options=options(target_file_bytes=TARGET))
    append_to_cube((ROWS.slice(i, 8000) for i in range(0, N, 8000)), cube, store)
    found = sizes(store, "cube++seed")
    assert len(found) > 12
    assert max(found) <= 1.5 * TARGET
    assert query_cube(cube, store)[0]["x"].tolist() == list(range(N))
    assert verify_dataset("cube++seed", store, deep=True).ok


def test_a_later_update_obeys_and_may_say_otherwise(store):
    store_dataframes_as_dataset(store, "d", [ROWS.slice(0, 1)], options=options(target_file_bytes=TARGET))
    obeyed = len(update_dataset_from_dataframes([ROWS], store, "d").partitions)
    assert obeyed > 4
    whole = update_dataset_from_dataframes([ROWS], store, "d", options=options(target_file_bytes=10**9))
    assert len(whole.partitions) == obeyed + 1


def stream(pieces, target, chunk=1000):
    store = open_store("hmemory://")
    schema = pa.schema([("x", pa.int64()), ("v1", pa.float64())])
    request = StageRequest("d", (), ("x",), ("x",), ParquetFormat(chunk_size=chunk), target_file_bytes=target)
    receipts = stage_stream(store, request, "0" * 32, {}, pieces, schema, schema, 10_000)
    return store, receipts


def test_a_stream_is_cut_between_row_groups():
    taken = []

    def pieces():
        for i in range(0, N, 10_000):
            taken.append(i)
            yield ROWS.slice(i, 10_000).select(["x", "v1"])

    store, receipts = stream(pieces(), TARGET)
    assert [r.label for r in receipts[:2]] == ["0" * 32, "0" * 32 + "-1"]
    assert sum(r.rows for r in receipts) == N
    assert max(r.size for r in receipts) <= 1.5 * TARGET
    assert min(r.size for r in receipts[:-1]) >= TARGET
    read = [pq.read_table(pa.BufferReader(store.get(r.key))).column("x").to_pylist() for r in receipts]
    assert list(chain.from_iterable(read)) == list(range(N))
    # Facts of each file are those of its own rows.
    assert [(r.low, r.high) for r in receipts] == [((x[0],), (x[-1],)) for x in read]
    assert [sorted(r.entries["x"].to_pylist()) for r in receipts] == read


def test_a_stream_is_taken_piece_by_piece():
    waiting = []

    def pieces():
        for i in range(8):
            waiting.append(i)
            yield pa.table({"x": [i] * 1000, "v1": rng.random(1000)})

    class Spied(ParquetFormat):
        def write_stream(self, batches, schema, sink):
            started.append(len(waiting))
            return ParquetFormat.write_stream(self, batches, schema, sink)

    started = []
    store, schema = open_store("hmemory://"), pa.schema([("x", pa.int64()), ("v1", pa.float64())])
    request = StageRequest("d", (), (), (), Spied(chunk_size=1000), target_file_bytes=1)
    receipts = stage_stream(store, request, "0" * 32, {}, pieces(), schema, schema, 10_000)
    assert len(receipts) >= 4
    assert started[1] <= 4  # the first file was complete before the rest had come
    assert started == sorted(started)


def test_an_empty_stream_is_one_file():
    _, receipts = stream(iter(()), TARGET)
    assert [r.rows for r in receipts] == [0]


def test_unusable_targets_are_refused():
    with pytest.raises(InvalidInput, match="target_file_bytes is at least 1"):
        options(target_file_bytes=0)
    with pytest.raises(InvalidType, match="target_file_bytes"):
        options(target_file_bytes=1.5)
    assert current_options().target_file_bytes is None


def test_row_groups_of_a_cut_file_are_as_asked_for(store):
    store_dataframes_as_dataset(
        store, "d", [ROWS], df_serializer=ParquetSerializer(chunk_size=500), options=options(target_file_bytes=TARGET)
    )
    key = next(key for key in store.list("d/table/", recursive=True).keys if key.endswith("parquet"))
    assert pq.read_metadata(pa.BufferReader(store.get(key))).row_group(0).num_rows == 500

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kartothek_cube.api.dataset import store_dataframes_as_dataset
from kartothek_cube.core.dataset.read import read_table_arrow, stream_table
from kartothek_cube.core.io.csv import CsvFormat
from kartothek_cube.core.runtime.options import options
from kartothek_cube.core.stores.local import LocalStore, MemoryStore
from kartothek_cube.errors import CorruptData, DatasetNotFound, InvalidInput, InvalidType, KeyNotFound
from kartothek_cube.testing.stores import CountingStore
from tests.support.commits import UUID, write

FILES = 20


@pytest.fixture(scope="module")
def store():
    memory = MemoryStore()
    for label in range(FILES):
        write(
            memory,
            {"p": [label % 2] * 3, "x": [3 * label, 3 * label + 1, 3 * label + 2], "y": ["u", None, "v"]},
            on=["p"],
            label=f"{label:02}",
        )
    return memory


def data_files(counting):
    return {call.key for call in counting.calls if "/table/p=" in call.key}


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize(
    "predicates", [None, [[("x", ">", 20), ("p", "==", 1)], [("y", "==", None)]], [[("p", "==", 7)]]]
)
@pytest.mark.parametrize("columns", [None, ["y", "p"], []])
def test_the_batches_are_the_rows_of_the_table_in_its_order(store, threads, predicates, columns):
    whole = read_table_arrow(UUID, store, columns, predicates)
    reader = stream_table(UUID, store, columns, predicates, options=options(threads=threads))
    assert reader.schema == whole.schema
    table = reader.read_all()
    assert table.num_rows == whole.num_rows
    assert table.equals(whole)


@pytest.mark.parametrize("limit", [0, 1, 4, 3 * FILES, 1000])
def test_a_limit_stops_early(store, limit):
    counting = CountingStore(store)
    reader = stream_table(UUID, counting, ["x"], limit=limit, options=options(threads=1))
    assert reader.read_all().column("x").to_pylist() == list(range(min(limit, 3 * FILES)))
    assert len(data_files(counting)) == min(-(-limit // 3), FILES)


def test_nothing_is_read_before_the_first_batch_is_asked_for(store):
    counting = CountingStore(store)
    reader = stream_table(UUID, counting)
    assert data_files(counting) == set()
    reader.read_next_batch()
    assert data_files(counting)


def test_files_are_read_only_a_few_ahead(store):
    counting = CountingStore(store)
    with stream_table(UUID, counting, options=options(threads=2)) as reader:
        reader.read_next_batch()
        assert len(data_files(counting)) <= 5


def test_with_little_memory_one_file_is_in_flight(store):
    counting = CountingStore(store)
    with stream_table(UUID, counting, options=options(threads=4, bytes_in_flight=1)) as reader:
        for number in range(1, 6):
            reader.read_next_batch()
            assert len(data_files(counting)) == number


# --- files that are large against the memory ------------------------------------------------------

GROUP = 20_000
MIB = 2**20


class RangesStore(CountingStore):
    """Remembers which bytes of data files are asked for, and has no local paths."""

    def __init__(self, inner):
        super().__init__(inner)
        self.spans = []

    def local_path(self, key):
        return None

    def ranges(self, key, spans):
        self.spans.append((key, list(spans)))
        return super().ranges(key, spans)


def large_rows(n, start=0):
    random = np.random.default_rng(start)
    return pa.table({"x": range(start, start + n), **{f"v{i}": random.random(n) for i in range(4)}})


def write_file(store, table, rows_of_group, label="f"):
    return write(store, table, label=label, serializer={"compression": "NONE", "chunk_size": rows_of_group})


@pytest.fixture(scope="module", params=[GROUP, 100 * GROUP], ids=["many row groups", "one row group"])
def large(request, tmp_path_factory):
    """One file of 40 MB."""
    store = LocalStore(tmp_path_factory.mktemp("large"))
    write_file(store, large_rows(50 * GROUP), request.param)
    return store


def test_a_large_file_comes_in_pieces_of_the_memory_that_there_is(large):
    before = pa.total_allocated_bytes()
    rows = most = 0
    for batch in stream_table(UUID, large, options=options(threads=2, bytes_in_flight=8 * MIB)):
        assert batch.nbytes <= 2.05 * MIB  # with a bit for each value that may be null
        assert batch.column("x")[0].as_py() == rows
        rows += batch.num_rows
        most = max(most, pa.total_allocated_bytes() - before)
    assert rows == 50 * GROUP
    assert most < 20 * MIB  # of each column there are some pages that are not unpacked yet


@pytest.mark.parametrize("columns", [None, ["v1", "x"], ["x"], []])
@pytest.mark.parametrize(
    "predicates", [None, [[("x", ">=", 3 * GROUP - 5), ("x", "<", 17 * GROUP), ("v1", ">", 0.5)]], [[("x", "<", -1)]]]
)
@pytest.mark.parametrize("view", [lambda store: store, RangesStore], ids=["local", "remote"])
def test_the_pieces_of_a_large_file_are_its_rows(large, view, columns, predicates):
    whole = read_table_arrow(UUID, large, columns, predicates)
    table = stream_table(
        UUID, view(large), columns, predicates, options=options(threads=2, bytes_in_flight=4 * MIB)
    ).read_all()
    assert table.num_rows == whole.num_rows
    assert table.equals(whole)


def test_row_groups_come_one_after_the_other_as_far_as_they_are_asked_for():
    store = RangesStore(MemoryStore())
    write_file(store, large_rows(20 * GROUP), GROUP)
    with stream_table(
        UUID, store, predicates=[[("x", ">=", 4 * GROUP)]], options=options(threads=1, bytes_in_flight=5 * MIB)
    ) as reader:
        assert reader.read_next_batch().column("x")[0].as_py() == 4 * GROUP
        assert len(store.spans) == 1
        for _ in reader:
            pass
    asked = [sum(stop - start for start, stop in spans) for _, spans in store.spans]
    assert len(asked) == 6  # sixteen row groups of 0.8 MB, three of which fit into half of the memory
    assert max(asked) < 2.5 * MIB
    assert sum(asked) < 16 * MIB
    assert len([call for call in store.calls if "/table/f" in call.key and call.operation == "tail"]) == 1  # the footer


def test_a_large_file_is_opened_ahead_but_not_read(tmp_path):
    store = RangesStore(LocalStore(tmp_path))
    for number in range(4):
        write_file(store, large_rows(5 * GROUP, number * 5 * GROUP), GROUP, label=str(number))
    with stream_table(UUID, store, options=options(threads=2, bytes_in_flight=4 * MIB)) as reader:
        reader.read_next_batch()
        assert {key for key, _ in store.spans} == {f"{UUID}/table/0.parquet"}
        assert len(store.spans) == 1
    assert stream_table(UUID, store, ["x"]).read_all().column("x").to_pylist() == list(range(20 * GROUP))


def test_text_that_the_file_holds_as_a_dictionary_counts_as_rows():
    store = MemoryStore()
    write_file(store, pa.table({"y": pa.array(["u" * 12, "v" * 12] * 200_000)}), None)
    batches = list(stream_table(UUID, store, options=options(threads=1, bytes_in_flight=2 * MIB)))
    assert sum(batch.num_rows for batch in batches) == 400_000
    assert max(batch.nbytes for batch in batches) <= 1.1 * MIB


def test_a_damaged_piece_names_its_file(tmp_path):
    store = LocalStore(tmp_path)
    write_file(store, large_rows(4 * GROUP), GROUP)
    key = f"{UUID}/table/f.parquet"
    data = bytearray(store.get(key))
    start = pq.read_metadata(pa.BufferReader(bytes(data))).row_group(3).column(0).data_page_offset
    data[start : start + 100] = b"\xff" * 100
    store.put(key, bytes(data))
    reader = stream_table(UUID, store, options=options(threads=1, bytes_in_flight=1))
    assert reader.read_next_batch().num_rows > 0
    with pytest.raises(CorruptData, match="table/f"):
        for _ in reader:
            pass


def test_csv_comes_whole():
    store = MemoryStore()
    store_dataframes_as_dataset(store, UUID, [pd.DataFrame({"x": range(100_000)})], df_serializer=CsvFormat())
    assert [batch.num_rows for batch in stream_table(UUID, store, options=options(bytes_in_flight=1))] == [100_000]


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"limit": -1}, InvalidInput, "limit"),
        ({"limit": 1.5}, InvalidType, "limit"),
        ({"limit": True}, InvalidType, "limit"),
        ({"store": None}, InvalidInput, "dataset_uuid"),
        ({"dataset_uuid": "other"}, DatasetNotFound, "other"),
        ({"options": {"threads": 1}}, InvalidType, "options"),
    ],
    ids=range(6),
)
def test_bad_arguments_are_refused_by_the_call(store, arguments, error, text):
    with pytest.raises(error, match=text):
        stream_table(**{"dataset_uuid": UUID, "store": store, **arguments})


def test_a_missing_file_is_an_error_when_it_is_its_turn():
    store = MemoryStore()
    for label in "ab":
        write(store, {"x": [label]}, label=label)
    store.delete(f"{UUID}/table/b.parquet")
    reader = stream_table(UUID, store, options=options(threads=1))
    assert reader.read_next_batch().to_pydict() == {"x": ["a"]}
    with pytest.raises(KeyNotFound, match="table/b"):
        reader.read_next_batch()


def test_the_state_is_that_of_the_call():
    store = MemoryStore()
    write(store, {"x": [1]})
    reader = stream_table(UUID, store)
    write(store, {"x": [2]})
    assert reader.read_all() == pa.table({"x": [1]})

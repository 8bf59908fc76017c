"""Reads by pages: what is decoded, what falls back to row groups, and what damage does."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kartothek_cube.core.expressions.predicates import Clause, filter_table, matching_rows
from kartothek_cube.core.io import formats, page_index, pages, parquet, parquet_rows
from kartothek_cube.core.io.formats import ParquetFormat
from kartothek_cube.core.io.page_index import CHECKSUM
from kartothek_cube.core.io.parquet import open_file
from kartothek_cube.core.io.parquet_rows import open_parquet_inside, read_matching_files, read_parquet_inside
from kartothek_cube.core.runtime.options import uses_fast_paths
from kartothek_cube.core.stores.local import LocalStore, MemoryStore
from kartothek_cube.errors import CorruptData, KartothekCubeError, KeyNotFound
from tests.support.thoroughness import some

pytestmark = [
    pytest.mark.skipif(not uses_fast_paths(), reason="the fast paths are off"),
    pytest.mark.skipif(int(pa.__version__.split(".")[0]) < 23, reason="this pyarrow cannot bound the rows of a page"),
]

N, KEY = 2_000, "uuid/table/f.parquet"
RANDOM = np.random.default_rng(0)
ROWS = pa.table(
    {
        "x": np.arange(N) // 4,
        "i1": RANDOM.integers(0, 50, N),
        "v1": RANDOM.random(N),
        "v2": [f"text {i % 30}" for i in range(N)],
    }
)
ONE, RANGE = ((Clause("x", "==", 250),),), ((Clause("x", ">=", 100), Clause("x", "<", 120)),)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Files of few rows have pages of 16, in row groups of 500, and are read by these."""
    monkeypatch.setattr(formats, "DECISIVE_ROWS", 256)
    monkeypatch.setattr(formats, "_PAGED_GROUP_ROWS", 500)
    monkeypatch.setattr(formats, "_PAGE_ROWS", 16)
    monkeypatch.setattr(parquet, "_PAGED_ROWS", 1)


def encoded(table=ROWS, **options):
    return bytes(ParquetFormat(**options).encode(table))


def foreign(table=ROWS, **options):
    """A file with small pages that another program has written."""
    sink = io.BytesIO()
    options = {"max_rows_per_page": 16, "write_page_index": True, "row_group_size": 500, **options}
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def streamed(table=ROWS):
    sink = io.BytesIO()
    ParquetFormat().write_stream(table.to_batches(300), table.schema, sink)
    return sink.getvalue()


def stored(*files):
    store = MemoryStore()
    for i, data in enumerate(files):
        store.put(f"uuid/table/{i}.parquet", data)
    return store, [f"uuid/table/{i}.parquet" for i in range(len(files))]


def read(data, predicates, columns=ROWS.schema.names, schema=ROWS.schema):
    store, (key,) = stored(data)
    return read_parquet_inside(store, key, "uuid", columns, schema, predicates)[0]


def expected(predicates, columns=ROWS.schema.names, table=ROWS):
    return filter_table(table, matching_rows(table, predicates)).select(columns)


@pytest.fixture
def decoded(monkeypatch):
    """Columns and number of rows of each virtual file, and columns that are decoded otherwise."""
    steps, read_pages, read_groups = [], pages._read, parquet.ParquetSource._decoded

    def virtual(chosen, columns):
        steps.append((list(columns), int(chosen.rows.sum())))
        return read_pages(chosen, columns)

    def plain(source, file, groups, columns):
        steps.append((list(columns), "row groups"))
        return read_groups(source, file, groups, columns)

    monkeypatch.setattr(pages, "_read", virtual)
    monkeypatch.setattr(parquet.ParquetSource, "_decoded", plain)
    return steps


# --- what is decoded ------------------------------------------------------------------------------


@pytest.mark.parametrize("write", [encoded, streamed, foreign])
def test_one_value_takes_one_page(write, decoded):
    assert read(write(), ONE) == expected(ONE)
    assert decoded == [(["x", "i1", "v1", "v2"], 16)]


def test_a_range_takes_its_pages_of_two_row_groups(decoded):
    assert read(encoded(), RANGE, ["v2"]) == expected(RANGE, ["v2"])
    assert decoded == [(["x", "v2"], 80)]


def test_many_files_are_one_virtual_file(decoded):
    parts = [ROWS, ROWS.set_column(1, "i1", pa.array(np.arange(N))), ROWS.slice(0, 1_200)]
    store, keys = stored(*map(encoded, parts))
    found = list(read_matching_files(store, keys, "uuid", ["i1"], ROWS.schema, ONE))
    assert [counts for _, counts in found] == [[4, 4, 4]]
    assert pa.concat_tables([t for t, _ in found]) == pa.concat_tables([expected(ONE, ["i1"], t) for t in parts])
    assert decoded == [(["x", "i1"], 48)]


def test_files_of_other_schemas_are_read_apart(decoded):
    other = ROWS.append_column("v3", pa.array(np.arange(N)))
    store, keys = stored(encoded(), encoded(other), encoded(other))
    found = list(read_matching_files(store, keys, "uuid", ["v1"], ROWS.schema, ONE))
    assert [counts for _, counts in found] == [[4], [4, 4]]
    assert [rows for _, rows in decoded] == [16, 32]


def test_columns_that_a_file_lacks_are_null(decoded):
    schema = ROWS.schema.append(pa.field("v3", pa.string()))
    found = read(encoded(), ONE, ["v3", "x"], schema)
    assert found.to_pydict() == {"v3": [None] * 4, "x": [250] * 4}
    assert decoded == [(["x"], 16)]


def test_no_page_is_decoded_where_none_matches(decoded):
    nothing = ((Clause("x", "==", 10_000),),)
    assert read(encoded(), nothing) == expected(nothing)
    assert decoded == []


def test_unsorted_columns_are_decoded_first_and_the_others_where_rows_are_left(decoded):
    """Every page of i1 has small values, so its bounds leave out nothing."""
    values = pa.array(np.where(np.arange(N) % 97 == 5, 1, np.arange(N) % 16 * 2))
    table = ROWS.set_column(1, "i1", values)
    wanted = ((Clause("i1", "==", 1), Clause("x", "<", 200)),)
    assert read(encoded(table), wanted) == expected(wanted, table=table)
    assert decoded == [(["i1", "x"], 804), (["v1", "v2"], 9 * 16)]


def test_a_file_of_which_most_pages_are_wanted_is_read_by_row_groups(decoded):
    most = ((Clause("x", ">", 100),),)
    assert read(encoded(), most) == expected(most)
    assert {rows for _, rows in decoded} == {"row groups"}


def test_every_clause_chooses_pages(decoded):
    table = ROWS.set_column(1, "i1", pa.array(np.arange(N)[::-1]))
    wanted = ((Clause("x", ">", 100), Clause("i1", ">", 1_500)),)
    assert read(encoded(table), wanted, ["i1"]) == expected(wanted, ["i1"], table)
    assert decoded == [(["i1", "x"], 100)]


def test_pages_of_a_column_may_begin_at_other_rows(decoded):
    """Long texts end pages by their bytes."""
    texts = pa.array([f"{i:04d}" * (1 + 400 * (i % 3)) for i in range(N)])
    table = ROWS.set_column(3, "v2", texts)
    data = foreign(table, data_page_size=1_000, use_dictionary=False, write_batch_size=1)
    assert read(data, RANGE) == expected(RANGE, table=table)
    assert [columns for columns, _ in decoded] == [["x", "i1", "v1"], ["v2"]]
    assert sum(rows for _, rows in decoded) < 300


# --- what falls back ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        lambda: foreign(write_page_index=False),
        lambda: encoded(ROWS.append_column("v3", pa.array([[i] for i in range(N)]))),
    ],
    ids=["no index", "nested"],
)
def test_other_files_are_read_by_row_groups(make, decoded):
    data = make()
    schema = ROWS.schema.append(pa.field("v3", pa.list_(pa.int64())))
    columns = [c for c in schema.names if c in pq.read_schema(pa.BufferReader(data)).names]
    assert read(data, ONE, columns, schema).select(ROWS.schema.names) == expected(ONE)
    assert {rows for _, rows in decoded} == {"row groups"}


def test_the_fast_paths_may_be_off(monkeypatch, decoded):
    monkeypatch.setattr(parquet, "uses_fast_paths", lambda: False)
    assert read(encoded(), ONE) == expected(ONE)
    assert decoded == [] or {rows for _, rows in decoded} == {"row groups"}


def test_encrypted_columns_are_not_read_by_pages():
    with pytest.raises(page_index.Unfit, match="encrypted"):
        page_index._chunk(b"", {page_index._CRYPTO: (0, 0)})


# --- damage ---------------------------------------------------------------------------------------


def index_of(data):
    """Begin of the index and of the footer."""
    footer_at = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    return page_index.PageIndex(data[footer_at:-8], footer_at, ROWS.schema, {}).begin, footer_at


def outcome(data, predicates):
    """The rows, or None for an error of ours."""
    try:
        return read(data, predicates)
    except KartothekCubeError:
        return None


@pytest.mark.parametrize("write", [encoded, streamed])
def test_damage_of_the_index_is_noticed_and_changes_no_row(write):
    data = write()
    begin, end = index_of(data)
    footer, index = data[end:-8], bytearray(data[begin:end])
    page_index.PageIndex(footer, end, ROWS.schema, {}).provide(bytes(index))
    for place in some(range(len(index)), 41):
        index[place] ^= 1 << place % 8
        with pytest.raises(page_index.Unfit, match="damaged"):
            page_index.PageIndex(footer, end, ROWS.schema, {}).provide(bytes(index))
        index[place] ^= 1 << place % 8
    for place in (begin, (begin + end) // 2, end - 1):
        damaged = bytearray(data)
        damaged[place] ^= 1
        assert read(bytes(damaged), ONE) == expected(ONE)


def test_damage_of_the_footer_is_an_error_or_changes_no_row():
    data = encoded()
    _, begin = index_of(data)
    for place in some(range(begin, len(data)), 31):
        damaged = bytearray(data)
        damaged[place] ^= 1
        found = outcome(bytes(damaged), ONE)
        assert found is None or found == expected(ONE), place


def test_damage_of_statistics_is_an_error_that_names_the_file():
    data = bytearray(encoded())
    _, begin = index_of(data)
    place = data.rindex((124).to_bytes(8, "little"), begin)  # the greatest value of the first row group
    data[place] = 3
    store, keys = stored(encoded(), bytes(data), encoded())
    with pytest.raises(CorruptData, match=r"1\.parquet' of dataset 'uuid' cannot be read: Its footer is damaged"):
        list(read_matching_files(store, keys, "uuid", ["x"], ROWS.schema, ((Clause("x", "==", 100),),)))


def test_damage_of_a_foreign_offset_index_changes_no_row():
    """Arrow writes the bounds of all row groups before the places of their pages."""
    data = foreign()
    begin, footer_at = index_of(data)
    index = page_index.PageIndex(data[footer_at:-8], footer_at, ROWS.schema, {})
    locations = min(chunk.locations[0] for group in index.groups for chunk in group)
    assert locations > begin
    for place in some(range(locations, footer_at), 411):
        damaged = bytearray(data)
        damaged[place] ^= 4
        found = outcome(bytes(damaged), ONE)
        assert found is None or found == expected(ONE), place


def test_damage_of_pages_is_an_error_or_changes_nothing():
    data = encoded()
    begin, _ = index_of(data)
    for place in some(range(4, begin), 997):
        damaged = bytearray(data)
        damaged[place] ^= 2
        found = outcome(bytes(damaged), RANGE)
        assert found is None or found == expected(RANGE), place


@pytest.mark.parametrize("at", [0, 1, 2])
def test_headers_that_contradict_the_index(at):
    """Place, size and number of rows of a page."""
    content = foreign(compression="none", use_dictionary=False)
    index = page_index.PageIndex(content[index_of(content)[1] : -8], index_of(content)[1], ROWS.schema, {})
    index.provide(content[index.begin : index_of(content)[1]])
    (found,) = index.pages([0])
    right = [found.at, found.sizes, np.diff(found.rows)]
    pages.check_headers(content, *right)
    right[at] = right[at] + np.where(np.arange(len(right[at])) == 5, 1, 0)
    with pytest.raises(page_index.Unfit, match="contradicts"):
        pages.check_headers(content, *right)


def test_a_file_that_becomes_shorter_is_an_error(tmp_path):
    store = LocalStore(tmp_path)
    store.put(KEY, encoded())
    with open_file(store, KEY, "uuid") as source:
        assert source.paged() is not None
        (tmp_path / KEY).write_bytes(encoded()[:4_000])
        with pytest.raises(pa.ArrowInvalid, match="shorter"):
            source.packed(np.array([[3_990, 4_200]]))


def test_the_index_is_kept_with_the_footer(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "_SETTLED_NS", 0)
    store = LocalStore(tmp_path)
    store.put(KEY, encoded())
    read_parquet_inside(store, KEY, "uuid", ["v1"], ROWS.schema, ONE)
    monkeypatch.setattr(parquet.ParquetSource, "_read_page_index", None)  # nobody asks again
    assert read_parquet_inside(store, KEY, "uuid", ["v1"], ROWS.schema, ONE)[0] == expected(ONE, ["v1"])


# --- many files -----------------------------------------------------------------------------------


def test_a_file_that_is_missing_is_named():
    store, keys = stored(encoded(), encoded(), encoded())
    store.delete(keys[1])
    with pytest.raises(KeyNotFound, match=r"uuid/table/1\.parquet"):
        list(read_matching_files(store, keys, "uuid", ["x"], ROWS.schema, ONE))


def test_files_that_wait_for_their_turn_are_not_open(tmp_path, monkeypatch):
    store = LocalStore(tmp_path)
    keys = [f"uuid/table/{i}.parquet" for i in range(5)]
    for key in keys:
        store.put(key, encoded())
    opened, read = [], pages._read

    def counted(chosen, columns):
        opened.append(len(list(Path("/proc/self/fd").iterdir())))
        return read(chosen, columns)

    monkeypatch.setattr(pages, "_read", counted)
    before = len(list(Path("/proc/self/fd").iterdir()))
    found = list(read_matching_files(store, keys, "uuid", ["x"], ROWS.schema, ONE))
    assert [counts for _, counts in found] == [[4] * 5]
    assert opened == [before]


def test_a_file_whose_index_is_known_is_opened_once(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "_SETTLED_NS", 0)
    store, keys, opened, local = LocalStore(tmp_path), [f"uuid/table/{i}.parquet" for i in range(3)], [], parquet._LOCAL

    class Counting:
        def open_input_file(self, path):
            opened.append(path)
            return local.open_input_file(path)

    def read_all():
        opened.clear()
        found = list(read_matching_files(store, keys, "uuid", ["x"], ROWS.schema, ONE))
        return [count for _, counts in found for count in counts]

    for key in keys:
        store.put(key, encoded())
    monkeypatch.setattr(parquet, "_LOCAL", Counting())
    assert (read_all(), len(opened)) == ([4] * 3, 6)
    assert (read_all(), len(opened)) == ([4] * 3, 3)
    store.put(keys[1], encoded(ROWS.slice(0, 0)))
    assert read_all() == [4, 0, 4]
    store.delete(keys[1])
    with pytest.raises(KeyNotFound, match=r"uuid/table/1\.parquet"):
        read_all()


def test_a_file_that_is_replaced_while_it_waits_is_read_as_it_is(tmp_path, monkeypatch):
    store = LocalStore(tmp_path)
    store.put(KEY, encoded())
    other = ROWS.set_column(1, "i1", pa.array(np.full(N, 7)))
    choose = pages.choose_pages

    def replaced(*arguments):
        chosen = choose(*arguments)
        store.put(KEY, encoded(other))
        return chosen

    monkeypatch.setattr(pages, "choose_pages", replaced)
    ((table, counts),) = read_matching_files(store, [KEY], "uuid", ["i1"], ROWS.schema, ONE)
    assert (table, counts) == (expected(ONE, ["i1"], other), [4])


def test_few_bytes_are_decoded_at_once(monkeypatch, decoded):
    monkeypatch.setattr(parquet_rows, "_BYTES_OF_PAGES", 40 * 1_000)
    store, keys = stored(*[encoded()] * 4)
    wanted = ((Clause("x", "<", 200),),)
    found = list(read_matching_files(store, keys, "uuid", ["x", "i1", "v1", "v2"], ROWS.schema, wanted))
    assert [counts for _, counts in found] == [[800]] * 4
    assert max(rows for _, rows in decoded) <= 1_000


def test_a_checksum_of_another_file_is_none_of_this_one(decoded):
    """Programs that copy metadata copy the checksum, too."""
    metadata = pq.read_metadata(pa.BufferReader(encoded())).metadata
    table = ROWS.replace_schema_metadata({CHECKSUM: metadata[CHECKSUM.encode()]})
    assert read(foreign(table), ONE) == expected(ONE)
    assert {rows for _, rows in decoded} == {"row groups"}


@pytest.mark.parametrize("columns", [["v1"], ["v2", "i1"]])
def test_the_first_column_need_not_be_read(columns, decoded):
    table = ROWS.select(["v2", "v1", "i1", "x"])
    assert read(encoded(table), ONE, columns) == expected(ONE, columns)
    assert {rows for _, rows in decoded} == {16}


def test_long_texts_of_many_pages_come_in_pieces():
    texts = ROWS.set_column(3, "v2", pa.array([f"{i:04d}" * 500 for i in range(N)]))
    store, (key,) = stored(encoded(texts))
    wanted = ((Clause("x", "<", 200),),)
    is_small, pieces = open_parquet_inside(store, key, "uuid", ["v2"], ROWS.schema, wanted, 500_000)
    found = [table for table, _ in pieces]
    assert not is_small
    assert max(table.nbytes for table in found) <= 600_000
    assert pa.concat_tables(found) == expected(wanted, ["v2"], texts)


def test_bytes_of_remote_files_are_not_kept():
    store, (key,) = stored(encoded())
    with open_file(store, key, "uuid", tail=1_000) as source:
        source.packed(np.array([[4, 500]]))
        assert source._bytes._find(4, 500) is None

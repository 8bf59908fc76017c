"""`read_together`: what `read_rows` gives for each file, with less work for most."""

from __future__ import annotations

import io
import json
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kartothek_cube.core.expressions.predicates import Clause, Constants
from kartothek_cube.core.io import parquet as parquet_source
from kartothek_cube.core.io import parquet_rows, small_files
from kartothek_cube.core.io import reader as batched_reader
from kartothek_cube.core.io.csv import CsvFormat
from kartothek_cube.core.io.formats import ParquetFormat
from kartothek_cube.core.io.reader import FileRequest, TooLarge, read_rows, read_together
from kartothek_cube.core.runtime.telemetry import counting
from kartothek_cube.core.stores.local import LocalStore, MemoryStore
from kartothek_cube.errors import CorruptData, CorruptDocument, KeyNotFound

pytestmark = pytest.mark.usefixtures("fast_paths")

SCHEMA = pa.schema(
    [("x", pa.int64()), ("v1", pa.float64()), ("y", pa.string()), ("q", pa.string()), ("l", pa.list_(pa.int64()))]
)
# What a file may have where the dataset has these: the same, what a foreign writer leaves, or
# nothing.
STORED = {
    "x": [pa.int64(), pa.int64(), pa.int8(), pa.null()],
    "v1": [pa.float64(), pa.float64(), pa.float32()],
    "y": [pa.string(), pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string()), pa.null()],
    "l": [pa.list_(pa.int64()), pa.list_(pa.int32())],
    "s": [pa.struct([("a", pa.int64()), ("b", pa.int64())]), pa.int64()],
}
ROOM = 2**30
NOTED = ("files_read", "bytes_read", "rows_read")
VALUES = {"x": 1, "v1": 0.5, "y": "b", "l": [2, None], "s": None}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("small")


@pytest.fixture
def local(tmp_path):
    return LocalStore(tmp_path, fsync=False)


@pytest.fixture
def plainly(monkeypatch):
    """The keys that were read by `read_rows`."""
    keys = []
    monkeypatch.setattr(
        batched_reader, "read_rows", lambda store, key, *rest: keys.append(key) or read_rows(store, key, *rest)
    )
    return keys


def request(*columns, predicates=None):
    return FileRequest("uuid", SCHEMA, columns, predicates)


def put(store, name, table, **options):
    key = f"uuid/table/{name}.parquet"
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    store.put(key, sink.getvalue())
    return key


def check(store, files, asked):
    """Together as alone."""
    with counting() as together:
        found, counts = read_together(store, files, asked, ROOM)
    found.validate(full=True)
    with counting() as apart:
        alone = [read_rows(store, key, asked, constants) for key, constants in files]
    assert counts == [len(table) for table in alone]
    assert [getattr(together.counts, name) for name in NOTED] == [getattr(apart.counts, name) for name in NOTED]
    assert found.schema.equals(pa.schema([SCHEMA.field(c) for c in asked.columns]), check_metadata=True)
    assert found.to_pylist() == pa.concat_tables(alone).to_pylist()


# --- as alone -------------------------------------------------------------------------------------


@st.composite
def stored_tables(draw):
    names = draw(
        st.permutations(
            draw(st.sampled_from([list("xyl"), ["x", "v1", "y"], ["x", "v1", "y", "l"], ["x", "v1", "y", "s", "l"]]))
        )
    )
    rows = draw(st.integers(0, 4))
    columns = []
    for name in names:
        kind = draw(st.sampled_from(STORED[name]))
        values = [draw(st.sampled_from([VALUES[name], None])) for _ in range(rows)]
        columns.append(pa.nulls(rows) if pa.types.is_null(kind) else pa.array(values, kind))
    full = draw(st.booleans())
    fields = [
        pa.field(n, c.type, nullable=not full or c.null_count > 0 or pa.types.is_null(c.type), metadata={"a": "b"})
        for n, c in zip(names, columns, strict=True)
    ]
    return pa.table(columns, schema=pa.schema(fields, metadata={"c": "d"}))


@given(
    tables=st.lists(stored_tables(), max_size=5),
    repeated=st.integers(1, 2),
    columns=st.sampled_from([("x", "v1", "y"), ("y", "x"), ("l", "x"), ("x", "q"), ("q",), ()]),
    constants=st.sampled_from([{}, {"q": "b"}, {"x": 7}]),
    predicates=st.sampled_from([None, None, ((Clause("x", "==", 1),),)]),
    group_rows=st.integers(1, 4),
    is_local=st.booleans(),
)
def test_files_are_read_together_as_alone(
    folder, tables, repeated, columns, constants, predicates, group_rows, is_local
):
    store = LocalStore(folder, fsync=False) if is_local else MemoryStore()
    files = [(put(store, i, table, row_group_size=group_rows), constants) for i, table in enumerate(tables)] * repeated
    if files:
        check(store, files, request(*columns, predicates=predicates))


@pytest.fixture
def filtered_at_once(monkeypatch):
    """How many rows are filtered at a time, if files are not joined before."""
    monkeypatch.setattr(batched_reader, "uses_fast_paths", lambda: False)
    found, matching = [], parquet_rows.matching_rows
    monkeypatch.setattr(
        parquet_rows, "matching_rows", lambda table, predicates: found.append(len(table)) or matching(table, predicates)
    )
    return found


SOME = ((Clause("x", ">=", 3), Clause("v1", "<", 8.0)), (Clause("y", "==", "b"),))


@pytest.mark.parametrize("most", [(0, 0), (4, 4), (4, 9), (100, 100)], ids=str)
def test_matching_rows_of_several_files_are_those_of_each(local, monkeypatch, most):
    monkeypatch.setattr(parquet_rows, "_FEW_ROWS", 0)
    monkeypatch.setattr(parquet_rows, "_DECODED_AT_ONCE", most[0])
    monkeypatch.setattr(parquet_rows, "_FILTERED_AT_ONCE", most[1])
    files = []
    for k in range(12):
        # Some files are empty, some lack a column, some have another type.
        rows = 0 if k % 5 == 4 else 3 + k % 4
        kind = pa.int8() if k % 4 == 3 else pa.int64()
        columns = {"x": pa.array(range(rows), kind), "y": pa.array(["ab"[k % 2]] * rows, pa.string())}
        columns |= {} if k % 3 == 2 else {"v1": pa.array([k + i / 2 for i in range(rows)], pa.float64())}
        files.append((put(local, f"m{k}", pa.table(columns), row_group_size=2), {}))
    for columns in [("x", "v1", "y"), ("v1",), ("y", "l")]:
        for predicates in (SOME, ((Clause("x", "==", 2),),), ((Clause("x", "==", 99),),)):
            check(local, files, request(*columns, predicates=predicates))


def test_files_of_few_rows_are_filtered_at_once(local, filtered_at_once):
    files = [(put(local, f"f{k}", pa.table({"x": [k, k + 1]})), {}) for k in range(5)]
    check(local, files, request("x", predicates=((Clause("x", "==", 3),),)))
    assert filtered_at_once == [10, *[2] * 5]  # together, then each alone


def test_no_more_are_filtered_at_once_than_fit(local, filtered_at_once, monkeypatch):
    monkeypatch.setattr(parquet_rows, "_FILTERED_AT_ONCE", 5)
    files = [(put(local, f"f{k}", pa.table({"x": [k, k + 1]})), {}) for k in range(5)]
    read_together(local, files, request("x", predicates=((Clause("x", "==", 3),),)), ROOM)
    assert filtered_at_once == [4, 4, 2]


@pytest.fixture
def decoded_at_once(monkeypatch, only_fast):
    """How many rows of small files are filtered at a time."""
    found, matching = [], batched_reader.matching_rows
    monkeypatch.setattr(
        batched_reader,
        "matching_rows",
        lambda table, predicates: found.append(len(table)) or matching(table, predicates),
    )
    small_files._layouts.cache_clear()
    return found


def test_small_files_are_decoded_and_filtered_at_once(local, decoded_at_once, monkeypatch):
    monkeypatch.setattr(batched_reader, "_ROWS_AT_ONCE", 6)
    files = [(put(local, f"f{k}", pa.table({"x": [k, k + 1]})), {}) for k in range(8)]
    check(local, files, request("x", predicates=((Clause("x", "==", 3),),)))
    # How large files are is known after the first one.
    assert decoded_at_once == [2, 6, 6, 2]


def test_small_files_among_others_are_filtered_in_order(local, decoded_at_once):
    sizes = [2, 1, 1, 2, 2, 1]  # rows of a row group: files of two are read otherwise
    files = [
        (put(local, f"f{k}", pa.table({"x": [k, k + 1], "v1": [k / 2, None]}), row_group_size=size), {})
        for k, size in enumerate(sizes)
    ]
    for columns in [("x", "v1"), ("v1",)]:
        check(local, files, request(*columns, predicates=((Clause("x", ">=", 2), Clause("x", "<=", 5)),)))
    assert decoded_at_once


@pytest.mark.parametrize("rows", [small_files._MAX_ROWS, 25_000], ids=["many rows", "two pages"])
def test_a_layout_that_does_not_suit_is_not_learned_again_and_again(local, decoded_at_once, monkeypatch, rows):
    learned, layout_of = [], small_files.layout_of
    monkeypatch.setattr(
        small_files,
        "layout_of",
        lambda *place, **how: learned.append(layout_of(*place, **how)) or learned[-1],
    )
    small = [(put(local, f"f{k}", pa.table({"x": [k, k + 1]})), {}) for k in range(3)]
    rest = [(put(local, f"g{k}", pa.table({"x": [k % 7] * rows}), data_page_size=2**20), {}) for k in range(9)]
    for _ in range(9):
        check(local, [*small, *rest], request("x", predicates=((Clause("x", "==", 3),),)))
    assert len(list(filter(None, learned))) == 1


def test_texts_that_repeat_are_filtered_as_dictionaries(local, monkeypatch):
    monkeypatch.setattr(parquet_source, "_MANY_ROWS_OF_A_SOURCE", 0)
    files = [(put(local, f"f{k}", pa.table({"x": [1, 2] * 4, "y": ["a" * 9, None] * 4})), {}) for k in range(3)]
    for value in ("a" * 9, "b"):
        check(local, files, request("y", "x", predicates=((Clause("y", "==", value),),)))
    check(local, files, request("y", "x", predicates=((Clause("y", "!=", "b"), Clause("x", "<=", 1)),)))


def test_a_runtime_filter_holds_for_all_files(local):
    files = [(put(local, f"f{k}", pa.table({"x": [k, k + 1]})), {}) for k in range(5)]
    asked = FileRequest("uuid", SCHEMA, ("x",), None, (Clause("x", "in", Constants([2, 7])),))
    found, counts = read_together(local, files, asked, ROOM)
    assert (found.to_pydict(), counts) == ({"x": [2, 2]}, [0, 1, 1, 0, 0])


@pytest.mark.parametrize("at", [0, 1, 4])
def test_a_damaged_file_among_filtered_ones_is_named(local, at):
    files = [(put(local, f"f{k}", pa.table({"x": [k, k + 1]})), {}) for k in range(5)]
    local.put(files[at][0], b"PAR1 nothing PAR1")
    with pytest.raises(CorruptData, match=f"f{at}.parquet"):
        read_together(local, files, request("x", predicates=((Clause("x", "==", 3),),)), ROOM)


def test_no_files_have_no_rows(local):
    found, counts = read_together(local, [], request("y", "x"), ROOM)
    assert (found.schema, found.num_rows, counts) == (pa.schema([("y", pa.string()), ("x", pa.int64())]), 0, [])


def test_csv_and_parquet_may_be_mixed(local):
    table = pa.table({"x": [1, 2], "y": ["a", None]})
    local.put("uuid/table/b.csv", memoryview(CsvFormat(compress=False).encode(table)))
    check(
        local, [(put(local, "a", table), {}), ("uuid/table/b.csv", {}), (put(local, "c", table), {})], request("y", "x")
    )


# --- the short way --------------------------------------------------------------------------------


@pytest.mark.usefixtures("only_fast")
def test_files_of_the_datasets_types_take_the_short_way(local, plainly):
    table = pa.table({"s": [1], "x": [1], "y": ["a"]})
    keys = [f"uuid/table/{i}.parquet" for i in range(3)]
    for key in keys:
        local.put(key, memoryview(ParquetFormat().encode(table)))
    found, counts = read_together(local, [(key, {"q": "b"}) for key in keys], request("y", "x"), ROOM)
    assert (found.to_pylist(), counts, plainly) == ([{"y": "a", "x": 1}] * 3, [1, 1, 1], [])


@pytest.mark.parametrize(
    ("table", "options"),
    [
        (pa.table({"x": pa.array([1], pa.int8())}), {}),
        (pa.table({"y": ["a"]}), {}),
        (pa.table([[1]], schema=pa.schema([pa.field("x", pa.int64(), nullable=False)])), {}),
        (pa.table({"x": [1], "s": [{"a": 1, "b": 2}]}), {}),
        (pa.table({"x": [1, 2]}), {"row_group_size": 1}),
        (pa.table({"x": range(40_000)}), {}),
        (pa.table({"x": [1, 2], "y": [Random(k).randbytes(150_000).hex() for k in (1, 2)]}), {}),
    ],
    ids=["type", "missing", "never null", "nested", "row groups", "many rows", "many bytes"],
)
@pytest.mark.usefixtures("only_fast")
def test_others_do_not(local, plainly, table, options):
    good = pa.table({"x": [5]})
    keys = [put(local, "a", good), put(local, "b", table, **options), put(local, "c", good)]
    check(local, [(key, {}) for key in keys], request("x"))
    assert plainly == [keys[1]]


@pytest.mark.usefixtures("only_fast")
def test_the_bytes_of_few_files_are_held_at_a_time(local, monkeypatch):
    monkeypatch.setattr(batched_reader, "_BATCH_FILES", 2)
    keys = [put(local, name, pa.table({"x": [k]})) for k, name in enumerate("abcde")]
    opened, spans = [], small_files._spans
    monkeypatch.setattr(small_files, "_spans", lambda data, files: opened.append(len(files)) or spans(data, files))
    check(local, [(key, {}) for key in keys], request("x"))
    assert opened == [2, 2, 1]


@pytest.mark.usefixtures("only_fast")
def test_rows_that_take_more_memory_than_there_is_are_given_up(local, monkeypatch):
    monkeypatch.setattr(batched_reader, "_BATCH_FILES", 2)
    keys = [put(local, name, pa.table({"x": range(10)})) for name in "abcdef"]
    each = read_rows(local, keys[0], request("x")).get_total_buffer_size()
    with counting() as counted, pytest.raises(TooLarge):
        read_together(local, [(key, {}) for key in keys], request("x"), 3 * each - 1)
    assert counted.counts.files_read == 4
    assert read_together(local, [(key, {}) for key in keys], request("x"), 6 * each)[1] == [10] * 6


# --- many files as one ----------------------------------------------------------------------------

KINDS = pa.schema(
    [
        ("i", pa.int64()),
        ("f", pa.float64()),
        ("t", pa.string()),
        ("b", pa.bool_()),
        ("s", pa.int16()),
        ("d", pa.date32()),
        ("m", pa.decimal128(9, 2)),
        ("z", pa.timestamp("us", tz="UTC")),
        ("y", pa.binary()),
    ]
)
FLOATS = [0.0, -0.0, float("nan"), float("inf"), None, 1.5]


def table_of_kinds(seed):
    random, rows = Random(seed), Random(seed).choice([1, 2, 40, 300, 3000])

    def some(values):
        share = random.choice([0, 0, 0.5, 1])
        return [None if random.random() < share else random.choice(values) for _ in range(rows)]

    texts = ["", "a", "é" * random.choice([1, 70]), "\x18\x00", str(random.random())]
    numbers = [0, 1, -1, 10 ** random.randrange(18)]
    dates = [random.randrange(20_000) for _ in range(3)]
    columns = [
        pa.array(some(numbers), pa.int64()),
        pa.array(some(FLOATS), pa.float64()),
        pa.array(some(texts), pa.string()),
        pa.array(some([True, False]), pa.bool_()),
        pa.array(some([1, 2, -3]), pa.int16()),
        pa.array(some(dates), pa.int32()).cast(pa.date32()),
        pa.array(some([1, 2, -3]), pa.int32()).cast(pa.decimal128(12, 2)).cast(pa.decimal128(9, 2)),
        pa.array(some(dates), pa.int64()).cast(pa.timestamp("us", tz="UTC")),
        pa.array([None if text is None else text.encode() for text in some(texts)], pa.binary()),
    ]
    return pa.table(columns, schema=KINDS)


def as_kartothek_writes(table):
    """With what pandas has to know, which differs with the number of rows."""
    index = {"kind": "range", "start": 0, "stop": table.num_rows}
    return table.replace_schema_metadata({"pandas": json.dumps({"index_columns": [index]})})


@pytest.mark.parametrize("compression", ["NONE", "SNAPPY", "ZSTD"])
@pytest.mark.parametrize("options", [{}, {"use_dictionary": False}, {"write_page_checksum": True, "version": "1.0"}])
def test_many_files_are_read_as_each_alone(local, compression, options):
    whole = [table_of_kinds(seed) for seed in range(20)]
    tables = [as_kartothek_writes(table) if i % 3 else table for i, table in enumerate(whole)]
    files = [
        (put(local, i, table, compression=compression, **(options if i % 5 else {})), {"p": 1})
        for i, table in enumerate(tables)
    ]
    asked = FileRequest("uuid", KINDS, ("z", *KINDS.names[:7], "y"))
    found, counts = read_together(local, files, asked, ROOM)
    alone = [read_rows(local, key, asked, constants) for key, constants in files]
    assert counts == [table.num_rows for table in tables]
    assert repr(found.to_pylist()) == repr(pa.concat_tables(alone).to_pylist())  # NaN, and zeros with their sign


@pytest.mark.usefixtures("only_fast")
def test_files_of_kartothek_are_opened_once_for_each_number_of_rows(local, plainly, monkeypatch):
    small_files._layouts.cache_clear()
    opened, open_file = [], small_files._opened
    monkeypatch.setattr(small_files, "_opened", lambda data, head: opened.append(data) or open_file(data, head))
    tables = [as_kartothek_writes(pa.table({"x": range(k % 3 + 1), "v1": [0.5] * (k % 3 + 1)})) for k in range(60)]
    files = [(put(local, k, table), {}) for k, table in enumerate(tables)]
    for _ in range(2):
        check(local, files, request("v1", "x"))
    assert (len(opened), plainly) == (4, [])  # and once for the layout


@pytest.mark.usefixtures("only_fast")
def test_files_of_ever_new_layouts_take_the_short_way_too(local, plainly):
    # Where a column has no values, there is neither minimum nor maximum, and no dictionary.
    tables = [
        pa.table({f"c{i}": pa.array([None if k >> i & 1 else 7 * i] * (k % 5), pa.int64()) for i in range(6)})
        for k in range(64)
    ]
    files = [(put(local, k, table), {}) for k, table in enumerate(tables) if table.num_rows]
    asked = FileRequest("uuid", tables[0].schema, ("c5", "c0", "c2"))
    found, _ = read_together(local, files, asked, ROOM)
    expected = pa.concat_tables([read_rows(local, key, asked) for key, _ in files])
    assert (found.to_pylist(), plainly) == (expected.to_pylist(), [])


@pytest.mark.usefixtures("only_fast")
def test_files_with_narrow_and_unsigned_integers_are_read_as_one(local, plainly, monkeypatch):
    """The schemas of their footers say how many bits these have, in a single byte."""
    small_files._layouts.cache_clear()
    alone, rows_alone = [], small_files._rows_alone
    monkeypatch.setattr(
        small_files, "_rows_alone", lambda content, schema: alone.append(1) or rows_alone(content, schema)
    )
    narrow = [pa.int8(), pa.int16(), pa.uint8(), pa.uint16(), pa.uint32()]
    schema = pa.schema([("x", pa.int64()), *((f"c_{kind}", kind) for kind in narrow)])
    most = [2**63 - 1, 2**7 - 1, 2**15 - 1, 2**8 - 1, 2**16 - 1, 2**32 - 1]
    tables = [pa.table([[k, top, None] for top in most], schema=schema) for k in range(9)]
    files = [(put(local, k, table, version="2.6"), {}) for k, table in enumerate(tables)]
    found, counts = read_together(local, files, FileRequest("uuid", schema, tuple(schema.names)), ROOM)
    assert (found.schema, found.to_pylist(), counts) == (schema, pa.concat_tables(tables).to_pylist(), [3] * 9)
    assert (alone, plainly) == ([], [])


@pytest.mark.parametrize("k", range(4))
@pytest.mark.parametrize("options", [{}, {"compression": "ZSTD", "write_page_checksum": True}])
def test_a_damaged_byte_spoils_no_other_file(local, k, options):
    """Read together, files are as alone; or the damage is in a statistic, which nobody needs."""
    tables = [
        pa.table({"x": [None if i == n else i * n for i in range(9)], "y": ["a", "b", "c"] * 3}) for n in range(3)
    ]
    files = [(put(local, n, table, **options), {}) for n, table in enumerate(tables)]
    key, asked, random = files[1][0], request("x", "y"), Random(k)
    whole = bytes(local.get(key))
    undamaged = [read_rows(local, name, asked) for name, _ in files]

    def found(read):
        try:
            return read()
        except CorruptData:
            return None

    for place in range(k, len(whole), 16):
        damage = whole[place] ^ random.choice([1, 2, 64, 128, 255])
        local.put(key, whole[:place] + bytes([damage]) + whole[place + 1 :])
        alone = found(lambda: pa.concat_tables([read_rows(local, name, asked) for name, _ in files]))
        together = found(lambda: read_together(local, files, asked, ROOM)[0])
        if together is None:
            assert alone is None
        else:
            assert together.equals(pa.concat_tables(undamaged) if alone is None else alone)


def test_files_without_a_path_do_not(plainly):
    store = MemoryStore()
    key = put(store, "a", pa.table({"x": [1]}))
    check(store, [(key, {})], request("x"))
    assert plainly == [key]


# --- errors ---------------------------------------------------------------------------------------


def damaged(data):
    """Another byte in the first page."""
    return data[:40] + bytes([data[40] ^ 1]) + data[41:]


def twice(data):
    sink = io.BytesIO()
    pq.write_table(pa.table([[1], [2]], names=["x", "x"]), sink)
    return sink.getvalue()


@pytest.mark.parametrize(
    "damage", [damaged, twice, lambda data: data[:-9], lambda data: b"", lambda data: b"no Parquet"]
)
def test_a_damaged_file_is_named(local, damage):
    good, bad = (f"uuid/table/{name}.parquet" for name in ("good", "bad"))
    data = memoryview(ParquetFormat(compression="NONE").encode(pa.table({"x": range(100), "y": ["a"] * 100}))).tobytes()
    local.put(good, data)
    local.put(bad, damage(data))
    with pytest.raises(CorruptData, match=rf"(?s){bad}.*'uuid'"):
        read_together(local, [(good, {}), (bad, {})], request("x"), ROOM)


def test_a_missing_file_is_named(local):
    with pytest.raises(KeyNotFound, match=r"uuid/table/a\.parquet"):
        read_together(local, [("uuid/table/a.parquet", {})], request("x"), ROOM)


def test_a_key_that_is_none_is_the_fault_of_the_document(local):
    with pytest.raises(CorruptDocument, match="'uuid'"):
        read_together(local, [("uuid/../a.parquet", {})], request("x"), ROOM)

from __future__ import annotations

import datetime as dt
from collections import Counter
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kartothek_cube.core.dataset.read import read_table_arrow
from kartothek_cube.core.expressions.predicates import Clause, matching_all
from kartothek_cube.core.io import parquet_rows
from kartothek_cube.core.metadata import index as index_module
from kartothek_cube.core.metadata.index import (
    INDEX_ROWS,
    build_index,
    drop_labels,
    index_from_table,
    index_type,
    merge_indices,
)
from kartothek_cube.core.snapshots import loader as index_file
from kartothek_cube.core.snapshots.loader import index_bytes, load_index, load_snapshot, read_index
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.core.write.prepare import PartitionRows
from kartothek_cube.core.write.stage import index_entries
from kartothek_cube.errors import CorruptData, CorruptDocument, InvalidInput, Unsupported
from kartothek_cube.testing.stores import CountingStore
from tests.support.commits import UUID, write

pytestmark = pytest.mark.usefixtures("fast_paths")

LABELS = ["a", "b", "c"]


def pairs(index):
    return Counter(zip(index.values.to_pylist(), index.labels.to_pylist(), strict=True))


def make(entries, kind=None):
    kind = kind or pa.int64()
    return build_index("x", kind, [(pa.array(values, type=kind), label) for label, values in entries.items()])


indices = st.dictionaries(st.sampled_from(LABELS), st.lists(st.integers(0, 4), unique=True, max_size=4)).map(make)


def test_index_of_the_worked_example():
    index = build_index("L", pa.string(), [(pa.array(["a", "b"]), "P=1/0001"), (pa.array(["a"]), "P=2/0001")])
    data = index_bytes(index)
    table = pq.read_table(pa.BufferReader(data))
    assert table.schema == pa.schema([("L", pa.string()), ("partition", pa.list_(pa.string()))])
    assert table.to_pydict() == {"L": ["a", "b"], "partition": [["P=1/0001", "P=2/0001"], ["P=1/0001"]]}
    metadata = pq.read_metadata(pa.BufferReader(data))
    assert [metadata.schema.column(j).path for j in range(2)] == ["L", "partition.list.item"]
    assert sorted(metadata.metadata) == [b"ARROW:schema"]


@given(st.lists(indices, min_size=1, max_size=4), st.lists(st.sampled_from(LABELS)))
def test_merging_and_dropping(found, removed):
    merged = merge_indices(found)
    assert pairs(merged) == sum((pairs(i) for i in found), Counter())
    dropped = drop_labels(merged, pa.array(removed, type=pa.string()))
    assert pairs(dropped) == Counter({(v, label): n for (v, label), n in pairs(merged).items() if label not in removed})
    again = merge_indices([dropped, make({"z": [9]})])
    assert pairs(again) == pairs(dropped) + Counter({(9, "z"): 1})


@given(indices)
def test_a_file_comes_back(index):
    table = pq.read_table(pa.BufferReader(index_bytes(index)))
    assert table.column("x").to_pylist() == sorted(set(index.values.to_pylist()))
    back = index_from_table(table, "x", pa.int64(), "key")
    assert pairs(back) == pairs(index)


@given(indices, st.integers(-1, 5))
def test_selection_and_positions(index, value):
    chosen = index.select([Clause("x", ">=", value), Clause("x", "!=", 3)])
    expected = {(v, label): n for (v, label), n in pairs(index).items() if v >= value and v != 3}
    assert pairs(chosen) == Counter(expected)
    names = pa.array(["c", "a"])
    assert chosen.positions(names).tolist() == [{"c": 0, "a": 1}.get(label, -1) for label in chosen.labels.to_pylist()]


SAMPLES = {
    pa.bool_(): [True, False],
    pa.int8(): [3, -1],
    pa.uint64(): [2**64 - 1, 0],
    pa.float32(): [1.5, -1.0],
    pa.string(): ["b", "", "ä"],
    pa.binary(): [b"\xff", b""],
    pa.date32(): [dt.date(2020, 1, 2), dt.date(1, 1, 1)],
    pa.timestamp("us"): [dt.datetime(2020, 1, 1, 0, 0, 0, 1), dt.datetime(9999, 1, 1)],
}


@pytest.mark.parametrize("column", ["x", "a.b", "partition.list.item"])
@pytest.mark.parametrize("kind", SAMPLES, ids=str)
def test_every_type_can_be_indexed(kind, column):
    normal = index_type(kind, column, UUID)
    index = build_index(column, normal, [(pa.array(SAMPLES[kind], type=kind), "a")])
    back = index_from_table(pq.ParquetFile(pa.BufferReader(index_bytes(index))).read(), column, normal, "key")
    assert back.values.type == normal
    assert sorted(back.values.to_pylist()) == sorted(SAMPLES[kind])


@pytest.mark.parametrize(
    ("kind", "encoding"),
    [(pa.int64(), "DELTA_BINARY_PACKED"), (pa.date32(), "DELTA_BINARY_PACKED"), (pa.string(), "PLAIN")],
)
def test_values_of_an_index_have_no_dictionary_but_labels_have(kind, encoding):
    index = build_index("x", index_type(kind, "x", UUID), [(pa.array(SAMPLES.get(kind, [1, 2]), type=kind), "a")])
    group = pq.read_metadata(pa.BufferReader(index_bytes(index))).row_group(0)
    values, labels = (group.column(j) for j in range(2))
    assert set(values.encodings) == {encoding, "RLE"}
    assert (values.has_dictionary_page, labels.has_dictionary_page) == (False, True)


@pytest.mark.parametrize(
    "kind",
    [
        pa.null(),
        pa.list_(pa.int64()),
        pa.struct([("a", pa.int64())]),
        pa.decimal128(4, 2),
        pa.time64("us"),
        pa.duration("us"),
    ],
    ids=str,
)
def test_types_that_cannot_be_indexed_are_refused(kind):
    with pytest.raises(Unsupported, match="'x' of dataset uuid"):
        index_type(kind, "x", UUID)


def test_a_column_called_partition_cannot_be_indexed():
    with pytest.raises(InvalidInput, match="'partition'"):
        index_type(pa.int64(), "partition", UUID)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, None, 1, 2]),
        pa.array([1.0, None, float("nan"), 2.0]),
        pa.array(["a", None, "a", "b"]),
        pa.array([Decimal(1), None, Decimal(1), Decimal(2)]),
    ],
    ids=["int", "float", "str", "decimal"],
)
def test_nulls_are_never_in_an_index(column):
    entries = index_entries(PartitionRows({}, "a", pa.table({"x": column})), ["x"])["x"]
    assert (len(entries), entries.null_count) == (2, 0)
    assert "nan" not in map(str, entries.to_pylist())


def test_a_column_that_is_null_throughout_gives_an_empty_index():
    entries = index_entries(PartitionRows({}, "a", pa.table({"x": pa.nulls(2)})), ["x"])
    index = build_index("x", pa.string(), [(entries["x"], "a")])
    assert (len(index), index.values.type) == (0, pa.string())
    assert pq.read_table(pa.BufferReader(index_bytes(index))).num_rows == 0
    assert len(merge_indices([index, index])) == 0


# --- files of other writers -----------------------------------------------------------------------

OTHERS = {
    "unsorted": pa.table({"x": ["b", "a"], "partition": [["1"], ["2", "1"]]}),
    "repeated": pa.table({"x": ["b", "a", "a"], "partition": [["1"], ["2"], ["1"]]}),
    "large": pa.table(
        {
            "x": pa.array(["a", "b"], pa.large_string()),
            "partition": pa.array([["2", "1"], ["1"]], pa.large_list(pa.large_string())),
        }
    ),
    "element": pa.table(
        {"x": ["a", "b"], "partition": pa.array([["2", "1"], ["1"]], pa.list_(pa.field("element", pa.string())))}
    ),
    "dictionary": pa.table({"x": pa.array(["a", "b"]).dictionary_encode(), "partition": [["2", "1"], ["1"]]}),
    "column order": pa.table({"partition": [["2", "1"], ["1"]], "x": ["a", "b"]}),
    "empty and null lists": pa.table({"x": ["a", "c", "d", "b"], "partition": [["2", "1"], [], None, ["1"]]}),
    "views": pa.table(
        {
            "x": pa.array(["a", None, "b"], pa.string_view()),
            "partition": pa.array([["2", "1"], ["1"], ["1"]], pa.list_(pa.string_view())),
        }
    ),
    "dictionaries of labels": pa.table(
        {
            "x": ["a", "b"],
            "partition": pa.array([["2", "1"], ["1", None]], pa.list_(pa.dictionary(pa.int8(), pa.string()))),
        }
    ),
    "null label": pa.table({"x": ["a", "b", "c"], "partition": [["2", None, "1"], ["1"], [None]]}),
    "null value": pa.table({"x": ["a", None, "b"], "partition": [["2", "1"], ["1"], ["1"]]}),
    "chunks": pa.concat_tables(
        [pa.table({"x": ["a"], "partition": [["2", "1"]]}), pa.table({"x": ["b"], "partition": [["1"]]})]
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_files_of_other_writers_are_read(name):
    index = index_from_table(OTHERS[name], "x", pa.string(), "key")
    assert pairs(index) == Counter({("a", "1"): 1, ("a", "2"): 1, ("b", "1"): 1})
    assert index.values.type == pa.string()
    assert index.labels.type == pa.dictionary(pa.int32(), pa.string())


def test_nan_of_other_writers_is_no_value():
    index = index_from_table(
        pa.table({"x": [1.5, float("nan"), None], "partition": [["a"], ["b"], ["c"]]}), "x", pa.float64(), "key"
    )
    assert (index.values.to_pylist(), index.labels.to_pylist()) == ([1.5], ["a"])


def test_nanoseconds_of_other_writers_are_read():
    table = pa.table({"x": pa.array([1000], pa.timestamp("ns")), "partition": [["1"]]})
    assert index_from_table(table, "x", pa.timestamp("us"), "key").values.to_pylist() == [
        dt.datetime(1970, 1, 1, 0, 0, 0, 1)
    ]


@pytest.mark.parametrize(
    "table",
    [
        pa.table({"y": [1], "partition": [["a"]]}),
        pa.table({"x": [1]}),
        pa.table({"x": ["text"], "partition": [["a"]]}),
        pa.table({"x": [1], "partition": ["a"]}),
        pa.table({"x": [[1]], "partition": [["a"]]}),
    ],
    ids=["no column", "no labels", "type", "no lists", "nested"],
)
def test_a_file_that_is_no_index_on_the_column_is_named(table):
    with pytest.raises(CorruptData, match=r"uuid/indices/x/1\.parquet"):
        index_from_table(table, "x", pa.int64(), "uuid/indices/x/1.parquet")


def replace_index(store, snapshot, value):
    import json

    document = json.loads(store.get(snapshot.key))
    document["indices"] = {"x": value}
    store.put(snapshot.key, json.dumps(document).encode())
    return load_snapshot(store, UUID)


@pytest.mark.parametrize(
    ("kind", "mapping", "values"),
    [
        (pa.int64(), {"1": ["a", "b"], "-2": ["a"]}, {(1, "a"): 1, (1, "b"): 1, (-2, "a"): 1}),
        (pa.string(), {"": ["a"], "ä": ["b"]}, {("", "a"): 1, ("ä", "b"): 1}),
        (pa.float64(), {"1.5": ["a"]}, {(1.5, "a"): 1}),
        (pa.bool_(), {"True": ["a"], "False": ["b"]}, {(True, "a"): 1, (False, "b"): 1}),
        (pa.date32(), {"2020-01-01": ["a"]}, {(dt.date(2020, 1, 1), "a"): 1}),
    ],
    ids=str,
)
def test_indices_embedded_in_the_document_are_read(kind, mapping, values):
    store = MemoryStore()
    snapshot = replace_index(store, write(store, {"x": pa.nulls(1, kind), "v1": [1]}), mapping)
    index, whole = load_index(store, snapshot, "x")
    assert whole
    assert pairs(index) == Counter(values)
    assert pairs(drop_labels(index, pa.array(["a"]))) == Counter({k: n for k, n in values.items() if k[1] != "a"})
    assert pairs(merge_indices([index, index])) == Counter(values) + Counter(values)


@pytest.mark.parametrize("mapping", [{"x": ["a"]}, {"1": "a"}, {"1": [1]}, {"1": None}, [], 1])
def test_embedded_index_that_makes_no_sense_is_refused(mapping):
    store = MemoryStore()
    snapshot = replace_index(store, write(store, {"x": [1], "v1": [1]}), mapping)
    with pytest.raises(CorruptDocument, match=r"'x'.*uuid"):
        load_index(store, snapshot, "x")


def test_index_under_the_key_of_old_versions_is_read():
    store = MemoryStore()
    snapshot = replace(write(store, {"x": [1, 2], "v1": [1, 2]}, index=["x"], label="a"), indices={})
    key = f"{UUID}.x.by-dataset-index.parquet"
    store.put(key, store.get(snapshot.document.indices["x"]))
    assert pairs(load_index(store, replace_index(store, snapshot, key), "x")[0]) == Counter({(1, "a"): 1, (2, "a"): 1})


# --- reading a part of a file ---------------------------------------------------------------------


@pytest.fixture
def large():
    store = MemoryStore()
    rng = np.random.default_rng(0)
    # Wide values, so that the file is larger than what is read with its footer.
    values = pa.array([f"{i:05d}{rng.bytes(16).hex()}" for i in rng.permutation(25_000)])
    return (
        CountingStore(store),
        write(store, {"x": values, "v1": range(25_000)}, index=["x"], label="a"),
        sorted(values.to_pylist()),
    )


@pytest.mark.usefixtures("only_fast")
def test_a_read_with_one_conjunction_does_so(large):
    store, _, values = large
    fetched, cold = [], MemoryStore()
    for key in store.inner.list(recursive=True).keys:
        cold.put(key, store.inner.get(key))
    cold.ranges = lambda key, spans: [
        fetched.extend(b - a for a, b in spans if "/indices/" in key),
        MemoryStore.ranges(cold, key, spans),
    ][1]
    assert read_table_arrow(UUID, cold, columns=["x"], predicates=[[("x", "==", values[12_000])]]).num_rows == 1
    size = len(cold.get(next(k for k in cold.list(recursive=True).keys if "/indices/" in k)))
    assert sum(fetched) < 0.6 * size


def test_row_groups_have_ten_thousand_values(large):
    store, snapshot, _ = large
    metadata = pq.read_metadata(pa.BufferReader(store.inner.get(snapshot.document.indices["x"])))
    assert [metadata.row_group(g).num_rows for g in range(metadata.num_row_groups)] == [INDEX_ROWS, INDEX_ROWS, 5_000]


@pytest.mark.parametrize(
    ("make_clauses", "rows"),
    [
        (lambda v: [Clause("x", "==", v[12_000])], 10_000),
        (lambda v: [Clause("x", ">", v[11_000])], 15_000),
        (lambda v: [Clause("x", ">", v[5_000]), Clause("x", "<", v[15_000])], 20_000),
        (lambda v: [Clause("x", "in", (v[0], v[-1]))], 15_000),
        (lambda v: [Clause("x", "==", "z")], 0),
        (lambda v: [], 25_000),
    ],
    ids=["equality", "half-open range", "range", "list", "nothing", "whole"],
)
@pytest.mark.usefixtures("only_fast")
def test_only_matching_row_groups_are_read(large, monkeypatch, make_clauses, rows):
    store, _, values = large
    cold = load_snapshot(store, UUID)
    object_without_indices = type(cold)(
        cold.uuid, cold.key, cold.token, cold.document, cold.schemas, cold.partition_keys, cold.partitions, cold.values
    )
    clauses = make_clauses(values)
    seen, read = [], index_file.index_from_table
    monkeypatch.setattr(
        index_file, "index_from_table", lambda table, *of: seen.append(table.num_rows) or read(table, *of)
    )
    store.reset()
    index, whole = load_index(store, object_without_indices, "x", clauses)
    assert (sum(seen), whole) == (rows, rows == 25_000)
    ascending = pa.array(values)
    assert sorted(index.values.to_pylist()) == ascending.filter(pa.array(matching_all(ascending, clauses))).to_pylist()
    assert store.counts["get"] + store.counts["get_versioned"] == 0
    assert store.counts["ranges"] == (1 if rows else 0)


# --- large ones -----------------------------------------------------------------------------------


def shuffled(store, snapshot, rows=1000):
    """The index file again as another writer might have left it: values in any order, in one row
    group.
    """
    values = [(7 * i) % rows for i in range(rows)]
    lists = [[["a"], ["b"], ["a", "b"]][v % 3] for v in values]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"x": values, "partition": lists}), sink)
    store.put(snapshot.document.indices["x"], sink.getvalue().to_pybytes())


@pytest.mark.parametrize(
    "clauses", [[], [Clause("x", "==", 7)], [Clause("x", ">=", 10), Clause("x", "<", 20)], [Clause("x", "==", -1)]]
)
def test_an_unsorted_index_of_many_values_is_read_in_pieces(monkeypatch, clauses):
    store = MemoryStore()
    snapshot = replace(write(store, {"x": [1, 2], "v1": [1, 2]}, index=["x"], label="a"), indices={})
    shuffled(store, snapshot)
    at_once, whole = load_index(store, snapshot, "x", clauses)
    assert whole
    seen, read = [], index_file.index_from_table
    monkeypatch.setattr(index_file, "_MANY_VALUES", 100)
    monkeypatch.setattr(
        index_file, "index_from_table", lambda table, *of: seen.append(table.num_rows) or read(table, *of)
    )
    monkeypatch.setattr(parquet_rows, "_MANY_ROWS", 100)
    monkeypatch.setattr(parquet_rows, "_STREAMED_ROWS", 64)
    streamed, whole = load_index(store, snapshot, "x", clauses)
    assert (max(seen), sum(seen), whole) == (48, 1000, not clauses)  # 1,333 labels
    assert pairs(streamed) == pairs(at_once.select(clauses))


WRITERS = {
    "as kartothek": {"use_compliant_nested_type": False},
    "other names": {},
    "no dictionary": {"use_dictionary": False},
    "a dictionary that was given up": {"dictionary_pagesize_limit": 4000, "data_page_size": 2000},
    "several row groups": {"row_group_size": 700},
    "second version of pages": {"data_page_version": "2.0", "row_group_size": 700},
    "one column": {"use_dictionary": ["x"]},
}


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("type_of_lists", [pa.list_(pa.string()), pa.large_list(pa.large_string())], ids=str)
def test_many_labels_are_read_from_files_of_any_writer(monkeypatch, writer, type_of_lists):
    lists = [[f"p={j}/{'label' * 5}{i % 97 * j}" for j in range(i % 7)] or None for i in range(2000)]
    lists[17] = ["a", None]
    table = pa.table(
        {"x": [None if i == 1000 else i for i in range(2000)], "partition": pa.array(lists, type_of_lists)}
    )
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **WRITERS[writer])
    store = MemoryStore()
    store.put("key", sink.getvalue().to_pybytes())
    expected = index_from_table(table, "x", pa.int64(), "key")
    known = zip(table["x"].to_pylist(), lists, strict=True)
    assert pairs(expected) == Counter((x, label) for x, row in known if x is not None for label in row or () if label)
    for many in (0, 10**6):
        monkeypatch.setattr(parquet_rows, "_MANY_TEXTS", many)
        index, whole = read_index(store, "key", UUID, "x", pa.int64())
        assert whole
        assert index.keys.equals(expected.keys)
        assert index.lists.to_pylist() == expected.lists.to_pylist()
    monkeypatch.setattr(parquet_rows, "_STREAMED_ROWS", 3000)
    monkeypatch.setattr(parquet_rows, "_MANY_ROWS", 1000)
    index, whole = read_index(store, "key", UUID, "x", pa.int64(), [Clause("x", ">=", 1800)])
    chosen = expected.select([Clause("x", ">=", 1800)])
    assert index.select([Clause("x", ">=", 1800)]).lists.to_pylist() == chosen.lists.to_pylist()


def test_codes_that_the_dictionary_of_labels_does_not_have_are_refused(monkeypatch):
    monkeypatch.setattr(parquet_rows, "_MANY_TEXTS", 0)
    labels = np.array(["a", "b", "c"])[np.random.default_rng(0).integers(0, 3, 1000)]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"x": range(1000), "partition": [[label] for label in labels]}), sink, compression="NONE")
    data = bytearray(sink.getvalue().to_pybytes())
    chunk = pq.read_metadata(pa.BufferReader(data)).row_group(0).column(1)
    end = chunk.dictionary_page_offset + chunk.total_compressed_size
    data[end - 50 : end] = b"\xff" * 50  # codes of two bits: 3, 3, ...
    store = MemoryStore()
    store.put("key", bytes(data))
    with pytest.raises(CorruptData, match="key"):
        read_index(store, "key", UUID, "x", pa.int64())


def test_an_index_that_is_kept_is_searched(monkeypatch):
    index = make({"a": list(range(5)), "b": list(range(5, 9))})
    expected = [
        pairs(index.select(clauses))
        for clauses in ([Clause("x", ">", 3)], [Clause("x", "in", (1, 7))], [Clause("x", "==", 99)])
    ]
    monkeypatch.setattr(index_module, "MANY", 0)
    monkeypatch.setattr(index_module, "matching_all", None)
    found = [
        pairs(index.select(clauses))
        for clauses in ([Clause("x", ">", 3)], [Clause("x", "in", (1, 7))], [Clause("x", "==", 99)])
    ]
    assert found == expected

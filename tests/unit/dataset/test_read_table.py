from __future__ import annotations

import datetime as dt

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kartothek_cube.core.dataset.read import plan_table_scan, read_table, read_table_arrow, stream_table
from kartothek_cube.core.io.formats import ParquetFormat
from kartothek_cube.core.kartothek.dataset_metadata import DatasetFactory
from kartothek_cube.core.metadata.naming import schema_key
from kartothek_cube.core.metadata.snapshot import common_metadata_bytes
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import (
    CorruptData,
    DatasetNotFound,
    InvalidInput,
    InvalidType,
    KeyNotFound,
    UnknownColumn,
    Unsupported,
)
from kartothek_cube.testing.stores import CountingStore
from tests.caches import forget
from tests.support.commits import UUID, write

ROWS = {
    "x": [3, 1, 2, 4],
    "p": ["a", "a", "b", "b"],
    "d": pa.array([dt.date(2020, 1, 1), dt.date(2020, 1, 2), None, dt.date(2020, 1, 4)]),
    "y": ["u", None, "v", "u"],
}


@pytest.fixture
def store():
    memory = MemoryStore()
    write(memory, ROWS, on=["p"], index=["y"], label="one")
    return memory


def read(store, *clauses, **arguments):
    return read_table(UUID, store, predicates=[list(clauses)] if clauses else None, **arguments)


def test_all_columns_partition_keys_first(store):  # F01, H01
    frame = read(store)
    assert list(frame.columns) == ["p", "d", "x", "y"]
    assert list(frame.index) == [0, 1, 2, 3]
    assert frame["x"].tolist() == [3, 1, 2, 4]
    assert frame["p"].tolist() == ["a", "a", "b", "b"]


def test_columns_in_the_order_asked_for(store):  # F03
    assert list(read(store, columns=["y", "p"]).columns) == ["y", "p"]
    assert list(read(store, columns={"table": ["x"]}).columns) == ["x"]
    assert read_table_arrow(UUID, store, columns=["p", "x"]).column_names == ["p", "x"]


def test_no_columns_still_have_rows(store):  # F04
    assert len(read(store, columns=[])) == 4
    assert read_table_arrow(UUID, store, columns=[], predicates=[[("x", ">", 2)]]).num_rows == 2


@pytest.mark.parametrize(
    ("clauses", "rows"),
    [
        ([("x", ">", 2)], [3, 4]),
        ([("p", "==", "b")], [2, 4]),
        ([("p", "==", "b"), ("x", "<", 3)], [2]),
        ([("y", "==", "u")], [3, 4]),
        ([("y", "!=", "u")], [1, 2]),  # H21
        ([("y", "==", None)], [1]),  # H18
        ([("y", "!=", None)], [3, 2, 4]),
        ([("y", "in", ["v", None])], [1, 2]),  # H24
        ([("d", ">=", dt.date(2020, 1, 2))], [1, 4]),
        ([("d", "==", "2020-01-04")], [4]),  # H14
        ([("d", "==", None)], [2]),  # H19
        ([("x", "in", [])], []),  # H23
        ([("p", "==", "z")], []),
    ],
)
@pytest.mark.parametrize("pushdown", [True, False])
def test_predicates(store, clauses, rows, pushdown):  # H35
    assert read(store, *clauses, columns=["x"], predicate_pushdown_to_io=pushdown)["x"].tolist() == rows
    assert read(store, *clauses)["x"].tolist() == rows


def test_conjunctions_are_alternatives(store):
    assert read_table(UUID, store, predicates=[[("x", "==", 1)], [("p", "==", "b"), ("y", "==", "u")]])[
        "x"
    ].tolist() == [1, 4]


def test_an_empty_result_has_the_types_of_the_dataset(store):  # F13
    empty = read(store, ("p", "==", "z"))
    assert empty.dtypes.to_dict() == read(store, ("p", "==", "a"), ("x", "<", 0)).dtypes.to_dict()
    assert str(empty["x"].dtype) == "int64"


def test_types_are_those_of_the_dataset_whatever_files_match():  # F14, F16
    store = MemoryStore()
    write(store, {"x": pa.array([1], pa.int8()), "y": pa.nulls(1)}, label="a")
    write(store, {"x": pa.array([300], pa.int16()), "y": ["t"]}, label="b")
    for clauses in ([], [("x", "==", 1)], [("x", "==", 300)], [("x", "==", 0)]):
        table = read_table_arrow(UUID, store, predicates=[clauses] if clauses else None)
        assert table.schema == pa.schema([("x", pa.int16()), ("y", pa.string())])


def test_dates(store):  # F17
    assert read(store)["d"].dtype.kind == "M"
    assert read(store, dates_as_object=True)["d"].tolist() == [
        dt.date(2020, 1, 1),
        dt.date(2020, 1, 2),
        None,
        dt.date(2020, 1, 4),
    ]


def test_categoricals(store):
    for categoricals in (["p", "y"], {"table": ["p", "y"]}):
        frame = read(store, categoricals=categoricals)
        assert [isinstance(frame[c].dtype, pd.CategoricalDtype) for c in ("p", "y", "x")] == [True, True, False]
        assert frame["p"].tolist() == ["a", "a", "b", "b"]
    assert isinstance(read(store, ("p", "==", "z"), categoricals=["p"])["p"].dtype, pd.CategoricalDtype)


def test_labels_may_be_chosen(store):
    asked = []
    frame = read(store, ("x", ">", 1), label_filter=lambda label: bool(asked.append(label)) or "p=b" in label)
    assert frame["x"].tolist() == [2, 4]
    assert asked == ["p=a/one", "p=b/one"]
    assert read(store, ("p", "==", "b"), label_filter=asked.append).empty
    assert asked[2:] == ["p=b/one"]


def second_table(store):
    import json

    key = f"{UUID}/names/p=a/one.parquet"
    store.put(key, memoryview(ParquetFormat().encode(pa.table({"n": [7]}))))
    store.put(schema_key(UUID, "names"), common_metadata_bytes(pa.schema([("p", pa.string()), ("n", pa.int64())])))
    document = json.loads(store.get(f"{UUID}.by-dataset-metadata.json"))
    document["partitions"]["p=a/one"]["files"]["names"] = key
    store.put(f"{UUID}.by-dataset-metadata.json", json.dumps(document).encode())


def test_another_table(store):
    second_table(store)
    assert read(store, table="names").to_dict("list") == {"p": ["a"], "n": [7]}
    assert read(store, table="names", columns={"names": ["n"], "table": ["x"]}).to_dict("list") == {"n": [7]}
    assert read(store, table="names", label_filter=lambda label: label == "p=a/one")["n"].tolist() == [7]
    assert read(store)["x"].tolist() == [3, 1, 2, 4]
    assert read(store, ("n", "==", 8), table="names").empty


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"columns": ["x", "z"]}, UnknownColumn, "cannot be found in stored dataframe: z in dataset 'uuid'"),  # F08
        ({"columns": ["xx"]}, UnknownColumn, "Did you mean 'x'"),
        ({"columns": ["x", "x"]}, InvalidInput, "asked for twice"),  # F07
        ({"columns": "x"}, InvalidType, "columns"),  # F05
        ({"columns": ("x",)}, InvalidType, "list of column names, not tuple"),  # F05
        ({"columns": {"other": ["x"]}}, InvalidInput, "'table'"),
        ({"categoricals": ["z"]}, UnknownColumn, "'z'"),  # F25
        ({"categoricals": ["y"], "columns": ["x"]}, UnknownColumn, "'y'"),
        ({"categoricals": {"other": ["y"]}}, InvalidInput, "categoricals"),
        ({"categoricals": "y"}, InvalidType, "categoricals"),
        ({"table": "other"}, KeyNotFound, "no table 'other', only"),  # F10
        ({"table": 1}, InvalidType, "`table`"),
        ({"table": None}, InvalidType, "`table` needs to be a string"),  # F11
        ({"label_filter": "p=a"}, InvalidType, "label_filter"),
        ({"predicates": []}, InvalidInput, "Empty predicates"),  # H01
        ({"predicates": [("x", "==", 1)]}, InvalidInput, "list of 3-tuples"),  # H02
        ({"predicates": [[("z", "==", 1)]]}, UnknownColumn, "'uuid' does not have: z"),  # H04
        ({"predicates": [[("x", "==", "1")]]}, InvalidType, "[cC]olumn 'x'"),
        ({"predicates": [[("p", "==", 1)]]}, InvalidType, "[cC]olumn 'p'"),
        ({"predicates": [[("x", "like", 1)]]}, Unsupported, "'like'"),
        ({"factory": object()}, InvalidInput, "dataset_uuid"),
    ],
    ids=range(21),
)
def test_arguments_that_do_not_fit(store, arguments, error, text):
    counting = CountingStore(store)
    with pytest.raises(error, match=text):
        read_table(UUID, counting, **arguments)
    if not {"categoricals", "label_filter", "factory"} & arguments.keys():
        with pytest.raises(error, match=text):
            read_table_arrow(UUID, counting, **arguments)
        with pytest.raises(error, match=text):
            stream_table(UUID, counting, **arguments)
        with pytest.raises(error, match=text):
            plan_table_scan(UUID, counting, **arguments)
    assert counting.touched("ranges") == [], "bad input is refused before files are read"


def test_what_is_missing_is_named(store):  # A04
    with pytest.raises(DatasetNotFound, match="other"):
        read_table("other", store)
    with pytest.raises(InvalidInput):
        read_table(UUID)
    with pytest.raises(InvalidInput):
        read_table(store=store)
    key = f"{UUID}/table/p=b/one.parquet"
    store.put(key, b"damaged")
    with pytest.raises(CorruptData, match=f"'{key}' of dataset 'uuid'"):
        read(store)
    store.delete(key)
    with pytest.raises(KeyNotFound, match=f"'{key}'.*'uuid'"):
        read(store)
    assert read(store, ("p", "==", "a"))["x"].tolist() == [3, 1]


# F04
def test_a_file_that_is_gone_fails_even_where_only_rows_are_counted(store):
    store.delete(f"{UUID}/table/p=b/one.parquet")
    with pytest.raises(KeyNotFound, match="p=b/one"):
        read(store, columns=[])


# F31
def test_a_missing_index_file_fails_only_where_it_is_asked(store):
    for key in [e.key for e in store.list(f"{UUID}/indices/", recursive=True).entries]:
        store.delete(key)
    forget(store)
    assert read(store, ("x", ">", 2))["x"].tolist() == [3, 4]
    with pytest.raises(KeyNotFound, match="indices/y"):
        read(store, ("y", "==", "u"))


def put_file(store, label, rows):
    store.put(f"{UUID}/table/{label}.parquet", memoryview(ParquetFormat().encode(pa.table(rows))))


# F09
def test_partition_columns_alone_need_only_footers(store):
    counting = CountingStore(store)
    assert read(counting, columns=["p"])["p"].tolist() == ["a", "a", "b", "b"]
    assert counting.touched("ranges") == []


# F19, F20, F21
def test_files_that_lack_columns_or_have_more(store):
    put_file(store, "p=b/one", {"x": [2, 4], "p": ["wrong", "wrong"], "more": [1, 1]})
    frame = read(store)
    assert list(frame.columns) == ["p", "d", "x", "y"]
    assert frame["p"].tolist() == ["a", "a", "b", "b"]
    assert frame["y"].isna().tolist() == [False, True, True, True]
    assert frame["d"].isna().tolist() == [False, False, True, True]
    assert read(store, ("y", "==", None))["x"].tolist() == [1, 2, 4]
    assert read(store, ("p", "==", "wrong")).empty


def test_integers_with_nulls_are_exact():
    store = MemoryStore()
    write(store, {"x": [2**53 + 1, None], "b": [True, None], "y": [1, 2]})
    frame = read(store)
    assert {c: str(t) for c, t in frame.dtypes.items()} == {"b": "boolean", "x": "Int64", "y": "int64"}
    assert frame["x"].tolist()[0] == 2**53 + 1


# F12, F13, F15
@pytest.mark.parametrize("gone", [True, False], ids=["no partition", "no matching partition"])
def test_a_frame_without_rows_has_the_types_of_the_schema(gone):
    store = MemoryStore()
    snapshot = write(
        store,
        {"p": ["a"], "f": pa.array([1.5], pa.float32()), "x": pa.array([1], pa.int8()), "y": ["u"], "b": [True]},
        on=["p"],
    )
    if gone:
        write(store, pa.schema(snapshot.schema).empty_table(), on=["p"], removed=snapshot.partitions.labels.to_pylist())
    frame = read(store, ("p", "==", "z"), categoricals=["y"])
    assert len(frame) == 0
    assert {c: str(t) for c, t in frame.dtypes.items()} == {
        "p": str(frame["p"].dtype),
        "b": "bool",
        "f": "float32",
        "x": "int8",
        "y": "category",
    }


# F23, F24
def test_stored_categoricals_come_back_as_asked():
    store = MemoryStore()
    write(store, {"x": ["a", "b"], "y": ["c", "d"]}, label="one")
    put_file(store, "one", {"x": pa.array(["a", "b"]).dictionary_encode(), "y": ["c", "d"]})
    plain, asked = read(store), read(store, categoricals=["y"])
    assert [isinstance(f[c].dtype, pd.CategoricalDtype) for f in (plain, asked) for c in "xy"] == [
        False,
        False,
        False,
        True,
    ]
    assert plain["x"].tolist() == ["a", "b"]


# F22
def test_categories_of_all_partitions_are_united():
    store = MemoryStore()
    write(store, {"p": ["a", "b", "b", "b"], "y": ["s", "v", "u", "v"]}, on=["p"])
    frame = read(store, categoricals=["y", "p"])
    assert list(frame["y"].cat.categories) == ["v", "u", "s"]
    assert list(frame["p"].cat.categories) == ["b", "a"]
    assert frame["y"].tolist() == ["s", "v", "u", "v"]


# F26
def test_the_label_filter_sees_what_the_indices_left(store):
    asked = []
    assert read(store, ("y", "==", "v"), label_filter=lambda label: not asked.append(label))["x"].tolist() == [2]
    assert asked == ["p=b/one"]


# F32, F33
def test_rows_follow_the_document_and_their_file(store):
    write(store, {**ROWS, "x": [13, 11, 12, 14]}, on=["p"], index=["y"], label="two")
    assert read(store)["x"].tolist() == [3, 1, 2, 4, 13, 11, 12, 14]


# F27
def test_partitions_may_be_ordered_by_their_values(store):
    write(store, {**ROWS, "x": [13, 11, 12, 14]}, on=["p"], index=["y"], label="two")
    frame = read(store, concat_partitions_on_primary_index=True)
    assert frame["x"].tolist() == [3, 1, 13, 11, 2, 4, 12, 14]
    assert list(frame.index) == list(range(8))
    assert read(store, ("x", ">", 11), concat_partitions_on_primary_index=True)["x"].tolist() == [13, 12, 14]


def test_without_partition_columns_that_changes_nothing():
    store = MemoryStore()
    write(store, {"x": [2]})
    write(store, {"x": [1]})
    assert read(store, concat_partitions_on_primary_index=True)["x"].tolist() == [2, 1]


# F34
def test_row_labels_of_a_stored_frame_are_not_restored():
    store = MemoryStore()
    write(store, {"x": [1, 2]}, label="one")
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pandas(pd.DataFrame({"x": [1, 2]}, index=[7, 8])), sink)
    store.put(f"{UUID}/table/one.parquet", memoryview(sink.getvalue()))
    frame = read(store)
    assert list(frame.columns) == ["x"]
    assert list(frame.index) == [0, 1]


def test_dates_of_a_result_without_rows(store):
    """Without a partition they are timestamps whatever was asked for, as in kartothek; else they
    are what was asked for.
    """
    assert read(store, ("p", "==", "z"), dates_as_object=True)["d"].dtype == object
    write(store, pa.table(ROWS).slice(0, 0), on=["p"], index=["y"], removed=["p=a/one", "p=b/one"])
    assert read(store, dates_as_object=True)["d"].dtype.kind == "M"


def test_nullable_integers_of_a_result_without_rows():
    """They have no type, as in kartothek.

    Only the footer of a file knows which ones these are, and only frames without rows ask it.
    """
    store = CountingStore(MemoryStore())
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pandas(pd.DataFrame({"x": pd.array([1], "Int64"), "y": [1]})), sink)
    write(store, {"x": [1], "y": [1]}, label="one")
    store.put(f"{UUID}/table/one.parquet", memoryview(sink.getvalue()))

    def reads(call):
        store.calls.clear()
        result = call()
        return result, len([call for call in store.calls if "/table/one" in call.key and call.operation == "tail"])

    empty, footers = reads(lambda: read(store, ("x", ">", 1)))
    assert (empty.dtypes.astype(str).to_dict(), footers) == ({"x": "object", "y": "int64"}, 2)
    frame, footers = reads(lambda: read(store, ("x", ">", 0)))
    assert (frame.dtypes.astype(str).to_dict(), footers) == ({"x": "int64", "y": "int64"}, 1)
    assert str(read(store, ("x", ">", 1), categoricals=["x"])["x"].dtype) == "category"
    for reader in (read_table_arrow, lambda *args, **more: stream_table(*args, **more).read_all()):
        table, footers = reads(lambda reader=reader: reader(UUID, store, predicates=[[("x", ">", 1)]]))
        assert (table.schema, table.num_rows, footers) == (pa.schema([("x", pa.int64()), ("y", pa.int64())]), 0, 1)


# A08
def test_a_factory_keeps_what_it_has_read(store):
    counting = CountingStore(store)
    factory = DatasetFactory(UUID, lambda: counting)
    assert read_table(factory=factory, predicates=[[("y", "==", "u")]])["x"].tolist() == [3, 4]
    write(store, {**ROWS, "x": [13, 11, 12, 14]}, on=["p"], index=["y"], label="two")
    counting.calls.clear()
    assert read_table(factory=factory, predicates=[[("y", "==", "u")]])["x"].tolist() == [3, 4]
    assert [call.key for call in counting.calls if "/indices/" in call.key or ".json" in call.key] == []
    factory.invalidate()
    assert read_table(factory=factory, predicates=[[("y", "==", "u")]])["x"].tolist() == [3, 4, 13, 14]


@pytest.mark.parametrize(
    "named", [{"dataset_uuid": UUID}, {"store": "hmemory://"}, {"dataset_uuid": UUID, "store": "hmemory://"}]
)
def test_a_factory_stands_alone(store, named):
    with pytest.raises(InvalidInput, match="Need to supply either a `factory`"):  # A05
        read_table(factory=DatasetFactory(UUID, lambda: store), **named)


def test_stores_in_every_form(tmp_path):
    from kartothek_cube.core.stores.open import open_store

    write(open_store(f"hfs://{tmp_path}"), {"x": [1]})
    for form in (f"hfs://{tmp_path}", tmp_path, lambda: open_store(f"hfs://{tmp_path}")):
        assert read_table(UUID, form)["x"].tolist() == [1]


@pytest.mark.parametrize("argument", ["dates_as_object", "concat_partitions_on_primary_index"])
@pytest.mark.parametrize("value", ["no", 1, None, pd.DataFrame({"x": [1]})])
def test_switches_are_true_or_false(store, argument, value):
    with pytest.raises(InvalidType, match=argument):
        read(store, **{argument: value})


@pytest.mark.parametrize("value", ["3", b"3", "", "2020-13-01", "2020-01-01T00", b"\xff"])
@pytest.mark.parametrize("op", ["==", "!=", "<", "in", "not in"])
@pytest.mark.parametrize("on", [["p"], ["d"]], ids=["in the file", "in the path"])
def test_text_that_is_no_date_is_a_wrong_value_and_a_wrong_type(value, op, on):
    memory = MemoryStore()
    write(
        memory,
        {**ROWS, "d": [dt.date(2020, 1, 1)] * 4},
        on=on,
        index=[c for c in ("d", "y") if c not in on],
        label="one",
    )
    for error in (InvalidType, InvalidInput):
        with pytest.raises(error, match="'d'"):
            read(memory, ("d", op, [value] if op.endswith("in") else value))
    assert (
        read(memory, ("d", "in", ["2020-01-01", b"2020-01-01"]))["x"].tolist() == [3, 1, 2, 4] if on == ["d"] else True
    )


def test_what_is_no_text_is_a_wrong_type_for_dates_only(store):
    with pytest.raises(InvalidType) as caught:
        read(store, ("d", "==", 3))
    assert not isinstance(caught.value, ValueError)


def test_columns_of_predicates_may_be_bytes(store):
    assert read(store, (b"x", ">", 2))["x"].tolist() == [3, 4]
    assert read(store, (b"y", "==", "u"), (b"p", "in", ["a"]))["x"].tolist() == [3]
    assert (
        plan_table_scan(UUID, store, predicates=[[(b"x", ">", 2)]]).explain()
        == plan_table_scan(UUID, store, predicates=[[("x", ">", 2)]]).explain()
    )

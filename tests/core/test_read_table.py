from __future__ import annotations

import datetime as dt

import pandas as pd
import pyarrow as pa
import pytest

from kartothek_cube.core.dataset.read import read_table, read_table_arrow
from kartothek_cube.core.naming import schema_key
from kartothek_cube.core.parquet import ParquetSerializer
from kartothek_cube.core.schema_file import common_metadata_bytes
from kartothek_cube.core.stores.memory import MemoryStore
from kartothek_cube.errors import CorruptData, DatasetNotFound, InvalidInput, InvalidType, KeyNotFound, Unsupported
from kartothek_cube.testing.stores import CountingStore
from tests.core.helpers import UUID, write

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


def test_all_columns_partition_keys_first(store):
    frame = read(store)
    assert list(frame.columns) == ["p", "d", "x", "y"]
    assert list(frame.index) == [0, 1, 2, 3]
    assert frame["x"].tolist() == [3, 1, 2, 4]
    assert frame["p"].tolist() == ["a", "a", "b", "b"]


def test_columns_in_the_order_asked_for(store):
    assert list(read(store, columns=["y", "p"]).columns) == ["y", "p"]
    assert list(read(store, columns={"table": ["x"]}).columns) == ["x"]
    assert read_table_arrow(UUID, store, columns=["p", "x"]).column_names == ["p", "x"]


def test_no_columns_still_have_rows(store):
    assert len(read(store, columns=[])) == 4
    assert read_table_arrow(UUID, store, columns=[], predicates=[[("x", ">", 2)]]).num_rows == 2


@pytest.mark.parametrize(
    ("clauses", "rows"),
    [
        ([("x", ">", 2)], [3, 4]),
        ([("p", "==", "b")], [2, 4]),
        ([("p", "==", "b"), ("x", "<", 3)], [2]),
        ([("y", "==", "u")], [3, 4]),
        ([("y", "!=", "u")], [1, 2]),
        ([("y", "==", None)], [1]),
        ([("y", "!=", None)], [3, 2, 4]),
        ([("y", "in", ["v", None])], [1, 2]),
        ([("d", ">=", dt.date(2020, 1, 2))], [1, 4]),
        ([("d", "==", "2020-01-04")], [4]),
        ([("d", "==", None)], [2]),
        ([("x", "in", [])], []),
        ([("p", "==", "z")], []),
    ],
)
@pytest.mark.parametrize("pushdown", [True, False])
def test_predicates(store, clauses, rows, pushdown):
    assert read(store, *clauses, columns=["x"], predicate_pushdown_to_io=pushdown)["x"].tolist() == rows
    assert read(store, *clauses)["x"].tolist() == rows


def test_conjunctions_are_alternatives(store):
    assert read_table(UUID, store, predicates=[[("x", "==", 1)], [("p", "==", "b"), ("y", "==", "u")]])["x"].tolist() == [1, 4]


def test_an_empty_result_has_the_types_of_the_dataset(store):
    empty = read(store, ("p", "==", "z"))
    assert empty.dtypes.to_dict() == read(store, ("p", "==", "a"), ("x", "<", 0)).dtypes.to_dict()
    assert str(empty["x"].dtype) == "int64"


def test_types_are_those_of_the_dataset_whatever_files_match():
    store = MemoryStore()
    write(store, {"x": pa.array([1], pa.int8()), "y": pa.nulls(1)}, label="a")
    write(store, {"x": pa.array([300], pa.int16()), "y": ["t"]}, label="b")
    for clauses in ([], [("x", "==", 1)], [("x", "==", 300)], [("x", "==", 0)]):
        table = read_table_arrow(UUID, store, predicates=[clauses] if clauses else None)
        assert table.schema == pa.schema([("x", pa.int16()), ("y", pa.string())])


def test_dates(store):
    assert read(store)["d"].dtype.kind == "M"
    assert read(store, dates_as_object=True)["d"].tolist() == [dt.date(2020, 1, 1), dt.date(2020, 1, 2), None, dt.date(2020, 1, 4)]


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
    store.put(key, memoryview(ParquetSerializer().encode(pa.table({"n": [7]}))))
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
        ({"columns": ["x", "z"]}, InvalidInput, "cannot be found: z in dataset 'uuid'"),
        ({"columns": ["x", "x"]}, InvalidInput, "asked for twice"),
        ({"columns": "x"}, InvalidType, "columns"),
        ({"columns": {"other": ["x"]}}, InvalidInput, "'table'"),
        ({"categoricals": ["z"]}, InvalidInput, "'z'"),
        ({"categoricals": ["y"], "columns": ["x"]}, InvalidInput, "'y'"),
        ({"categoricals": "y"}, InvalidType, "categoricals"),
        ({"table": "other"}, KeyNotFound, "no table 'other', only"),
        ({"table": 1}, InvalidType, "`table`"),
        ({"predicates": []}, InvalidInput, "Empty predicates"),
        ({"predicates": [("x", "==", 1)]}, InvalidInput, "list of 3-tuples"),
        ({"predicates": [[("z", "==", 1)]]}, InvalidInput, "'uuid' does not have: z"),
        ({"predicates": [[("x", "==", "1")]]}, InvalidType, "column 'x'"),
        ({"predicates": [[("p", "==", 1)]]}, InvalidType, "column 'p'"),
        ({"predicates": [[("x", "like", 1)]]}, Unsupported, "'like'"),
        ({"factory": object()}, InvalidInput, "dataset_uuid"),
    ],
    ids=range(16),
)
def test_arguments_that_do_not_fit(store, arguments, error, text):
    counting = CountingStore(store)
    with pytest.raises(error, match=text):
        read_table(UUID, counting, **arguments)
    assert counting.keys("ranges") == [], "bad input is refused before files are read"


def test_what_is_missing_is_named(store):
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


def test_stores_in_every_form(tmp_path):
    from kartothek_cube.core.stores import open_store

    write(open_store(f"hfs://{tmp_path}"), {"x": [1]})
    for form in (f"hfs://{tmp_path}", tmp_path, lambda: open_store(f"hfs://{tmp_path}")):
        assert read_table(UUID, form)["x"].tolist() == [1]

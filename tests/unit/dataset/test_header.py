"""`create_empty_dataset_header`: datasets that have a schema and no rows yet."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa
import pytest

from kartothek_cube.core.dataset.read import read_table
from kartothek_cube.core.dataset.write import (
    commit_dataset,
    create_empty_dataset_header,
    store_dataframes_as_dataset,
    update_dataset_from_dataframes,
    write_single_partition,
)
from kartothek_cube.core.kartothek.schema_wrapper import SchemaWrapper
from kartothek_cube.core.stores.contract import ReadOnlyView
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import AlreadyExists, InvalidInput, InvalidRequest, InvalidType, ReadOnlyStore, Unsupported
from tests.support.datasets import (
    UUID,
    Stream,
    document,
    index,
    keys,
    labels,
    refused,
    rows,
    schema,
    snapshot,
    user_metadata,
)

SCHEMA = pa.schema({"x": pa.int64(), "p": pa.string(), "a": pa.float64()})
FRAME = pd.DataFrame({"x": [1], "p": ["u"], "a": [0.5]})


@pytest.fixture
def store():
    return MemoryStore()


def header(store, given=SCHEMA, **arguments):
    return create_empty_dataset_header(store, UUID, {"table": given}, **arguments)


def test_a_header_of_an_existing_dataset_is_refused(store):  # E01
    header(store)
    for arguments in ({}, {"partition_on": "p"}):
        with refused(store, RuntimeError, AlreadyExists):
            header(store, **arguments)


def test_a_header_replaces_a_dataset_and_its_files_stay_out(store):  # E01
    store_dataframes_as_dataset(store, UUID, [FRAME], metadata={"owner": "me"}, secondary_indices="x")
    made = header(store, overwrite=True)
    assert (made.explicit_partitions, labels(store), user_metadata(store), made.indices) == (True, [], {}, {})
    assert len(keys(store, "table/")) == 2
    assert rows(store) == []


@pytest.mark.parametrize("storage_format", ["json", "msgpack"])
def test_files_that_a_failed_write_left_stay_out_of_a_new_dataset(store, storage_format):
    def failing():
        yield FRAME
        raise ConnectionError

    with pytest.raises(ConnectionError):
        store_dataframes_as_dataset(store, UUID, failing(), partition_on="p")
    assert len(keys(store, "table/")) == 1
    made = header(store, partition_on="p", metadata_storage_format=storage_format)
    assert (made.explicit_partitions, rows(store)) == (True, [])
    commit_dataset(store, UUID, [write_single_partition(store, UUID, FRAME)])
    assert len(rows(store)) == 1


def test_a_header_is_implicit_and_empty(store):  # E02
    made = header(store, partition_on="p", metadata={"owner": "me"})
    assert (made.explicit_partitions, dict(made.partitions), made.partition_keys, made.metadata["owner"]) == (
        False,
        {},
        ["p"],
        "me",
    )
    assert "partitions" not in document(store)
    assert keys(store) == [f"{UUID}.by-dataset-metadata.json", f"{UUID}/table/_common_metadata"]
    frame = read_table(UUID, store)
    assert (list(frame.columns), len(frame), [str(t) for t in frame.dtypes[["a", "x"]]]) == (
        ["p", "a", "x"],
        0,
        ["float64", "int64"],
    )


@pytest.mark.parametrize(
    "given",
    [
        SCHEMA,  # E03
        FRAME,
        FRAME.iloc[:0].astype({"p": "string"}),
        pa.Table.from_pandas(FRAME),
        pa.Table.from_pandas(FRAME).schema,
        pa.Table.from_pandas(FRAME.iloc[[0, 0]].iloc[1:]).schema,
        SchemaWrapper(SCHEMA, "here"),
        Stream(pa.Table.from_pandas(FRAME)),
        pa.schema([f.with_type(pa.dictionary(pa.int8(), f.type)) if f.name == "p" else f for f in SCHEMA]),
        pa.schema([f.with_type(pa.large_string()) if f.name == "p" else f for f in SCHEMA]),
    ],
)
def test_a_schema_comes_from_a_schema_or_from_rows(store, given):
    header(store, given, partition_on="p")
    assert (list(schema(store)), schema(store)) == (["p", "a", "x"], {"p": "string", "a": "double", "x": "int64"})
    update_dataset_from_dataframes([FRAME], store, UUID)
    assert rows(store) == [("u", 0.5, 1)]


def test_all_rows_tell_the_types(store):
    header(store, pd.DataFrame({"x": pd.Series([None, "a"], dtype=object), "y": pd.Series([None, None], dtype=object)}))
    assert schema(store) == {"x": "string", "y": "null"}


def test_a_column_may_have_the_name_of_a_method(store):
    header(store, pd.DataFrame({"internal": [1], 5: [2]}))
    assert schema(store) == {"5": "int64", "internal": "int64"}


@pytest.mark.parametrize("given", [pa.int8(), pa.int64()])
@pytest.mark.parametrize("later", ["int8", "int16", "int64"])
def test_rows_of_every_width_of_the_family_can_follow(store, given, later):  # E04
    header(store, pa.schema({"x": given}))
    update_dataset_from_dataframes([pd.DataFrame({"x": pd.array([1], later)})], store, UUID)
    assert rows(store) == [(1,)]


def test_a_header_has_several_tables(store):
    create_empty_dataset_header(store, UUID, {"a": SCHEMA, "b": pa.schema({"p": pa.string(), "z": pa.bool_()})}, "p")
    assert (schema(store, "a"), schema(store, "b")) == (
        {"p": "string", "a": "double", "x": "int64"},
        {"p": "string", "z": "bool"},
    )


def test_a_header_with_an_index_lists_its_partitions(store):
    made = header(store, partition_on="p", secondary_indices="x")
    assert (made.explicit_partitions, index(store, "x")) == (True, {})
    commit_dataset(store, UUID, [write_single_partition(store, UUID, FRAME)])
    assert list(index(store, "x")) == [1]


@pytest.mark.parametrize("storage_format", ["json", "msgpack"])
def test_a_header_has_an_encoding(store, storage_format):
    header(store, metadata_storage_format=storage_format)
    update_dataset_from_dataframes([FRAME], store, UUID)
    assert [key.endswith((storage_format, f"{storage_format}.zstd")) for key in keys(store, "by-dataset-metadata")] == [
        True
    ]


def test_a_header_gives_way_to_nothing_of_another_encoding(store):
    header(store, metadata_storage_format="msgpack")
    with refused(store, ValueError, InvalidInput, "keeps its encoding"):
        header(store, overwrite=True)


@pytest.mark.parametrize(
    ("arguments", "builtin", "error"),
    [
        ({"given": None}, ValueError, InvalidInput),
        ({"given": {"x": "int64"}}, ValueError, InvalidInput),
        ({"given": pa.schema([("x", pa.int8()), ("x", pa.int8())])}, ValueError, InvalidInput),
        ({"given": pa.schema({"x": pa.month_day_nano_interval()})}, NotImplementedError, Unsupported),
        ({"partition_on": "z"}, ValueError, InvalidInput),
        ({"partition_on": ["p", "x", "a"]}, ValueError, InvalidInput),
        ({"partition_on": {"p"}}, ValueError, InvalidInput),
        ({"partition_on": 1}, TypeError, InvalidType),
        (
            {"given": pa.schema({"p": pa.list_(pa.int8()), "x": pa.int8()}), "partition_on": "p"},
            NotImplementedError,
            Unsupported,
        ),
        (
            {"given": pa.schema({"p": pa.timestamp("us", "UTC"), "x": pa.int8()}), "partition_on": "p"},
            NotImplementedError,
            Unsupported,
        ),
        ({"secondary_indices": "z"}, ValueError, InvalidInput),
        ({"secondary_indices": "p", "partition_on": "p"}, RuntimeError, InvalidRequest),
        ({"given": pa.schema({"x": pa.null()}), "secondary_indices": "x"}, NotImplementedError, Unsupported),
        ({"metadata": {"x": object()}}, TypeError, InvalidType),
        ({"metadata_storage_format": "yaml"}, ValueError, InvalidInput),
        ({"metadata_version": 5}, NotImplementedError, Unsupported),
    ],
)
def test_what_cannot_be_a_header_is_refused(store, arguments, builtin, error):
    with refused(store, builtin, error):
        header(store, **arguments)


@pytest.mark.parametrize("table_meta", [None, {}, FRAME, SCHEMA, [("table", SCHEMA)], "table"])
def test_schemas_are_given_by_table(store, table_meta):
    with refused(store, TypeError, InvalidType, "table_meta"):
        create_empty_dataset_header(store, UUID, table_meta)


@pytest.mark.parametrize("table", ["indices", "", "_x", "a/b", 5, None])
def test_a_table_has_a_name(store, table):
    with refused(store, ValueError, InvalidInput):
        create_empty_dataset_header(store, UUID, {table: SCHEMA})


def test_a_column_has_one_type_in_all_tables(store):
    with refused(store, ValueError, InvalidInput, "incompatible entries"):
        create_empty_dataset_header(store, UUID, {"a": SCHEMA, "b": pa.schema({"x": pa.string()})})


@pytest.mark.parametrize(("uuid", "builtin"), [("a b", ValueError), ("a\n", ValueError), (None, TypeError)])  # B01 B02
def test_a_header_has_a_legal_name(store, uuid, builtin):
    with refused(store, builtin):
        create_empty_dataset_header(store, uuid, {"table": SCHEMA})


def test_a_header_needs_a_store_that_can_be_written(store):
    with refused(store, OSError, ReadOnlyStore):
        create_empty_dataset_header(ReadOnlyView(store), UUID, {"table": SCHEMA})


def test_the_given_schemas_stay_as_they_are(store):
    given = {"table": FRAME}
    create_empty_dataset_header(store, UUID, given)
    assert list(given) == ["table"]
    assert given["table"] is FRAME


def test_the_returned_dataset_is_the_one_that_was_committed(store):
    assert header(store).snapshot.document == snapshot(store).document

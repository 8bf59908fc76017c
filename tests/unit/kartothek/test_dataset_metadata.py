"""Every member of `DatasetMetadata`, on our datasets and on documents as kartothek writes them."""

from __future__ import annotations

import copy
import datetime as dt
import json
import pickle

import pandas as pd
import pyarrow as pa
import pytest

from kartothek_cube.core.kartothek.dataset_metadata import DatasetMetadata, DatasetMetadataBase, Partition
from kartothek_cube.core.kartothek.indices import ExplicitSecondaryIndex, PartitionIndex
from kartothek_cube.core.kartothek.schema_wrapper import SchemaWrapper
from kartothek_cube.core.metadata.naming import document_key, schema_key
from kartothek_cube.core.metadata.snapshot import common_metadata_bytes
from kartothek_cube.core.snapshots.loader import load_snapshot
from kartothek_cube.core.stores.open import open_store
from kartothek_cube.errors import (
    CorruptDocument,
    DatasetNotFound,
    InvalidInput,
    InvalidRequest,
    InvalidType,
    KeyNotFound,
    UnknownColumn,
    Unsupported,
)
from tests.support.commits import UUID, write

ROWS = {"p": [1, 1, 2], "i1": [10, 11, 10], "v1": [0.5, 1.5, 2.5]}
DATES = [dt.date(2024, 1, 31), dt.date(2024, 2, 29)]
SCHEMA = pa.schema({"p": pa.int64(), "i1": pa.int64(), "v1": pa.float64()})


@pytest.fixture
def store():
    return open_store("hmemory://")


@pytest.fixture
def dataset(store):
    write(store, ROWS, on=["p"], index=["i1"], label="f")
    return DatasetMetadata.load_from_store(UUID, store)


def document(**members):
    return {"dataset_metadata_version": 4, "dataset_uuid": UUID, **members}


def put_document(store, schema=SCHEMA, **members):
    """A document as kartothek writes it, with a schema file."""
    store.put(document_key(UUID), json.dumps(document(**members)).encode())
    if schema is not None:
        store.put(schema_key(UUID), common_metadata_bytes(schema))


def partitions(*labels):
    return {label: {"files": {"table": f"{UUID}/table/{label}.parquet"}} for label in labels}


# --- members --------------------------------------------------------------------------------------


def test_a_dataset_says_what_it_is(dataset):
    assert isinstance(dataset, DatasetMetadataBase)
    assert (dataset.uuid, dataset.metadata_version, dataset.partition_keys, dataset.explicit_partitions) == (
        UUID,
        4,
        ["p"],
        True,
    )
    assert (dataset.tables, dataset.schema.names, dataset.index_columns) == (["table"], ["p", "i1", "v1"], {"p", "i1"})
    assert dataset.table_meta == {"table": dataset.schema}
    assert repr(dataset) == "DatasetMetadata(uuid='uuid', partitions=2, partition_keys=['p'])"


def test_partitions_have_label_and_files(dataset):
    assert list(dataset.partitions) == ["p=1/f", "p=2/f"]
    first = dataset.partitions["p=1/f"]
    assert (
        first
        == Partition("p=1/f", {"table": "uuid/table/p=1/f.parquet"})
        == Partition.from_dict("p=1/f", first.to_dict())
    )
    assert first["files"] == first.files == {"table": "uuid/table/p=1/f.parquet"}


def test_partitions_are_made_when_they_are_asked_for_and_once(dataset):
    assert dataset._partitions is None
    assert dataset.partitions["p=1/f"] is dataset.partitions["p=1/f"]


def test_who_changes_what_was_returned_changes_a_copy(store):
    """Snapshots are kept for the next reader."""
    given = {"owner": {"teams": ["a"]}}
    made = DatasetMetadata(UUID, metadata=given)
    given["owner"]["teams"].append("b")
    assert made.metadata["owner"] == {"teams": ["a"]}
    put_document(store, metadata={"owner": {"teams": ["a"]}}, partitions={})
    loaded = DatasetMetadata.load_from_store(UUID, store)
    for metadata in (loaded.metadata, loaded.to_dict()["metadata"], loaded.copy().metadata):
        metadata["owner"]["teams"].append("b")
    assert DatasetMetadata.load_from_store(UUID, store).metadata["owner"] == {"teams": ["a"]}


def test_a_document_does_not_have_what_was_written_into_the_dict_of_an_index():
    dataset = DatasetMetadata(UUID, partitions("a"), indices={"x": {1: ["a"]}})
    dataset.indices["x"].index_dct[1].append("b")
    dataset.indices["x"].to_dict()[2] = ["c"]
    assert dataset.to_dict()["indices"] == {"x": {1: ["a"]}}
    assert dataset.copy().indices["x"].copy(column="x") == DatasetMetadata(UUID, indices={"x": {1: ["a"]}}).indices["x"]


def test_one_partition_key_needs_no_list():
    assert DatasetMetadata(UUID, partition_keys="country").partition_keys == ["country"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"metadata": "x"}, "metadata of dataset 'uuid' should be a dict, but is str"),
        ({"metadata": ["x"]}, "metadata of dataset 'uuid' should be a dict"),
        ({"indices": ["x"]}, "indices of dataset 'uuid' should be a dict"),
        ({"indices": {"x": 5}}, "The index on 'x' of dataset 'uuid' should be an index, a key or a dict, but is int"),
        ({"table_meta": SCHEMA}, "table_meta of dataset 'uuid' should be a dict"),
        ({"partitions": {5: {"files": {}}}}, "labels of the partitions of dataset 'uuid' are text, but there is 5"),
    ],
)
def test_arguments_of_another_type_are_refused(arguments, words):
    with pytest.raises(InvalidType, match=words):
        DatasetMetadata(UUID, **arguments)


@pytest.mark.parametrize("wrong", [None, {}, {"files": None}, "files"])
def test_a_partition_without_files_is_refused(wrong):
    with pytest.raises(InvalidInput, match="Partition 'a' should be"):
        Partition.from_dict("a", wrong)


def test_metadata_hide_what_the_library_keeps_for_itself(dataset):
    assert list(dataset.metadata) == ["creation_time"]
    assert {"kartothek_cube.commits", "kartothek_cube.schema"} < set(dataset.to_dict()["metadata"])


def test_what_a_dataset_returns_may_be_changed_without_changing_it(dataset):
    for member in (dataset.metadata, dataset.partition_keys, dataset.indices, dataset.table_meta):
        member.clear()
    assert (len(dataset.metadata), dataset.partition_keys, len(dataset.indices), len(dataset.table_meta)) == (
        1,
        ["p"],
        1,
        1,
    )


def test_partitions_cannot_be_changed(dataset):
    with pytest.raises(TypeError):
        dataset.partitions["p=1/f"] = Partition("p=1/f")


def test_secondary_indices_are_there_but_not_loaded(dataset):
    (index,) = dataset.indices.values()
    assert isinstance(index, ExplicitSecondaryIndex)
    assert dataset.secondary_indices == {"i1": index}
    assert (index.loaded, index.dtype, index.index_storage_key.startswith("uuid/indices/i1/")) == (
        False,
        pa.int64(),
        True,
    )
    assert not dataset.primary_indices_loaded


def test_narrow_columns_are_as_wide_as_their_family_in_the_schema(store):
    write(store, pa.table({"i1": pa.array([1], pa.int8())}))
    assert DatasetMetadata.load_from_store(UUID, store).schema.field("i1").type == pa.int64()


@pytest.mark.parametrize(("tables", "found"), [((), "\\[\\]"), (("facts", "names"), "facts.*names")])
def test_the_schema_is_that_of_the_only_table(tables, found):  # F37, I10
    dataset = DatasetMetadata(UUID, table_meta=dict.fromkeys(tables, SCHEMA))
    with pytest.raises(
        AttributeError, match=f"Attribute schema can only be accessed for a single tabled dataset.*{found}"
    ):
        _ = dataset.schema


def test_the_snapshot_is_the_one_that_was_read(store, dataset):
    assert dataset.snapshot is load_snapshot(store, UUID)
    assert DatasetMetadata.of(dataset.snapshot) == dataset


# --- the constructor ------------------------------------------------------------------------------


def test_a_dataset_can_be_made_of_nothing():
    dataset = DatasetMetadata("a")
    assert (dataset.partitions, dataset.indices, dataset.partition_keys, dataset.tables, dataset.table_meta) == (
        {},
        {},
        [],
        [],
        {},
    )
    assert dataset.to_dict() == {
        "dataset_metadata_version": 4,
        "dataset_uuid": "a",
        "metadata": {"creation_time": dataset.metadata["creation_time"]},
        "partitions": {},
        "partition_keys": [],
    }
    assert dt.datetime.fromisoformat(dataset.metadata["creation_time"]).tzinfo is None


@pytest.mark.parametrize("uuid", ["", "a.b", "a b", "ä", "a\n"])
def test_a_wrong_uuid_is_refused(uuid):
    with pytest.raises(InvalidInput, match="UUID contains illegal character"):
        DatasetMetadata(uuid)


def test_another_version_is_refused():
    with pytest.raises(Unsupported, match="only 4"):
        DatasetMetadata("a", metadata_version=3)


@pytest.mark.parametrize("wrong", [{"a": "uuid/table/a.parquet"}, {"a": {}}])
def test_partitions_without_files_are_refused(wrong):
    with pytest.raises(CorruptDocument, match="names no files"):
        DatasetMetadata("a", wrong)


def test_partitions_that_are_no_map_are_refused():
    with pytest.raises(InvalidType, match="label → Partition"):
        DatasetMetadata("a", [Partition("a")])


def test_the_given_creation_time_is_kept():
    assert DatasetMetadata("a", metadata={"creation_time": "then", "owner": "me"}).metadata == {
        "creation_time": "then",
        "owner": "me",
    }


def test_a_dataset_made_by_hand_works_like_one_that_was_read():
    labels = ["p=1/f", "p=2/f"]
    index = ExplicitSecondaryIndex("i1", {10: labels, 11: labels[:1]})
    made = DatasetMetadata(
        UUID,
        {label: Partition(label, {"table": f"uuid/table/{label}.parquet"}) for label in labels},
        None,
        {"i1": index},
        partition_keys=["p"],
        table_meta={"table": SCHEMA},
    )
    assert made.query(i1=10, p=2) == ["p=2/f"]
    assert made.snapshot.values.to_pydict() == {"p": [1, 2]}
    assert set(made.snapshot.indices) == {"i1"}


def test_the_snapshot_of_a_dataset_made_by_hand_is_not_taken_for_the_stored_one(store, dataset):
    made = DatasetMetadata.from_dict({**dataset.to_dict(), "table_meta": dataset.table_meta}).copy(partitions={})
    assert made.load_all_indices(store).indices["i1"].loaded
    assert len(load_snapshot(store, UUID).partitions) == 2


# --- equality, copies, pickles --------------------------------------------------------------------


@pytest.mark.parametrize(
    "other",
    [
        {"uuid": "b"},
        {"partitions": {}},
        {"metadata": {"owner": "me"}},
        {"indices": {}},
        {"explicit_partitions": False},
        {"partition_keys": []},
        {"table_meta": {}},
    ],
)
def test_a_copy_is_equal_unless_an_argument_says_otherwise(dataset, other):
    assert dataset.copy() == dataset
    assert dataset.copy(**other) != dataset


def test_the_order_of_partitions_makes_no_difference():
    assert DatasetMetadata("a", partitions("a", "b"), {"creation_time": ""}) == DatasetMetadata(
        "a", partitions("b", "a"), {"creation_time": ""}
    )
    assert DatasetMetadata("a", partitions("a", "b"), {"creation_time": ""}) != DatasetMetadata(
        "a", partitions("a", "c"), {"creation_time": ""}
    )


def test_loading_an_index_makes_a_difference(store, dataset):
    assert dataset.load_index("i1", store) != dataset
    assert dataset.load_index("i1", store) == dataset.load_index("i1", store)


def test_a_dataset_equals_nothing_else(dataset):
    assert dataset != dataset.to_dict()


@pytest.mark.parametrize("copied", [lambda d: pickle.loads(pickle.dumps(d)), copy.copy, copy.deepcopy])
def test_a_dataset_travels(store, dataset, copied):
    for original in (dataset, dataset.load_all_indices(store)):
        assert copied(original) == original
    assert copied(dataset).load_index("i1", store).query(i1=11) == ["p=1/f"]


def test_a_copy_has_no_arguments_of_its_own(dataset):
    with pytest.raises(TypeError, match="unexpected keyword"):
        dataset.copy(partition=[])


# --- existence and keys ---------------------------------------------------------------------------


@pytest.mark.parametrize("msgpack", [False, True])
def test_a_dataset_exists_if_either_document_does(store, msgpack):
    assert not DatasetMetadata.exists(UUID, store)
    store.put(document_key(UUID, msgpack=msgpack), b"not even parsed")
    assert DatasetMetadata.exists(UUID, store)
    assert DatasetMetadata.exists(UUID, lambda: store)


def test_the_keys_of_a_dataset_are_its_own(store, dataset):
    for key in (
        "uuid_ext.by-dataset-metadata.json",
        "uuid_ext/table/a.parquet",
        "uuid.i1.by-dataset-index.parquet",
        "uuid/table/garbage.parquet",
    ):
        store.put(key, b"")
    keys = DatasetMetadata.storage_keys(UUID, store)
    assert keys == sorted(keys)
    assert set(keys) == {k for k in store.list("", recursive=True).keys if not k.startswith("uuid_ext")}


@pytest.mark.parametrize("function", [DatasetMetadata.exists, DatasetMetadata.storage_keys])
def test_keys_of_a_wrong_uuid_are_refused(store, function):
    with pytest.raises(InvalidInput, match="UUID"):
        function("a/b", store)


@pytest.mark.parametrize("load_schema", [True, False])
def test_a_missing_dataset_is_named_by_both_keys(store, load_schema):
    with pytest.raises(
        DatasetNotFound,
        match=r"Dataset does not exist. Tried uuid.by-dataset-metadata.json and uuid.by-dataset-metadata.msgpack.zstd",
    ):
        DatasetMetadata.load_from_store(UUID, store, load_schema=load_schema)


# --- loading --------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["json", "msgpack"])
def test_either_document_is_read(store, encoding):
    original = DatasetMetadata(
        UUID, partitions("p=1/a"), {"owner": "me"}, {"i1": "uuid/indices/i1.parquet"}, partition_keys=["p"]
    )
    store.put(
        document_key(UUID, msgpack=encoding == "msgpack"),
        original.to_json() if encoding == "json" else original.to_msgpack(),
    )
    assert DatasetMetadata.load_from_store(UUID, store, load_schema=False) == original


def test_the_json_document_goes_first(store):
    store.put(document_key(UUID, msgpack=True), DatasetMetadata(UUID, metadata={"from": "msgpack"}).to_msgpack())
    store.put(document_key(UUID), DatasetMetadata(UUID, metadata={"from": "json"}).to_json())
    assert DatasetMetadata.load_from_store(UUID, store).metadata["from"] == "json"


@pytest.mark.parametrize("schema_file", [None, b"no schema"])
def test_without_schema_the_schema_file_is_not_read(store, schema_file):
    put_document(store, None, partitions=partitions("p=1/a"), partition_keys=["p"])
    if schema_file is not None:
        store.put(schema_key(UUID), schema_file)
    with pytest.raises((KeyNotFound, CorruptDocument), match=schema_key(UUID)):
        DatasetMetadata.load_from_store(UUID, store)
    dataset = DatasetMetadata.load_from_store(UUID, store, load_schema=False)
    assert (dataset.table_meta, dataset.tables, list(dataset.partitions), dataset.partition_keys) == (
        {},
        ["table"],
        ["p=1/a"],
        ["p"],
    )
    assert DatasetMetadata.load_from_dict(document(partitions={}), store, load_schema=False).table_meta == {}


@pytest.mark.parametrize("load_schema", [True, False])
def test_an_implicit_dataset_has_the_partitions_that_are_there(store, load_schema):
    put_document(store, partition_keys=["p"], indices={"i1": "uuid/indices/i1/a.by-dataset-index.parquet"})
    for key in ("uuid/table/p=1/a.parquet", "uuid/table/p=2/b.parquet", "uuid/indices/i1/a.by-dataset-index.parquet"):
        store.put(key, b"")
    dataset = DatasetMetadata.load_from_store(UUID, store, load_schema=load_schema)
    assert (list(dataset.partitions), dataset.explicit_partitions) == (["p=1/a", "p=2/b"], False)
    assert list(dataset.to_dict()["partitions"]) == ["p=1/a", "p=2/b"]


@pytest.mark.parametrize("load_schema", [True, False])
def test_partition_keys_that_the_document_lacks_are_taken_from_the_paths(store, load_schema):
    put_document(store, partitions=partitions("p=1/a"))
    assert DatasetMetadata.load_from_store(UUID, store, load_schema=load_schema).partition_keys == ["p"]


def test_a_creation_time_is_invented_for_a_document_without(store):  # I20
    put_document(store, partitions={})
    dataset = DatasetMetadata.load_from_store(UUID, store)
    assert dt.datetime.fromisoformat(dataset.metadata["creation_time"]).year >= 2024
    assert dataset.metadata == dataset.metadata


def test_from_dict_does_not_look_into_the_store_and_load_from_dict_does(store):  # I09
    put_document(store)
    store.put("uuid/table/p=1/a.parquet", b"")
    given = document(partition_keys=["p"])
    assert (DatasetMetadata.from_dict(given).partitions, DatasetMetadata.from_dict(given).table_meta) == ({}, {})
    loaded = DatasetMetadata.load_from_dict(given, store)
    assert (list(loaded.partitions), loaded.schema) == (["p=1/a"], SCHEMA)
    assert given == document(partition_keys=["p"])


@pytest.mark.parametrize("explicit", [True, False])
def test_from_dict_takes_the_word_of_its_caller_for_explicit(explicit):
    dataset = DatasetMetadata.from_dict(document(), explicit_partitions=explicit)
    assert (dataset.explicit_partitions, "partitions" in dataset.to_dict()) == (explicit, explicit)


def test_from_dict_takes_schemas_from_the_member_table_meta():
    dataset = DatasetMetadata.from_dict(document(table_meta={"table": SCHEMA}))
    assert (dataset.tables, dataset.schema) == (["table"], SCHEMA)


@pytest.mark.parametrize(
    "wrong", [5, {"dataset_uuid": "a"}, {"dataset_metadata_version": 4}, document(indices=[]), document(partitions=[])]
)
def test_what_is_no_document_is_refused(wrong):
    with pytest.raises(CorruptDocument):
        DatasetMetadata.from_dict(wrong)


@pytest.mark.parametrize("version", [3, 5])
def test_documents_of_other_versions_are_refused(version):
    with pytest.raises(Unsupported, match=str(version)):
        DatasetMetadata.from_dict({"dataset_metadata_version": version, "dataset_uuid": "a"})


@pytest.mark.parametrize("encoding", ["json", "msgpack", "msgpack.zstd"])
def test_buffers_are_the_reverse_of_what_is_written(store, dataset, encoding):
    data = dataset.to_json() if encoding == "json" else dataset.to_msgpack()
    assert DatasetMetadata.from_buffer(data, encoding).to_dict() == dataset.to_dict()
    assert DatasetMetadata.load_from_buffer(data, store, encoding) == dataset


@pytest.mark.parametrize(
    "function", [DatasetMetadata.from_buffer, lambda b, f: DatasetMetadata.load_from_buffer(b, "hmemory://", f)]
)
def test_an_unknown_encoding_is_refused(function):
    with pytest.raises(InvalidInput, match="'json' and 'msgpack'"):
        function(b"{}", "xml")


# --- loading indices ------------------------------------------------------------------------------


def test_loading_an_index_gives_another_object(store, dataset):  # I01
    loaded = dataset.load_index("i1", store)
    assert (dataset.indices["i1"].loaded, loaded.indices["i1"].loaded) == (False, True)
    assert loaded.indices["i1"].index_storage_key == dataset.indices["i1"].index_storage_key
    assert set(loaded.indices["i1"].query(10)) == {"p=1/f", "p=2/f"}
    assert loaded.load_index("i1", store) is loaded


def test_the_index_of_a_partition_key_brings_those_of_all(store):
    write(store, {**ROWS, "q": ["a", "b", "a"]}, on=["p", "q"], label="f")
    loaded = DatasetMetadata.load_from_store(UUID, store).load_index("q", store)
    assert {c: type(i) for c, i in loaded.indices.items()} == {"p": PartitionIndex, "q": PartitionIndex}
    assert loaded.primary_indices_loaded
    assert loaded.load_index("p", store) is loaded


def test_an_index_on_another_column_is_refused(store, dataset):
    with pytest.raises(UnknownColumn, match="No index specified for column 'v1'") as error:
        dataset.load_index("v1", store)
    assert isinstance(error.value, KeyError)


@pytest.mark.parametrize(("with_keys", "expected"), [(True, {"i1", "p"}), (False, {"i1"})])
def test_all_indices_are_loaded_at_once(store, dataset, with_keys, expected):  # I01
    loaded = dataset.load_all_indices(store, load_partition_indices=with_keys)
    assert {c for c, i in loaded.indices.items() if i.loaded} == expected
    assert set(loaded.secondary_indices) == {"i1"}
    assert DatasetMetadata.load_from_store(UUID, store, load_all_indices=True) == dataset.load_all_indices(store)


def test_indices_are_loaded_without_a_schema_too(store, dataset):
    bare = DatasetMetadata.load_from_store(UUID, store, load_schema=False, load_all_indices=True)
    assert {c: i.loaded for c, i in bare.indices.items()} == {"i1": True}
    assert bare.query(i1=11) == ["p=1/f"]


def test_partition_indices_have_the_types_of_the_schema(dataset):
    index = dataset.load_partition_indices().indices["p"]
    assert (index.dtype, index.to_dict()) == (pa.int64(), {1: ["p=1/f"], 2: ["p=2/f"]})


def test_a_dataset_without_partitions_has_empty_partition_indices(store):
    put_document(store, partitions={}, partition_keys=["p"])
    index = DatasetMetadata.load_from_store(UUID, store).load_partition_indices().indices["p"]
    assert (index.loaded, index.dtype, index.to_dict()) == (True, pa.int64(), {})


def test_without_partition_keys_there_is_nothing_to_load():
    dataset = DatasetMetadata(UUID)
    assert dataset.load_partition_indices() is dataset
    assert not dataset.primary_indices_loaded


@pytest.mark.parametrize(
    "ask",
    [
        DatasetMetadata.load_partition_indices,
        lambda d: d.query(p=1),
        lambda d: d.get_indices_as_dataframe(),
        lambda d: d.snapshot,
    ],
)
def test_partition_values_need_a_schema(store, dataset, ask):
    with pytest.raises(
        InvalidRequest, match=r'Cannot find type information for partition column "p".*load_schema=True'
    ) as error:
        ask(DatasetMetadata.load_from_store(UUID, store, load_schema=False))
    assert isinstance(error.value, ValueError)


def test_files_beside_their_partition_are_refused():
    dataset = DatasetMetadata(UUID, partitions("p=1/a", "b"), partition_keys=["p"], table_meta={"table": SCHEMA})
    with pytest.raises(InvalidRequest, match="Unknown file structure encountered") as error:
        dataset.load_partition_indices()
    assert isinstance(error.value, RuntimeError)


def test_a_partition_without_file_is_in_no_partition_index():
    dataset = DatasetMetadata(
        UUID, {**partitions("p=1/a"), "b": {"files": {}}}, partition_keys=["p"], table_meta={"table": SCHEMA}
    )
    assert dataset.load_partition_indices().indices["p"].to_dict() == {1: ["p=1/a"]}


@pytest.mark.parametrize("load", [lambda d, s: d.load_index("i1", s), lambda d, s: d.load_all_indices(s)])
def test_an_index_of_an_implicit_dataset_names_existing_partitions_only(store, load):
    key = ExplicitSecondaryIndex("i1", {10: ["p=1/a", "p=1/gone"], 11: ["p=1/gone"]}).store(store, UUID)
    put_document(store, partition_keys=["p"], indices={"i1": key})
    store.put("uuid/table/p=1/a.parquet", b"")
    assert load(DatasetMetadata.load_from_store(UUID, store), store).indices["i1"].to_dict() == {10: ["p=1/a"]}


@pytest.mark.parametrize("schema", [SCHEMA, None])
def test_an_index_inside_the_document_is_loaded(store, schema):
    put_document(
        store,
        schema,
        partitions=partitions("p=1/a", "p=2/b"),
        indices={"i1": {"10": ["p=1/a"], "11": ["p=1/a", "p=2/b"]}},
    )
    dataset = DatasetMetadata.load_from_store(UUID, store, load_schema=schema is not None)
    assert (dataset.indices["i1"].loaded, dataset.indices["i1"].dtype) == (True, pa.int64() if schema else pa.string())
    assert dataset.query(i1="10") == ["p=1/a"]


# --- questions ------------------------------------------------------------------------------------


def test_a_query_without_values_gives_all_labels(dataset):
    assert dataset.query() == ["p=1/f", "p=2/f"]


def test_a_query_uses_partition_keys_although_their_indices_are_not_loaded(dataset):  # I02
    assert dataset.query(p=2) == ["p=2/f"]
    assert not dataset.primary_indices_loaded


def test_a_query_needs_its_secondary_indices(store, dataset):  # I03
    with pytest.raises(InvalidRequest, match="load_all_indices") as error:
        dataset.query(i1=10)
    assert isinstance(error.value, ValueError)
    assert dataset.load_all_indices(store).query(i1=10, p=2) == ["p=2/f"]
    assert dataset.load_all_indices(store).query(i1=11, p=2) == []


@pytest.mark.parametrize("given", [lambda i: [i], lambda i: {"i1": i}])
def test_a_query_prefers_the_indices_that_it_is_given(store, dataset, given):
    index = given(ExplicitSecondaryIndex("i1", {11: ["p=2/f", "unknown"]}))
    assert dataset.query(index, i1=11) == dataset.load_all_indices(store).query(index, i1=11) == ["p=2/f"]


def test_a_query_on_a_column_without_index_is_refused(dataset):  # I02
    with pytest.raises(UnknownColumn, match="v1"):
        dataset.query(v1=0.5)


def test_the_frame_of_indices_has_one_row_for_each_combination(store, dataset):
    frame = dataset.load_all_indices(store).get_indices_as_dataframe()
    expected = pd.DataFrame(
        {"i1": [10, 11, 10], "p": [1, 1, 2]}, index=pd.Index(["p=1/f", "p=1/f", "p=2/f"], name="partition")
    )
    pd.testing.assert_frame_equal(frame.sort_values(["p", "i1"]), expected, check_index_type=False)


def test_the_frame_has_the_columns_that_are_asked_for(store, dataset):
    loaded = dataset.load_all_indices(store)
    assert list(loaded.get_indices_as_dataframe(["p", "i1"]).columns) == ["p", "i1"]
    assert dataset.get_indices_as_dataframe(["p"])["p"].to_list() == [1, 2]
    assert loaded.get_indices_as_dataframe(["p"], predicates=[[("i1", "==", 11)]])["p"].to_list() == [1]


def test_the_frame_without_columns_lists_all_labels(dataset):  # I05
    frame = dataset.get_indices_as_dataframe([])
    assert (list(frame.columns), list(frame.index), frame.index.name) == ([], ["p=1/f", "p=2/f"], None)


@pytest.mark.parametrize("arguments", [{}, {"columns": ["i1"]}, {"columns": ["p"], "predicates": [[("i1", "==", 10)]]}])
def test_the_frame_needs_its_secondary_indices(dataset, arguments):  # I04
    with pytest.raises(InvalidRequest, match=r"\['i1'\].*load_all_indices"):
        dataset.get_indices_as_dataframe(**arguments)


def test_the_frame_of_an_unknown_column_is_refused(dataset):
    with pytest.raises(InvalidInput, match="Unknown index columns: v1"):
        dataset.get_indices_as_dataframe(["v1"])


def test_dates_come_as_objects_by_default(store):
    write(store, {"p": [1, 2], "d": DATES}, on=["p"], index=["d"])
    dataset = DatasetMetadata.load_from_store(UUID, store, load_all_indices=True)
    assert sorted(dataset.get_indices_as_dataframe(["d"])["d"]) == DATES
    assert pd.api.types.is_datetime64_any_dtype(dataset.get_indices_as_dataframe(["d"], date_as_object=False)["d"])


# --- documents ------------------------------------------------------------------------------------


def test_the_document_is_shown_as_it_is_stored(store, dataset):
    stored = json.loads(store.get(document_key(UUID)))
    assert dataset.to_dict() == stored
    assert list(dataset.to_dict()) == list(stored)
    assert dataset.to_json() == store.get(document_key(UUID))


def test_loaded_indices_become_part_of_the_document(store, dataset):  # I07, I08
    loaded = dataset.load_all_indices(store)
    assert loaded.to_dict()["indices"] == {
        "i1": {10: ["p=1/f", "p=2/f"], 11: ["p=1/f"]},
        "p": {1: ["p=1/f"], 2: ["p=2/f"]},
    }
    assert json.loads(loaded.to_json())["indices"]["p"] == {"1": ["p=1/f"], "2": ["p=2/f"]}


@pytest.mark.parametrize("through", ["dict", "json", "msgpack"])
def test_embedded_indices_come_back_with_their_types(store, dataset, through):
    loaded = dataset.load_all_indices(store)
    if through == "dict":
        back = DatasetMetadata.load_from_dict(loaded.to_dict(), store)
    else:
        back = DatasetMetadata.load_from_buffer(
            loaded.to_json() if through == "json" else loaded.to_msgpack(), store, through
        )
    assert {c: (type(i), i.dtype, i.to_dict()) for c, i in back.indices.items()} == {
        c: (type(i), i.dtype, i.to_dict()) for c, i in loaded.indices.items()
    }
    assert back.load_all_indices(store).query(i1=11, p=1) == ["p=1/f"]


def test_booleans_are_named_as_in_json():  # I07
    dataset = DatasetMetadata(UUID, partitions("a"), indices={"i1": {True: ["a"]}})
    assert json.loads(dataset.to_json())["indices"] == {"i1": {"true": ["a"]}}


@pytest.mark.parametrize("written", [DatasetMetadata.to_json, DatasetMetadata.to_msgpack])
def test_an_index_that_json_cannot_have_is_refused_by_name(store, written):  # I07
    write(store, {"d": DATES}, index=["d"])
    with pytest.raises(InvalidType, match="index on 'd'"):
        written(DatasetMetadata.load_from_store(UUID, store, load_all_indices=True))


def test_a_schema_is_known_by_its_file(dataset):
    assert isinstance(dataset.schema, SchemaWrapper)
    assert dataset.schema.origin == {"uuid/table/_common_metadata"}


# --- what callers give ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "function",
    [DatasetMetadata.from_buffer, lambda text: DatasetMetadata.load_from_buffer(text, "hmemory://")],
    ids=["from", "load"],
)
def test_a_document_may_be_text(function):
    text = json.dumps(
        document(partitions={}, metadata={"creation_time": "2020-01-01", "city": "K\u00f6ln"}), ensure_ascii=False
    )
    assert function(text) == function(text.encode())
    assert function(text).metadata["city"] == "K\u00f6ln"
    with pytest.raises(CorruptDocument):
        function(text.replace("K\u00f6ln", "\ud800"))


def test_a_packed_document_is_no_text():
    with pytest.raises(InvalidType, match="bytes"):
        DatasetMetadata.from_buffer("{}", "msgpack")


def test_loaded_indices_need_no_store(store, dataset):
    loaded = dataset.load_all_indices(store)
    embedded = DatasetMetadata.from_dict(
        document(partitions=partitions("a"), indices={"i1": {"1": ["a"]}}, table_meta={"table": SCHEMA})
    )
    for ready in (loaded, embedded):
        assert ready.load_index("i1", None) is ready
        assert ready.load_all_indices(None).indices["i1"].loaded
    assert dataset.load_index("p", None).primary_indices_loaded
    for missing in (lambda: dataset.load_index("i1", None), lambda: dataset.load_all_indices(None)):
        with pytest.raises(InvalidType, match="NoneType"):
            missing()


UUIDS = ["a/b", "uuid.", "ma\u00f1ana", "a\n", "", " "]


@pytest.mark.parametrize("uuid", UUIDS)
@pytest.mark.parametrize(
    "function",
    [
        lambda given, store: DatasetMetadata.from_dict(given),
        lambda given, store: DatasetMetadata.from_buffer(json.dumps(given).encode()),
        lambda given, store: DatasetMetadata.from_buffer(json.dumps(given)),
        DatasetMetadata.load_from_dict,
        lambda given, store: DatasetMetadata.load_from_dict(given, store, load_schema=False),
        lambda given, store: DatasetMetadata.load_from_buffer(json.dumps(given).encode(), store),
    ],
    ids=["from_dict", "from_buffer", "from text", "load_from_dict", "without schema", "load_from_buffer"],
)
def test_a_document_has_a_uuid_that_the_constructor_takes(store, uuid, function):
    with pytest.raises(InvalidInput, match="illegal character"):
        function({**document(partitions={}), "dataset_uuid": uuid}, store)

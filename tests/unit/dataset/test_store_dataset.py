"""`store_dataframes_as_dataset`: existence, replacement, metadata, settings, what is refused."""

from __future__ import annotations

import datetime as dt
import json
from functools import partial

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from kartothek_cube import open_store
from kartothek_cube.core.dataset.read import read_table
from kartothek_cube.core.dataset.write import store_dataframes_as_dataset, store_dataframes_as_dataset__iter
from kartothek_cube.core.io.csv import CsvFormat
from kartothek_cube.core.kartothek.dataset_metadata import DatasetMetadata
from kartothek_cube.core.kartothek.serializers import ParquetSerializer
from kartothek_cube.core.metadata.naming import document_key
from kartothek_cube.core.stores.contract import ReadOnlyView
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import AlreadyExists, InvalidInput, InvalidType, ReadOnlyStore, Unsupported
from tests.support.datasets import (
    UUID,
    contents,
    document,
    exists,
    file_of,
    keys,
    labels,
    read,
    refused,
    rows,
    schema,
    snapshot,
    user_metadata,
)

FRAME = pd.DataFrame({"x": [1, 2], "v1": ["a", None]})


@pytest.fixture
def store():
    return MemoryStore()


def put(store, frames=(FRAME,), **arguments):
    return store_dataframes_as_dataset(store, UUID, list(frames), **arguments)


# --- where ----------------------------------------------------------------------------------------


class Unpicklable(MemoryStore):
    def __reduce__(self):
        raise TypeError


@pytest.mark.parametrize(
    "form",
    [
        lambda path: f"hfs://{path}",
        lambda path: open_store(f"hfs://{path}"),
        lambda path: lambda: open_store(f"hfs://{path}"),
        lambda path: partial(open_store, f"hfs://{path}"),
        lambda path: path,
        str,
    ],
)
def test_every_form_of_a_store_is_taken(form, tmp_path):  # A01
    store_dataframes_as_dataset(form(tmp_path), UUID, [FRAME])
    assert len(read_table(UUID, form(tmp_path))) == 2


def test_a_store_that_cannot_be_pickled_is_good_enough_here():  # A02
    store = Unpicklable()
    put(store)
    assert len(read_table(UUID, store)) == 2


def test_a_store_in_a_callable_is_that_store(store):  # A03
    store_dataframes_as_dataset(lambda: store, UUID, [FRAME])
    assert len(read_table(UUID, lambda: store)) == 2


@pytest.mark.parametrize("wrong", [None, 5, {}, ["hmemory://"], object()])
def test_a_store_that_is_none_is_a_type_error(wrong):  # A04
    with pytest.raises(TypeError) as caught:
        store_dataframes_as_dataset(wrong, UUID, [FRAME])
    assert isinstance(caught.value, InvalidType)


def test_an_unknown_scheme_is_a_value_error():  # A06
    with pytest.raises(ValueError) as caught:
        store_dataframes_as_dataset("nowhere://x", UUID, [FRAME])
    assert isinstance(caught.value, InvalidInput)


def test_a_plain_url_holds_datasets_too(tmp_path):  # A07
    for url in ("memory://plain-url-of-a-test", f"fs://{tmp_path}"):
        store_dataframes_as_dataset(url, UUID, [FRAME])
        assert len(read_table(UUID, url)) == 2


def test_a_store_that_cannot_be_written_is_found_before_rows_are_touched(store):
    with refused(store, OSError, ReadOnlyStore):
        put(ReadOnlyView(store), [object()])


# --- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("uuid", ["", "a b", "a/b", "a.b", "ä", "a\n", "\n", "a%", 5, b"a", ["a"], pd.NA])  # B01 B02
def test_an_illegal_uuid_is_refused(store, uuid):
    with refused(store, ValueError, InvalidInput, "illegal character"):
        store_dataframes_as_dataset(store, uuid, [FRAME])


@pytest.mark.parametrize("uuid", ["a", "A-b_c+D9", "++", "-", "x" * 200])  # B01
def test_a_legal_uuid_is_taken(store, uuid):
    assert store_dataframes_as_dataset(store, uuid, [FRAME]).uuid == uuid
    assert exists(store, uuid)


@pytest.mark.parametrize("storage_format", ["json", "msgpack"])
def test_a_dataset_exists_in_either_encoding(store, storage_format):  # B03
    put(store, metadata_storage_format=storage_format)
    for other in ("json", "msgpack"):
        with refused(store, RuntimeError, AlreadyExists):
            put(store, metadata_storage_format=other)


def test_a_name_that_begins_like_another_is_another(store):  # B04
    for name, value in (("a", 1), ("a_ext", 2), ("a++b", 3)):
        store_dataframes_as_dataset(store, name, [pd.DataFrame({"x": [value]})])
    assert [read(store, name).column("x").to_pylist() for name in ("a", "a_ext", "a++b")] == [[1], [2], [3]]


def test_no_uuid_makes_a_random_one(store):  # B06
    made = {
        store_dataframes_as_dataset(store, None, [FRAME]).uuid,
        store_dataframes_as_dataset__iter([FRAME], store).uuid,
    }
    assert len(made) == 2
    assert all(len(uuid) == 32 and exists(store, uuid) for uuid in made)


def test_files_without_a_document_are_no_dataset(store):  # B07
    put(store, [pd.DataFrame({"x": ["other"], "z": [1.0]})])
    store.delete(document_key(UUID))
    assert not exists(store)
    put(store)
    assert schema(store) == {"v1": "string", "x": "int64"}
    assert rows(store, "x") == [(1,), (2,)]


# --- what is stored -------------------------------------------------------------------------------


def test_nothing_to_store_is_refused(store):  # C01
    for nothing in ([], (), iter([]), (frame for frame in [])):
        with refused(store, ValueError, InvalidInput, "Cannot store empty datasets"):
            store_dataframes_as_dataset(store, UUID, nothing)


@pytest.mark.parametrize("item", [None, [], {}, {"data": {}}, [None, None]])
def test_none_makes_a_dataset_without_tables(store, item):  # C02
    made = put(store, [item])
    assert (list(made.partitions), made.tables, made.explicit_partitions) == ([], [], True)
    assert keys(store) == [document_key(UUID)]


def test_none_with_an_index_is_refused_as_no_type_is_known(store):
    with refused(store, ValueError, InvalidInput, "v1"):
        put(store, [None], secondary_indices=["v1"])


def test_no_rows_are_one_partition(store):  # C03
    made = put(store, [FRAME.iloc[:0].astype({"v1": object})], secondary_indices=["x"])
    assert len(made.partitions) == 1
    assert schema(store) == {"v1": "null", "x": "int64"}
    assert read(store).num_rows == 0


def test_no_rows_with_partition_columns_are_a_schema(store):  # C04
    made = put(store, [FRAME.iloc[:0]], partition_on=["v1"])
    assert (list(made.partitions), made.explicit_partitions, made.partition_keys) == ([], True, ["v1"])
    assert schema(store)["x"] == "int64"
    assert read(store).column_names == ["v1", "x"]


def test_a_frame_without_columns_is_one_partition_without_columns(store):
    put(store, [pd.DataFrame()])
    assert read(store).shape == (0, 0)


def test_elements_keep_their_widths_and_are_one_column(store):  # C18
    put(store, [pd.DataFrame({"x": pd.array([1], "int8")}), pd.DataFrame({"x": [2**40]})])
    assert [str(file_of(store, label).schema.field("x").type) for label in labels(store)] == ["int8", "int64"]
    assert (schema(store), rows(store)) == ({"x": "int64"}, [(1,), (2**40,)])


def test_order_of_columns_is_irrelevant(store):  # C19
    put(store, [FRAME, FRAME[["v1", "x"]]])
    assert read(store).column("x").to_pylist() == [1, 2, 1, 2]


@pytest.mark.parametrize(
    "labels_of_rows", [[5, 3], ["a", "b"], pd.date_range("2020-01-01", periods=2), pd.Index([1, 2], name="x")]
)
def test_row_labels_are_not_stored(store, labels_of_rows):  # C20
    put(store, [FRAME, FRAME.set_axis(labels_of_rows, axis=0)])
    assert read(store).column_names == ["v1", "x"]
    assert rows(store, "x") == [(1,), (1,), (2,), (2,)]


def test_row_labels_of_several_levels_are_refused(store):  # C20
    with refused(store, NotImplementedError, Unsupported, "reset_index"):
        put(store, [FRAME, FRAME.set_index(["x", "v1"], drop=False)])


def test_row_labels_in_an_arrow_table_are_not_stored(store):
    put(store, [pa.Table.from_pandas(FRAME.iloc[1:]), FRAME])
    assert read(store).column_names == ["v1", "x"]


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame([[1, 2]], columns=["x", "x"]),
        pd.DataFrame([[1, 2]], columns=[1, "1"]),
        pa.table([[1], [2]], ["x", "x"]),
    ],
)
def test_duplicate_columns_are_refused(store, frame):  # C21
    with refused(store, ValueError, InvalidInput, "Duplicate columns"):
        put(store, [FRAME, frame])


def test_names_that_are_no_text_become_text(store):
    put(store, [pd.DataFrame([[1, 2, 3]], columns=[1, ("a", 2), b"x"])])
    assert sorted(read(store).column_names) == ["('a', 2)", "1", "x"]


def test_a_column_called_partition_can_be_stored(store):  # C22
    put(store, [pd.DataFrame({"partition": [1]})])
    assert rows(store, predicates=[[("partition", "==", 1)]]) == [(1,)]


@pytest.mark.parametrize("name", ["ä", " ", "", "a/b", "a=b", "%", "x\n", "👍", "kartothek_cube.x", "x" * 500])
def test_every_text_is_the_name_of_a_column(store, name):
    put(store, [pd.DataFrame({name: [1]})])
    assert (read(store).column_names, rows(store, predicates=[[(name, "==", 1)]])) == ([name], [(1,)])


def test_timestamps_that_need_nanoseconds_are_refused(store):  # C37
    for value in (pd.Timestamp(1), pd.Timestamp(1, tz="Europe/Berlin")):
        with refused(store, ValueError, InvalidInput, "lose data"):
            put(store, [FRAME, pd.DataFrame({"x": [1], "v1": [value]})])


@pytest.mark.parametrize(
    ("values", "builtin"),
    [
        ([2**70], TypeError),
        ([1, "a"], TypeError),
        ([1.5, "a"], TypeError),
        ([object()], TypeError),
        (pd.arrays.SparseArray([1]), TypeError),
        (pa.array([(1, 2, 3)], pa.month_day_nano_interval()), NotImplementedError),
        (pa.array([None], pa.decimal256(50)), NotImplementedError),
    ],
)
def test_a_column_that_no_file_can_hold_is_refused(store, values, builtin):
    bad = pa.table({"x": values}) if isinstance(values, pa.Array) else pd.DataFrame({"x": values})
    with refused(store, builtin):
        put(store, [bad])


@pytest.mark.parametrize("value", [2**63, 2**64 - 1, -(2**63), 2**62 + 1])
def test_large_integers_keep_their_value(store, value):
    put(store, [pd.DataFrame({"x": [value]})])
    assert rows(store) == [(value,)]


# --- existing datasets ----------------------------------------------------------------------------


def test_an_existing_dataset_is_not_touched(store):  # C09
    put(store)
    with refused(store, RuntimeError, AlreadyExists, UUID):
        put(store, [pd.DataFrame({"x": [1]})])
    with refused(store, RuntimeError, AlreadyExists):
        put(store, (object() for _ in range(1)))


def test_overwriting_replaces_everything(store):  # C10
    put(store, metadata={"owner": "me"}, secondary_indices=["x"])
    made = put(
        store,
        [{"other": pd.DataFrame({"p": ["a"], "x": ["text"]})}],
        overwrite=True,
        partition_on="p",
        metadata={"by": "you"},
    )
    assert (made.tables, made.partition_keys, list(made.indices)) == (["other"], ["p"], [])
    assert (user_metadata(store), rows(store, table="other")) == ({"by": "you"}, [("a", "text")])
    assert schema(store, "other") == {"p": "string", "x": "string"}


def test_overwriting_makes_a_new_time_of_creation(store):
    put(store, metadata={"creation_time": "long ago"})
    put(store, overwrite=True)
    assert dt.datetime.fromisoformat(document(store)["metadata"]["creation_time"])


def test_overwriting_deletes_no_file(store):  # C11
    put(store, secondary_indices=["x"])
    before = contents(store)
    put(store, [pd.DataFrame({"z": [1]})], overwrite=True)
    fixed = {key: data for key, data in before.items() if key.endswith(".parquet")}
    assert {key: data for key, data in contents(store).items() if key in fixed} == fixed


def test_overwriting_what_does_not_exist_stores_it(store):
    put(store, overwrite=True)
    assert rows(store, "x") == [(1,), (2,)]


@pytest.mark.parametrize(("old", "new"), [("json", "msgpack"), ("msgpack", "json")])
def test_a_dataset_keeps_its_encoding_when_it_is_overwritten(store, old, new):  # C12
    put(store, metadata_storage_format=old)
    with refused(store, ValueError, InvalidInput, "keeps its encoding"):
        put(store, metadata_storage_format=new, overwrite=True)
    put(store, [pd.DataFrame({"x": [9]})], metadata_storage_format=old, overwrite=True)
    assert rows(store) == [(9,)]
    assert len(keys(store, "by-dataset-metadata")) == 1


# --- metadata -------------------------------------------------------------------------------------


def test_callable_metadata_is_called_once_when_all_rows_are_stored(store):  # C32
    calls = []

    def metadata():
        calls.append((len(keys(store, ".parquet")), exists(store)))
        return {"owner": "me"}

    put(store, metadata=metadata)
    assert calls == [(1, False)]
    assert user_metadata(store) == {"owner": "me"}


def test_the_time_of_creation_can_be_given(store):  # C33
    assert put(store, metadata={"creation_time": "yesterday"}).metadata == {"creation_time": "yesterday"}
    assert document(store)["metadata"]["creation_time"] == "yesterday"


@pytest.mark.parametrize(
    ("metadata", "builtin", "error"),
    [
        ({"x": object()}, TypeError, InvalidType),
        ({"x": {1, 2}}, TypeError, InvalidType),
        ({"x": dt.date(2020, 1, 1)}, TypeError, InvalidType),
        ({"x": [pd.Timestamp(0)]}, TypeError, InvalidType),
        ({"x": float("nan")}, ValueError, InvalidInput),
        ({"kartothek_cube.commits": "mine"}, ValueError, InvalidInput),
        ([("x", 1)], TypeError, InvalidType),
        ("x", TypeError, InvalidType),
    ],
)
def test_metadata_that_json_cannot_hold_is_refused(store, metadata, builtin, error):  # C34
    with refused(store, builtin, error):
        put(store, metadata=metadata)


def test_callable_metadata_that_json_cannot_hold_makes_no_dataset(store):
    with pytest.raises(TypeError):
        put(store, metadata=lambda: {"x": object()})
    assert not exists(store)


def test_metadata_comes_back_as_json_has_it(store):
    given = {
        "text": "ä👍\n\0",
        "list": [1, 2.5, None, True],
        "map": {"deep": [[]]},
        5: "five",
        "tuple": (1,),
        "big": 2**70,
    }
    put(store, metadata=given)
    assert user_metadata(store) == json.loads(json.dumps(given))


# --- settings -------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["no", 0, None, ["i1"]])
def test_overwriting_is_true_or_false(store, value):
    put(store)
    with refused(store, TypeError, InvalidType, "overwrite"):
        put(store, overwrite=value)


@pytest.mark.parametrize("version", [3, 5, "4", None])
def test_versions_other_than_4_are_refused(store, version):  # C35
    with refused(store, NotImplementedError, Unsupported):
        put(store, metadata_version=version)


@pytest.mark.parametrize(
    "storage_format", ["yaml", "", None, 4, b"json", pd.DataFrame({"x": [1]}), np.array(["json", "json"])]
)
def test_an_unknown_encoding_is_refused(store, storage_format):  # C36
    with refused(store, ValueError, InvalidInput, "Unknown metadata storage format"):
        put(store, metadata_storage_format=storage_format)


@pytest.mark.parametrize(
    ("storage_format", "suffix"), [("json", "json"), ("JSON", "json"), ("MsgPack", "msgpack.zstd")]
)
def test_the_encoding_is_chosen(store, storage_format, suffix):
    put(store, metadata_storage_format=storage_format)
    assert keys(store, "by-dataset-metadata") == [f"{UUID}.by-dataset-metadata.{suffix}"]
    assert rows(store, "x") == [(1,), (2,)]


@pytest.mark.parametrize("serializer", ["parquet", object(), ParquetSerializer, 5])
def test_something_that_is_no_serializer_is_refused(store, serializer):
    with refused(store, TypeError, InvalidType, "serializer"):
        put(store, df_serializer=serializer)


def test_the_serializer_writes_the_files(store):
    put(store, df_serializer=CsvFormat())
    assert len(keys(store, ".csv")) == 1
    assert rows(store, "x") == [(1,), (2,)]


@pytest.mark.parametrize("argument", ["partition_on", "secondary_indices"])
@pytest.mark.parametrize("value", [{"x"}, frozenset("x"), {"x": 1}])
def test_sets_and_dicts_are_no_lists(store, argument, value):  # C43
    with refused(store, ValueError, InvalidInput, "incompatible for normalisation"):
        put(store, **{argument: value})


@pytest.mark.parametrize("argument", ["partition_on", "secondary_indices"])
@pytest.mark.parametrize(
    ("value", "builtin"),
    [([1], TypeError), ([None], TypeError), ([["x"]], TypeError), (b"x", TypeError), (["x", "x"], ValueError)],
)
def test_columns_are_named_by_text_and_once(store, argument, value, builtin):
    with refused(store, builtin, match=argument):
        put(store, **{argument: value})


@pytest.mark.parametrize(
    "value", ["x", ["x"], ("x",), iter(["x"]), pd.Index(["x"]), pa.array(["x"]).to_numpy(zero_copy_only=False)]
)
def test_everything_else_that_lists_columns_is_a_list(store, value):
    assert put(store, partition_on=value).partition_keys == ["x"]


def test_the_dataset_is_returned_as_it_was_committed(store):
    made = put(store, secondary_indices=["x"], metadata={"owner": "me"})
    assert isinstance(made, DatasetMetadata)
    assert made.snapshot.document == snapshot(store).document
    assert {k: str(v) for k, v in made.table_meta.items()} == {
        k: str(v) for k, v in DatasetMetadata.of(snapshot(store)).table_meta.items()
    }


def test_the_iterator_version_stores_the_same(store):
    store_dataframes_as_dataset__iter(
        iter([FRAME]), store, UUID, {"owner": "me"}, ["x"], None, False, "json", 4, ["v1"]
    )
    assert (labels(store)[0][:4], user_metadata(store), list(snapshot(store).document.indices)) == (
        "x=1/",
        {"owner": "me"},
        ["v1"],
    )

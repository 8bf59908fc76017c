"""`update_dataset_from_dataframes`: appending, metadata, what has to fit, implicit datasets,
encodings, factories.
"""

from __future__ import annotations

import copy
import threading

import pandas as pd
import pyarrow as pa
import pytest

from kartothek_cube.core.dataset.read import read_table
from kartothek_cube.core.dataset.write import (
    create_empty_dataset_header,
    store_dataframes_as_dataset,
    update_dataset_from_dataframes,
    update_dataset_from_dataframes__iter,
)
from kartothek_cube.core.kartothek.dataset_metadata import DatasetFactory
from kartothek_cube.core.stores.contract import ReadOnlyView
from kartothek_cube.core.stores.local import LocalStore, MemoryStore
from kartothek_cube.errors import InvalidInput, InvalidType, ReadOnlyStore, Unsupported
from tests.support.datasets import (
    UUID,
    contents,
    document,
    exists,
    file_of,
    folders,
    keys,
    labels,
    refused,
    rows,
    schema,
    snapshot,
    user_metadata,
)

ONE = pd.DataFrame({"p": ["a", "b"], "x": [1, 2]})
TWO = pd.DataFrame({"p": ["b", "c"], "x": [3, 4]})


@pytest.fixture
def store():
    return MemoryStore()


@pytest.fixture
def stored(store):
    store_dataframes_as_dataset(store, UUID, [ONE], partition_on="p", metadata={"owner": "me", "deep": {"list": [1]}})
    return store


def update(store, *frames, **arguments):
    return update_dataset_from_dataframes(list(frames), store, UUID, **arguments)


# --- rows -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", [update_dataset_from_dataframes, update_dataset_from_dataframes__iter])
def test_an_update_appends(stored, verb):
    before = contents(stored)
    made = verb([TWO], stored, UUID)
    assert list(made.partitions) == labels(stored)
    assert rows(stored) == [("a", 1), ("b", 2), ("b", 3), ("c", 4)]
    assert {k: v for k, v in contents(stored).items() if k in before and k.endswith("parquet")} == {
        k: v for k, v in before.items() if k.endswith("parquet")
    }


@pytest.mark.parametrize("verb", [update_dataset_from_dataframes, update_dataset_from_dataframes__iter])
def test_a_missing_dataset_is_made(store, verb):  # D01
    verb([ONE], store, UUID, partition_on="p", metadata={"owner": "me"}, delete_scope=[{"p": "a"}])
    assert (folders(store), rows(store), user_metadata(store)) == (
        ["p=a", "p=b"],
        [("a", 1), ("b", 2)],
        {"owner": "me"},
    )


@pytest.mark.parametrize("verb", [update_dataset_from_dataframes, update_dataset_from_dataframes__iter])
@pytest.mark.parametrize("nothing", [[], None, [None], (frame for frame in ()), [{}], [[None]]])
def test_a_missing_dataset_needs_rows(store, verb, nothing):  # D02
    with refused(store, ValueError, InvalidInput, "Cannot store empty datasets"):
        verb(nothing, store, UUID, metadata={"owner": "me"})


@pytest.mark.parametrize("nothing", [[], None, [None], (), [{}], iter([])])
def test_an_update_with_nothing_changes_nothing(stored, nothing):  # D03
    before, files = snapshot(stored), {k: v for k, v in contents(stored).items() if "metadata.json" not in k}
    update_dataset_from_dataframes(nothing, stored, UUID)
    after = snapshot(stored)
    assert (after.document.partitions, after.schemas, after.document.user_metadata) == (
        before.document.partitions,
        before.schemas,
        before.document.user_metadata,
    )
    assert {
        k: v for k, v in contents(stored).items() if "metadata.json" not in k and (k in files or "/_history/" not in k)
    } == files


@pytest.mark.parametrize("given", [None, [], ["p"], "p"])
def test_partition_on_is_what_the_dataset_has(stored, given):  # D04
    update(stored, TWO, partition_on=given)
    assert folders(stored) == ["p=a", "p=b", "p=b", "p=c"]


def test_another_partition_on_is_refused(store):  # D05
    store_dataframes_as_dataset(store, UUID, [ONE.assign(q=1, z=1)], partition_on=["p", "q"])
    for wrong in (["q", "p"], ["p"], ["p", "q", "z"], ["z"]):
        with refused(store, ValueError, InvalidInput, "Incompatible set of partition keys"):
            update(store, ONE.assign(q=1, z=1), partition_on=wrong)


def test_an_unpartitioned_dataset_stays_so(store):
    store_dataframes_as_dataset(store, UUID, [ONE])
    with refused(store, ValueError, InvalidInput):
        update(store, ONE, partition_on="p")


@pytest.mark.parametrize(
    "wrong",
    [
        pd.DataFrame({"p": ["a"], "x": ["text"]}),
        pd.DataFrame({"p": [1], "x": [1]}),
        pd.DataFrame({"p": ["a"], "y": [1]}),
        pd.DataFrame({"p": ["a"], "x": [1], "y": [1]}),
    ],
)
def test_rows_that_do_not_fit_the_schema_are_refused(stored, wrong):  # D09
    with refused(stored, ValueError, InvalidInput, "Schema violation"):
        update(stored, TWO, wrong)
    before = snapshot(stored)
    with pytest.raises(ValueError, match="Schema violation"):
        update_dataset_from_dataframes__iter(iter([TWO, wrong]), stored, UUID)
    assert snapshot(stored).document == before.document


def test_rows_in_one_update_have_to_fit_each_other(store):  # C15
    with refused(store, ValueError, InvalidInput, "Schema violation"):
        update(store, ONE, pd.DataFrame({"p": ["a"], "x": ["text"]}))
    with refused(store, ValueError, InvalidInput, "Schema violation"):
        store_dataframes_as_dataset(store, UUID, [ONE, pd.DataFrame({"p": ["a"], "x": ["text"]})])


def test_a_label_that_exists_is_replaced_and_its_old_file_left_alone(stored):  # D26
    (old,) = [label for label in labels(stored) if label.startswith("p=a")]
    before = contents(stored)
    update(stored, {"label": old.removeprefix("p=a/"), "data": {"table": pd.DataFrame({"p": ["a"], "x": [9]})}})
    assert rows(stored) == [("a", 9), ("b", 2)]
    assert labels(stored)[-1] == old
    assert {key: stored.get(key) for key in before if key.endswith("parquet")} == {
        key: data for key, data in before.items() if key.endswith("parquet")
    }


def test_a_zoned_timestamp_column_can_be_updated(store):  # C38
    when = pd.DataFrame({"x": pd.to_datetime(["2020-01-01 12:00"]).tz_localize("Europe/Berlin")})
    store_dataframes_as_dataset(store, UUID, [when])
    update(store, when)
    assert schema(store)["x"] == "timestamp[us, tz=Europe/Berlin]"
    assert [row[0] for row in rows(store)] == [when.x[0].to_pydatetime()] * 2


# --- metadata -------------------------------------------------------------------------------------


def test_metadata_is_set_key_by_key(stored):  # D27
    created = document(stored)["metadata"]["creation_time"]
    update(stored, metadata={"owner": "you", "new": [1]})
    assert user_metadata(stored) == {"owner": "you", "deep": {"list": [1]}, "new": [1]}
    update(stored, metadata=lambda: {"deep": None})
    assert user_metadata(stored) == {"owner": "you", "deep": None, "new": [1]}
    assert document(stored)["metadata"]["creation_time"] == created
    update(stored, metadata={"creation_time": "now"})
    assert document(stored)["metadata"]["creation_time"] == "now"


def test_a_merger_gets_the_metadata_and_a_dict_for_each_partition(stored):
    seen = []

    def merger(found):
        seen.append(copy.deepcopy(found))
        return {**found[0], "merged": True}

    update(stored, ONE, TWO, metadata_merger=merger, metadata={"owner": "you"})
    assert [(found[0]["owner"], found[1:]) for found in seen] == [("me", [{}] * 4)]
    assert user_metadata(stored) == {"owner": "you", "deep": {"list": [1]}, "merged": True}


def test_a_merger_can_remove_keys(stored):  # D28
    created = document(stored)["metadata"]["creation_time"]
    update(stored, metadata_merger=lambda found: {"deep": found[0]["deep"]})
    assert user_metadata(stored) == {"deep": {"list": [1]}}
    assert document(stored)["metadata"]["creation_time"] == created
    update(stored, metadata_merger=lambda _: {})
    assert user_metadata(stored) == {}
    update(stored, TWO)
    assert len(rows(stored)) == 4


def test_a_merger_may_change_what_it_gets(stored):
    def merger(found):
        found[0]["deep"]["list"].append(2)
        return found[0]

    update(stored, metadata_merger=merger)
    assert user_metadata(stored)["deep"] == {"list": [1, 2]}


@pytest.mark.parametrize("result", [None, [], "x", {"x": object()}, {1: {2}}])
def test_a_merger_returns_what_json_can_hold(stored, result):
    with refused(stored, TypeError, InvalidType):
        update(stored, metadata_merger=lambda _: result)


def test_metadata_that_json_cannot_hold_is_refused_before_files_are_written(stored):
    with refused(stored, TypeError, InvalidType):
        update(stored, TWO, metadata={"x": object()})


# --- implicit datasets, encodings, factories ------------------------------------------------------


def test_an_implicit_dataset_becomes_explicit(store):  # D33
    create_empty_dataset_header(store, UUID, {"table": ONE}, partition_on="p")
    assert "partitions" not in document(store)
    update(store, ONE)
    assert sorted(document(store)["partitions"]) == sorted(labels(store))
    assert rows(store) == [("a", 1), ("b", 2)]


def test_metadata_alone_makes_an_implicit_dataset_explicit(store):  # D33
    create_empty_dataset_header(store, UUID, {"table": ONE}, partition_on="p")
    update(store, metadata={"x": 1})
    assert document(store)["partitions"] == {}


def test_a_msgpack_dataset_stays_one(store):  # D34
    store_dataframes_as_dataset(store, UUID, [ONE], metadata_storage_format="msgpack")
    update(store, TWO)
    assert keys(store, "by-dataset-metadata") == [f"{UUID}.by-dataset-metadata.msgpack.zstd"]
    assert rows(store, "x") == [(1,), (2,), (3,), (4,)]


def test_a_factory_says_where_the_dataset_lies(stored):  # D36
    factory = DatasetFactory(UUID, stored)
    update_dataset_from_dataframes([TWO], factory=factory, delete_scope=[{"p": "a"}])
    assert (len(factory.partitions), rows(stored)) == (3, [("b", 2), ("b", 3), ("c", 4)])


def test_a_factory_shows_what_it_has_read_until_it_is_told_of_changes(stored):  # A08
    factory = DatasetFactory(UUID, stored)
    assert len(factory.partitions) == 2
    update(stored, TWO)
    assert (len(factory.partitions), len(read_table(factory=factory))) == (2, 2)
    update_dataset_from_dataframes([], factory=factory)
    assert (len(factory.partitions), len(read_table(factory=factory))) == (4, 4)


def test_a_factory_and_a_store_are_refused(stored):  # A05
    factory = DatasetFactory(UUID, stored)
    for arguments in ({"store": stored}, {"dataset_uuid": UUID}, {"store": stored, "dataset_uuid": UUID}):
        with refused(stored, ValueError, InvalidInput, "factory"):
            update_dataset_from_dataframes([TWO], factory=factory, **arguments)
    with refused(stored, ValueError, InvalidInput, "factory"):
        update_dataset_from_dataframes([TWO], factory="factory")


@pytest.mark.parametrize("arguments", [{}, {"dataset_uuid": UUID}])
def test_an_update_without_a_store_is_a_type_error(arguments):  # A04
    with pytest.raises(TypeError) as caught:
        update_dataset_from_dataframes([ONE], **arguments)
    assert isinstance(caught.value, InvalidType)


def test_an_update_without_a_uuid_is_a_type_error(store):  # B06
    with refused(store, TypeError, InvalidType, "dataset_uuid"):
        update_dataset_from_dataframes([ONE], store)


@pytest.mark.parametrize("uuid", ["a b", "a\n", "", 5])  # B01 B02
def test_an_illegal_uuid_is_refused(store, uuid):
    with refused(store, ValueError, InvalidInput):
        update_dataset_from_dataframes([ONE], store, uuid)


# --- arguments ------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [{"central_partition_metadata": False}, {"load_dynamic_metadata": False}])
def test_arguments_without_effect_are_taken(stored, arguments):  # D37
    update(stored, TWO, **arguments)
    assert len(rows(stored)) == 4


@pytest.mark.parametrize("merger", [0, "text", {"owner": "you"}])
def test_a_merger_can_be_called(stored, merger):
    with refused(stored, TypeError, InvalidType, "metadata_merger"):
        update(stored, TWO, metadata_merger=merger)


@pytest.mark.parametrize("value", ["no", 1, None, ["x"], ONE])
def test_adding_columns_is_true_or_false(stored, value):
    with refused(stored, TypeError, InvalidType, "add_columns"):
        update(stored, TWO, add_columns=value)


@pytest.mark.parametrize("version", [3, 5, "4", ONE, float("nan")])
def test_other_versions_are_refused(stored, version):
    with refused(stored, NotImplementedError, Unsupported):
        update(stored, default_metadata_version=version)


@pytest.mark.parametrize("argument", ["partition_on", "secondary_indices", "sort_partitions_by", "delete_scope"])
@pytest.mark.parametrize("value", [{"p"}, frozenset(["p"]), {"p": "a"}])
def test_sets_and_dicts_are_no_lists(stored, argument, value):
    with refused(stored, ValueError, InvalidInput, "incompatible for normalisation"):
        update(stored, TWO, **{argument: value})


def test_a_serializer_has_to_be_one(stored):
    with refused(stored, TypeError, InvalidType, "serializer"):
        update(stored, TWO, df_serializer="csv")


def test_a_store_that_cannot_be_written_is_found_first(stored):
    with refused(stored, OSError, ReadOnlyStore):
        update_dataset_from_dataframes([object()], ReadOnlyView(stored), UUID)


def test_a_dataset_without_tables_takes_any(store):
    store_dataframes_as_dataset(store, UUID, [None], partition_on="p")
    update(store, {"sales": ONE})
    assert rows(store, table="sales") == [("a", 1), ("b", 2)]
    assert exists(store)


def test_the_file_of_an_update_has_the_types_that_were_given(stored):
    update(stored, TWO.astype({"x": "int8"}))
    assert {str(file_of(stored, label).schema.field("x").type) for label in labels(stored)} == {"int64", "int8"}


@pytest.mark.parametrize("is_local", [True, False])
def test_a_small_write_to_a_near_store_starts_no_thread(is_local, tmp_path, monkeypatch):
    store = LocalStore(tmp_path) if is_local else MemoryStore()
    data = pa.table({"x": [1], "i1": [1], "v1": [1.0]})
    store_dataframes_as_dataset(store, "uuid", [data], secondary_indices=["i1"])
    begun = []
    monkeypatch.setattr(threading.Thread, "start", begun.append)
    update_dataset_from_dataframes([data], store, "uuid")
    assert not begun

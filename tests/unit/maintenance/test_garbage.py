from __future__ import annotations

import datetime as dt
import json
import os
from pathlib import Path

import pandas as pd
import pytest

from kartothek_cube import open_store, options
from kartothek_cube.core.dataset.maintain import garbage_collect_dataset
from kartothek_cube.core.dataset.read import read_table
from kartothek_cube.core.dataset.write import store_dataframes_as_dataset
from kartothek_cube.core.kartothek.dataset_metadata import DatasetFactory
from kartothek_cube.core.metadata.naming import document_key
from kartothek_cube.core.stores.contract import ReadOnlyView, StoreView
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import CorruptDocument, DatasetNotFound, InvalidInput, InvalidType

UUID = "uuid"
NOW = options(grace=dt.timedelta(0), retain=dt.timedelta(0))
ROWS = pd.DataFrame({"x": [1, 2, 3], "p": ["a", "a", "b"], "i1": [7, 8, 9]})


@pytest.fixture
def store():
    return MemoryStore()


def build(store, data=ROWS, uuid=UUID, **more):
    return store_dataframes_as_dataset(
        store, uuid, [data], **{"partition_on": ["p"], "secondary_indices": ["i1"], "overwrite": True, **more}
    )


def keys(store):
    return set(files(store.list(recursive=True).keys))


def files(keys):
    """Without history entries."""
    return [key for key in keys if "/_history/" not in key]


def collected(store):
    """Keys of what goes at once, without history entries."""
    return files(garbage_collect_dataset(UUID, store, options=NOW).keys)


def rows(store):
    return read_table(UUID, store).sort_values("x")["x"].tolist()


def edit(store, **members):
    """What a writer does that knows no chain; a member that is None goes."""
    document = {**json.loads(store.get(document_key(UUID))), **members}
    store.put(document_key(UUID), json.dumps({k: v for k, v in document.items() if v is not None}).encode())


def test_a_clean_dataset_loses_nothing(store):
    build(store)
    before = keys(store)
    assert collected(store) == []
    assert keys(store) == before


@pytest.mark.parametrize("storage", ["json", "msgpack"])
def test_files_of_an_overwritten_dataset_go_and_its_rows_stay(store, storage):
    build(store, metadata_storage_format=storage)
    first = {key for key in keys(store) if key.endswith(".parquet")}
    build(store, metadata_storage_format=storage)
    report = garbage_collect_dataset(UUID, store, options=NOW)
    assert set(files(report.keys)) == first
    assert report.bytes > 0
    assert not first & keys(store)
    assert rows(store) == [1, 2, 3]
    assert collected(store) == []


def test_young_files_wait(store):  # K03
    build(store)
    build(store)
    before = keys(store)
    report = garbage_collect_dataset(UUID, store)
    assert report.keys == []
    assert len(report.waiting) == 3
    assert keys(store) == before


def test_files_that_are_older_than_the_grace_period_go(tmp_path):  # K03
    store = open_store(tmp_path)
    build(store)
    left, young = f"{UUID}/table/p=a/left.parquet", f"{UUID}/table/p=a/young.parquet"
    for key in (left, young):
        store.put(key, b"PAR1")
    two_days_ago = dt.datetime.now().timestamp() - 2 * 86400
    os.utime(tmp_path / left, (two_days_ago, two_days_ago))
    report = garbage_collect_dataset(UUID, store)
    assert report.keys == [left]
    assert [e.key for e in report.waiting] == [young]
    assert garbage_collect_dataset(UUID, store, options=options(grace=dt.timedelta(days=3))).keys == []


@pytest.mark.parametrize("value", ["no", 0, None])
def test_a_dry_run_is_true_or_false(store, value):
    build(store)
    with pytest.raises(InvalidType, match="dry_run"):
        garbage_collect_dataset(UUID, store, dry_run=value)


def test_a_dry_run_removes_nothing_and_names_the_same_keys(store):
    build(store)
    build(store)
    before = keys(store)
    planned = garbage_collect_dataset(UUID, store, dry_run=True, options=NOW)
    assert keys(store) == before
    assert repr(planned).startswith("GarbageReport(would remove 5 files of ")
    assert len(files(planned.keys)) == 3
    assert garbage_collect_dataset(UUID, store, options=NOW).keys == planned.keys


@pytest.mark.parametrize("other", [f"{UUID}_ext", f"{UUID}+ext", f"{UUID}++seed", UUID[:-1]])
def test_other_datasets_are_left_alone(store, other):  # K01
    build(store)
    build(store, uuid=other)
    strange = {f"{other}/table/p=a/left.parquet", f"{other}/indices/i1/left.by-dataset-index.parquet", f"{other}/table"}
    for key in strange:
        store.put(key, b"")
    before = keys(store)
    assert collected(store) == []
    assert keys(store) == before


@pytest.mark.parametrize(
    "key", [f"{UUID}/x", f"{UUID}.x", f"{UUID}/unknown/left.parquet", f"{UUID}/unknown/deeper/_common_metadata"]
)
def test_keys_that_are_no_tables_are_left_alone(store, key):  # K01
    build(store)
    store.put(key, b"")
    assert collected(store) == []


def test_a_table_that_an_overwrite_gave_up_goes_with_its_schema(store):
    build(store, {"old": ROWS})
    first = {key for key in keys(store) if "/old/" in key}
    assert f"{UUID}/old/_common_metadata" in first
    build(store, {"new": ROWS}, secondary_indices=[])
    index = {key for key in keys(store) if "/indices/" in key}
    assert set(collected(store)) == first | index
    assert read_table(UUID, store, table="new")["x"].tolist() == [1, 2, 3]


def test_all_tables_of_a_dataset_are_known(store):
    build(store, {"one": ROWS, "two": ROWS[["p", "x"]]})
    before = keys(store)
    for table in ("one", "two"):
        store.put(f"{UUID}/{table}/left.parquet", b"")
    assert collected(store) == [f"{UUID}/one/left.parquet", f"{UUID}/two/left.parquet"]
    assert keys(store) == before


def test_a_dataset_without_partitions_keeps_its_schema(store):
    build(store, ROWS[:0])
    store.put(f"{UUID}/table/left.parquet", b"")
    assert collected(store) == [f"{UUID}/table/left.parquet"]
    edit(store, metadata={})
    assert collected(store) == []


def test_of_an_implicit_dataset_only_index_files_are_garbage(store):  # K02
    build(store)
    edit(store, partitions=None, metadata={})
    store.put(f"{UUID}/table/p=a/more.parquet", store.get(next(k for k in keys(store) if "/p=a/" in k)))
    left = f"{UUID}/indices/i1/left.by-dataset-index.parquet"
    for key in (left, f"{UUID}/indices/_common_metadata", f"{UUID}/old/_common_metadata", f"{UUID}/old/p=a/x.csv"):
        store.put(key, b"")
    assert collected(store) == [left]


def test_a_table_called_indices_keeps_its_files(store):  # K04
    build(store)
    partitions = {}
    for key in [k for k in keys(store) if "/table/" in k]:
        store.put(key.replace("/table/", "/indices/"), store.get(key))
        store.delete(key)
    for label, entry in json.loads(store.get(document_key(UUID)))["partitions"].items():
        partitions[label] = {"files": {"indices": entry["files"]["table"].replace("/table/", "/indices/")}}
    edit(store, partitions=partitions, metadata={})
    before = keys(store)
    left = f"{UUID}/indices/p=a/left.parquet"
    store.put(left, b"")
    assert collected(store) == [left]
    assert keys(store) == before


def test_temporary_files_of_crashed_writers_go_when_they_are_old(tmp_path):
    store = open_store(tmp_path)
    build(store)
    document, data = (Path(store.local_path(k)) for k in (document_key(UUID), f"{UUID}/table/_common_metadata"))
    left = [
        path.with_name(f"{path.name}.0123456789abcdef~")
        for path in (document, data, tmp_path / document_key(f"{UUID}2"))
    ]
    for path in left:
        path.write_bytes(b"half")
    assert garbage_collect_dataset(UUID, store).keys == []
    two_days_ago = dt.datetime.now().timestamp() - 2 * 86400
    for path in left:
        os.utime(path, (two_days_ago, two_days_ago))
    assert len(garbage_collect_dataset(UUID, store, dry_run=True).keys) == 2
    assert left[0].exists()
    garbage_collect_dataset(UUID, store)
    assert [path.exists() for path in left] == [False, False, True]


def test_what_somebody_names_in_between_stays(store):
    build(store)
    (key,) = (k for k in keys(store) if "/p=b/" in k)
    document = store.get(document_key(UUID))
    partitions = {k: v for k, v in json.loads(document)["partitions"].items() if not k.startswith("p=b")}
    edit(store, partitions=partitions, metadata={})

    class Committing(StoreView):
        def around(self, operation, key, action):
            if operation == "leftovers":  # between the first look and the second
                self.inner.put(document_key(UUID), document)
            return super().around(operation, key, action)

    assert files(garbage_collect_dataset(UUID, store, dry_run=True, options=NOW).keys) == [key]
    assert files(garbage_collect_dataset(UUID, Committing(store), options=NOW).keys) == []
    assert rows(store) == [1, 2, 3]


def test_a_missing_dataset_is_named(store):
    store.put(f"{UUID}/table/left.parquet", b"")
    with pytest.raises(DatasetNotFound, match="uuid"):
        garbage_collect_dataset(UUID, store, options=NOW)
    assert keys(store) == {f"{UUID}/table/left.parquet"}


@pytest.mark.parametrize("broken", ["document", "damaged schema", "missing schema"])
def test_a_dataset_that_cannot_be_read_is_not_cleaned(store, broken):
    build(store)
    edit(store, metadata={})
    store.put(f"{UUID}/table/left.parquet", b"")
    key = document_key(UUID) if broken == "document" else f"{UUID}/table/_common_metadata"
    store.delete(key) if broken == "missing schema" else store.put(key, b"{")
    before = keys(store)
    with pytest.raises(CorruptDocument, match=key):
        garbage_collect_dataset(UUID, store, options=NOW)
    assert keys(store) == before


def test_a_store_for_reading_only_is_enough_if_there_is_nothing_to_do(store):
    build(store)
    assert garbage_collect_dataset(UUID, ReadOnlyView(store)).keys == []


def test_a_factory_names_the_dataset_and_the_newest_state_counts(store):
    build(store)
    factory = DatasetFactory(UUID, lambda: store)
    _ = factory.snapshot
    build(store)
    assert len(files(garbage_collect_dataset(factory=factory, options=NOW).keys)) == 3
    assert rows(store) == [1, 2, 3]


@pytest.mark.parametrize("arguments", [{}, {"dataset_uuid": UUID}, {"store": MemoryStore()}])
def test_a_dataset_has_to_be_named(arguments):
    with pytest.raises(InvalidInput, match="factory"):
        garbage_collect_dataset(**arguments)

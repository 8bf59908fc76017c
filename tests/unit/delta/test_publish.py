"""A dataset published as a Delta table: what is written, when, and what is refused."""

from __future__ import annotations

import datetime as dt
import json
import warnings
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kartothek_cube import CubeHandle, DatasetHandle, options, publish_delta, unpublish_delta
from kartothek_cube.api.dataset import (
    compact_dataset,
    copy_dataset,
    delete_dataset,
    delete_rows,
    drop_columns,
    garbage_collect_dataset,
    history,
    read_table_arrow,
    rename_dataset,
    store_dataframes_as_dataset,
    undo,
    update_dataset_from_dataframes,
    verify_dataset,
)
from kartothek_cube.api.serialization import CsvSerializer
from kartothek_cube.core.snapshots.loader import load_snapshot
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import DatasetNotFound, PublicationWarning, Unsupported
from kartothek_cube.testing.stores import FaultyStore
from tests.caches import forget
from tests.support.commits import make_foreign
from tests.support.datasets import contents
from tests.support.delta import UUID, actions, added, log_keys, stats, versions
from tests.support.far import FarStore

NOW = options(grace=timedelta(0), retain=timedelta(0))
ROWS = pa.table({"p": ["a", "b"], "x": [1, 2], "v1": [0.5, 1.5]})
MORE = pa.table({"p": ["b", "c"], "x": [3, 4], "v1": [2.5, 3.5]})


@pytest.fixture
def store():
    return MemoryStore()


def stored(store, rows=ROWS, partition_on="p", **more):
    store_dataframes_as_dataset(store, UUID, [rows], partition_on=partition_on, **more)


def append(store, rows=MORE, **more):
    return update_dataset_from_dataframes([rows], store, UUID, **more)


def files(store, uuid=UUID):
    return set(load_snapshot(store, uuid).files.to_pylist())


def last(store, uuid=UUID):
    """The files of the newest version, read afresh."""
    found = versions(store, uuid)
    return found[max(found)]


# --- what is written ------------------------------------------------------------------------------


def test_the_first_version_has_the_files_and_who_may_write():
    store = MemoryStore()
    stored(store)
    published = publish_delta(UUID, store)
    commit = history(UUID, store)["commit"].iloc[0]
    assert (published.version, published.commit, published.added, published.removed) == (0, commit, 2, 0)
    assert published.versions == {"table": 0}
    assert versions(store) == {0: files(store)}
    found = {name: value for action in actions(store, 0) for name, value in action.items()}
    assert found["protocol"] == {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["kartothek_cube"]}
    assert found["commitInfo"]["kartothekCubeCommit"] == commit
    assert commit in found["txn"]["appId"]
    assert found["metaData"]["partitionColumns"] == ["p"]
    schema = json.loads(found["metaData"]["schemaString"])
    assert {f["name"]: f["type"] for f in schema["fields"]} == {"p": "string", "x": "long", "v1": "double"}
    assert published.bytes == len(store.get(log_keys(store)[0]))


def test_a_state_is_published_once(store):
    stored(store)
    publish_delta(UUID, store)
    before = contents(store)
    again = publish_delta(UUID, store)
    assert (again.version, again.added, again.removed, again.bytes) == (0, 0, 0, 0)
    forget(store)
    assert publish_delta(UUID, store).bytes == 0
    assert contents(store) == before


def test_a_later_version_has_what_changed(store):
    stored(store)
    publish_delta(UUID, store)
    first = files(store)
    append(store, delete_scope=[{"p": "b"}])
    published = publish_delta(UUID, store)
    assert (published.version, published.added, published.removed) == (1, 2, 1)
    assert versions(store) == {0: first, 1: files(store)}
    assert [name for action in actions(store, 1) for name in action] == ["commitInfo", "txn", "remove", "add", "add"]


def test_commits_in_between_are_one_version(store):
    stored(store)
    publish_delta(UUID, store)
    append(store)
    append(store)
    assert publish_delta(UUID, store).added == 4
    assert last(store) == files(store)


def test_paths_are_encoded_and_partition_values_are_not(store):
    stored(store, pa.table({"p": ["a b/ü%=+"], "x": [1]}))
    publish_delta(UUID, store)
    (add,) = added(store, 0)
    assert add["partitionValues"] == {"p": "a b/ü%=+"}
    assert add["path"].startswith("p=a%2520b%252F%25C3%25BC%2525%253D%252B/")
    assert versions(store)[0] == files(store)


def test_moments_without_a_zone_need_a_feature_and_a_new_column_a_new_schema(store):
    stored(store)
    publish_delta(UUID, store)
    append(store, MORE.append_column("t", pa.array([dt.datetime(2024, 1, 1)] * 2)), add_columns=True)
    publish_delta(UUID, store)
    found = {name: value for action in actions(store, 1) for name, value in action.items()}
    assert found["protocol"]["readerFeatures"] == ["timestampNtz"]
    assert found["protocol"]["writerFeatures"] == ["timestampNtz", "kartothek_cube"]
    assert found["protocol"]["minReaderVersion"] == 3
    names = [f["name"] for f in json.loads(found["metaData"]["schemaString"])["fields"]]
    assert names == ["p", "t", "v1", "x"]
    drop_columns(UUID, store, ["t"])
    publish_delta(UUID, store)
    found = {name: value for action in actions(store, 2) for name, value in action.items()}
    assert "readerFeatures" not in found["protocol"]
    assert "add" not in found
    assert '"t"' not in found["metaData"]["schemaString"]


def test_each_table_has_a_log_of_its_own(store):
    tables = {"one": ROWS, "two": ROWS.select(["p", "x"])}
    store_dataframes_as_dataset(store, UUID, [tables], partition_on="p")
    published = publish_delta(UUID, store)
    assert (published.versions, published.added) == ({"one": 0, "two": 0}, 4)
    assert all(f"/{table}/" in key for table in tables for key in versions(store, table=table)[0])


def test_after_fifty_versions_there_is_a_checkpoint(store):
    stored(store)
    publish_delta(UUID, store, always=True)
    for n in range(51):
        append(store, pa.table({"p": ["d"], "x": [n], "v1": [None]}), delete_scope=[{"p": "d"}])
    assert f"{UUID}/table/_delta_log/{50:020d}.checkpoint.parquet" in log_keys(store)
    assert json.loads(store.get(f"{UUID}/table/_delta_log/_last_checkpoint")) == {"version": 50, "size": 6}
    assert last(store) == files(store)
    forget(store)
    assert publish_delta(UUID, store).version == 51


# --- statistics -----------------------------------------------------------------------------------


def test_statistics_are_those_of_delta(store):
    text = "x" * 32
    rows = {
        "x": [1, 2, None],
        "f": [1.5, None, 2.0],
        "g": [1.5, float("nan"), 2.0],
        "h": [0.0, 1.0, -0.0],
        "i": [float("inf"), 1.0, 2.0],
        "s": [f"{text}b", f"{text}a", None],
        "b": [True, None, None],
        "t": [dt.datetime(2024, 1, 1, 0, 0, 0, 1), dt.datetime(1, 1, 1), None],
        "z": pa.array([0, 1, None], pa.timestamp("us", "Europe/Berlin")),
        "d": [dt.date(1500, 1, 1), dt.date(9999, 12, 31), None],
        "n": pa.array(["1.10", "2.20", None]).cast(pa.decimal128(5, 2)),
        "w": pa.array(["1.10", "2.20", None]).cast(pa.decimal128(38, 2)),
    }
    stored(store, pa.table(rows), partition_on=None)
    publish_delta(UUID, store)
    (found,) = stats(store, 0)
    assert found["numRecords"] == 3
    assert found["minValues"] == {
        "x": 1,
        "h": 0.0,
        "s": text,
        "t": "0001-01-01T00:00:00.000000",
        "z": "1970-01-01T00:00:00.000000Z",
        "d": "1500-01-01",
        "n": 1.1,
        "i": 1.0,
    }
    assert str(found["minValues"]["h"]) == "-0.0"
    assert found["maxValues"]["s"] == "x" * 31 + "y"
    assert {k: v for k, v in found["maxValues"].items() if k != "s"} == {
        "x": 2,
        "h": 1.0,
        "t": "2024-01-01T00:00:00.000001",
        "z": "1970-01-01T00:00:00.000001Z",
        "d": "9999-12-31",
        "n": 2.2,
    }
    # Of numbers with nulls it is unknown whether some of them are NaN.
    nulls = {"x": 1, "h": 0, "i": 0, "s": 1, "b": 2, "t": 1, "z": 1, "d": 1, "n": 1, "w": 1}
    assert found["nullCount"] == nulls


def test_files_without_statistics_have_none_and_their_sizes_are_listed(store):
    with options(statistics=False):
        stored(store)
    publish_delta(UUID, store)
    assert [add.get("stats") for add in added(store, 0)] == [None, None]
    assert [add["size"] for add in added(store, 0)] == [len(store.get(key)) for key in sorted(files(store))]


# --- refusals -------------------------------------------------------------------------------------

REFUSED = {
    "uint64": (pa.table({"v1": pa.array([1], pa.uint64())}), None, "'v1' is uint64.*decimal128"),
    "time": (pa.table({"v1": pa.array([dt.time(1)])}), None, "'v1' is time64.*int64"),
    "duration": (pa.table({"v1": pa.array([dt.timedelta(1)])}), None, "'v1' is duration.*int64"),
    "null": (pa.table({"v1": pa.array([None])}), None, "'v1' is null.*drop_columns"),
    "nested": (pa.table({"v1": pa.array([[dt.time(1)]])}), None, "'v1' is time64"),
    "in a struct": (pa.table({"v1": pa.array([{"a": dt.time(1)}])}), None, "'v1', field 'a', is time64"),
    "blank": (pa.table({"v 1": [1]}), None, "'v 1' has a name with a blank"),
    "case": (pa.table({"v": [1], "V": [1]}), None, "'V' and 'v' differ by case"),
    "bytes in paths": (pa.table({"p": [b"a"], "x": [1]}), "p", "partition column 'p' is binary"),
    "quoted": (pa.table({"größe": ["a"], "x": [1]}), "größe", "'größe' is 'gr%C3%B6%C3%9Fe' in paths.*another name"),
    "keys": (pa.table({"m": pa.array([[(1, 1)]], pa.map_(pa.uint8(), pa.int64()))}), None, "'m' is a map.*signed type"),
    "zoned keys": (
        pa.table({"m": pa.array([[(1, 1)]], pa.map_(pa.timestamp("us", "Europe/Berlin"), pa.int64()))}),
        None,
        "'m' is a map with keys of timestamp.*keys in UTC",
    ),
    "empty text": (pa.table({"p": [""], "x": [1]}), "p", "'p' has the value '' that readers of Delta take for null"),
    "Hive's null": (pa.table({"p": ["__HIVE_DEFAULT_PARTITION__"], "x": [1]}), "p", "__HIVE_DEFAULT_PARTITION__"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_delta_cannot_have_is_refused_before_anything_is_written(store, case):
    rows, partition_on, message = REFUSED[case]
    stored(store, rows, partition_on)
    before = store.keys()
    with pytest.raises(Unsupported, match=f"Dataset 'uuid' cannot be published as a Delta table: .*{message}"):
        publish_delta(UUID, store, always=True)
    assert store.keys() == before
    assert load_snapshot(store, UUID).document.metadata.get("kartothek_cube.delta") is None


def decimals(text, digits, scale):
    return pa.table({"v1": pa.array([text]).cast(pa.decimal128(digits, scale))})


def test_older_files_with_decimals_of_a_smaller_scale_are_refused_until_they_are_written_anew(store):
    stored(store, decimals("1.10", 5, 2), None)
    publish_delta(UUID, store, always=True)
    append(store, decimals("2.20", 10, 2))
    append(store, decimals("1.25", 5, 2))
    assert len(versions(store)) == 3
    with pytest.warns(PublicationWarning, match=r"column 'v1' is decimal.*fewer digits .*rewrite=True"):
        append(store, decimals("3.1234", 12, 4))
    unpublish_delta(UUID, store)
    with pytest.raises(Unsupported, match="'v1'"):
        publish_delta(UUID, store)
    compact_dataset(UUID, store, rewrite=True)
    publish_delta(UUID, store)
    assert last(store) == files(store)


def test_csv_is_refused(store):
    stored(store, df_serializer=CsvSerializer())
    with pytest.raises(Unsupported, match=r"files that are not Parquet, e\.g\. 'uuid/table/p=a/"):
        publish_delta(UUID, store)


def test_files_elsewhere_and_unlisted_ones_are_refused(store):
    stored(store)
    document = json.loads(store.get(f"{UUID}.by-dataset-metadata.json"))
    (label, *_) = document["partitions"]
    document["partitions"][label]["files"]["table"] = f"other/table/{label}.parquet"
    for key in files(store):
        store.copy(key, key.replace(UUID, "other", 1))
    store.put(f"{UUID}.by-dataset-metadata.json", json.dumps(document).encode())
    forget(store)
    with pytest.raises(Unsupported, match=r"it has files elsewhere, e\.g\. 'other/table/.*copy_dataset"):
        publish_delta(UUID, store)
    del document["partitions"]
    store.put(f"{UUID}.by-dataset-metadata.json", json.dumps(document).encode())
    forget(store)
    with pytest.raises(Unsupported, match="its document lists no partitions"):
        publish_delta(UUID, store)


def test_a_dataset_that_does_not_exist_is_said(store):
    for verb in (publish_delta, unpublish_delta):
        with pytest.raises(DatasetNotFound):
            verb(UUID, store)


# --- always ---------------------------------------------------------------------------------------


def test_each_later_commit_is_published(store):
    stored(store)
    publish_delta(UUID, store, always=True)
    states = [files(store)]
    for commit in (
        lambda: append(store),
        lambda: append(store, metadata={"m": 1}),
        lambda: undo(UUID, store),
        lambda: delete_rows(UUID, store, [[("x", "==", 1)]]),
        lambda: stored(store, MORE, overwrite=True),
        lambda: update_dataset_from_dataframes([], store, UUID, delete_scope=[{"p": "b"}, {"p": "c"}]),
        lambda: append(store),
    ):
        commit()
        states.append(files(store))
    assert versions(store) == dict(enumerate(states))
    assert [f for f in verify_dataset(UUID, store).findings if f.severity != "info"] == []


def test_without_always_a_commit_is_not_published_and_always_stays(store):
    stored(store)
    publish_delta(UUID, store)
    append(store)
    assert [*versions(store)] == [0]
    publish_delta(UUID, store, always=True)
    publish_delta(UUID, store)
    append(store)
    assert [*versions(store)] == [0, 1, 2]


def test_a_publication_that_fails_is_a_warning_and_the_next_one_catches_up(store):
    stored(store)
    publish_delta(UUID, store, always=True)
    broken = FaultyStore(store, lambda call: "before" if "_delta_log" in call.key else None)
    with pytest.warns(PublicationWarning, match="'uuid': the commit .* has landed, but its Delta table stays"):
        append(broken)
    assert [*versions(store)] == [0]
    found = verify_dataset(UUID, store).findings
    assert [(f.severity, f.check) for f in found] == [("warning", "delta-behind")]
    append(store)
    assert versions(store)[1] == files(store)


def test_a_foreign_commit_is_caught_up(store):
    stored(store)
    publish_delta(UUID, store, always=True)
    make_foreign(store, UUID)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        append(store)
    assert last(store) == files(store)
    make_foreign(store, UUID)
    assert publish_delta(UUID, store).commit is None
    assert publish_delta(UUID, store).bytes == 0
    assert last(store) == files(store)


def put_by_another_library(store, values):
    """Another library puts its only file, under a name that it uses again."""
    key, sink = f"{UUID}/table/p=a/theirs.parquet", pa.BufferOutputStream()
    pq.write_table(pa.table({"x": values, "v1": [0.5] * len(values)}), sink)
    store.put(key, sink.getvalue().to_pybytes())
    document = json.loads(store.get(f"{UUID}.by-dataset-metadata.json"))
    document["partitions"]["p=a/theirs"] = {"files": {"table": key}}
    store.put(f"{UUID}.by-dataset-metadata.json", json.dumps(document).encode())
    forget(store)
    return key


@pytest.mark.filterwarnings("ignore::kartothek_cube.errors.ForeignWriterWarning")
@pytest.mark.parametrize("commits", [False, True])
def test_a_key_that_another_library_uses_again_is_added_again(store, commits):
    stored(store)
    put_by_another_library(store, [5])
    if commits:
        append(store)
    publish_delta(UUID, store)
    key = put_by_another_library(store, [*range(500, 600)])
    if commits:
        append(store)
    assert publish_delta(UUID, store).version == 1
    sizes = {add["path"].rpartition("/")[2]: add["size"] for add in added(store, 1)}
    assert sizes["theirs.parquet"] == len(store.get(key))
    assert publish_delta(UUID, store).version == 1


def test_a_log_that_another_library_removed_begins_anew(store):
    stored(store)
    publish_delta(UUID, store, always=True)
    append(store)
    for key in log_keys(store):
        store.delete(key)
    assert [f.check for f in verify_dataset(UUID, store).findings] == ["delta-log"]
    append(store)
    assert versions(store) == {0: files(store)}


@pytest.mark.parametrize("damage", ["gone", "torn", "foreign"])
def test_a_damaged_log_is_replaced_by_a_version_that_says_everything(store, damage):
    stored(store)
    publish_delta(UUID, store, always=True)
    append(store)
    append(store)
    key = f"{UUID}/table/_delta_log/{1:020d}.json"
    if damage == "gone":
        store.delete(key)
    else:
        store.put(key, b'{"add"' if damage == "torn" else b'{"add":1}\n')
    forget(store)
    assert [f.check for f in verify_dataset(UUID, store).findings] == ["delta-log"]
    assert publish_delta(UUID, store).version == 3
    assert versions(store) == {3: files(store)}
    append(store)
    assert last(store) == files(store)


def test_unpublished_there_is_no_log_and_commits_write_none(store):
    stored(store)
    before = store.keys()
    publish_delta(UUID, store, always=True)
    unpublish_delta(UUID, store)
    assert store.keys() == before
    append(store)
    assert log_keys(store) == []
    unpublish_delta(UUID, store)


# --- several publishers ---------------------------------------------------------------------------


def test_publishers_at_once_make_no_version_twice(store):
    stored(store)
    publish_delta(UUID, store, always=True)

    def work(n):
        for i in range(6):
            append(store, pa.table({"p": ["e"], "x": [100 * n + i], "v1": [0.0]}))
            publish_delta(UUID, store)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    found = versions(store)
    assert found[max(found)] == files(store)
    # Files only came: a version that lacks one of before would be a step back.
    assert all(found[n] < found[n + 1] for n in range(max(found)))
    ids = [action["txn"]["appId"] for n in found for action in actions(store, n) if "txn" in action]
    assert len(set(ids)) == len(ids)


def test_an_older_state_is_not_published_after_a_newer_one(store):
    from kartothek_cube.core.delta.publication import publish_snapshot

    stored(store)
    publish_delta(UUID, store)
    older = load_snapshot(store, UUID)
    append(store)
    publish_delta(UUID, store)
    publish_snapshot(store, older)
    forget(store)
    publish_snapshot(store, older, trusts_cache=True)
    assert [*versions(store)] == [0, 1]


# --- upkeep ---------------------------------------------------------------------------------------


def collect(store):
    return garbage_collect_dataset(UUID, store, options=NOW)


def test_garbage_collection_leaves_the_log_and_the_files_of_its_newest_version(store):
    stored(store)
    publish_delta(UUID, store)
    old = files(store)
    append(store, delete_scope=[{"p": "a"}, {"p": "b"}])
    report = collect(store)
    assert {entry.why for entry in report.waiting} == {"the newest version of the Delta table needs it"}
    assert {entry.key for entry in report.waiting} == old
    assert versions(store) == {0: old}
    publish_delta(UUID, store)
    assert set(collect(store).keys) >= old
    assert last(store) == files(store)
    assert not any(key in line for key in old for k in log_keys(store) for line in [str(store.get(k))])
    assert verify_dataset(UUID, store).findings == ()


def test_versions_that_name_removed_files_are_removed_with_them(store):
    stored(store)
    publish_delta(UUID, store, always=True)
    append(store, delete_scope=[{"p": "a"}])
    append(store)
    append(store)
    states = versions(store)
    with options(grace=timedelta(0), retain=timedelta(0)):
        garbage_collect_dataset(UUID, store, dry_run=True)
        assert versions(store) == states
        garbage_collect_dataset(UUID, store)
    assert versions(store) == {n: states[n] for n in (2, 3)}
    forget(store)
    append(store)
    assert last(store) == files(store)


def test_no_version_has_the_path_of_a_removed_file(store):
    stored(store, pa.table({"p": ["Meier", "b"], "x": [1, 2], "v1": [0.5, 1.5]}))
    publish_delta(UUID, store)
    delete_rows(UUID, store, [[("p", "==", "Meier")]])
    publish_delta(UUID, store)
    append(store)
    publish_delta(UUID, store)
    collect(store)
    assert [key for key in log_keys(store) if b"Meier" in store.get(key)] == []
    assert versions(store) == {2: files(store)}


@pytest.mark.parametrize("damage", ["gone", "torn"])
def test_garbage_collection_ends_a_log_before_a_damaged_version(store, damage):
    stored(store)
    publish_delta(UUID, store, always=True)
    first = files(store)
    append(store)
    append(store, delete_scope=[{"p": "a"}, {"p": "b"}])
    key = f"{UUID}/table/_delta_log/{1:020d}.json"
    store.delete(key) if damage == "gone" else store.put(key, b'{"add"')
    forget(store)
    collect(store)
    assert versions(store) == {0: first}
    assert first <= set(store.keys())
    append(store)
    assert last(store) == files(store)
    collect(store)
    assert not first & set(store.keys())


def test_garbage_collection_removes_a_log_of_which_nothing_can_be_read(store):
    stored(store)
    publish_delta(UUID, store, always=True)
    append(store, delete_scope=[{"p": "a"}])
    store.put(f"{UUID}/table/_delta_log/{0:020d}.json", b'{"add"')
    forget(store)
    collect(store)
    assert log_keys(store) == []
    append(store)
    assert versions(store) == {0: files(store)}


def test_two_collectors_at_once_remove_the_same_versions(store, monkeypatch):
    stored(store)
    publish_delta(UUID, store, always=True)
    append(store, delete_scope=[{"p": "a"}])
    get, others = store.get, []

    def get_after_another(key):
        if key.endswith(f"{0:020d}.json") and not others:
            others.append(key)
            collect(store)
        return get(key)

    monkeypatch.setattr(store, "get", get_after_another)
    collect(store)
    assert others
    assert last(store) == files(store)


def replaced_by_another_table(store):
    store_dataframes_as_dataset(store, UUID, [{"one": ROWS}], partition_on="p")
    publish_delta(UUID, store, always=True)
    store_dataframes_as_dataset(store, UUID, [{"two": MORE}], partition_on="p", overwrite=True)


def test_the_log_of_a_former_table_is_garbage(store):
    replaced_by_another_table(store)
    assert "delta-log" in [f.check for f in verify_dataset(UUID, store).findings if f.severity == "info"]
    waits = garbage_collect_dataset(UUID, store).waiting
    assert "log of a Delta table that is not published" in [e.why for e in waits if "/one/_delta_log/" in e.key]
    assert log_keys(store, table="one") != []
    collect(store)
    assert store.list(f"{UUID}/one/", recursive=True).keys == []
    assert versions(store, table="two") == {0: files(store)}
    assert verify_dataset(UUID, store).findings == ()


@pytest.mark.parametrize("verb", [publish_delta, unpublish_delta])
def test_the_log_of_a_former_table_is_removed_by_later_publications(store, verb):
    replaced_by_another_table(store)
    verb(UUID, store)
    assert log_keys(store, table="one") == []
    assert bool(log_keys(store, table="two")) == (verb is publish_delta)


def test_a_log_without_a_record_is_garbage(store):
    stored(store)
    publish_delta(UUID, store)
    document = json.loads(store.get(f"{UUID}.by-dataset-metadata.json"))
    del document["metadata"]["kartothek_cube.delta"]
    store.put(f"{UUID}.by-dataset-metadata.json", json.dumps(document).encode())
    forget(store)
    collect(store)
    assert log_keys(store) == []


def test_a_copy_is_not_published_a_renamed_dataset_is(store):
    stored(store)
    publish_delta(UUID, store, always=True)
    append(store)
    copy_dataset(UUID, store, "copy", store)
    assert log_keys(store, "copy") == []
    assert verify_dataset("copy", store).findings == ()
    rename_dataset(UUID, store, "new")
    assert log_keys(store) == []
    assert versions(store, "new") == {0: files(store, "new")}
    update_dataset_from_dataframes([MORE], store, "new")
    assert last(store, "new") == files(store, "new")


def test_a_deletion_removes_the_log(store):
    stored(store)
    publish_delta(UUID, store)
    delete_dataset(UUID, store)
    assert store.keys() == []


def test_a_version_that_names_a_missing_file_is_found(store):
    stored(store)
    publish_delta(UUID, store)
    append(store, delete_scope=[{"p": "a"}])
    (gone,) = {key for key in versions(store)[0] if "p=a" in key}
    store.delete(gone)
    assert "delta-file" in [f.check for f in verify_dataset(UUID, store).findings]


def test_reads_do_not_see_the_log(store):
    stored(store)
    before = read_table_arrow(UUID, store)
    publish_delta(UUID, store)
    forget(store)
    assert read_table_arrow(UUID, store).equals(before)
    assert load_snapshot(store, UUID).document.user_metadata.keys() == {"creation_time"}


@pytest.mark.parametrize("verb", [append, lambda store: delete_rows(UUID, store, [[("x", "==", 1)]])])
def test_a_checkpoint_that_cannot_be_put_is_a_warning_and_nothing_points_to_it(store, monkeypatch, verb):
    monkeypatch.setattr("kartothek_cube.core.delta.publication.CHECKPOINT_EVERY", 1)
    stored(store)
    publish_delta(UUID, store, always=True)
    broken = FaultyStore(FarStore(store), lambda call: "before" if "checkpoint.parquet" in call.key else None)
    with pytest.warns(PublicationWarning, match="'uuid': the commit .* has landed"):
        verb(broken)
    assert [key for key in log_keys(store) if "checkpoint" in key] == []


def test_handles_publish(store):
    handle = DatasetHandle(UUID, store)
    stored(store)
    assert handle.publish_delta(always=True).version == 0
    handle.unpublish_delta()
    assert log_keys(store) == []
    assert hasattr(CubeHandle, "publish_delta")


def test_pandas_frames_are_published(store):
    stored(store, pd.DataFrame({"p": ["a"], "x": [1]}))
    assert publish_delta(UUID, store).added == 1

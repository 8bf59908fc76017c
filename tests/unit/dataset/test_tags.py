"""Tags of a dataset: a name for a state, which every reader takes as ``as_of``."""

from __future__ import annotations

import datetime as dt
import io
import json
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pandas.testing import assert_frame_equal

from kartothek_cube import options
from kartothek_cube.api.dataset import (
    DatasetFactory,
    DatasetMetadata,
    connect,
    delete_dataset,
    drop_dataset_tag,
    garbage_collect_dataset,
    hash_dataset,
    history,
    list_dataset_tags,
    plan_table_scan,
    read_dataset_as_dataframes,
    read_dataset_changes,
    read_table,
    read_table_arrow,
    scan_dataset,
    store_dataframes_as_dataset,
    stream_table,
    tag_dataset,
    update_dataset_from_dataframes,
    verify_dataset,
)
from kartothek_cube.core.metadata.naming import document_key
from kartothek_cube.core.metadata.snapshot import common_metadata_bytes
from kartothek_cube.core.metadata.tag import check_tag_name, is_state_key, is_tag_key, may_be_tag, tag_key
from kartothek_cube.core.snapshots.loader import load_snapshot
from kartothek_cube.core.snapshots.time_travel import load_snapshot_as_of
from kartothek_cube.core.stores.contract import check_key
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import (
    AlreadyExists,
    CorruptDocument,
    DatasetNotFound,
    ForeignWriterWarning,
    HistoryUnavailable,
    InvalidInput,
    InvalidType,
    KeyNotFound,
)
from kartothek_cube.testing.stores import CountingStore
from tests.support.datasets import UUID

NOW = options(grace=dt.timedelta(0), retain=dt.timedelta(0))
NAMES = ["audit", "a b", "ä%", "v-2024.1", "states", "x" * 200, "2024", "fade", "日本"]


def frame(*rows: tuple[int, str, int]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["x", "p", "i1"])


FIRST, SECOND, THIRD = frame((1, "a", 10), (2, "b", 20)), frame((3, "b", 30)), frame((4, "c", 40))


@pytest.fixture
def store():
    return MemoryStore()


@pytest.fixture
def commits(store):
    """Three states: two partitions, one of them replaced, another one."""
    store_dataframes_as_dataset(store, UUID, [FIRST], partition_on=["p"], secondary_indices=["i1"])
    update_dataset_from_dataframes([SECOND], store, UUID, delete_scope=[{"p": "b"}])
    update_dataset_from_dataframes([THIRD], store, UUID)
    return [commit.id for commit in load_snapshot(store, UUID).chain]


def rows(store: Any, as_of: Any = None) -> list[int]:
    return sorted(read_table(UUID, store, as_of=as_of)["x"])


# --- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_name_becomes_a_key_that_every_store_can_hold(name):
    key = tag_key(UUID, check_tag_name(name))
    assert check_key(key) == key
    assert is_tag_key(key)
    assert not is_state_key(key)


@pytest.mark.parametrize(
    "name",
    [
        *("", "x" * 201, "日" * 30, "a/b", "a\nb", " a", "a ", "\ud800"),
        *("20240501", "2024-05-01", "2024-05-01T12", "2024-W18"),
        *("abcdef", "0F1E2D", "0" * 32, "123456"),
    ],
)
def test_a_name_that_means_something_else_is_refused(store, commits, name):
    before = store.list(recursive=True).keys
    with pytest.raises(InvalidInput, match="name"):
        tag_dataset(UUID, store, name)
    assert store.list(recursive=True).keys == before


@pytest.mark.parametrize("name", [None, 3, dt.datetime(2024, 1, 1)])
def test_a_name_is_text(store, commits, name):
    with pytest.raises(InvalidType, match="name of a tag is text"):
        tag_dataset(UUID, store, name)


@pytest.mark.parametrize("name", NAMES)
def test_a_tag_is_found_by_its_name(store, commits, name):
    assert may_be_tag(name)
    tag_dataset(UUID, store, name, as_of=commits[0])
    assert rows(store, name) == [1, 2]
    assert list_dataset_tags(UUID, store)["name"].to_list() == [name]


# --- reading --------------------------------------------------------------------------------------


def test_a_tag_names_the_newest_state_by_default(store, commits):
    tag_dataset(UUID, store, "now")
    update_dataset_from_dataframes([frame((5, "a", 50))], store, UUID)
    assert rows(store, "now") == [1, 3, 4]
    assert rows(store) == [1, 3, 4, 5]


@pytest.mark.parametrize("position", range(3))
def test_a_tag_names_a_commit_or_a_moment(store, commits, position):
    time = load_snapshot(store, UUID).chain[position].time
    tag_dataset(UUID, store, "commit", as_of=commits[position])
    tag_dataset(UUID, store, "moment", as_of=time)
    tag_dataset(UUID, store, "text", as_of=time.isoformat())
    tag_dataset(UUID, store, "tag", as_of="commit")
    listed = list_dataset_tags(UUID, store)
    assert listed["name"].to_list() == ["commit", "moment", "tag", "text"]
    assert set(listed["commit"]) == {commits[position]}
    assert set(listed["time"]) == {pd.Timestamp(time)}
    expected = rows(store, commits[position])
    assert [rows(store, name) for name in listed["name"]] == [expected] * 4


def test_a_tag_keeps_its_state_after_history_has_lost_it(store, commits):
    tag_dataset(UUID, store, "first", as_of=commits[0])
    for key in store.list(f"{UUID}/_history/").keys:
        store.delete(key)
    assert rows(store, commits[0]) == rows(store, "first") == [1, 2]
    with pytest.raises(HistoryUnavailable):
        rows(store, commits[1])
    with pytest.raises(HistoryUnavailable):
        tag_dataset(UUID, store, "second", as_of=commits[0])
    drop_dataset_tag(UUID, store, "first")
    with pytest.raises(HistoryUnavailable):
        rows(store, commits[0])


def test_the_indices_of_a_state_that_history_has_lost_are_used(store, commits):
    tag_dataset(UUID, store, "first", as_of=commits[0])
    garbage_collect_dataset(UUID, store, options=NOW)
    assert read_table(UUID, store, predicates=[[("i1", "==", 20)]], as_of="first")["x"].to_list() == [2]


READERS = {
    "read_table": lambda s, a: read_table(UUID, s, as_of=a),
    "read_table_arrow": lambda s, a: read_table_arrow(UUID, s, as_of=a).to_pandas(),
    "frames": lambda s, a: pd.concat(f["table"] for f in read_dataset_as_dataframes(UUID, s, as_of=a)),
    "stream": lambda s, a: stream_table(UUID, s, as_of=a).read_all().to_pandas(),
    "factory": lambda s, a: read_table(factory=DatasetFactory(UUID, s, as_of=a)),
    "factory as_of": lambda s, a: read_table(factory=DatasetFactory(UUID, s), as_of=a),
    "scan": lambda s, a: scan_dataset(UUID, s, as_of=a).collect().to_pandas(),
    "connect": lambda s, a: connect(s, as_of=a).sql(f'FROM "{UUID}"').df(),
}


@pytest.mark.parametrize("reader", READERS)
def test_every_reader_takes_a_tag(store, commits, reader):
    tag_dataset(UUID, store, "first", as_of=commits[0])
    found = READERS[reader](store, "first")
    assert_frame_equal(
        found[["x", "p", "i1"]].sort_values("x", ignore_index=True), FIRST, check_dtype=False, check_column_type=False
    )


def test_plans_hashes_and_metadata_take_a_tag(store, commits):
    tag_dataset(UUID, store, "first", as_of=commits[0])
    tagged, committed = (plan_table_scan(UUID, store, as_of=state) for state in ("first", commits[0]))
    assert repr(tagged) == repr(committed)
    assert hash_dataset(store, UUID, as_of="first").to_list() == hash_dataset(store, UUID, as_of=commits[0]).to_list()
    assert len(DatasetMetadata.load_from_store(UUID, store, as_of="first").partitions) == 2


def test_changes_between_tags(store, commits):
    for i, name in enumerate(["first", "second"]):
        tag_dataset(UUID, store, name, as_of=commits[i])
    changes = read_dataset_changes(UUID, store, "first", "second").read_all()
    assert sorted(zip(changes["_change_type"].to_pylist(), changes["x"].to_pylist(), strict=True)) == [
        ("delete", 2),
        ("insert", 3),
    ]
    assert read_dataset_changes(UUID, store, "second").read_all()["x"].to_pylist() == [4]
    assert read_dataset_changes(UUID, store, "second", commits[2]).read_all()["x"].to_pylist() == [4]
    with pytest.raises(InvalidInput, match="before"):
        read_dataset_changes(UUID, store, "second", "first")


def test_changes_since_a_tag_that_history_has_lost(store, commits):
    tag_dataset(UUID, store, "first", as_of=commits[0])
    tag_dataset(UUID, store, "second", as_of=commits[1])
    for i in range(40):  # more than the document's list of commits has
        update_dataset_from_dataframes([frame((100 + i, "d", i))], store, UUID, delete_scope=[{"p": "d"}])
    for key in store.list(f"{UUID}/_history/").keys:
        store.delete(key)
    changes = read_dataset_changes(UUID, store, "first").read_all()
    found = sorted(zip(changes["_change_type"].to_pylist(), changes["x"].to_pylist(), strict=True))
    assert found == [("delete", 2), ("insert", 3), ("insert", 4), ("insert", 139)]
    assert read_dataset_changes(UUID, store, "first", "second").read_all().num_rows == 2
    with pytest.raises(InvalidInput, match="before"):
        read_dataset_changes(UUID, store, "second", "first")


def test_a_tag_costs_two_reads_however_old_it_is(store, commits):
    tag_dataset(UUID, store, "first", as_of=commits[0])
    for i in range(40):
        update_dataset_from_dataframes([frame((100 + i, "d", i))], store, UUID)
    load_snapshot(store, UUID)
    counting = CountingStore(store)
    plan_table_scan(UUID, counting, as_of="first")
    assert [key for key in counting.touched("get", "get_versioned") if "_tags/" not in key] == []
    assert len(counting.touched("get", "get_versioned")) == 2


def test_moments_and_commits_do_not_look_for_tags(store, commits):
    counting = CountingStore(store)
    rows(counting, commits[0])
    rows(counting, "2999-01-01")
    rows(counting)
    assert not [call for call in counting.calls if "_tags" in call.key]


def test_an_embedded_schema_of_then_is_read(store, commits):
    tag_dataset(UUID, store, "narrow")
    wide = frame((5, "a", 50)).assign(v1=1.5)
    update_dataset_from_dataframes([wide], store, UUID, add_columns=True)
    assert "v1" not in read_table(UUID, store, as_of="narrow")
    assert "v1" in read_table(UUID, store)


# --- what bad input gets --------------------------------------------------------------------------


def test_a_tag_exists_once(store, commits):
    tag_dataset(UUID, store, "first", as_of=commits[0])
    before = {key: store.get(key) for key in store.list(recursive=True).keys}
    with pytest.raises(AlreadyExists, match=f"'{UUID}' has a tag 'first' already, of commit {commits[0]}"):
        tag_dataset(UUID, store, "first")
    assert {key: store.get(key) for key in store.list(recursive=True).keys} == before


def test_an_unknown_tag_names_those_that_were_meant(store, commits):
    with pytest.raises(HistoryUnavailable, match="has no tag 'audit': it has no tags"):
        rows(store, "audit")
    tag_dataset(UUID, store, "audit-2024")
    tag_dataset(UUID, store, "model")
    with pytest.raises(HistoryUnavailable, match=r"its tags are audit-2024, model\. Did you mean 'audit-2024'\?"):
        rows(store, "audit-2023")
    with pytest.raises(HistoryUnavailable, match="'gone'"):
        drop_dataset_tag(UUID, store, "gone")
    with pytest.raises(HistoryUnavailable, match="'gone'"):
        tag_dataset(UUID, store, "new", as_of="gone")


def test_an_abbreviated_commit_is_no_tag(store, commits):
    with pytest.raises(HistoryUnavailable, match=f"commit '{commits[0][:8]}'"):
        rows(store, commits[0][:8])


def test_a_state_out_of_history_cannot_be_tagged(store, commits):
    with pytest.raises(HistoryUnavailable):
        tag_dataset(UUID, store, "old", as_of="0" * 32)
    with pytest.raises(HistoryUnavailable):
        tag_dataset(UUID, store, "old", as_of=dt.datetime(1999, 1, 1))
    assert not [key for key in store.list(recursive=True).keys if "_tags" in key]


def test_a_dataset_must_exist():
    for verb in (tag_dataset, drop_dataset_tag):
        with pytest.raises(DatasetNotFound):
            verb("none", MemoryStore(), "first")
    with pytest.raises(DatasetNotFound):
        list_dataset_tags("none", MemoryStore())


def test_a_damaged_tag_is_named_and_can_be_dropped(store, commits):
    tag_dataset(UUID, store, "first")
    tag_dataset(UUID, store, "second")
    store.put(tag_key(UUID, "first"), b"{")
    with pytest.raises(CorruptDocument, match="first"):
        rows(store, "first")
    assert list_dataset_tags(UUID, store)["name"].to_list() == ["second"]
    drop_dataset_tag(UUID, store, "first")
    assert rows(store, "second") == [1, 3, 4]
    with pytest.raises(HistoryUnavailable):
        rows(store, "first")


def test_the_object_of_another_name_is_no_tag(store, commits):
    tag_dataset(UUID, store, "first")
    store.put(tag_key(UUID, "FIRST"), store.get(tag_key(UUID, "first")))
    with pytest.raises(CorruptDocument, match="'first'"):
        rows(store, "FIRST")


def test_a_tag_without_its_state_says_so(store, commits):
    tag_dataset(UUID, store, "first")
    (state,) = [key for key in store.list(recursive=True).keys if is_state_key(key)]
    data = store.get(state)
    store.put(state, b"no frame")
    with pytest.raises(CorruptDocument, match="state"):
        rows(store, "first")
    store.delete(state)
    with pytest.raises(HistoryUnavailable, match="'first' has lost its state"):
        rows(store, "first")
    store.put(state, data)
    assert rows(store, "first") == [1, 3, 4]


# --- dropping -------------------------------------------------------------------------------------


def test_dropping_leaves_nothing_of_the_tag(store, commits):
    before = store.list(recursive=True).keys
    tag_dataset(UUID, store, "first", as_of=commits[0])
    drop_dataset_tag(UUID, store, "first")
    assert store.list(recursive=True).keys == before
    tag_dataset(UUID, store, "first", as_of=commits[1])
    assert rows(store, "first") == rows(store, commits[1])


def test_factories_name_the_dataset(store, commits):
    factory = DatasetFactory(UUID, store)
    tag_dataset(name="first", as_of=commits[0], factory=factory)
    assert list_dataset_tags(factory=factory)["commit"].to_list() == [commits[0]]
    drop_dataset_tag(name="first", factory=factory)
    assert len(list_dataset_tags(factory=factory)) == 0


def test_deleting_a_dataset_deletes_its_tags(store, commits):
    tag_dataset(UUID, store, "first", as_of=commits[0])
    with options(grace=dt.timedelta(0), retain=dt.timedelta(0)):
        delete_dataset(UUID, store)
    assert store.list(recursive=True).keys == []


def test_an_overwrite_leaves_the_tags(store, commits):
    tag_dataset(UUID, store, "before")
    store_dataframes_as_dataset(store, UUID, [pa.table({"y": [1]})], overwrite=True)
    assert rows(store, "before") == [1, 3, 4]


# --- what shows tags ------------------------------------------------------------------------------


def test_history_shows_tags(store, commits):
    tag_dataset(UUID, store, "first", as_of=commits[0])
    tag_dataset(UUID, store, "again", as_of=commits[0])
    assert history(UUID, store)["tags"].to_list() == [[], [], ["again", "first"]]
    for i in range(40):
        update_dataset_from_dataframes([frame((100 + i, "d", i))], store, UUID, delete_scope=[{"p": "d"}])
    for key in store.list(f"{UUID}/_history/").keys:
        store.delete(key)
    last = history(UUID, store).iloc[-1]
    assert (last["commit"], last["kept"], last["tags"]) == (commits[0], True, ["again", "first"])
    assert rows(store, commits[0]) == [1, 2]
    assert pd.isna(last["parent"])


def checks(store):
    return {finding.check for finding in verify_dataset(UUID, store).findings}


def test_verification_knows_tags(store, commits):
    tag_dataset(UUID, store, "first", as_of=commits[0])
    garbage_collect_dataset(UUID, store, options=NOW)
    assert checks(store) == {"kept-for-tags"}
    assert verify_dataset(UUID, store).clean


def test_verification_names_tags_whose_files_are_gone(store, commits):
    tag_dataset(UUID, store, "first", as_of=commits[0])
    tag_dataset(UUID, store, "second", as_of=commits[1])
    garbage_collect_dataset(UUID, store, options=NOW)
    first, second = (load_snapshot_as_of(store, UUID, tag).document.files for tag in ("first", "second"))
    (gone,) = first - second
    store.delete(gone)  # as a garbage collection by kartothek does
    (finding,) = verify_dataset(UUID, store).errors
    assert (finding.check, finding.key) == ("tag-file", gone)
    assert "'first' lacks 1 file of 2" in finding.message
    with pytest.raises(KeyNotFound):
        rows(store, "first")
    assert rows(store, "second") == [1, 3]


@pytest.mark.parametrize(
    ("part", "check"), [("tag", "tag-unreadable"), ("state", "tag-state"), ("no state", "tag-state")]
)
def test_verification_names_damaged_tags(store, commits, part, check):
    tag_dataset(UUID, store, "first", as_of=commits[0])
    (state,) = [key for key in store.list(recursive=True).keys if is_state_key(key)]
    if part == "no state":
        store.delete(state)
    else:
        store.put(tag_key(UUID, "first") if part == "tag" else state, b"damaged")
    (finding,) = verify_dataset(UUID, store).errors
    assert finding.check == check
    assert "drop_dataset_tag('uuid', store, 'first')" in finding.mend


# --- foreign writers ------------------------------------------------------------------------------


def commit_as_kartothek(store, number):
    """What kartothek does: a new file, and the document without regard to commits."""
    document = json.loads(store.get(document_key(UUID)))
    key = f"{UUID}/table/p=z/{number}.parquet"
    first = next(iter(document["partitions"].values()))["files"]["table"]
    store.put(key, store.get(first))
    document["partitions"][f"p=z/{number}"] = {"files": {"table": key}}
    store.put(document_key(UUID), json.dumps(document).encode())


def test_the_newest_state_of_a_foreign_writer_can_be_tagged(store, commits):
    commit_as_kartothek(store, 1)
    expected = rows(store)
    tag_dataset(UUID, store, "foreign")
    tag_dataset(UUID, store, "again", as_of="foreign")
    listed = list_dataset_tags(UUID, store)
    assert listed["commit"].isna().all()
    assert listed["time"].isna().all()
    with pytest.warns(ForeignWriterWarning):
        update_dataset_from_dataframes([frame((5, "a", 50))], store, UUID, delete_scope=[{"p": "z"}])
    garbage_collect_dataset(UUID, store, options=NOW)
    assert rows(store, "foreign") == rows(store, "again") == expected
    assert read_dataset_changes(UUID, store, "foreign").read_all().num_rows == 2


def test_a_tag_outlives_foreign_commits(store, commits):
    tag_dataset(UUID, store, "first", as_of=commits[0])
    commit_as_kartothek(store, 1)
    assert rows(store, "first") == [1, 2]
    garbage_collect_dataset(UUID, store, options=NOW)
    assert rows(store, "first") == [1, 2]
    with pytest.raises(HistoryUnavailable):
        tag_dataset(UUID, store, "second", as_of=commits[1])


def test_a_dataset_that_lists_no_partitions_can_be_tagged(store):
    data = {f"{UUID}/table/p={p}/1.parquet": frame((x, p, x)).drop(columns="p") for x, p in ((1, "a"), (2, "b"))}
    for key, rows_of_file in data.items():
        sink = io.BytesIO()
        rows_of_file.to_parquet(sink)
        store.put(key, sink.getvalue())
    schema = pa.Schema.from_pandas(frame((1, "a", 1)))
    store.put(f"{UUID}/table/_common_metadata", common_metadata_bytes(schema))
    store.put(document_key(UUID), json.dumps({"dataset_metadata_version": 4, "dataset_uuid": UUID}).encode())
    tag_dataset(UUID, store, "two")
    store.put(f"{UUID}/table/p=c/1.parquet", store.get(f"{UUID}/table/p=a/1.parquet"))
    assert rows(store) == [1, 1, 2]
    assert rows(store, "two") == [1, 2]


def test_documents_in_msgpack_and_with_embedded_indices(store):
    store_dataframes_as_dataset(store, UUID, [FIRST], metadata_storage_format="msgpack")
    tag_dataset(UUID, store, "first")
    update_dataset_from_dataframes([SECOND], store, UUID)
    assert rows(store, "first") == [1, 2]

from __future__ import annotations

import json
from datetime import timedelta

import pandas as pd
import pytest
from storefact._hstores import HDictStore

from kartothek_cube import open_store, options
from kartothek_cube.core.dataset.maintain import copy_dataset, delete_dataset, garbage_collect_dataset, rename_dataset
from kartothek_cube.core.dataset.read import read_table
from kartothek_cube.core.dataset.write import store_dataframes_as_dataset, update_dataset_from_dataframes
from kartothek_cube.core.maintenance import copy
from kartothek_cube.core.metadata.document import parse_document
from kartothek_cube.core.metadata.naming import document_key, schema_key
from kartothek_cube.core.metadata.statistics import STATISTICS_KEY
from kartothek_cube.core.snapshots.loader import load_index, load_snapshot
from kartothek_cube.core.stores.contract import WRITES, ReadOnlyView, StoreView
from kartothek_cube.core.stores.key_value import KeyValueAdapter
from kartothek_cube.core.stores.local import LocalStore, MemoryStore
from kartothek_cube.errors import (
    AlreadyExists,
    CommitConflict,
    DatasetNotFound,
    InvalidInput,
    InvalidType,
    KeyNotFound,
    ReadOnlyStore,
)
from kartothek_cube.testing.stores import CountingStore, FaultyStore, InjectedFault, SimulatedCrash

UUID, NEW = "uuid", "copy"
ROWS = pd.DataFrame({"x": [1, 2, 3], "p": ["a", "a", "b"], "i1": [7, 8, 9]})
MORE = pd.DataFrame({"x": [4], "p": ["c"], "i1": [7]})


@pytest.fixture
def store():
    return MemoryStore()


def build(store, data=ROWS, uuid=UUID, **more):
    return store_dataframes_as_dataset(
        store, uuid, [data], **{"partition_on": ["p"], "secondary_indices": ["i1"], "overwrite": True, **more}
    )


def keys(store, prefix=""):
    """What is there, without history."""
    return {key for key in store.list(prefix, recursive=True).keys if "/_history/" not in key}


def history(store, uuid):
    return store.list(f"{uuid}/_history/").keys


def rows(store, uuid, **more):
    frame = read_table(uuid, store, **more)
    return sorted(map(tuple, frame[sorted(frame.columns)].astype(object).to_numpy().tolist()))


def document(store, uuid, msgpack=False):
    key = document_key(uuid, msgpack=msgpack)
    return parse_document(store.get(key), key)


def edit(store, uuid=UUID, **members):
    """What a writer does that knows no chain; a member that is None goes."""
    content = {**json.loads(store.get(document_key(uuid))), **members}
    store.put(document_key(uuid), json.dumps({k: v for k, v in content.items() if v is not None}).encode())


def make_foreign(store, uuid=UUID):
    """As if kartothek had written it."""
    user = {
        k: v
        for k, v in json.loads(store.get(document_key(uuid)))["metadata"].items()
        if not k.startswith("kartothek_cube.")
    }
    edit(store, uuid, metadata=user)


# --- what a copy is -------------------------------------------------------------------------------


def test_a_copy_holds_the_same_rows_metadata_and_indices(store):
    build(store, metadata={"owner": "me"})
    before = {key: store.get(key) for key in keys(store)}
    (key,) = (found := copy_dataset(UUID, store, NEW))
    assert key == document_key(NEW)
    assert found[key].uuid == NEW
    assert rows(store, NEW) == rows(store, UUID)
    assert rows(store, NEW, predicates=[[("i1", "==", 9)]]) == [(9, "b", 3)]
    assert document(store, NEW).user_metadata == document(store, UUID).user_metadata
    assert {key: store.get(key) for key in before} == before
    assert len(keys(store)) == 2 * len(before)


def test_a_copy_lives_on_its_own(store):
    build(store)
    copy_dataset(UUID, store, NEW)
    named = {k for f in load_snapshot(store, NEW).partitions.files.values() for k in f.to_pylist()}
    assert all(key.startswith(f"{NEW}/") for key in {*named, *document(store, NEW).indices.values()})
    delete_dataset(UUID, store)
    update_dataset_from_dataframes([MORE], store, NEW)
    assert len(rows(store, NEW)) == 4
    assert len(load_index(store, load_snapshot(store, NEW), "i1")[0]) == 4


def test_history_and_marks_stay_behind(store):
    build(store)
    build(store)
    store.put(f"{UUID}/_gc/1.json", b"{}")
    copy_dataset(UUID, store, NEW)
    assert (len(history(store, UUID)), history(store, NEW)) == (2, [])
    assert store.list(f"{NEW}/_gc/").keys == []
    rename_dataset(NEW, store, "renamed")
    assert history(store, "renamed") == history(store, NEW) == []
    rename_dataset(UUID, store, "moved")
    assert history(store, "moved") == history(store, UUID) == []
    assert keys(store, f"{UUID}/") == set()


def test_the_history_of_a_copy_begins_anew(store):
    build(store)
    update_dataset_from_dataframes([MORE], store, UUID)
    copy_dataset(UUID, store, NEW)
    snapshot = load_snapshot(store, NEW)
    assert not snapshot.has_foreign_commit
    assert len(snapshot.chain) == 1
    assert not {c.id for c in snapshot.chain} & {c.id for c in load_snapshot(store, UUID).chain}
    assert snapshot.schemas == load_snapshot(store, UUID).schemas


@pytest.mark.parametrize("uuid", ["a", "table", "p", "indices", "parquet", "i1"])
def test_a_uuid_that_occurs_again_in_the_keys_is_replaced_once(store, uuid):  # K13
    build(store, uuid=uuid)
    copy_dataset(uuid, store, NEW)
    assert keys(store, f"{NEW}/") == {NEW + key.removeprefix(uuid) for key in keys(store, f"{uuid}/")}
    assert rows(store, NEW) == rows(store, uuid)


def test_garbage_is_not_copied(store):  # K11
    build(store)
    build(store)
    store.put(f"{UUID}/table/p=a/left.parquet", b"")
    copy_dataset(UUID, store, NEW)
    # two partitions, the index, the schema
    assert len(keys(store, f"{NEW}/")) == 4


def test_a_msgpack_dataset_stays_one(store):  # K12
    build(store, metadata_storage_format="msgpack")
    assert list(copy_dataset(UUID, store, NEW)) == [document_key(NEW, msgpack=True)]
    assert not store.contains(document_key(NEW))
    assert rows(store, NEW) == rows(store, UUID)


def test_all_tables_are_copied(store):
    build(store, {"one": ROWS, "two": ROWS[["p", "x"]]})
    copy_dataset(UUID, store, NEW)
    for table in ("one", "two"):
        assert rows(store, NEW, table=table) == rows(store, UUID, table=table)
        assert store.contains(schema_key(NEW, table))


def test_a_dataset_without_partitions_is_copied(store):
    build(store, ROWS[:0])
    copy_dataset(UUID, store, NEW)
    assert rows(store, NEW) == []
    assert list(read_table(NEW, store).columns) == list(read_table(UUID, store).columns)


def test_an_implicit_dataset_stays_one(store):
    build(store)
    make_foreign(store)
    edit(store, partitions=None)
    copy_dataset(UUID, store, NEW)
    assert document(store, NEW).partitions is None
    assert rows(store, NEW) == rows(store, UUID)


def test_the_copy_of_another_writers_dataset_has_no_chain(store):
    build(store)
    make_foreign(store)
    copy_dataset(UUID, store, NEW)
    assert document(store, NEW).metadata == document(store, UUID).metadata
    assert store.get(schema_key(NEW)) == store.get(schema_key(UUID))
    assert rows(store, NEW) == rows(store, UUID)


def test_where_another_writer_came_last_its_schema_file_rules(store):
    build(store)
    partitions = json.loads(store.get(document_key(UUID)))["partitions"]
    edit(store, partitions=dict(list(partitions.items())[:1]))
    copy_dataset(UUID, store, NEW)
    assert [k for k in document(store, NEW).metadata if k.startswith("kartothek_cube.")] == [STATISTICS_KEY]
    assert store.get(schema_key(NEW)) == store.get(schema_key(UUID))


def test_files_that_lie_elsewhere_come_into_the_copy(store):
    build(store)
    build(store, MORE, uuid="other")
    (foreign,) = (k for k in keys(store, "other/table/") if "/p=c/" in k)
    old_index = f"{UUID}.i1.by-dataset-index.parquet"
    store.put(old_index, store.get(next(iter(keys(store, f"{UUID}/indices/")))))
    store.put("loose.parquet", store.get(foreign))
    partitions = json.loads(store.get(document_key(UUID)))["partitions"]
    edit(
        store, partitions={**partitions, "p=c/x": {"files": {"table": foreign}}}, indices={"i1": old_index}, metadata={}
    )
    copy_dataset(UUID, store, NEW)
    assert rows(store, NEW) == [(7, "a", 1), (7, "c", 4), (8, "a", 2), (9, "b", 3)]
    assert document(store, NEW).indices == {"i1": f"{NEW}.i1.by-dataset-index.parquet"}
    assert foreign.replace("other/", f"{NEW}/") in keys(store)


def test_a_file_that_lies_where_the_copy_goes_is_not_overwritten(store):
    build(store, {"label": "same", "data": {"table": ROWS}}, partition_on=None)
    build(store, {"label": "same", "data": {"table": MORE}}, partition_on=None, uuid=NEW)
    partitions = json.loads(store.get(document_key(UUID)))["partitions"]
    edit(
        store,
        partitions={**partitions, "foreign": {"files": {"table": f"{NEW}/table/same.parquet"}}},
        metadata={},
        indices={},
    )
    store.delete(document_key(NEW))
    copy_dataset(UUID, store, NEW)
    assert rows(store, NEW) == rows(store, UUID)
    assert len(rows(store, UUID)) == 4


def test_an_index_inside_the_document_is_copied(store):
    build(store)
    (label,) = (k for k in document(store, UUID).partitions.labels.to_pylist() if k.startswith("p=b"))
    edit(store, indices={"i1": {"9": [label]}})
    copy_dataset(UUID, store, NEW)
    assert document(store, NEW).indices == {"i1": {"9": [label]}}


# --- between stores -------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["memory", "local", "keyvalue"])
@pytest.mark.parametrize("target", ["memory", "local", "keyvalue"])
def test_a_copy_goes_to_another_store(tmp_path, source, target):
    one, other = (opened(kind, tmp_path / name) for kind, name in ((source, "one"), (target, "other")))
    build(one)
    assert list(copy_dataset(UUID, one, target_store=other)) == [document_key(UUID)]
    assert keys(other) == keys(one)
    assert {k: other.get(k) for k in keys(other, f"{UUID}/")} == {k: one.get(k) for k in keys(one, f"{UUID}/")}
    assert rows(other, UUID) == rows(one, UUID)


def opened(kind, path):
    return {
        "memory": MemoryStore,
        "local": lambda: LocalStore(path),
        "keyvalue": lambda: KeyValueAdapter(HDictStore()),
    }[kind]()


def test_stores_come_in_every_form(tmp_path):  # A01
    build(f"hfs://{tmp_path}/one")
    copy_dataset(UUID, lambda: open_store(tmp_path / "one"), NEW, f"hfs://{tmp_path}/other")
    assert len(rows(tmp_path / "other", NEW)) == 3


def test_files_are_streamed_in_blocks(store, monkeypatch):
    build(store)
    monkeypatch.setattr(copy, "_BLOCK", 100)
    monkeypatch.setattr(copy, "_TAIL", 50)
    seen = []

    class Watching(StoreView):
        def ranges(self, key, spans):
            seen.extend(stop - start for start, stop in spans)
            return super().ranges(key, spans)

    class Streaming(MemoryStore):
        def put_file(self, key, source):
            with_blocks = bytearray()
            while block := source.read(64):
                with_blocks += block
            self.put(key, with_blocks)

    target = Streaming()
    copy_dataset(UUID, Watching(store), NEW, target)
    assert rows(target, NEW) == rows(store, UUID)
    assert len(seen) > 10
    assert max(seen) <= 100


def test_inside_one_store_the_store_copies(store):
    build(store)
    counting = CountingStore(store)
    copy_dataset(UUID, counting, NEW)
    assert counting.counts["copy"] == 3
    assert counting.counts["put_file"] == 0


# --- a target that is there -----------------------------------------------------------------------


@pytest.mark.parametrize("storage", ["json", "msgpack"])
def test_a_target_that_exists_is_refused(store, storage):  # K10
    build(store)
    build(store, MORE, uuid=NEW, metadata_storage_format=storage)
    before = {key: store.get(key) for key in keys(store)}
    with pytest.raises(AlreadyExists, match="overwrite=True"):
        copy_dataset(UUID, store, NEW)
    assert {key: store.get(key) for key in keys(store)} == before


@pytest.mark.parametrize("storage", ["json", "msgpack"])
@pytest.mark.parametrize("foreign", [False, True])
def test_overwrite_replaces_the_target_in_one_swap(store, storage, foreign):  # K10
    build(store)
    if foreign:
        make_foreign(store)
    build(store, MORE.rename(columns={"x": "y"}), uuid=NEW, metadata_storage_format=storage)
    old = load_snapshot(store, NEW)
    files = {k: store.get(k) for k in keys(store, f"{NEW}/") if k.endswith(".parquet")}
    (key,) = copy_dataset(UUID, store, NEW, overwrite=True)
    assert key == old.key
    assert rows(store, NEW) == rows(store, UUID)
    assert {k: store.get(k) for k in files} == files
    assert not load_snapshot(store, NEW).has_foreign_commit
    update_dataset_from_dataframes([MORE], store, NEW)
    assert len(rows(store, NEW)) == 4


def test_overwrite_uses_fresh_keys(store):
    labelled = {"label": "same", "data": {"table": ROWS}}
    build(store, labelled, partition_on=None)
    other = MemoryStore()
    build(other, {"label": "same", "data": {"table": MORE}}, partition_on=None)
    data = other.get(f"{UUID}/table/same.parquet")
    copy_dataset(UUID, store, target_store=other, overwrite=True)
    assert other.get(f"{UUID}/table/same.parquet") == data
    assert rows(other, UUID) == rows(store, UUID)
    assert document(other, UUID).partitions.labels.to_pylist() == ["same"]


def test_what_overwrite_replaces_is_kept_as_long_as_history_is(store):
    build(store)
    build(store, uuid=NEW)
    replaced = keys(store, f"{NEW}/table/p=")
    copy_dataset(UUID, store, NEW, overwrite=True)
    with options(grace=timedelta(0)):
        garbage_collect_dataset(NEW, store)
        assert replaced <= keys(store, f"{NEW}/")
        assert len(history(store, NEW)) == 2
        garbage_collect_dataset(NEW, store, options=options(retain=timedelta(0)))
    assert not replaced & keys(store, f"{NEW}/")


def test_overwrite_removes_a_stale_document(store):
    build(store)
    build(store, MORE, uuid=NEW, metadata_storage_format="msgpack")
    stale = store.get(document_key(NEW, msgpack=True))
    delete_dataset(NEW, store)
    build(store, MORE, uuid=NEW)
    store.put(document_key(NEW, msgpack=True), stale)
    copy_dataset(UUID, store, NEW, overwrite=True)
    assert not store.contains(document_key(NEW, msgpack=True))
    assert rows(store, NEW) == rows(store, UUID)


@pytest.mark.parametrize("overwrite", [False, True])
def test_whoever_writes_the_target_meanwhile_wins(store, overwrite):
    build(store)
    if overwrite:
        build(store, uuid=NEW)

    class Racing(StoreView):
        def around(self, operation, key, action):
            if operation == "put_if" and key == document_key(NEW):
                build(self.inner, MORE, uuid=NEW)
            return super().around(operation, key, action)

    with pytest.raises(CommitConflict if overwrite else AlreadyExists, match="another process"):
        copy_dataset(UUID, Racing(store), NEW, overwrite=overwrite)
    assert rows(store, NEW) == [(7, "c", 4)]


def test_of_two_creators_the_one_with_json_wins(store):
    build(store, metadata_storage_format="msgpack")

    class Racing(StoreView):
        def around(self, operation, key, action):
            result = super().around(operation, key, action)
            if operation == "put_if" and key == document_key(NEW, msgpack=True):
                build(self.inner, MORE, uuid="third")
                self.inner.put(document_key(NEW), self.inner.get(document_key("third")).replace(b"third", NEW.encode()))
            return result

    with pytest.raises(AlreadyExists):
        copy_dataset(UUID, Racing(store), NEW)
    assert not store.contains(document_key(NEW, msgpack=True))


@pytest.mark.parametrize("storage", ["json", "msgpack"])
@pytest.mark.parametrize("moment", ["copy", "put_if"])
def test_a_dataset_that_was_created_in_the_other_encoding_meanwhile_stays(store, storage, moment):
    build(store, metadata_storage_format=storage)
    other, once = "json" if storage == "msgpack" else "msgpack", iter([True])

    class Racing(StoreView):
        def around(self, operation, key, action):
            if operation == moment and next(once, False):
                build(self.inner, MORE, uuid=NEW, metadata_storage_format=other)
            return super().around(operation, key, action)

    with pytest.raises(AlreadyExists, match="another process"):
        copy_dataset(UUID, Racing(store), NEW)
    assert rows(store, NEW) == [(7, "c", 4)]
    assert not store.contains(document_key(NEW, msgpack=storage == "msgpack"))


def test_an_implicit_copy_needs_a_place_of_its_own(store):
    build(store)
    make_foreign(store)
    edit(store, partitions=None)
    store.put(f"{NEW}/table/p=a/left.parquet", b"")
    with pytest.raises(AlreadyExists, match="left"):
        copy_dataset(UUID, store, NEW)
    store.delete(f"{NEW}/table/p=a/left.parquet")
    build(store, MORE, uuid=NEW)
    with pytest.raises(AlreadyExists):
        copy_dataset(UUID, store, NEW, overwrite=True)
    assert rows(store, NEW) == [(7, "c", 4)]


# --- refusals and failures ------------------------------------------------------------------------


@pytest.mark.parametrize("target", [{}, {"target_dataset_uuid": UUID}, {"target_store": True}])
def test_a_copy_onto_itself_is_refused(store, target):  # K09
    build(store)
    if "target_store" in target:
        target = {"target_store": ReadOnlyView(store)}
    with pytest.raises(InvalidInput, match="same UUID within the same store"):
        copy_dataset(UUID, store, **target, overwrite=True)


@pytest.mark.parametrize("verb", [copy_dataset, rename_dataset])
@pytest.mark.parametrize("name", ["a.b", "a/b", "ä", "a\n"])
def test_a_name_that_is_none_is_refused(store, verb, name):
    build(store)
    before = keys(store)
    with pytest.raises(InvalidInput, match="UUID"):
        verb(UUID, store, name)
    assert keys(store) == before


def test_a_missing_source_and_a_target_for_reading_only_are_refused(store):
    with pytest.raises(DatasetNotFound):
        copy_dataset(UUID, store, NEW)
    build(store)
    with pytest.raises(ReadOnlyStore):
        copy_dataset(UUID, ReadOnlyView(store), NEW)
    assert len(copy_dataset(UUID, ReadOnlyView(store), NEW, MemoryStore())) == 1


@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize("kind", ["memory", "local"])
def test_a_file_that_vanished_is_named_and_no_copy_appears(tmp_path, same, kind):
    store = opened(kind, tmp_path / "one")
    target = store if same else opened(kind, tmp_path / "other")
    build(store)
    key = load_snapshot(store, UUID).files[0].as_py()
    store.delete(key)
    with pytest.raises(KeyNotFound, match=key):
        copy_dataset(UUID, store, NEW, target)
    assert not target.contains(document_key(NEW))


def write_faults(fault):
    """Fail at the n-th write, for every n until the call goes through."""

    def failing(nth):
        seen = []

        def fail(call):
            seen.extend([call] if call.operation in WRITES else [])
            return fault if call.operation in WRITES and len(seen) == nth else None

        return fail

    return failing


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("fault", ["crash", "crash_after"])
def test_after_a_crash_it_can_be_run_again(fault, overwrite):
    failing, crashes = write_faults(fault), 0
    for nth in range(1, 15):
        store = MemoryStore()
        build(store)
        if overwrite:
            build(store, MORE, uuid=NEW)
        old = rows(store, NEW) if overwrite else None
        try:
            copy_dataset(UUID, FaultyStore(store, failing(nth)), NEW, overwrite=overwrite)
        except SimulatedCrash:
            crashes += 1
        if store.contains(document_key(NEW)):
            assert rows(store, NEW) in (old, rows(store, UUID))
        if not store.contains(document_key(NEW)) or overwrite:
            copy_dataset(UUID, store, NEW, overwrite=overwrite)
        assert rows(store, NEW) == rows(store, UUID)
    assert crashes >= 4


def test_a_lost_answer_of_the_last_put_is_no_failure(store):
    build(store)
    copy_dataset(
        UUID,
        FaultyStore(
            store, lambda call: "after" if call.key == document_key(NEW) and call.operation == "put_if" else None
        ),
        NEW,
    )
    assert rows(store, NEW) == rows(store, UUID)


def test_an_error_is_passed_on(store):
    build(store)
    with pytest.raises(InjectedFault):
        copy_dataset(UUID, FaultyStore(store, lambda call: "before" if call.operation == "copy" else None), NEW)
    assert not store.contains(document_key(NEW))


# --- renaming -------------------------------------------------------------------------------------


@pytest.mark.parametrize("storage", ["json", "msgpack"])
def test_a_renamed_dataset_is_the_same_under_another_name(store, storage):
    build(store, metadata={"owner": "me"}, metadata_storage_format=storage)
    before = rows(store, UUID)
    renamed = rename_dataset(UUID, store, NEW)
    assert (renamed.uuid, renamed.metadata["owner"]) == (NEW, "me")
    assert rows(store, NEW) == before
    assert all(key.startswith((f"{NEW}/", f"{NEW}.")) for key in keys(store))
    assert "kartothek_cube.moving" not in load_snapshot(store, NEW).document.metadata
    update_dataset_from_dataframes([MORE], store, NEW)
    assert len(rows(store, NEW)) == 4


def test_a_new_name_that_is_taken_is_refused(store):
    build(store)
    build(store, MORE, uuid=NEW)
    with pytest.raises(AlreadyExists, match="delete it first"):
        rename_dataset(UUID, store, NEW)
    assert len(rows(store, UUID)) == 3
    with pytest.raises(InvalidInput, match="itself"):
        rename_dataset(UUID, store, UUID)
    assert len(rows(store, UUID)) == 3


def test_a_commit_while_renaming_is_not_lost(store):
    build(store)

    class Racing(StoreView):
        def around(self, operation, key, action):
            if operation == "put_if" and key == document_key(NEW):
                update_dataset_from_dataframes([MORE], self.inner, UUID)
            return super().around(operation, key, action)

    with pytest.raises(CommitConflict, match="changed while it was being renamed"):
        rename_dataset(UUID, Racing(store), NEW)
    assert len(rows(store, UUID)) == 4
    delete_dataset(NEW, store)
    rename_dataset(UUID, store, NEW)
    assert len(rows(store, NEW)) == 4


def test_nobody_commits_onto_a_dataset_that_is_being_deleted_under_its_old_name(store):
    build(store)
    with pytest.raises(SimulatedCrash):
        rename_dataset(UUID, FaultyStore(store, lambda call: "crash" if call.operation == "delete" else None), NEW)
    with pytest.raises(CommitConflict):
        update_dataset_from_dataframes([MORE], store, UUID)
    rename_dataset(UUID, store, NEW)
    assert keys(store, UUID) == set()


@pytest.mark.parametrize("foreign", [False, True])
def test_a_rename_is_not_ended_onto_a_dataset_that_is_not_its_copy(store, foreign):
    build(store)
    if foreign:
        make_foreign(store)
    expected = rows(store, UUID)
    with pytest.raises(SimulatedCrash):
        rename_dataset(UUID, FaultyStore(store, lambda call: "crash" if call.operation == "delete" else None), NEW)
    delete_dataset(NEW, store)
    build(store, MORE, uuid=NEW)
    with pytest.raises(AlreadyExists):
        rename_dataset(UUID, store, NEW)
    assert rows(store, UUID) == expected
    delete_dataset(NEW, store)
    rename_dataset(UUID, store, NEW)
    assert rows(store, NEW) == expected


def test_a_rename_is_ended_although_the_copy_was_updated(store):
    build(store)
    with pytest.raises(SimulatedCrash):
        rename_dataset(UUID, FaultyStore(store, lambda call: "crash" if call.operation == "delete" else None), NEW)
    update_dataset_from_dataframes([MORE], store, NEW)
    rename_dataset(UUID, store, NEW)
    assert (len(rows(store, NEW)), keys(store, UUID)) == (4, set())


@pytest.mark.parametrize("overwrite", ["no", 0, None, ["i1"]])
def test_overwrite_is_true_or_false(store, overwrite):
    build(store)
    build(store, MORE, uuid=NEW)
    with pytest.raises(InvalidType, match="overwrite"):
        copy_dataset(UUID, store, NEW, overwrite=overwrite)
    assert rows(store, NEW) == [(7, "c", 4)]


@pytest.mark.parametrize("fault", ["crash", "crash_after"])
def test_a_rename_that_crashed_leaves_the_rows_under_one_name_at_least(fault):
    failing, crashes, refused = write_faults(fault), 0, 0
    for nth in range(1, 15):
        store = MemoryStore()
        build(store)
        expected = rows(store, UUID)
        try:
            rename_dataset(UUID, FaultyStore(store, failing(nth)), NEW)
        except SimulatedCrash:
            crashes += 1
        assert readable(store, NEW, expected) or rows(store, UUID) == expected
        if store.contains(document_key(UUID)):
            try:
                rename_dataset(UUID, store, NEW)
            except AlreadyExists:  # both are whole
                refused += 1
                delete_dataset(NEW, store)
                rename_dataset(UUID, store, NEW)
        assert rows(store, NEW) == expected
        assert not keys(store, UUID)
    assert crashes >= 10
    assert refused <= 2


def readable(store, uuid, expected):
    return store.contains(document_key(uuid)) and rows(store, uuid) == expected


def test_a_read_only_view_of_the_target_is_a_source(store):
    build(store)
    copy_dataset(UUID, ReadOnlyView(store), NEW, store)
    assert read_table(NEW, store).equals(read_table(UUID, store))

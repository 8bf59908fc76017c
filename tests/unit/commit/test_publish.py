from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from threading import Thread

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from simplekv.fs import FilesystemStore
from storefact._hstores import HFilesystemStore

from kartothek_cube.core.commit import commit
from kartothek_cube.core.commit.change import Change
from kartothek_cube.core.commit.commit import commit_change
from kartothek_cube.core.dataset.read import read_table_arrow
from kartothek_cube.core.io.formats import ParquetFormat
from kartothek_cube.core.metadata import snapshot as snapshot_module
from kartothek_cube.core.metadata.commit_log import COMMITS_KEY, LENGTH, SCHEMA_KEY
from kartothek_cube.core.metadata.document import parse_document, render_document
from kartothek_cube.core.metadata.history_entry import history_key
from kartothek_cube.core.metadata.naming import document_key, schema_key
from kartothek_cube.core.metadata.snapshot import CommitResult, common_metadata_bytes, parse_common_metadata
from kartothek_cube.core.metadata.statistics import STATISTICS_KEY
from kartothek_cube.core.runtime.options import options
from kartothek_cube.core.snapshots.documents import update_schema_file
from kartothek_cube.core.snapshots.loader import find_snapshot, load_index, load_snapshot
from kartothek_cube.core.stores.key_value import KeyValueAdapter
from kartothek_cube.core.stores.local import LocalStore, MemoryStore
from kartothek_cube.core.write.layout import StageRequest
from kartothek_cube.core.write.prepare import PartitionRows
from kartothek_cube.core.write.stage import stage_parts
from kartothek_cube.errors import (
    AtomicityRequired,
    CommitConflict,
    CommitOutcomeUnknown,
    CorruptDocument,
    ForeignWriterWarning,
    InvalidInput,
    StagedFilesLost,
)
from kartothek_cube.testing.stores import CountingStore, FaultyStore, InjectedFault, SimulatedCrash
from tests.caches import forget
from tests.support.commits import UUID, edit, foreign_commit, labels, make_change, raw, wait_for_waiting, write

DOCUMENT = document_key(UUID)
ROWS = {"x": [1, 2, 3], "p": ["a", "a", "b"], "v1": [0.5, None, 1.5]}
MORE = {"x": [4], "p": ["c"], "v1": [2.5]}


@pytest.fixture(params=["memory", "local"])
def store(request, tmp_path):
    return MemoryStore() if request.param == "memory" else LocalStore(tmp_path)


def rows(store, columns=("x",)):
    table = read_table_arrow(UUID, store, columns=list(columns))
    return sorted(zip(*table.to_pydict().values(), strict=True), key=str)


def commits(store):
    return [c.id for c in load_snapshot(store, UUID).chain]


# --- creating, updating, replacing ----------------------------------------------------------------


def test_a_dataset_is_created(store):
    snapshot = write(store, ROWS, on=["p"], index=["x"], label="base", metadata={"owner": "me"})
    assert labels(snapshot) == ["p=a/base", "p=b/base"]
    assert store.list(f"{UUID}/table/", recursive=True).keys == [
        f"{UUID}/table/_common_metadata",
        *(f"{UUID}/table/p={p}/base.parquet" for p in "ab"),
    ]
    document = raw(store)
    assert list(document) == [
        "dataset_metadata_version",
        "dataset_uuid",
        "indices",
        "metadata",
        "partitions",
        "partition_keys",
    ]
    assert document["partition_keys"] == ["p"]
    assert document["metadata"]["owner"] == "me"
    assert datetime.fromisoformat(document["metadata"]["creation_time"]).tzinfo is None
    assert rows(store, ["p", "x", "v1"]) == [("a", 1, 0.5), ("a", 2, None), ("b", 3, 1.5)]


def test_the_snapshot_of_a_commit_is_the_one_that_is_read(store):
    made = write(store, ROWS, on=["p"], index=["x"])
    fresh = load_snapshot(CountingStore(store), UUID)
    assert (made.uuid, made.key, made.document, made.schemas, made.values) == (
        fresh.uuid,
        fresh.key,
        fresh.document,
        fresh.schemas,
        fresh.values,
    )
    assert not store.changed(made.key, made.token)


def test_partitions_are_added_and_removed(store):
    first = write(store, ROWS, on=["p"], index=["x"], label="one")
    second = write(store, MORE, on=["p"], index=["x"], label="two", removed=["p=a/one"], metadata={"rev": 2})
    assert labels(second) == ["p=b/one", "p=c/two"]
    assert rows(store) == [(3,), (4,)]
    assert second.document.user_metadata == {**first.document.user_metadata, "rev": 2}
    assert second.document.indices["x"] != first.document.indices["x"]
    index, _ = load_index(store, second, "x")
    assert dict(zip(index.values.to_pylist(), index.labels.to_pylist(), strict=True)) == {3: "p=b/one", 4: "p=c/two"}
    assert second.chain[1].parent == second.chain[0].id == first.chain[0].id


def test_the_index_file_forgets_what_was_removed(store):
    write(store, ROWS, on=["p"], index=["x"], label="one")
    snapshot = write(store, MORE, on=["p"], index=["x"], label="two", removed=["p=a/one"])
    from kartothek_cube.core.io.parquet_rows import read_columns

    assert read_columns(store, snapshot.document.indices["x"], UUID)[0].to_pydict() == {
        "x": [3, 4],
        "partition": [["p=b/one"], ["p=c/two"]],
    }


def test_metadata_alone_leaves_files_and_indices_alone(store):
    first = write(store, ROWS, on=["p"], index=["x"])
    counting = CountingStore(store)
    second = commit_change(
        counting, make_change(store, pa.table(ROWS).slice(0, 0), ["p"], ["x"], metadata={"a": 1}), first
    )
    assert second.document.indices == first.document.indices
    assert labels(second) == labels(first)
    assert counting.touched("put", "put_if") == [history_key(UUID, second.result.id), DOCUMENT]


def test_overwriting_starts_from_nothing_but_the_chain(store):
    write(store, ROWS, on=["p"], index=["x"], metadata={"a": 1})
    snapshot = write(store, {"y": ["t"]}, replace=True, metadata={"b": 2})
    assert snapshot.schema == pa.schema([("y", pa.string())])
    assert (snapshot.partition_keys, dict(snapshot.document.indices)) == ((), {})
    assert "a" not in snapshot.document.user_metadata
    assert snapshot.document.user_metadata["b"] == 2
    assert len(snapshot.chain) == 2
    assert rows(store, ["y"]) == [("t",)]
    assert parse_common_metadata(store.get(schema_key(UUID)), "there").names == ["y"]


def test_everything_can_be_removed(store):
    write(store, ROWS, on=["p"], index=["x"], label="one")
    empty = pa.table(ROWS).slice(0, 0)
    write(store, empty, on=["p"], index=["x"], removed=["p=a/one", "p=b/one"])
    snapshot = load_snapshot(CountingStore(store), UUID)
    assert (labels(snapshot), raw(store)["partitions"]) == ([], {})
    assert not snapshot.has_foreign_commit
    assert rows(store) == []
    again = write(store, MORE, on=["p"], index=["x"])
    assert len(again.chain) == 3
    assert rows(store) == [(4,)]


def test_the_chain_is_cut_at_its_length(store):
    for i in range(LENGTH + 2):
        write(store, {"x": [i]})
    assert len(commits(store)) == LENGTH


def test_two_new_partitions_need_two_labels(store):
    change = make_change(store, ROWS, label="one")
    with pytest.raises(InvalidInput, match="same label"):
        commit_change(store, replace(change, receipts=change.receipts * 2), None)


def test_a_label_that_is_there_already_is_replaced_also_in_the_index(store):
    write(store, {"x": [1], "v1": ["old"]}, index=["x"], label="one")
    write(store, {"x": [2], "v1": ["kept"]}, index=["x"], label="two")
    snapshot = write(store, {"x": [3], "v1": ["new"]}, index=["x"], label="one", removed=["one"])
    assert labels(snapshot) == ["two", "one"]
    assert dict(
        zip(snapshot.indices["x"].labels.to_pylist(), snapshot.indices["x"].values.to_pylist(), strict=True)
    ) == {"two": 2, "one": 3}


def test_no_index_is_left_behind_by_a_commit_that_does_not_know_it(store):
    base = write(store, ROWS, index=["x"])
    with pytest.raises(InvalidInput, match=r"secondary ind.*'x'|\['x'\]"):
        commit_change(store, make_change(store, ROWS), base)


def two_tables(store, label, x=1, **more):
    request = StageRequest(UUID, (), ("x",), (), ParquetFormat())
    rows = {"table": pa.table({"x": [x], "v1": ["a"]}), "other": pa.table({"x": [x], "v2": [2.0]})}
    receipts = [
        receipt
        for table, part in rows.items()
        for receipt in stage_parts(
            store, dataclasses.replace(request, table=table), [PartitionRows({}, label, part)], part.schema
        )
    ]
    return Change(UUID, tuple(receipts), {table: part.schema for table, part in rows.items()}, (), ("x",), **more)


def test_tables_of_one_label_are_one_partition(store):
    commit_change(store, two_tables(store, "one"), None)
    snapshot = commit_change(store, two_tables(store, "two", x=2), load_snapshot(store, UUID))
    assert labels(snapshot) == ["one", "two"]
    assert {t: f.to_pylist() for t, f in snapshot.partitions.files.items()} == {
        "table": [f"{UUID}/table/one.parquet", f"{UUID}/table/two.parquet"],
        "other": [f"{UUID}/other/one.parquet", f"{UUID}/other/two.parquet"],
    }
    assert (snapshot.indices["x"].values.to_pylist(), snapshot.indices["x"].labels.to_pylist()) == (
        [1, 2],
        ["one", "two"],
    )
    forget(store)
    again = load_snapshot(store, UUID)
    assert not again.has_foreign_commit
    assert {t: s.names for t, s in again.schemas.items()} == {"table": ["v1", "x"], "other": ["v2", "x"]}


def test_an_update_has_the_tables_of_its_dataset(store):
    base = commit_change(store, two_tables(store, "one"), None)
    with pytest.raises(InvalidInput, match=r"different tables.*\['table'\], not \['other', 'table'\]"):
        commit_change(store, make_change(store, {"x": [2], "v1": ["b"]}, index=["x"]), base)


def test_tables_agree_on_the_types_of_shared_columns(store):
    change = two_tables(store, "one")
    schemas = {**change.schemas, "other": pa.schema([("x", pa.string()), ("v2", pa.float64())])}
    with pytest.raises(InvalidInput, match=r"column 'x'.*int64 in table 'table', string in table 'other'"):
        commit_change(store, replace(change, schemas=schemas), None)


# --- the schema -----------------------------------------------------------------------------------


def schema_file(store):
    return parse_common_metadata(store.get(schema_key(UUID)), "there")


def test_schema_is_widened_after_the_document(store):
    write(store, {"x": pa.array([1], pa.int8()), "y": pa.nulls(1)})
    counting = CountingStore(store)
    base = load_snapshot(counting, UUID)
    commit_change(counting, make_change(store, {"x": pa.array([300], pa.int16()), "y": ["t"]}), base)
    assert counting.touched("put_if") == [DOCUMENT, schema_key(UUID)]
    assert load_snapshot(store, UUID).schema == pa.schema([("x", pa.int16()), ("y", pa.string())])
    assert schema_file(store) == pa.schema([("x", pa.int64()), ("y", pa.string())])
    assert rows(store, ["x", "y"]) == [(1, None), (300, "t")]


def test_schema_file_that_is_up_to_date_is_not_written_again(store):
    write(store, ROWS, on=["p"])
    before = store.get_versioned(schema_key(UUID))
    write(store, MORE, on=["p"])
    assert store.get_versioned(schema_key(UUID)) == before


def test_incompatible_schema_is_refused_before_anything_is_written(store):
    base = write(store, {"x": [1], "v1": [1]}, index=["x"])
    change = make_change(store, {"x": [1], "v1": ["t"]}, index=["x"])
    before = {k: store.get(k) for k in store.list(recursive=True).keys}
    with pytest.raises(InvalidInput, match="Schema violation"):
        commit_change(store, change, base)
    assert {k: store.get(k) for k in store.list(recursive=True).keys} == before


@pytest.mark.parametrize(
    "damage", [lambda s: s.delete(schema_key(UUID)), lambda s: s.put(schema_key(UUID), b"damaged")]
)
def test_missing_or_damaged_schema_file_is_repaired_by_the_next_commit(store, damage):
    write(store, {"x": [1]})
    damage(store)
    assert rows(store) == [(1,)]
    write(store, {"x": [2]})
    assert schema_file(store) == pa.schema([("x", pa.int64())])


@pytest.mark.parametrize(
    ("stored", "schema", "covers"),
    [
        ([("x", pa.string())], [("x", pa.null())], True),
        ([("x", pa.null())], [("x", pa.string())], False),
        ([("x", pa.string())], [("x", pa.int64())], False),
        ([("x", pa.null()), ("y", pa.null())], [("y", pa.null()), ("x", pa.null())], False),
        ([("x", pa.null())], [("x", pa.null()), ("y", pa.null())], False),
    ],
)
def test_schema_file_is_not_made_narrower(store, stored, schema, covers):
    store.put(schema_key(UUID), common_metadata_bytes(pa.schema(stored)))
    update_schema_file(store, schema_key(UUID), pa.schema(schema))
    assert schema_file(store) == pa.schema(stored if covers else schema)


def test_schema_file_that_cannot_be_written_does_not_undo_the_commit():
    memory = MemoryStore()
    base = write(memory, {"x": pa.nulls(1)})
    landed = []

    def fail(call):
        landed.append(call.operation == "put_if" and call.key == DOCUMENT)
        return "before" if any(landed[:-1]) and call.key == schema_key(UUID) else None

    store = FaultyStore(memory, fail)
    snapshot = commit_change(store, make_change(memory, {"x": [2]}), base)
    assert snapshot.schema == pa.schema([("x", pa.int64())])
    assert rows(memory) == [(2,), (None,)]
    assert schema_file(memory) == pa.schema([("x", pa.null())])
    write(memory, {"x": [3]})
    assert schema_file(memory) == pa.schema([("x", pa.int64())])


# --- conflicts ------------------------------------------------------------------------------------


def test_two_appends_go_together():
    store = MemoryStore()
    base = write(store, {"x": [1]}, index=["x"])
    late = make_change(store, {"x": [3]}, index=["x"])
    write(store, {"x": [2]}, index=["x"])
    counting = CountingStore(store)
    landed = commit_change(counting, late, base)
    assert rows(store) == [(1,), (2,), (3,)]
    assert landed.result == CommitResult(late.commit, 1)
    assert not [
        key
        for key in counting.touched("get", "get_versioned", "tail", "ranges")
        if key in {r.key for r in late.receipts}
    ]
    assert sorted(load_index(store, load_snapshot(store, UUID), "x")[0].values.to_pylist()) == [1, 2, 3]


def test_the_second_of_two_commits_that_contradict_names_both():
    store = MemoryStore()
    base = write(store, {"x": [1]})
    late = make_change(store, {"x": [3]}, label="same")
    winner = write(store, {"x": [2]}, label="same")
    with pytest.raises(CommitConflict) as error:
        commit_change(store, late, base)
    for part in (late.commit, winner.chain[-1].id, UUID):
        assert part in str(error.value)
    assert rows(store) == [(1,), (2,)]


class Intruder(CountingStore):
    """Lets somebody else in right before the document is put."""

    def __init__(self, inner, action):
        super().__init__(inner)
        self.action = action

    def around(self, operation, key, action):
        if operation == "put_if" and key == DOCUMENT and self.action is not None:
            intrude, self.action = self.action, None
            intrude()
        return super().around(operation, key, action)


def test_append_that_comes_in_between_is_kept(store):
    base = write(store, {"x": [1]})
    change = make_change(store, {"x": [3]})
    landed = commit_change(Intruder(store, lambda: write(store, {"x": [2]})), change, base)
    assert rows(store) == [(1,), (2,), (3,)]
    assert landed.result == CommitResult(change.commit, 2)


def test_foreign_append_that_comes_in_between_is_kept(store):
    base = write(store, {"x": ["t"]})
    change = make_change(store, {"x": ["u"]})
    with pytest.warns(ForeignWriterWarning, match="kartothek"):
        landed = commit_change(Intruder(store, lambda: foreign_commit(store)), change, base)
    assert len(landed.partitions) == 3
    assert [c.id for c in landed.chain] == [change.commit]


@pytest.mark.parametrize(
    ("intrude", "error", "text"),
    [
        (lambda s: write(s, {"x": [2]}, label="same"), CommitConflict, "commit .* 'same' was added"),
        (lambda s: s.delete(DOCUMENT), CommitConflict, "deletion"),
        (lambda s: s.put(DOCUMENT, b"damaged"), CorruptDocument, DOCUMENT),
    ],
)
def test_whoever_comes_in_between_wins(store, intrude, error, text):
    base = write(store, {"x": [1]})
    change = make_change(store, {"x": [3]}, label="same")
    with pytest.raises(error, match=text):
        commit_change(Intruder(store, lambda: intrude(store)), change, base)
    found = find_snapshot(store, UUID) if store.contains(DOCUMENT) and store.get(DOCUMENT) != b"damaged" else None
    assert found is None or change.commit not in [c.id for c in found.chain]


def test_retries_are_bounded(store, monkeypatch):
    monkeypatch.setattr(commit, "pause", lambda longest: None)
    base = write(store, {"x": [1]})
    change = make_change(store, {"x": [3]})

    def always(call):
        if call.operation == "put_if" and call.key == DOCUMENT:
            write(store, {"x": [2]})

    with options(commit_retries=2), pytest.raises(CommitConflict, match="3 times"):
        commit_change(FaultyStore(store, always), change, base)
    # Where the swap tells whether the base is the newest state, the first one is no retry.
    assert rows(store) == [(1,), *[(2,)] * (4 if store.is_remote else 3)]


def test_commits_that_wait_share_a_swap(store):
    base = write(store, {"x": [0]}, index=["x"])
    changes = [make_change(store, {"x": [i]}, index=["x"], metadata={str(i): i}) for i in range(1, 6)]
    counting, others = CountingStore(store), []

    def hold(call):
        """While the first commit is put, the others come to stand in line."""
        if call.operation == "put_if" and call.key == DOCUMENT and not others:
            others.extend(Thread(target=commit_change, args=(counting, change, base)) for change in changes[1:])
            for thread in others:
                thread.start()
            wait_for_waiting(counting, 4)

    commit_change(FaultyStore(counting, hold), changes[0], base)
    for thread in others:
        thread.join()
    found = load_snapshot(store, UUID)
    assert rows(store) == [(i,) for i in range(6)]
    assert {c.id for c in found.chain[1:]} == {c.commit for c in changes}
    assert found.document.user_metadata.keys() >= {"1", "5"}
    assert counting.touched("put_if").count(DOCUMENT) == 2
    assert len(load_index(store, found, "x")[0]) == 6


def test_files_that_were_collected_are_missed_before_the_swap(store):
    base = write(store, {"x": [1]})
    change = make_change(store, {"x": [3]})
    old = replace(
        change,
        receipts=tuple(dataclasses.replace(r, staged=datetime.now(UTC) - timedelta(hours=13)) for r in change.receipts),
    )
    store.delete(change.receipts[0].key)
    with pytest.raises(StagedFilesLost, match="grace period"):
        commit_change(store, old, base)
    assert rows(store) == [(1,)]


def test_old_files_that_are_there_are_committed(store):
    base = write(store, {"x": [1]})
    change = make_change(store, {"x": [3]})
    commit_change(
        store,
        replace(
            change,
            receipts=tuple(
                dataclasses.replace(r, staged=datetime.now(UTC) - timedelta(days=3)) for r in change.receipts
            ),
        ),
        base,
    )
    assert rows(store) == [(1,), (3,)]


def test_json_document_that_kartothek_puts_beside_a_msgpack_one_gets_the_commit_too(store):
    """It reads the msgpack document, and writes a JSON one: from then on that one counts."""
    base = write(store, {"x": [1]}, msgpack=True)
    change = make_change(store, {"x": [3]})

    def shadow(call):
        if call.operation == "put_if" and call.key == document_key(UUID, msgpack=True) and not store.contains(DOCUMENT):
            store.put(DOCUMENT, render_document(base.document))

    with pytest.warns(UserWarning, match="two documents"):
        commit_change(FaultyStore(store, shadow), change, base)
    assert rows(store) == [(1,), (3,)]


def test_of_two_creators_one_wins_and_the_schema_file_is_the_winners(store):
    change = make_change(store, {"x": ["text"]})
    with pytest.raises(CommitConflict):
        commit_change(Intruder(store, lambda: write(store, {"x": [1]})), change, None)
    with pytest.raises(CommitConflict):
        commit_change(store, change, None)
    assert rows(store) == [(1,)]
    assert schema_file(store) == pa.schema([("x", pa.int64())])


def test_schema_file_left_by_a_deleted_dataset_is_replaced(store):
    store.put(schema_key(UUID), common_metadata_bytes(pa.schema([("old", pa.string())])))
    write(store, {"x": [1]})
    assert schema_file(store) == pa.schema([("x", pa.int64())])


# --- lost answers and failures --------------------------------------------------------------------


def on_document(fault, *, times=1, then=None):
    """Fail at the first conditional puts of the document."""
    count = 0

    def fail(call):
        nonlocal count
        if call.operation == "put_if" and call.key == DOCUMENT:
            count += 1
            return fault if count <= times else then
        return None

    return fail


@pytest.mark.parametrize("new", [True, False])
@pytest.mark.parametrize(("fault", "times"), [("after", 1), ("before", 1), ("before", 2)])
def test_lost_answer_or_passing_failure_is_a_success_with_one_commit(store, new, fault, times):
    base = None if new else write(store, {"x": [1]})
    change = make_change(store, {"x": [2]})
    snapshot = commit_change(FaultyStore(store, on_document(fault, times=times)), change, base)
    assert snapshot.chain[-1].id == change.commit
    assert commits(store).count(change.commit) == 1
    assert rows(store) == ([(2,)] if new else [(1,), (2,)])
    assert not store.changed(snapshot.key, snapshot.token)
    write(store, {"x": [3]})
    assert len(commits(store)) == (2 if new else 3)


def test_lost_answer_is_found_although_others_committed_meanwhile(store):
    base = write(store, {"x": [1]})
    change = make_change(store, {"x": [2]})

    class Late(CountingStore):
        def around(self, operation, key, action):
            result = super().around(operation, key, action)
            if operation == "put_if" and key == DOCUMENT:
                write(store, {"x": [3]})
                raise InjectedFault("the answer is lost")
            return result

    commit_change(Late(store), change, base)
    assert rows(store) == [(1,), (2,), (3,)]
    # The snapshot of our own commit is already old: the next read has to see the other one.
    assert rows(Late(store)) == [(1,), (2,), (3,)]
    assert len(commits(store)) == 3


@pytest.mark.parametrize("new", [True, False])
def test_lasting_failure_leaves_nothing_visible(store, new):
    base = None if new else write(store, {"x": [1]})
    with pytest.raises(InjectedFault):
        commit_change(FaultyStore(store, on_document("before", times=99)), make_change(store, {"x": [2]}), base)
    assert find_snapshot(store, UUID) is None if new else rows(store) == [(1,)]


def test_store_that_cannot_be_asked_leaves_the_outcome_open(store):
    base = write(store, {"x": [1]})
    change = make_change(store, {"x": [2]})
    put = False

    def fail(call):
        nonlocal put
        put = put or (call.operation == "put_if" and call.key == DOCUMENT)
        return ("after" if call.operation == "put_if" else "before") if put else None

    with pytest.raises(CommitOutcomeUnknown, match=change.commit):
        commit_change(FaultyStore(store, fail), change, base)
    assert set(store.list(f"{UUID}/table/", recursive=True).keys) >= {r.key for r in change.receipts}
    assert rows(CountingStore(store)) == [(1,), (2,)]


def state(store):
    """What a process that starts now sees."""
    fresh = CountingStore(store)
    if not store.contains(DOCUMENT):
        return None
    return rows(fresh, ["p", "x", "v1"]), rows_by_index(fresh)


def rows_by_index(store):
    return sorted(read_table_arrow(UUID, store, columns=["x"], predicates=[[("x", ">", 1)]]).column("x").to_pylist())


def crash_at(store, n, fault):
    faulty = FaultyStore(store, lambda call: fault if len(faulty.calls) == n else None)
    return faulty


@pytest.mark.parametrize("fault", ["crash", "crash_after"])
@pytest.mark.parametrize("new", [True, False])
def test_crash_at_any_call_leaves_the_old_state_or_the_new_one(new, fault):
    outcomes, n = [], 0
    while n < 100:
        n += 1
        store = MemoryStore()
        if not new:
            write(store, ROWS, on=["p"], index=["x"], label="one")
        before = state(store)
        faulty = crash_at(store, n, fault)
        try:
            with options(threads=1):
                more = {"label": "two"} if new else {"label": "two", "removed": ["p=a/one"]}
                base = None if new else load_snapshot(faulty, UUID)
                commit_change(faulty, make_change(faulty, MORE, on=["p"], index=["x"], **more), base)
        except SimulatedCrash:
            assert state(store) in (before, wanted(new)), f"after call {n}: {faulty.calls[-1]}"
            outcomes.append(state(store) == before)
            continue
        if len(faulty.calls) >= n:
            continue  # the call failed by itself, as for a key that is not there
        break
    assert state(store) == wanted(new)
    # The swap is one step: the old state until it, the new one from then on.
    assert outcomes == sorted(outcomes, reverse=True)
    assert outcomes[0]
    assert n < 100
    # The swap is the last call of a commit that changes no schema.
    assert outcomes[-1] is (fault == "crash" and not new)


def wanted(new):
    return ([("c", 4, 2.5)], [4]) if new else ([("b", 3, 1.5), ("c", 4, 2.5)], [3, 4])


def test_a_commit_goes_on_after_a_crash():
    store = MemoryStore()
    write(store, ROWS, on=["p"], index=["x"], label="one")
    faulty = FaultyStore(store, lambda call: "crash" if call.operation == "put_if" and call.key == DOCUMENT else None)
    with pytest.raises(SimulatedCrash):
        commit_change(faulty, make_change(store, MORE, on=["p"], index=["x"], label="two"), load_snapshot(store, UUID))
    write(store, MORE, on=["p"], index=["x"], label="three")
    assert rows(store) == [(1,), (2,), (3,), (4,)]


# --- stores without conditional put ---------------------------------------------------------------


def test_store_without_conditional_put_is_refused_before_anything_is_written(tmp_path):
    store = KeyValueAdapter(FilesystemStore(str(tmp_path / "plain")))
    change = make_change(MemoryStore(), {"x": [1]})
    counting = CountingStore(store)
    with pytest.raises(AtomicityRequired, match="require_atomic=False"):
        commit_change(counting, change, None)
    assert counting.touched("put", "put_if") == []


def test_one_writer_may_use_such_a_store(tmp_path):
    store = KeyValueAdapter(HFilesystemStore(str(tmp_path / "plain")))
    with options(require_atomic=False):
        write(store, {"x": [1], "v1": [1]}, index=["x"])
        write(store, {"x": [2], "v1": [1]}, index=["x"])
    assert rows(store) == [(1,), (2,)]
    assert rows_by_index(store) == [2]


# --- index files ----------------------------------------------------------------------------------


def test_index_key_that_is_taken_moves_by_a_microsecond(store, monkeypatch):
    class Clock(datetime):
        @classmethod
        def now(cls, tz=None):
            return cls(2000, 1, 1, 1, 1, 1, 1, tzinfo=tz)

    monkeypatch.setattr(commit, "datetime", Clock)
    keys = [write(store, {"x": [i], "v1": [i]}, index=["x"]).document.indices["x"] for i in range(3)]
    assert keys == [f"{UUID}/indices/x/2000-01-01T01%3A01%3A01.00000{i}.by-dataset-index.parquet" for i in (1, 2, 3)]


@pytest.mark.parametrize("new", [True, False])
def test_lost_answer_for_an_index_file_is_no_failure(store, new):
    base = None if new else write(store, {"x": [1], "v1": [1]}, index=["x"])
    faulty = FaultyStore(
        store,
        lambda call: "after" if call.operation == "put_if" and "/indices/" in call.key and call.nth == 1 else None,
    )
    try:
        commit_change(faulty, make_change(store, {"x": [2], "v1": [1]}, index=["x"]), base)
    except InjectedFault:
        assert find_snapshot(store, UUID) is None if new else rows_by_index(store) == []
    else:
        assert rows_by_index(store) == [2]


# --- foreign writers ------------------------------------------------------------------------------


def test_a_foreign_commit_is_seen_and_its_schema_file_rules(store):
    old = write(store, {"x": pa.nulls(1)}, label="ours")
    foreign_commit(store)
    snapshot = load_snapshot(store, UUID)
    assert not old.has_foreign_commit
    assert snapshot.has_foreign_commit
    assert snapshot.schema == pa.schema([("x", pa.string())])
    assert rows(store) == [("t",), (None,)]


def test_the_next_commit_of_ours_starts_a_new_chain(store):
    write(store, {"x": pa.nulls(1)}, label="ours")
    foreign_commit(store)
    with pytest.warns(ForeignWriterWarning, match="after commit"):
        snapshot = write(store, {"x": ["u"]})
    assert [c.parent for c in snapshot.chain] == [None]
    assert not load_snapshot(CountingStore(store), UUID).has_foreign_commit
    assert len(write(store, {"x": ["v"]}).chain) == 2


def test_schema_in_the_document_rules_while_ours_came_last(store):
    write(store, {"x": pa.array([1], pa.int8())})
    store.put(schema_key(UUID), common_metadata_bytes(pa.schema([("x", pa.string())])))
    assert load_snapshot(CountingStore(store), UUID).schema == pa.schema([("x", pa.int8())])


def test_a_dataset_without_a_chain_is_continued(store):
    write(store, {"x": pa.array([1], pa.int8())})
    edit(store, metadata={"creation_time": "2000-01-01T01:01:01"})
    assert load_snapshot(store, UUID).has_foreign_commit
    snapshot = write(store, {"x": [2]})
    assert snapshot.document.user_metadata == {"creation_time": "2000-01-01T01:01:01"}
    assert len(snapshot.chain) == 1
    assert rows(store) == [(1,), (2,)]


# --- metadata -------------------------------------------------------------------------------------


def test_own_entries_are_strings_and_hidden(store):
    snapshot = write(store, {"x": [1]}, metadata={"a": 1})
    metadata = raw(store)["metadata"]
    assert {k for k in metadata if k.startswith("kartothek_cube.")} == {COMMITS_KEY, SCHEMA_KEY, STATISTICS_KEY}
    assert isinstance(metadata[COMMITS_KEY], str)
    assert isinstance(metadata[SCHEMA_KEY], str)
    assert isinstance(metadata[STATISTICS_KEY], str)
    assert set(snapshot.document.user_metadata) == {"a", "creation_time"}


def test_creation_time_is_kept_and_may_be_given(store):
    first = write(store, {"x": [1]}, metadata={"creation_time": "2000-01-01T01:01:01.000001"})
    second = write(store, {"x": [2]})
    assert (
        first.document.user_metadata == second.document.user_metadata == {"creation_time": "2000-01-01T01:01:01.000001"}
    )


# --- encodings ------------------------------------------------------------------------------------


def test_a_msgpack_dataset_stays_one(store):
    write(store, {"x": [1]})
    packed = document_key(UUID, msgpack=True)
    store.put(packed, render_document(parse_document(store.get(DOCUMENT), DOCUMENT), msgpack=True))
    store.delete(DOCUMENT)
    assert write(store, {"x": [2]}).key == packed
    assert not store.contains(DOCUMENT)
    assert rows(store) == [(1,), (2,)]
    assert len(commits(store)) == 2


def test_an_append_decodes_only_the_keys_of_new_partitions(store, monkeypatch):
    write(store, {"p": [1, 2], "v1": [1, 2]}, on=["p"])
    decoded = []
    real = snapshot_module.partition_table
    monkeypatch.setattr(
        snapshot_module, "partition_table", lambda keys, *args: (decoded.append(len(keys)), real(keys, *args))[1]
    )
    landed = write(store, {"p": [3], "v1": [3]}, on=["p"])
    assert decoded == [1]
    forget(store)
    assert landed.values.equals(load_snapshot(store, UUID).values)


@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["append", "replace", "remove", "overwrite"]),
            st.lists(st.sampled_from(["a", "b", "c d"]), min_size=1, max_size=3),
        ),
        max_size=4,
    )
)
def test_what_a_commit_returns_is_what_a_reader_decodes(steps):
    store = MemoryStore()
    landed = write(store, {"p": ["a", "b"], "v1": [1, 2]}, on=["p"], index=["v1"])
    for how, values in steps:
        rows = {"p": values, "v1": range(len(values))}
        if how == "remove":
            landed = write(
                store, {"p": [], "v1": []}, on=["p"], index=["v1"], removed=landed.partitions.labels.to_pylist()[:1]
            )
        else:
            landed = write(
                store,
                rows,
                on=["p"],
                index=["v1"],
                label="base" if how == "replace" else None,
                replace=how == "overwrite",
            )
        forget(store)
        read = load_snapshot(store, UUID)
        assert (landed.values, landed.partitions, landed.schemas) == (read.values, read.partitions, read.schemas)

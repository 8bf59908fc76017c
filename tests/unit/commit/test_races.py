"""Commits that meet others on their way: what they must not lose, double, miss or deny."""

from __future__ import annotations

import pickle
import threading
from collections import Counter
from dataclasses import fields

import pyarrow as pa
import pytest
from msgspec.structs import replace

from kartothek_cube.core.commit import change as apply
from kartothek_cube.core.commit import commit
from kartothek_cube.core.commit.change import apply_change, rebase_and_apply
from kartothek_cube.core.commit.commit import PendingCommit, commit_change
from kartothek_cube.core.dataset.history import undo
from kartothek_cube.core.dataset.read import read_table_arrow
from kartothek_cube.core.dataset.write import (
    create_empty_dataset_header,
    update_dataset_from_dataframes,
    write_single_partition,
)
from kartothek_cube.core.metadata import commit_log
from kartothek_cube.core.metadata.commit_log import LENGTH
from kartothek_cube.core.metadata.naming import SINGLE_TABLE, document_key, schema_key
from kartothek_cube.core.metadata.snapshot import parse_common_metadata
from kartothek_cube.core.snapshots.loader import load_snapshot
from kartothek_cube.core.snapshots.time_travel import load_snapshot_as_of
from kartothek_cube.core.stores.contract import VersionMismatch
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.core.write.stage import Receipt
from kartothek_cube.errors import CommitConflict, CommitOutcomeUnknown, ForeignWriterWarning
from kartothek_cube.testing.stores import CountingStore, FaultyStore, InjectedFault
from tests.caches import forget
from tests.support.commits import UUID, foreign_commit, labels, make_change, write
from tests.support.far import FarStore

DOCUMENT = document_key(UUID)
SCHEMA = pa.schema([("x", pa.int64())])


def rows(store, columns=("x",), **more):
    table = read_table_arrow(UUID, store, columns=list(columns), **more)
    return sorted(zip(*table.to_pydict().values(), strict=True), key=str)


def header(store, **more):
    return create_empty_dataset_header(store, UUID, {"table": SCHEMA}, **more)


def before_swap(store, action):
    """The store for a writer before whose first swap somebody else acts."""
    done = []

    def fail(call):
        if call.operation == "put_if" and call.key == DOCUMENT and not done:
            done.append(True)
            action()

    return FaultyStore(store, fail)


# --- indices --------------------------------------------------------------------------------------


def test_a_first_index_knows_the_partitions_that_came_in_between():
    store = MemoryStore()
    base = write(store, pa.table({"x": [1]}).slice(0, 0))
    late = make_change(store, {"x": [1]}, index=["x"])
    write(store, {"x": [2]})
    with pytest.raises(CommitConflict, match=r"\['x'\]"):
        commit_change(store, late, base)
    assert rows(store, predicates=[[("x", "==", 2)]]) == [(2,)]


def test_a_first_index_that_two_have_asked_for_has_both():
    store = MemoryStore()
    base = write(store, pa.table({"x": [1]}).slice(0, 0))
    late = make_change(store, {"x": [1]}, index=["x"])
    write(store, {"x": [2]}, index=["x"])
    commit_change(store, late, base)
    forget(store)
    assert [rows(store, predicates=[[("x", "==", v)]]) for v in (1, 2)] == [[(1,)], [(2,)]]


# --- datasets whose document lists no partitions --------------------------------------------------


def test_own_files_that_another_commit_found_by_listing_are_no_conflict():
    store = MemoryStore()
    header(store)
    base = load_snapshot(store, UUID)
    late = make_change(store, {"x": [1]})
    write(store, {"x": [2]})
    assert rows(store) == [(1,), (2,)]
    commit_change(store, late, base)
    forget(store)
    assert rows(store) == [(1,), (2,)]
    assert labels(load_snapshot(store, UUID))[-1] == late.labels[0]


def test_own_files_that_another_commit_found_by_listing_are_not_in_the_scope():
    store = MemoryStore()
    header(store)
    base = load_snapshot(store, UUID)
    late = make_change(store, {"x": [0]})
    late = replace(
        late,
        scope=lambda state: state.partitions.labels.filter(
            pa.array([v in late.labels for v in labels(state)], pa.bool_())
        ),
    )
    write(store, {"x": [2]})
    commit_change(store, late, base)
    assert rows(store) == [(0,), (2,)]


def test_files_that_came_into_an_implicit_dataset_meanwhile_stay():
    store = MemoryStore()
    header(store)
    base = load_snapshot(store, UUID)
    late = make_change(store, {"x": [1]})
    write_single_partition(store, UUID, pa.table({"x": [2]}))
    commit_change(store, late, base)
    assert rows(store) == [(1,), (2,)]


def test_undoing_the_first_commit_of_an_implicit_dataset_takes_its_rows():
    store = MemoryStore()
    header(store)
    write_single_partition(store, UUID, pa.table({"x": [2]}))
    landed = update_dataset_from_dataframes([pa.table({"x": [1]})], store, UUID)
    undo(UUID, store, landed.commit.id)
    assert rows(store) == [(2,)]


# --- schemas --------------------------------------------------------------------------------------


@pytest.mark.parametrize("removes", [True, False])
def test_what_brings_no_rows_fits_a_schema_that_others_have_widened(removes):
    store = MemoryStore()
    base = write(store, {"x": [1]}, label="one")
    late = make_change(store, pa.table({"x": [1]}).slice(0, 0), removed=["one"] if removes else [], metadata={"a": 1})
    write(store, {"x": [2], "z": ["t"]}, add_columns=True)
    commit_change(store, late, base)
    found = load_snapshot(store, UUID)
    assert found.schema.names == ["x", "z"]
    assert found.document.user_metadata["a"] == 1
    assert rows(store, ["x", "z"]) == [(2, "t")] if removes else [(1, None), (2, "t")]


def test_rows_of_a_narrower_schema_are_a_conflict_and_leave_nothing():
    store = MemoryStore()
    base = write(store, {"x": [1]})
    late = make_change(store, {"x": [3]})
    write(store, {"x": [2], "z": ["t"]}, add_columns=True)
    with pytest.raises(CommitConflict, match="Schema violation"):
        commit_change(store, late, base)
    assert len(rows(store)) == 2


# --- what is told ---------------------------------------------------------------------------------


def test_a_change_meets_nothing_new_where_only_indices_were_loaded(monkeypatch):
    store = MemoryStore()
    write(store, {"x": [1], "v1": [1]}, index=["x"])
    forget(store)
    base = load_snapshot(store, UUID)
    seen = Counter()
    monkeypatch.setattr(apply, "apply_change", lambda *args: seen.update(["apply"]) or apply_change(*args))
    landed = commit_change(
        store,
        make_change(
            store, {"x": [2], "v1": [1]}, index=["x"], on_conflict="reapply", scope=lambda s: s.partitions.labels
        ),
        base,
    )
    assert seen["apply"] == 1
    assert not landed.result.reapplied


def test_a_rebased_change_is_applied_once(monkeypatch):
    store = MemoryStore()
    base = write(store, {"x": [1], "v1": [1]}, index=["x"])
    write(store, {"x": [2], "v1": [1]}, index=["x"])
    seen = Counter()
    monkeypatch.setattr(apply, "apply_change", lambda *args: seen.update(["apply"]) or apply_change(*args))
    commit_change(store, make_change(store, {"x": [3], "v1": [1]}, index=["x"]), base)
    assert seen["apply"] == 1


def test_an_overwrite_of_what_came_in_between_says_so():
    store = MemoryStore()
    base = write(store, {"x": [1]})
    late = make_change(store, {"x": [3]}, replace=True, on_conflict="reapply")
    write(store, {"x": [2]})
    assert commit_change(store, late, base).result.reapplied
    assert rows(store) == [(3,)]


def test_partitions_are_hashed_once_a_state(monkeypatch):
    store = MemoryStore()
    write(store, {"x": [1], "v1": [1]}, index=["x"])
    base = load_snapshot(store, UUID)
    hashed = []
    true = commit_log._digest
    monkeypatch.setattr(commit_log, "_digest", lambda columns: hashed.append(list(columns)) or true(hashed[-1]))
    commit_change(store, make_change(store, {"x": [2], "v1": [1]}, index=["x"]), base)
    assert [[len(column) for _, column in columns] for columns in hashed] == [[2, 2]]


# --- receipts -------------------------------------------------------------------------------------


def test_receipts_of_an_older_version_count_as_old():
    store = MemoryStore()
    base = write(store, {"x": [1]})
    change = make_change(store, {"x": [2]})
    old = Receipt.__new__(Receipt)
    old.__setstate__(
        [getattr(change.receipts[0], f.name) for f in fields(Receipt) if f.name not in ("staged", "statistics")]
    )
    commit_change(store, replace(change, receipts=(pickle.loads(pickle.dumps(old)),)), base)
    assert rows(store) == [(1,), (2,)]


# --- merged swaps ---------------------------------------------------------------------------------


def merged(store, changes, base):
    """Publish several changes in one swap."""
    group = [PendingCommit(change, base, 3) for change in changes]
    commit._commit_all(store, group)
    return [pending.outcome for pending in group]


def test_an_overwrite_among_merged_commits_takes_what_came_before_it():
    store = MemoryStore()
    base = write(store, {"x": [1], "v1": [1]}, index=["x"])
    first = make_change(store, {"x": [2], "v1": [1]}, index=["x"])
    second = make_change(store, {"y": [3]}, replace=True, on_conflict="reapply")
    one, two = merged(store, [first, second], base)
    assert two.result().result.reapplied
    assert not one.result().result.reapplied
    forget(store)
    found = load_snapshot(store, UUID)
    assert (found.schema.names, dict(found.document.indices)) == (["y"], {})
    assert rows(store, ["y"]) == [(3,)]


def test_states_between_merged_commits_are_not_remembered():
    store = MemoryStore()
    base = write(store, {"x": [1], "v1": [1]}, index=["x"])
    change = make_change(store, {"x": [2], "v1": [1]}, index=["x"])
    applied = rebase_and_apply(change, base, load_snapshot(store, UUID))
    assert applied.unwritten_snapshot().token is None


@pytest.mark.parametrize("view", [CountingStore, FarStore])
def test_an_older_commit_than_the_chain_is_rebased_all_the_same(view):
    store = MemoryStore()
    base = write(store, {"x": [-1]})
    late = make_change(store, {"x": [-2]})
    for i in range(LENGTH + 3):
        write(store, {"x": [i]})
    commit_change(view(store), late, base)
    assert len(rows(store)) == LENGTH + 5


def test_a_lost_answer_that_left_the_chain_is_not_called_a_loss():
    store = MemoryStore()
    base = write(store, {"x": [-1]})
    change = make_change(store, {"x": [-2]})

    class Late(FarStore):
        def around(self, operation, key, action):
            result = super().around(operation, key, action)
            if operation == "put_if" and key == DOCUMENT:
                for i in range(LENGTH + 3):
                    write(store, {"x": [i]})
                raise VersionMismatch("the client repeated the put")
            return result

    with pytest.raises(CommitOutcomeUnknown, match=change.commit):
        commit_change(Late(store), change, base)
    assert len(rows(store)) == LENGTH + 5


@pytest.mark.parametrize("view", [CountingStore, FarStore])
def test_the_schema_file_of_a_later_commit_stays(view):
    store, key = MemoryStore(), schema_key(UUID, SINGLE_TABLE)
    base = write(store, {"x": [1]})
    change = make_change(store, {"x": [2], "v1": [1]}, add_columns=True)
    last = {"x": [3], "v1": [1], "v2": [1]}

    class Meanwhile(view):
        acts = True

        def around(self, operation, at, action):
            if self.acts and (operation, at) == ("put_if", key):
                self.acts = False
                write(store, last, add_columns=True)
            return super().around(operation, at, action)

    commit_change(Meanwhile(store), change, base)
    assert sorted(parse_common_metadata(store.get(key), key).names) == sorted(last)


# --- who else looks -------------------------------------------------------------------------------


def test_the_twin_of_a_creator_in_the_same_swap_is_one_dataset():
    store = MemoryStore()
    first = make_change(store, {"x": [1]}, msgpack=True)
    second = make_change(store, {"x": [2]}, creates=False)
    outcomes = merged(store, [first, second], None)
    assert [outcome.exception() for outcome in outcomes] == [None, None]
    assert [store.contains(document_key(UUID, msgpack=m)) for m in (False, True)] == [False, True]
    forget(store)
    assert rows(store) == [(1,), (2,)]


@pytest.mark.parametrize("view", [CountingStore, FarStore])
def test_who_withdraws_from_a_twin_leaves_its_schema_file(view):
    store, key, put = MemoryStore(), schema_key(UUID, SINGLE_TABLE), threading.Event()

    class Meanwhile(view):
        twin = None

        def around(self, operation, at, action):
            if operation == "put_if" and at == DOCUMENT and self.twin is None:
                self.twin = write(store, {"x": [1], "v2": [1]}, msgpack=True)
            elif operation == "put_if" and at == key and self.twin is not None:
                put.set()
            elif operation == "contains" and self.twin is not None:
                put.wait(0.1)  # a put beside this look would come now
            return super().around(operation, at, action)

    with pytest.raises(CommitConflict):
        commit_change(Meanwhile(store), make_change(store, {"x": [2], "v1": [1]}), None)
    assert not put.is_set()
    assert parse_common_metadata(store.get(key), key).names == ["v2", "x"]


def test_an_entry_of_a_merged_swap_leads_back_through_it():
    store = MemoryStore()
    base = write(store, {"x": [1], "v1": [1]}, index=["x"], label="one")
    more = {"index": ["x"]}
    changes = [
        make_change(store, {"x": [2], "v1": [1]}, **more),
        make_change(store, {"x": [3], "v1": [1]}, removed=["one"], **more),
    ]
    changes.append(make_change(store, {"x": [4], "v1": [1]}, metadata={"a": 1}, **more))
    merged(store, changes, base)
    forget(store)
    ids = [base.chain[-1].id, *(c.commit for c in changes)]
    seen = [read_table_arrow(UUID, store, as_of=i).column("x").to_pylist() for i in ids]
    assert seen == [[1], [1, 2], [2, 3], [2, 3, 4]]
    assert "a" not in load_snapshot_as_of(store, UUID, ids[2]).document.user_metadata
    assert [len(read_table_arrow(UUID, store, as_of=i, predicates=[[("x", "==", 1)]])) for i in ids] == [1, 1, 0, 0]


def test_a_dropped_index_and_a_new_partition_share_a_swap():
    store = MemoryStore()
    base = write(store, {"x": [1], "v1": [1]}, index=["x", "v1"])
    drop = replace(
        make_change(store, pa.table({"x": [1], "v1": [1]}).slice(0, 0), index=["x"]), dropped=frozenset(["v1"])
    )
    more = make_change(store, {"x": [2], "v1": [7]}, index=["x", "v1"])
    outcomes = merged(store, [drop, more, replace(drop, commit="again")], base)
    assert [outcome.exception() for outcome in outcomes] == [None, None, None]
    forget(store)
    found = load_snapshot(store, UUID)
    assert set(found.document.indices) == {"x"}
    assert all(isinstance(key, str) and store.contains(key) for key in found.document.indices.values())
    assert rows(store, predicates=[[("v1", "==", 7)]]) == [(2,)]


def test_no_placeholder_is_stored_where_metadata_come_last():
    store = MemoryStore()
    base = write(store, {"x": [1], "v1": [1]}, index=["x"])
    add = make_change(store, {"x": [2], "v1": [1]}, index=["x"])
    note = make_change(store, pa.table({"x": [1], "v1": [1]}).slice(0, 0), index=["x"], metadata={"a": 1})
    outcomes = merged(store, [add, note], base)
    assert outcomes[0].result().document.indices == outcomes[1].result().document.indices
    assert load_snapshot(store, UUID).document.indices == load_snapshot(CountingStore(store), UUID).document.indices
    assert rows(CountingStore(store), predicates=[[("x", "==", 2)]]) == [(2,)]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_metadata_are_merged_key_by_key_and_forgotten_keys_stay_forgotten(order):
    store = MemoryStore()
    base = write(store, {"x": [1]}, metadata={"a": 0, "b": 0, "c": 0})
    nothing = pa.table({"x": [1]}).slice(0, 0)
    changes = [
        make_change(store, nothing, metadata={"a": 1}),
        make_change(store, nothing, metadata={"b": 1}, forgotten=frozenset(["c"])),
    ]
    merged(store, [changes[i] for i in order], base)
    found = load_snapshot(store, UUID).document.user_metadata
    assert {k: v for k, v in found.items() if k != "creation_time"} == {"a": 1, "b": 1}
    assert found["creation_time"] == base.document.user_metadata["creation_time"]


def test_a_merger_sees_the_newest_metadata_and_keeps_what_others_have_set():
    store = MemoryStore()
    write(store, {"x": [1]}, metadata={"n": 0})

    def merge(dicts):
        return {**dicts[0], "n": dicts[0]["n"] + 1}

    def intrude():
        update_dataset_from_dataframes([], store, UUID, metadata={"n": 10, "other": 1})

    update_dataset_from_dataframes([pa.table({"x": [2]})], before_swap(store, intrude), UUID, metadata_merger=merge)
    found = load_snapshot(store, UUID).document.user_metadata
    assert (found["n"], found["other"]) == (11, 1)


def test_a_failure_after_the_swap_does_not_deny_the_commit():
    store = MemoryStore()
    base = write(store, {"x": pa.nulls(1)})
    change = make_change(store, {"x": [2]})
    landed = []

    def fail(call):
        if landed:
            return "before"
        if call.operation == "put_if" and call.key == DOCUMENT:
            landed.append(True)
        return None

    assert commit_change(FaultyStore(store, fail), change, base).chain[-1].id == change.commit
    assert len(rows(CountingStore(store))) == 2


def test_many_threads_on_an_implicit_dataset_lose_and_double_nothing():
    store = MemoryStore()
    header(store)
    errors = []

    def work(i):
        try:
            update_dataset_from_dataframes([pa.table({"x": [i]})], store, UUID)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert errors == []
    assert rows(CountingStore(store)) == [(i,) for i in range(8)]


@pytest.mark.parametrize("removes", [True, False])
def test_a_lost_answer_followed_by_a_foreign_writer_and_one_of_ours_is_not_called_a_conflict(removes):
    store = MemoryStore()
    base = write(store, {"x": ["s"]}, label="one")
    change = make_change(store, pa.table({"x": ["v"]}).slice(int(removes)), removed=["one"] if removes else [])

    class Late(CountingStore):
        def around(self, operation, key, action):
            result = super().around(operation, key, action)
            if operation == "put_if" and key == DOCUMENT:
                foreign_commit(store)
                write(store, {"x": ["u"]})
                raise InjectedFault("the answer is lost")
            return result

    with pytest.warns(ForeignWriterWarning), pytest.raises(CommitOutcomeUnknown, match=change.commit):
        commit_change(Late(store), change, base)
    assert rows(CountingStore(store)) == ([("t",), ("u",)] if removes else [("s",), ("t",), ("u",), ("v",)])


def test_a_foreign_writer_and_one_of_ours_in_between_are_only_others():
    store = MemoryStore()
    base = write(store, {"x": ["s"]})
    change = make_change(store, {"x": ["v"]})

    def intrude():
        foreign_commit(store)
        write(store, {"x": ["u"]})

    with pytest.warns(ForeignWriterWarning):
        commit_change(before_swap(store, intrude), change, base)
    assert rows(CountingStore(store)) == [("s",), ("t",), ("u",), ("v",)]

"""Commits that meet others on their way: what they must not lose, double, miss or deny."""

from __future__ import annotations

import pickle
import threading
from collections import Counter
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from kartothek_cube.core import publish as module
from kartothek_cube.core.change import Receipt, apply_change
from kartothek_cube.core.dataset.commit import commit_dataset, write_single_partition
from kartothek_cube.core.dataset.header import create_empty_dataset_header
from kartothek_cube.core.dataset.read import read_table_arrow
from kartothek_cube.core.dataset.update import update_dataset_from_dataframes
from kartothek_cube.core.metadata import chain as chain_module
from kartothek_cube.core.metadata.chain import LENGTH
from kartothek_cube.core.naming import document_key
from kartothek_cube.core.options import options
from kartothek_cube.core.publish import publish
from kartothek_cube.core.snapshots import find_snapshot, forget, load_snapshot
from kartothek_cube.core.stores.memory import MemoryStore
from kartothek_cube.errors import CommitConflict, CommitOutcomeUnknown
from kartothek_cube.testing.stores import CountingStore, FaultyStore, InjectedFault
from tests.core.helpers import UUID, labels, make_change, stage, write

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


# --- indices ----------------------------------------------------------------------------------------------------------


def test_a_first_index_knows_the_partitions_that_came_in_between():
    store = MemoryStore()
    base = write(store, pa.table({"x": [1]}).slice(0, 0))
    late = make_change(store, {"x": [1]}, index=["x"])
    write(store, {"x": [2]})
    with pytest.raises(CommitConflict, match=r"\['x'\]"):
        publish(store, late, base)
    assert rows(store, predicates=[[("x", "==", 2)]]) == [(2,)]


def test_a_first_index_that_two_have_asked_for_has_both():
    store = MemoryStore()
    base = write(store, pa.table({"x": [1]}).slice(0, 0))
    late = make_change(store, {"x": [1]}, index=["x"])
    write(store, {"x": [2]}, index=["x"])
    publish(store, late, base)
    forget(store)
    assert [rows(store, predicates=[[("x", "==", v)]]) for v in (1, 2)] == [[(1,)], [(2,)]]


# --- datasets whose document lists no partitions ----------------------------------------------------------------------


def test_own_files_that_another_commit_found_by_listing_are_no_conflict():
    store = MemoryStore()
    header(store)
    base = load_snapshot(store, UUID)
    late = make_change(store, {"x": [1]})
    write(store, {"x": [2]})
    assert rows(store) == [(1,), (2,)]
    publish(store, late, base)
    forget(store)
    assert rows(store) == [(1,), (2,)]
    assert labels(load_snapshot(store, UUID))[-1] == late.labels[0]


def test_own_files_that_another_commit_found_by_listing_are_not_in_the_scope():
    store = MemoryStore()
    header(store)
    schema_of = pa.table({"x": [0]})
    base = load_snapshot(store, UUID)
    late = make_change(store, schema_of, scope=lambda state: state.partitions.labels.slice(0, 0))
    late = replace(late, scope=lambda state: state.partitions.labels.filter(pa.array([v in late.labels for v in labels(state)], pa.bool_())))
    write(store, {"x": [2]})
    publish(store, late, base)
    assert rows(store) == [(0,), (2,)]


def test_files_that_came_into_an_implicit_dataset_meanwhile_stay():
    store = MemoryStore()
    header(store)
    base = load_snapshot(store, UUID)
    late = make_change(store, {"x": [1]})
    write_single_partition(store, UUID, pa.table({"x": [2]}))
    publish(store, late, base)
    assert rows(store) == [(1,), (2,)]


def test_undoing_the_first_commit_of_an_implicit_dataset_takes_its_rows():
    from kartothek_cube.core.dataset.undo import undo_commit  # type: ignore[attr-defined]

    store = MemoryStore()
    header(store)
    write_single_partition(store, UUID, pa.table({"x": [2]}))
    landed = update_dataset_from_dataframes([pa.table({"x": [1]})], store, UUID)
    undo_commit(UUID, landed.commit.id, store)
    assert rows(store) == [(2,)]


# --- schemas ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("removes", [True, False])
def test_what_brings_no_rows_fits_a_schema_that_others_have_widened(removes):
    store = MemoryStore()
    base = write(store, {"x": [1]}, label="one")
    late = make_change(store, pa.table({"x": [1]}).slice(0, 0), removed=["one"] if removes else [], metadata={"a": 1})
    write(store, {"x": [2], "z": ["t"]}, add_columns=True)
    publish(store, late, base)
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
        publish(store, late, base)
    assert len(rows(store)) == 2


# --- what is told -----------------------------------------------------------------------------------------------------


def test_a_change_meets_nothing_new_where_only_indices_were_loaded(monkeypatch):
    store = MemoryStore()
    write(store, {"x": [1], "v1": [1]}, index=["x"])
    forget(store)
    base = load_snapshot(store, UUID)
    seen = Counter()
    monkeypatch.setattr(module, "apply_change", lambda *args: seen.update(["apply"]) or apply_change(*args))
    landed = publish(store, make_change(store, {"x": [2], "v1": [1]}, index=["x"], on_conflict="reapply", scope=lambda s: s.partitions.labels), base)
    assert seen["apply"] == 1
    assert not landed.result.reapplied


def test_a_rebased_change_is_applied_once(monkeypatch):
    store = MemoryStore()
    base = write(store, {"x": [1], "v1": [1]}, index=["x"])
    write(store, {"x": [2], "v1": [1]}, index=["x"])
    seen = Counter()
    monkeypatch.setattr(module, "apply_change", lambda *args: seen.update(["apply"]) or apply_change(*args))
    publish(store, make_change(store, {"x": [3], "v1": [1]}, index=["x"]), base)
    assert seen["apply"] == 1


def test_an_overwrite_of_what_came_in_between_says_so():
    store = MemoryStore()
    base = write(store, {"x": [1]})
    late = make_change(store, {"x": [3]}, replace=True, on_conflict="reapply")
    write(store, {"x": [2]})
    assert publish(store, late, base).result.reapplied
    assert rows(store) == [(3,)]


def test_partitions_are_hashed_once_a_state(monkeypatch):
    store = MemoryStore()
    write(store, {"x": [1], "v1": [1]}, index=["x"])
    base = load_snapshot(store, UUID)
    seen = []
    true = chain_module.fingerprint
    for place in (chain_module, *(m for m in (__import__("kartothek_cube.core.change", fromlist=["x"]),))):
        monkeypatch.setattr(place, "fingerprint", lambda p: seen.append(p) or true(p))
    publish(store, make_change(store, {"x": [2], "v1": [1]}, index=["x"]), base)
    assert len(seen) <= 2


# --- receipts ---------------------------------------------------------------------------------------------------------


def test_receipts_of_an_older_version_count_as_old():
    store = MemoryStore()
    base = write(store, {"x": [1]})
    change = make_change(store, {"x": [2]})
    old = Receipt.__new__(Receipt)
    old.__setstate__([getattr(change.receipts[0], f.name) for f in fields(Receipt) if f.name != "staged"])
    publish(store, replace(change, receipts=(pickle.loads(pickle.dumps(old)),)), base)
    assert rows(store) == [(1,), (2,)]


# --- merged swaps -----------------------------------------------------------------------------------------------------


def merged(store, changes, base, during=None):
    """Publish several changes in one swap."""
    tickets = [module.Ticket(change, base, 3) for change in changes]
    module._publish_all(store, tickets)
    return tickets


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
    changes = [make_change(store, {"x": [i], "v1": [1]}, index=["x"]) for i in (2, 3)]
    steps = [module._fold_one(store, module.Ticket(changes[0], base, 0), load_snapshot(store, UUID))]
    assert module._unwritten_snapshot(steps[0]).token is None


def test_more_commits_than_the_chain_is_long_share_a_swap():
    store = MemoryStore()
    base = write(store, {"x": [-1]})
    changes = [make_change(store, {"x": [i]}) for i in range(LENGTH + 3)]
    tickets = merged(store, changes, base)
    assert all(t.error is None for t in tickets)
    assert rows(store) == sorted([(i,) for i in range(-1, LENGTH + 3)], key=str)


def test_an_answer_lost_for_more_commits_than_the_chain_is_long():
    store = MemoryStore()
    base = write(store, {"x": [-1]})
    changes = [make_change(store, {"x": [i]}) for i in range(LENGTH + 3)]
    # The swap lands, whoever made it is interrupted, and the others look for themselves.
    module._publish_all(store, [module.Ticket(c, base, 3) for c in changes])
    (again,) = [module.Ticket(changes[0], base, 3)]
    module._publish_all(store, [again])
    with pytest.raises(CommitOutcomeUnknown):
        again.result()
    assert len(rows(store)) == LENGTH + 4


def test_an_older_commit_than_the_chain_is_rebased_all_the_same():
    store = MemoryStore()
    base = write(store, {"x": [-1]})
    late = make_change(store, {"x": [-2]})
    for i in range(LENGTH + 3):
        write(store, {"x": [i]})
    publish(store, late, base)
    assert len(rows(store)) == LENGTH + 5

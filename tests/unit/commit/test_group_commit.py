from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from kartothek_cube.core.commit.commit import CommitQueue, PendingCommit, _queues, commit_change, group_commit
from kartothek_cube.core.metadata.history_entry import history_key
from kartothek_cube.core.metadata.naming import document_key
from kartothek_cube.core.runtime.options import options
from kartothek_cube.core.snapshots.loader import find_snapshot, load_snapshot
from kartothek_cube.core.snapshots.time_travel import states
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.core.stores.uploads import uploading
from kartothek_cube.errors import CommitConflict
from kartothek_cube.testing.stores import CountingStore, FaultyStore, InjectedFault, SimulatedCrash
from tests.caches import forget
from tests.support.commits import UUID, labels, make_change, wait_for_waiting, write
from tests.support.far import FarStore
from tests.support.forks import exit_code_in_fork

DOCUMENT = document_key(UUID)
KEY = "line"


class Gate(CountingStore):
    """Holds the first put of a document until enough other commits wait in the queue."""

    def __init__(self, inner, others):
        super().__init__(inner)
        self.others = others
        self.swaps = 0

    def around(self, operation, key, action):
        if operation == "put_if" and key == DOCUMENT:
            self.swaps += 1
            if self.swaps == 1:
                wait_for_waiting(self, self.others)
        return super().around(operation, key, action)


def together(store, changes, base):
    """Publish all changes at the same time; the outcomes in their order."""

    def outcome(change):
        try:
            return commit_change(store, change, base)
        except (Exception, SimulatedCrash) as error:
            return error

    with ThreadPoolExecutor(len(changes)) as pool:
        return list(pool.map(outcome, changes))


def rows_of(store):
    forget(store)
    return sorted(labels(load_snapshot(store, UUID)))


def test_commits_that_wait_share_one_swap():
    memory = MemoryStore()
    base = write(memory, {"x": [0]}, index=["x"], label="base")
    changes = [make_change(memory, {"x": [i]}, index=["x"], label=f"l{i}") for i in range(8)]
    store = Gate(memory, 7)
    landed = together(store, changes, base)
    assert store.swaps == 2
    assert rows_of(memory) == sorted(["base", *(f"l{i}" for i in range(8))])
    assert [s.result.id for s in landed] == [c.commit for c in changes]
    newest = load_snapshot(memory, UUID)
    assert sorted(c.id for c in newest.chain[1:]) == sorted(c.commit for c in changes)
    assert all(memory.contains(history_key(UUID, c.commit)) for c in changes)


def test_in_a_merged_swap_a_conflict_is_that_of_its_change_alone():
    memory = MemoryStore()
    base = write(memory, {"x": [0]}, label="base")
    fine = [make_change(memory, {"x": [i]}, label=f"l{i}") for i in range(3)]
    removals = [make_change(memory, {"x": [9]}, label=f"r{i}", removed=["base"]) for i in range(2)]
    outcomes = together(Gate(memory, 4), [*fine, *removals], base)
    failed = [o for o in outcomes if isinstance(o, Exception)]
    assert [type(o) for o in failed] == [CommitConflict]
    assert len(rows_of(memory)) == 4
    assert {f"l{i}" for i in range(3)} < set(rows_of(memory))


def test_a_store_that_fails_once_tells_everyone_and_loses_nobody_who_landed():
    memory = MemoryStore()
    base = write(memory, {"x": [0]}, label="base")
    changes = [make_change(memory, {"x": [i]}, label=f"l{i}") for i in range(4)]
    outcomes = together(
        FaultyStore(memory, lambda call: "before" if call.operation == "put_if" and call.key == DOCUMENT else None),
        changes,
        base,
    )
    assert [type(o) for o in outcomes] == [InjectedFault] * 4
    assert rows_of(memory) == ["base"]


def test_whoever_is_interrupted_leaves_the_others_to_themselves():
    """The leader dies before its swap: the others' changes land without it."""
    memory = MemoryStore()
    base = write(memory, {"x": [0]}, label="base")
    changes = [make_change(memory, {"x": [i]}, label=f"l{i}") for i in range(5)]

    class Interrupted(Gate):
        def around(self, operation, key, action):
            done = (
                super().around(operation, key, action)
                if not (operation == "put_if" and key == DOCUMENT and self.swaps == 0)
                else None
            )
            if done is None and operation == "put_if" and key == DOCUMENT:
                self.swaps += 1
                wait_for_waiting(self, self.others)
                raise SimulatedCrash("before the swap")
            return done

    outcomes = together(Interrupted(memory, 4), changes, base)
    crashed = [i for i, o in enumerate(outcomes) if isinstance(o, SimulatedCrash)]
    assert len(crashed) == 1
    assert rows_of(memory) == sorted(["base", *(f"l{i}" for i in range(5) if i not in crashed)])


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_batch_whose_leader_is_interrupted_is_taken_up_by_the_next(moment):
    """The leader of a batch dies around the merged swap: each change of others is there once."""
    memory = MemoryStore()
    base = write(memory, {"x": [0]}, label="base")
    changes = [make_change(memory, {"x": [i]}, label=f"l{i}") for i in range(5)]

    class Interrupted(Gate):
        def around(self, operation, key, action):
            second = operation == "put_if" and key == DOCUMENT and self.swaps == 1
            if second and moment == "before":
                self.swaps += 1
                raise SimulatedCrash("before")
            done = super().around(operation, key, action)
            if second:
                raise SimulatedCrash("after")
            return done

    outcomes = together(Interrupted(memory, 4), changes, base)
    crashed = [f"l{i}" for i, o in enumerate(outcomes) if isinstance(o, SimulatedCrash)]
    assert len(crashed) == 1
    expected = {"base", *(f"l{i}" for i in range(5))} - (set(crashed) if moment == "before" else set())
    assert set(rows_of(memory)) == expected
    assert [o.result.id for o in outcomes if not isinstance(o, SimulatedCrash)] == [
        c.commit for c, o in zip(changes, outcomes, strict=True) if not isinstance(o, SimulatedCrash)
    ]


def test_history_stays_that_of_the_swap_when_a_commit_of_an_interrupted_creator_is_taken_up():
    """One dies before the swap, and one after that of the other two, who had seen no dataset."""
    memory = MemoryStore()
    changes = [make_change(memory, {"x": [i]}, label=f"l{i}", creates=False) for i in range(3)]

    class Interrupted(Gate):
        def around(self, operation, key, action):
            if operation == "put_if" and key == DOCUMENT and self.swaps < 2:
                first = not self.swaps
                super().around(operation, key, (lambda: None) if first else action)
                raise SimulatedCrash("before the swap" if first else "after it")
            return super().around(operation, key, action)

    together(Interrupted(memory, 2), changes, None)
    snapshot = load_snapshot(memory, UUID)
    assert [state.commit for state in states(memory, snapshot)] == [c.id for c in reversed(snapshot.chain)]
    assert len(snapshot.chain) == 2


def test_one_that_landed_is_not_told_the_error_of_another():
    """Of a batch whose swap landed with the interrupted leader, one is seen to have landed; the
    store then fails for the other.
    """
    landed, waits = PendingCommit(None, None, 0), PendingCommit(None, None, 0)  # type: ignore[arg-type]
    from kartothek_cube.core.commit import commit

    def newest(store, group, attempt):
        landed.outcome.set_result("snapshot")
        raise InjectedFault("later")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commit, "_newest_state", newest)
        commit._commit_all(MemoryStore(), [landed, waits])
    assert landed.outcome.result() == "snapshot"
    with pytest.raises(InjectedFault):
        waits.outcome.result()


def test_many_threads_lose_nothing():
    memory = MemoryStore()
    write(memory, {"x": [0]}, index=["x"], label="base")

    def append(i):
        with options(commit_retries=100):
            for j in range(4):
                commit_change(
                    memory, make_change(memory, {"x": [i]}, index=["x"], label=f"l{i}-{j}"), find_snapshot(memory, UUID)
                )

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(append, range(8)))
    assert len(rows_of(memory)) == 33


def test_two_views_of_a_store_stand_in_one_line_and_two_datasets_do_not():
    memory = MemoryStore()
    assert CountingStore(memory).identity == memory.identity
    order = []

    def inner(group):
        order.extend(["inner"])
        for pending in group:
            pending.outcome.set_result("inner")

    def outer(group):
        group_commit("other dataset", PendingCommit(None, None, 0), inner)
        for pending in group:
            pending.outcome.set_result("outer")

    assert group_commit(KEY, PendingCommit(None, None, 0), outer) == "outer"
    assert order == ["inner"]


def test_a_callback_may_publish_to_the_same_dataset():
    memory = MemoryStore()
    base = write(memory, {"x": [0]}, label="base")

    def merge(state):
        if not done:
            done.append(write(memory, {"x": [2]}, label="inside"))
        return {}, frozenset()

    done = [write(memory, {"x": [1]}, label="other")]
    done.clear()
    commit_change(memory, make_change(memory, {"x": [3]}, label="outside", merge=merge), base)
    assert rows_of(memory) == ["base", "inside", "other", "outside"]


def test_lines_are_forgotten_when_nobody_stands_in_them():
    memory = MemoryStore()
    write(memory, {"x": [0]})
    assert _queues._queues == {}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_child_starts_with_empty_lines():
    """The child of a process in which a turn has begun does not wait for it."""
    started, finish = threading.Event(), threading.Event()

    def work(group):
        started.set()
        finish.wait(10)
        for pending in group:
            pending.outcome.set_result("done")

    leader = threading.Thread(target=group_commit, args=(KEY, PendingCommit(None, None, 0), work))
    leader.start()
    started.wait(10)
    code = exit_code_in_fork(
        lambda: (
            group_commit(
                KEY, PendingCommit(None, None, 0), lambda group: [p.outcome.set_result("child") for p in group]
            )
            == "child"
        )
    )
    finish.set()
    leader.join(10)
    assert code == 0


def uploads_together(store, views, changes, base):
    """Commit from threads that each send their files by a view; all wait before the first swap."""

    def outcome(view, change):
        try:
            with uploading(view) as opened:
                opened.put(change.receipts[0].key, store.get(change.receipts[0].key))
                return commit_change(opened, change, base)
        except Exception as error:
            return error

    queue = _queues._queues.setdefault((store.identity, UUID), CommitQueue(members=1))
    with ThreadPoolExecutor(len(changes)) as pool:
        with queue.turn:
            outcomes = [pool.submit(outcome, *pair) for pair in zip(views, changes, strict=True)]
            wait_for_waiting(store, len(changes))
        found = [each.result() for each in outcomes]
    _queues.clear()
    return found


def test_a_file_that_could_not_be_sent_concerns_its_change_alone_whoever_leads():
    memory = MemoryStore()
    base = write(memory, {"x": [0]}, label="base")
    changes = [make_change(memory, {"x": [i]}, label=f"l{i}") for i in range(4)]
    broken = [
        FaultyStore(
            FarStore(memory),
            lambda call: "before" if call.key.endswith(".parquet") and call.operation == "put" else None,
        )
        for _ in range(3)
    ]
    outcomes = uploads_together(memory, [FarStore(memory), *broken], changes, base)
    assert [type(o) for o in outcomes[1:]] == [InjectedFault] * 3
    assert outcomes[0].result.id == changes[0].commit
    assert rows_of(memory) == ["base", "l0"]

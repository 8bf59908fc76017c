"""Races between publishing, readers, and the collection of garbage, each as the steps that once
went wrong.
"""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from threading import Thread

import pytest
from msgspec.structs import replace

from kartothek_cube.core.commit.commit import commit_change
from kartothek_cube.core.dataset.maintain import garbage_collect_dataset, verify_dataset
from kartothek_cube.core.dataset.read import read_table_arrow
from kartothek_cube.core.metadata.commit_log import LENGTH
from kartothek_cube.core.metadata.naming import document_key
from kartothek_cube.core.runtime.options import options
from kartothek_cube.core.snapshots.loader import load_snapshot
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.testing.stores import CountingStore, FaultyStore, SimulatedCrash
from tests.support.aging import use_clock
from tests.support.commits import UUID, make_change, wait_for_waiting, write

DOCUMENT = document_key(UUID)


def rows(store):
    return sorted(read_table_arrow(UUID, store)["x"].to_pylist())


def staged_before(change, age):
    """The change as if its files were so old."""
    return replace(
        change, receipts=tuple(dataclasses.replace(r, staged=datetime.now(UTC) - age) for r in change.receipts)
    )


class Aged(CountingStore):
    """Some keys are old, and before the first deletion something else happens."""

    def __init__(self, inner, old, meanwhile):
        super().__init__(inner)
        self._old, self._meanwhile = old, [meanwhile]

    def around(self, operation, key, action):
        if operation == "delete" and self._meanwhile:
            self._meanwhile.pop()()
        answer = super().around(operation, key, action)
        if operation == "list":
            past = datetime.now(UTC) - timedelta(days=3)
            return replace(
                answer, entries=[replace(e, modified=past) if e.key in self._old else e for e in answer.entries]
            )
        return answer


@pytest.mark.parametrize("on", [[], ["p"]])
def test_files_that_are_committed_late_outlive_a_collection_that_has_decided_already(on):
    store = MemoryStore()
    base = write(store, {"x": [1], "p": ["a"]}, on=on, index=["x"])
    change = staged_before(make_change(store, {"x": [2], "p": ["a"]}, on=on, index=["x"]), timedelta(days=3))
    garbage_collect_dataset(
        UUID, Aged(store, {r.key for r in change.receipts}, lambda: commit_change(store, change, base))
    )
    assert rows(store) == [1, 2]
    assert verify_dataset(UUID, store, deep=True).clean


def test_copies_of_files_that_waited_are_collected_like_others():
    store = MemoryStore()
    base = write(store, {"x": [1]})
    change = staged_before(make_change(store, {"x": [2]}), timedelta(days=3))
    landed = commit_change(store, change, base)
    assert change.receipts[0].key not in landed.files.to_pylist()
    assert landed.partitions.labels.to_pylist()[1] == change.receipts[0].label
    with options(grace=timedelta(0)):
        assert [f.key for f in garbage_collect_dataset(UUID, store).removed] == [change.receipts[0].key]
    assert rows(store) == [1, 2]


def test_young_files_are_not_copied():
    store = CountingStore(MemoryStore())
    base = write(store, {"x": [1]})
    commit_change(store, make_change(store, {"x": [2]}), base)
    assert store.counts["copy"] == 0


@pytest.mark.parametrize("more", [0, 1])
def test_files_are_old_after_half_of_the_grace_period(monkeypatch, more):
    clock, store = use_clock(monkeypatch), CountingStore(MemoryStore())
    base = write(store, {"x": [1]})
    change = make_change(store, {"x": [2]})
    clock.advance(seconds=30, microseconds=more)
    with options(grace=timedelta(minutes=1)):
        commit_change(store, change, base)
    assert store.counts["copy"] == more


def test_a_commit_that_landed_is_no_error_although_others_followed_and_the_store_fails_then():
    memory = MemoryStore()
    base = write(memory, {"x": [1]}, index=["x"])
    change = make_change(memory, {"x": [2]}, index=["x"])
    seen = []

    def fail(call):
        """The answer is lost, somebody else commits, our commit is found beneath; then the store is
        gone.
        """
        if call.key != DOCUMENT:
            return "before" if len(seen) > 1 else None
        if call.operation == "put_if":
            seen.append(call)
            return "after"
        if call.operation == "get_versioned" and seen:
            seen.append(call)
            if len(seen) == 2:
                write(memory, {"x": [3]}, index=["x"])
                return None
        return "before" if len(seen) > 1 else None

    landed = commit_change(FaultyStore(memory, fail), change, base)
    assert landed.result.id == change.commit
    assert len(landed.partitions) == 2
    assert rows(memory) == [1, 2, 3]
    assert len(load_snapshot(memory, UUID).chain) == 3


# --- many in one line -----------------------------------------------------------------------------


def together(store, number, fail):
    """So many appends that all wait while the first one is put; what each caller hears."""
    base = load_snapshot(store, UUID)
    changes = [make_change(store, {"x": [i]}, index=["x"]) for i in range(1, number + 1)]
    heard, others = {}, []

    def append(view, i):
        try:
            heard[i] = commit_change(view, changes[i], base)
        except BaseException as error:
            heard[i] = error

    def hold(call):
        if call.operation == "put_if" and call.key == DOCUMENT and not others:
            others.extend(Thread(target=append, args=(FaultyStore(store, fail), i)) for i in range(1, number))
            for i, thread in enumerate(others):
                thread.start()
                wait_for_waiting(store, i + 1)

    append(FaultyStore(store, hold), 0)
    for thread in others:
        thread.join()
    return heard


def test_no_swap_has_more_commits_than_the_chain_can_tell():
    store = MemoryStore()
    write(store, {"x": [0]}, index=["x"])
    counting = CountingStore(store)
    heard = together(counting, 3 * LENGTH, lambda call: None)
    assert not [error for error in heard.values() if isinstance(error, BaseException)]
    assert rows(store) == list(range(3 * LENGTH + 1))
    assert counting.touched("put_if").count(DOCUMENT) >= 1 + 3 * LENGTH // (LENGTH - 1)


def test_who_waited_behind_an_interrupted_commit_finds_his_own_among_many():
    store = MemoryStore()
    write(store, {"x": [0]}, index=["x"])
    seen = []

    def interrupt(call):
        if call.operation == "put_if" and call.key == DOCUMENT and not seen:
            seen.append(call)
            return "crash_after"
        return None

    heard = together(store, LENGTH + 10, interrupt)
    assert [type(error) for error in heard.values() if isinstance(error, BaseException)] == [SimulatedCrash]
    dead = next(i for i, error in heard.items() if isinstance(error, BaseException))
    # Who was interrupted may have worked for others and not come to his own yet.
    assert sorted({*rows(store), dead + 1}) == list(range(LENGTH + 11))
    assert len(rows(store)) == len({*rows(store)})

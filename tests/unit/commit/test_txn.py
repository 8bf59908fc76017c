"""Numbered writes: parsed, kept in the document, and each published at most once, whatever happens
meanwhile.
"""

from __future__ import annotations

import dataclasses
import itertools
import threading
from contextlib import suppress
from datetime import timedelta

import numpy as np
import pyarrow as pa
import pytest
from msgspec.structs import replace

from kartothek_cube.core.commit.commit import commit_change, prepare_commit
from kartothek_cube.core.dataset.history import undo
from kartothek_cube.core.dataset.maintain import compact_dataset, copy_dataset, rename_dataset
from kartothek_cube.core.dataset.read import read_table_arrow
from kartothek_cube.core.dataset.write import (
    commit_receipts,
    stage_partitions,
    store_dataframes_as_dataset,
    update_dataset_from_dataframes,
)
from kartothek_cube.core.metadata.commit_log import TXN_KEY, Txn, is_applied, last_number, parse_txn, with_txn
from kartothek_cube.core.snapshots.loader import find_snapshot, load_snapshot
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import CommitConflict, CorruptDocument, InvalidInput, InvalidType
from kartothek_cube.testing.stores import CountingStore, FaultyStore, InjectedFault, SimulatedCrash
from tests.support.commits import UUID, make_change, wait_for_waiting, write

DOCUMENT = f"{UUID}.by-dataset-metadata.json"
NUMBERS = itertools.count()
FIRST, SECOND = Txn("app", 1), Txn("app", 2)


def values(store, uuid=UUID):
    return sorted(read_table_arrow(uuid, store).column("x").to_pylist())


def numbers(store, uuid=UUID):
    return load_snapshot(store, uuid).document.metadata.get(TXN_KEY)


def numbered(store, rows, txn, **more):
    return write(store, {"x": rows}, txn=txn, **more)


# --- the value ------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [("app", 7), ["app", 7], Txn("app", 7), ("app", np.int64(7))])
def test_txn_is_a_pair(value):
    assert parse_txn(value) == Txn("app", 7)
    assert parse_txn(None) is None


@pytest.mark.parametrize(
    ("value", "error", "words"),
    [
        ("app", InvalidType, "pair"),
        (7, InvalidType, "pair"),
        (("app",), InvalidType, "pair"),
        (("app", 1, 2), InvalidType, "pair"),
        ((7, "app"), InvalidType, "a text and an integer"),
        (("app", True), InvalidType, "a text and an integer"),
        (("app", 1.0), InvalidType, "a text and an integer"),
        (("app", None), InvalidType, "a text and an integer"),
        (("", 1), InvalidInput, "empty"),
        (("app", -1), InvalidInput, "-1"),
        (("app", 2**63), InvalidInput, "2\\*\\*63"),
    ],
)
def test_something_else_is_refused_and_told_what_would_be_right(value, error, words):
    with pytest.raises(error, match=words):
        parse_txn(value)


def test_each_application_has_a_number():
    metadata = with_txn(Txn("b", 0), with_txn(Txn("a", 5), {}))
    assert (last_number(metadata, "a"), last_number(metadata, "b"), last_number(metadata, "c")) == (5, 0, None)
    assert with_txn(None, metadata) == metadata
    assert with_txn(None, {}) == {}
    assert [is_applied(Txn("a", n), metadata) for n in (4, 5, 6)] == [True, True, False]
    assert not is_applied(None, metadata)


@pytest.mark.parametrize("damaged", ["", "[]", '{"app": "1"}', '{"app": true}', "{", 7])
def test_damaged_numbers_are_no_empty_numbers(damaged):
    with pytest.raises(CorruptDocument, match="application id"):
        is_applied(FIRST, {TXN_KEY: damaged})
    assert with_txn(None, {TXN_KEY: damaged}) == {TXN_KEY: damaged}


# --- publishing -----------------------------------------------------------------------------------


def test_a_number_is_published_once():
    store = MemoryStore()
    assert not numbered(store, [1], FIRST).result.skipped
    commits = load_snapshot(store, UUID).chain
    again = numbered(store, [1], FIRST)
    assert again.result.skipped
    assert again.chain == commits
    assert not numbered(store, [2], SECOND).result.skipped
    assert numbered(store, [1], FIRST).result.skipped
    assert not numbered(store, [3], Txn("other", 0)).result.skipped
    assert values(store) == [1, 2, 3]
    assert load_snapshot(store, UUID).document.user_metadata.keys() == {"creation_time"}


def test_a_skipped_change_writes_nothing_and_needs_no_files():
    store = CountingStore(MemoryStore())
    numbered(store, [1], FIRST)
    base = load_snapshot(store, UUID)
    change = make_change(store, {"x": [1]}, txn=FIRST)
    lost = replace(
        change,
        receipts=tuple(
            dataclasses.replace(r, key=r.key + ".gone", staged=r.staged - timedelta(days=900)) for r in change.receipts
        ),
    )
    store.reset()
    prepare_commit(store, lost, base)
    assert commit_change(store, lost, base).result.skipped
    assert not {"put", "put_if", "copy", "delete", "put_file"} & store.counts.keys()


@pytest.mark.parametrize("more", [{"replace": True}, {"removed": ["gone"]}, {"creates": True}])
def test_a_skipped_change_is_not_held_against_the_newest_state(more):
    store = MemoryStore()
    base = find_snapshot(store, UUID)
    change = make_change(store, {"x": [1]}, txn=FIRST, **more)
    commit_change(store, replace(change, commit="c1", removed=change.removed[:0]), base)
    assert commit_change(store, change, base).result.skipped
    assert values(store) == [1]


def test_damaged_numbers_stop_numbered_writes_only():
    store = MemoryStore()
    numbered(store, [1], FIRST)
    text = store.get(DOCUMENT).replace(b'{\\"app\\": 1}', b"nonsense")
    store.put(DOCUMENT, text)
    with pytest.raises(CorruptDocument, match="nonsense"):
        numbered(store, [2], SECOND)
    assert values(store) == [1]
    write(store, {"x": [3]})
    assert values(store) == [1, 3]
    assert numbers(store) == "nonsense"


@pytest.mark.parametrize("more", [{}, {"replace": True}, {"on_conflict": "reapply"}])
def test_a_change_for_a_state_that_had_the_number_does_not_land_where_it_is_gone(more):
    """It may come without files, as the number said that none are needed.

    So it would leave the number and no rows.
    """
    store = MemoryStore()
    write(store, {"x": [0]})
    before = store.get(DOCUMENT)
    base = numbered(store, [1], FIRST)
    store.put(DOCUMENT, before)  # an old library writes what it read before
    write(store, {"x": [7]})
    with pytest.raises(CommitConflict, match="the number of this write is gone"):
        commit_change(store, replace(make_change(store, {"x": [1]}, txn=FIRST, **more), receipts=()), base)
    assert numbers(store) is None
    assert values(store) == [0, 7]


# --- races ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("exists", [True, False])
@pytest.mark.parametrize("turns", ["shared", "separate"])
def test_of_two_racers_with_one_number_exactly_one_lands(exists, turns):
    memory = MemoryStore()
    if exists:
        write(memory, {"x": [0]})
    # Each racer with a store of its own shares no queue with the other, as in two processes.
    stores = [memory] * 6 if turns == "shared" else [Apart(memory) for _ in range(6)]
    bases = [find_snapshot(store, UUID) for store in stores]
    changes = [
        make_change(store, {"x": [n]}, txn=Txn("app", n // 2))
        for n, store in zip((0, 0, 0, 2, 2, 2), stores, strict=True)
    ]
    changes = [replace(change, creates=False) for change in changes]
    barrier, results = threading.Barrier(6), [None] * 6

    def race(n):
        barrier.wait()
        try:
            results[n] = commit_change(stores[n], changes[n], bases[n]).result
        except Exception as error:
            results[n] = error

    threads = [threading.Thread(target=race, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [result for result in results if isinstance(result, Exception)] == []
    landed = [n for n, result in enumerate(results) if not result.skipped]
    # The lower number cannot come after the higher one.
    assert sum(n >= 3 for n in landed) == 1
    assert sum(n < 3 for n in landed) <= 1
    expected = [0] * exists + [0] * (len(landed) - 1) + [2]
    assert values(memory) == expected
    assert {c.id for c in load_snapshot(memory, UUID).chain} >= {changes[n].commit for n in landed}


class Apart(CountingStore):
    """A store with an identity of its own."""

    def __init__(self, inner):
        super().__init__(inner)
        self._identity = ("apart", next(NUMBERS))

    @property
    def identity(self):
        return self._identity


def test_a_race_is_lost_to_the_same_number_between_look_and_swap():
    memory, once = MemoryStore(), []
    write(memory, {"x": [0]})

    def other_first(call):
        if call.operation == "put_if" and call.key == DOCUMENT and not once:
            once.append(numbered(memory, [1], FIRST))

    snapshot = numbered(FaultyStore(memory, other_first), [1], FIRST)
    assert once
    assert snapshot.result.skipped
    assert snapshot.result.tries == 2
    assert values(memory) == [0, 1]


def test_one_swap_of_several_has_each_number_once():
    """While one commit waits for the store, equal ones stand in line and share the next swap."""
    memory, started, go = MemoryStore(), threading.Event(), threading.Event()
    write(memory, {"x": [0]})

    def hold(call):
        if call.operation == "put_if" and call.key == DOCUMENT and not started.is_set():
            started.set()
            go.wait(20)

    store, results = FaultyStore(memory, hold), {}
    base = load_snapshot(store, UUID)
    changes = {
        n: make_change(store, {"x": [n]}, txn=txn)
        for n, txn in {1: None, 2: FIRST, 3: FIRST, 4: SECOND, 5: FIRST}.items()
    }
    threads = [
        threading.Thread(target=lambda n=n: results.update({n: commit_change(store, changes[n], base).result}))
        for n in changes
    ]
    threads[0].start()
    assert started.wait(20)
    for n, thread in enumerate(threads[1:], start=1):
        thread.start()
        wait_for_waiting(store, n)
    go.set()
    for thread in threads:
        thread.join()
    # Thread 2 to 5 go in the order of their turn; only the first of each number, and none below a
    # higher one, has landed.
    done = {n for n, result in results.items() if not result.skipped}
    assert 1 in done
    assert 4 in done
    assert len(done & {2, 3, 5}) <= 1
    assert values(memory) == sorted([0, *done])
    assert numbers(memory) == '{"app": 2}'


# --- crashes --------------------------------------------------------------------------------------


def commit_one(store):
    snapshot = load_snapshot(store, UUID)
    return commit_change(store, make_change(store, {"x": [1], "i1": [1]}, index=["i1"], txn=FIRST), snapshot)


def at_call(n, fault):
    numbers = itertools.count(1)
    return lambda _: fault if next(numbers) == n else None


def test_after_a_crash_at_any_call_a_replay_makes_it_once():
    skipped = set()
    for n in range(1, 100):
        for fault in ("crash", "crash_after", "before", "after"):
            store = MemoryStore()
            write(store, {"x": [0], "i1": [0]}, index=["i1"])
            faulty = FaultyStore(store, at_call(n, fault))
            with suppress(SimulatedCrash, InjectedFault):
                commit_one(faulty)
            if len(faulty.calls) < n:
                assert skipped == {True, False}
                return
            landed = len(read_table_arrow(UUID, store)) == 2
            assert commit_one(store).result.skipped == landed
            skipped.add(landed)
            assert values(store) == [0, 1]
    pytest.fail("it never ended")


# --- what becomes of the number -------------------------------------------------------------------


def two(store):
    rows = [pa.table({"x": [n], "p": [n]}) for n in (0, 1)]
    commit_receipts(stage_partitions(rows, store, UUID, partition_on=["p"]), store, UUID, txn=("app", 1))


def overwritten(store):
    store_dataframes_as_dataset(
        store, UUID, [pa.table({"x": [n], "p": [n]}) for n in (0, 1)], partition_on=["p"], overwrite=True
    )


SURVIVES = {
    "an unnumbered write": lambda store: update_dataset_from_dataframes([pa.table({"x": [7], "p": [7]})], store, UUID),
    "an overwrite": overwritten,
    "an undone write": lambda store: undo(UUID, store),
    "compaction": lambda store: compact_dataset(UUID, store),
    "another application": lambda store: commit_receipts(
        stage_partitions(pa.table({"x": [7], "p": [7]}), store, UUID), store, UUID, txn=("other", 9)
    ),
    "a merger that forgets": lambda store: update_dataset_from_dataframes(
        [pa.table({"x": [7], "p": [7]})], store, UUID, metadata_merger=lambda _: {}
    ),
}


@pytest.mark.parametrize("what", SURVIVES)
def test_the_number_survives(what):
    store = MemoryStore()
    store_dataframes_as_dataset(store, UUID, [pa.table({"x": [5], "p": [5]})], partition_on=["p"])
    two(store)
    SURVIVES[what](store)
    assert last_number(load_snapshot(store, UUID).document.metadata, "app") == 1
    assert commit_receipts(
        stage_partitions(pa.table({"x": [9], "p": [9]}), store, UUID), store, UUID, txn=("app", 1)
    ).commit.skipped
    assert 9 not in values(store)


@pytest.mark.parametrize("verb", [copy_dataset, rename_dataset])
def test_copies_and_new_names_have_the_numbers(verb):
    store = MemoryStore()
    two(store)
    verb(UUID, store, "copy")
    assert last_number(load_snapshot(store, "copy").document.metadata, "app") == 1


def test_a_dataset_that_was_deleted_begins_anew():
    store = MemoryStore()
    numbered(store, [1], FIRST)
    store.delete(DOCUMENT)
    assert not numbered(store, [1], FIRST).result.skipped


# --- receipts by hand -----------------------------------------------------------------------------


def test_receipts_are_committed_once_for_a_number_whatever_they_are():
    store = MemoryStore()
    rows = pa.table({"x": [1]})
    results = [
        commit_receipts(stage_partitions(rows, store, UUID), store, UUID, txn=("app", 0)).commit for _ in range(3)
    ]
    assert [result.skipped for result in results] == [False, True, True]
    assert values(store) == [1]
    assert not commit_receipts([], store, UUID, txn=("app", 3)).commit.skipped
    assert commit_receipts(stage_partitions(rows, store, UUID), store, UUID, txn=("app", 2)).commit.skipped


def test_a_number_that_is_none_is_refused_before_anything_is_written():
    store = MemoryStore()
    staged = stage_partitions(pa.table({"x": [1]}), store, UUID)
    with pytest.raises(InvalidType, match="pair"):
        commit_receipts(staged, store, UUID, txn="app")
    assert not store.contains(DOCUMENT)

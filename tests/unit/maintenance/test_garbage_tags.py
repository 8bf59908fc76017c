"""Tags against garbage collection: what a tag names stays, whoever was faster."""

from __future__ import annotations

from datetime import timedelta
from itertools import product

import pandas as pd
import pytest

from kartothek_cube import options
from kartothek_cube.api.dataset import (
    drop_dataset_tag,
    garbage_collect_dataset,
    list_dataset_tags,
    read_table,
    store_dataframes_as_dataset,
    tag_dataset,
    undo,
    update_dataset_from_dataframes,
)
from kartothek_cube.core.maintenance.garbage import STATE, TAGGED, UNNAMED
from kartothek_cube.core.metadata.tag import is_state_key, is_tag_object, tag_key
from kartothek_cube.core.snapshots import time_travel as tagging
from kartothek_cube.core.snapshots.loader import load_snapshot
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import HistoryUnavailable, KartothekCubeError
from kartothek_cube.testing.stores import CountingStore
from tests.support.aging import AgedStore, use_clock
from tests.support.thoroughness import some
from tests.support.turns import run_interleaved

UUID = "uuid"
NOW = options(grace=timedelta(0), retain=timedelta(0))
SOON = options(grace=timedelta(hours=1), retain=timedelta(0))


def frame(number, partition="a"):
    return pd.DataFrame({"x": [number], "p": [partition]})


def commit(store, number):
    update_dataset_from_dataframes([frame(number)], store, UUID, delete_scope=[{"p": "a"}])


def build(store):
    """Three states, each of which replaces the file of the one before."""
    both = pd.concat([frame(0), frame(9, "b")])
    store_dataframes_as_dataset(store, UUID, [both], partition_on=["p"], secondary_indices=["x"], overwrite=True)
    commit(store, 1)
    commit(store, 2)
    return [c.id for c in load_snapshot(store, UUID).chain]


def rows(store, as_of=None):
    return sorted(read_table(UUID, store, as_of=as_of)["x"])


def collect(store, settings=NOW, **more):
    return garbage_collect_dataset(UUID, store, options=settings, **more)


def tagged_keys(store):
    return [key for key in store.list(recursive=True).keys if is_tag_object(key)]


@pytest.fixture
def clock(monkeypatch):
    return use_clock(monkeypatch)


@pytest.fixture
def store(clock):
    return AgedStore(clock)


def test_a_tag_pins_what_retain_would_let_go(store):
    commits = build(store)
    tag_dataset(UUID, store, "first", as_of=commits[0])
    report = collect(store)
    assert {file.why for file in report.waiting} == {TAGGED}
    assert report.kept == report.waiting
    with pytest.raises(HistoryUnavailable):
        rows(store, commits[1])
    assert rows(store, "first") == rows(store, commits[0]) == [0, 9]
    assert read_table(UUID, store, predicates=[[("x", "==", 0)]], as_of="first")["x"].to_list() == [0]


def test_the_index_of_a_tagged_state_stays(store):
    build(store)
    tag_dataset(UUID, store, "third")
    commit(store, 3)
    index = load_snapshot(store, UUID).document.indices["x"]
    collect(store)
    indices = [key for key in store.list(recursive=True).keys if "/indices/" in key]
    assert len(indices) == 2
    assert index in indices


def test_dropping_a_tag_frees_its_files(store):
    build(store)
    bare = {key for key in store.list(recursive=True).keys if "_history" not in key}
    commits = [c.id for c in load_snapshot(store, UUID).chain]
    tag_dataset(UUID, store, "first", as_of=commits[0])
    tag_dataset(UUID, store, "again", as_of=commits[0])
    drop_dataset_tag(UUID, store, "again")
    collect(store)
    assert rows(store, "first") == [0, 9]
    drop_dataset_tag(UUID, store, "first")
    report = collect(store)
    assert {file.why for file in report.removed} >= {UNNAMED}
    assert tagged_keys(store) == []
    assert {key for key in store.list(recursive=True).keys if "_history" not in key} < bare


def test_the_state_of_a_tagging_that_died_is_garbage_after_grace(store, clock):
    commits = build(store)
    tag_dataset(UUID, store, "first", as_of=commits[0])
    store.delete(tag_key(UUID, "first"))
    assert [f.why for f in collect(store, SOON).waiting if is_state_key(f.key)] == [STATE]
    clock.advance(hours=2)
    assert [f.key for f in collect(store, SOON).removed if is_state_key(f.key)] != []
    assert tagged_keys(store) == []


def test_a_store_without_times_marks_such_a_state(clock):
    store = AgedStore(clock, dated=False)
    build(store)
    tag_dataset(UUID, store, "first")
    store.delete(tag_key(UUID, "first"))
    collect(store, SOON)
    assert len(tagged_keys(store)) == 1
    clock.advance(hours=2)
    collect(store, SOON)
    assert tagged_keys(store) == []


def test_what_an_unreadable_tag_names_is_unknown_so_all_states_stay(store):
    commits = build(store)
    tag_dataset(UUID, store, "first", as_of=commits[0])
    good = store.get(tag_key(UUID, "first"))
    store.put(tag_key(UUID, "first"), b"damaged")
    collect(store)
    store.put(tag_key(UUID, "first"), good)
    assert rows(store, "first") == [0, 9]


def test_a_dry_run_tells_the_same(store):
    commits = build(store)
    tag_dataset(UUID, store, "first", as_of=commits[0])
    foretold = collect(store, dry_run=True)
    assert foretold.keys == collect(store).keys


def test_a_dataset_without_tags_costs_one_listing(store):
    build(store)
    counting = CountingStore(store)
    collect(counting)
    assert [call.operation for call in counting.calls if "_tags" in call.key] == ["list"]


# --- races ----------------------------------------------------------------------------------------

STATES = {"newest": (None, [2, 9]), "first": (0, [0, 9])}


def number_of_calls(action, store):
    counting = CountingStore(store)
    action(counting)
    return len(counting.calls)


def prepared(clock):
    """A dataset whose older states are past retain and grace, but not collected yet."""
    store = AgedStore(clock)
    commits = build(store)
    clock.advance(hours=2)
    return store, commits


@pytest.mark.slow
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("first", [0, 1])
def test_a_tag_and_a_collection_in_any_order(clock, state, first):
    position, expected = STATES[state]

    def actors(commits):
        as_of = None if position is None else commits[position]
        return [lambda s: tag_dataset(UUID, s, "mine", as_of=as_of), lambda s: collect(s, SOON)]

    lengths = [number_of_calls(actors(commits)[i], store) for i in (0, 1) for store, commits in [prepared(clock)]]
    landed = 0
    # The first actor makes some calls, then the other one some, then both finish in turn.
    orders = product(range(lengths[first] + 1), range(1, lengths[1 - first] + 1))
    for before, between in some(orders, 7):
        store, commits = prepared(clock)
        schedule = [(first, before)] * (before > 0) + [(1 - first, between), (first, 10**6)]
        failed, collector = run_interleaved(store, schedule, actors(commits))
        assert collector is None
        if failed is None:
            landed += 1
            assert rows(store, "mine") == expected
            collect(store, NOW)
            assert rows(store, "mine") == expected
        else:
            assert isinstance(failed, HistoryUnavailable)
            assert len(list_dataset_tags(UUID, store)) == 0
            assert rows(store) == [2, 9]
    assert landed > 0


@pytest.mark.parametrize("before", range(9))
def test_the_newest_state_is_replaced_and_collected_while_it_is_tagged(clock, before):
    store = AgedStore(clock)
    build(store)
    clock.advance(hours=2)

    def replace(view):
        commit(view, 3)
        clock.advance(hours=2)
        collect(view, SOON)

    failed, other = run_interleaved(
        store,
        [(0, before)] * (before > 0) + [(1, 10**6)],
        [lambda view: tag_dataset(UUID, view, "mine"), replace],
    )
    assert other is None
    if failed is None:
        assert rows(store, "mine") in ([2, 9], [3, 9])
    else:
        assert isinstance(failed, KartothekCubeError)
        assert len(list_dataset_tags(UUID, store)) == 0


def test_a_tag_of_a_state_that_is_lost_meanwhile_is_withdrawn(monkeypatch, store):
    commits = build(store)
    put = tagging.put_tag

    def collect_first(opened, plan):
        collect(store)
        put(opened, plan)

    monkeypatch.setattr(tagging, "put_tag", collect_first)
    with pytest.raises(HistoryUnavailable):
        tag_dataset(UUID, store, "first", as_of=commits[0])
    assert tagged_keys(store) == []
    assert rows(store) == [2, 9]


def test_a_tag_of_a_tag_that_is_dropped_meanwhile_is_withdrawn(monkeypatch, store):
    commits = build(store)
    tag_dataset(UUID, store, "first", as_of=commits[0])
    collect(store)
    put = tagging.put_tag

    def drop_first(opened, plan):
        drop_dataset_tag(UUID, store, "first")
        put(opened, plan)

    monkeypatch.setattr(tagging, "put_tag", drop_first)
    with pytest.raises(HistoryUnavailable, match="first"):
        tag_dataset(UUID, store, "second", as_of="first")
    assert tagged_keys(store) == []


def test_files_of_a_tag_that_come_back_by_undo_are_shared():
    store = MemoryStore()
    commits = build(store)
    tag_dataset(UUID, store, "second", as_of=commits[1])
    undo(UUID, store)
    tag_dataset(UUID, store, "undone")
    drop_dataset_tag(UUID, store, "second")
    commit(store, 3)
    collect(store)
    assert rows(store, "undone") == [1, 9]
    assert rows(store) == [3, 9]

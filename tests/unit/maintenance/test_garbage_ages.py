"""What collections of garbage remove, and when: ages, kept history, marks, crashes, writers at
work, and the number of calls.
"""

from __future__ import annotations

import json
from datetime import timedelta

import pandas as pd
import pyarrow as pa
import pytest
from msgspec.structs import replace

from kartothek_cube import options
from kartothek_cube.api.cube import build_cube, cleanup_cube, delete_cube
from kartothek_cube.api.dataset import compact_dataset
from kartothek_cube.core.dataset.maintain import delete_dataset, garbage_collect_dataset, verify_dataset
from kartothek_cube.core.dataset.read import read_table
from kartothek_cube.core.dataset.write import store_dataframes_as_dataset, update_dataset_from_dataframes
from kartothek_cube.core.maintenance.garbage import HISTORY, INDEX, KEPT, UNNAMED, tracked_keys
from kartothek_cube.core.metadata.document import PartitionColumns
from kartothek_cube.core.metadata.history_entry import decode_entry, encode_entry, history_key
from kartothek_cube.core.metadata.naming import document_key
from kartothek_cube.core.snapshots.loader import load_snapshot
from kartothek_cube.core.snapshots.time_travel import load_snapshot_as_of
from kartothek_cube.errors import CorruptDocument, StagedFilesLost
from kartothek_cube.testing.stores import CountingStore, FaultyStore, SimulatedCrash
from tests.support.aging import AgedStore, use_clock
from tests.support.cubes import CUBE, ENRICH, SEED, build_two

UUID = "uuid"
ROWS = pd.DataFrame({"x": [1, 2, 3], "p": ["a", "a", "b"], "i1": [7, 8, 9]})
DAY = timedelta(days=1)
NOW = options(grace=timedelta(0), retain=timedelta(0))
LEFT = f"{UUID}/table/p=a/left.parquet"


@pytest.fixture
def clock(monkeypatch):
    return use_clock(monkeypatch)


@pytest.fixture
def store(clock):
    return AgedStore(clock)


@pytest.fixture
def undated(clock):
    return AgedStore(clock, dated=False)


def build(store, data=ROWS, uuid=UUID, **more):
    return store_dataframes_as_dataset(
        store, uuid, [data], **{"partition_on": ["p"], "secondary_indices": ["i1"], "overwrite": True, **more}
    )


def collect(store, **more):
    return garbage_collect_dataset(UUID, store, **more)


def keys(store, part=""):
    return {key for key in store.list(recursive=True).keys if part in key}


def named(store, uuid=UUID):
    return tracked_keys(load_snapshot(store, uuid))


def history_files(store):
    return {file for key in keys(store, "/_history/") for file in decode_entry(store.get(key), key).files}


def marked(store):
    return [set(json.loads(store.get(key))["keys"]) for key in sorted(keys(store, "/_gc/"))]


# --- with times of writing ------------------------------------------------------------------------


def test_a_replaced_file_stays_for_retain_and_a_replaced_index_for_grace_from_the_replacement_on(store, clock):
    build(store)
    data, index = keys(store, "/table/p="), keys(store, "/indices/")
    clock.advance(days=30)
    build(store)
    report = collect(store)
    assert [e.why for e in report.removed] == [HISTORY]
    assert {e.key for e in report.kept} == data | index
    clock.advance(hours=24)
    assert set(collect(store).keys) == index
    clock.advance(days=6, minutes=-1)
    assert collect(store).keys == []
    clock.advance(minutes=1)
    report = collect(store)
    assert {e.key for e in report.removed if e.why == UNNAMED} == data
    assert [e.why for e in report.removed].count(HISTORY) == 1
    assert sorted(read_table(UUID, store)["x"]) == [1, 2, 3]
    assert keys(store) <= named(store)


def test_older_snapshots_can_be_read_as_long_as_their_history_is_kept(store, clock):
    build(store)
    first = load_snapshot(store, UUID).chain[-1].id
    clock.advance(days=30)
    build(store, ROWS[:1])
    clock.advance(days=6)
    collect(store)
    assert {
        k for f in load_snapshot_as_of(store, UUID, first).partitions.files.values() for k in f.to_pylist()
    } <= keys(store)
    assert sorted(read_table(UUID, store)["x"]) == [1]


def test_a_file_of_nobody_waits_for_its_grace(store, clock):
    build(store)
    store.put(LEFT, b"PAR1")
    clock.advance(hours=23)
    (waiting,) = collect(store).waiting
    assert (waiting.key, waiting.size, waiting.age, waiting.why) == (LEFT, 4, timedelta(hours=23), UNNAMED)
    clock.advance(hours=1)
    assert collect(store).keys == [LEFT]


@pytest.mark.parametrize(("grace", "retain", "hours"), [(1, 0, 24), (3, 1, 72), (1, 2, 48), (0, 2, 48)])
def test_history_is_kept_for_the_longer_of_both_periods(store, clock, grace, retain, hours):
    build(store)
    data = keys(store, "/table/p=")
    build(store)
    chosen = options(grace=grace * DAY, retain=retain * DAY)
    clock.advance(hours=hours, minutes=-1)
    collect(store, options=chosen)
    assert data <= keys(store)
    clock.advance(minutes=1)
    collect(store, options=chosen)
    assert not data & keys(store)


def test_without_periods_all_goes_at_once(store):
    build(store)
    build(store)
    report = collect(store, options=NOW)
    assert (len(report.removed), report.waiting) == (5, ())
    assert keys(store) <= named(store)


def test_a_clock_that_lies_ahead_makes_young(store, clock):
    build(store)
    clock.advance(days=400)
    build(store)
    store.put(LEFT, b"")
    clock.advance(days=-400)
    before = keys(store)
    assert collect(store).keys == []
    assert keys(store) == before


def test_the_later_of_an_entrys_two_times_counts(store, clock):
    build(store)
    build(store)
    data = history_files(store)
    clock.advance(days=8)
    for key in keys(store, "/_history/"):
        store.put(key, store.get(key))  # a writer whose clock was slow
    collect(store)
    assert data <= keys(store)


def test_history_of_a_failed_commit_goes_by_its_age(store, clock):
    build(store)
    store.put(history_key(UUID, "failed"), store.get(next(iter(keys(store, "/_history/")))))
    clock.advance(days=6)
    assert collect(store).keys == []
    clock.advance(days=1)
    assert history_key(UUID, "failed") in collect(store).keys


def test_history_that_cannot_be_read_protects_nothing_and_goes_by_its_age(store, clock):
    build(store)
    store.put(history_key(UUID, "damaged"), b"?")
    clock.advance(days=6)
    assert collect(store).keys == []
    clock.advance(days=1)
    assert history_key(UUID, "damaged") in collect(store).keys


def test_after_a_foreign_commit_older_history_still_protects(store, clock):
    build(store)
    build(store)
    document = json.loads(store.get(document_key(UUID)))
    partitions = dict(list(document["partitions"].items())[:1])
    store.put(document_key(UUID), json.dumps({**document, "partitions": partitions}).encode())
    clock.advance(days=2)
    old = history_files(store)
    collect(store)
    assert old <= keys(store)


def test_old_tables_go_whole_although_their_schema_file_is_older(store, clock):
    build(store, {"old": ROWS})
    old = keys(store, "/old/")
    clock.advance(days=30)
    build(store, {"new": ROWS})
    clock.advance(days=2)
    collect(store)
    assert old <= keys(store)
    clock.advance(days=6)
    collect(store)
    assert not old & keys(store)


def test_only_keys_below_the_dataset_go_whatever_its_history_and_marks_name(store, clock):
    build(store, uuid=f"{UUID}+b")
    build(store, uuid="other")
    others = keys(store)
    build(store)
    build(store)
    (key,) = (k for k in keys(store, f"{UUID}/_history/") if decode_entry(store.get(k), k).files)
    entry = decode_entry(store.get(key), key)
    labels = pa.array([f"p=a/{n}" for n in range(len(others))])
    hostile = replace(
        entry,
        removed=PartitionColumns(labels, {"table": pa.array(sorted(others))}),
        positions=pa.array(range(len(others))),
    )
    store.put(key, encode_entry(hostile))
    store.put(f"{UUID}/_gc/1.json", json.dumps({"time": "2020-01-01T00:00:00+00:00", "keys": sorted(others)}).encode())
    clock.advance(days=30)
    assert len(collect(store).keys) == 5
    assert others <= keys(store)


@pytest.mark.parametrize("document", [b"{", b'{"dataset_metadata_version": 5, "dataset_uuid": "uuid"}'])
def test_a_document_that_cannot_be_read_keeps_everything(undated, clock, document):
    build(undated)
    undated.put(document_key(UUID), document)
    undated.put(LEFT, b"")
    clock.advance(days=30)
    before = keys(undated)
    with pytest.raises(CorruptDocument, match=UUID):
        collect(undated)
    assert keys(undated) == before


# --- marks ----------------------------------------------------------------------------------------


def test_without_times_a_mark_says_when_a_file_was_first_seen(undated, clock):
    build(undated)
    undated.put(LEFT, b"PAR1")
    report = collect(undated)
    assert ([e.key for e in report.waiting], report.keys, marked(undated)) == ([LEFT], [], [{LEFT}])
    clock.advance(hours=23)
    assert collect(undated).keys == []
    clock.advance(hours=1)
    assert LEFT in collect(undated).keys
    assert marked(undated) == []


def test_a_run_marks_only_what_is_not_marked(undated, clock):
    build(undated)
    undated.put(LEFT, b"")
    collect(undated)
    later = LEFT.replace("left", "later")
    undated.put(later, b"")
    clock.advance(hours=12)
    collect(undated)
    assert sorted(map(sorted, marked(undated))) == sorted([[later], [LEFT]])
    counting = CountingStore(undated)
    collect(counting)
    assert counting.counts["put"] == counting.counts["delete"] == 0
    clock.advance(hours=12)
    assert LEFT in collect(undated).keys
    assert marked(undated) == [{later}]


def test_what_history_keeps_needs_no_mark(undated):
    build(undated)
    build(undated)
    assert len(collect(undated).kept) == 3
    assert marked(undated) == []


def test_a_dry_run_writes_no_mark(undated):
    build(undated)
    undated.put(LEFT, b"")
    before = keys(undated)
    assert [e.key for e in collect(undated, dry_run=True).waiting] == [LEFT]
    assert keys(undated) == before


def test_without_grace_there_is_no_mark_and_none_stays(undated):
    build(undated)
    undated.put(LEFT, b"")
    collect(undated)
    report = collect(undated, options=NOW)
    assert LEFT in report.keys
    assert report.waiting == ()
    assert marked(undated) == []


def test_a_key_that_is_named_again_loses_its_mark(undated, clock):
    build(undated)
    more = LEFT.replace("left", "more")
    for key in (LEFT, more):
        undated.put(key, b"")
    collect(undated)
    document = json.loads(undated.get(document_key(UUID)))
    label = {"p=a/left": {"files": {"table": LEFT}}}
    undated.put(
        document_key(UUID), json.dumps({**document, "partitions": {**document["partitions"], **label}}).encode()
    )
    clock.advance(days=2)
    assert more in (gone := collect(undated).keys)
    assert LEFT not in gone
    assert marked(undated) == []
    undated.put(document_key(UUID), json.dumps(document).encode())
    assert collect(undated).keys == []
    assert marked(undated) == [{LEFT}]


@pytest.mark.parametrize(
    "mark",
    [b"?", b"{}", b'{"time": "2999-01-01T00:00:00Z", "keys": ["%s"]}' % LEFT.encode(), b'{"time": 1, "keys": [1]}'],
)
def test_a_mark_that_is_damaged_or_of_the_future_says_nothing(undated, clock, mark):
    build(undated)
    undated.put(LEFT, b"")
    undated.put(f"{UUID}/_gc/1.json", mark)
    clock.advance(days=30)
    assert LEFT not in collect(undated).keys
    assert marked(undated) == [{LEFT}]
    clock.advance(days=1)
    assert LEFT in collect(undated).keys
    assert marked(undated) == []


def test_a_file_under_the_key_of_one_that_went_is_a_new_one(undated, clock):
    build(undated)
    undated.put(LEFT, b"")
    collect(undated)
    clock.advance(days=1)
    faulty = FaultyStore(
        undated, lambda call: "crash_after" if (call.operation, call.key) == ("delete", LEFT) else None
    )
    with pytest.raises(SimulatedCrash):
        collect(faulty)
    undated.put(LEFT, b"another")
    assert LEFT not in collect(undated).keys


def test_marks_of_a_cube_lie_with_each_dataset_and_those_of_strays_with_the_seed(undated, clock):
    build_two(undated)
    strays = {"cube++e/unknown/x", "cube++stray", "cube++seed/table/left.parquet"}
    for key in (*strays, "cube+++seed/table/left.parquet"):
        undated.put(key, b"")
    assert cleanup_cube(CUBE, undated).keys == []
    assert set().union(*marked(undated)) == strays
    assert {key.partition("/")[0] for key in keys(undated, "/_gc/")} == {"cube++seed", "cube++e"}
    clock.advance(hours=12)
    garbage_collect_dataset("cube++seed", undated)
    assert set().union(*marked(undated)) == strays
    clock.advance(hours=12)
    assert set(cleanup_cube(CUBE, undated).keys) == strays
    assert marked(undated) == []
    assert keys(undated, "cube+++seed") == {"cube+++seed/table/left.parquet"}


@pytest.mark.parametrize("dated", [True, False])
def test_history_protects_the_files_of_cubes_too(clock, dated):
    store = AgedStore(clock, dated=dated)
    build_two(store)
    clock.advance(days=30)
    old = {
        key
        for name in ("seed", "e")
        for key in named(store, f"cube++{name}")
        if "/table/" in key and key.endswith(".parquet")
    }
    build_cube({"seed": SEED, "e": ENRICH}, CUBE, store, overwrite=True, partition_on={"e": []})
    report = cleanup_cube(CUBE, store)
    assert old <= {e.key for e in report.kept}
    for _ in range(3):
        clock.advance(days=7)
        cleanup_cube(CUBE, store)
    assert keys(store) == keys(store) & (named(store, "cube++seed") | named(store, "cube++e"))
    assert not old & keys(store)


@pytest.mark.parametrize("dated", [True, False])
def test_nothing_is_left_of_what_was_deleted(clock, dated):
    store = AgedStore(clock, dated=dated)
    build(store)
    build(store)
    store.put(LEFT, b"")
    collect(store)
    delete_dataset(UUID, store)
    assert keys(store) == set()
    build_two(store)
    store.put("cube++e/table/left.parquet", b"")
    cleanup_cube(CUBE, store)
    delete_cube(CUBE, store)
    assert keys(store) == {"cube++e/table/left.parquet"}


# --- crashes and writers at work ------------------------------------------------------------------


def with_old_garbage(clock, dated):
    store = AgedStore(clock, dated=dated)
    build(store, {"TABLE": ROWS})  # comes before "_history" in a listing
    store.put(LEFT.replace("table", "TABLE"), b"")
    clock.advance(days=30)
    build(store, {"TABLE": ROWS})
    collect(store)
    clock.advance(days=8)
    return store


@pytest.mark.parametrize("dated", [True, False])
@pytest.mark.parametrize("fault", ["crash", "crash_after", "before", "after"])
def test_after_a_failure_of_any_call_history_names_no_file_that_is_gone(clock, dated, fault):
    calls = CountingStore(with_old_garbage(clock, dated))
    collect(calls, options=options(threads=1))
    failures = 0
    for nth in range(1, len(calls.calls) + 1):
        store = with_old_garbage(clock, dated)
        seen = iter(range(1, 10**6))
        faulty = FaultyStore(store, lambda _, seen=seen, nth=nth: fault if next(seen) == nth else None)
        try:
            collect(faulty, options=options(threads=1))
        except (SimulatedCrash, OSError):
            failures += 1
        assert history_files(store) <= keys(store)
        assert sorted(read_table(UUID, store, table="TABLE")["x"]) == [1, 2, 3]
        for _ in range(3):
            clock.advance(days=7)
            collect(store)
        assert keys(store) <= named(store)
    assert failures >= len(calls.calls) - 4  # leftovers of this store are none, and some calls are asked twice


class Collecting(AgedStore):
    """Time passes at each call, and another process collects garbage before it."""

    def __init__(self, clock, inner, minutes, retain):
        super().__init__(clock, dated=inner.dated, inner=inner)
        self.minutes, self.retain, self.times = minutes, retain, inner.times

    def around(self, operation, key, action):
        self.clock.advance(minutes=self.minutes)
        if self.inner.inner.contains(document_key(UUID)):
            collect(self.inner, options=options(retain=self.retain))
        return super().around(operation, key, action)


@pytest.mark.parametrize("dated", [True, False])
@pytest.mark.parametrize("retain", [timedelta(0), timedelta(days=7)])
@pytest.mark.parametrize("minutes", [1, 120])
def test_a_collection_at_every_call_of_a_writer_takes_nothing_of_it(clock, dated, retain, minutes):
    inner = AgedStore(clock, dated=dated)
    store = Collecting(clock, inner, minutes, retain)
    one = options(threads=1)
    expected = [1, 2, 3]
    build(store, options=one)
    for n in range(3):
        old = load_snapshot(inner, UUID)
        try:
            update_dataset_from_dataframes(
                [pd.DataFrame({"x": [n], "p": ["b"], "i1": [n]})],
                store,
                UUID,
                delete_scope=[{"p": "b"}],
                partition_on=["p"],
                secondary_indices=["i1"],
                options=one,
            )
            expected = [1, 2, n]
        except StagedFilesLost:
            assert minutes > 1
        assert sorted(read_table(UUID, inner)["x"]) == sorted(expected)
        assert sorted(read_table(UUID, inner, predicates=[[("i1", ">=", 0)]])["x"]) == sorted(expected)
        assert {k for f in old.partitions.files.values() for k in f.to_pylist()} <= keys(inner)
        clock.advance(days=3)


class AnsweredLate(AgedStore):
    """The first data file lands at once; its caller hears of it days later, after a collection."""

    def around(self, operation, key, action):
        answer = super().around(operation, key, action)
        if operation in ("put", "put_file") and key.startswith(f"{UUID}/table/") and len(self.times) == 1:
            self.clock.advance(days=2)
            collect(self.inner)
        return answer


@pytest.mark.parametrize(
    "write",
    [
        lambda store: update_dataset_from_dataframes(
            [ROWS], store, UUID, partition_on=["p"], secondary_indices=["i1"], options=options(threads=1)
        ),
        lambda store: compact_dataset(UUID, store),
    ],
    ids=["update", "compact"],
)
def test_the_age_of_a_file_counts_from_before_its_writing(store, clock, write):
    build(store)
    update_dataset_from_dataframes([ROWS], store, UUID, partition_on=["p"], secondary_indices=["i1"])
    late = AnsweredLate(clock, inner=store)
    with pytest.raises(StagedFilesLost, match="grace period"):
        write(late)
    assert sorted(read_table(UUID, store)["x"]) == [1, 1, 2, 2, 3, 3]
    assert verify_dataset(UUID, store, deep=True).ok


def test_a_file_that_a_commit_restored_and_removed_in_between_stays(clock):
    store = AgedStore(clock)
    build(store)
    clock.advance(days=8)
    first = store.get(document_key(UUID))
    document = json.loads(first)
    (label,) = (k for k in document["partitions"] if k.startswith("p=b"))
    key = document["partitions"][label]["files"]["table"]
    partitions = {k: v for k, v in document["partitions"].items() if k != label}
    store.put(document_key(UUID), json.dumps({**document, "partitions": partitions}).encode())

    class Restoring(AgedStore):
        def around(self, operation, prefix, action):
            if (
                operation == "leftovers" and self.inner.get(document_key(UUID)) != first
            ):  # between the first look and the second
                self.inner.put(document_key(UUID), first)
                update_dataset_from_dataframes(
                    [ROWS[:0]],
                    self.inner,
                    UUID,
                    delete_scope=[{"p": "b"}],
                    partition_on=["p"],
                    secondary_indices=["i1"],
                )
            return super().around(operation, prefix, action)

    restoring = Restoring(clock, inner=store)
    restoring.times = store.times
    assert key in collect(store, dry_run=True).keys
    assert key not in collect(restoring).keys
    assert key not in named(store)
    assert key in keys(store)


# --- the number of calls --------------------------------------------------------------------------


def test_the_number_of_calls(store, clock):
    for _ in range(3):
        build(store)
    clock.advance(days=2)
    counting = CountingStore(store)
    report = collect(counting)
    assert len(report.removed) == 2  # index files
    assert counting.counts["get"] == 3  # history entries
    assert counting.counts["list"] == 3  # <uuid>/, history before the deletion, and tags in its midst
    assert counting.counts["delete"] == 2
    assert counting.counts["changed"] + counting.counts["get_versioned"] <= 3
    assert counting.counts["leftovers"] == 2
    assert counting.counts["put"] == 0
    counting.reset()
    assert collect(counting).removed == ()
    assert (counting.counts["list"], counting.counts["get"], counting.counts["delete"]) == (1, 3, 0)


def test_the_number_of_calls_with_marks(undated, clock):
    build(undated)
    undated.put(LEFT, b"")
    counting = CountingStore(undated)
    collect(counting)
    assert (counting.counts["put"], counting.counts["delete"], counting.counts["list"]) == (1, 0, 1)
    clock.advance(days=1)
    counting.reset()
    collect(counting)
    assert counting.counts["get"] == 2  # an entry and a mark
    assert (counting.counts["put"], counting.counts["delete"], counting.counts["list"]) == (0, 2, 3)


def test_the_report_is_a_table(store, clock):
    build(store)
    build(store)
    store.put(LEFT, b"PAR1")
    clock.advance(days=2)
    report = collect(store, dry_run=True)
    table = report.to_arrow()
    assert table.column_names == ["key", "size", "modified", "age", "why", "waits"]
    assert sorted(set(table["why"].to_pylist())) == sorted({INDEX, KEPT, UNNAMED})
    assert (len(report.keys), len(report.waiting), len(report.kept)) == (2, 2, 2)
    assert report.bytes_waiting == sum(e.size for e in report.waiting)
    assert repr(report).endswith("wait, 2 of them for older snapshots)")
    assert collect(store, options=NOW).to_arrow().num_rows == 6


def test_an_age_before_all_times_keeps_everything(store):
    build(store)
    build(store)
    before = keys(store)
    assert collect(store, options=options(grace=timedelta.max, retain=timedelta.max)).keys == []
    assert keys(store) == before

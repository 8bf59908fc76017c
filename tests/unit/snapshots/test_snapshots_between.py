"""Two states of a dataset, found in one walk over its history."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import msgspec
import pyarrow as pa
import pytest
import zstandard
from msgspec.structs import replace

from kartothek_cube.core.dataset.maintain import compact_dataset
from kartothek_cube.core.dataset.write import store_dataframes_as_dataset, update_dataset_from_dataframes
from kartothek_cube.core.metadata.commit_log import CubeCommit
from kartothek_cube.core.metadata.history_entry import decode_entry, encode_entry, history_key
from kartothek_cube.core.metadata.naming import document_key
from kartothek_cube.core.snapshots.loader import load_snapshot
from kartothek_cube.core.snapshots.time_travel import BeforeCreation, read_entry, snapshots_between, states
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import CorruptDocument, HistoryUnavailable
from kartothek_cube.testing.stores import CountingStore
from tests.caches import forget
from tests.support.commits import UUID, labels, write

WRITE = "c" * 32


@pytest.fixture
def store():
    return MemoryStore()


@pytest.fixture
def made(store):
    """Five commits, each with one more partition; the fourth is part of a write to a cube."""
    snapshots = [write(store, {"x": [i]}, label=f"l{i}") for i in range(3)]
    snapshots.append(write(store, {"x": [3]}, label="l3", cube=CubeCommit(WRITE, (UUID, "other"))))
    return [*snapshots, write(store, {"x": [4]}, label="l4")]


def id_of(snapshot):
    return snapshot.chain[-1].id


def time_of(snapshot):
    return snapshot.chain[-1].time


def between(store, since, until=None):
    forget(store)
    return snapshots_between(store, load_snapshot(store, UUID), since, until)


@pytest.mark.parametrize("since", range(5))
@pytest.mark.parametrize("until", [*range(5), None])
@pytest.mark.parametrize("name", [id_of, time_of])
def test_any_two_commits_and_which_of_them_is_older(store, made, since, until, name):
    pair = between(store, name(made[since]), None if until is None else name(made[until]))
    last = 4 if until is None else until
    assert labels(pair.before) == labels(made[since])
    assert labels(pair.after) == labels(made[last])
    assert (pair.order < 0, pair.order > 0) == (since < last, since > last)
    assert (pair.before.commit, pair.after.commit) == (id_of(made[since]), id_of(made[last]))


def test_the_id_of_a_write_to_a_cube_and_moments_between_commits(store, made):
    pair = between(store, WRITE, time_of(made[4]) + timedelta(days=1))
    assert (labels(pair.before), labels(pair.after)) == (labels(made[3]), labels(made[4]))
    pair = between(store, time_of(made[1]), WRITE)
    assert (labels(pair.before), labels(pair.after), pair.order < 0) == (labels(made[1]), labels(made[3]), True)
    assert between(store, WRITE, id_of(made[3])).order == 0


def test_the_newest_state_alone_needs_no_history(store, made):
    counting = CountingStore(store)
    newest = load_snapshot(store, UUID)
    pair = snapshots_between(counting, newest, id_of(made[4]), None)
    assert pair == (newest, newest, 0)
    assert not counting.calls


def test_one_walk_for_both(store, made):
    counting = CountingStore(store)
    snapshots_between(counting, load_snapshot(store, UUID), id_of(made[0]), id_of(made[2]))
    keys = [key for key in counting.touched() if "/_history/" in key]
    assert len(keys) == len(set(keys)) <= 5


@pytest.mark.parametrize("place", [0, 1])
def test_what_is_not_in_the_history_is_named(store, made, place):
    def pair(wrong):
        return between(store, *([wrong, id_of(made[2])], [id_of(made[2]), wrong])[place])

    with pytest.raises(
        HistoryUnavailable,
        match=f"as of commit '{'0' * 32}': it has no such commit.*: it was made by commit {id_of(made[0])}",
    ):
        pair("0" * 32)
    with pytest.raises(BeforeCreation, match=r"as of 2001-01-01T00:00:00.00:00: it was made by commit"):
        pair(datetime(2001, 1, 1, tzinfo=UTC))
    store.delete(history_key(UUID, id_of(made[1])))
    assert labels(between(store, id_of(made[1]), id_of(made[2])).before) == labels(made[1])
    with pytest.raises(HistoryUnavailable, match=f"as of commit '{id_of(made[0])}': history is kept since commit"):
        pair(id_of(made[0]))


def test_a_corrupt_entry_is_an_error_only_behind_it(store, made):
    key = history_key(UUID, id_of(made[2]))
    store.put(key, b"no entry")
    assert labels(between(store, id_of(made[2]), id_of(made[3])).before) == labels(made[2])
    with pytest.raises(CorruptDocument, match=key):
        between(store, id_of(made[1]), id_of(made[3]))


def test_an_entry_of_another_commit_is_no_state(store, made):
    key, other = (history_key(UUID, id_of(made[i])) for i in (2, 1))
    store.put(key, store.get(other))
    with pytest.raises(CorruptDocument, match="says that it is of commit"):
        between(store, id_of(made[0]), None)


def drop_one(store):
    """Drop a partition as a writer does that knows no commits."""
    document = json.loads(store.get(document_key(UUID)))
    del document["partitions"]["l0"]
    store.put(document_key(UUID), json.dumps(document).encode())


@pytest.mark.filterwarnings("ignore::kartothek_cube.errors.ForeignWriterWarning")
def test_a_foreign_writer_between_and_last(store, made):
    drop_one(store)
    for since in (id_of(made[4]), id_of(made[0]), time_of(made[4])):
        with pytest.raises(HistoryUnavailable, match=f"came last, after commit {id_of(made[4])}"):
            between(store, since)
    now = datetime.now(UTC) + timedelta(days=1)
    assert between(store, now).order == 0
    assert between(store, now).before.commit is None
    ours = [write(store, {"x": [i]}, label=f"l{i}") for i in (5, 6)]
    assert labels(between(store, id_of(ours[0])).before) == labels(ours[0])
    for since in (id_of(made[4]), time_of(made[4])):
        with pytest.raises(HistoryUnavailable, match=f"before commit {id_of(ours[0])} .* came a writer that keeps no"):
            between(store, since)


# --- whether a commit changes data ----------------------------------------------------------------


def entry_of(store, commit):
    entry = read_entry(store, UUID, commit)
    assert entry is not None
    return entry


def test_a_compaction_says_that_it_changes_no_data_and_others_that_they_do(store):
    store_dataframes_as_dataset(store, UUID, [pa.table({"x": [1]})])
    update_dataset_from_dataframes([pa.table({"x": [2]})], store, UUID)
    compact_dataset(UUID, store)
    newest = load_snapshot(store, UUID)
    assert [state.entry.data_change for state in states(store, newest)] == [False, True, True]


def test_the_flag_survives_being_stored_and_is_true_in_entries_without_it(store, made):
    entry = entry_of(store, id_of(made[2]))
    for flag in (True, False):
        changed = replace(entry, data_change=flag)
        assert decode_entry(encode_entry(changed), "key").data_change is flag
    plain = msgspec.json.decode(zstandard.decompress(encode_entry(replace(entry, data_change=False))))
    assert plain.pop("data_change") is False
    older = zstandard.compress(msgspec.json.encode(plain))
    assert decode_entry(older, "key").data_change
    assert decode_entry(older, "key").commit == entry.commit

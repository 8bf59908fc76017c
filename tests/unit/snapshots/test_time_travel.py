"""Going back from the newest state by history entries: every commit gives its state again, and what
is damaged is said, not guessed.
"""

from __future__ import annotations

import json
import pickle
import threading
from datetime import UTC, datetime, timedelta, timezone

import pyarrow as pa
import pytest
from msgspec.structs import replace

from kartothek_cube.core.commit.change import Change
from kartothek_cube.core.commit.commit import commit_change
from kartothek_cube.core.dataset.write import (
    create_empty_dataset_header,
    store_dataframes_as_dataset,
    update_dataset_from_dataframes,
)
from kartothek_cube.core.metadata.commit_log import COMMITS_KEY, LENGTH
from kartothek_cube.core.metadata.history_entry import decode_entry, encode_entry, history_key
from kartothek_cube.core.metadata.naming import document_key
from kartothek_cube.core.snapshots.loader import load_index, load_snapshot
from kartothek_cube.core.snapshots.time_travel import (
    BeforeCreation,
    check_as_of,
    load_snapshot_as_of,
    read_entry,
    states,
)
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import CorruptDocument, DatasetNotFound, InvalidInput, InvalidType
from kartothek_cube.testing.stores import CountingStore
from tests.caches import forget
from tests.support.commits import UUID, labels, make_change, write

ROWS = {"x": [1, 2, 3], "p": ["a", "a", "b"], "v1": [0.5, None, 1.5]}


@pytest.fixture
def store():
    return MemoryStore()


def described(snapshot):
    """All that a reader sees of a state."""
    document = snapshot.document
    return (
        labels(snapshot),
        {t: keys.to_pylist() for t, keys in snapshot.partitions.files.items()},
        {t: s.names for t, s in snapshot.schemas.items()},
        snapshot.partition_keys,
        snapshot.secondary_columns,
        document.user_metadata,
    )


def as_of(store, when):
    forget(store)
    return described(load_snapshot_as_of(store, UUID, when))


def last(snapshot):
    return snapshot.chain[-1]


def edit_entry(store, commit, **changes):
    key = history_key(UUID, commit)
    store.put(key, encode_entry(replace(decode_entry(store.get(key), key), **changes)))


def edit_document(store, **members):
    """What a writer does that knows no chain."""
    document = json.loads(store.get(document_key(UUID)))
    store.put(document_key(UUID), json.dumps({**document, **members}).encode())


def commits_of(store, n):
    return [write(store, {"x": [i]}, label=f"l{i}") for i in range(n)]


# --- what is asked for ----------------------------------------------------------------------------


def test_a_moment_without_zone_is_utc():
    moment = datetime(2024, 5, 1, 12)
    assert check_as_of(moment) == moment.replace(tzinfo=UTC)
    assert check_as_of(moment.replace(tzinfo=timezone(timedelta(hours=2)))) == datetime(2024, 5, 1, 10, tzinfo=UTC)


@pytest.mark.parametrize("wrong", [1, 1.5, b"id", ["id"], timedelta(days=1)])
def test_anything_else_is_refused(store, wrong):
    with pytest.raises(InvalidType, match="as_of is the id of a commit"):
        load_snapshot_as_of(store, UUID, wrong)


def test_a_dataset_that_does_not_exist_has_no_older_state(store):
    with pytest.raises(DatasetNotFound):
        load_snapshot_as_of(store, UUID, "commit")


# --- every kind of commit -------------------------------------------------------------------------


@pytest.mark.parametrize("msgpack", [False, True])
def test_every_commit_gives_its_state_again(store, msgpack):
    made = [
        write(store, ROWS, on=["p"], index=["x"], label="1", metadata={"a": 1}, msgpack=msgpack),
        write(store, ROWS, on=["p"], index=["x"], label="2", removed=["p=a/1"], metadata={"a": 2}),
        write(store, pa.table(ROWS).slice(0, 0), on=["p"], index=["x"], metadata={"b": 3}, forgotten=frozenset({"a"})),
        write(store, ROWS, on=["p"], index=["x"], label="2"),
        write(store, {"y": ["t"]}, replace=True, metadata={"c": 4}),
        write(store, pa.table({"y": ["t"]}).slice(0, 0), removed=[]),
        write(store, {"y": ["u"], "z": [1]}, add_columns=True),
    ]
    for snapshot in made:
        assert as_of(store, last(snapshot).id) == as_of(store, last(snapshot).time) == described(snapshot)
    with pytest.raises(BeforeCreation, match="it was made by commit"):
        load_snapshot_as_of(store, UUID, last(made[0]).time - timedelta(microseconds=1))


def test_removed_partitions_come_back_in_their_places(store):
    made = commits_of(store, 5)
    made.append(write(store, pa.table({"x": [0]}).slice(0, 0), removed=["l0", "l2", "l4"]))
    made.append(write(store, {"x": [9]}, label="l9", removed=["l3"]))
    assert [as_of(store, last(s).id)[0] for s in made[4:]] == [
        ["l0", "l1", "l2", "l3", "l4"],
        ["l1", "l3"],
        ["l1", "l9"],
    ]


def test_tables_that_a_state_lacks_are_not_in_it(store):
    store_dataframes_as_dataset(store, UUID, [{"a": pa.table({"x": [1]}), "b": pa.table({"x": [2]})}])
    first = load_snapshot(store, UUID)
    store_dataframes_as_dataset(store, UUID, [{"a": pa.table({"x": [1]}), "c": pa.table({"x": [2]})}], overwrite=True)
    assert as_of(store, last(first).id) == described(first)


def test_a_table_without_files_is_no_sign_of_a_foreign_writer(store):
    rows = {"a": pa.table({"x": [1]}), "b": pa.table({"x": [2]})}
    store_dataframes_as_dataset(store, UUID, [{"label": label, "data": rows} for label in ("one", "two")])
    document = json.loads(store.get(document_key(UUID)))
    del document["partitions"]["two"]["files"]["b"]
    edit_document(store, partitions=document["partitions"])
    forget(store)
    base = load_snapshot(store, UUID)
    with pytest.warns(UserWarning, match="without commit ids"):
        commit_change(store, Change(UUID, (), base.schemas, (), (), removed=pa.array(["one"])), base)
    forget(store)
    newest = load_snapshot(store, UUID)
    assert (list(newest.partitions.files), newest.has_foreign_commit) == (["a"], False)
    update_dataset_from_dataframes([{"label": "three", "data": rows}], store, UUID)
    assert as_of(store, last(newest).id) == described(newest)


def test_the_state_before_the_first_commit_to_an_implicit_dataset_is_known(store):
    create_empty_dataset_header(store, UUID, {"table": pa.schema([("x", pa.int64())])})
    header = load_snapshot(store, UUID)
    assert as_of(store, last(header).id) == described(header)
    write(store, {"x": [1]}, label="one")
    older = load_snapshot_as_of(store, UUID, last(header).id)
    assert (labels(older), older.schema) == ([], header.schema)


def test_an_older_state_takes_no_place_in_the_cache(store):
    made = commits_of(store, 3)
    older = load_snapshot_as_of(store, UUID, last(made[0]).id)
    assert older.token is None
    assert labels(load_snapshot(store, UUID)) == ["l0", "l1", "l2"]


# --- how far --------------------------------------------------------------------------------------


def test_history_reaches_back_beyond_the_chain(store):
    made = commits_of(store, LENGTH + 20)
    assert len(made[-1].chain) == LENGTH
    for i in (0, 1, 19, 20, 21, LENGTH, LENGTH + 18):
        assert as_of(store, last(made[i]).id) == as_of(store, last(made[i]).time) == described(made[i])
    found = [state.commit for state in states(store, made[-1])]
    assert found == [last(s).id for s in reversed(made)]


def test_the_newest_state_needs_no_entry(store):
    made = commits_of(store, 3)
    counting = CountingStore(store)
    for when in (None, last(made[-1]).id, last(made[-1]).time, datetime.now(UTC)):
        assert load_snapshot_as_of(counting, UUID, when) is load_snapshot(counting, UUID)
    assert counting.touched("get") == []


def test_ends_of_history_are_named(store):
    made = commits_of(store, 4)
    for when in ("0" * 32, last(made[0]).time - timedelta(days=1)):
        with pytest.raises(InvalidInput, match=f"Dataset '{UUID}' .*{last(made[0]).id}.*history"):
            load_snapshot_as_of(store, UUID, when)
    store.delete(history_key(UUID, last(made[1]).id))
    assert as_of(store, last(made[1]).id) == described(made[1])
    with pytest.raises(InvalidInput, match=f"history is kept since commit {last(made[1]).id}") as error:
        load_snapshot_as_of(store, UUID, last(made[0]).time)
    assert not isinstance(error.value, BeforeCreation)


def test_a_foreign_writer_ends_history(store):
    before = write(store, {"x": [1]}, label="one")
    edit_document(store, partitions={})
    forget(store)
    foreign = load_snapshot(store, UUID)
    for when in (last(before).id, last(before).time):
        with pytest.raises(InvalidInput, match="a writer that keeps no history"):
            load_snapshot_as_of(store, UUID, when)
    assert as_of(store, datetime.now(UTC) + timedelta(days=1)) == described(foreign)
    with pytest.warns(UserWarning, match="without commit ids"):
        after = write(store, {"x": [2]}, label="two")
    newer = write(store, {"x": [3]}, label="three")
    assert as_of(store, last(after).id) == described(after)
    assert as_of(store, last(newer).id) == described(newer)
    with pytest.raises(InvalidInput, match="came a writer that keeps no history"):
        load_snapshot_as_of(store, UUID, last(before).id)


def test_commits_that_share_a_swap_have_their_own_states(store):
    base = write(store, {"x": [0], "p": ["0"]}, on=["p"], index=["x"], label="base")
    changes = [make_change(store, {"x": [i], "p": [str(i)]}, ["p"], ["x"], label=f"l{i}") for i in range(1, 9)]
    ready = threading.Barrier(len(changes))

    def run(change):
        ready.wait()
        commit_change(store, change, base)

    threads = [threading.Thread(target=run, args=(change,)) for change in changes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    newest = load_snapshot(store, UUID)
    for i, entry in enumerate(newest.chain):
        older = load_snapshot_as_of(store, UUID, entry.id)
        assert labels(older) == labels(newest)[: i + 1]
        index, _ = load_index(store, older, "x")
        assert sorted(index.labels.to_pylist()) == sorted(labels(older))


# --- damage ---------------------------------------------------------------------------------------


def test_a_damaged_entry_hides_only_what_is_before_it(store):
    made = commits_of(store, 5)
    store.put(history_key(UUID, last(made[2]).id), b"rubbish")
    assert as_of(store, last(made[3]).id) == described(made[3])
    assert as_of(store, last(made[2]).id) == described(made[2])
    with pytest.raises(CorruptDocument, match=rf"{last(made[2]).id}\.json\.zst cannot be read"):
        load_snapshot_as_of(store, UUID, last(made[1]).id)


@pytest.mark.parametrize(
    "changes",
    [{"added": pa.array([], type=pa.string())}, {"parent": "other"}, {"positions": pa.array([5], type=pa.int64())}],
)
def test_an_entry_that_does_not_lead_to_its_parent_is_corrupt(store, changes):
    made = commits_of(store, 3)
    edit_entry(store, last(made[1]).id, **changes)
    with pytest.raises(CorruptDocument, match="does not"):
        load_snapshot_as_of(store, UUID, last(made[0]).id)


def test_an_entry_of_another_commit_is_corrupt(store):
    made = commits_of(store, 2)
    store.put(history_key(UUID, last(made[1]).id), store.get(history_key(UUID, last(made[0]).id)))
    with pytest.raises(CorruptDocument, match="says that it is of commit"):
        read_entry(store, UUID, last(made[1]).id)


def test_entries_in_a_circle_end(store):
    made = commits_of(store, LENGTH + 1)
    edit_entry(store, last(made[1]).id, parent=last(made[-1]).id)
    with pytest.raises((CorruptDocument, InvalidInput)):
        load_snapshot_as_of(store, UUID, "unknown")
    edit_document(
        store,
        metadata={
            **json.loads(store.get(document_key(UUID)))["metadata"],
            COMMITS_KEY: json.dumps([[last(made[-1]).id, None, "x"]]),
        },
    )
    forget(store)
    with pytest.raises(InvalidInput):
        load_snapshot_as_of(store, UUID, last(made[1]).id)


def test_an_index_file_that_is_gone_is_made_anew_where_it_is_needed(store):
    first = write(store, ROWS, on=["p"], index=["x"], label="1")
    write(store, {"x": [7], "p": ["c"], "v1": [0.0]}, on=["p"], index=["x"], label="2")
    older = load_snapshot_as_of(store, UUID, last(first).id)
    assert (older.lost, older.pruning_columns) == (frozenset(), {"x"})
    store.delete(first.document.indices["x"])
    older = load_snapshot_as_of(store, UUID, last(first).id)
    assert (older.lost, older.secondary_columns, older.pruning_columns) == ({"x"}, {"x"}, frozenset())
    index, whole = load_index(store, pickle.loads(pickle.dumps(older)), "x")
    assert whole
    assert dict(zip(index.values.to_pylist(), index.labels.to_pylist(), strict=True)) == {
        1: "p=a/1",
        2: "p=a/1",
        3: "p=b/1",
    }


def test_times_go_by_the_clocks_of_writers(store):
    made = commits_of(store, 3)
    ahead = datetime.now(UTC) + timedelta(hours=1)
    chain = [
        [c.id, c.parent, c.fingerprint, (ahead if c == last(made[-1]) else c.time).isoformat()] for c in made[-1].chain
    ]
    edit_document(
        store, metadata={**json.loads(store.get(document_key(UUID)))["metadata"], COMMITS_KEY: json.dumps(chain)}
    )
    assert as_of(store, datetime.now(UTC))[0] == ["l0", "l1"]
    assert as_of(store, ahead)[0] == ["l0", "l1", "l2"]


def test_a_dataset_that_was_made_again_begins_there(store):
    store_dataframes_as_dataset(store, UUID, [pa.table({"x": [1]})])
    update_dataset_from_dataframes([pa.table({"x": [2]})], store, UUID)
    old = load_snapshot(store, UUID)
    for key in store.list("", recursive=True).keys:
        store.delete(key)
    store_dataframes_as_dataset(store, UUID, [pa.table({"x": [1]})])
    with pytest.raises(BeforeCreation):
        load_snapshot_as_of(store, UUID, last(old).time)

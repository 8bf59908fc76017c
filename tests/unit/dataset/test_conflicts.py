"""Two writers of one dataset, as the verbs show it: `on_conflict`, receipts, first writers."""

from __future__ import annotations

import dataclasses
import pickle
from datetime import UTC, datetime, timedelta
from functools import partial

import pyarrow as pa
import pytest
from msgspec.structs import replace

from kartothek_cube import options
from kartothek_cube.api.dataset import (
    DatasetMetadata,
    build_dataset_indices,
    commit_dataset,
    commit_receipts,
    create_empty_dataset_header,
    stage_partitions,
    store_dataframes_as_dataset,
    store_dataframes_as_dataset__iter,
    update_dataset_from_dataframes,
    update_dataset_from_dataframes__iter,
    write_single_partition,
)
from kartothek_cube.core.commit.change import Change
from kartothek_cube.core.commit.commit import commit_change
from kartothek_cube.core.metadata.naming import document_key
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import CommitConflict, InvalidInput, InvalidType, StagedFilesLost
from kartothek_cube.testing.stores import CountingStore, FaultyStore, InjectedFault
from tests.support.datasets import (
    UUID,
    contents,
    document,
    index,
    index_of_files,
    labels,
    refused,
    rows,
    snapshot,
    user_metadata,
)

JSON = document_key(UUID)
ONE = pa.table({"p": ["a", "b"], "i1": [1, 2], "v1": [1.0, 2.0]})
TWO = pa.table({"p": ["a"], "i1": [3], "v1": [3.0]})
THREE = pa.table({"p": ["b"], "i1": [4], "v1": [4.0]})


@pytest.fixture
def store():
    store = MemoryStore()
    store_dataframes_as_dataset(store, UUID, [ONE], partition_on="p", secondary_indices="i1")
    return store


def update(store, *frames, **more):
    return update_dataset_from_dataframes(list(frames), store, UUID, **more)


class Meanwhile(CountingStore):
    """Somebody else does something right before the document is put."""

    def __init__(self, inner, *actions):
        super().__init__(inner)
        self.actions = list(actions)

    def around(self, operation, key, action):
        if operation == "put_if" and key == JSON and self.actions:
            self.actions.pop(0)(self._inner if hasattr(self, "_inner") else self.inner)
        return super().around(operation, key, action)


REMOVING = {
    "update": lambda store, **more: update(store, THREE, delete_scope=[{"p": "a"}], **more),
    "update iter": lambda store, **more: update_dataset_from_dataframes__iter(
        iter([THREE]), store, UUID, delete_scope=[{"p": "a"}], **more
    ),
    "commit": lambda store, **more: commit_dataset(
        store, UUID, [write_single_partition(store, UUID, THREE)], delete_scope=[{"p": "a"}], **more
    ),
    "receipts": lambda store, **more: commit_receipts(
        stage_partitions(THREE, store, UUID), store, UUID, delete_scope=[{"p": "a"}], **more
    ),
    "index": lambda store, **more: update(store, THREE, delete_scope=[{"i1": 1}, {"i1": 3}], **more),
    "store": lambda store, **more: store_dataframes_as_dataset(
        store, UUID, [THREE], partition_on="p", secondary_indices="i1", overwrite=True, **more
    ),
    "store iter": lambda store, **more: store_dataframes_as_dataset__iter(
        iter([THREE]), store, UUID, partition_on="p", secondary_indices="i1", overwrite=True, **more
    ),
    "header": lambda store, **more: create_empty_dataset_header(
        store, UUID, {"table": ONE.schema}, partition_on="p", secondary_indices=["i1"], overwrite=True, **more
    ),
}


@pytest.mark.parametrize("verb", REMOVING)
@pytest.mark.parametrize("more", [{}, {"on_conflict": "raise"}])
def test_who_removes_what_was_changed_in_between_is_told(store, verb, more):
    expected = sorted([*rows(store, "i1"), (3,)])
    with pytest.raises(CommitConflict):
        REMOVING[verb](Meanwhile(store, lambda s: update(s, TWO)), **more)
    assert rows(store, "i1") == expected


@pytest.mark.parametrize("verb", REMOVING)
def test_with_reapply_the_last_writer_wins(store, verb):
    result = REMOVING[verb](Meanwhile(store, lambda s: update(s, TWO)), on_conflict="reapply")
    left = {"store": [(4,)], "store iter": [(4,)], "header": []}.get(verb, [(2,), (4,)])
    assert rows(store, "i1") == left
    assert index(store, "i1") == index_of_files(store, "i1")
    assert (result.commit.id, result.commit.tries, result.commit.reapplied) == (snapshot(store).chain[-1].id, 2, True)


@pytest.mark.parametrize("verb", REMOVING)
@pytest.mark.parametrize("wrong", ["ignore", None, True, ["raise"]])
def test_on_conflict_is_one_of_two_words(store, verb, wrong):
    staged = set(contents(store))
    with pytest.raises(InvalidInput, match="on_conflict"):
        REMOVING[verb](store, on_conflict=wrong)
    # only what was staged by another call is there
    assert {key for key in set(contents(store)) - staged if "/table/" not in key} == set()


def test_appends_go_together_and_say_how_often_they_were_tried(store):
    result = update(Meanwhile(store, lambda s: update(s, TWO), lambda s: update(s, TWO)), THREE)
    assert rows(store, "i1") == [(1,), (2,), (3,), (3,), (4,)]
    assert index(store, "i1") == index_of_files(store, "i1")
    assert (result.commit.tries, result.commit.reapplied) == (3, False)


def test_commit_retries_bounds_the_tries(store):
    others = [lambda s: update(s, TWO)] * 3
    with pytest.raises(CommitConflict, match="faster 2 times"):
        update(Meanwhile(store, *others), THREE, options=options(commit_retries=1))
    assert (4,) not in rows(store, "i1")


def test_another_partition_is_no_conflict_for_a_scope(store):
    result = update(Meanwhile(store, lambda s: update(s, TWO)), THREE, delete_scope=[{"p": "b"}])
    assert rows(store, "i1") == [(1,), (3,), (4,)]
    assert not result.commit.reapplied


@pytest.mark.parametrize("mode", ["raise", "reapply"])
def test_a_scope_on_an_index_that_was_dropped_in_between_is_a_conflict(store, mode):
    def drop(s):
        base = snapshot(s)
        commit_change(s, Change(UUID, (), base.schemas, base.partition_keys, (), dropped=frozenset({"i1"})), base)

    with pytest.raises(CommitConflict, match="i1"):
        update(Meanwhile(store, drop), delete_scope=[{"i1": 1}], on_conflict=mode)
    assert len(rows(store)) == 2


def test_a_scope_whose_column_has_another_type_by_now_is_a_conflict(store):
    other = pa.table({"p": [1], "i1": [1], "v1": [1.0]})

    def replace(s):
        store_dataframes_as_dataset(s, UUID, [other], partition_on="p", secondary_indices="i1", overwrite=True)

    with pytest.raises(CommitConflict, match="'a' is no value"):
        update(Meanwhile(store, replace), delete_scope=[{"p": "a"}], on_conflict="reapply")
    assert rows(store, "p") == [(1,)]


def test_metadata_are_set_also_where_they_were_so_already(store):
    update(store, metadata={"a": True})
    update(Meanwhile(store, lambda s: update(s, metadata={"a": False})), metadata={"a": True})
    assert user_metadata(store) == {"a": True}


def test_a_metadata_callable_is_called_once(store):
    calls = []
    update(
        Meanwhile(store, lambda s: update(s, TWO)),
        metadata=lambda: calls.append(1) or {"n": len(calls)},
        metadata_merger=lambda found: found[0],
    )
    assert user_metadata(store) == {"n": 1}


def test_an_index_is_built_again_from_new_files_alone(store):
    counting = Meanwhile(store, lambda s: update(s, TWO))
    build_dataset_indices(counting, UUID, ["v1"])
    assert index(store, "v1") == index_of_files(store, "v1")
    read = {
        c.key
        for c in counting.calls
        if not c.operation.startswith("put") and c.key.endswith(".parquet") and "/table/" in c.key
    }
    assert len(read) == 3
    times = [sum(c.key == key for c in counting.calls) for key in read]
    assert min(times) == max(times)


# --- the result -----------------------------------------------------------------------------------


def test_only_who_wrote_is_told_what_became_of_it(store):
    written = update(store, TWO)
    assert written.commit.id == snapshot(store).chain[-1].id
    read = DatasetMetadata.load_from_store(UUID, store, load_all_indices=True)
    assert read.commit is None
    assert written.load_all_indices(store).commit == written.commit
    assert DatasetMetadata.load_from_store(UUID, store).commit is None
    assert written == DatasetMetadata.load_from_store(UUID, store)
    assert pickle.loads(pickle.dumps(written)) == written
    assert "commit" not in repr(written)
    assert written.to_dict() == DatasetMetadata.load_from_store(UUID, store).to_dict()


# --- first writers --------------------------------------------------------------------------------

FIRST = partial(update_dataset_from_dataframes, partition_on="p", secondary_indices="i1")


def test_of_two_first_updates_both_land():
    store = MemoryStore()
    FIRST([THREE], Meanwhile(store, lambda s: FIRST([TWO], s, UUID)), UUID)
    assert rows(store, "i1") == [(3,), (4,)]
    assert index(store, "i1") == index_of_files(store, "i1")


def test_the_second_keeps_the_encoding_of_the_first():
    store = MemoryStore()
    first = partial(
        store_dataframes_as_dataset, partition_on="p", secondary_indices="i1", metadata_storage_format="msgpack"
    )
    with pytest.raises(CommitConflict):
        FIRST([THREE], Meanwhile(store, lambda s: first(s, UUID, [TWO])), UUID)
    assert rows(store, "i1") == [(3,)]


@pytest.mark.parametrize("more", [{"partition_on": None}, {"secondary_indices": None}, {"delete_scope": [{"p": "a"}]}])
def test_of_two_first_updates_that_do_not_agree_one_lands(more):
    store = MemoryStore()
    with pytest.raises(CommitConflict):
        FIRST([THREE], Meanwhile(store, lambda s: FIRST([TWO], s, UUID)), UUID, **more)
    assert rows(store, "i1") == [(3,)]


def test_whoever_stores_a_new_dataset_wants_no_other_there():
    store = MemoryStore()
    with pytest.raises(CommitConflict):
        store_dataframes_as_dataset(
            Meanwhile(store, lambda s: FIRST([TWO], s, UUID)), UUID, [THREE], partition_on="p", secondary_indices="i1"
        )
    assert rows(store, "i1") == [(3,)]


# --- receipts -------------------------------------------------------------------------------------

STAGE = partial(stage_partitions, partition_on="p", secondary_indices="i1")


def travelled(receipts):
    return pickle.loads(pickle.dumps(receipts))


def test_many_writers_and_one_committer_make_a_dataset():
    store = MemoryStore()
    receipts = [travelled(STAGE(rows, store, UUID)) for rows in (ONE, TWO, THREE)]
    assert not store.contains(JSON)
    committed = CountingStore(store)
    result = commit_receipts(receipts, committed, UUID, metadata={"source": "tills"})
    assert rows(store, "i1") == [(1,), (2,), (3,), (4,)]
    assert (result.partition_keys, user_metadata(store)) == (["p"], {"source": "tills"})
    assert index(store, "i1") == index_of_files(store, "i1")
    assert [
        key
        for key in committed.touched("put", "get", "ranges", "tail")
        if key.endswith(".parquet") and "/table/" in key
    ] == []


def test_receipts_are_committed_to_what_is_there(store):
    staged = [travelled(stage_partitions([rows, rows], store, UUID, sort_partitions_by="v1")) for rows in (TWO, THREE)]
    update(store, TWO)
    commit_receipts(staged, store, UUID, delete_scope=[{"p": "a"}])
    assert rows(store, "i1") == [(2,), (3,), (3,), (4,), (4,)]


@pytest.mark.parametrize("label", [None, "x" * 210])
def test_receipts_that_waited_are_known_again_although_their_files_were_copied(store, label):
    data = TWO if label is None else {"label": label, "data": {"table": TWO}}
    staged = stage_partitions(data, store, UUID)
    old = replace(
        staged,
        receipts=tuple(dataclasses.replace(r, staged=datetime.now(UTC) - timedelta(days=2)) for r in staged.receipts),
    )
    assert commit_receipts(old, store, UUID).commit is not None
    store.delete(staged.receipts[0].key)
    assert rows(store, "v1") == [(1.0,), (2.0,), (3.0,)]
    assert commit_receipts(old, store, UUID).commit is None


def test_the_same_receipts_twice_are_one(store):
    staged = stage_partitions(TWO, store, UUID)
    first = commit_receipts([staged, staged], store, UUID)
    with_first = contents(store)
    again = commit_receipts(travelled(staged), store, UUID)
    assert (again.commit, again) == (None, first)
    assert contents(store) == with_first


def test_a_replacement_that_is_repeated_keeps_its_own_rows(store):
    staged = stage_partitions(TWO, store, UUID)
    for _ in range(2):
        commit_receipts(staged, store, UUID, delete_scope=[{"p": "a"}])
    assert rows(store, "i1") == [(2,), (3,)]
    assert index(store, "i1") == index_of_files(store, "i1")


def test_the_answer_to_a_commit_of_receipts_may_be_lost_and_the_call_repeated(store):
    staged, lost = stage_partitions(TWO, store, UUID), []

    def fail(call):
        lost.extend([call] if call.operation == "put_if" and call.key == JSON else [])
        return "after" if lost else None

    with pytest.raises((InjectedFault, RuntimeError)):
        commit_receipts(staged, FaultyStore(store, fail), UUID)
    assert commit_receipts(staged, store, UUID).commit is None
    assert rows(store, "i1") == [(1,), (2,), (3,)]


def test_two_runs_of_one_task_are_two_receipts(store):
    runs = [stage_partitions(TWO, store, UUID) for _ in range(2)]
    by_task = dict(zip(["task 7", "task 7"], runs, strict=True))
    commit_receipts(by_task.values(), store, UUID)
    assert rows(store, "i1") == [(1,), (2,), (3,)]


def test_receipts_know_the_labels_that_were_given(store):
    runs = [stage_partitions({"label": "day", "data": {"table": TWO}}, store, UUID) for _ in range(2)]
    with refused(store, ValueError, InvalidInput, "duplicated"):
        commit_receipts(runs, store, UUID)
    commit_receipts(runs[0], store, UUID)
    commit_receipts(runs[1], store, UUID)
    assert labels(store).count("p=a/day") == 1


def test_receipts_have_to_agree():
    store = MemoryStore()
    receipts = [STAGE(TWO, store, UUID), stage_partitions(TWO, store, UUID)]
    with refused(store, ValueError, InvalidInput, "different partition columns"):
        commit_receipts(receipts, store, UUID)
    with refused(store, ValueError, InvalidInput, "empty"):
        commit_receipts([], store, UUID)
    with refused(store, TypeError, InvalidType, "stage_partitions"):
        commit_receipts([{"label": "x", "data": {}}], store, UUID)
    with refused(store, ValueError, InvalidInput, "belongs to dataset"):
        commit_receipts(receipts[:1], store, "other")


def test_indices_that_were_built_after_staging_are_whole():
    store = MemoryStore()
    store_dataframes_as_dataset(store, UUID, [ONE], partition_on="p")
    staged = stage_partitions(TWO, store, UUID)
    build_dataset_indices(store, UUID, "i1")
    commit_receipts(staged, store, UUID)
    assert index(store, "i1") == index_of_files(store, "i1")


def test_nothing_to_commit_is_no_commit(store):
    before = document(store)
    assert commit_receipts([], store, UUID).commit is None
    assert commit_receipts([stage_partitions([], store, UUID)], store, UUID).commit is None
    assert document(store) == before


def test_staged_files_that_are_gone_are_missed(store):
    from datetime import timedelta

    staged = stage_partitions(TWO, store, UUID)
    store.delete(staged.receipts[0].key)
    with pytest.raises(StagedFilesLost):
        commit_receipts(staged, store, UUID, options=options(grace=timedelta(0)))
    assert len(rows(store)) == 2


def test_a_numbered_commit_that_was_applied_is_skipped_whatever_its_scope(store):
    """The dataset was replaced since, and has no such column."""
    receipts = stage_partitions(TWO, store, UUID)
    commit_receipts(receipts, store, UUID, delete_scope=[{"p": "a"}], txn=("job", 1))
    renamed = ONE.rename_columns(["q", "i1", "v1"])
    store_dataframes_as_dataset(store, UUID, [renamed], partition_on="q", overwrite=True)
    before = contents(store)
    again = commit_receipts(receipts, store, UUID, delete_scope=[{"p": "a"}], txn=("job", 1))
    assert again.commit.skipped
    assert contents(store) == before

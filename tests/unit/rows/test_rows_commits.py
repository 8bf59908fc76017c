"""Changes of rows are commits: two writers, history, and what a failure leaves."""

from __future__ import annotations

from datetime import timedelta

import pyarrow as pa
import pytest

from kartothek_cube import options
from kartothek_cube.api.dataset import (
    build_dataset_indices,
    compact_dataset,
    delete_rows,
    garbage_collect_dataset,
    history,
    merge_dataset,
    read_dataset_changes,
    read_table_arrow,
    store_dataframes_as_dataset,
    undo,
    update_dataset_from_dataframes,
    update_rows,
)
from kartothek_cube.core.metadata.naming import document_key
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import CommitConflict, InvalidInput
from kartothek_cube.testing.stores import CountingStore, FaultyStore, InjectedFault
from tests.support.datasets import UUID, contents, index, index_of_files, rows, snapshot
from tests.support.reads import is_data
from tests.support.rows import SOURCE, VERBS, WHERE, doubled, store_rows

ONE = pa.table({"x": [3], "p": ["b"], "i1": ["new"], "v1": [0.0]})


@pytest.fixture
def store():
    store = MemoryStore()
    store_rows(store)
    return store


class Meanwhile(CountingStore):
    """Somebody else does something right before the document is put."""

    def __init__(self, inner, *actions):
        super().__init__(inner)
        self.actions = list(actions)

    def around(self, operation, key, action):
        if operation == "put_if" and key == document_key(UUID) and self.actions:
            self.actions.pop(0)(self.inner)
        return super().around(operation, key, action)


def append(store, data=ONE):
    update_dataset_from_dataframes([data], store, UUID)


def change_a_rewritten_file(store):
    """x = 3 is in a file that all verbs of `VERBS` rewrite."""
    update_rows(UUID, store, [[("x", "==", 3)]], {"v1": -3.0})


def change_another_file(store):
    update_rows(UUID, store, [[("x", "==", 7)]], {"v1": -7.0})


def alone(verb, *before):
    """The rows after a verb without another writer."""
    store = MemoryStore()
    store_rows(store)
    for action in before:
        action(store)
    VERBS[verb](store)
    return rows(store)


# --- two writers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("mode", ["raise", "reapply"])
def test_what_others_append_goes_and_is_not_searched(store, verb, mode):
    report = VERBS[verb](Meanwhile(store, append), on_conflict=mode)
    assert rows(store) == sorted([*alone(verb), ("b", "new", 0.0, 3)], key=str)
    assert report.commit == snapshot(store).chain[-1].id
    assert index(store, "i1") == index_of_files(store, "i1")


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("mode", ["raise", "reapply"])
def test_changes_of_other_files_go_together(store, verb, mode):
    VERBS[verb](Meanwhile(store, change_another_file), on_conflict=mode)
    assert rows(store) == alone(verb, change_another_file)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    "other",
    [
        change_a_rewritten_file,
        lambda store: delete_rows(UUID, store, [[("x", "==", 3)]]),
        lambda store: update_dataset_from_dataframes([], store, UUID, delete_scope=[{"p": "b"}]),
        lambda store: compact_dataset(UUID, store),
    ],
    ids=["update", "delete", "scope", "compact"],
)
def test_a_rewritten_file_that_others_changed_is_a_conflict(store, verb, other):
    seen = []

    def first(inner):
        other(inner)
        seen.append(rows(inner))

    with pytest.raises(CommitConflict):
        VERBS[verb](Meanwhile(store, first))
    assert [rows(store)] == seen


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    "other",
    [
        change_a_rewritten_file,
        lambda store: delete_rows(UUID, store, [[("x", "==", 3)]]),
        lambda store: update_dataset_from_dataframes([], store, UUID, delete_scope=[{"p": "b"}]),
        lambda store: compact_dataset(UUID, store),
    ],
    ids=["update", "delete", "scope", "compact"],
)
def test_reapplied_rows_are_found_again(store, verb, other):
    report = VERBS[verb](Meanwhile(store, other), on_conflict="reapply")
    assert rows(store) == alone(verb, other)
    assert report.commit == snapshot(store).chain[-1].id
    assert index(store, "i1") == index_of_files(store, "i1")


def test_a_change_that_was_made_by_others_meanwhile_is_nothing_to_do(store):
    report = VERBS["delete"](Meanwhile(store, VERBS["delete"]), on_conflict="reapply")
    assert (report.commit, report.deleted) == (None, 0)
    assert rows(store) == alone("delete")


def test_reapplying_ends(store):
    others = [change_a_rewritten_file] * 5
    meanwhile = Meanwhile(store, *others)
    with pytest.raises(CommitConflict):
        VERBS["delete"](meanwhile, on_conflict="reapply", options=options(commit_retries=2))
    assert len(meanwhile.actions) == 2


def test_a_key_that_others_append_meanwhile_occurs_twice(store):
    new = pa.table({"x": [9], "p": ["c"], "i1": ["theirs"], "v1": [0.5]})
    report = VERBS["merge"](Meanwhile(store, lambda inner: append(inner, new)))
    assert report.inserted == 1
    assert rows(store, "x", "v1", predicates=[[("x", "==", 9)]]) == [(9, 0.5), (9, 90.0)]


def test_two_merges_of_the_same_new_key_both_insert_it(store):
    VERBS["merge"](
        Meanwhile(store, lambda inner: merge_dataset(SOURCE[1:], inner, UUID, "x")),
    )
    assert rows(store, "x", predicates=[[("x", "==", 9)]]) == [(9,), (9,)]


def test_a_stream_is_read_once_though_the_merge_is_reapplied(store):
    source = iter([SOURCE[:1], SOURCE[1:]])
    report = merge_dataset(source, Meanwhile(store, change_a_rewritten_file, append), UUID, "x", on_conflict="reapply")
    assert (report.updated, report.inserted) == (1, 1)
    assert (9,) in rows(store, "x")


def test_an_index_that_was_built_meanwhile_is_kept_up(store):
    update_rows(
        UUID,
        Meanwhile(store, lambda inner: build_dataset_indices(inner, UUID, ["v1"])),
        WHERE,
        {"v1": 5.0},
        on_conflict="reapply",
    )
    assert snapshot(store).secondary_columns == {"i1", "v1"}
    for column in ("i1", "v1"):
        assert index(store, column) == index_of_files(store, column)


def test_a_dataset_that_was_written_anew_meanwhile_is_a_conflict(store):
    def overwrite(inner):
        store_dataframes_as_dataset(inner, UUID, [ONE.select(["x"])], overwrite=True)

    with pytest.raises(CommitConflict):
        VERBS["move"](Meanwhile(store, overwrite))
    assert rows(store) == [(3,)]


# --- history --------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", VERBS)
def test_a_change_of_rows_is_one_commit_that_can_be_undone(store, verb):
    before, files, first = rows(store), snapshot(store).partitions.files, snapshot(store).chain[-1].id
    report = VERBS[verb](store)
    after = rows(store)
    assert [commit.id for commit in snapshot(store).chain] == [first, report.commit]
    assert history(UUID, store)["commit"].tolist()[:2] == [report.commit, first]
    assert rows(store, as_of=first) == before
    assert rows(store, as_of=report.commit) == after
    undo(UUID, store)
    assert rows(store) == before
    assert {t: keys.to_pylist() for t, keys in snapshot(store).partitions.files.items()} == {
        t: keys.to_pylist() for t, keys in files.items()
    }
    assert index(store, "i1") == index_of_files(store, "i1")
    undo(UUID, store)
    assert rows(store) == after


@pytest.mark.parametrize("verb", VERBS)
def test_an_older_change_of_rows_is_undone_below_an_append(store, verb):
    before = rows(store)
    report = VERBS[verb](store)
    append(store)
    undo(UUID, store, report.commit)
    assert rows(store) == sorted([*before, ("b", "new", 0.0, 3)], key=str)


def test_changes_are_the_rows_that_differ(store):
    first = snapshot(store).chain[-1].id
    VERBS["merge"](store)
    found = read_dataset_changes(UUID, store, first, columns=["x", "v1"], on="x").read_all()
    assert found.to_pylist() == [
        {"_change_type": "update_preimage", "x": 3, "v1": 0.75},
        {"_change_type": "update_postimage", "x": 3, "v1": 30.0},
        {"_change_type": "insert", "x": 9, "v1": 90.0},
    ]


@pytest.mark.parametrize("verb", VERBS)
def test_old_files_go_with_the_garbage_and_no_other(store, verb):
    report = VERBS[verb](store)
    after = rows(store)
    collected = garbage_collect_dataset(UUID, store, options=options(grace=timedelta(0), retain=timedelta(0)))
    assert set(report.files) <= set(collected.keys)
    assert rows(store) == after
    assert {key for key in contents(store) if is_data(key)} == set(
        snapshot(store).partitions.files["table"].to_pylist()
    )


# --- failures -------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("operation", ["put", "put_if", "tail"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_store_that_fails_leaves_the_old_rows(store, verb, operation, when):
    before = rows(store)
    failing = FaultyStore(
        store, lambda call: when if call.operation == operation and is_own(operation, call.key) else None
    )
    try:
        VERBS[verb](failing)
    except InjectedFault:
        assert rows(store) == before
    else:
        assert when == "after", "the answer was lost, and the commit was found again"
        assert rows(store) == alone(verb)


def is_own(operation, key):
    return is_data(key) if operation != "put_if" else key == document_key(UUID)


def test_a_merge_whose_source_fails_halfway_leaves_no_trace(store, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = contents(store)

    def source():
        yield SOURCE
        assert list(tmp_path.iterdir()), "the first rows wait in a file"
        raise ConnectionError("the database went away")

    with pytest.raises(ConnectionError, match="went away"):
        merge_dataset(source(), store, UUID, "x", options=options(bytes_in_flight=1))
    assert contents(store) == before
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("verb", VERBS)
def test_temporary_files_are_gone_afterwards(store, verb, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    VERBS[verb](store, options=options(bytes_in_flight=1))
    assert rows(store) == alone(verb)
    assert list(tmp_path.iterdir()) == []


def test_a_function_is_called_once_for_each_file(store):
    calls = []

    def noted(found):
        calls.append(found["x"].to_pylist())
        return doubled(found)

    update_rows(UUID, store, WHERE, noted, dry_run=True)
    assert calls == []
    update_rows(UUID, store, WHERE, noted)
    assert sorted(calls) == [[2, 3], [4]]


def test_a_function_sees_all_columns_in_the_types_of_the_dataset(store):
    def check(found):
        assert found.schema.equals(read_table_arrow(UUID, store).schema)
        return found

    assert update_rows(UUID, store, WHERE, check).updated == 3


def test_a_function_that_is_wrong_about_one_file_of_several_changes_nothing(store):
    before = rows(store)

    def partly(found):
        return found if found["p"][0].as_py() == "a" else found.slice(1)

    with pytest.raises(InvalidInput, match="rows for"):
        update_rows(UUID, store, WHERE, partly)
    assert rows(store) == before

"""Writes that die at any call of the store, writers that meet, datasets with two documents."""

from __future__ import annotations

import json
from dataclasses import replace

import pandas as pd
import pytest

from kartothek_cube.core.dataset.maintain import build_dataset_indices
from kartothek_cube.core.dataset.write import (
    commit_dataset,
    create_empty_dataset_header,
    store_dataframes_as_dataset,
    update_dataset_from_dataframes,
    update_dataset_from_dataframes__iter,
    write_single_partition,
)
from kartothek_cube.core.metadata.document import parse_document, render_document
from kartothek_cube.core.metadata.naming import document_key
from kartothek_cube.core.runtime.options import options
from kartothek_cube.core.snapshots.loader import load_snapshot
from kartothek_cube.core.stores.contract import StoreView
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import AlreadyExists, AtomicityRequired, CommitConflict
from kartothek_cube.testing.stores import CountingStore, FaultyStore, InjectedFault, SimulatedCrash
from tests.caches import forget
from tests.support.datasets import (
    UUID,
    contents,
    exists,
    index,
    index_of_files,
    keys,
    labels,
    refused,
    rows,
    snapshot,
    user_metadata,
)
from tests.support.thoroughness import crash_points, some

ONE = pd.DataFrame({"p": ["a", "b"], "i1": [1, 2], "v1": pd.Series([None, None], dtype=object)})
TWO = pd.DataFrame({"p": ["b", "c"], "i1": [2, 3], "v1": ["u", "v"]})
JSON, MSGPACK = document_key(UUID), document_key(UUID, msgpack=True)


def built(**arguments):
    store = MemoryStore()
    store_dataframes_as_dataset(
        store, UUID, [ONE], partition_on="p", secondary_indices="i1", metadata={"owner": "me"}, **arguments
    )
    return store


def update(store, *frames, **arguments):
    return update_dataset_from_dataframes(list(frames), store, UUID, **arguments)


def commit(store):
    commit_dataset(store, UUID, [write_single_partition(store, UUID, TWO)], delete_scope=[{"p": "a"}])


VERBS = {
    "update": lambda store: update(store, TWO, metadata={"owner": "you"}),
    "replace": lambda store: update(store, TWO, delete_scope=[{"p": "b"}]),
    "metadata": lambda store: update(store, metadata={"owner": "you"}),
    "add columns": lambda store: update(store, TWO.assign(z=1), add_columns=True),
    "same label": lambda store: update(store, {"label": "new", "data": {"table": TWO}}),
    "overwrite": lambda store: store_dataframes_as_dataset(store, UUID, [TWO.drop(columns="i1")], overwrite=True),
    "header": lambda store: create_empty_dataset_header(store, UUID, {"table": TWO}, overwrite=True),
    "commit": commit,
    "index": lambda store: build_dataset_indices(store, UUID, ["i1"]),
}
CREATORS = {
    "store": lambda store: store_dataframes_as_dataset(store, UUID, [ONE], partition_on="p", secondary_indices="i1"),
    "msgpack": lambda store: store_dataframes_as_dataset(store, UUID, [ONE], metadata_storage_format="msgpack"),
    "update": lambda store: update(store, ONE, secondary_indices="i1"),
    "header": lambda store: create_empty_dataset_header(store, UUID, {"table": ONE}, partition_on="p"),
}


def state(store):
    """What a reader that starts afresh sees; None where there is no dataset.

    Its indices say what its rows say.
    """
    if not exists(store):
        return None
    for column in snapshot(store).document.indices:
        assert index(store, column) == index_of_files(store, column)
    return (
        rows(store),
        sorted(snapshot(store).document.indices),
        user_metadata(store),
        [f.name for f in snapshot(store).schemas["table"]],
    )


def calls_of(verb, store):
    counting = CountingStore(store)
    with options(threads=1):
        verb(counting)
    return len(counting.calls)


def every_crash(verb, make):
    for n, kind in crash_points(calls_of(verb, make())):
        store, seen = make(), iter(range(10**6))
        failing = FaultyStore(store, lambda call, n=n, kind=kind, seen=seen: kind if next(seen) == n else None)
        with pytest.raises(SimulatedCrash), options(threads=1):
            verb(failing)
        yield store


@pytest.mark.parametrize("name", VERBS)
def test_after_a_crash_the_old_state_or_the_new_one_is_there(name):
    old, new = state(built()), built()
    VERBS[name](new)
    found = [state(store) for store in every_crash(VERBS[name], built)]
    assert all(one in (old, state(new)) for one in found)
    assert old in found
    assert state(new) in found


@pytest.mark.parametrize("name", CREATORS)
def test_after_a_crash_of_its_creation_a_dataset_is_whole_or_not_there(name):
    whole = MemoryStore()
    CREATORS[name](whole)
    found = [state(store) for store in every_crash(CREATORS[name], MemoryStore)]
    assert all(one in (None, state(whole)) for one in found)
    assert None in found


@pytest.mark.parametrize("name", VERBS)
def test_a_write_can_be_repeated_after_a_crash(name):
    new, old = built(), state(built())
    VERBS[name](new)
    for store in every_crash(VERBS[name], built):
        if state(store) == old:
            VERBS[name](store)
            assert state(store) == state(new)


@pytest.mark.parametrize("name", CREATORS)
def test_a_creation_can_be_repeated_after_a_crash(name):
    whole = MemoryStore()
    CREATORS[name](whole)
    for store in every_crash(CREATORS[name], MemoryStore):
        if not exists(store) and name != "header":
            CREATORS[name](store)
            assert state(store) == state(whole)


@pytest.mark.parametrize("name", VERBS)
def test_a_crash_touches_no_file_that_was_there(name):
    for store in every_crash(VERBS[name], built):
        partitions = snapshot(store).partitions.files.get("table", [])
        assert all(store.contains(key.as_py()) for key in partitions)


@pytest.mark.parametrize("name", VERBS)
@pytest.mark.parametrize("kind", ["before", "after"])
def test_a_call_that_fails_leaves_the_old_state_or_the_new_one(name, kind):
    old, new = state(built()), built()
    VERBS[name](new)
    for n in some(range(calls_of(VERBS[name], built())), 3):
        store, seen = built(), iter(range(10**6))
        failing = FaultyStore(store, lambda call, n=n, seen=seen: kind if next(seen) == n else None)
        try:
            with options(threads=1):
                VERBS[name](failing)
        except InjectedFault:
            assert state(store) == old
        else:
            assert state(store) == state(new)


def test_the_answer_to_the_commit_may_be_lost():
    store = built()
    update(FaultyStore(store, lambda call: "after" if (call.operation, call.key) == ("put_if", JSON) else None), TWO)
    assert len(rows(store)) == 4


# --- two writers ----------------------------------------------------------------------------------


def meanwhile(store, other, *frames):
    """Rows of a slow writer, while which another one commits."""
    yield from frames
    other(store)


OTHERS = {
    "append": lambda store: update(store, TWO),
    "delete": lambda store: update(store, delete_scope=[{"p": "a"}]),
    "metadata": lambda store: update(store, metadata={"owner": "other"}),
    "index": lambda store: build_dataset_indices(store, UUID, "i1"),
    "overwrite": lambda store: store_dataframes_as_dataset(store, UUID, [TWO], overwrite=True),
    "removal": lambda store: store.delete(JSON),
}


@pytest.mark.parametrize("other", ["append", "overwrite", "removal"])
def test_of_two_writers_to_the_same_partitions_the_second_is_told(other):  # D35
    store, expected = built(), built()
    OTHERS[other](expected)
    with pytest.raises(RuntimeError) as caught:
        update_dataset_from_dataframes__iter(
            meanwhile(store, OTHERS[other], TWO), store, UUID, delete_scope=[{"p": "b"}]
        )
    assert isinstance(caught.value, CommitConflict)
    assert state(store) == state(expected)


def test_of_two_concurrent_appends_nothing_is_lost():  # D35
    store = built()
    update_dataset_from_dataframes__iter(meanwhile(store, OTHERS["append"], TWO), store, UUID)
    assert len(rows(store)) == 6
    assert index(store, "i1") == index_of_files(store, "i1")


@pytest.mark.parametrize("other", ["append", "metadata", "overwrite"])
def test_an_index_is_built_again_on_what_has_changed(other):
    store = built()

    class Slow(StoreView):
        done = False

        def around(self, operation, key, action):
            if "/table/p=" in key and not self.done:
                Slow.done = True
                OTHERS[other](store)
            return action()

    build_dataset_indices(Slow(store), UUID, "i1")
    expected = built()
    OTHERS[other](expected)
    assert rows(store) == rows(expected)
    assert index(store, "i1") == index_of_files(store, "i1")


def test_of_two_creators_one_wins():
    store = MemoryStore()
    with pytest.raises(CommitConflict):
        store_dataframes_as_dataset(store, UUID, meanwhile(store, lambda s: update(s, ONE), TWO))
    assert rows(store, "p", "i1") == [("a", 1), ("b", 2)]


@pytest.mark.parametrize("first", ["json", "msgpack"])
def test_of_two_creators_of_different_encodings_one_dataset_remains(first):
    store, second = MemoryStore(), "msgpack" if first == "json" else "json"
    other = lambda s: store_dataframes_as_dataset(s, UUID, [ONE], metadata_storage_format=first)  # noqa: E731
    with pytest.raises(CommitConflict):
        store_dataframes_as_dataset(store, UUID, meanwhile(store, other, TWO), metadata_storage_format=second)
    assert keys(store, "by-dataset-metadata") == [document_key(UUID, msgpack=first == "msgpack")]
    assert rows(store, "p", "i1") == [("a", 1), ("b", 2)]


@pytest.mark.parametrize("first", ["json", "msgpack"])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_of_two_creators_that_do_not_see_each_other_before_they_write_at_most_one_stays(first, moment):
    inner, second = MemoryStore(), "msgpack" if first == "json" else "json"
    results = []

    class Racing(StoreView):
        def around(self, operation, key, action):
            done = action() if moment == "after" else None
            if operation == "put_if" and key == document_key(UUID, msgpack=second == "msgpack"):
                results.append(
                    outcome(lambda: store_dataframes_as_dataset(inner, UUID, [ONE], metadata_storage_format=first))
                )
            return done if moment == "after" else action()

    results.append(
        outcome(lambda: store_dataframes_as_dataset(Racing(inner), UUID, [TWO], metadata_storage_format=second))
    )
    assert results.count("created") <= 1
    assert results == (["created", CommitConflict] if moment == "before" else [AlreadyExists, "created"])
    assert rows(inner, "p", "i1") == ([("a", 1), ("b", 2)] if moment == "before" else [("b", 2), ("c", 3)])


def outcome(create):
    try:
        create()
    except (CommitConflict, AlreadyExists) as error:
        return type(error)
    return "created"


# --- two documents --------------------------------------------------------------------------------


def with_twin():
    """A dataset in msgpack to which an old library has added a JSON document, which counts from
    then on.
    """
    store = built(metadata_storage_format="msgpack")
    data = store.get(MSGPACK)
    update(store, TWO)
    store.put(JSON, render_document(parse_document(store.get(MSGPACK), MSGPACK)))
    store.put(MSGPACK, data)
    forget(store)
    return store


def test_of_two_documents_json_counts():
    assert len(rows(with_twin())) == 4


@pytest.mark.parametrize("name", ["update", "replace", "metadata", "commit", "index", "overwrite"])
def test_the_next_commit_removes_the_other_document(name):
    store, alone = with_twin(), built()
    update(alone, TWO)
    VERBS[name](alone)
    with pytest.warns(UserWarning, match="two documents"):
        VERBS[name](store)
    assert keys(store, "by-dataset-metadata") == [JSON]
    assert state(store) == state(alone)


def test_a_document_that_cannot_be_removed_does_not_fail_the_commit():
    store = with_twin()
    update(
        FaultyStore(store, lambda call: "before" if (call.operation, call.key) == ("delete", MSGPACK) else None), ONE
    )
    assert len(rows(store)) == 6


# --- stores without compare-and-swap --------------------------------------------------------------


class Plain(StoreView):
    """A store that cannot put on condition."""

    @property
    def capabilities(self):
        return replace(super().capabilities, conditional_put=False)


@pytest.mark.parametrize("name", [*VERBS, *CREATORS])
def test_a_store_that_cannot_compare_is_refused_before_anything_is_written(name):
    store = built() if name in VERBS else MemoryStore()
    with refused(store, RuntimeError, AtomicityRequired):
        {**VERBS, **CREATORS}[name](Plain(store))


def test_an_unfinished_write_says_nothing_to_readers():
    store = built()
    before, old = contents(store), state(store)
    with pytest.raises(ZeroDivisionError):
        update_dataset_from_dataframes__iter(meanwhile(store, lambda _: 1 / 0, TWO, TWO), store, UUID)
    assert state(store) == old
    assert {key: data for key, data in contents(store).items() if key in before} == before
    assert len(labels(store)) == 2
    assert json.loads(store.get(JSON)) == json.loads(before[JSON])
    assert load_snapshot(store, UUID).uuid == UUID

from __future__ import annotations

import json

import msgspec
import pandas as pd
import pytest
import zstandard

from kartothek_cube import options
from kartothek_cube.core.dataset.maintain import convert_metadata_format
from kartothek_cube.core.dataset.read import read_table
from kartothek_cube.core.dataset.write import store_dataframes_as_dataset, update_dataset_from_dataframes
from kartothek_cube.core.metadata.commit_log import MOVING_KEY
from kartothek_cube.core.metadata.document import parse_document, render_document
from kartothek_cube.core.metadata.naming import document_format, document_key
from kartothek_cube.core.snapshots.loader import load_snapshot
from kartothek_cube.core.stores.contract import WRITES, ReadOnlyView, StoreView
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import CommitConflict, CorruptDocument, DatasetNotFound, InvalidInput, ReadOnlyStore
from kartothek_cube.testing.stores import FaultyStore, SimulatedCrash

UUID = "uuid"
KEYS = {"json": document_key(UUID), "msgpack": document_key(UUID, msgpack=True)}
BOTH_WAYS = pytest.mark.parametrize(("old", "new"), [("json", "msgpack"), ("msgpack", "json")])
ROWS = pd.DataFrame({"x": [1, 2, 3], "p": ["a", "a", "b"], "i1": [7, 8, 9]})
MORE = pd.DataFrame({"x": [4], "p": ["c"], "i1": [7]})


@pytest.fixture
def store():
    return MemoryStore()


def build(store, storage="json", data=ROWS, **more):
    arguments = {
        "partition_on": ["p"],
        "secondary_indices": ["i1"],
        "metadata": {"owner": "me"},
        "metadata_storage_format": storage,
    }
    return store_dataframes_as_dataset(store, UUID, [data], **{**arguments, **more})


def append(store):
    return update_dataset_from_dataframes([MORE], store, UUID)


def documents(store):
    return [key for key in store.list(UUID).keys if "metadata" in key]


def rows(store):
    return sorted(read_table(UUID, store)["x"].tolist())


def document(store, key):
    return parse_document(store.get(key), key)


def nth_call(nth, fault, operations=None):
    """Fail at the n-th call of these operations, or of any."""
    seen = []

    def fail(call):
        counts = operations is None or call.operation in operations
        seen.extend([call] if counts else [])
        return fault if counts and len(seen) == nth else None

    return fail


@BOTH_WAYS
def test_only_the_encoding_changes(store, old, new):
    build(store, old)
    before = document(store, KEYS[old])
    files = set(store.list(f"{UUID}/", recursive=True).keys)
    converted = convert_metadata_format(UUID, store, new.upper())
    assert (converted.uuid, converted.metadata["owner"]) == (UUID, "me")
    assert documents(store) == [KEYS[new]]
    assert document(store, KEYS[new]) == before
    assert set(store.list(f"{UUID}/", recursive=True).keys) == files
    assert not load_snapshot(store, UUID).has_foreign_commit
    append(store)
    assert documents(store) == [KEYS[new]]
    assert rows(store) == [1, 2, 3, 4]


@BOTH_WAYS
def test_there_and_back_again_is_the_same_document(store, old, new):
    build(store, old)
    before = document(store, KEYS[old])
    convert_metadata_format(UUID, store, new)
    convert_metadata_format(UUID, store, old)
    assert documents(store) == [KEYS[old]]
    assert document(store, KEYS[old]) == before


@pytest.mark.parametrize("storage", ["json", "msgpack"])
def test_the_present_encoding_changes_nothing(store, storage):
    build(store, storage)
    before = store.get_versioned(KEYS[storage])
    convert_metadata_format(UUID, store, storage)
    assert store.get_versioned(KEYS[storage]) == before
    assert documents(store) == [KEYS[storage]]


@pytest.mark.parametrize("new", ["json", "msgpack"])
@pytest.mark.parametrize("stale", [b"damaged", None])
def test_a_stale_second_document_goes(store, new, stale):
    build(store, "msgpack")
    old = store.get(KEYS["msgpack"])
    convert_metadata_format(UUID, store, "json")
    append(store)
    store.put(KEYS["msgpack"], stale or old)
    convert_metadata_format(UUID, store, new)
    assert documents(store) == [KEYS[new]]
    assert rows(store) == [1, 2, 3, 4]


def test_implicit_datasets_and_broken_schemas_are_no_hindrance(store):
    build(store)
    content = json.loads(store.get(KEYS["json"]))
    del content["partitions"]
    store.put(KEYS["json"], json.dumps({**content, "metadata": {}}).encode())
    convert_metadata_format(UUID, store, "msgpack")
    assert document(store, KEYS["msgpack"]).partitions is None
    assert rows(store) == [1, 2, 3]


# --- interruptions --------------------------------------------------------------------------------


@pytest.mark.slow
@BOTH_WAYS
@pytest.mark.parametrize("again", ["json", "msgpack"])
@pytest.mark.parametrize("fault", ["crash", "crash_after"])
def test_a_crash_at_any_call_leaves_a_dataset_that_can_be_converted_again(old, new, again, fault):
    crashes = 0
    for nth in range(1, 20):
        store = MemoryStore()
        build(store, old)
        before = document(store, KEYS[old])
        try:
            convert_metadata_format(UUID, FaultyStore(store, nth_call(nth, fault)), new)
        except SimulatedCrash:
            crashes += 1
        assert rows(store) == [1, 2, 3]
        convert_metadata_format(UUID, store, again)
        assert documents(store) == [KEYS[again]]
        assert document(store, KEYS[again]) == before
        append(store)
        assert rows(store) == [1, 2, 3, 4]
    assert 6 <= crashes < 19


@BOTH_WAYS
def test_lost_answers_are_no_failure(old, new):
    for nth in range(1, 4):
        store = MemoryStore()
        build(store, old)
        faulty = FaultyStore(store, nth_call(nth, "after", WRITES - {"delete"}))
        convert_metadata_format(UUID, faulty, new)
        assert documents(store) == [KEYS[new]]
        assert rows(store) == [1, 2, 3]


# --- others at the same time ----------------------------------------------------------------------


class Racing(StoreView):
    """Does something else once, before a call."""

    def __init__(self, inner, operation, key, action):
        super().__init__(inner)
        self.when, self.what = (operation, key), action

    def around(self, operation, key, action):
        if (operation, key) == self.when:
            self.when = None
            self.what(self.inner)
        return super().around(operation, key, action)


@BOTH_WAYS
def test_a_commit_before_the_mark_stops_the_conversion(store, old, new):
    build(store, old)
    with pytest.raises(CommitConflict, match="Call it again"):
        convert_metadata_format(UUID, Racing(store, "put_if", KEYS[old], append), new)
    assert documents(store) == [KEYS[old]]
    assert rows(store) == [1, 2, 3, 4]
    convert_metadata_format(UUID, store, new)
    assert rows(store) == [1, 2, 3, 4]


@BOTH_WAYS
@pytest.mark.parametrize("moment", [("put_if", "new"), ("delete", "old")])
def test_a_commit_after_the_mark_is_refused_or_lands_in_the_new_document(store, old, new, moment):
    build(store, old)
    refused = []

    def try_to_append(inner):
        try:
            append(inner)
        except CommitConflict:
            refused.append(True)

    convert_metadata_format(
        UUID, Racing(store, moment[0], KEYS[old if moment[1] == "old" else new], try_to_append), new
    )
    assert documents(store) == [KEYS[new]]
    assert rows(store) == ([1, 2, 3] if refused else [1, 2, 3, 4])


@BOTH_WAYS
def test_a_commit_prepared_before_the_conversion_comes_after_it(store, old, new):
    build(store, old)

    def convert(inner):
        convert_metadata_format(UUID, inner, new)

    append(Racing(store, "put_if", KEYS[old], convert))
    assert documents(store) == [KEYS[new]]
    assert rows(store) == [1, 2, 3, 4]


@BOTH_WAYS
@pytest.mark.parametrize("moment", [("put_if", "new"), ("delete", "old")])
@pytest.mark.parametrize("other", ["json", "msgpack"])
def test_two_conversions_at_a_time_lose_nothing(store, old, new, moment, other):
    build(store, old)
    before = document(store, KEYS[old])

    def convert(inner):
        convert_metadata_format(UUID, inner, other)

    operation, which = moment
    try:
        convert_metadata_format(UUID, Racing(store, operation, KEYS[old if which == "old" else new], convert), new)
    except CommitConflict:
        assert rows(store) == [1, 2, 3]
        convert_metadata_format(UUID, store, new)
    assert documents(store) in ([KEYS[new]], [KEYS[other]])
    assert document(store, documents(store)[0]) == before


@pytest.mark.parametrize("moment", [("changed", "msgpack"), ("delete", "json")])
def test_the_new_document_is_not_lost_to_somebody_who_takes_it_for_a_stale_one(store, moment):
    build(store)

    def drop(inner):
        inner.delete(KEYS["msgpack"])

    try:
        convert_metadata_format(UUID, Racing(store, moment[0], KEYS[moment[1]], drop), "msgpack")
    except CommitConflict:
        assert rows(store) == [1, 2, 3]
        convert_metadata_format(UUID, store, "msgpack")
    assert documents(store) == [KEYS["msgpack"]]
    assert rows(store) == [1, 2, 3]


def test_a_marked_document_is_freed_by_its_own_encoding(store):
    build(store)
    found = document(store, KEYS["json"])
    store.put(
        KEYS["json"],
        render_document(
            type(found)(
                UUID, {**found.metadata, MOVING_KEY: "x"}, found.partition_keys, found.indices, found.partitions
            )
        ),
    )
    with pytest.raises(CommitConflict):
        append(store)
    convert_metadata_format(UUID, store, "json")
    append(store)
    assert rows(store) == [1, 2, 3, 4]


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["yaml", "", None, 1])
def test_unknown_formats_are_refused(store, value):
    build(store)
    with pytest.raises(InvalidInput, match="Unknown metadata storage format"):
        convert_metadata_format(UUID, store, value)


@pytest.mark.parametrize(("value", "found"), [("json", "json"), ("JSON", "json"), ("MsgPack", "msgpack")])
def test_formats_come_in_any_case(value, found):
    assert document_format(value) == found


def test_metadata_that_the_format_cannot_hold_are_refused_before_anything_is_written(store):
    build(store, "msgpack")
    plain = msgspec.msgpack.decode(zstandard.decompress(store.get(KEYS["msgpack"])))
    store.put(KEYS["msgpack"], zstandard.compress(msgspec.msgpack.encode({**plain, "metadata": {"owner": b"\xff"}})))
    before = store.get_versioned(KEYS["msgpack"])
    with pytest.raises(InvalidInput, match="cannot be written"):
        convert_metadata_format(UUID, store, "json")
    assert store.get_versioned(KEYS["msgpack"]) == before
    assert documents(store) == [KEYS["msgpack"]]


def test_missing_damaged_and_unwritable_datasets_are_refused(store):
    with pytest.raises(DatasetNotFound):
        convert_metadata_format(UUID, store, "json")
    build(store)
    with pytest.raises(ReadOnlyStore):
        convert_metadata_format(UUID, ReadOnlyView(store), "msgpack", options=options(require_atomic=False))
    store.put(KEYS["json"], b"{")
    with pytest.raises(CorruptDocument):
        convert_metadata_format(UUID, store, "msgpack")
    assert documents(store) == [KEYS["json"]]

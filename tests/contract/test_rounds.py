"""Calls that wait for each other before a commit, which a far store makes a verb wait for."""

from __future__ import annotations

import pyarrow as pa
import pytest

from kartothek_cube import C, Cube
from kartothek_cube.api.cube import (
    append_to_cube,
    build_cube,
    compact_cube,
    count_cube,
    delete_cells,
    extend_cube,
    query_cube_arrow,
    remove_partitions,
)
from kartothek_cube.api.dataset import (
    compact_dataset,
    delete_rows,
    merge_dataset,
    read_table_arrow,
    store_dataframes_as_dataset,
    undo,
    update_dataset_from_dataframes,
    update_rows,
)
from kartothek_cube.core.stores.contract import Listing, StoreView
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.cube.members import load_members
from kartothek_cube.errors import CorruptDocument
from kartothek_cube.testing.stores import RoundsStore
from tests.support.datasets import UUID

CUBE = Cube(["x"], ["p"], "cube", index_columns=["i1"])


def of_seed(xs):
    return pa.table({"x": xs, "p": [x % 3 for x in xs], "i1": [x % 2 for x in xs]})


def enriched(xs, name):
    return pa.table({"x": xs, "p": [x % 3 for x in xs], name: xs})


def flat(xs, name):
    return pa.table({"x": xs, name: xs})


@pytest.fixture
def cube():
    """A cube of four datasets; two of them have one file for all partitions."""
    store, xs = RoundsStore(MemoryStore()), list(range(30))
    data = {"seed": of_seed(xs), "e": enriched(xs, "v1"), "f": flat(xs, "v2"), "g": flat(xs, "v3")}
    build_cube(data, CUBE, store, partition_on={"f": [], "g": []})
    more = [30, 31, 32]
    data = {"seed": of_seed(more), "e": enriched(more, "v1"), "f": flat(more, "v2"), "g": flat(more, "v3")}
    append_to_cube(data, CUBE, store)
    return store


@pytest.fixture
def dataset():
    store, keys = RoundsStore(MemoryStore()), list(range(20))
    rows = pa.table({"x": keys, "p": [x % 10 for x in keys], "v1": keys})
    store_dataframes_as_dataset(store, UUID, [rows], partition_on="p", secondary_indices="x")
    update_dataset_from_dataframes([rows.slice(0, 1)], store, UUID)
    update_dataset_from_dataframes([], store, UUID, delete_scope=[{"p": 9}])
    return store


def is_of_commit(call):
    """Whether a call belongs to the swap: documents, and puts of what a document names."""
    if ".by-dataset-metadata." in call.key or call.key.endswith("_common_metadata"):
        return True
    return call.operation.startswith("put") and ("/_history/" in call.key or "/indices/" in call.key)


def rounds_before_commit(store, verb):
    with store.rounds_counted():
        verb(store)
    return max((number for number, call in store.chain if not is_of_commit(call)), default=0)


@pytest.mark.parametrize(
    ("verb", "rounds"),
    [
        (lambda s: count_cube(CUBE, s), 1),
        (lambda s: query_cube_arrow(CUBE, s, C("p") == 1), 2),
        (lambda s: remove_partitions(CUBE, s, C("p") == 1, ["seed", "e"]), 1),
        (lambda s: compact_cube(CUBE, s), 3),
        (lambda s: delete_cells(CUBE, s, C("x") == 5), 4),
    ],
    ids=["count", "query", "remove partitions", "compact", "delete cells"],
)
def test_datasets_of_a_cube_wait_for_each_other_no_more_than_they_must(cube, verb, rounds):
    assert rounds_before_commit(cube, verb) == rounds


@pytest.mark.parametrize(
    ("verb", "rounds"),
    [
        (lambda s: delete_rows(UUID, s, [[("x", "==", 5)]]), 3),
        (lambda s: update_rows(UUID, s, [[("x", "in", [5, 6, 7])]], {"v1": 0}), 3),
        (lambda s: merge_dataset(pa.table({"p": [1, 2], "x": [1, 2], "v1": [7, 7]}), s, UUID, "x"), 3),
        (lambda s: compact_dataset(UUID, s), 3),
        (lambda s: undo(UUID, s), 2),
    ],
    ids=["delete rows", "update rows", "merge", "compact", "undo"],
)
def test_a_dataset_is_asked_in_few_rounds(dataset, verb, rounds):
    assert rounds_before_commit(dataset, verb) == rounds


def test_a_commit_of_a_compaction_does_not_wait_for_that_of_another_dataset(cube):
    alone = RoundsStore(MemoryStore())
    build_cube(of_seed([1, 4]), CUBE, alone)
    append_to_cube(of_seed([7, 10]), CUBE, alone)
    for store in (alone, cube):
        with store.rounds_counted():
            compact_cube(CUBE, store)
    assert alone.rounds == cube.rounds


# --- what was known is not always so --------------------------------------------------------------


def test_a_dataset_that_another_process_made_is_found(cube):
    count_cube(CUBE, cube)
    other = RoundsStore(MemoryStore())  # its snapshots are of no use to the first one
    for key in cube.list("", recursive=True).keys:
        other.put(key, cube.get(key))
    extend_cube({"h": flat([1, 2], "v4")}, CUBE, other, partition_on={"h": []})
    for key in other.list("cube++h", recursive=True).keys:
        cube.put(key, other.get(key))
    assert query_cube_arrow(CUBE, cube, C("v4") == 2).num_rows == 1


def test_a_dataset_that_another_process_deleted_is_asked_for_once(cube):
    count_cube(CUBE, cube)
    for key in cube.list("cube++g", recursive=True).keys:
        cube.delete(key)
    assert "v3" not in query_cube_arrow(CUBE, cube).column_names
    cube.reset()
    count_cube(CUBE, cube)
    assert not [key for key in cube.touched("changed", "get_versioned") if "++g" in key]


def test_a_known_dataset_that_was_damaged_is_an_error_only_if_it_is_listed(cube):
    count_cube(CUBE, cube)
    document = "cube++g.by-dataset-metadata.json"
    cube.put(document, b"{")
    with pytest.raises(CorruptDocument, match=r"cube\+\+g"):
        query_cube_arrow(CUBE, cube)

    class WithoutDocument(StoreView):
        def list(self, prefix="", recursive=False):
            found = self.inner.list(prefix, recursive)
            return Listing([entry for entry in found.entries if entry.key != document], found.prefixes)

    assert sorted(load_members("cube", WithoutDocument(cube))) == ["e", "f", "seed"]


def test_an_undo_finds_the_commit_of_another_process(dataset):
    before = read_table_arrow(UUID, dataset)
    other = RoundsStore(MemoryStore())
    for key in dataset.list("", recursive=True).keys:
        other.put(key, dataset.get(key))
    delete_rows(UUID, other, [[("x", "==", 5)]])
    for key in other.list("", recursive=True).keys:
        dataset.put(key, other.get(key))
    assert read_table_arrow(UUID, dataset).num_rows == before.num_rows - 1
    undo(UUID, dataset)
    assert read_table_arrow(UUID, dataset).equals(before)


def test_a_merge_of_a_stream_finds_rows_that_came_while_it_was_read(dataset):
    def stream():
        yield pa.table({"p": [1], "x": [100], "v1": [1]})
        update_dataset_from_dataframes([pa.table({"p": [1], "x": [100], "v1": [2]})], dataset, UUID)

    report = merge_dataset(stream(), dataset, UUID, "x")
    assert (report.updated, report.inserted) == (1, 0)

"""Updating a cube (remove and append in one commit), and removing partitions."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kartothek_cube.api.cube import (
    C,
    Conjunction,
    append_to_cube,
    build_cube,
    extend_cube,
    query_cube,
    remove_partitions,
    update_cube,
)
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import InvalidInput, InvalidType, MultiTableCommitAborted
from tests.support.cubes import CUBE, ENRICH, SEED, answers, contents, files, index_of, refused, snapshot, table

NEW = table(x=[5, 5], y=["a", "b"], p=[0, 0], i1=[50, 50], v1=[5.0, 5.5])
PART = table(x=[1, 0], y=["a", "a"], p=[1, 0], v3=[11, 10])


@pytest.fixture
def store():
    store = MemoryStore()
    build_cube({"seed": SEED, "e": ENRICH, "f": PART}, CUBE, store, metadata={"seed": {"a": 1}}, partition_on={"e": []})
    return store


def cells(store, **arguments):
    return [(row["p"], row["x"], row["y"]) for row in answers(store, **arguments)]


# --- update ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("conditions", [None, C("p").isin([])])
@pytest.mark.parametrize("names", [[], ["seed"], ["seed", "f"]])
def test_removing_nothing_and_adding_nothing(store, conditions, names):  # cube 135
    before, seen = answers(store), files(store)
    update_cube({}, CUBE, store, conditions, names)
    assert answers(store) == before
    assert files(store) == seen


def test_without_conditions_it_is_an_append(store):
    update_cube(NEW, CUBE, store, None)
    assert len(files(store)) == 3
    assert len(cells(store)) == 6


def test_a_partition_is_replaced(store):  # cube 136
    assert set(update_cube(NEW, CUBE, store, C("p") == 0)) == {"seed"}
    assert cells(store) == [(1, 1, "a"), (1, 1, "b"), (0, 5, "a"), (0, 5, "b")]
    assert index_of(store, "x") == {
        1: {snapshot(store).partitions.labels[0].as_py()},
        5: {snapshot(store).partitions.labels[1].as_py()},
    }


@pytest.mark.parametrize("conditions", [[], Conjunction([]), C("p") >= 0])
def test_all_partitions_are_replaced(store, conditions):  # cube 137
    update_cube(NEW, CUBE, store, conditions)
    assert cells(store) == [(0, 5, "a"), (0, 5, "b")]


@pytest.mark.parametrize("data", [{}, [], [{}], {"seed": NEW[:0]}])
def test_partitions_are_removed_without_new_rows(store, data):  # cube 138
    update_cube(data, CUBE, store, C("p") == 0, ["seed"])
    assert cells(store) == [(1, 1, "a"), (1, 1, "b")]


def test_only_the_named_datasets_lose_partitions(store):  # cube 139
    update_cube({"seed": NEW}, CUBE, store, C("p") == 0, ["seed", "f"])
    assert [key.split("/")[2] for key in files(store, "f")] == ["p=1"]
    assert len(files(store, "e")) == 1
    update_cube({"seed": NEW}, CUBE, store, C("p") == 1)
    assert [key.split("/")[2] for key in files(store, "f")] == ["p=1"]


def test_no_datasets_named_and_no_data_changes_nothing(store):  # cube 140
    before = contents(store)
    assert update_cube({}, CUBE, store, C("p") == 0, []) == {}
    assert contents(store) == before


def test_conditions_without_data_have_to_name_the_datasets(store):
    before = contents(store)
    with pytest.raises(InvalidInput, match="ktk_cube_dataset_ids"):
        update_cube({}, CUBE, store, C("p") == 0)
    assert contents(store) == before


def test_metadata_is_merged(store):  # cube 141
    update_cube(NEW, CUBE, store, C("p") == 0, metadata={"seed": {"b": 2}})
    assert {k: snapshot(store).document.metadata[k] for k in "ab"} == {"a": 1, "b": 2}


@pytest.mark.parametrize("changes", [{"index_columns": []}, {"suppress_index_on": ["x"]}])
def test_indices_that_the_cube_does_not_mention_are_kept_up(store, changes):  # cube 142, 143, 246
    update_cube(NEW, CUBE.copy(**changes), store, C("p") == 0)
    assert set(index_of(store, "x")) == {1, 5}
    assert set(index_of(store, "i1")) == {10, 20, 50}


def test_files_that_stay_are_not_written_again(store):
    kept = files(store)[1]
    before = store.get(kept)
    update_cube(NEW, CUBE, store, C("p") == 0)
    assert files(store)[0] == kept
    assert store.get(kept) == before


WRONG_UPDATES = {
    "nothing would be left": ({}, C("p") >= 0, ["seed"], MultiTableCommitAborted, ["empty", "seed"]),
    "nothing would be left of one": (
        {"seed": NEW},
        C("p") >= 0,
        ["seed", "f"],
        MultiTableCommitAborted,
        ["empty", "f"],
    ),
    "condition on a dimension": ({"seed": NEW}, C("x") == 0, None, InvalidInput, ["partition", "x"]),
    "condition on payload": ({"seed": NEW}, C("v1") == 0.0, None, InvalidInput, ["partition", "v1"]),
    "condition on nothing known": ({"seed": NEW}, C("zz") == 0, None, InvalidInput, ["partition", "zz"]),
    "condition of a wrong type": ({"seed": NEW}, C("p") == "0", None, InvalidType, ["p", "seed"]),
    "dataset not partitioned so": ({"e": ENRICH}, C("p") == 0, None, InvalidInput, ["e", "p"]),
    "unknown dataset": ({"u": NEW}, C("p") == 0, None, InvalidInput, ["u"]),
    "unknown name": ({}, C("p") == 0, ["u"], InvalidInput, ["u"]),
    "data for an unnamed dataset": ({"seed": NEW}, C("p") == 0, ["f"], InvalidInput, ["seed"]),
    "name of a wrong type": ({}, C("p") == 0, [1], InvalidType, ["1"]),
    "wrong columns": ({"seed": NEW.drop_columns(["v1"])}, C("p") == 0, None, InvalidInput, ["v1", "seed"]),
    "null": (
        {"seed": pa.concat_tables([NEW, table(x=[None], y=["a"], p=[0], i1=[1], v1=[1.0])], promote_options="default")},
        None,
        None,
        InvalidInput,
        ["x"],
    ),
}


@pytest.mark.parametrize("name", WRONG_UPDATES)
def test_a_wrong_update_changes_nothing(store, name):  # cube 144, 145, 240
    data, conditions, names, error, words = WRONG_UPDATES[name]
    with refused(store, error, *words):
        update_cube(data, CUBE, store, conditions, names)


def test_an_index_that_the_store_lacks_is_refused(store):  # cube 246
    with refused(store, InvalidInput, "v1", "seed"):
        update_cube(NEW, CUBE.copy(index_columns=["i1", "v1"]), store, C("p") == 0)


def test_wrong_metadata_is_refused(store):
    with refused(store, InvalidInput, "f"):
        update_cube(NEW, CUBE, store, C("p") == 0, metadata={"f": {}})


def test_a_dataset_that_is_not_partitioned_so_loses_everything_if_named(store):
    update_cube({"e": table(x=[0], i2=["new"], v2=[1])}, CUBE, store, C("p") == 0, ["e"])
    assert [(row["x"], row["i2"]) for row in answers(store) if row["i2"]] == [(0, "new"), (0, "new")]


# --- remove ---------------------------------------------------------------------------------------


def test_removing_without_conditions_empties_all_and_keeps_the_cube(store):  # cube 146, 231
    assert set(remove_partitions(CUBE, store)) == {"seed", "e", "f"}
    assert [files(store, name) for name in ("seed", "e", "f")] == [[], [], []]
    assert query_cube(CUBE, store) == []
    append_to_cube({"seed": SEED, "e": ENRICH}, CUBE, store)
    assert [row["v2"] for row in answers(store)] == [None, None, 10, 10]


def test_only_matching_partitions_of_the_named_datasets_go(store):  # cube 147, 148, 152
    result = remove_partitions(CUBE, store, C("p") == 0, ["seed"])
    assert set(result) == {"seed", "e", "f"}
    assert {i: len(dataset.partitions) for i, dataset in result.items()} == {"seed": 1, "e": 1, "f": 2}
    assert index_of(store, "x") == {1: set(snapshot(store).partitions.labels.to_pylist())}


def test_files_stay_in_the_store(store):
    before = contents(store)
    remove_partitions(CUBE, store, C("p") == 0, "seed")
    assert all(key in contents(store) for key in before if key.endswith(".parquet"))


@pytest.mark.parametrize("names", [["seed", "f"], [], "f"])
def test_a_condition_that_matches_nothing_removes_nothing(store, names):  # cube 149
    before = answers(store)
    remove_partitions(CUBE, store, C("p") == 77, names)
    assert answers(store) == before


@pytest.mark.parametrize(
    ("conditions", "names", "error", "words"),
    [
        (C("x") == 0, None, InvalidInput, ["x"]),
        (C("p") == 0, None, InvalidInput, ["e", "p"]),
        (C("p") == 0, ["u", "t"], InvalidInput, ["t, u"]),
        (C("p") == 0, [1], InvalidType, ["1"]),
        (C("p") == "a", ["seed"], InvalidType, ["p", "seed"]),
    ],
)
def test_a_wrong_removal_changes_nothing(store, conditions, names, error, words):  # cube 150, 151, 153
    with refused(store, error, *words):
        remove_partitions(CUBE, store, conditions, names)


def test_a_removed_enrichment_partition_gives_missing_values(store):  # cube 180
    remove_partitions(CUBE, store, C("p") == 0, ["f"])
    assert [(row["x"], row["y"], row["v3"]) for row in answers(store)] == [
        (0, "a", None),
        (0, "b", None),
        (1, "a", 11),
        (1, "b", None),
    ]
    append_to_cube({"f": table(x=[0], y=["b"], p=[0], v3=[77])}, CUBE, store)
    assert [row["v3"] for row in answers(store)] == [None, 77, 11, None]


def test_negated_equality_excludes_cells_of_removed_partitions(store):  # cube 196
    remove_partitions(CUBE, store, C("p") == 0, ["f"])
    assert cells(store, conditions=C("v3") != 7) == [(1, 1, "a")]


@pytest.mark.parametrize("name", ["e", "f", "seed"])
def test_an_emptied_dataset_takes_rows_again(store, name):  # cube 154
    before = answers(store)
    remove_partitions(CUBE, store, None, [name])
    append_to_cube({name: {"e": ENRICH, "f": PART, "seed": SEED}[name]}, CUBE, store)
    assert answers(store) == before


def test_inactive_conditions_are_passed_over(store):
    remove_partitions(CUBE, store, C("p").in_interval(None, None), ["seed"])
    assert files(store) == []


def test_metadata_of_a_removal_is_merged(store):
    remove_partitions(CUBE, store, C("p") == 0, ["seed"], metadata={"seed": {"b": 2}})
    assert {k: snapshot(store).document.metadata[k] for k in "ab"} == {"a": 1, "b": 2}


def test_a_removal_concerns_every_condition_column_that_the_dataset_has():
    store, cube = MemoryStore(), CUBE.copy(partition_columns=["p", "q"])
    data = table(x=[0, 1, 2, 3], y=["a"] * 4, p=[0, 0, 1, 1], q=["u", "w", "u", "w"])
    build_cube({"seed": data, "f": table(x=[0, 2], p=[0, 1], v3=[1, 2])}, cube, store, partition_on={"f": ["p"]})
    remove_partitions(cube, store, (C("p") == 0) & (C("q") == "u"), ["seed", "f"])
    assert [row["x"] for row in answers(store, cube)] == [1, 2, 3]
    assert [key.split("/")[2] for key in files(store, "f")] == ["p=1"]
    extend_cube({"g": table(x=[3], v4=[1])}, cube, store, partition_on={"g": []})
    assert pq.read_table(pa.BufferReader(store.get(files(store, "g")[0]))).num_rows == 1


def test_conditions_are_looked_at_before_the_names_of_datasets(store):
    with refused(store, InvalidInput, "partition columns, not x"):
        remove_partitions(CUBE, store, C("x") == 1, ["u"])
    with refused(store, InvalidInput, "partition columns, not x"):
        remove_partitions(CUBE, store, C("x") == 1, [])
    with refused(store, InvalidInput, "partition columns, not x"):
        update_cube({}, CUBE, store, C("x") == 1, [])


def test_conditions_may_be_read_only_once(store):
    before = contents(store)
    remove_partitions(CUBE, store, iter([C("p") == 7]), ["seed", "f"])
    assert len(files(store)) == 2
    update_cube({}, CUBE, store, (c for c in [C("p") >= 1]), ["seed"])
    assert len(files(store)) == 1
    assert before.keys() <= contents(store).keys()

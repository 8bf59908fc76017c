"""Lines of the checklist of cubes about writing and removing that no other test is about."""

from __future__ import annotations

import datetime
import json

import pandas as pd
import pytest

from kartothek_cube import options
from kartothek_cube.api.cube import (
    C,
    append_to_cube,
    build_cube,
    cleanup_cube,
    extend_cube,
    remove_partitions,
    update_cube,
)
from kartothek_cube.api.dataset import read_table, store_dataframes_as_dataset
from kartothek_cube.core.metadata.commit_log import COMMITS_KEY, SCHEMA_KEY
from kartothek_cube.core.metadata.naming import document_key, schema_key
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import CorruptDocument, InvalidInput, MultiTableCommitAborted
from tests.support.cubes import CUBE, SEED, answers, build_two, contents, files, refused, snapshot, stored_rows, table

NOW = options(grace=datetime.timedelta(0), retain=datetime.timedelta(0))


@pytest.fixture
def store():
    store = MemoryStore()
    build_two(store)
    return store


@pytest.mark.parametrize("labels", [[7, 7, 7, 7], list("abcd")], ids=str)
def test_stored_rows_have_no_labels_of_the_frame(labels):  # cube 50
    store, frame = MemoryStore(), SEED.to_pandas()
    build_cube(frame.set_index(pd.Index(labels)), CUBE, store)
    stored = [stored_rows(store, key) for key in files(store)]
    assert [rows.select(["x", "y"]).to_pydict() for rows in stored] == [
        {"x": [0, 0], "y": ["a", "b"]},
        {"x": [1, 1], "y": ["a", "b"]},
    ]
    assert [list(rows.to_pandas().index) for rows in stored] == [[0, 1], [0, 1]]


@pytest.mark.parametrize(
    "data",
    [
        [SEED, SEED[1:2]],
        [{"seed": SEED}, {"seed": SEED[1:2]}],
        [SEED.to_pandas(), SEED[1:2]],
        lambda: iter([SEED[:2], SEED[1:]]),
    ],
    ids=["frames", "dicts", "mixed", "generator"],
)
def test_a_cell_in_two_elements_is_a_duplicate(data):  # cube 67, 245
    store = MemoryStore()
    with pytest.raises(InvalidInput, match=r'(?i)duplicate cells by \[p, x, y\] in dataset "seed"'):
        build_cube(data() if callable(data) else data, CUBE, store)
    assert not [key for key in contents(store) if "metadata" in key]


@pytest.mark.parametrize(
    "data",
    [[None, SEED], [SEED, None], [None, {"seed": None}, SEED[:2], None, SEED[2:]]],
    ids=["before", "after", "between"],
)
def test_none_is_passed_over(data):  # cube 72
    store = MemoryStore()
    build_cube(data, CUBE, store)
    assert len(answers(store)) == 4


def test_a_dataset_of_other_tables_survives_a_failed_overwrite():  # cube 83
    store = MemoryStore()
    frame = pd.DataFrame({"z": [1, 2]})
    store_dataframes_as_dataset(
        store=store, dataset_uuid="cube++seed", dfs=[{"data": {"other": frame}}], metadata={"a": 1}
    )
    with refused(store, MultiTableCommitAborted, "v1"):
        build_cube({"seed": SEED, "e": table(x=[1], v1=[1.0])}, CUBE, store, overwrite=True, partition_on={"e": []})
    pd.testing.assert_frame_equal(read_table("cube++seed", store, table="other"), frame)
    assert snapshot(store).document.metadata["a"] == 1


def test_only_the_offending_dataset_is_named(store):  # cube 105
    with pytest.raises(InvalidInput) as caught:
        extend_cube(
            {"good": table(x=[1], v3=[1]), "bad": table(x=[1], v2=[1])},
            CUBE,
            store,
            partition_on={"good": [], "bad": []},
        )
    assert str(caught.value) == 'Payload written in "bad" is already present in cube: v2'
    assert not [key for key in contents(store) if key.startswith(("cube++good", "cube++bad"))]


def test_no_rows_are_fine_for_an_update_and_not_for_an_append(store):  # cube 131
    before = answers(store)
    with refused(store, MultiTableCommitAborted, "empty", "seed"):
        append_to_cube(SEED[:0], CUBE, store)
    assert set(update_cube({"seed": SEED[:0]}, CUBE, store, None)) == {"seed"}
    assert answers(store) == before


def test_metadata_of_a_dataset_without_new_rows_are_merged_by_an_update(store):  # cube 131, 141
    update_cube({}, CUBE, store, None, ["seed", "e"], metadata={"e": {"a": 1}})
    assert snapshot(store, "e").document.metadata["a"] == 1


@pytest.mark.parametrize("conditions", [None, [], C("p") == 0], ids=str)
def test_a_dataset_that_was_empty_may_stay_empty_in_an_update(store, conditions):  # cube 144
    remove_partitions(CUBE, store, None, ["seed"])
    update_cube({}, CUBE, store, conditions, ["seed"])
    assert answers(store) == []
    update_cube(SEED, CUBE, store, conditions)
    assert len(answers(store)) == 4


@pytest.mark.parametrize("condition", [C("p") == 0, C("p") == 77, None], ids=str)
def test_a_dataset_without_partition_columns_loses_everything_when_it_is_named(store, condition):  # cube 153
    remove_partitions(CUBE, store, condition, ["e"])
    assert files(store, "e") == []
    assert len(files(store)) == 2
    assert [row["v2"] for row in answers(store)] == [None] * 4


@pytest.mark.parametrize("text", ["", " "])
def test_an_empty_text_does_not_stand_for_everything(store, text):
    for write in (
        lambda: remove_partitions(CUBE, store, text, ["e"]),
        lambda: update_cube(SEED, CUBE, store, text),
    ):
        with refused(store, InvalidInput, "empty text", "[]"):
            write()


def test_no_names_are_no_removal(store):  # cube 155
    before = contents(store)
    assert set(remove_partitions(CUBE, store, None, [])) == {"seed", "e"}
    assert set(remove_partitions(CUBE, store, C("p") == 0, [])) == {"seed", "e"}
    assert contents(store) == before


def test_what_is_left_of_a_dataset_without_document_is_garbage(store):  # cube 218
    store.delete(document_key("cube++e"))
    left = {key for key in contents(store) if key.startswith("cube++e")}
    gone = cleanup_cube(CUBE, store, options=NOW).keys
    assert {key for key in gone if not key.startswith("cube++seed/_history/")} == left != set()
    assert len(answers(store)) == 4


def test_all_is_garbage_where_no_document_is_left(store):  # cube 218
    for name in ("e", "seed"):
        store.delete(document_key(f"cube++{name}"))
    cleanup_cube(CUBE, store, options=NOW)
    assert contents(store) == {}


def test_a_cube_in_which_a_schema_file_is_missing_is_not_cleaned(store):  # cube 218
    document = json.loads(store.get(document_key("cube++e")))
    document["metadata"] = {
        name: value for name, value in document["metadata"].items() if name not in (COMMITS_KEY, SCHEMA_KEY)
    }
    store.put(document_key("cube++e"), json.dumps(document).encode())
    store.delete(schema_key("cube++e"))
    with refused(store, CorruptDocument, "cube++e"):
        cleanup_cube(CUBE, store, options=NOW)

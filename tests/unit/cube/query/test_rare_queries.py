"""Lines of the checklist of cubes about queries that no other test is about."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from kartothek_cube.api.cube import C, append_to_cube, build_cube_index, extend_cube, query_cube
from kartothek_cube.api.discover import discover_datasets_unchecked
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import InvalidInput
from tests.support.cubes import CUBE, answers, build_two, refused, table


@pytest.fixture
def store():
    store = MemoryStore()
    build_two(store)
    return store


def test_a_projection_that_fails_names_dataset_dimensions_and_columns(store):  # cube 169
    with pytest.raises(InvalidInput) as caught:
        query_cube(CUBE, store, dimension_columns="x", payload_columns=["v1", "i1", "v2"])
    text = (
        'Cannot project dataset "seed" with dimensionality [x, y] to [x] '
        "while keeping the following payload intact: i1, v1"
    )
    assert str(caught.value) == text


def grouped(store, by, **arguments):
    frames = query_cube(CUBE, store, partition_by=by, **arguments)
    return [(frame[by].unique().tolist(), list(zip(frame["x"], frame["y"], strict=True))) for frame in frames]


def test_an_index_that_comes_later_makes_groups_possible(store):  # cube 171, 183
    with refused(store, InvalidInput, "not indexed", "v1"):
        query_cube(CUBE, store, partition_by="v1")
    build_cube_index(CUBE, store, "v1")
    assert grouped(store, "v1") == [([0.5], [(0, "a")]), ([1.5], [(0, "b")]), ([3.5], [(1, "b")])]


@pytest.mark.parametrize("condition", [None, C("x") >= 0, C("x") == 0], ids=str)
def test_an_index_on_a_dimension_of_an_enrichment_restricts_nothing(store, condition):  # cube 184
    rows, groups = answers(store, conditions=condition), grouped(store, "x", conditions=condition)
    build_cube_index(CUBE, store, "x", "e")
    assert answers(store, conditions=condition) == rows
    assert any(row["v2"] is None for row in rows)
    assert grouped(store, "x", conditions=condition) == groups
    assert groups[0] == ([0], [(0, "a"), (0, "b")])


@pytest.mark.parametrize("arguments", [{}, {"conditions": C("v2") == 10}, {"payload_columns": ["v1"]}], ids=str)
@pytest.mark.parametrize("nothing", [[], ()], ids=str)
def test_to_partition_by_nothing_is_not_to_partition(store, nothing, arguments):  # cube 189
    (expected,) = query_cube(CUBE, store, **arguments)
    (found,) = query_cube(CUBE, store, partition_by=nothing, **arguments)
    pd.testing.assert_frame_equal(found, expected)


def test_groups_that_lose_all_their_rows_are_not_there(store):  # cube 192
    assert [keys for keys, _ in grouped(store, "p")] == [[0], [1]]
    # In the file of p=0 are rows with and without the value, so that nothing but the rows
    # themselves can tell.
    append_to_cube(table(x=[0], y=["c"], p=[0], i1=[10], v1=[3.0]), CUBE, store)
    assert grouped(store, "p", conditions=(C("v1") > 2.0) & (C("v1") < 2.5)) == []
    assert grouped(store, "p", conditions=C("v1") > 3.0) == [([1], [(1, "b")])]


def test_discovery_passes_over_datasets_without_schema_and_queries_do_not(store):  # cube 219
    extend_cube({"f": table(x=[1], v3=[1])}, CUBE, store, partition_on={"f": []})
    document = json.loads(store.get("cube++f.by-dataset-metadata.json"))
    del document["metadata"]
    store.put("cube++f.by-dataset-metadata.json", json.dumps(document).encode())
    store.delete("cube++f/table/_common_metadata")
    store.put("cube++g/table/_common_metadata", b"")
    assert sorted(discover_datasets_unchecked("cube", store)) == ["e", "seed"]
    with pytest.raises(KeyError, match=r"cube\+\+f"):
        query_cube(CUBE, store)

"""Datasets that did not come through a cube verb: made by the dataset verbs under a name of the
cube, or kept in msgpack.
"""

from __future__ import annotations

from datetime import timedelta

import pyarrow as pa
import pytest

from kartothek_cube.api.cube import (
    C,
    Cube,
    append_to_cube,
    build_cube,
    cleanup_cube,
    open_cube,
    query_cube_arrow,
    remove_partitions,
    update_cube,
)
from kartothek_cube.api.dataset import (
    convert_metadata_format,
    read_table_arrow,
    store_dataframes_as_dataset,
    update_dataset_from_dataframes,
)
from kartothek_cube.core.metadata.naming import document_key
from kartothek_cube.core.runtime.options import options
from kartothek_cube.core.stores.local import MemoryStore

CUBE = Cube(["x", "y"], ["p"], "cube", index_columns=["i1"])
SEED = pa.table({"x": [1, 1, 2, 2], "y": [1, 2, 1, 2], "p": ["a", "a", "b", "b"], "v1": [10, 11, 20, 21]})
ENRICHMENT = pa.table({"x": [1, 2], "y": [2, 1], "p": ["a", "b"], "i1": ["u", "w"]})


@pytest.fixture
def store():
    store = MemoryStore()
    build_cube({"seed": SEED, "e": ENRICHMENT}, CUBE, store)
    return store


def answer(store, conditions=None, **arguments):
    return query_cube_arrow(CUBE, store, conditions, **arguments).to_pylist()


@pytest.mark.parametrize(
    ("partition_on", "secondary_indices"), [(["p"], []), ([], []), (["x"], []), (["p", "x"], []), (["p"], ["v2"])]
)
def test_a_dataset_of_the_dataset_verbs_joins_the_cube_by_its_name(store, partition_on, secondary_indices):
    rows, newer = (
        pa.table({"x": [1, 2], "p": ["a", "b"], "v2": [0.5, 1.5]}),
        pa.table({"x": [1], "p": ["a"], "v2": [9.0]}),
    )
    if "p" not in partition_on:  # who has a partition column of the cube is partitioned by it
        rows, newer = rows.drop_columns("p"), newer.drop_columns("p")
    store_dataframes_as_dataset(
        store, "cube++weights", [rows], partition_on=partition_on, secondary_indices=secondary_indices
    )
    assert [row["v2"] for row in answer(store)] == [0.5, 0.5, 1.5, 1.5]
    assert [(row["x"], row["y"]) for row in answer(store, C("v2") > 1.0)] == [(2, 1), (2, 2)]
    update_dataset_from_dataframes([newer], store, "cube++weights")
    assert [row["v2"] for row in answer(store)] == [9.0, 9.0, 1.5, 1.5]
    assert open_cube("cube", store).seed_dataset == "seed"


@pytest.mark.parametrize("members", [["seed"], ["e"], ["seed", "e"]])
def test_datasets_in_msgpack_are_members_like_others(store, members):
    before = answer(store), answer(store, C("i1") == "u")
    for name in members:
        convert_metadata_format(f"cube++{name}", store, "msgpack")
    assert (answer(store), answer(store, C("i1") == "u")) == before
    append_to_cube(
        {
            "seed": SEED.slice(0, 1).set_column(3, "v1", [[99]]),
            "e": ENRICHMENT.slice(0, 1).set_column(3, "i1", [["z"]]),
        },
        CUBE,
        store,
    )
    assert [row["v1"] for row in answer(store)] == [99, 11, 20, 21]
    assert [(row["x"], row["y"]) for row in answer(store, C("i1") == "z")] == [(1, 2)]
    update_cube({"seed": SEED.slice(2, 1)}, CUBE, store, remove_conditions=C("p") == "b")
    assert [(row["x"], row["y"]) for row in answer(store)] == [(1, 1), (1, 2), (2, 1)]
    remove_partitions(CUBE, store, C("p") == "a", ["seed", "e"])
    cleanup_cube(CUBE, store, options=options(grace=timedelta(0), retain=timedelta(0)))
    assert [(row["x"], row["y"], row["i1"]) for row in answer(store)] == [(2, 1, "w")]
    for name in ("seed", "e"):
        assert store.contains(document_key(f"cube++{name}", msgpack=name in members))
        assert not store.contains(document_key(f"cube++{name}", msgpack=name not in members))
        assert read_table_arrow(f"cube++{name}", store).num_rows == 1

"""Which datasets belong to a cube, and how the cube is recovered from their metadata."""

from __future__ import annotations

import json
import logging

import pyarrow as pa
import pytest

from kartothek_cube.api.cube import C, Cube, build_cube, extend_cube, list_cubes, query_cube
from kartothek_cube.core.metadata.chain import COMMITS_KEY, SCHEMA_KEY
from kartothek_cube.core.metadata.document import parse_document, render_document
from kartothek_cube.core.stores.memory import MemoryStore
from kartothek_cube.cube.discovery import cube_of, dataset_ids, list_cube_prefixes, load_cube, load_members
from kartothek_cube.errors import InvalidInput, InvalidType, KeyNotFound, Unsupported
from tests.cube.cubes import CUBE, ENRICH, SEED, ColdStore, answers, build_two, contents, refused, table


@pytest.fixture
def store():
    store = MemoryStore()
    build_two(store)
    return store


def edit(store, dataset, change, *, uuid=None):
    """Change a document as a foreign writer would: without our entries."""
    key = f"cube++{dataset}.by-dataset-metadata.json"
    document = json.loads(store.get(key))
    for own in (COMMITS_KEY, SCHEMA_KEY):
        document["metadata"].pop(own, None)
    change(document)
    store.put(key, json.dumps(document).encode())


def edit_metadata(store, dataset, **entries):
    def change(document):
        for key, value in entries.items():
            document["metadata"].pop(key, None) if value is None else document["metadata"].update({key: value})

    edit(store, dataset, change)


# --- membership -------------------------------------------------------------------------------------------------------


def test_ids_are_found_with_one_listing_that_reads_nothing(store):
    counting = ColdStore(store)
    assert dataset_ids("cube", counting) == {"seed", "e"}
    assert dict(counting.counts) == {"list": 1}
    assert counting.keys("list") == ["cube++"]


def test_other_keys_under_the_prefix_are_passed_over(store):
    for key in ("cube++", "cube++.foo", "cube++x.foo", "cube++x/table/_common_metadata", "cube.by-dataset-metadata.json", "cube_2++s.by-dataset-metadata.json"):
        if key != "cube++":
            store.put(key, b"{")
    store.put("cube++packed.by-dataset-metadata.msgpack.zstd", b"")
    assert dataset_ids("cube", store) == {"seed", "e", "packed"}
    assert dataset_ids("cub", store) == set()
    assert list_cube_prefixes(store) == ["cube", "cube_2"]


def test_a_plus_at_the_seam_belongs_to_the_longer_prefix(store):
    build_cube(SEED, CUBE.copy(uuid_prefix="cube+"), store)
    assert dataset_ids("cube", store) == {"seed", "e"}
    assert dataset_ids("cube+", store) == {"seed"}


def test_each_document_is_read_once_and_no_schema_file(store):
    counting = ColdStore(store)
    assert list(load_members("cube", counting)) == ["e", "seed"]
    assert dict(counting.counts) == {"list": 1, "get_versioned": 2}


@pytest.mark.parametrize(("only", "expected"), [(None, ["e", "seed"]), ("e", ["e"]), (["seed", "u"], ["seed"]), ({"u"}, []), ([], [])])
def test_a_filter_limits_what_is_loaded(store, only, expected):
    counting = ColdStore(store)
    assert list(load_members("cube", counting, only)) == expected
    assert counting.counts["get_versioned"] == len(expected)


def test_ids_are_text(store):
    with pytest.raises(InvalidType, match="1"):
        load_members("cube", store, [1])


def test_a_dataset_without_schema_is_an_error_and_skipped_only_on_demand(store, caplog):
    edit(store, "e", lambda document: None)
    store.delete("cube++e/table/_common_metadata")
    with pytest.raises(KeyNotFound, match="_common_metadata"):
        load_members("cube", store)
    with pytest.raises(KeyNotFound, match=r"cube\+\+e"):
        query_cube(CUBE, store)
    with caplog.at_level(logging.WARNING):
        assert list(load_members("cube", store, skip_broken=True)) == ["seed"]
    assert 'Ignore dataset "cube++e"' in caplog.text
    assert len(answers(store, datasets="seed")) == 4


def test_our_own_document_needs_no_schema_file(store):
    store.delete("cube++e/table/_common_metadata")
    assert [row["v2"] for row in answers(ColdStore(store))] == [None, None, 10, 10]


def test_json_wins_over_msgpack(store):
    key = "cube++e.by-dataset-metadata.json"
    document = parse_document(store.get(key), key)
    store.put("cube++e.by-dataset-metadata.msgpack.zstd", render_document(document, msgpack=True))
    assert load_members("cube", store)["e"].key == key
    store.delete(key)
    assert load_members("cube", store)["e"].key.endswith(".msgpack.zstd")
    assert [row["v2"] for row in answers(store)] == [None, None, 10, 10]


@pytest.mark.parametrize("only", [["seed", "u", "t"], ["u", "t"]])
def test_missing_datasets_are_reported_before_other_problems(store, only):
    with refused(store, InvalidInput, "t, u"):
        load_cube(CUBE, store, only)


@pytest.mark.parametrize("only", [[], "e"])
def test_a_filter_without_the_seed(store, only):
    with refused(store, InvalidInput, "seed", "missing"):
        load_cube(CUBE, store, only)


def test_a_filter_hides_broken_datasets(store):
    store.put("cube++broken.by-dataset-metadata.json", b"{")
    assert list(load_cube(CUBE, store, ["seed", "e"])) == ["e", "seed"]
    with pytest.raises(ValueError, match=r"cube\+\+broken"):
        load_cube(CUBE, store)


# --- the cube ---------------------------------------------------------------------------------------------------------


def recovered(store, prefix="cube"):
    return cube_of(prefix, load_members(prefix, store))


@pytest.mark.parametrize(
    "cube",
    [
        Cube(["x", "y"], ["p"], "other", index_columns=["i1", "i2"]),
        Cube(["y", "x"], ["p"], "other", seed_dataset="source"),
        Cube(["x", "y"], ["p"], "other", suppress_index_on=["y"]),
        Cube(["y"], ["x", "p"], "other", suppress_index_on=["y"], index_columns=["i1"]),
    ],
)
def test_a_cube_is_recovered_from_its_datasets(store, cube):
    seed = table(x=[1, 0], y=["b", "a"], p=[1, 0], i1=[20, 10])
    build_cube({cube.seed_dataset: seed}, cube, store)
    extend_cube({"e": table(y=["a"], i2=["one"])}, cube, store, partition_on={"e": []})
    assert recovered(store, "other") == cube


def test_index_columns_that_nobody_has_are_forgotten(store):
    cube = CUBE.copy(uuid_prefix="other", index_columns=["i1", "nowhere"])
    build_cube(SEED, cube, store)
    assert recovered(store, "other") == cube.copy(index_columns=["i1"])


def test_a_cube_without_a_seed(store):
    edit_metadata(store, "seed", ktk_cube_is_seed=False)
    with pytest.raises(InvalidInput, match='seed dataset for cube "cube"'):
        recovered(store)
    with pytest.raises(InvalidInput, match="nothing"):
        recovered(store, "nothing")


def test_a_cube_with_two_seeds(store):
    edit_metadata(store, "e", ktk_cube_is_seed=True)
    with pytest.raises(InvalidInput, match="e, seed"):
        recovered(store)


def test_a_cube_without_dimensions(store):
    edit_metadata(store, "seed", ktk_cube_dimension_columns=None)
    with pytest.raises(InvalidInput, match="dimension columns"):
        recovered(store)


def test_metadata_without_suppression_suppresses_nothing(store):
    edit_metadata(store, "seed", ktk_cube_suppress_index_on=None)
    assert recovered(store) == CUBE


def test_metadata_of_the_predecessor_is_understood(store):
    names = {"ktk_cube_is_seed": None, "ktk_cube_dimension_columns": None, "ktk_cube_partition_columns": None, "ktk_cube_suppress_index_on": None}
    edit_metadata(store, "seed", **names, klee_is_seed=True, klee_dimension_columns=["x", "y"], klee_partition_columns=["p"])
    edit_metadata(store, "e", **names, klee_is_seed=False)
    assert recovered(store) == CUBE


@pytest.mark.parametrize(
    ("keys", "error", "words"),
    [
        (["p"], InvalidInput, r"single partition key .p."),
        ([], InvalidInput, "no partition keys"),
        (["p", "q"], Unsupported, "'q'"),
        (["p", "q", "KLEE_TS"], None, ""),
    ],
)
def test_partition_columns_of_old_cubes_are_the_keys_but_the_last(keys, error, words):
    store = MemoryStore()
    data = table(x=[1], **{key: [1] for key in keys}, v1=[1])
    build_cube({"source": table(x=[1], zz=[1], v0=[1]), "seed": data}, Cube(["x"], ["zz"], "cube", "source"), store, partition_on={"seed": keys})
    edit_metadata(store, "source", ktk_cube_is_seed=False)
    edit_metadata(store, "seed", ktk_cube_is_seed=True, ktk_cube_partition_columns=None)
    if error is None:
        assert recovered(store).partition_columns == ("p", "q")
    else:
        with pytest.raises(error, match=words):
            recovered(store)


def test_a_cube_of_the_predecessor_is_queried_without_its_time_stamp():
    store = MemoryStore()
    build_cube(pa.table({"x": [1], "p": [1], "KLEE_TS": ["t"], "v1": [1]}), Cube(["x"], ["p", "KLEE_TS"], "cube"), store)
    edit_metadata(store, "seed", ktk_cube_partition_columns=None)
    assert recovered(store) == Cube(["x"], ["p"], "cube")
    assert answers(store, recovered(store)) == [{"p": 1, "v1": 1, "x": 1}]
    assert len(query_cube(recovered(store), store, C("p") == 1)) == 1


def test_recovering_changes_nothing(store):
    before = contents(store)
    recovered(store)
    assert contents(store) == before
    assert load_members("cube", store)["e"].schema.names == sorted(ENRICH.column_names)


def test_cubes_are_listed_by_their_prefixes_also_where_one_ends_in_a_plus():
    store = MemoryStore()
    for prefix in ("a+", "ab", "c"):
        build_cube(pa.table({"x": [1], "p": [1]}), Cube(["x"], ["p"], prefix), store)
    assert list_cubes(store) == ["a+", "ab", "c"]

"""Which datasets belong to a cube, and how the cube is recovered from their metadata."""

from __future__ import annotations

import datetime
import json
import logging
import re

import pyarrow as pa
import pytest

from kartothek_cube import options
from kartothek_cube.api.consistency import check_datasets, get_cube_payload
from kartothek_cube.api.cube import (
    C,
    Cube,
    append_to_cube,
    build_cube,
    cleanup_cube,
    collect_stats,
    count_cube,
    describe_cube,
    extend_cube,
    list_cubes,
    open_cube,
    plan_cube_query,
    query_cube,
    remove_partitions,
    update_cube,
)
from kartothek_cube.api.dataset import build_dataset_indices
from kartothek_cube.api.discover import (
    discover_cube,
    discover_datasets,
    discover_datasets_unchecked,
    discover_ktk_cube_dataset_ids,
)
from kartothek_cube.core.metadata.commit_log import COMMITS_KEY, SCHEMA_KEY
from kartothek_cube.core.metadata.document import parse_document, render_document
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.cube.members import cube_of, dataset_ids, list_cube_prefixes, load_cube, load_members, load_named
from kartothek_cube.errors import AlreadyExists, CorruptDocument, InvalidInput, InvalidType, KeyNotFound, Unsupported
from tests.support.cubes import CUBE, ENRICH, SEED, ColdStore, answers, build_two, contents, refused, table


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


# --- membership -----------------------------------------------------------------------------------


def test_ids_are_found_with_one_listing_that_reads_nothing(store):
    counting = ColdStore(store)
    assert dataset_ids("cube", counting) == {"seed", "e"}
    assert dict(counting.counts) == {"list": 1}
    assert counting.touched("list") == ["cube++"]


def test_other_keys_under_the_prefix_are_passed_over(store):
    for key in (
        "cube++",
        "cube++.foo",
        "cube++x.foo",
        "cube++x/table/_common_metadata",
        "cube.by-dataset-metadata.json",
        "cube_2++s.by-dataset-metadata.json",
    ):
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


def test_each_document_is_read_once_and_no_schema_file(store):  # cube 220
    counting = ColdStore(store)
    assert list(load_members("cube", counting)) == ["e", "seed"]
    assert dict(counting.counts) == {"list": 1, "get_versioned": 2}


@pytest.mark.parametrize(
    ("only", "expected"), [(None, ["e", "seed"]), ("e", ["e"]), (["seed", "u"], ["seed"]), ({"u"}, []), ([], [])]
)
def test_a_filter_limits_what_is_loaded(store, only, expected):
    counting = ColdStore(store)
    assert list(load_members("cube", counting, only)) == expected
    assert counting.counts["get_versioned"] == len(expected)


def test_ids_are_text(store):
    with pytest.raises(InvalidType, match="1"):
        load_members("cube", store, [1])


def test_a_dataset_without_schema_is_an_error_and_skipped_only_on_demand(store, caplog):  # cube 219
    edit(store, "e", lambda document: None)
    store.delete("cube++e/table/_common_metadata")
    with pytest.raises(KeyNotFound, match="_common_metadata"):
        load_members("cube", store)
    with pytest.raises(KeyNotFound, match=r"cube\+\+e"):
        query_cube(CUBE, store)
    with caplog.at_level(logging.WARNING):
        assert list(load_members("cube", store, skip_broken=True)) == ["seed"]
    assert 'Ignore dataset "cube++e"' in "\n".join(caplog.messages)
    assert len(answers(store, datasets="seed")) == 4


def test_a_dataset_that_is_gone_is_not_incomplete(store, caplog):
    with caplog.at_level(logging.WARNING):
        assert list(load_named("cube", store, ["gone", "seed"], skip_broken=True)) == ["seed"]
    assert not caplog.messages


def test_our_own_document_needs_no_schema_file(store):  # cube 219
    store.delete("cube++e/table/_common_metadata")
    assert [row["v2"] for row in answers(ColdStore(store))] == [None, None, 10, 10]


def test_json_wins_over_msgpack(store):  # cube 221
    key = "cube++e.by-dataset-metadata.json"
    document = parse_document(store.get(key), key)
    store.put("cube++e.by-dataset-metadata.msgpack.zstd", render_document(document, msgpack=True))
    assert load_members("cube", store)["e"].key == key
    store.delete(key)
    assert load_members("cube", store)["e"].key.endswith(".msgpack.zstd")
    assert [row["v2"] for row in answers(store)] == [None, None, 10, 10]


@pytest.mark.parametrize("only", [["seed", "u", "t"], ["u", "t"]])
def test_missing_datasets_are_reported_before_other_problems(store, only):  # cube 223
    with refused(store, InvalidInput, "t, u"):
        load_cube(CUBE, store, only)


@pytest.mark.parametrize("only", [[], "e"])
def test_a_filter_without_the_seed(store, only):
    with refused(store, InvalidInput, "seed", "missing"):
        load_cube(CUBE, store, only)


def test_a_filter_hides_broken_datasets(store):  # cube 222
    store.put("cube++broken.by-dataset-metadata.json", b"{")
    assert list(load_cube(CUBE, store, ["seed", "e"])) == ["e", "seed"]
    with pytest.raises(ValueError, match=r"cube\+\+broken"):
        load_cube(CUBE, store)


# --- broken datasets ------------------------------------------------------------------------------

DOCUMENT = "cube++e.by-dataset-metadata.json"


def without_schema_file(store):
    edit(store, "e", lambda document: None)
    store.delete("cube++e/table/_common_metadata")


def with_unreadable_schema_file(store):
    edit(store, "e", lambda document: None)
    store.put("cube++e/table/_common_metadata", b"nothing")


BREAKAGES = {
    "no schema file": (without_schema_file, KeyNotFound, "cube++e/table/_common_metadata"),
    "unreadable schema file": (with_unreadable_schema_file, CorruptDocument, "cube++e/table/_common_metadata"),
    "half a document": (lambda store: store.put(DOCUMENT, b"{"), CorruptDocument, DOCUMENT),
    "no uuid": (lambda store: edit(store, "e", lambda d: d.pop("dataset_uuid")), CorruptDocument, "dataset_uuid"),
    "no version": (
        lambda store: edit(store, "e", lambda d: d.pop("dataset_metadata_version")),
        CorruptDocument,
        "dataset_metadata_version",
    ),
    "old version": (
        lambda store: edit(store, "e", lambda d: d.update(dataset_metadata_version=3)),
        Unsupported,
        "version 3",
    ),
    "partitions that are none": (
        lambda store: edit(store, "e", lambda d: d.update(partitions=[1])),
        CorruptDocument,
        "partitions",
    ),
}
VERBS = {
    "query": lambda store: query_cube(CUBE, store),
    "query of other columns": lambda store: query_cube(CUBE, store, payload_columns=["v1"]),
    "plan": lambda store: plan_cube_query(CUBE, store),
    "count": lambda store: count_cube(CUBE, store),
    "discover datasets": lambda store: discover_datasets(CUBE, store),
    "discover cube": lambda store: discover_cube("cube", store),
    "open": lambda store: open_cube("cube", store),
    "describe": lambda store: describe_cube("cube", store),
    "stats": lambda store: collect_stats(CUBE, store),
    "append": lambda store: append_to_cube(SEED, CUBE, store),
    "extend": lambda store: extend_cube({"f": table(x=[1], v3=[1])}, CUBE, store, partition_on={"f": []}),
    "update": lambda store: update_cube(SEED, CUBE, store, C("p") == 0),
    "remove": lambda store: remove_partitions(CUBE, store, C("p") == 0, ["seed"]),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("name", BREAKAGES)
def test_a_broken_dataset_ends_every_verb_with_its_name_and_the_reason(store, name, verb):  # cube 219
    damage, error, reason = BREAKAGES[name]
    damage(store)
    with refused(store, error, "cube++e", reason):
        VERBS[verb](store)


@pytest.mark.parametrize("name", BREAKAGES)
def test_a_cube_with_a_broken_dataset_is_not_cleaned(store, name):  # cube 218
    damage, _, reason = BREAKAGES[name]
    damage(store)
    with refused(store, CorruptDocument, "cube++e", reason, "garbage"):
        cleanup_cube(CUBE, store, options=options(grace=datetime.timedelta(0), retain=datetime.timedelta(0)))


@pytest.mark.parametrize("name", BREAKAGES)
def test_a_broken_dataset_is_not_replaced_by_a_build(store, name):
    damage, error, reason = BREAKAGES[name]
    damage(store)
    with refused(
        store,
        AlreadyExists if error is KeyNotFound else error,
        "cube++e",
        "schema file" if error is KeyNotFound else reason,
    ):
        build_cube({"seed": SEED, "e": ENRICH}, CUBE, store, overwrite=True, partition_on={"e": []})


@pytest.mark.parametrize("name", BREAKAGES)
def test_the_others_can_be_used_by_name(store, name):  # cube 222
    BREAKAGES[name][0](store)
    assert len(answers(store, datasets=["seed"])) == 4
    assert list(discover_datasets(CUBE, store, ["seed"])) == ["seed"]
    assert discover_cube("cube", store, ["seed"])[0] == CUBE.copy(index_columns=["i1"])
    assert list(collect_stats(CUBE, store, ["seed"])) == ["seed"]
    assert discover_ktk_cube_dataset_ids("cube", store) == {"seed", "e"}


@pytest.mark.parametrize("name", BREAKAGES)
def test_unchecked_discovery_leaves_out_only_what_is_incomplete(store, caplog, name):  # cube 219
    damage, error, reason = BREAKAGES[name]
    damage(store)
    if error is not KeyNotFound:
        with pytest.raises(error, match=re.escape(reason)):
            discover_datasets_unchecked("cube", store)
        return
    with caplog.at_level(logging.WARNING):
        assert list(discover_datasets_unchecked("cube", store)) == ["seed"]
    assert 'Ignore dataset "cube++e"' in "\n".join(caplog.messages)
    assert reason in "\n".join(caplog.messages)


def test_a_broken_seed_is_not_said_to_be_missing(store):
    edit(store, "seed", lambda document: None)
    store.delete("cube++seed/table/_common_metadata")
    for verb in (query_cube, discover_datasets):
        with pytest.raises(KeyNotFound, match=r"schema file.*cube\+\+seed"):
            verb(CUBE, store)


# --- datasets that fit together -------------------------------------------------------------------


def test_datasets_are_discovered_with_what_they_have(store):
    found = discover_datasets(CUBE, store)
    assert {name: sorted(dataset.schema.names) for name, dataset in found.items()} == {
        "e": ["i2", "v2", "x"],
        "seed": ["i1", "p", "v1", "x", "y"],
    }
    assert check_datasets(found, CUBE) == {name: dataset.load_partition_indices() for name, dataset in found.items()}
    assert get_cube_payload(found, CUBE) == {"i1", "i2", "v1", "v2"}


def test_emptied_datasets_pass_all_checks(store):  # cube 231
    remove_partitions(CUBE, store)
    found = discover_datasets(CUBE, store)
    assert [len(dataset.partitions) for dataset in found.values()] == [0, 0]
    assert discover_cube("cube", store)[0] == CUBE


def test_a_dataset_without_its_index_is_named_with_the_column_and_what_is_missing(store):  # cube 227, 228
    edit(store, "e", lambda document: document["indices"].pop("i2"))
    with pytest.raises(InvalidInput, match=r'ExplicitSecondaryIndex or PartitionIndex "i2" is missing in dataset "e"'):
        discover_datasets(CUBE, store)
    edit(store, "seed", lambda document: document["indices"].pop("y"))
    with pytest.raises(InvalidInput, match=r'ExplicitSecondaryIndex "y" is missing in dataset "seed"'):
        discover_datasets(CUBE, store, ["seed"])


# --- the cube -------------------------------------------------------------------------------------


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
def test_a_cube_is_recovered_from_its_datasets(store, cube):  # cube 232
    seed = table(x=[1, 0], y=["b", "a"], p=[1, 0], i1=[20, 10])
    build_cube({cube.seed_dataset: seed}, cube, store)
    extend_cube({"e": table(y=["a"], i2=["one"])}, cube, store, partition_on={"e": []})
    assert recovered(store, "other") == cube


def test_index_columns_that_nobody_has_are_forgotten(store):
    cube = CUBE.copy(uuid_prefix="other", index_columns=["i1", "nowhere"])
    build_cube(SEED, cube, store)
    assert recovered(store, "other") == cube.copy(index_columns=["i1"])


def test_a_cube_without_a_seed(store):  # cube 233
    edit_metadata(store, "seed", ktk_cube_is_seed=False)
    with pytest.raises(InvalidInput, match='seed dataset for cube "cube"'):
        recovered(store)
    with pytest.raises(InvalidInput, match="nothing"):
        recovered(store, "nothing")


def test_a_cube_with_two_seeds(store):  # cube 233
    edit_metadata(store, "e", ktk_cube_is_seed=True)
    with pytest.raises(InvalidInput, match="e, seed"):
        recovered(store)


def test_a_cube_without_dimensions(store):
    edit_metadata(store, "seed", ktk_cube_dimension_columns=None)
    with pytest.raises(InvalidInput, match="dimension columns"):
        recovered(store)


def test_metadata_without_suppression_suppresses_nothing(store):  # cube 234
    edit_metadata(store, "seed", ktk_cube_suppress_index_on=None)
    assert recovered(store) == CUBE


def test_metadata_of_the_predecessor_is_understood(store):  # cube 236
    names = {
        "ktk_cube_is_seed": None,
        "ktk_cube_dimension_columns": None,
        "ktk_cube_partition_columns": None,
        "ktk_cube_suppress_index_on": None,
    }
    edit_metadata(
        store, "seed", **names, klee_is_seed=True, klee_dimension_columns=["x", "y"], klee_partition_columns=["p"]
    )
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
def test_partition_columns_of_old_cubes_are_the_keys_but_the_last(keys, error, words):  # cube 235, 237
    store = MemoryStore()
    data = table(x=[1], **{key: [1] for key in keys}, v1=[1])
    build_cube(
        {"source": table(x=[1], zz=[1], v0=[1]), "seed": data},
        Cube(["x"], ["zz"], "cube", "source"),
        store,
        partition_on={"seed": keys},
    )
    edit_metadata(store, "source", ktk_cube_is_seed=False)
    edit_metadata(store, "seed", ktk_cube_is_seed=True, ktk_cube_partition_columns=None)
    if error is None:
        assert recovered(store).partition_columns == ("p", "q")
    else:
        with pytest.raises(error, match=words):
            recovered(store)


def test_a_cube_of_the_predecessor_is_queried_without_its_time_stamp():
    store = MemoryStore()
    seed = table(x=[1], p=[1], KLEE_TS=["t"], v1=[1])
    build_cube(
        {"source": table(x=[1], zz=[1], v0=[1]), "seed": seed},
        Cube(["x"], ["zz"], "cube", "source"),
        store,
        partition_on={"seed": ["p", "KLEE_TS"]},
    )
    build_dataset_indices(store, "cube++seed", ["x"])
    store.delete("cube++source.by-dataset-metadata.json")
    edit_metadata(store, "seed", ktk_cube_is_seed=True, ktk_cube_partition_columns=None)
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


# --- partition indices ----------------------------------------------------------------------------


def test_a_discovered_cube_has_its_partition_indices(store):
    found = discover_cube("cube", store)[1]
    assert {i: dataset.primary_indices_loaded for i, dataset in found.items()} == {
        "e": False,
        "seed": True,
    }  # e has no partition columns
    assert sorted(found["seed"].indices["p"].observed_values()) == [0, 1]
    assert not found["seed"].indices["i1"].loaded


def test_checked_datasets_have_their_partition_indices_and_those_given_stay_as_they_were(store):
    given = discover_datasets(CUBE, store)
    found = check_datasets(given, CUBE)
    assert found["seed"].primary_indices_loaded
    assert found["seed"].indices["p"].eval_operator("==", 0) == {
        label for label in found["seed"].partitions if label.startswith("p=0/")
    }
    assert not given["seed"].primary_indices_loaded


def test_a_cube_without_partitions_has_empty_partition_indices(store):
    remove_partitions(CUBE, store)
    assert discover_cube("cube", store)[1]["seed"].indices["p"].observed_values().tolist() == []

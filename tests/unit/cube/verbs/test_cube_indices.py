"""`build_cube_index` and `drop_cube_index`: indices come and go, and nothing else does."""

from __future__ import annotations

import json
from hashlib import sha256

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kartothek_cube import options
from kartothek_cube.api.cube import (
    C,
    Cube,
    append_to_cube,
    build_cube,
    build_cube_index,
    drop_cube_index,
    extend_cube,
    iter_cube,
    open_cube,
    plan_cube_query,
    query_cube_arrow,
)
from kartothek_cube.api.dataset import convert_metadata_format
from kartothek_cube.api.discover import discover_datasets
from kartothek_cube.core.metadata.naming import document_key
from kartothek_cube.core.stores.contract import ReadOnlyView
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.cube.members import load_members
from kartothek_cube.errors import (
    CommitConflict,
    InvalidInput,
    InvalidRequest,
    InvalidType,
    ReadOnlyStore,
    UnknownColumn,
    Unsupported,
)
from kartothek_cube.testing.stores import FaultyStore, InjectedFault
from kartothek_cube.testing.strategies import cubes_with_data, queries
from tests.support.cube_model import answer, arguments_of, assert_same_groups, written
from tests.support.cubes import (
    CUBE,
    SEED,
    ColdStore,
    answers,
    build_two,
    contents,
    index_of,
    refused,
    snapshot,
    table,
    with_column,
)

NEW = table(x=[0, 5], y=["a", "c"], p=[0, 2], i1=[10, 30], v1=[9.5, 4.5])


@pytest.fixture
def store():
    store = MemoryStore()
    build_two(store)
    return store


def labels(store, dataset="seed"):
    return snapshot(store, dataset).partitions.labels.to_pylist()


# --- building -------------------------------------------------------------------------------------


def test_the_index_is_the_one_that_a_build_makes(store):
    bare = MemoryStore()
    build_cube(SEED, CUBE.copy(index_columns=[], suppress_index_on=["x", "y"]), bare)
    built = build_cube_index(CUBE.copy(index_columns=[], suppress_index_on=["x", "y"]), bare, ["i1", "x"])
    assert list(built) == ["seed"]
    assert set(built["seed"].indices) == {"i1", "x"}
    for column in ("i1", "x"):
        found = index_of(bare, column)
        assert {value: {label.partition("/")[0] for label in where} for value, where in found.items()} == {
            value: {label.partition("/")[0] for label in where} for value, where in index_of(store, column).items()
        }


def test_each_dataset_that_has_the_column_gets_one(store):
    assert sorted(build_cube_index(CUBE, store, ["v1", "v2"])) == ["e", "seed"]
    assert snapshot(store).secondary_columns == {"i1", "x", "y", "v1"}
    assert snapshot(store, "e").secondary_columns == {"i2", "v2"}
    assert build_cube_index(CUBE, store, "x", "e").keys() == {"e"}
    assert snapshot(store, "e").secondary_columns == {"i2", "v2", "x"}
    assert build_cube_index(CUBE, store, "x").keys() == {"e", "seed"}


def test_where_the_column_is_a_partition_key_its_paths_are_an_index(store):
    extend_cube({"f": table(x=[0, 1], v3=[1, 2])}, CUBE, store, partition_on={"f": ["x"]})
    assert build_cube_index(CUBE, store, "x").keys() == {"e", "seed"}


def test_the_opened_cube_has_the_index_and_queries_group_by_it(store):  # cube 183
    build_cube_index(CUBE, store, "v2")
    assert open_cube("cube", store) == CUBE.copy(index_columns=["i1", "i2", "v2"])
    assert [key for key, _ in iter_cube(CUBE, store, partition_by="v2")] == [{"v2": 10}]
    assert plan_cube_query(CUBE, store, C("v2") == 11).file_counts()["e"] == 0


def test_a_cube_that_demands_the_index_already_will_do(store):
    cube = CUBE.copy(index_columns=["i1", "i2", "v1", "v2"])
    with pytest.raises(InvalidInput, match="v2"):
        answers(store, cube)
    build_cube_index(cube, store, "v2")
    build_cube_index(cube, store, "v1")
    assert answers(store, cube) == answers(store)


def test_metadata_data_and_other_indices_stay(store):
    append_to_cube(NEW, CUBE, store, metadata={"seed": {"owner": "me"}})
    before, files = discover_datasets(CUBE, store), contents(store)
    build_cube_index(CUBE, store, ["v1", "v2"])
    after = discover_datasets(CUBE, store)
    assert {i: d.metadata for i, d in after.items()} == {i: d.metadata for i, d in before.items()}
    assert after["seed"].metadata["owner"] == "me"
    documents = {document_key(f"cube++{i}") for i in after}
    assert {key for key, data in contents(store).items() if key in files and data != files[key]} == documents
    assert index_of(store, "i1").keys() == {10, 20, 30}


def test_later_writes_maintain_the_index(store):
    build_cube_index(CUBE, store, "v1")
    append_to_cube(NEW, CUBE, store)
    assert index_of(store, "v1").keys() == {0.5, 1.5, 3.5, 4.5, 9.5}
    assert [row["x"] for row in answers(store, conditions=C("v1") == 4.5)] == [5]


def test_nulls_are_in_no_index_and_still_found(store):
    build_cube_index(CUBE, store, "v1")
    assert None not in index_of(store, "v1")
    assert [row["v1"] for row in answers(store)] == answers_of_v1(store)
    assert len(answers(store, conditions=C("v1") != 0.5)) == len(answers(store)) - 1


def answers_of_v1(store):
    return query_cube_arrow(CUBE, store, payload_columns=["v1"]).column("v1").to_pylist()


def test_an_index_that_is_there_is_made_anew(store):
    before = index_of(store, "i1")
    key = snapshot(store).document.indices["i1"]
    build_cube_index(CUBE, store, "i1")
    assert index_of(store, "i1") == before
    assert snapshot(store).document.indices["i1"] != key


def test_an_index_on_a_suppressed_dimension_is_no_longer_suppressed():
    store, cube = MemoryStore(), CUBE.copy(suppress_index_on=["x", "y"])
    build_cube(SEED, cube, store)
    build_cube_index(cube, store, "y")
    assert open_cube("cube", store).suppress_index_on == {"x"}
    assert open_cube("cube", store).copy(index_columns=CUBE.index_columns, suppress_index_on=["x", "y"]) == cube


def test_other_encodings_and_emptied_datasets(store):
    convert_metadata_format("cube++e", store, "msgpack")
    build_cube_index(CUBE, store, "v2")
    assert not store.contains(document_key("cube++e"))
    assert index_of(store, "v2", "e").keys() == {10, 70}


@given(st.data())
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_with_and_without_indices_queries_answer_as_the_model_does(data):
    case = data.draw(cubes_with_data())
    store, model = written(case), case.model()
    members = discover_datasets(case.cube, store)
    able = sorted(
        {c for d in members.values() for c in d.snapshot.schema.names if c not in d.partition_keys}
        - set(case.cube.partition_columns)
    )
    columns = data.draw(st.lists(st.sampled_from(able), min_size=1, unique=True))
    build_cube_index(case.cube, store, columns)
    drop = data.draw(st.lists(st.sampled_from(columns), unique=True))
    if drop:
        drop_cube_index(case.cube, store, drop)
    cube = open_cube(case.cube.uuid_prefix, store)
    assert not cube.index_columns & set(drop)
    query = arguments_of(data.draw(queries(case)))
    query["partition_by"] = None
    expected = answer(model, query)
    if expected is not None:
        table = query_cube_arrow(cube, store, **{k: v for k, v in query.items() if k != "partition_by"})
        assert_same_groups(expected, [table.to_pylist()] if table.num_rows else [])


# --- dropping -------------------------------------------------------------------------------------


def test_a_dropped_index_is_gone_and_the_rest_stays(store):
    append_to_cube(NEW, CUBE, store, metadata={"seed": {"owner": "me"}})
    before, files, rows = discover_datasets(CUBE, store), contents(store), answers(store)
    assert list(drop_cube_index(CUBE, store, "i1")) == ["seed"]
    assert snapshot(store).secondary_columns == {"x", "y"}
    assert {key for key, data in contents(store).items() if data != files.get(key) and "/_history/" not in key} == {
        document_key("cube++seed")
    }
    cube = open_cube("cube", store)
    assert cube == CUBE.copy(index_columns=["i2"])
    assert discover_datasets(cube, store)["seed"].metadata == before["seed"].metadata
    assert answers(store, cube) == rows
    with pytest.raises(InvalidInput, match="i1"):
        answers(store, CUBE)


def test_a_dropped_dimension_index_is_suppressed_from_then_on(store):
    drop_cube_index(CUBE, store, ["x"])
    cube = open_cube("cube", store)
    assert cube == CUBE.copy(suppress_index_on=["x"])
    append_to_cube(NEW, cube, store)
    assert snapshot(store).secondary_columns == {"i1", "y"}
    assert open_cube("cube", store) == cube
    build_cube_index(cube, store, "x")
    assert open_cube("cube", store) == CUBE
    assert index_of(store, "x").keys() == {0, 1, 5}


def test_the_last_index_can_go(store):
    drop_cube_index(CUBE, store, ["i2"])
    assert snapshot(store, "e").secondary_columns == set()
    assert "indices" not in json.loads(store.get(document_key("cube++e")))


def test_an_index_of_one_dataset_can_go(store):
    build_cube_index(CUBE, store, "x")
    assert list(drop_cube_index(CUBE, store, "x", "e")) == ["e"]
    assert open_cube("cube", store) == CUBE
    build_cube_index(CUBE, store, "x")
    assert sorted(drop_cube_index(CUBE, store, "x")) == ["e", "seed"]


def test_an_index_comes_back_as_the_data_are_now(store):
    answers(store, conditions=C("i1") == 10)  # the index is in memory
    drop_cube_index(CUBE, store, "i1")
    cube = open_cube("cube", store)
    append_to_cube(NEW, cube, store)
    assert labels(store)[2:]
    build_cube_index(cube, store, "i1")
    assert index_of(store, "i1").keys() == {10, 20, 30}
    assert len(answers(store, conditions=C("i1") == 30)) == 1


# --- refusals -------------------------------------------------------------------------------------

VERBS = pytest.mark.parametrize("verb", [build_cube_index, drop_cube_index])


@VERBS
def test_what_cannot_be_is_refused(store, verb):
    with refused(store, UnknownColumn, "'zz'", "v1"):
        verb(CUBE, store, ["i1", "zz"])
    with refused(store, UnknownColumn, "'v1'"):
        verb(CUBE, store, "v1", ["e"])
    with refused(store, InvalidRequest, "'p'", "partition key"):
        verb(CUBE, store, ["p", "i1"])
    with refused(store, InvalidInput, "nope", "e, seed"):
        verb(CUBE, store, "i1", ["nope"])
    with refused(store, InvalidInput, "at least one"):
        verb(CUBE, store, [])
    with refused(store, InvalidInput, "seed"):
        verb(CUBE.copy(uuid_prefix="nope"), store, "i1")
    with refused(store, InvalidType, "open_cube"):
        verb(7, store, "i1")
    with refused(store, ReadOnlyStore, "cannot be written to"):
        verb(CUBE, ReadOnlyView(store), "i1")


def test_an_index_that_is_not_there_cannot_be_dropped(store):
    with refused(store, InvalidRequest, "'v1'", "i1, i2, x, y"):
        drop_cube_index(CUBE, store, ["i1", "v1"])


def test_types_without_index_are_refused_before_anything_is_written():
    store = MemoryStore()
    lists = with_column(SEED, "v3", pa.array([[1], [2], [3], [4]]))
    build_cube({"seed": lists, "e": table(x=[1], v4=[1])}, CUBE, store, partition_on={"e": []})
    with refused(store, Unsupported, "v3"):
        build_cube_index(CUBE, store, ["v3", "v4"])


# --- two writers, and failures --------------------------------------------------------------------


@VERBS
@pytest.mark.parametrize("moment", ["changed", "put_if"])
def test_an_append_that_comes_in_between_is_in_the_index(store, verb, moment):
    def fail(call):
        if (call.operation, call.key) == (moment, document_key("cube++seed")) and len(labels(store)) == 2:
            append_to_cube(NEW, CUBE, store)

    verb(CUBE, ColdStore(FaultyStore(store, fail)), "i1")
    assert len(labels(store)) == 4
    assert ("i1" in snapshot(store).secondary_columns) == (verb is build_cube_index)
    if verb is build_cube_index:
        assert index_of(store, "i1").keys() == {10, 20, 30}


def test_an_index_is_not_built_more_often_than_commit_retries_says(store):
    def fail(call):
        if (call.operation, call.key) == ("put_if", document_key("cube++seed")):
            append_to_cube(NEW, CUBE, store)

    with pytest.raises(CommitConflict, match=r"cube\+\+seed"):
        build_cube_index(CUBE, ColdStore(FaultyStore(store, fail)), "i1", options=options(commit_retries=1))


@VERBS
def test_a_failure_at_the_last_dataset_changes_none(store, verb):
    build_cube_index(CUBE, store, "x")
    before, tries = indexed(store), iter(range(100))
    faulty = FaultyStore(
        store,
        lambda call: (
            "before"
            if (call.operation, call.key) == ("put_if", document_key("cube++seed")) and next(tries) < 3
            else None
        ),
    )
    with pytest.raises(InjectedFault):
        verb(CUBE, ColdStore(faulty), "x")
    assert indexed(store) == before
    assert len(answers(store)) == 4
    assert max(verb(CUBE, store, "x")) == "seed"


def indexed(store):
    return {name: snapshot.secondary_columns for name, snapshot in load_members("cube", ColdStore(store)).items()}


def test_only_the_column_is_read(store):
    class Ranges(ColdStore):
        asked = 0

        def ranges(self, key, spans):
            self.asked += sum(stop - start for start, stop in spans)
            return super().ranges(key, spans)

    large, cube = MemoryStore(), Cube(["x"], ["p"], "cube")
    n = 20_000
    build_cube(
        table(
            x=list(range(n)),
            p=[0] * n,
            v1=[x % 7 for x in range(n)],
            v2=[sha256(b"%d" % x).hexdigest() for x in range(n)],
        ),
        cube,
        large,
    )
    counting = Ranges(large)
    build_cube_index(cube, counting, "v1")
    (file,) = snapshot(large).files.to_pylist()
    assert 0 < counting.asked < len(large.get(file)) / 4

"""Planning: which files it keeps, what it asks of the store, and what a plan is as a value."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pandas as pd
import pyarrow as pa
import pytest

from kartothek_cube.api.cube import (
    C,
    Cube,
    append_to_cube,
    build_cube,
    extend_cube,
    load_group,
    plan_cube_query,
    query_cube,
    query_cube_arrow,
)
from kartothek_cube.core.arrow.pandas import to_frame
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import KeyNotFound, Unsupported
from tests.support.cubes import CUBE, ENRICH, SEED, ColdStore, answers, build_two, table, with_column

# Modules that render HTML and SVG.
SHOWING = {"markup", "render", "picture", "drawing", "html", "plan_svg", "plan_chart"}
# Ten partitions of two cells; i1 says the tenth, i2 of the enrichment the parity.
WIDE = Cube(["x"], ["p"], "wide", index_columns=["i1", "i2"])


@pytest.fixture
def store():
    store = MemoryStore()
    seed = table(x=list(range(20)), p=[x // 2 for x in range(20)], i1=[x % 3 for x in range(20)], v1=list(range(20)))
    build_cube(seed, WIDE, store)
    parity = table(
        x=list(range(20)),
        p=[x // 2 for x in range(20)],
        i2=["odd" if x // 2 % 2 else "even" for x in range(20)],
        v2=list(range(20)),
    )
    extend_cube({"e": parity, "f": table(x=[3, 4], v3=[1, 2])}, WIDE, store, partition_on={"f": []})
    return store


def kept(store, conditions=None, **arguments):
    return plan_cube_query(WIDE, store, conditions, **arguments).file_counts()


# --- which files ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("condition", "counts"),
    [
        (None, {"seed": 10, "e": 10, "f": 1}),
        (C("p") == 3, {"seed": 1, "e": 1, "f": 1}),
        (C("p").in_interval(3, 5), {"seed": 2, "e": 2, "f": 1}),
        (C("x") == 7, {"seed": 1, "e": 1, "f": 0}),
        (C("i2") == "odd", {"seed": 5, "e": 5, "f": 1}),
        ((C("i2") == "odd") & (C("x") < 4), {"seed": 1, "e": 1, "f": 1}),
        ((C("i1") == 0) & (C("x") < 2), {"seed": 1, "e": 1, "f": 0}),
        (C("i2") == "neither", {"seed": 0, "e": 0, "f": 0}),
        # Of one partition no index is asked.
        ((C("p") == 0) & (C("i2") == "odd"), {"seed": 1, "e": 1, "f": 1}),
        # No index answers these, but statistics the first.
        (C("v1") == 3, {"seed": 1, "e": 1, "f": 1}),
        (C("i2") != "odd", {"seed": 10, "e": 10, "f": 1}),
    ],
    ids=str,
)
def test_files_that_conditions_exclude_are_not_planned(store, condition, counts):
    assert kept(store, condition) == counts


def test_datasets_that_give_nothing_are_not_planned(store):
    assert kept(store, payload_columns=["v1"]) == {"seed": 10}
    assert kept(store, C("v3") == 1, payload_columns=["v1"]) == {"seed": 10, "f": 1}


def test_groups_that_conditions_exclude_are_not_planned(store):
    assert [group.key for group in plan_cube_query(WIDE, store, C("i1") == 1, partition_by="i1").groups] == [{"i1": 1}]
    assert [group.key for group in plan_cube_query(WIDE, store, C("i2").isin(["odd"]), partition_by=["i2"]).groups] == [
        {"i2": "odd"}
    ]
    assert [group.key for group in plan_cube_query(WIDE, store, C("p") > 7).groups] == [{"p": 8}, {"p": 9}]
    assert [
        group.key for group in plan_cube_query(WIDE, store, (C("i1") != 1) & (C("x") < 3), partition_by="i1").groups
    ] == [{"i1": 0}, {"i1": 2}]


def test_a_group_has_only_its_own_files(store):
    for group in plan_cube_query(WIDE, store, partition_by="x", payload_columns=["v1"]).groups:
        assert [key.split("/")[2] for key in group.file_keys()] == [f"p={group.key['x'] // 2}"]


def test_a_condition_on_payload_drops_files_of_a_partition_only_together(store):
    append_to_cube(table(x=[0], p=[0], i1=[77], v1=[0]), WIDE, store)
    assert kept(store, C("i1") == 77, payload_columns=["v1"]) == {"seed": 2}
    # Both files may hold the cell, so the older one alone must not answer.
    assert kept(store, (C("x") == 0) & (C("i1") == 0), payload_columns=["v1"]) == {"seed": 2}
    # The dimension is the cell's address: the new file cannot hold cells of x=1.
    assert kept(store, C("x") == 1, payload_columns=["v1"]) == {"seed": 1}


@pytest.mark.parametrize("by", [None, "i1", "i2", "x", ["p", "i1"]])
@pytest.mark.parametrize("condition", [[], C("i1") > 0, C("v3") > 0])
def test_groups_loaded_alone_are_the_frames_of_the_query(store, by, condition):
    append_to_cube(table(x=[0, 40], p=[0, 0], i1=[2, 1], v1=[0, 0]), WIDE, store)
    plan = plan_cube_query(WIDE, store, condition, partition_by=by)
    loaded = [table for table in (load_group(plan.groups[i], store) for i in range(len(plan.groups))) if table.num_rows]
    assert all(table.schema.equals(plan.schema) for table in loaded)
    if by is None:
        merged = pa.concat_tables(loaded).sort_by([("x", "ascending"), ("p", "ascending")])
        assert merged.equals(query_cube_arrow(WIDE, store, condition))
        return
    frames = query_cube(WIDE, store, condition, partition_by=by)
    assert len(loaded) == len(frames)
    for table_, frame in zip(loaded, frames, strict=True):
        pd.testing.assert_frame_equal(to_frame(table_), frame)


def test_slices_are_the_same_rows_cut_by_partition(store):
    plan = plan_cube_query(WIDE, store, partition_by="i1")
    assert len(plan.slices) == 10
    assert sum(load_group(piece, store).num_rows for piece in plan.slices) == 20


# --- what is asked of the store -------------------------------------------------------------------


QUERIES = [
    ({}, 0),
    ({"conditions": C("v1") > 0}, 0),
    ({"conditions": C("p") == 1}, 0),
    ({"conditions": C("x") == 1}, 1),
    ({"conditions": (C("x") == 1) & (C("i1") > 0) & (C("i1") < 3)}, 2),
    # Of one partition the rows say it themselves; of two, or of all of them, the index does.
    ({"conditions": (C("p") == 0) & (C("x") == 1) & (C("i2") == "odd")}, 0),
    ({"conditions": (C("p") < 2) & (C("x") == 1)}, 1),
    ({"conditions": (C("p") == 0) & (C("x") == 1), "partition_by": "x"}, 1),
    ({"conditions": C("i2") == "odd", "partition_by": ["i1", "i2"]}, 2),
    ({"partition_by": "x"}, 1),
]


@pytest.mark.parametrize(("arguments", "indices"), QUERIES, ids=str)
@pytest.mark.parametrize("names", [["seed", "e"], ["seed", "e", "f"]])
def test_planning_reads_one_document_a_dataset_and_the_indices_it_needs(store, arguments, indices, names):
    counting = ColdStore(store)
    plan_cube_query(WIDE, counting, datasets=names, **arguments)
    expected = {"list": 1, "get_versioned": len(names), "tail": indices, "local_path": indices}
    assert dict(counting.counts) == {operation: n for operation, n in expected.items() if n}
    assert not [call.key for call in counting.calls if "/table/" in call.key]
    assert counting.touched("list") == ["wide++"]


@pytest.mark.parametrize(("arguments", "indices"), QUERIES, ids=str)
def test_a_second_query_asks_only_whether_something_changed(store, arguments, indices):
    counting = ColdStore(store)
    plan_cube_query(WIDE, counting, **arguments)
    counting.reset()
    plan_cube_query(WIDE, counting, **arguments)
    assert dict(counting.counts) == {"list": 1, "changed": 3}


def test_a_second_query_sees_what_was_appended(store):
    counting = ColdStore(store)
    assert len(answers(counting, WIDE)) == 20
    append_to_cube(table(x=[77], p=[0], i1=[0], v1=[0]), WIDE, store)
    assert len(answers(counting, WIDE)) == 21
    assert len(answers(counting, WIDE, conditions=C("x") == 77)) == 1


def data_reads(store):
    return [key for key in store.touched("tail") if "/table/" in key]


@pytest.mark.parametrize("by", [None, "i1", "i2", ["p", "i1"]])
def test_every_data_file_is_read_once(store, by):
    counting = ColdStore(store)
    query_cube(WIDE, counting, partition_by=by)
    assert sorted(data_reads(counting)) == sorted(
        key for keys in plan_cube_query(WIDE, store).files().values() for key in keys
    )


def test_files_that_are_not_planned_are_not_read(store):
    counting = ColdStore(store)
    query_cube(WIDE, counting, C("x") == 7, payload_columns=["v1"])
    assert len(data_reads(counting)) == 1


# --- a plan is a value ----------------------------------------------------------------------------


def test_a_plan_counts_files_reads_and_amplification(store):
    plan = plan_cube_query(WIDE, store, partition_by="i1", payload_columns=["v1"])
    assert plan.file_counts() == {"seed": 10}
    assert plan.reads() == 20
    assert plan.amplification() == 2.0
    assert [key.split("/")[2] for key in plan.files()["seed"]] == [f"p={p}" for p in range(10)]
    assert plan_cube_query(WIDE, store, C("p") == 99).amplification() == 1.0


def test_a_plan_travels_and_answers_elsewhere(store):  # cube 242
    plan = pickle.loads(pickle.dumps(plan_cube_query(WIDE, store, C("i1") > 0, partition_by="i2")))
    assert [load_group(group, store).num_rows for group in plan.groups] == [7, 6]
    assert repr(plan) == "QueryPlan(cube='wide', groups=2, files=21)"


def test_a_plan_answers_from_the_state_that_it_was_made_for(store):
    plan = plan_cube_query(WIDE, store)
    append_to_cube(table(x=[77], p=[0], i1=[0], v1=[0]), WIDE, store)
    assert sum(load_group(group, store).num_rows for group in plan.groups) == 20


def test_a_group_is_small_however_many_partitions_there_are():
    sizes = []
    for n in (5, 500):
        store, cube = MemoryStore(), Cube(["x"], ["p"], "wide", index_columns=["i1"])
        build_cube(table(x=list(range(n)), p=[x % 100 for x in range(n)], i1=list(range(n))), cube, store)
        sizes.append(len(pickle.dumps(plan_cube_query(cube, store, partition_by="i1").groups[0])))
    assert sizes[1] <= sizes[0] + 16
    assert sizes[0] < 2000


def test_groups_are_a_sequence(store):
    groups = plan_cube_query(WIDE, store).groups
    assert len(groups) == 10
    assert [group.key["p"] for group in groups] == list(range(10))
    assert groups[-1].key == {"p": 9}
    assert [group.key["p"] for group in groups[2:4]] == [2, 3]
    with pytest.raises(IndexError, match="10 groups"):
        groups[10]


def test_a_plan_without_groups(store):
    plan = plan_cube_query(WIDE, store, C("p") == 99, partition_by="i1")
    assert (len(plan.groups), len(plan.slices), plan.files()) == (0, 0, {"seed": [], "e": [], "f": []})
    assert query_cube_arrow(WIDE, store, C("p") == 99).schema.equals(plan.schema)


def test_the_schema_of_a_plan_is_that_of_the_result(store):
    plan = plan_cube_query(WIDE, store, payload_columns=["v2", "i1"])
    assert plan.schema.names == ["i1", "p", "v2", "x"]
    assert query_cube_arrow(WIDE, store, payload_columns=["v2", "i1"]).schema.equals(plan.schema)


def test_a_group_whose_file_is_gone_says_so(store):
    plan = plan_cube_query(WIDE, store)
    store.delete(plan.files()["seed"][0])
    with pytest.raises(KeyNotFound, match=r"wide\+\+seed"):
        load_group(plan.groups[0], store)
    assert load_group(plan.groups[1], store).num_rows == 2


def test_other_formats_of_explain_are_not_known(store):
    with pytest.raises(Unsupported, match="pdf"):
        plan_cube_query(WIDE, store).explain(format="pdf")


def test_an_index_says_the_same_as_no_index():
    with_index, without = MemoryStore(), MemoryStore()
    build_two(with_index)
    bare = CUBE.copy(index_columns=[], suppress_index_on=["x", "y"])
    build_cube({"seed": SEED, "e": ENRICH}, bare, without, partition_on={"e": []})
    for condition in (
        C("i1") == 10,
        C("i1") != 10,
        C("x") > 0,
        C("i2") == "one",
        C("i2") != "one",
        C("i1").isin([20, 99]),
    ):
        assert answers(with_index, conditions=condition) == answers(without, bare, conditions=condition)


def test_an_index_with_nulls_in_its_column_answers_unequal():
    store = MemoryStore()
    bare = CUBE.copy(index_columns=[])
    build_cube(SEED, CUBE, store)
    append_to_cube(with_column(SEED, "i1", pa.nulls(4, pa.int64())), bare, store)
    assert len(answers(store, bare, conditions=C("i1") != 10)) == 4
    assert answers(store, bare, conditions=C("i1") == 10) == []


def test_a_plan_arrives_elsewhere_without_what_shows_it(store, tmp_path):
    plan = plan_cube_query(WIDE, store, C("i1") == 1)
    (tmp_path / "plan").write_bytes(pickle.dumps((plan, list(plan.groups))))
    code = "import pickle, sys; plan, groups = pickle.load(open(sys.argv[1], 'rb')); print(len(groups), *sys.modules)"
    command = [sys.executable, "-c", code, str(tmp_path / "plan")]
    count, *loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert int(count) == len(plan.groups) > 0
    assert "kartothek_cube.cube.query.plan" in loaded
    own = [name for name in loaded if name.startswith("kartothek_cube")]
    assert "pandas" not in loaded
    assert [name for name in own if name.rpartition(".")[2] in SHOWING or ".report" in name or ".compat" in name] == []

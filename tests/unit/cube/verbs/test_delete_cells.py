"""`delete_cells`: what it refuses, what goes, one write to the cube, other writers."""

from __future__ import annotations

from decimal import Decimal
from functools import partial

import pyarrow as pa
import pyarrow.types as pt
import pytest

from kartothek_cube.api.cube import (
    C,
    Cube,
    append_to_cube,
    build_cube,
    delete_cells,
    query_cube_arrow,
    remove_partitions,
    verify_cube,
)
from kartothek_cube.api.dataset import history, read_table_arrow, update_rows
from kartothek_cube.core.stores.contract import ReadOnlyView
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import CommitConflict, InvalidInput, InvalidType, ReadOnlyStore
from kartothek_cube.testing.stores import CountingStore
from tests.support.cubes import ColdStore, answers, contents, index_of, refused, snapshot, table
from tests.support.reads import is_data

CUBE = Cube(["x", "y"], ["p"], "cube", index_columns=["i1", "i2"])
SEED = table(x=[0, 0, 1, 1, 2], y=["a", "b"] * 2 + ["a"], p=[0, 0, 0, 1, 1], i1=[1, 2, 1, 2, 3], v1=[0, 1, 2, 3, 4])
# Both have rows that no cell shows: x = 7.
E = table(x=[0, 1, 2, 7], i2=["zero", "one", "two", "seven"], v2=[0, 10, 20, 70])
F = table(x=[0, 0, 7], y=["a", "b", "a"], p=[0, 0, 0], v3=[0.0, 0.5, 7.0])


@pytest.fixture
def store():
    return built()


def built():
    store = MemoryStore()
    build_cube({"seed": SEED, "e": E, "f": F}, CUBE, store, partition_on={"e": []})
    append_to_cube(table(x=[0], y=["a"], p=[0], i1=[1], v1=[100]), CUBE, store)
    return store


def stored(store, dataset, column="x"):
    return sorted(read_table_arrow(f"cube++{dataset}", store).column(column).to_pylist())


def cell(store, **address):
    return [row for row in answers(store, CUBE) if address.items() <= row.items()]


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize("conditions", [None, [], ()])
def test_without_conditions_nothing_goes(store, conditions):
    with refused(store, InvalidInput, "Conditions are needed", "delete_cube"):
        delete_cells(CUBE, store, conditions)


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize(
    ("arguments", "error", "word"),
    [
        ({"conditions": C("nothing") == 1}, InvalidInput, "nothing"),
        ({"conditions": C("x") == "text"}, InvalidType, "integers"),
        ({"conditions": C("x") == 0, "datasets": ["g"]}, InvalidInput, "Unknown"),
        ({"conditions": C("x") == 0, "datasets": 5}, InvalidType, "not a string"),
        ({"conditions": C("x") == 0, "on_conflict": "win"}, InvalidInput, "on_conflict"),
        ({"conditions": C("x") == 0, "dry_run": 1}, InvalidType, "dry_run"),
        ({"conditions": 5}, (InvalidInput, InvalidType), "5"),
        ({"conditions": C("x") >= 0}, InvalidInput, "no cell left"),
        ({"conditions": C("v1") >= 0}, InvalidInput, "no cell left"),
    ],
    ids=str,
)
def test_bad_arguments_change_nothing(store, arguments, error, word, dry_run):
    with refused(store, error, word):
        delete_cells(CUBE, store, **{"dry_run": dry_run, **arguments})


def test_nothing_is_put_for_a_seed_that_would_be_empty(store):
    counting = CountingStore(store)
    with pytest.raises(InvalidInput, match="no cell left"):
        delete_cells(CUBE, counting, C("x").isin([0, 1, 2]))
    assert {call.operation for call in counting.calls}.isdisjoint({"put", "put_if", "delete"})


def test_a_store_that_cannot_be_written_to(store):
    with refused(store, ReadOnlyStore):
        delete_cells(CUBE, ReadOnlyView(store), C("x") == 0)
    assert delete_cells(CUBE, ReadOnlyView(store), C("x") == 0, dry_run=True)["seed"].deleted == 3


# --- what goes ------------------------------------------------------------------------------------


def test_rows_that_another_cell_shows_stay(store):
    reports = delete_cells(CUBE, store, C("v1") == 100)
    assert {i: r.deleted for i, r in reports.items()} == {"seed": 2, "e": 0, "f": 1}
    assert stored(store, "e") == [0, 1, 2, 7]
    assert cell(store, x=0) == [{"x": 0, "y": "b", "p": 0, "i1": 2, "v1": 1, "i2": "zero", "v2": 0, "v3": 0.5}]


def test_a_value_of_an_older_row_selects_no_cell(store):
    before = contents(store)
    assert {r.deleted for r in delete_cells(CUBE, store, C("v1") == 0).values()} == {0}
    assert contents(store) == before


@pytest.mark.parametrize(
    ("datasets", "e", "f"),
    [
        (None, [1, 2, 7], [7]),
        ([], [0, 1, 2, 7], [0, 0, 7]),
        ("e", [1, 2, 7], [0, 0, 7]),
        (["seed", "f"], [0, 1, 2, 7], [7]),
    ],
)
def test_datasets_limits_the_enrichments(store, datasets, e, f):
    reports = delete_cells(CUBE, store, C("x") == 0, datasets=datasets)
    assert (stored(store, "seed"), stored(store, "e"), stored(store, "f")) == ([1, 1, 2], e, f)
    named = {"e", "f"} if datasets is None else {datasets} if isinstance(datasets, str) else set(datasets)
    assert set(reports) == {"seed"} | named


def test_an_enrichment_without_rows_stays_a_member(store):
    delete_cells(CUBE, store, C("x") == 0)
    append_to_cube(table(x=[7], y=["a"], p=[0], i1=[7], v1=[7]), CUBE, store)
    assert delete_cells(CUBE, store, C("v3") == 7.0)["f"].files_removed == 1
    assert stored(store, "f") == []
    assert set(answers(store, CUBE)[0]) == {"x", "y", "p", "i1", "v1", "i2", "v2", "v3"}
    assert verify_cube(CUBE, store, deep=True).ok
    append_to_cube({"f": table(x=[1], y=["a"], p=[0], v3=[1.5])}, CUBE, store)
    assert cell(store, x=1, y="a")[0]["v3"] == 1.5


def test_indices_forget_the_values(store):
    delete_cells(CUBE, store, C("i2") == "two")
    assert set(index_of(store, "i1")) == {1, 2}
    assert set(index_of(store, "x")) == {0, 1}
    assert set(index_of(store, "i2", "e")) == {"zero", "one", "seven"}


@pytest.mark.parametrize(
    "values",
    [
        pa.array([0.0, float("inf")]),
        pa.array([False, True]),
        pa.array([0, 2**64 - 1], pa.uint64()),
        pa.array([-(2**63), 2**63 - 1]),
        pa.array([b"", b"\xff"]),
        pa.array([0, -1], pa.timestamp("us", tz="UTC")),
        pa.array([0, -1], pa.date32()),
        pa.array([Decimal("-0.50"), Decimal("9999.99")]),
        pa.array([0, 1], pa.time64("us")),
        pa.array([0, 1], pa.duration("s")),
        pa.array(["", "x=1 \u00e4/b"]),
    ],
    ids=lambda values: str(values.type),
)
def test_types_of_dimensions(values):
    # These types have neither indices nor conditions, but a dimension may have them.
    is_plain = not (pt.is_decimal(values.type) or pt.is_time(values.type) or pt.is_duration(values.type))
    store, cube = MemoryStore(), Cube(["k", "y"], ["p"], "types", suppress_index_on=[] if is_plain else ["k"])
    seed = pa.table({"k": pa.concat_arrays([values, values]), "y": [0, 0, 1, 2], "p": [0] * 4})
    enrichment = pa.table({"k": values, "v2": [1, 2]})
    build_cube({"seed": seed, "e": enrichment}, cube, store, partition_on={"e": []})
    assert delete_cells(cube, store, C("y") == 0)["e"].deleted == 0
    assert delete_cells(cube, store, C("y") == 1)["e"].deleted == 1
    assert query_cube_arrow(cube, store).column("v2").to_pylist() == [2]
    assert read_table_arrow("types++e", store).column("k").to_pylist() == values[1:].to_pylist()


def test_without_such_cells_no_other_cells_are_searched(store):
    counting = ColdStore(store)
    query_cube_arrow(CUBE, counting, C("x") == 9, payload_columns=())
    searched = counting.touched("get", "tail", "ranges", "open")
    counting.reset()
    delete_cells(CUBE, counting, C("x") == 9)
    assert {key for key in counting.touched("get", "tail", "ranges", "open") if is_data(key)} <= set(searched)


# --- one write, and other writers -----------------------------------------------------------------


def test_one_write_to_the_cube(store):
    reports = delete_cells(CUBE, store, C("x") == 0)
    last = {i: snapshot(store, i).chain[-1] for i in reports}
    assert {i: commit.id for i, commit in last.items()} == {i: report.commit for i, report in reports.items()}
    assert {commit.cube for commit in last.values()} == {last["seed"].cube}
    assert last["seed"].cube.datasets == ("cube++e", "cube++f", "cube++seed")
    assert history("cube++seed", store)["commit"][0] == reports["seed"].commit


def test_datasets_without_such_rows_have_no_commit(store):
    before = snapshot(store, "f").commit
    reports = delete_cells(CUBE, store, C("x") == 2)
    assert (snapshot(store, "f").commit, reports["f"].commit) == (before, None)
    assert snapshot(store).chain[-1].cube.datasets == ("cube++e", "cube++seed")


class Meanwhile(CountingStore):
    """Somebody else does something once, right before the first file of the change is put."""

    def __init__(self, inner, action):
        super().__init__(inner)
        self.action = action

    def around(self, operation, key, action):
        if operation == "put" and self.action is not None:
            act, self.action = self.action, None
            act(self.inner)
        return super().around(operation, key, action)


def append(store, x=(0, 5), y=("b", "a")):
    append_to_cube(table(x=list(x), y=list(y), p=[0, 0], i1=[5, 5], v1=[50, 51]), CUBE, store)


OTHERS = {
    "seed": lambda store: update_rows("cube++seed", store, [[("x", "==", 1)]], {"v1": -1}),
    "enrichment": lambda store: update_rows("cube++e", store, [[("x", "==", 1)]], {"v2": -1}),
    "removal": lambda store: remove_partitions(CUBE, store, C("p") == 0, ["seed", "f"]),
}


@pytest.mark.parametrize("mode", ["raise", "reapply"])
def test_what_others_append_goes(store, mode):
    delete_cells(CUBE, Meanwhile(store, partial(append, x=[4, 5])), C("x") == 0, on_conflict=mode)
    assert [(row["x"], row["y"], row["v1"]) for row in cell(store, p=0)] == [(1, "a", 2), (4, "b", 50), (5, "a", 51)]


def test_a_new_cell_keeps_the_row_of_an_enrichment_that_it_shows(store):
    with pytest.raises(CommitConflict, match="cells were added that show rows of enrichments"):
        delete_cells(CUBE, Meanwhile(store, append), (C("x") == 0) & (C("y") != "c"))
    assert {row["v2"] for row in cell(store, x=0)} == {0}
    append_ = partial(append, y=["c", "a"])
    delete_cells(CUBE, Meanwhile(store, append_), (C("x") == 0) & (C("y") != "c"), on_conflict="reapply")
    assert [(row["y"], row["v2"]) for row in cell(store, x=0)] == [("c", 0)]


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_another_writer_of_the_files(other):
    store, reapplied, alone = built(), built(), built()
    with pytest.raises(CommitConflict):
        delete_cells(CUBE, Meanwhile(store, other), C("x") == 0)
    other(alone)
    assert answers(store, CUBE) == answers(alone, CUBE)
    delete_cells(CUBE, alone, C("x") == 0)
    delete_cells(CUBE, Meanwhile(reapplied, other), C("x") == 0, on_conflict="reapply")
    for dataset in ("seed", "e", "f"):
        assert stored(reapplied, dataset) == stored(alone, dataset)
    assert answers(reapplied, CUBE) == answers(alone, CUBE)

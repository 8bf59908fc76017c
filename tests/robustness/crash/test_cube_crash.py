"""A write that dies at any call of the store leaves the old answers or gives the new ones, and says
what landed.
"""

from __future__ import annotations

import re

import pytest

from kartothek_cube.api.cube import (
    C,
    append_to_cube,
    build_cube,
    build_cube_index,
    delete_cells,
    drop_cube_index,
    extend_cube,
    query_cube,
    remove_partitions,
    update_cube,
)
from kartothek_cube.api.dataset import read_table_arrow, undo
from kartothek_cube.core.stores.memory import MemoryStore
from kartothek_cube.cube.members.discovery import load_cube
from kartothek_cube.cube.write.plan import plan_append
from kartothek_cube.errors import CommitConflict, CubeCommitIncomplete, InvalidInput, MultiTableCommitAborted
from kartothek_cube.testing.stores import FaultyStore, InjectedFault, SimulatedCrash
from tests.support.cubes import CUBE, ENRICH, SEED, ColdStore, answers, build_two, contents, files, table, write_tables

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("no_pauses"),
    # Readers that come after a crash between two commits of one write say so.
    pytest.mark.filterwarnings("ignore::kartothek_cube.errors.IncompleteCubeWarning"),
    pytest.mark.filterwarnings("ignore:Cube 'cube'. the write:UserWarning"),
]

NEW = table(x=[0, 5], y=["a", "c"], p=[0, 2], i1=[10, 30], v1=[9.5, 4.5])
# Rows for a cell that comes with the seed's new rows: invisible before them.
NEW_E = table(x=[5], i2=["five"], v2=[50])

VERBS = {
    "append": lambda store: append_to_cube(NEW, CUBE, store),
    "append to both": lambda store: append_to_cube({"seed": NEW, "e": NEW_E}, CUBE, store),
    "extend": lambda store: extend_cube(
        {"f": table(x=[0], v3=[1]), "g": table(x=[0], v4=[1])}, CUBE, store, partition_on={"f": [], "g": []}
    ),
    "replace": lambda store: extend_cube(
        {"e": table(x=[0], v3=[1])}, CUBE, store, overwrite=True, partition_on={"e": []}
    ),
    "update": lambda store: update_cube(NEW, CUBE, store, C("p") == 0),
    "remove": lambda store: remove_partitions(CUBE, store, C("p") == 0, ["seed"]),
    # A file of the seed goes, and one of the enrichment is written anew.
    "delete cells": lambda store: delete_cells(CUBE, store, C("x") == 1),
}


def build_both(store):
    build_cube({"seed": SEED, "e": ENRICH}, CUBE, store, partition_on={"e": []})


def built():
    store = MemoryStore()
    build_two(store)
    return store


def state(store):
    """What a reader that starts afresh sees; None where there is no cube."""
    try:
        return answers(ColdStore(store))
    except InvalidInput:
        return None


def calls_of(verb, store):
    counting = ColdStore(store)
    verb(counting)
    return len(counting.calls)


def crash_at(n, kind):
    seen = iter(range(10**6))
    return lambda call: kind if next(seen) == n else None


def every_crash(verb, make):
    for n in range(calls_of(verb, make())):
        for kind in ("crash", "crash_after"):
            store = make()
            with pytest.raises(SimulatedCrash):
                verb(ColdStore(FaultyStore(store, crash_at(n, kind))))
            yield store


@pytest.mark.parametrize("name", VERBS)
def test_after_a_crash_readers_see_the_old_state_or_the_new_one(name):
    old, new = state(built()), built()
    VERBS[name](new)
    steps = [old, state(new)] if name != "extend" else [old, *extended_states()]
    found = [state(store) for store in every_crash(VERBS[name], built)]
    assert all(rows in steps for rows in found)
    assert old in found


def extended_states():
    """Two independent new datasets may become visible one after the other."""
    for data in ({"f": table(x=[0], v3=[1])}, {"f": table(x=[0], v3=[1]), "g": table(x=[0], v4=[1])}):
        store = built()
        extend_cube(data, CUBE, store, partition_on={"f": [], "g": []})
        yield state(store)


def test_a_build_that_dies_leaves_no_cube_or_the_whole_one():
    whole = MemoryStore()
    build_both(whole)
    found = [state(store) for store in every_crash(build_both, MemoryStore)]
    assert all(rows in (None, state(whole)) for rows in found)
    assert None in found


@pytest.mark.parametrize("name", VERBS)
def test_a_crash_touches_no_file_that_was_there(name):
    before = contents(built())
    fixed = {key for key in before if "/table/" in key or "/indices/" in key}
    for store in every_crash(VERBS[name], built):
        after = contents(store)
        assert len([key for key in after if key.endswith(".parquet")]) >= len(
            [key for key in fixed if key.endswith(".parquet")]
        )


def test_a_build_can_be_repeated_with_overwrite_after_any_crash():
    whole = MemoryStore()
    build_both(whole)
    for store in every_crash(build_both, MemoryStore):
        build_cube({"seed": SEED, "e": ENRICH}, CUBE, store, overwrite=True, partition_on={"e": []})
        assert state(store) == state(whole)


@pytest.mark.parametrize("name", ["append", "append to both", "update", "delete cells"])
def test_a_write_can_be_repeated_after_any_crash(name):
    new = built()
    VERBS[name](new)
    for store in every_crash(VERBS[name], built):
        VERBS[name](store)
        assert state(store) == state(new)


# --- a store that fails and lives on --------------------------------------------------------------


def fail_document(dataset, kind="before"):
    return lambda call: (
        kind if call.operation == "put_if" and call.key == f"cube++{dataset}.by-dataset-metadata.json" else None
    )


def test_a_failure_of_the_first_commit_changes_nothing():
    store = built()
    before = state(store)
    with pytest.raises(InjectedFault):
        append_to_cube({"seed": NEW, "e": NEW_E}, CUBE, ColdStore(FaultyStore(store, fail_document("e"))))
    assert state(store) == before
    assert len(files(store, "e")) == 1


def test_a_failure_of_the_second_commit_says_what_landed():
    store = built()
    before = state(store)
    with pytest.raises(CubeCommitIncomplete) as caught:
        append_to_cube({"seed": NEW, "e": NEW_E}, CUBE, ColdStore(FaultyStore(store, fail_document("seed"))))
    assert isinstance(caught.value, MultiTableCommitAborted)
    assert re.search(r"Landed: e \(commit \w+\)\. Not landed: seed", str(caught.value))
    assert "'cube'" in str(caught.value)
    assert isinstance(caught.value.__cause__, InjectedFault)
    assert state(store) == before
    assert (len(files(store, "e")), len(files(store))) == (2, 2)


def test_a_deletion_of_cells_that_stops_is_undone_and_repeated():
    store, new = built(), built()
    VERBS["delete cells"](new)
    with pytest.raises(CubeCommitIncomplete, match=r"Landed: seed \(commit \w+\)\. Not landed: e"):
        VERBS["delete cells"](ColdStore(FaultyStore(store, fail_document("e"))))
    assert state(store) == state(new)
    undo("cube++seed", store)
    assert state(store) == state(built())
    VERBS["delete cells"](store)
    assert state(store) == state(new)
    assert read_table_arrow("cube++e", store).column("x").to_pylist() == [7]


def test_a_build_that_stops_at_the_seed_says_what_landed():
    store = MemoryStore()
    with pytest.raises(CubeCommitIncomplete, match=r"Landed: e \(commit \w+\)\. Not landed: seed"):
        build_both(ColdStore(FaultyStore(store, fail_document("seed"))))
    assert state(store) is None


@pytest.mark.parametrize("dataset", ["seed", "e"])
def test_a_lost_answer_is_found_out(dataset):
    store, new = built(), built()
    VERBS["append to both"](new)
    lost = []

    def fail(call):
        hit = call.operation == "put_if" and call.key == f"cube++{dataset}.by-dataset-metadata.json" and not lost
        lost.extend([call] if hit else [])
        return "after" if hit else None

    append_to_cube({"seed": NEW, "e": NEW_E}, CUBE, ColdStore(FaultyStore(store, fail)))
    assert lost
    assert state(store) == state(new)


def test_a_failing_data_file_changes_nothing():
    store = built()
    before = state(store)
    with pytest.raises(InjectedFault):
        append_to_cube(
            NEW,
            CUBE,
            ColdStore(FaultyStore(store, lambda call: "before" if call.operation == "put" and call.nth == 2 else None)),
        )
    assert state(store) == before


# --- two writers ----------------------------------------------------------------------------------


def planned_append(store, data):
    write = plan_append(CUBE, {i: rows.schema for i, rows in data.items()}, load_cube(CUBE, store))
    return lambda: write_tables(store, write, data)


def test_of_two_appends_to_the_same_state_both_land():
    store = built()
    first, second = (
        planned_append(store, {"seed": NEW}),
        planned_append(store, {"seed": table(x=[9], y=["z"], p=[0], i1=[1], v1=[1.0])}),
    )
    before = len(files(store))
    first()
    second()
    assert 9 in query_cube(CUBE, store)[0]["x"].tolist()
    assert len(files(store)) == before + 3


def test_a_conflict_of_the_second_dataset_is_found_before_the_first_commit():
    store = built()
    both = planned_append(store, {"seed": NEW, "e": NEW_E})
    drop_cube_index(CUBE, store, "i1", "seed")
    build_cube_index(CUBE, store, "v1", "seed")
    after = state(store)
    with pytest.raises(CommitConflict, match=r"cube\+\+seed"):
        both()
    assert state(store) == after


def test_of_two_builds_one_wins():
    store = MemoryStore()
    other = []

    def fail(call):
        if call.operation == "put_if" and call.key.endswith("json") and not other:
            other.append(call)
            build_cube(SEED[:1], CUBE, store)

    with pytest.raises((CommitConflict, MultiTableCommitAborted)):
        build_cube(SEED, CUBE, ColdStore(FaultyStore(store, fail)))
    assert len(state(store)) == 1
    assert query_cube(CUBE, store)[0]["x"].tolist() == [1]

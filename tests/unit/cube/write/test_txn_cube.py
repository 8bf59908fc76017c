"""A numbered write to several datasets of a cube: repeated after it stopped, it doubles nothing."""

from __future__ import annotations

import itertools
from contextlib import suppress
from itertools import product

import pytest

from kartothek_cube.api.cube import C
from kartothek_cube.core.metadata.commit_log import Txn
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.cube.members import existing_for_build, load_cube
from kartothek_cube.cube.write.plan import plan_append, plan_build, plan_extend, plan_update
from kartothek_cube.errors import AlreadyExists, KartothekCubeError
from kartothek_cube.testing.stores import CountingStore, FaultyStore, InjectedFault, SimulatedCrash
from tests.support.cubes import (
    CUBE,
    ENRICH,
    SEED,
    ColdStore,
    answers,
    contents,
    snapshot,
    stored_rows,
    table,
    write_tables,
)
from tests.support.thoroughness import some

TXN = Txn("stream", 4)
NEW = {"seed": table(x=[5], y=["c"], p=[2], i1=[30], v1=[4.5]), "e": table(x=[5], i2=["five"], v2=[50])}
MORE = {"f": table(x=[0], v3=[1]), "g": table(x=[0], v4=[1])}


def schemas(tables):
    return {i: t.schema for i, t in tables.items()}


def build(store, txn=TXN):
    data = {"seed": SEED, "e": ENRICH}
    write = plan_build(CUBE, schemas(data), existing_for_build(CUBE, store), partition_on={"e": []}, txn=txn)
    return write_tables(store, write, data)


def append(store):
    return write_tables(store, plan_append(CUBE, schemas(NEW), load_cube(CUBE, store), txn=TXN), NEW)


def extend(store):
    write = plan_extend(CUBE, schemas(MORE), load_cube(CUBE, store), partition_on={"f": [], "g": []}, txn=TXN)
    return write_tables(store, write, MORE)


def update(store):
    return write_tables(
        store, plan_update(CUBE, schemas(NEW), load_cube(CUBE, store), C("p") == 0, ["seed", "e"], txn=TXN), NEW
    )


def replaced(store):
    rows = {"e": ENRICH, "h": table(x=[0], v5=[1])}
    write = plan_extend(
        CUBE, schemas(rows), load_cube(CUBE, store), overwrite=True, partition_on={"e": [], "h": []}, txn=TXN
    )
    return write_tables(store, write, rows)


VERBS = {"build": build, "append": append, "extend": extend, "update": update, "replace": replaced}


def start(verb):
    store = MemoryStore()
    if verb is not build:
        build(store, txn=None)
    return store


def stored(store):
    """The rows of each dataset as its files have them, of which a query shows one a cell."""
    found = {}
    for name, state in load_cube(CUBE, store).items():
        found[name] = sorted(str(row) for key in state.files.to_pylist() for row in stored_rows(store, key).to_pylist())
    return found


@pytest.mark.parametrize("name", VERBS)
def test_a_repeated_write_is_skipped_and_returns_what_is_there(name):
    verb = VERBS[name]
    store = start(verb)
    first = verb(store)
    before = stored(store)
    again = verb(store)
    assert {i: d.result.skipped for i, d in first.items()} == dict.fromkeys(first, False)
    assert {i: d.result.skipped for i, d in again.items()} == dict.fromkeys(first, True)
    assert again.keys() == first.keys()
    assert stored(store) == before


def writes(call):
    return call.operation in ("put", "put_if", "put_file")


def at_write(n, fault):
    numbers = itertools.count()
    return lambda call: fault if writes(call) and next(numbers) == n else None


@pytest.mark.slow
@pytest.mark.usefixtures("no_pauses")
@pytest.mark.parametrize("name", ["build", "append", "extend", "update"])
def test_after_a_crash_at_any_write_a_replay_leaves_each_row_once(name):
    verb = VERBS[name]
    wanted = start(verb)
    verb(wanted)
    counting = CountingStore(start(verb))
    verb(counting)
    halves = set()
    for n, fault in some(product(range(sum(map(writes, counting.calls))), ("crash", "after")), 3):
        store = start(verb)
        with suppress(SimulatedCrash, InjectedFault):
            verb(FaultyStore(ColdStore(store), at_write(n, fault)))
        halves.add(frozenset(i for i, d in verb(ColdStore(store)).items() if d.result.skipped))
        assert stored(store) == stored(wanted)
        assert answers(store) == answers(wanted)
    # Nothing or both had landed.
    assert sorted(map(len, halves)) == [0, 2]


@pytest.mark.usefixtures("no_pauses")
def test_a_replay_writes_all_that_a_stopped_write_has_prepared():
    store = start(append)
    halfway(append, store)
    assert not any(d.result.skipped for d in append(ColdStore(store)).values())
    ids = {snapshot(store, name).chain[-1].cube.id for name in ("seed", "e")}
    assert len(ids) == 1


def test_another_number_is_another_write():
    store = start(append)
    append(store)
    write = plan_append(CUBE, schemas(NEW), load_cube(CUBE, store), txn=Txn("stream", 5))
    assert not any(d.result.skipped for d in write_tables(store, write, NEW).values())


@pytest.mark.parametrize("txn", [None, Txn("stream", 5), Txn("other", 0)])
def test_a_number_that_is_not_there_does_not_permit_to_build_again(txn):
    store = MemoryStore()
    build(store)
    before = contents(store)
    with pytest.raises(AlreadyExists):
        build(store, txn)
    assert contents(store) == before


def test_of_datasets_that_had_the_number_before_the_rest_is_still_checked():
    """That some of it is done does not let through what contradicts the cube."""
    store = start(extend)
    write_tables(
        store, plan_extend(CUBE, schemas(MORE), load_cube(CUBE, store), partition_on={"f": [], "g": []}, txn=TXN), MORE
    )
    rows = {"f": MORE["f"], "k": table(x=[0], v2=[1])}
    with pytest.raises(KartothekCubeError, match="v2"):
        plan_extend(CUBE, schemas(rows), load_cube(CUBE, store), partition_on={"f": [], "k": []}, txn=TXN)


def halfway(verb, store):
    """Stopped between the swaps of two datasets."""
    swaps = itertools.count()
    faulty = FaultyStore(
        ColdStore(store),
        lambda call: (
            "crash" if call.operation == "put_if" and "metadata.json" in call.key and next(swaps) == 1 else None
        ),
    )
    with pytest.raises(SimulatedCrash):
        verb(faulty)


def test_a_dataset_that_had_the_number_from_another_write_is_left_out():
    store = start(append)
    alone = {"seed": NEW["seed"]}
    write_tables(store, plan_append(CUBE, schemas(alone), load_cube(CUBE, store), txn=TXN), alone)
    assert {i: d.result.skipped for i, d in append(store).items()} == {"seed": True, "e": False}


@pytest.mark.usefixtures("no_pauses")
def test_a_write_that_stopped_is_not_taken_for_another_one_with_its_number():
    """An application may write each of its batches by two calls to different datasets."""
    store = start(append)
    rows = {i: table(x=[1], **{v: [1]}) for i, v in (("f", "v3"), ("g", "v4"))}
    write_tables(store, plan_extend(CUBE, schemas(MORE), load_cube(CUBE, store), partition_on={"f": [], "g": []}), MORE)
    append(store)

    def both(opened):
        return write_tables(opened, plan_append(CUBE, schemas(rows), load_cube(CUBE, opened), txn=TXN), rows)

    before = answers(store)
    halfway(both, store)
    assert answers(ColdStore(store)) == before
    assert {i: d.result.skipped for i, d in both(ColdStore(store)).items()} == {"f": False, "g": False}


@pytest.mark.usefixtures("no_pauses")
@pytest.mark.parametrize("replayed", [False, True])
def test_a_store_that_refuses_the_last_swap_leaves_nothing(replayed):
    store, tries = start(append), itertools.count()
    before = answers(store)
    if replayed:
        halfway(append, store)
    fails = FaultyStore(
        ColdStore(store),
        lambda call: (
            "before"
            if call.operation == "put_if" and "seed.by-dataset-metadata" in call.key and next(tries) < 4
            else None
        ),
    )
    with pytest.raises(InjectedFault):
        append(fails)
    assert answers(ColdStore(store)) == before
    assert not any(d.result.skipped for d in append(ColdStore(store)).values())

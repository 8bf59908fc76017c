"""A numbered write to several datasets of a cube: repeated after it stopped halfway, it completes
what is missing and doubles nothing.
"""

from __future__ import annotations

import itertools
from contextlib import suppress

import pytest

from kartothek_cube.api.cube import C
from kartothek_cube.core.metadata.txn import Txn
from kartothek_cube.core.stores.memory import MemoryStore
from kartothek_cube.cube.members import consistent_read
from kartothek_cube.cube.members.discovery import load_cube
from kartothek_cube.cube.verbs.build import existing_for_build
from kartothek_cube.cube.write.plan import plan_append, plan_build, plan_extend, plan_update
from kartothek_cube.errors import AlreadyExists, CubeCommitIncomplete, KartothekCubeError
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
@pytest.mark.filterwarnings("ignore:Cube 'cube'. the write:UserWarning")
@pytest.mark.parametrize("name", ["build", "append", "extend", "update"])
def test_after_a_crash_at_any_write_a_replay_leaves_each_row_once(name, monkeypatch):
    monkeypatch.setattr(consistent_read, "_PAUSES", (0.0,))
    verb = VERBS[name]
    wanted = start(verb)
    verb(wanted)
    counting = CountingStore(start(verb))
    verb(counting)
    halves = set()
    for n in range(sum(map(writes, counting.calls))):
        for fault in ("crash", "after"):
            store = start(verb)
            with suppress(SimulatedCrash, InjectedFault, CubeCommitIncomplete):
                verb(FaultyStore(ColdStore(store), at_write(n, fault)))
            halves.add(frozenset(i for i, d in verb(ColdStore(store)).items() if d.result.skipped))
            assert stored(store) == stored(wanted)
            assert answers(store) == answers(wanted)
    # Nothing, one of the two, and both had landed.
    assert sorted(map(len, halves)) == [0, 1, 2]


def test_a_replay_completes_the_write_that_stopped_halfway(recwarn):
    """The half write has the same id in both datasets, so that no reader waits for it forever."""
    store = start(append)
    halfway(append, store)
    append(ColdStore(store))
    recwarn.clear()
    answers(ColdStore(store))
    assert [str(w.message) for w in recwarn] == []
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


def warnings_of_readers(store, recwarn, monkeypatch):
    monkeypatch.setattr(consistent_read, "_PAUSES", (0.0,))
    recwarn.clear()
    answers(ColdStore(store))
    return [str(w.message) for w in recwarn]


def test_readers_do_not_wait_for_a_dataset_that_had_the_number_from_another_write(recwarn, monkeypatch):
    store = start(append)
    alone = {"seed": NEW["seed"]}
    write_tables(store, plan_append(CUBE, schemas(alone), load_cube(CUBE, store), txn=TXN), alone)
    assert {i: d.result.skipped for i, d in append(store).items()} == {"seed": True, "e": False}
    assert warnings_of_readers(store, recwarn, monkeypatch) == []


def test_a_write_that_stopped_halfway_is_not_taken_for_another_one_with_its_number(recwarn, monkeypatch):
    """An application may write each of its batches by two calls to different datasets."""
    store = start(append)
    rows = {i: table(x=[1], **{v: [1]}) for i, v in (("f", "v3"), ("g", "v4"))}
    write_tables(store, plan_extend(CUBE, schemas(MORE), load_cube(CUBE, store), partition_on={"f": [], "g": []}), MORE)
    append(store)
    halfway(
        lambda opened: write_tables(opened, plan_append(CUBE, schemas(rows), load_cube(CUBE, opened), txn=TXN), rows),
        store,
    )
    assert [text.partition("is in ")[2][:14] for text in warnings_of_readers(store, recwarn, monkeypatch)] == [
        "f but not in g"
    ]


@pytest.mark.filterwarnings("ignore:Cube 'cube'. the write:UserWarning")
@pytest.mark.parametrize("replayed", [False, True])
def test_who_stops_halfway_is_told_to_repeat_the_write(replayed):
    """An undone dataset keeps the number, so that repeating the write after it would write the
    other half alone.
    """
    store = start(append)
    if replayed:
        halfway(append, store)
    fails = FaultyStore(
        ColdStore(store),
        lambda call: "before" if call.operation == "put_if" and "seed.by-dataset-metadata" in call.key else None,
    )
    with pytest.raises(CubeCommitIncomplete, match="Repeat the write with the same txn") as caught:
        append(fails)
    assert "undo" not in str(caught.value)
    assert ("e (before, with this number)" in str(caught.value)) == replayed

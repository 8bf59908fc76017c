"""Crashes of verbs that meet a write to several datasets which has stopped before."""

from __future__ import annotations

import pytest

from kartothek_cube.api.cube import delete_cube, extend_cube
from kartothek_cube.core.stores.memory import MemoryStore
from kartothek_cube.testing.stores import FaultyStore, SimulatedCrash
from tests.support.cubes import CUBE, ColdStore, answers, build_two, table

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_pauses")]


def extend(store, **more):
    rows = {"f": table(x=[0], v3=[1]), "g": table(x=[0], v4=[1])}
    extend_cube(rows, CUBE, store, partition_on={"f": [], "g": []}, **more)


def crash_before_the_swap_of_the_seed(call):
    return "crash" if call.operation == "put_if" and call.key == "cube++seed.by-dataset-metadata.json" else None


def stopped():
    """Two datasets that a write was to make, which has stopped."""
    store = MemoryStore()
    build_two(store)
    with pytest.raises(SimulatedCrash):
        extend(ColdStore(FaultyStore(store, crash_before_the_swap_of_the_seed)))
    return store


def test_a_deletion_that_dies_shows_nothing_of_a_write_that_stopped():
    before, n = answers(ColdStore(stopped())), 0
    while True:
        store, seen = stopped(), iter(range(10**6))
        faulty = FaultyStore(store, lambda call: "crash" if next(seen) == n else None)  # noqa: B023
        try:
            delete_cube(CUBE, ColdStore(faulty), ["f", "g"])
        except SimulatedCrash:
            assert answers(ColdStore(store)) == before
            n += 1
        else:
            break
    assert n > 8

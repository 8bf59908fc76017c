"""Crashes of writes to enrichments only, where the seed is just touched, of indices of several
datasets, and of a deletion after a write that stopped.
"""

from __future__ import annotations

from datetime import timedelta
from functools import cache

import pytest

from kartothek_cube import options
from kartothek_cube.api.cube import (
    C,
    append_to_cube,
    build_cube,
    build_cube_index,
    cleanup_cube,
    delete_cube,
    extend_cube,
    remove_partitions,
    update_cube,
    verify_cube,
)
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.testing.stores import FaultyStore, SimulatedCrash
from tests.support.cubes import CUBE, SEED, ColdStore, answers, contents, snapshot, table
from tests.support.thoroughness import crash_points, is_exhaustive

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_pauses")]

ENRICHMENTS = ["e", "f"]


def rows(x, n):
    """Rows for the cells with this x, which are in the partition of the same number."""
    return {"e": table(x=[x], p=[x], i2=[str(n)], v2=[n]), "f": table(x=[x], p=[x], v3=[n])}


VERBS = {
    "append": lambda store: append_to_cube(rows(0, 5), CUBE, store),
    "update": lambda store: update_cube(rows(1, 5), CUBE, store, C("p") == 1, ENRICHMENTS),
    "remove": lambda store: remove_partitions(CUBE, store, C("p") == 1, ENRICHMENTS),
    "build indices": lambda store: build_cube_index(CUBE, store, ["v2", "v3"]),
}


@cache
def built_once():
    store = MemoryStore()
    build_cube({"seed": SEED, **rows(1, 1)}, CUBE, store)
    append_to_cube(rows(0, 2), CUBE, store)
    return contents(store)


def built(objects=None):
    store = MemoryStore()
    for key, data in (objects or built_once()).items():
        store.put(key, data)
    return store


def state(store):
    """What a reader that starts afresh sees, and which indices there are."""
    cold = ColdStore(store)
    return answers(cold), [sorted(snapshot(cold, d).secondary_columns) for d in ("seed", "e", "f")]


def crash_at(n, kind):
    seen = iter(range(10**6))
    return lambda call: kind if next(seen) == n else None


def every_crash(verb, make):
    counting = ColdStore(make())
    verb(counting)
    for n, kind in crash_points(len(counting.calls)):
        store = make()
        with pytest.raises(SimulatedCrash):
            verb(ColdStore(FaultyStore(store, crash_at(n, kind))))
        yield store


@pytest.mark.parametrize("name", VERBS)
def test_after_a_crash_all_enrichments_have_the_write_or_none(name):
    old, new = state(built()), built()
    VERBS[name](new)
    assert state(new) != old
    found = [state(store) for store in every_crash(VERBS[name], built)]
    assert all(rows in (old, state(new)) for rows in found)
    assert old in found
    assert state(new) in found


@pytest.mark.parametrize("name", VERBS)
def test_after_a_crash_the_next_write_goes_on_unaided(name):
    def after(store):
        update_cube(rows(1, 9), CUBE, ColdStore(store), C("p") == 1, ENRICHMENTS)
        return state(store)

    new = built()
    VERBS[name](new)
    expected = [after(built()), after(new)]
    assert all(after(store) in expected for store in every_crash(VERBS[name], built))


@pytest.mark.parametrize("name", ["update", "build indices"])
def test_after_a_crash_cleaning_up_changes_no_answer(name):
    for store in every_crash(VERBS[name], built):
        before = state(store)
        cleanup_cube(CUBE, ColdStore(store), options=options(grace=timedelta(0), retain=timedelta(0)))
        assert state(store) == before
        documents = [data for key, data in contents(store).items() if "by-dataset-metadata" in key]
        assert not any(b'is_pending\\": true' in data for data in documents)
        findings = verify_cube(CUBE, ColdStore(store), deep=True).findings
        assert [f for f in findings if f.severity != "info" and f.check != "schema-drift"] == []


# --- after a write that stopped -------------------------------------------------------------------


def extend(store):
    new = {"g": table(x=[0], v4=[1]), "h": table(x=[0], v5=[1])}
    extend_cube(new, CUBE, store, partition_on={"g": [], "h": []})


def crash_before_the_swap_of_the_seed(call):
    return "crash" if call.operation == "put_if" and call.key == "cube++seed.by-dataset-metadata.json" else None


@cache
def stopped_once():
    store = built()
    with pytest.raises(SimulatedCrash):
        extend(ColdStore(FaultyStore(store, crash_before_the_swap_of_the_seed)))
    return contents(store)


def stopped():
    """Two datasets that a write was to make, which has stopped."""
    return built(stopped_once())


def test_a_deletion_that_dies_shows_nothing_of_a_write_that_stopped():
    old = state(stopped())
    found = [state(store) for store in every_crash(lambda store: delete_cube(CUBE, store, ["g", "h"]), stopped)]
    assert len(found) > (20 if is_exhaustive() else 9)
    assert all(rows == old for rows in found)

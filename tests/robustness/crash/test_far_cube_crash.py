"""A process that writes to four datasets in a far store dies while calls are under way: some of
them arrive, others do not.
"""

from __future__ import annotations

import threading
import warnings
from datetime import timedelta
from random import Random

import pyarrow as pa
import pytest

from kartothek_cube import options
from kartothek_cube.api.cube import (
    C,
    append_to_cube,
    build_cube,
    cleanup_cube,
    extend_cube,
    query_cube_arrow,
    update_cube,
    verify_cube,
)
from kartothek_cube.core.metadata.commit_log import pending_mark
from kartothek_cube.core.metadata.naming import document_key
from kartothek_cube.core.snapshots.documents import read_document
from kartothek_cube.core.snapshots.loader import load_snapshot
from kartothek_cube.core.stores.contract import WRITES
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.cube.cube import Cube
from kartothek_cube.errors import IncompleteCubeWarning
from kartothek_cube.testing.stores import SimulatedCrash
from tests.caches import forget
from tests.support.cubes import ColdStore
from tests.support.far import FarStore
from tests.support.thoroughness import some

pytestmark = pytest.mark.slow

CUBE = Cube(["x"], ["p"], "cube", index_columns=["i1"])
TAGS = {"seed": "v1", "e": "v2", "f": "v3", "g": "v4"}
NOW = options(grace=timedelta(0), retain=timedelta(0), patience=timedelta(0))


class Dying(ColdStore):
    """From the nth write on, a call that is under way arrives or not; none is answered."""

    def __init__(self, inner, nth):
        super().__init__(FarStore(inner))
        self.left, self.random, self.guard = nth, Random(nth), threading.Lock()

    def around(self, operation, key, action):
        with self.guard:
            self.left -= operation in WRITES
            is_alive, arrives = self.left > 0, self.random.random() < 0.5
        if is_alive:
            return super().around(operation, key, action)
        if arrives and operation in WRITES:
            action()
        raise SimulatedCrash(f"{operation} of {key!r}")


def rows(number, xs, datasets=tuple(TAGS)):
    """The number of the write stands in each row of each dataset."""
    cells = {"x": list(xs), "p": [x % 2 for x in xs]}
    found = {i: pa.table({**cells, TAGS[i]: [number] * len(cells["x"])}) for i in datasets}
    return {i: t.append_column("i1", t["x"]) if i == "seed" else t for i, t in found.items()}


VERBS = {
    "append": (TAGS, lambda store: append_to_cube(rows(1, range(4, 8)), CUBE, store)),
    "update": (TAGS, lambda store: update_cube(rows(1, [0, 2]), CUBE, store, C("p") == 0, list(TAGS))),
    "without rows of the seed": (
        TAGS,
        lambda store: update_cube(rows(1, [1, 3], "efg"), CUBE, store, C("p") == 1, list("efg")),
    ),
    "new datasets": (["seed", "e"], lambda store: extend_cube(rows(0, range(4), "fg"), CUBE, store)),
    "overwrite": (TAGS, lambda store: build_cube(rows(1, range(1, 6)), CUBE, store, overwrite=True)),
}


def built(datasets):
    memory = MemoryStore()
    build_cube(rows(0, range(4), datasets), CUBE, memory)
    return memory


def state(memory, seed=True):
    """The cells with their numbers, in which all datasets agree, maybe all but the seed."""
    forget(memory)
    with warnings.catch_warnings():
        warnings.simplefilter("error", IncompleteCubeWarning)
        found = query_cube_arrow(CUBE, memory).to_pylist()
    for row in found:
        tags = {row[tag] for i, tag in TAGS.items() if row.get(tag) is not None and (seed or i != "seed")}
        assert len(tags) == 1, f"a mixture: {row}"
    return found


def check_sound(memory):
    """Every file that is named is there, nothing is pending, and nothing is damaged."""
    for i in TAGS:
        if memory.contains(document_key(f"cube++{i}")):
            assert all(map(memory.contains, load_snapshot(memory, f"cube++{i}").files.to_pylist()))
            assert pending_mark(read_document(memory, f"cube++{i}").document) is None
    findings = verify_cube(CUBE, memory, deep=True).findings
    assert [f for f in findings if f.severity != "info" and f.check != "schema-drift"] == []


@pytest.mark.parametrize("name", VERBS)
def test_a_death_while_calls_are_under_way_leaves_all_or_nothing_and_the_next_writer_goes_on(name):
    (datasets, verb), seed = VERBS[name], name != "without rows of the seed"
    before, whole = state(built(datasets), seed), built(datasets)
    counting = Dying(whole, 10_000)
    verb(counting)
    after, found = state(whole, seed), []
    for nth in some(range(1, 10_000 - counting.left + 1), 4):
        memory = built(datasets)
        with pytest.raises(SimulatedCrash):
            verb(Dying(memory, nth))
        found.append(state(memory, seed))
        assert found[-1] in (before, after)
        present = datasets if found[-1] == before else TAGS
        with NOW:
            append_to_cube(rows(2, [10, 11], present), CUBE, FarStore(memory))
            seen = state(memory, seed)
            assert [row for row in seen if row["x"] < 10] == found[-1]
            assert [row["x"] for row in seen if row["x"] >= 10] == [10, 11]
            cleanup_cube(CUBE, memory)
            assert state(memory, seed) == seen
            check_sound(memory)
    assert before in found
    assert after in found

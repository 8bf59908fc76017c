"""Concurrent verbs on one cube over faulty stores: no cell without its enrichment, no row lost,
none twice.
"""

from __future__ import annotations

import itertools
import json
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from kartothek_cube.api.cube import (
    C,
    Cube,
    append_to_cube,
    build_cube,
    cleanup_cube,
    compact_cube,
    query_cube_arrow,
    remove_partitions,
    update_cube,
    verify_cube,
)
from kartothek_cube.core.runtime.options import options
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.stores.memory import MemoryStore
from kartothek_cube.cube.members import consistent_read
from kartothek_cube.errors import CommitConflict, CommitOutcomeUnknown, CubeCommitIncomplete, StagedFilesLost
from kartothek_cube.testing.stores import InjectedFault, SimulatedCrash
from tests.robustness.soak.dataset_world import Settings, settings_of
from tests.robustness.soak.scheduler import INCARNATIONS, Rates, ScheduledStore, Scheduler
from tests.robustness.soak.world import Clock, patched

CUBE = Cube(["x"], ["p"], "cube", index_columns=["i1", "i2"])
GRACE, RETAIN = timedelta(hours=1), timedelta(hours=5)
# Here nothing is ever removed or replaced, so that every row can be accounted for.
KEPT, CHANGED = (0, 1), (2, 3)


@dataclass(eq=False)
class Append:
    """Cells of one write, and what its caller heard."""

    xs: tuple[int, ...]
    outcome: str = "open"


def frames(xs: tuple[int, ...], p: int) -> dict[str, pa.Table]:
    """Seed and enrichment; the other columns follow from x."""
    x, ps = list(xs), [p] * len(xs)
    return {
        "seed": pa.table({"x": x, "p": ps, "i1": [n % 3 for n in x], "v1": [2 * n for n in x]}),
        "e": pa.table({"x": x, "p": ps, "i2": [str(n % 3) for n in x], "v2": [10 * n for n in x]}),
    }


class World:
    """A cube and its actors."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.clock = Clock()
        self.scheduler = Scheduler(settings.seed, settings.stickiness, self.clock)
        self.memory = MemoryStore()
        self.appends = [Append((0,), "done")]
        self.halfway = False
        self.told: set[Any] = set()
        self.counts: dict[str, int] = {}
        self.number = next(INCARNATIONS)
        self.numbers = itertools.count(1)

    def run(self) -> None:
        with patched(self.scheduler, self.clock, self.settings.seed), warnings.catch_warnings():
            # Of writes that stopped halfway, or seem to.
            warnings.simplefilter("ignore")
            pauses = SimpleNamespace(sleep=lambda seconds: self.scheduler.pause())
            with patch.object(consistent_read, "time", pauses), patch.object(consistent_read, "_warn", self.warned):
                build_cube(frames((0,), 0), CUBE, self.memory)
                for i in range(self.settings.actors):
                    self.scheduler.spawn(f"actor {i}", _Player(self, f"actor {i}").play)
                self.scheduler.run()
                self.check_end()

    def warned(self, *arguments: Any) -> None:
        """A reader gives up waiting for the other half of a write."""
        self.told.add(self.scheduler.actor)
        _WARN(*arguments)

    def check(self, found: list[dict[str, Any]], acknowledged: set[int]) -> None:
        """What a reader of everything saw, who began when these cells had been acknowledged."""
        xs = [row["x"] for row in found]
        assert len(xs) == len(set(xs)), "a cell is there twice"
        assert all(row["v1"] == 2 * row["x"] and row["v2"] in (None, 10 * row["x"]) for row in found)
        kept = {row["x"]: row for row in found if row["p"] in KEPT}
        lacking = [x for x, row in kept.items() if row["v2"] is None]
        assert not lacking or self.scheduler.actor in self.told, (
            f"the cells {lacking} are there without what came with them"
        )
        assert not acknowledged - set(kept), f"lost are {acknowledged - set(kept)}"
        refused = {x for a in self.appends if a.outcome == "refused" for x in a.xs}
        assert not refused & set(kept), f"{refused & set(kept)} is there although the write was refused"

    def acknowledged(self) -> set[int]:
        return {x for a in self.appends if a.outcome == "done" for x in a.xs}

    def check_end(self) -> None:
        store = ScheduledStore(self.memory, self.scheduler, Rates(), ("soak cube", self.number, "end"))
        for grace in (GRACE, timedelta(0)):
            with options(threads=1, grace=grace, retain=grace):
                cleanup_cube(CUBE, store)
                self.check(query(store), self.acknowledged())
                for condition, holds in CONDITIONS:
                    assert query(store, condition) == [row for row in query(store) if holds(row)], condition
                wrong = [f for f in verify_cube(CUBE, store, deep=True).findings if f.severity != "info"]
                assert not [f for f in wrong if not (f.check == "cube-commit" and self.halfway)], str(wrong)
            self.clock.leap(timedelta(days=30))


_WARN = consistent_read._warn

CONDITIONS: list[tuple[Any, Callable[[dict[str, Any]], bool]]] = [
    (C("i1") == 1, lambda row: row["i1"] == 1),
    (C("i2") == "1", lambda row: row["i2"] == "1"),
    ((C("p") == 0) & (C("v2") > 5), lambda row: row["p"] == 0 and row["v2"] is not None and row["v2"] > 5),
]


def query(store: Store, conditions: Any = None) -> list[dict[str, Any]]:
    return query_cube_arrow(CUBE, store, conditions).to_pylist()


class _Player:
    """One actor."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.random = Random(f"{world.settings.seed} {name}")
        self.lives = 0
        self.born()

    def born(self) -> None:
        self.lives += 1
        world = self.world
        identity = (
            ("soak cube", world.number)
            if world.settings.together
            else ("soak cube", world.number, self.name, self.lives)
        )
        self.store = ScheduledStore(world.memory, world.scheduler, world.settings.rates, identity)

    def play(self) -> None:
        with options(threads=1, grace=GRACE, retain=RETAIN, commit_retries=self.world.settings.retries):
            for _ in range(self.world.settings.writes):
                try:
                    self.random.choices([v for v, _ in VERBS], [w for _, w in VERBS])[0](self)
                except SimulatedCrash:
                    self.born()

    def cells(self) -> tuple[int, ...]:
        return tuple(next(self.world.numbers) for _ in range(self.random.randint(1, 3)))

    def written(self, kind: str, work: Callable[[], object]) -> str:
        """Carry out a write; what its caller hears."""
        heard = "unknown"
        try:
            work()
            heard = "done"
        except CubeCommitIncomplete:
            heard, self.world.halfway = "incomplete", True
        except (CommitConflict, StagedFilesLost):
            heard = "refused"
        except CommitOutcomeUnknown:
            self.world.halfway = True
        except InjectedFault:
            heard = "unknown" if self.world.settings.rates.late else "refused"
        except SimulatedCrash:
            self.world.halfway = True
            raise
        finally:
            key = f"{kind} {heard}"
            self.world.counts[key] = self.world.counts.get(key, 0) + 1
        return heard

    def append(self) -> None:
        write = Append(self.cells())
        self.world.appends.append(write)
        heard = self.written(
            "append", lambda: append_to_cube(frames(write.xs, self.random.choice(KEPT)), CUBE, self.store)
        )
        # Of an incomplete one the seed, which comes last, may have landed without an answer.
        write.outcome = "open" if heard == "incomplete" else heard

    def append_where_others_remove(self) -> None:
        self.written(
            "append beside removals",
            lambda: append_to_cube(frames(self.cells(), self.random.choice(CHANGED)), CUBE, self.store),
        )

    def update(self) -> None:
        p = self.random.choice(CHANGED)
        self.written("update", lambda: update_cube(frames(self.cells(), p), CUBE, self.store, C("p") == p))

    def remove(self) -> None:
        self.written(
            "remove", lambda: remove_partitions(CUBE, self.store, C("p") == self.random.choice(CHANGED), ["seed", "e"])
        )

    def compact(self) -> None:
        self.written("compact", lambda: compact_cube(CUBE, self.store, target_rows=self.random.choice([4, 1000])))

    def clean_up(self) -> None:
        with suppress(InjectedFault):
            cleanup_cube(CUBE, self.store)

    def read(self) -> None:
        before = self.world.acknowledged()
        self.world.told.discard(self.world.scheduler.actor)
        with suppress(InjectedFault):
            self.world.check(query(self.store), before)
            self.world.counts["reads"] = self.world.counts.get("reads", 0) + 1


VERBS: list[tuple[Callable[[_Player], None], int]] = [
    (_Player.append, 6),
    (_Player.append_where_others_remove, 1),
    (_Player.update, 1),
    (_Player.remove, 1),
    (_Player.compact, 2),
    (_Player.clean_up, 1),
    (_Player.read, 5),
]


def run_cube(seed: int) -> World:
    """One run; an error has the trace as a note."""
    settings = settings_of(seed)
    world = World(replace(settings, writes=min(settings.writes, 6)))
    try:
        world.run()
    except BaseException as error:
        error.add_note(f"seed {seed}: {json.dumps(str(world.settings))}\n" + "\n".join(world.scheduler.trace[-150:]))
        raise
    return world

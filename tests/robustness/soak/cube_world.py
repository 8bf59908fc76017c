"""Concurrent verbs on one cube over faulty stores: no reader sees half of a write."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from kartothek_cube.api.cube import C, build_cube, cleanup_cube, delete_cube, query_cube_arrow, verify_cube
from kartothek_cube.api.dataset import read_table_arrow
from kartothek_cube.core.metadata.commit_log import chain_of, pending_mark
from kartothek_cube.core.metadata.document import Document, parse_document
from kartothek_cube.core.metadata.naming import document_key
from kartothek_cube.core.runtime.options import options
from kartothek_cube.core.stores.contract import Data, Store
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import (
    AlreadyExists,
    CommitConflict,
    CommitOutcomeUnknown,
    IncompleteCubeWarning,
    MultiTableCommitAborted,
    StagedFilesLost,
)
from kartothek_cube.testing.stores import InjectedFault
from tests.robustness.soak import cube_players
from tests.robustness.soak.cube_model import CUBE, Ledger, View, Write, first_rows, view_of, view_of_one
from tests.robustness.soak.dataset_world import Settings, settings_of
from tests.robustness.soak.scheduler import INCARNATIONS, Rates, ScheduledStore, Scheduler
from tests.robustness.soak.world import Clock, patched

GRACE, RETAIN = timedelta(hours=1), timedelta(hours=5)
# Steps of the scheduler that a writer waits for another one: from an abort of everybody who lives
# to none.
PATIENCES = (0, 0, 3, 15, 60, 300)


@dataclass(frozen=True)
class CubeSettings:
    """What a cube's run has more than one of a dataset."""

    base: Settings
    patience: int = 15
    # Versions that follow from the content, as ETags do: the same content has the same one.
    etags: bool = False
    foreign: bool = False
    deletes: bool = False


class ETagStore(MemoryStore):
    """A memory store with ETags."""

    def _set(self, key: str, data: Data) -> Any:
        super()._set(key, data)
        tag = hashlib.sha256(bytes(data)).hexdigest()
        stored = self._space.objects[key]
        self._space.objects[key] = replace(stored, version=tag)  # type: ignore[arg-type]
        return tag


class World:
    """A cube, its actors, and what they wrote."""

    def __init__(self, settings: CubeSettings) -> None:
        self.settings = settings
        self.clock = Clock()
        self.scheduler = Scheduler(settings.base.seed, settings.base.stickiness, self.clock)
        self.memory = ETagStore() if settings.etags else MemoryStore()
        self.model = Ledger()
        self.counts: dict[str, int] = {}
        self.number = next(INCARNATIONS)
        self.moments: list[datetime] = []
        self.numbers = itertools.count(1)
        self.is_deleting = False
        self._busy, self._is_closed = 0, False

    def run(self) -> None:
        with patched(self.scheduler, self.clock, self.settings.base.seed), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", IncompleteCubeWarning)
            with patch.object(warnings, "showwarning", self.warned):
                self._play()

    def _play(self) -> None:
        self._fill()
        for i in range(self.settings.base.actors):
            self.scheduler.spawn(f"actor {i}", cube_players.Player(self, f"actor {i}").play)
        self.scheduler.run()
        self.check_end()

    def warned(self, message: Warning | str, *arguments: Any, **more: Any) -> None:
        """A reader does not know what became of a write: only writers without records are to
        blame.
        """
        self.count("warnings")
        if not self.model.is_damaged:
            self.scheduler.failure = AssertionError(f"a warning, but no foreign writer was there: {message}")
            raise self.scheduler.failure

    def _fill(self) -> None:
        for key, data in _first_objects():
            self.memory.put(key, data)
        self.moments.append(self.clock.now)

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    # --- what is under way

    @contextmanager
    def busy(self) -> Iterator[None]:
        """A verb at work. It begins when nobody needs the world for himself."""
        while self._is_closed:
            self.scheduler.pause()
        self._busy += 1
        try:
            yield
        finally:
            self._busy -= 1

    @contextmanager
    def alone(self) -> Iterator[bool]:
        """Wait until all others have finished their verbs, and let none begin; False if another one
        waits already.
        """
        if self._is_closed:
            yield False
            return
        self._is_closed = True
        try:
            while self._busy:
                self.scheduler.pause()
            yield True
        finally:
            self._is_closed = False

    def document(self, dataset: str) -> Document | None:
        """The document in the store, whatever readers see of it."""
        key = document_key(CUBE.ktk_dataset_uuid(dataset))
        return parse_document(self.memory.get(key), key) if self.memory.contains(key) else None

    def commits(self, dataset: str) -> list[str]:
        document = self.document(dataset)
        return [] if document is None else [c.id for c in chain_of(document.metadata)]

    def is_pending(self) -> bool:
        """Whether a write to several datasets is under way, or stopped."""
        documents = [self.document(d) for d in ("e", "f", "g", "h")]
        return any(document is not None and pending_mark(document) for document in documents)

    def has_open_write(self) -> bool:
        """Whether the steps of a write to several datasets may not be complete."""
        writes = self.model.writes.values()
        return self.is_pending() or any(w.outcome == "open" and len(w.datasets) > 1 for w in writes)

    # --- writes

    @contextmanager
    def writing(self, kind: str, datasets: tuple[str, ...]) -> Iterator[Write]:
        """Note what the caller of a write hears, and check what was seen of it."""
        write = Write(next(self.numbers), kind, datasets, self.scheduler.steps, self.clock.now)
        self.model.writes[write.number] = write
        self.scheduler.note(f"begins {kind} {write.number} of {datasets}")
        # Many datasets: an abort is certain, also of a put that is under way.
        certain = len(datasets) > 1 or not self.settings.base.rates.late
        heard = "unknown"
        try:
            yield write
            heard = "done"
        except (CommitConflict, StagedFilesLost, MultiTableCommitAborted, AlreadyExists) as error:
            heard = "refused"
            self.scheduler.note(f"refused: {error}")
        except CommitOutcomeUnknown:
            pass
        except InjectedFault:
            heard = "refused" if certain else "unknown"
        finally:
            write.outcome, write.ended, write.until = heard, self.scheduler.steps, self.clock.now
            self.scheduler.note(f"ends {kind} {write.number}: {heard}")
            self.count(f"{kind} {'of many ' if len(datasets) > 1 else ''}{heard}")
            self.moments.append(self.clock.now)
            seen = write.number in self.model.seen and not self.model.is_damaged
            assert heard != "refused" or not seen, f"{write} was seen, but its caller heard that it was refused"

    # --- the end

    def check_end(self) -> None:
        """Afterwards everything is whole, and stays so when what nobody needs is removed."""
        store = ScheduledStore(self.memory, self.scheduler, Rates(), ("soak cube", self.number, "end"))
        none = timedelta(0)
        for deletion in self.model.deletions:
            if deletion.ended is None:  # it was interrupted: it is to be repeated
                delete_cube(CUBE, store, deletion.datasets)
        views = [self._read_all(store)]
        for grace in (GRACE, none):
            self.clock.leap(timedelta(days=30))
            with options(threads=1, grace=grace, retain=grace):
                cleanup_cube(CUBE, store)
                views.append(self._read_all(store))
                if not self.model.is_damaged:
                    self._check_verified(store)
        assert all(view == views[0] for view in views), "cleaning up changes answers"
        assert self.model.is_damaged or not self.is_pending(), "something is pending after cleaning up"

    def _check_verified(self, store: Store) -> None:
        findings = verify_cube(CUBE, store, deep=True).findings
        excused = {"schema-drift", *(("index-values", "foreign-commit") if self.model.foreign else ())}
        wrong = [f for f in findings if f.severity != "info" and f.check not in excused]
        assert not wrong, str(wrong)

    def _read_all(self, store: Store) -> View:
        with options(threads=1, grace=GRACE, retain=RETAIN):
            begun, must_see = self.scheduler.steps, self.model.must_see()
            rows = query(store)
            view = view_of(rows)
            self.model.check_newest(view, must_see, begun)
            for dataset in ("seed", "e", "f"):
                self.model.check_newest(read_one(store, dataset), must_see, begun)
            for condition, holds in CONDITIONS:
                assert query(store, condition) == [row for row in rows if holds(row)], condition
            return view


CONDITIONS: list[tuple[Any, Callable[[dict[str, Any]], bool]]] = [
    (C("i1") == 1, lambda row: row["i1"] == 1),
    (C("i2") == "1", lambda row: row["i2"] == "1"),
    ((C("p") == 9) & (C("v2") > 5), lambda row: row["p"] == 9 and row["v2"] is not None and row["v2"] > 5),
]


def query(store: Store, conditions: Any = None, **more: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = query_cube_arrow(CUBE, store, conditions, **more).to_pylist()
    return rows


def read_one(store: Store, dataset: str, **more: Any) -> View:
    return view_of_one(dataset, read_table_arrow(CUBE.ktk_dataset_uuid(dataset), store, **more))


_FIRST: list[tuple[str, bytes]] = []


def _first_objects() -> list[tuple[str, bytes]]:
    """The objects of the cube before all writes, made once by a process."""
    if not _FIRST:
        clock, store = Clock(), MemoryStore()
        clock.leap(-timedelta(minutes=1))
        with patched(Scheduler(0, 0.0, clock), clock, -1), options(threads=1):
            build_cube(first_rows(), CUBE, store)
        _FIRST.extend((key, store.get(key)) for key in store.list(recursive=True).keys)
    return _FIRST


def cube_settings_of(seed: int) -> CubeSettings:
    """A run that a seed stands for."""
    base, random = settings_of(seed), Random(f"cube settings {seed}")
    small = random.random() < 0.5
    base = dataclasses.replace(
        base,
        actors=random.randint(2, 3) if small else base.actors,
        writes=random.randint(1, 3) if small else min(base.writes, 6),
    )
    return CubeSettings(
        base,
        patience=random.choice(PATIENCES),
        etags=random.random() < 0.5,
        foreign=random.random() < 0.25,
        deletes=random.random() < 0.25 and not base.rates.late,
    )


def run_cube(seed: int) -> World:
    """One run; an error has the trace as a note."""
    world = World(cube_settings_of(seed))
    try:
        world.run()
    except BaseException as error:
        error.add_note(f"seed {seed}: {json.dumps(str(world.settings))}\n" + "\n".join(world.scheduler.trace[-300:]))
        raise
    return world

"""Concurrent verbs on one dataset over faulty stores, held against a serial history."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from msgspec.structs import replace

from kartothek_cube.api.dataset import (
    compact_dataset,
    delete_rows,
    garbage_collect_dataset,
    merge_dataset,
    read_table_arrow,
    store_dataframes_as_dataset,
    stream_table,
    undo,
    update_dataset_from_dataframes,
    update_rows,
    verify_dataset,
)
from kartothek_cube.core.commit import commit as commit_module
from kartothek_cube.core.commit.commit import PendingCommit
from kartothek_cube.core.io.parquet_rows import read_columns
from kartothek_cube.core.io.reader import FileRequest, read_rows
from kartothek_cube.core.metadata.commit_log import chain_of
from kartothek_cube.core.metadata.document import Document, parse_document, render_document
from kartothek_cube.core.metadata.index import index_from_table
from kartothek_cube.core.metadata.naming import document_key
from kartothek_cube.core.metadata.statistics import STATISTICS_KEY
from kartothek_cube.core.runtime.options import Overrides, options
from kartothek_cube.core.snapshots.loader import load_snapshot
from kartothek_cube.core.snapshots.time_travel import states
from kartothek_cube.core.stores.contract import Store, StoreView
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import (
    AlreadyExists,
    CommitConflict,
    CommitOutcomeUnknown,
    DatasetNotFound,
    HistoryUnavailable,
    InvalidInput,
    KeyNotFound,
    StagedFilesLost,
)
from kartothek_cube.testing.stores import InjectedFault, SimulatedCrash
from tests.robustness.soak.model import NAMES, Order, Row, State, applied
from tests.robustness.soak.scheduler import INCARNATIONS, Rates, ScheduledStore, Scheduler
from tests.robustness.soak.world import Clock, patched

UUID = "uuid"
DOCUMENT = document_key(UUID)
TYPES = {"i1": pa.int64(), "i2": pa.string()}
GRACE, RETAIN = timedelta(hours=1), timedelta(hours=5)
# The time of a commit is when it was tried, not when it landed.
SLACK = timedelta(minutes=1)
# Some writes take longer than the grace period; but no attempt to commit does.
LEAPS = (timedelta(minutes=20), timedelta(minutes=50), timedelta(hours=2))


@dataclass
class Version:
    """One stored document."""

    state: State
    commits: tuple[str, ...]
    named: frozenset[str]
    indices: frozenset[str]
    since: datetime
    until: datetime | None = None


@dataclass(frozen=True)
class Settings:
    """One run: who takes part, what may fail."""

    seed: int
    actors: int = 4
    writes: int = 6
    together: bool = False
    rates: Rates = field(default_factory=Rates)
    stickiness: float = 0.5
    leaps: float = 0.1
    retries: int = 10
    rows: bool = False


def settings_of(seed: int) -> Settings:
    """A run that a seed stands for."""
    random = Random(f"settings {seed}")
    kind = random.choice(["calm", "faulty", "crashing", "late", "wild"])
    rate = random.choice([0.01, 0.03])
    rates = {
        "calm": Rates(delayed=0.2),
        "faulty": Rates(before=rate, after=rate, delayed=0.1),
        "crashing": Rates(crash=rate, delayed=0.1),
        "late": Rates(before=rate / 2, late=rate, delayed=0.1),
        "wild": Rates(rate, rate, rate, rate / 2, 0.1),
    }[kind]
    return Settings(
        seed,
        actors=random.randint(2, 6),
        writes=random.randint(2, 12),
        together=random.random() < 0.4,
        rates=rates,
        stickiness=random.choice([0.0, 0.5, 0.9, 0.97]),
        leaps=random.choice([0.0, 0.1, 0.5]),
        retries=random.choice([0, 3, 10, 25]),
    )


class Recorder(StoreView):
    """The store below all actors: it checks every document that is put, and every key that is
    deleted.
    """

    def __init__(self, inner: Store, world: World) -> None:
        super().__init__(inner)
        self._world = world

    def around(self, operation: str, key: str, action: Callable[[], Any]) -> Any:
        answer = action()
        try:
            if key == DOCUMENT and operation in ("put", "put_if", "put_file", "copy"):
                self._world.document_put(self.inner.get(key))
            elif operation == "delete":
                self._world.deleted(key)
        except AssertionError as failure:
            self._world.scheduler.failure = failure
            raise
        return answer


class World:
    """A dataset, its actors, and the history that it must have."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.clock = Clock()
        self.scheduler = Scheduler(settings.seed, settings.stickiness, self.clock)
        self.memory = MemoryStore()
        self.store = Recorder(self.memory, self)
        self.versions: list[Version] = []
        self.states: dict[str, State] = {}
        self.orders: dict[str, Order] = {}
        self.done: list[Order] = []
        self.counts: dict[str, int] = {}
        self._rows = itertools.count(1)
        self._order: dict[str, Order] = {}
        self._committing = 0
        self.number = next(INCARNATIONS)

    # --- what the store below tells

    def document_put(self, data: bytes) -> None:
        document = parse_document(data, DOCUMENT)
        chain = [c.id for c in chain_of(document.metadata)]
        new = [commit for commit in chain if commit not in self.states]
        state = self.versions[-1].state if self.versions else State()
        for commit in new:
            order = self.orders.get(commit)
            assert order is not None, f"nobody asked for commit {commit}"
            assert order.outcome in ("open", "unknown"), (
                f"{order.kind} {commit} landed although its caller heard {order.outcome}"
            )
            base = None if order.base is None else self.states[order.base.chain[-1].id]
            state = self.states[commit] = applied(order, state, base, self.states)
        if not new:
            self._check_only_statistics(document, chain)
            return
        assert document.partitions is not None
        assert document.partitions.labels.to_pylist() == list(state.partitions), (
            "partitions or their order differ from the serial history"
        )
        assert {k: v for k, v in document.user_metadata.items() if k != "creation_time"} == state.metadata
        named = frozenset(key for keys in document.partitions.files.values() for key in keys.to_pylist())
        indices = frozenset(map(str, document.indices.values()))
        missing = [key for key in named | indices if not self.memory.contains(key)]
        assert not missing, f"a document names files that are not there: {missing}"
        self._check_indices(document, state)
        if self.versions:
            # History entries say when their commit was made, which is a little before it landed.
            self.versions[-1].until = self.clock.now
        self.document, self.chain = document, chain
        self.versions.append(Version(state, tuple(new), named, indices, self.clock.now))

    def _check_only_statistics(self, document: Document, chain: list[str]) -> None:
        """Garbage collection drops statistics of files that it removes, without a commit."""
        parts = [replace(d, metadata={**d.metadata, STATISTICS_KEY: ""}) for d in (document, self.document)]
        assert chain == self.chain, "a document came back"
        assert render_document(parts[0]) == render_document(parts[1]), "a document changed without a commit"
        assert document.metadata != self.document.metadata, "a document came back"
        self.document = document

    def _check_indices(self, document: Document, state: State) -> None:
        assert set(document.indices) == set(TYPES)
        for column, key in document.indices.items():
            index = index_from_table(read_columns(self.memory, str(key), UUID)[0], column, TYPES[column], str(key))
            found = sorted(zip(index.values.to_pylist(), index.labels.to_pylist(), strict=True))
            at = NAMES.index(column)
            assert found == sorted({(row[at], label) for label, rows in state.partitions.items() for row in rows}), (
                f"the index on {column} is wrong"
            )

    def deleted(self, key: str) -> None:
        for version in reversed(self.versions):
            age = timedelta(0) if version.until is None else self.clock.now - version.until
            assert key not in version.named or (version.until is not None and age + SLACK >= RETAIN), (
                f"{key} is deleted, but {age} ago it was named"
            )
            assert key not in version.indices or (version.until is not None and age + SLACK >= GRACE), (
                f"index {key} is deleted, but {age} ago it was named"
            )
        assert key != DOCUMENT

    # --- what the queue tells

    def group_commit(self, key: Any, pending: PendingCommit, work: Any, *, waits: bool) -> Any:
        actor = self.scheduler.actor
        assert actor is not None
        order = self._order[actor.name]
        assert order.change is None, "only rows are found again"
        order.change, order.base = pending.change, pending.base
        self.orders[pending.change.commit] = order
        self._committing += 1
        try:
            return _GROUP_COMMIT(key, pending, work, waits=waits)
        except CommitConflict:
            if order.edit is not None:
                # The rows may be found again, in another change or none.
                order.change = None
            raise
        finally:
            self._committing -= 1

    def leap(self, time: timedelta) -> None:
        if not self._committing:
            self.clock.leap(time)

    # --- the run

    def run(self) -> None:
        with (
            patched(self.scheduler, self.clock, self.settings.seed),
            patch.object(commit_module, "group_commit", self.group_commit),
        ):
            for i in range(self.settings.actors):
                name = f"actor {i}"
                self.scheduler.spawn(name, lambda name=name: _Player(self, name).play())
            self.scheduler.run()
            self.check_end()

    def fresh_rows(self, random: Random, ps: Sequence[str] = "abc") -> tuple[Row, ...]:
        return tuple(
            (next(self._rows), random.choice(ps), random.randrange(3), random.choice("uv"))
            for _ in range(random.randint(1, 3))
        )

    @contextmanager
    def ordered(self, order: Order) -> Iterator[None]:
        """Run a write and note what its caller hears."""
        actor = self.scheduler.actor
        assert actor is not None
        self._order[actor.name] = order
        late, begun = self.settings.rates.late > 0, self.clock.now
        try:
            self.scheduler.note(f"begins {order.kind} {order.scopes} {len(order.rows)} rows")
            yield
            order.outcome = "done"
        except (CommitConflict, StagedFilesLost, AlreadyExists) as error:
            order.outcome = f"refused: {error}"
        except CommitOutcomeUnknown:
            order.outcome = "unknown"
        except KeyNotFound as error:
            assert self.clock.now - begun > GRACE, "a file is missing"
            order.outcome = f"too slow: {error}"
        except InjectedFault as error:
            order.outcome = "unknown" if late else f"failed: {error}"
        except SimulatedCrash:
            order.outcome = "unknown"
            raise
        finally:
            landed = order.change is not None and order.change.commit in self.states
            told = order.outcome.partition(":")[0]
            self.counts[f"{order.kind} {told}"] = self.counts.get(f"{order.kind} {told}", 0) + 1
            self.scheduler.note(f"ends {order.kind} {order.outcome}")
            if order.outcome == "done" and order.change is not None:
                assert landed, f"{order.kind} was acknowledged and is not there"
            elif order.outcome != "unknown":
                assert not landed, f"{order.kind} landed, but its caller heard: {order.outcome}"

    def check_end(self) -> None:
        """Afterwards everything is whole, and what nobody needs can be removed."""
        if not self.versions:
            return
        last = self.versions[-1].state
        store = ScheduledStore(self.store, self.scheduler, Rates(), ("soak", self.number, "end"))
        with options(threads=1, grace=GRACE, retain=RETAIN):
            self._check_whole(store, last)
            kept = self._check_history(store)
            self.counts["states found by going back"] = kept
        with options(threads=1, grace=timedelta(0), retain=timedelta(0)):
            self.clock.leap(timedelta(days=30))
            garbage_collect_dataset(UUID, store)
            self._check_whole(store, last)
        named = self.versions[-1].named | self.versions[-1].indices | {DOCUMENT, f"{UUID}/table/_common_metadata"}
        assert set(self.memory.list(recursive=True).keys) == named, "garbage collection leaves something"

    def _check_whole(self, store: Store, last: State) -> None:
        report = verify_dataset(UUID, store, deep=True)
        assert report.clean, str(report)
        assert read(store) == last.rows
        for predicate, holds in PREDICATES:
            assert read(store, predicate) == last.where(holds), predicate

    def _check_history(self, store: Store) -> int:
        """Going back gives the states of the serial history, as far as history is kept."""
        order = [commit for version in self.versions for commit in version.commits]
        snapshot = load_snapshot(store, UUID)
        found = list(states(store, snapshot))
        oldest = min(
            (
                version.since
                for version in self.versions
                if version.until is None or self.clock.now - version.until < RETAIN / 2
            ),
            default=None,
        )
        for state, commit in zip(found, reversed(order), strict=False):
            assert state.commit == commit, "history has another order than the documents"
            assert state.document.partitions is not None
            assert state.document.partitions.labels.to_pylist() == list(self.states[commit].partitions), (
                f"going back to {commit} gives other partitions"
            )
        wanted = sum(len(v.commits) for v in self.versions if oldest is not None and v.since >= oldest)
        assert len(found) >= wanted, f"history is kept for {len(found)} states of {wanted}"
        return len(found)


_GROUP_COMMIT = commit_module.group_commit

PREDICATES: list[tuple[Any, Callable[[Row], bool]]] = [
    ([[("p", "==", "a")]], lambda row: row[1] == "a"),
    ([[("i1", "==", 1)]], lambda row: row[2] == 1),
    ([[("i1", ">", 0), ("i2", "==", "u")]], lambda row: row[2] > 0 and row[3] == "u"),
    ([[("i2", "!=", "u")], [("p", "in", ["b"])]], lambda row: row[3] != "u" or row[1] == "b"),
]


def read(store: Store, predicates: Any = None, **more: Any) -> list[Row]:
    return rows_of(read_table_arrow(UUID, store, predicates=predicates, **more))


def rows_of(table: pa.Table) -> list[Row]:
    columns = table.select([*NAMES, "v1"]).to_pydict()
    assert columns["v1"] == [2 * x for x in columns["x"]], "a row is not what was written"
    return sorted(zip(*(columns[name] for name in NAMES), strict=True))


def frame(rows: Sequence[Row]) -> pa.Table:
    columns = list(zip(*rows, strict=True))
    return pa.table({**dict(zip(NAMES, map(list, columns), strict=True)), "v1": [2 * x for x in columns[0]]})


def update(store: Store, order: Order, on_conflict: str = "raise", label: str | None = None) -> None:
    data = (
        []
        if not order.rows
        else [frame(order.rows)]
        if label is None
        else [{"label": label, "data": [("table", frame(order.rows))]}]
    )
    update_dataset_from_dataframes(
        data,
        store,
        UUID,
        delete_scope=list(order.scopes),
        metadata=dict(order.metadata),
        partition_on=["p"],
        secondary_indices=sorted(TYPES),
        on_conflict=on_conflict,
    )


RULES = ("raise", "reapply")


class _Player:
    """One actor: a process, or with ``together`` a thread of one."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.random = Random(f"{world.settings.seed} {name}")
        self.lives = 0
        self.born()

    def born(self) -> None:
        self.lives += 1
        world = self.world
        identity = ("soak", world.number) if world.settings.together else ("soak", world.number, self.name, self.lives)
        self.store = ScheduledStore(world.store, world.scheduler, world.settings.rates, identity)

    def play(self) -> None:
        settings = self.world.settings
        verbs = [*VERBS, *(ROW_VERBS if settings.rows else ())]
        with self.options():
            for _ in range(settings.writes):
                if settings.leaps and self.random.random() < settings.leaps:
                    self.world.leap(self.random.choice(LEAPS))
                try:
                    self.random.choices([v for v, _ in verbs], [w for _, w in verbs])[0](self)
                except SimulatedCrash:
                    self.born()

    def options(self) -> Overrides:
        return options(threads=1, grace=GRACE, retain=RETAIN, commit_retries=self.world.settings.retries)

    # --- writers

    def metadata(self) -> dict[str, Any]:
        return {self.random.choice("mno"): self.random.randrange(100)} if self.random.random() < 0.3 else {}

    def append(self) -> None:
        order = Order("append", self.world.fresh_rows(self.random), metadata=self.metadata())
        with self.world.ordered(order):
            update(self.store, order)

    def scope(self) -> tuple[dict[str, Any], ...]:
        choices: list[dict[str, Any]] = [
            {"p": self.random.choice("abc")},
            {"i1": self.random.randrange(3)},
            {"p": self.random.choice("abc"), "i2": "u"},
        ]
        return tuple(self.random.sample(choices, self.random.choice([1, 1, 2])))

    def replace_scope(self) -> None:
        order = Order("update", self.world.fresh_rows(self.random), self.scope(), self.metadata())
        with self.world.ordered(order):
            update(self.store, order, self.random.choice(RULES))

    def remove(self) -> None:
        order = Order("remove", (), self.scope(), self.metadata())
        with self.world.ordered(order), _absent():
            update(self.store, order, self.random.choice(RULES))

    def relabel(self) -> None:
        order = Order("replace by label", self.world.fresh_rows(self.random, self.random.choice("abc")))
        with self.world.ordered(order):
            update(self.store, order, self.random.choice(RULES), label="fixed")

    def overwrite(self) -> None:
        order = Order("overwrite", self.world.fresh_rows(self.random), metadata=self.metadata())
        with self.world.ordered(order):
            store_dataframes_as_dataset(
                self.store,
                UUID,
                [frame(order.rows)],
                partition_on=["p"],
                secondary_indices=sorted(TYPES),
                overwrite=True,
                metadata=dict(order.metadata),
                on_conflict=self.random.choice(RULES),
            )

    def compact(self) -> None:
        order = Order("compact")
        predicates = self.random.choice([None, None, [[("p", "==", "a")]]])
        with self.world.ordered(order), _absent():
            compact_dataset(UUID, self.store, target_rows=self.random.choice([4, 10, 1000]), predicates=predicates)

    def delete_rows(self) -> None:
        predicate, holds = self.random.choice(PREDICATES)
        order = Order("delete rows", edit=lambda row: None if holds(row) else row)
        with self.world.ordered(order), _absent():
            delete_rows(UUID, self.store, predicate, on_conflict=self.random.choice(RULES))

    def update_rows(self) -> None:
        predicate, holds = self.random.choice(PREDICATES)
        column, value = self.random.choice([("i1", 1), ("i2", "u"), ("p", "c"), ("p", "a")])
        at = NAMES.index(column)
        order = Order("update rows", edit=lambda row: (*row[:at], value, *row[at + 1 :]) if holds(row) else row)
        with self.world.ordered(order), _absent():
            update_rows(UUID, self.store, predicate, {column: value}, on_conflict=self.random.choice(RULES))

    def merge(self) -> None:
        known = self.world.versions[-1].state.rows if self.world.versions else []
        keys = sorted({row[0] for row in known})
        old = self.random.sample(keys, min(len(keys), self.random.randint(0, 3)))
        source = {row[0]: row for row in self.world.fresh_rows(self.random)}
        source |= {x: (x, self.random.choice("abc"), self.random.randrange(3), "u") for x in old}
        order = Order("merge", tuple(source.values()), edit=lambda row: source.get(row[0], row))
        with self.world.ordered(order), _absent():
            merge_dataset(frame(order.rows), self.store, UUID, "x", on_conflict=self.random.choice(RULES))

    def undo(self) -> None:
        commits = [commit for version in self.world.versions[-6:] for commit in version.commits]
        if not commits:
            return
        order = Order("undo", target=self.random.choice(commits))
        with self.world.ordered(order), _absent():
            try:
                undo(UUID, self.store, order.target)
            except (InvalidInput, KeyNotFound):
                # History does not reach back so far, or it was the first one.
                assert order.change is None

    def collect(self) -> None:
        try:
            report = garbage_collect_dataset(UUID, self.store)
            self.count("keys collected", len(report.removed))
        except (DatasetNotFound, InjectedFault):
            pass

    # --- readers

    def count(self, what: str, n: int = 1) -> None:
        self.world.counts[what] = self.world.counts.get(what, 0) + n

    def read(self) -> None:
        predicate, holds = self.random.choice([(None, lambda row: True), *PREDICATES])
        first = max(0, len(self.world.versions) - 1)
        found = self._asked(lambda: read(self.store, predicate))
        if found is not None:
            self.count("reads")
            states = self.world.versions[first:]
            assert any(found == version.state.where(holds) for version in states), (
                f"a reader saw {found}, and not one state of {len(states)}"
            )

    def _asked(self, question: Callable[[], Any], begun: datetime | None = None) -> Any:
        """The answer; None if there is no dataset yet, the store fails, or the reader took longer
        than what is kept.
        """
        before, begun = len(self.world.versions), begun or self.world.clock.now
        try:
            return question()
        except DatasetNotFound:
            assert not before
        except InjectedFault:
            pass
        except SimulatedCrash:
            raise
        except KeyNotFound:
            # Indices of older snapshots are kept for the time of grace.
            assert self.world.clock.now - begun > GRACE / 2
        except HistoryUnavailable:
            assert self.world.clock.now - begun > RETAIN / 2
        except Exception:
            # Arrow wraps what a stream of batches raises.
            if not self.store.dead and not self.store.faults:
                raise
        return None

    def read_slowly(self) -> None:
        """Plans now, reads later."""
        snapshot = self._asked(lambda: load_snapshot(self.store, UUID))
        if snapshot is None:
            return
        state, begun = self.world.states[snapshot.chain[-1].id], self.world.clock.now
        for _ in range(self.random.randrange(60)):
            self.world.scheduler.pause()
        request = FileRequest(UUID, snapshot.schema, (*NAMES, "v1"))
        tables = self._asked(lambda: [self._part(snapshot, request, i) for i in range(len(snapshot.partitions))], begun)
        if tables is None or self.world.clock.now - begun > RETAIN / 2:
            return
        self.count("slow reads")
        assert sorted(row for table in tables for row in rows_of(table)) == state.rows

    def _part(self, snapshot: Any, request: FileRequest, i: int) -> pa.Table:
        return read_rows(self.store, snapshot.files[i].as_py(), request, {"p": snapshot.values.column("p")[i].as_py()})

    def stream(self) -> None:
        first = max(0, len(self.world.versions) - 1)
        found = self._asked(lambda: (stream_table(UUID, self.store), len(self.world.versions)))
        if found is None:
            return
        reader, last = found
        begun = self.world.clock.now
        for _ in range(self.random.randrange(20)):
            self.world.scheduler.pause()
        rows = self._asked(lambda: rows_of(reader.read_all()), begun)
        if rows is not None:
            self.count("streams")  # planned at once, read late
            assert any(rows == version.state.rows for version in self.world.versions[first:last])

    def read_as_of(self) -> None:
        young = [v for v in self.world.versions if v.until is None or self.world.clock.now - v.until < RETAIN / 2]
        commits = [commit for version in young for commit in version.commits]
        if not commits:
            return
        commit = self.random.choice(commits)
        found = self._asked(lambda: read(self.store, as_of=commit))
        if found is not None:
            self.count("reads as of")
            assert found == self.world.states[commit].rows, f"as of {commit}"

    def verify(self) -> None:
        before, begun = len(self.world.versions), self.world.clock.now
        report = self._asked(lambda: verify_dataset(UUID, self.store, deep=True))
        # Replaced data files are only kept for `retain`.
        if report is not None and not self.store.faults and self.world.clock.now - begun <= RETAIN / 2:
            self.count("verifications")
            # Who commits all the time may leave it no quiet look.
            assert report.clean if before == len(self.world.versions) else report.ok, str(report)


@contextmanager
def _absent() -> Iterator[None]:
    """There may be nothing to change yet."""
    try:
        yield
    except (DatasetNotFound, InvalidInput, KeyNotFound) as error:
        if not isinstance(error, DatasetNotFound) and "does not exist" not in str(error):
            raise


VERBS: list[tuple[Callable[[_Player], None], int]] = [
    (_Player.append, 6),
    (_Player.replace_scope, 4),
    (_Player.remove, 2),
    (_Player.relabel, 1),
    (_Player.overwrite, 1),
    (_Player.compact, 3),
    (_Player.undo, 3),
    (_Player.collect, 3),
    (_Player.read, 3),
    (_Player.read_slowly, 2),
    (_Player.stream, 1),
    (_Player.read_as_of, 2),
    (_Player.verify, 1),
]

ROW_VERBS: list[tuple[Callable[[_Player], None], int]] = [
    (_Player.delete_rows, 3),
    (_Player.update_rows, 5),
    (_Player.merge, 7),
]


def run_rows(seed: int) -> World:
    """One run in which rows are changed, too."""
    return run_dataset(seed, rows=True)


def run_dataset(seed: int, *, rows: bool = False) -> World:
    """One run; an error has the trace as a note."""
    world = World(dataclasses.replace(settings_of(seed), rows=rows))
    try:
        world.run()
    except BaseException as error:
        error.add_note(f"seed {seed}: {json.dumps(str(world.settings))}\n" + "\n".join(world.scheduler.trace[-150:]))
        raise
    return world

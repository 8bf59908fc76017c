"""The actors of the soaked cube: writers, readers, collectors of garbage, foreign writers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kartothek_cube.api.cube import (
    C,
    append_to_cube,
    build_cube_index,
    cleanup_cube,
    compact_cube,
    delete_cells,
    delete_cube,
    drop_cube_index,
    extend_cube,
    iter_cube,
    plan_cube_query,
    query_cube_arrow,
    remove_partitions,
    run_plan,
    stream_cube,
    update_cube,
    verify_cube,
)
from kartothek_cube.api.dataset import compact_dataset, garbage_collect_dataset
from kartothek_cube.core.io.formats import ParquetFormat
from kartothek_cube.core.metadata.commit_log import LEDGER_KEY, MARK_KEY
from kartothek_cube.core.metadata.naming import document_key, new_id
from kartothek_cube.core.runtime.options import Overrides, options
from kartothek_cube.errors import (
    CommitConflict,
    DatasetNotFound,
    HistoryUnavailable,
    InvalidInput,
    KeyNotFound,
)
from kartothek_cube.testing.stores import InjectedFault, SimulatedCrash
from tests.robustness.soak.cube_model import (
    CELL_PARTITIONS,
    CUBE,
    MADE,
    REGISTERS,
    SLOT_PARTITION,
    View,
    Write,
    added_rows,
    rows_of,
    view_of,
)
from tests.robustness.soak.scheduler import ScheduledStore

if TYPE_CHECKING:
    from tests.robustness.soak.cube_world import World

SETS = (("seed", "e", "f"), ("seed", "e"), ("e", "f"), ("seed",), ("e",), ("f",))
LEAPS = (timedelta(minutes=20), timedelta(hours=2), timedelta(hours=6))
PAST = (HistoryUnavailable,)


class Player:
    """One actor: a process, or with ``together`` a thread of one."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.random = Random(f"{world.settings.base.seed} {name}")
        self.lives = 0
        self.born()

    def born(self) -> None:
        self.lives += 1
        world = self.world
        own = () if world.settings.base.together else (self.name, self.lives)
        identity = ("soak cube", world.number, *own)
        self.store = ScheduledStore(world.memory, world.scheduler, world.settings.base.rates, identity)

    def play(self) -> None:
        settings = self.world.settings
        verbs = [*VERBS, *(FOREIGN if settings.foreign else ()), *(DELETES if settings.deletes else ())]
        with self.options():
            for _ in range(settings.base.writes):
                verb = self.random.choices([v for v, _ in verbs], [w for _, w in verbs])[0]
                with suppress(SimulatedCrash):
                    if verb in ALONE:
                        verb(self)
                    else:
                        with self.world.busy():
                            verb(self)
                if self.store.dead:
                    self.born()

    def options(self, grace: timedelta = timedelta(hours=1), retain: timedelta = timedelta(hours=5)) -> Overrides:
        settings = self.world.settings
        patience = timedelta(seconds=settings.patience)
        return options(threads=1, grace=grace, retain=retain, patience=patience, commit_retries=settings.base.retries)

    def begins(self, what: str) -> None:
        self.world.scheduler.note(f"begins {what}")

    # --- writers

    def append(self) -> None:
        datasets = self.random.choice(SETS)
        with self.world.writing("append", datasets) as write:
            append_to_cube(added_rows(write, self.random.choice(CELL_PARTITIONS)), CUBE, self.store)

    def update(self) -> None:
        x, (p, datasets) = self.random.choice(list(REGISTERS.items()))
        with self.world.writing(f"update {x}", datasets) as write:
            rows = {d: rows_of(d, [(x, p, write.number)]) for d in datasets}
            update_cube(rows, CUBE, self.store, C("p") == p, datasets)

    def remove(self) -> None:
        x, (p, datasets) = self.random.choice(list(REGISTERS.items()))
        with self.world.writing(f"update {x}", datasets):
            remove_partitions(CUBE, self.store, C("p") == p, datasets)

    def extend(self) -> None:
        if self.world.is_deleting:  # what is being deleted is not to be written
            return
        with self.world.writing("extend", MADE) as write:
            rows = {d: rows_of(d, [(-1, SLOT_PARTITION, write.number)]) for d in MADE}
            extend_cube(rows, CUBE, self.store, overwrite=True, on_conflict=self.random.choice(["raise", "reapply"]))

    def delete_cells(self) -> None:
        model = self.world.model
        cells = [
            n for n, w in model.writes.items() if w.is_acknowledged and w.kind == "append" and "seed" in w.datasets
        ]
        if cells:
            number = self.random.choice(cells)
            model.deleted.add(number)
            with self.world.writing("delete cells", ("seed", "e", "f")):
                delete_cells(CUBE, self.store, C("x") == number)

    def index(self) -> None:
        """Indices in both enrichments go and come, in one write."""
        with self.world.writing("index", ("seed", "e")), suppress(InvalidInput):
            change = self.random.choice([build_cube_index, drop_cube_index])
            change(CUBE, self.store, ["v1", "v2"])

    def compact(self) -> None:
        with self.world.writing("compact", ("one",)):
            if self.random.random() < 0.5:
                compact_cube(CUBE, self.store, target_rows=self.random.choice([4, 1000]))
            else:
                compact_dataset(CUBE.ktk_dataset_uuid(self.random.choice(["seed", "e", "f"])), self.store)

    # --- collectors of garbage

    def clean_up(self) -> None:
        self.begins("to clean up")
        with suppress(InjectedFault):
            cleanup_cube(CUBE, self.store)

    def collect(self) -> None:
        self.begins("to collect garbage")
        with suppress(InjectedFault, DatasetNotFound):
            garbage_collect_dataset(CUBE.ktk_dataset_uuid(self.random.choice(["seed", "e", "f", "g"])), self.store)

    def clean_up_alone(self) -> None:
        """Removes everything that is not needed; nobody may write or read meanwhile."""
        with self.world.alone() as is_alone:
            if is_alone:
                self.begins("to clean up alone")
                with self.options(timedelta(0), timedelta(0)), suppress(InjectedFault):
                    cleanup_cube(CUBE, self.store)

    def leap(self) -> None:
        """Time goes by while nobody works."""
        with self.world.alone() as is_alone:
            if is_alone:
                self.world.clock.leap(self.random.choice(LEAPS))

    # --- readers

    @contextmanager
    def reading(self, what: str, *allowed: type[Exception]) -> Iterator[None]:
        self.begins(what)
        if self.world.settings.deletes:
            allowed = (*allowed, KeyNotFound, InvalidInput)
        try:
            yield
            self.world.count(what)
        except (InjectedFault, *allowed):
            pass
        except (OSError, pa.ArrowException):  # Arrow wraps what a stream of batches raises
            if not self.store.dead and not self.store.faults:
                raise
        if self.store.dead:
            raise SimulatedCrash("it is dead")

    def _newest(self, question: Callable[[], View]) -> None:
        model, begun = self.world.model, self.world.scheduler.steps
        must_see = model.must_see()
        view = question()
        self.world.scheduler.note(f"sees {view}")
        model.check_newest(view, must_see, begun)

    def read(self) -> None:
        with self.reading("query"):
            self._newest(lambda: view_of(query_cube_arrow(CUBE, self.store).to_pylist()))

    def read_in_groups(self) -> None:
        with self.reading("iter"):
            self._newest(lambda: view_of(row for _, t in iter_cube(CUBE, self.store) for row in t.to_pylist()))

    def stream(self) -> None:
        with self.reading("stream"):
            self._newest(lambda: view_of(stream_cube(CUBE, self.store).read_all().to_pylist()))

    def plan_and_read_later(self) -> None:
        def later() -> View:
            plan = plan_cube_query(CUBE, self.store)
            for _ in range(self.random.randrange(40)):
                self.world.scheduler.pause()
            return view_of(run_plan(plan, self.store).read_all().to_pylist())

        with self.reading("plan"):
            self._newest(later)

    def read_some(self) -> None:
        """One dataset, or two of them through the cube."""
        from tests.robustness.soak.cube_world import read_one

        for dataset in self.random.sample(["seed", "e", "f"], self.random.randint(1, 3)):
            with self.reading("table"):
                self._newest(lambda: read_one(self.store, dataset))  # noqa: B023

    def read_as_of(self) -> None:
        commits = self.world.commits(self.random.choice(["seed", "e", "f"]))
        as_of = self.random.choice([*commits[-4:], *self.world.moments[-4:]])
        with self.reading("as of", *PAST):
            view = view_of(query_cube_arrow(CUBE, self.store, as_of=as_of).to_pylist())
            self.world.scheduler.note(f"sees as of {as_of} {view}")
            if isinstance(as_of, str):
                self.world.model.check(view)
            else:
                self.world.model.check_moment(view, as_of)

    def verify(self) -> None:
        with self.reading("verify"):
            verify_cube(CUBE, self.store)

    # --- what keeps no records, and what removes them

    def write_as_kartothek(self) -> None:
        """Adds a file and puts the document, whatever came between; keeps unknown metadata."""
        self._write_foreign(lambda metadata: metadata, swaps=False)

    def write_as_older_version(self) -> None:
        """Drops the records that it does not know. Swaps."""
        self._write_foreign(
            lambda metadata: {k: v for k, v in metadata.items() if k not in (MARK_KEY, LEDGER_KEY)}, swaps=True
        )

    def _write_foreign(self, changed: Callable[[dict[str, Any]], dict[str, Any]], *, swaps: bool) -> None:
        dataset = self.random.choice(["seed", "e", "f"])
        uuid, world, memory = CUBE.ktk_dataset_uuid(dataset), self.world, self.world.memory
        self.begins(f"a foreign write to {dataset}, {swaps=}")
        data, version = memory.get_versioned(document_key(uuid))
        world.model.is_damaged |= world.has_open_write()
        for _ in range(self.random.randrange(3)):
            world.scheduler.pause()
        document = json.loads(data)
        label = f"p={SLOT_PARTITION}/{new_id()}"
        key = f"{uuid}/table/{label}.parquet"
        rows = rows_of(dataset, [(-1000 - next(world.numbers), SLOT_PARTITION, 0)]).drop_columns(["p"])
        for i, name in enumerate(rows.column_names):
            if name in ("i1", "i2"):  # null, as the index is not brought up to date
                rows = rows.set_column(i, name, pa.nulls(1, rows.schema.field(name).type))
        memory.put(key, bytes(ParquetFormat().encode(rows)))
        document["partitions"][label] = {"files": {"table": key}}
        document["metadata"] = changed(document["metadata"])
        now = memory.get_versioned(document_key(uuid))[1]
        if swaps and now != version:
            return
        world.model.foreign = True
        world.model.is_damaged |= now != version or world.has_open_write()
        memory.put(document_key(uuid), json.dumps(document).encode())

    def delete_one(self) -> None:
        """An enrichment goes, while others read; `extend` makes it again."""
        world = self.world
        if world.is_deleting or any(w.kind == "extend" and w.outcome == "open" for w in world.model.writes.values()):
            return
        dataset = self.random.choice(MADE)
        deletion = Write(0, "delete", (dataset,), world.scheduler.steps, world.clock.now)
        world.model.deletions.append(deletion)
        self.begins(f"to delete {dataset}")
        world.is_deleting = True
        try:
            delete_cube(CUBE, self.store, [dataset])
            deletion.ended = world.scheduler.steps
        except (InjectedFault, CommitConflict):
            pass
        finally:
            world.is_deleting = False


VERBS: list[tuple[Callable[[Player], None], int]] = [
    (Player.append, 9),
    (Player.update, 4),
    (Player.remove, 1),
    (Player.extend, 2),
    (Player.delete_cells, 2),
    (Player.index, 1),
    (Player.compact, 2),
    (Player.clean_up, 1),
    (Player.collect, 1),
    (Player.clean_up_alone, 1),
    (Player.leap, 1),
    (Player.read, 5),
    (Player.read_in_groups, 1),
    (Player.stream, 1),
    (Player.plan_and_read_later, 2),
    (Player.read_some, 3),
    (Player.read_as_of, 3),
    (Player.verify, 1),
]
FOREIGN: list[tuple[Callable[[Player], None], int]] = [
    (Player.write_as_kartothek, 2),
    (Player.write_as_older_version, 2),
]
DELETES: list[tuple[Callable[[Player], None], int]] = [(Player.delete_one, 4), (Player.extend, 4)]
ALONE = (Player.clean_up_alone, Player.leap)

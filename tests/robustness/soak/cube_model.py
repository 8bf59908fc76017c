"""What readers of the soaked cube may see: rows that tell which writes a dataset has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pyarrow as pa

from kartothek_cube.api.cube import Cube

CUBE = Cube(["x"], ["p"], "cube", index_columns=["i1", "i2"])
SEED, ENRICHMENTS, MADE = "seed", ("e", "f"), ("g", "h")
TAGS = {"seed": "v1", "e": "v2", "f": "v3", "g": "v4", "h": "v5"}
# The cell -n is there from the beginning: the write n puts its number there in each enrichment, so
# that an enrichment shows it also without the rows of the seed.
SLOTS, SLOT_PARTITION = 60, 9
CELL_PARTITIONS = (0, 1)
# A cell that writes replace in all datasets, and one that they replace in the enrichments only.
REGISTERS = {1000: (2, ("seed", "e", "f")), 1001: (3, ("e", "f"))}


@dataclass(eq=False)
class Write:
    """A write with its number, what its caller heard, and when."""

    number: int
    kind: str
    datasets: tuple[str, ...]
    begun: int
    since: datetime
    outcome: str = "open"
    ended: int | None = None
    until: datetime | None = None

    @property
    def is_acknowledged(self) -> bool:
        return self.outcome == "done"

    def is_before(self, other: Write) -> bool:
        """Whether it had ended when the other one began."""
        return self.ended is not None and self.ended < other.begun


@dataclass
class View:
    """Which writes each dataset shows. ``cells``: the enrichments that a cell of the seed has."""

    added: Mapping[str, frozenset[int]]
    cells: Mapping[int, frozenset[str]] = field(default_factory=dict)
    registers: Mapping[int, Mapping[str, int | None]] = field(default_factory=dict)
    made: Mapping[str, int | None] = field(default_factory=dict)
    is_unique: bool = True

    @property
    def numbers(self) -> set[int]:
        values = {v for register in self.registers.values() for v in register.values()}
        found = values.union(self.made.values(), *self.added.values())
        return {n for n in found if n}


def rows_of(dataset: str, rows: Iterable[tuple[int, int, int]]) -> pa.Table:
    """Rows of (x, p, number); the indexed column follows from x."""
    xs, ps, numbers = (list(column) for column in zip(*rows, strict=True))
    indexed = {"seed": {"i1": [x % 3 for x in xs]}, "e": {"i2": [str(x % 3) for x in xs]}}
    return pa.table({"x": xs, "p": ps, **indexed.get(dataset, {}), TAGS[dataset]: numbers})


def first_rows() -> dict[str, pa.Table]:
    """The cube before all writes."""
    registers = [(x, p, 0) for x, (p, _) in REGISTERS.items()]
    slots = [(-n, SLOT_PARTITION, 0) for n in range(1, SLOTS + 1)]
    cells = [(0, p, 0) for p in CELL_PARTITIONS[:1]]
    return {d: rows_of(d, [*registers, *cells, *(slots if d == "seed" else ())]) for d in ("seed", "e", "f")}


def added_rows(write: Write, p: int) -> dict[str, pa.Table]:
    """What an append with this number adds to its datasets."""
    n, cell = write.number, [(write.number, p, write.number)] if SEED in write.datasets else []
    return {d: rows_of(d, [*cell, *([] if d == SEED else [(-n, SLOT_PARTITION, n)])]) for d in write.datasets}


def view_of(rows: Iterable[Mapping[str, Any]]) -> View:
    """What a query of the whole cube shows."""
    listed = list(rows)
    by_x = {row["x"]: row for row in listed}
    added: dict[str, set[int]] = {d: set() for d in ("seed", "e", "f")}
    cells: dict[int, frozenset[str]] = {}
    made: dict[str, int | None] = dict.fromkeys(MADE)
    for x, row in by_x.items():
        if 0 < x < min(REGISTERS):
            added[SEED].add(x)
            cells[x] = frozenset(d for d in ENRICHMENTS if row.get(TAGS[d]) == x)
        elif x < 0:
            for d in ENRICHMENTS:
                added[d].update([-x] if row.get(TAGS[d]) else [])
            made |= {d: row[TAGS[d]] for d in MADE if row.get(TAGS[d]) is not None}
    registers = {
        x: {d: by_x[x].get(TAGS[d]) if x in by_x else None for d in datasets} for x, (_, datasets) in REGISTERS.items()
    }
    shown = {d: frozenset(numbers) for d, numbers in added.items()}
    return View(shown, cells, registers, made, is_unique=len(by_x) == len(listed))


def view_of_one(dataset: str, table: pa.Table) -> View:
    """What a table of one dataset shows."""
    numbers = dict(zip(table["x"].to_pylist(), table[TAGS[dataset]].to_pylist(), strict=True))
    lowest, highest = (0, min(REGISTERS)) if dataset == SEED else (-SLOTS - 1, 0)
    shown = frozenset(abs(x) for x in numbers if lowest < x < highest and numbers[x])
    registers = {x: {dataset: numbers.get(x)} for x, (_, datasets) in REGISTERS.items() if dataset in datasets}
    return View({dataset: shown}, {}, registers, is_unique=len(numbers) == table.num_rows)


@dataclass
class Ledger:
    """All writes, and what readers have seen of them."""

    writes: dict[int, Write] = field(default_factory=dict)
    seen: set[int] = field(default_factory=set)
    deleted: set[int] = field(default_factory=set)
    deletions: list[Write] = field(default_factory=list)
    # A writer without records has overwritten a commit, or came onto half a write: rows of one
    # dataset may be missing now.
    is_damaged: bool = False
    foreign: bool = False

    def must_see(self) -> set[int]:
        """The numbers that whoever begins to read now must see."""
        return self.seen | {n for n, write in self.writes.items() if write.is_acknowledged}

    def check_newest(self, view: View, must_see: set[int], begun: int) -> None:
        """Check what a reader of the newest state saw, who began at this step."""
        self.check(view)
        if self.is_damaged:
            return
        self._check_there(view, must_see)
        for register in view.registers.values():
            for number in set(register.values()) - {None, 0}:
                self._check_not_overwritten(self.writes[number], begun)
        self.seen |= {n for n in view.numbers if self.writes[n].kind == "append"}

    def check_moment(self, view: View, moment: datetime) -> None:
        """Check what a reader saw of a moment of the past."""
        self.check(view)
        if self.is_damaged:
            return
        writes = self.writes.values()
        self._check_there(view, {w.number for w in writes if w.is_acknowledged and w.until and w.until <= moment})
        later = {w.number for w in writes if w.since > moment} & view.numbers
        assert not later, f"the writes {later} came after {moment}"

    def _check_there(self, view: View, must_see: set[int]) -> None:
        for dataset, numbers in view.added.items():
            wanted = {n for n in must_see if self._shows(n, dataset)}
            assert wanted <= numbers, f"{dataset} lacks the writes {sorted(wanted - numbers)}"

    def _shows(self, number: int, dataset: str) -> bool:
        write = self.writes[number]
        is_gone = dataset == SEED and number in self.deleted
        return write.kind == "append" and dataset in write.datasets and not is_gone

    def _check_not_overwritten(self, write: Write, begun: int) -> None:
        same = (w for w in self.writes.values() if w.kind == write.kind and w.is_acknowledged)
        later = [w.number for w in same if write.is_before(w) and w.ended is not None and w.ended < begun]
        assert not later, f"the write {write.number} is shown although {later} came later"

    def check(self, view: View) -> None:
        """Check that each write is in all of its datasets or in none."""
        if self.is_damaged:
            return
        assert view.is_unique, "a row is there twice"
        for number in view.numbers:
            assert self.writes[number].outcome != "refused", f"the write {number} is there although it was refused"
        shown = {n for numbers in view.added.values() for n in numbers}
        for n in shown:
            datasets = [d for d in self.writes[n].datasets if d in view.added and (d != SEED or n not in self.deleted)]
            having = [d for d in datasets if n in view.added[d]]
            assert having in ([], datasets), f"of the write {n} to {datasets} only {having} is there"
        for n, having_cell in view.cells.items():
            wanted = {d for d in self.writes[n].datasets if d != SEED}
            assert wanted == having_cell, f"the cell {n} has {sorted(having_cell)} and not {sorted(wanted)}"
        for x, register in view.registers.items():
            assert len(set(register.values())) == 1, f"the cell {x} is of several writes: {register}"
        self._check_made(view.made)

    def _check_made(self, made: Mapping[str, int | None]) -> None:
        numbers = {n for n in made.values() if n is not None}
        assert len(numbers) < 2, f"the datasets {made} are of several writes"
        for dataset in [d for d, n in made.items() if n is None and numbers]:
            (write,) = (self.writes[n] for n in numbers)
            later = [d for d in self.deletions if dataset in d.datasets and not d.is_before(write)]
            assert later or dataset not in write.datasets, f"of the write {write.number} {dataset} is not there"

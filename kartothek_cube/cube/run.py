"""Executing a plan: whole, in groups, or as a stream of groups with bounded memory."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from kartothek_cube.core.options import current_options
from kartothek_cube.core.parallel import run
from kartothek_cube.core.rowkeys import IntArray, pack
from kartothek_cube.core.store import Store
from kartothek_cube.cube.load import Loader, ordered_rows
from kartothek_cube.cube.plan import QueryPlan

__all__ = ["AMPLIFICATION_LIMIT", "grouped_tables", "iter_groups", "row_groups", "shares_seed_files", "slice_tables", "split_groups", "whole_table"]

# From this many reads per file on, files are read once and their rows split by group.
AMPLIFICATION_LIMIT = 2.0


def slice_tables(plan: QueryPlan, store: Store) -> Iterator[pa.Table]:
    """The rows of the query, one table an aligned partition, in partition order. Every seed file is read once."""
    loader = Loader(store)
    yield from run(loader.load, plan.slices)


def whole_table(plan: QueryPlan, store: Store) -> pa.Table:
    """All rows, ordered by dimension columns, then partition columns."""
    tables = [t for t in slice_tables(plan, store) if t.num_rows]
    table = pa.concat_tables(tables) if tables else plan.schema.empty_table()
    return ordered_rows(table, (*plan.context.dimension_columns, *plan.context.partition_columns))


def shares_seed_files(plan: QueryPlan) -> bool:
    """Whether the groups share files of the seed so much that each is better read once and its rows split by group.

    Files of other datasets do not count: what several partitions need of them stays in memory anyway.
    """
    seed = plan.context.roles[0].id
    return bool(plan.context.partition_by) and plan.reads([seed]) > AMPLIFICATION_LIMIT * plan.file_counts()[seed]


def row_groups(group_keys: pa.Table, table: pa.Table) -> IntArray:
    """For each row the number of its group among the ascending keys; -1 for a row that is in none, as it has no value."""
    by = group_keys.column_names
    keys, rows = pack([group_keys, table.select(by)], by)
    if not len(keys):
        return np.full(table.num_rows, -1, dtype=np.int64)
    found = np.minimum(np.searchsorted(keys, rows), len(keys) - 1)
    return np.where(keys[found] == rows, found, -1)


def split_groups(group_keys: pa.Table, table: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """The rows of each group that has some, in group order; their order within the group is kept."""
    numbers = row_groups(group_keys, table)
    order = np.argsort(numbers, kind="stable")
    order = order[np.searchsorted(numbers[order], 0) :]
    ordered = table.take(pa.array(order))
    present, starts = np.unique(numbers[order], return_index=True)
    ends = np.append(starts, len(order))[1:]
    for number, begin, end in zip(present.tolist(), starts.tolist(), ends.tolist(), strict=True):
        yield number, ordered.slice(begin, end - begin)


def grouped_tables(plan: QueryPlan, store: Store) -> list[pa.Table]:
    """One table per ``partition_by`` value, empty ones left out."""
    return [table for _, table in split_groups(plan.group_keys(), whole_table(plan, store))]


def iter_groups(plan: QueryPlan, store: Store) -> Iterator[tuple[dict[str, Any], pa.Table]]:
    """Key and rows of one group after the other, empty ones left out; the next ones are loaded meanwhile.

    Where the groups share files of the seed, these are read once and their rows wait in temporary Arrow files for their
    group. The options that hold for the call hold for all groups, also for those that are asked for after its block.
    """
    load = Loader(store).load
    if shares_seed_files(plan):
        return _iter_spilled(plan, run(load, plan.slices), current_options().bytes_in_flight)
    loaded = run(lambda group: (dict(group.key), load(group)), plan.groups)
    return ((key, table) for key, table in loaded if table.num_rows)


def _iter_spilled(plan: QueryPlan, loaded: Generator[pa.Table, None, None], limit: int) -> Iterator[tuple[dict[str, Any], pa.Table]]:
    keys = plan.group_keys()
    order = (*plan.context.dimension_columns, *plan.context.partition_columns)
    with tempfile.TemporaryDirectory(prefix="kartothek_cube-") as folder, contextlib.closing(loaded):
        spill = _Spill(Path(folder), plan.schema, limit)
        for table in loaded:
            for number, rows in split_groups(keys, table):
                spill.add(number, rows)
        for number in spill.numbers():
            yield keys.slice(number, 1).to_pylist()[0], ordered_rows(spill.take(number), order)


class _Spill:
    """Rows that wait for their group: in memory up to a limit, then in one Arrow file a group."""

    def __init__(self, folder: Path, schema: pa.Schema, limit: int) -> None:
        self._folder, self._schema, self._limit = folder, schema, limit
        self._waiting: dict[int, list[pa.Table]] = {}
        self._parts: dict[int, int] = {}
        self._bytes = 0

    def add(self, number: int, rows: pa.Table) -> None:
        """Keep rows for a group."""
        self._waiting.setdefault(number, []).append(rows)
        self._bytes += rows.nbytes
        if self._bytes > self._limit:
            self._flush()

    def _flush(self) -> None:
        for number, tables in self._waiting.items():
            part = self._parts.get(number, 0)
            with pa.OSFile(str(self._file(number, part)), "wb") as sink, pa.ipc.new_file(sink, self._schema) as writer:
                writer.write_table(pa.concat_tables(tables))
            self._parts[number] = part + 1
        self._waiting, self._bytes = {}, 0

    def _file(self, number: int, part: int) -> Path:
        return self._folder / f"{number}-{part}.arrow"

    def numbers(self) -> list[int]:
        """Groups that have rows, in order."""
        return sorted({*self._waiting, *self._parts})

    def take(self, number: int) -> pa.Table:
        """The rows of one group; they are forgotten here."""
        tables = [self._read(self._file(number, part)) for part in range(self._parts.get(number, 0))]
        return pa.concat_tables([*tables, *self._waiting.pop(number, [])])

    @staticmethod
    def _read(path: Path) -> pa.Table:
        with pa.OSFile(str(path), "rb") as source:
            table = pa.ipc.open_file(source).read_all()
        path.unlink()
        return table

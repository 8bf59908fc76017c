"""Deleted cells: the rows of the seed, and those of enrichments that no other cell shows."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from kartothek_cube.core.arrow.keys import KeyIndex, Spool
from kartothek_cube.core.commit.change import Change
from kartothek_cube.core.expressions.conditions import C, Condition
from kartothek_cube.core.io.reader import FileRequest, read_rows
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.rows.edits import MergeRows, MergeSource, rewrite_spec
from kartothek_cube.core.rows.merge import MergeRules, plan_merge
from kartothek_cube.core.rows.run import RowsPlan, StagedRows, check_seed_stays, stored_files
from kartothek_cube.core.runtime.executor import THREADS, Executor
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.write.input_rows import chunk_bytes
from kartothek_cube.cube.cube import Cube
from kartothek_cube.cube.execute.run import iter_groups
from kartothek_cube.cube.query.intention import QueryArguments
from kartothek_cube.cube.query.planning import plan_members
from kartothek_cube.errors import InvalidInput
from kartothek_cube.typing import IntoConditions

__all__ = ["cell_changes", "cells_where", "plan_cell_deletion"]

# A longer list of values costs more than it saves by the partitions that it leaves out.
_MOST_VALUES = 1_000


@contextmanager
def cells_where(
    cube: Cube, store: Store, members: Mapping[str, Snapshot], conditions: IntoConditions
) -> Iterator[MergeSource]:
    """The addresses of the cells that a query has; if they are many, in a temporary file."""
    # Planned before the file is made, so that a wrong condition leaves nothing behind.
    tables = _cell_tables(cube, store, members, conditions)
    schema, columns = members[cube.seed_dataset].schema, _address(cube)
    with Spool(pa.schema([schema.field(c) for c in columns]), chunk_bytes()) as spool:
        for cells in tables:
            spool.add(cells)
        yield MergeSource(spool.table(), columns)


def _address(cube: Cube) -> tuple[str, ...]:
    return (*cube.dimension_columns, *cube.partition_columns)


def _cell_tables(
    cube: Cube, store: Store, members: Mapping[str, Snapshot], conditions: IntoConditions
) -> Iterator[pa.Table]:
    plan = plan_members(QueryArguments(cube, conditions, payload_columns=()), members, store)
    return (cells.select(list(_address(cube))) for _, cells in iter_groups(plan, store))


def plan_cell_deletion(
    cube: Cube,
    store: Store,
    members: Mapping[str, Snapshot],
    cells: MergeSource,
    names: Collection[str],
    executor: Executor = THREADS,
) -> dict[str, RowsPlan]:
    """The rows that go with some cells, by dataset: the seed, then those of ``names``.

    Raises
    ------
    InvalidInput
        If no cell would be left.
    """
    seed = cube.seed_dataset
    plans = {seed: _plan_deletion(store, members[seed], cells, executor)}
    check_seed_stays(plans[seed])
    for name in members:
        if name in names and name != seed:
            keys = _keys_without_cells(cube, store, members, name, cells)
            plans[name] = _plan_deletion(store, members[name], keys, executor)
    return plans


def cell_changes(
    cube: Cube,
    store: Store,
    members: Mapping[str, Snapshot],
    plans: Mapping[str, RowsPlan],
    staged: Mapping[str, StagedRows],
) -> dict[str, Change]:
    """The changes of a deletion; new cells are a conflict where they matter."""
    changes, seed = {name: rows.change for name, rows in staged.items()}, cube.seed_dataset
    edits = [plan.edit for name, plan in plans.items() if name in changes and isinstance(plan.edit, MergeRows)]
    keys = [edit.source for edit in edits if len(edit.columns) < len(_address(cube))]
    if seed in changes and keys:
        # A cell that comes meanwhile may show a row that goes from an enrichment.
        scope = partial(_without_new_cells, store, members[seed], changes[seed].removed, keys)
        changes[seed] = replace(changes[seed], scope=scope)
    return changes


def _without_new_cells(
    store: Store, base: Snapshot, removed: pa.Array, keys: Sequence[MergeSource], newest: Snapshot
) -> pa.Array:
    """The labels to remove; InvalidInput if a cell of a later file has one of the keys."""
    is_new = pc.invert(pc.is_in(newest.partitions.labels, value_set=base.partitions.labels))
    [(table, schema)] = newest.schemas.items()
    for file in stored_files(newest, table, is_new.to_numpy(zero_copy_only=False)):
        for source in keys:
            cells = read_rows(store, file.key, FileRequest(newest.uuid, schema, source.on), file.values)
            if (source.positions(cells) >= 0).any():
                raise InvalidInput("cells were added that show rows of enrichments which were to be deleted")
    return removed


def _plan_deletion(store: Store, base: Snapshot, keys: MergeSource, executor: Executor) -> RowsPlan:
    rules = MergeRules(keys.on, "delete", inserts=False, deletes_others=False)
    edit = MergeRows(keys, rules.when_matched, rules.deletes_others, base.partition_keys)
    return plan_merge(store, base, rewrite_spec(base), edit, keys, rules, executor)


def _keys_without_cells(
    cube: Cube, store: Store, members: Mapping[str, Snapshot], name: str, cells: MergeSource
) -> MergeSource:
    """The addresses in a dataset of the deleted cells, without those that another cell has, too."""
    base = members[name]
    own = {*base.partition_keys, *(c for c in cube.dimension_columns if c in base.schema.names)}
    on = tuple(c for c in _address(cube) if c in own)
    # With the whole address no other cell can show a row.
    if len(on) == len(cells.on):
        return cells
    if not cells.num_rows:
        return MergeSource(cells.rows.select(list(on)), on)
    projected = cells.rows.select(list(on))
    distinct = np.unique(KeyIndex(projected, on).positions(projected))
    keys = MergeSource(projected.take(pa.array(distinct)), on)
    is_shown = np.zeros(keys.rows.num_rows, dtype=bool)
    for others in _cell_tables(cube, store, members, _within(keys)):
        # All other cells, not only those that the conditions hold for.
        kept = others.filter(pa.array(cells.positions(others) < 0))
        positions = keys.positions(kept)
        is_shown[positions[positions >= 0]] = True
    return MergeSource(keys.rows.filter(pa.array(~is_shown)), on)


def _within(keys: MergeSource) -> list[Condition]:
    """Conditions that all cells with one of these keys satisfy."""
    # These types may be dimensions, but conditions of cubes do not compare them.
    others = (pt.is_decimal, pt.is_time, pt.is_duration)
    values = {f.name: keys.distinct(f.name) for f in keys.rows.schema if not any(is_type(f.type) for is_type in others)}
    return [C(c).isin(v.to_pylist()) for c, v in values.items() if 0 < len(v) <= _MOST_VALUES]

"""Deleted cells: the rows of the seed, and those of enrichments that no other cell shows."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from kartothek_cube.core.arrow.key_index import KeyIndex
from kartothek_cube.core.arrow.spool import Spool
from kartothek_cube.core.expressions.conditions import C
from kartothek_cube.core.expressions.conjunction import Condition
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.rows.edits import MergeRows
from kartothek_cube.core.rows.merge import MergeRules, plan_merge
from kartothek_cube.core.rows.rewrite import rewrite_spec
from kartothek_cube.core.rows.run import RowsPlan
from kartothek_cube.core.rows.source import MergeSource
from kartothek_cube.core.runtime.executor import THREADS, Executor
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.write.input_rows import chunk_bytes
from kartothek_cube.cube.cube import Cube
from kartothek_cube.cube.execute.run import iter_groups
from kartothek_cube.cube.query.intention import QueryArguments
from kartothek_cube.cube.query.planning import plan_members
from kartothek_cube.errors import InvalidInput
from kartothek_cube.typing import IntoConditions

__all__ = ["cells_where", "plan_cell_deletion"]

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
    # Files are compared, not rows: a file without rows would have to be opened to be known.
    gone = [match for match in plans[seed].touched if match.removes_all]
    if gone and len(gone) == len(members[seed].partitions):
        raise InvalidInput(
            f"Cube {cube.uuid_prefix!r} would have no cell left: its seed {seed!r} would be empty. To delete a cube "
            "with everything in it, call delete_cube."
        )
    for name in members:
        if name in names and name != seed:
            keys = _keys_without_cells(cube, store, members, name, cells)
            plans[name] = _plan_deletion(store, members[name], keys, executor)
    return plans


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

"""What changed in a cube between two states, at a glance: counts by dataset, and the first rows."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kartothek_cube.core.arrow.difference import CHANGE_TYPE, changes_schema
from kartothek_cube.core.dataset.read import checked_limit
from kartothek_cube.core.display import (
    KINDS,
    ChangeCounts,
    Markup,
    changed_rows,
    changes_table,
    counts_table,
    escape,
    in_notebook,
)
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.runtime.options import Overrides
from kartothek_cube.core.runtime.telemetry import operation
from kartothek_cube.core.scan.plan import check_change_type, without_files
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.cube.cube import Cube
from kartothek_cube.cube.execute.changes import iter_changes, iter_dataset_changes
from kartothek_cube.cube.members.consistent_read import state_text
from kartothek_cube.cube.members.discovery import cube_and_store, load_states
from kartothek_cube.cube.query.changes import StatePlan, with_types_of
from kartothek_cube.cube.query.intention import QueryArguments
from kartothek_cube.cube.query.planning import plan_between
from kartothek_cube.typing import CubeState, StoreLike

__all__ = ["CubeChanges", "changes_between", "describe_cube_changes"]


@dataclass(frozen=True, slots=True)
class CubeChanges:
    """What changed in a cube between two states: prints as text, is a table in notebooks.

    Attributes
    ----------
    cube : str
        The uuid prefix.
    since, until : str
        The two states.
    counts : pyarrow.Table
        Columns ``dataset``, ``inserted``, ``updated`` and ``deleted``: cells of each dataset
        itself, the seed first.
    first : pyarrow.Table
        The first changes of `query_cube_changes`.
    keys : tuple of str
        Dimension and partition columns.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube import Cube, append_to_cube, build_cube, open_store, plan_cube_query
    >>> store, cube = open_store("hmemory://"), Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> _ = build_cube(pa.table({"PRODUCT_ID": [1], "COUNTRY_CODE": ["DE"]}), cube, store)
    >>> seen = plan_cube_query(cube, store).commits
    >>> _ = append_to_cube(pa.table({"PRODUCT_ID": [2], "COUNTRY_CODE": ["FR"]}), cube, store)
    >>> describe_cube_changes(cube, store, seen).counts.to_pylist()
    [{'dataset': 'seed', 'inserted': 1, 'updated': 0, 'deleted': 0}]
    """

    cube: str
    since: str
    until: str
    counts: pa.Table
    first: pa.Table
    keys: tuple[str, ...]

    def __repr__(self) -> str:
        cells = [("dataset", *KINDS), *((name, *(f"{n:,}" for n in numbers)) for name, *numbers in self.totals())]
        widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
        lines = [
            "  ".join([name.ljust(widths[0]), *(n.rjust(width) for n, width in zip(numbers, widths[1:], strict=True))])
            for name, *numbers in cells
        ]
        return "\n  ".join([f"Changes of cube {self.cube!r} since {self.since}, until {self.until}", *lines])

    def totals(self) -> list[ChangeCounts]:
        """The rows of ``counts``."""
        return list(zip(*(column.to_pylist() for column in self.counts.columns), strict=True))

    def _repr_html_(self) -> str:
        head = Markup(
            f"<strong>Changes of cube {escape(self.cube)}</strong>"
            f'<br><span class="q">since {escape(self.since)}, until {escape(self.until)}</span>'
        )
        columns = {field.name: str(field.type) for field in self.first.schema if field.name != CHANGE_TYPE}
        return in_notebook(
            head, counts_table(self.totals()), changes_table(columns, changed_rows(self.first), self.keys)
        )


def describe_cube_changes(
    cube: Cube | str,
    store: StoreLike,
    since: CubeState,
    until: CubeState | None = None,
    *,
    rows: int = 10,
    options: Overrides | None = None,
) -> CubeChanges:
    """Count what came, went or changed in the datasets of a cube, and show the first changes.

    Cells are counted by dataset: a cell has the dimension columns of the dataset, and of several
    stored rows the newest counts. A cell that was overridden, or that moved to another partition,
    is one update. Only partitions are read for which one of the states has a file that the other
    has not.

    Parameters
    ----------
    cube, store, since, until
        As in `query_cube_changes`.
    rows : int, default 10
        The number of changes to show, of which an update has two rows.
    options : optional
        The result of `options`: settings for this call.

    Returns
    -------
    CubeChanges
        A table in notebooks; ``counts`` and ``first`` are tables of Arrow.

    Raises
    ------
    HistoryUnavailable, InvalidInput, InvalidType
        As in `query_cube_changes`.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube import Cube, append_to_cube, build_cube, open_store, plan_cube_query
    >>> from kartothek_cube import describe_cube_changes
    >>> store, cube = open_store("hmemory://"), Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> sales = pd.DataFrame({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"], "UNITS": [3, 4]})
    >>> _ = build_cube(sales, cube, store)
    >>> seen = plan_cube_query(cube, store).commits
    >>> _ = append_to_cube(sales[1:].assign(UNITS=5), cube, store)
    >>> describe_cube_changes(cube, store, seen)
    Changes of cube 'sales' since the commits of 1 dataset, until now
      dataset  inserted  updated  deleted
      seed            0        1        0
    """
    with operation("describe_cube_changes", options, cube=cube) as op:
        limit = checked_limit(rows, "rows") or 0
        changes = changes_between(*cube_and_store(cube, store, until), since, until, limit)[0]
        return op.returned(changes, lambda found: sum(map(sum, (numbers for _, *numbers in found.totals()))))


def changes_between(
    cube: Cube, store: Store, since: CubeState, until: CubeState | None, limit: int
) -> tuple[CubeChanges, tuple[StatePlan, StatePlan]]:
    """What `describe_cube_changes` returns, and the plans of the whole cube in both states."""
    then, now = load_states(cube, store, None, since, until)
    now = with_types_of(now, then)
    plans = plan_between(QueryArguments(cube), then, now, store)
    check_change_type(plans[1].plan.schema.names, f"Cube {cube.uuid_prefix!r}")
    changes = CubeChanges(
        cube=cube.uuid_prefix,
        since=state_text(since),
        until="now" if until is None else state_text(until),
        counts=_counts(cube, store, then, now),
        first=_first(plans, store, limit),
        keys=(*cube.dimension_columns, *cube.partition_columns),
    )
    return changes, plans


def _counts(cube: Cube, store: Store, then: Mapping[str, Snapshot], now: Mapping[str, Snapshot]) -> pa.Table:
    names = sorted(now, key=lambda name: (name != cube.seed_dataset, name))
    counts = np.zeros((len(KINDS), len(names)), dtype=np.int64)
    for i, name in enumerate(names):
        before = then.get(name) or without_files(now[name])
        for found in iter_dataset_changes(cube, before, now[name], store):
            counts[:, i] += [found.inserted.num_rows, found.postimages.num_rows, found.deleted.num_rows]
    return pa.table({"dataset": pa.array(names, pa.string()), **dict(zip(KINDS, counts, strict=True))})


def _first(plans: tuple[StatePlan, StatePlan], store: Store, limit: int) -> pa.Table:
    """The rows of so many changes of the whole cube."""
    taken = [changes_schema(plans[1].plan.schema).empty_table()]
    if not limit:
        return taken[0]
    with closing(iter_changes(*plans, store)) as changes:  # closed, threads read no further ahead
        while limit > 0 and (table := next(changes, None)) is not None:
            begins = pc.not_equal(table.column(CHANGE_TYPE), "update_postimage").to_numpy()
            taken.append(table.slice(0, int(np.searchsorted(np.cumsum(begins), limit, side="right"))))
            limit -= int(begins.sum())
    return pa.concat_tables(taken)

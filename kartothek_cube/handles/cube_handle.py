"""`open`: a cube with its store bound, for notebooks. Each method calls a verb of `api.cube`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kartothek_cube.api import cube as verbs
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.stores.open import open_store
from kartothek_cube.cube.cube import Cube, prefix_of
from kartothek_cube.cube.members import require_members, valid_cube
from kartothek_cube.errors import InvalidType, KartothekCubeError
from kartothek_cube.typing import (
    AsOf,
    Columns,
    CubeState,
    GroupKey,
    IntoConditions,
    IntoCubeData,
    IntoDatasets,
    StoreLike,
    UserMetadata,
)

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from duckdb import DuckDBPyRelation
    from polars import LazyFrame

    from kartothek_cube.api.dataset import DatasetMetadata, RowsReport, VerifyReport
    from kartothek_cube.core.commit.change import OnConflict
    from kartothek_cube.core.expressions.conditions import VirtualColumn
    from kartothek_cube.core.runtime.options import Overrides
    from kartothek_cube.cube.query.plan import QueryPlan
    from kartothek_cube.cube.verbs.describe import CubeDescription
    from kartothek_cube.cube.verbs.maintain import CubeStats
    from kartothek_cube.cube.verbs.report import CubeReport

__all__ = ["CubeHandle", "open"]


def open(cube: Cube | str, store: StoreLike) -> CubeHandle:  # noqa: A001 - kartothek_cube.open
    """Bind a cube to its store: the first way in notebooks. See the page *In a notebook*.

    The name is no part of ``from kartothek_cube import *``, which leaves the builtin alone.

    Parameters
    ----------
    cube : Cube or str
        A cube, which need not exist yet, or the prefix of one that exists.
    store : str, path, store or callable
        The store, in any form that `open_store` takes.

    Returns
    -------
    CubeHandle
        A small picklable value. Its methods are the functions of this package without their
        arguments ``cube`` and ``store``, and see the newest state each time.

    Raises
    ------
    InvalidInput
        If there is no cube with this prefix; the message names those that there are.
    InvalidType
        If ``cube`` is neither a `Cube` nor text.

    Examples
    --------
    >>> import kartothek_cube
    >>> import pyarrow as pa
    >>> cube = kartothek_cube.Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> sales = kartothek_cube.open(cube, "hmemory://")
    >>> units = {"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"], "UNITS": [3, 4]}
    >>> _ = sales.build(pa.table(units))
    >>> sales.query(sales["UNITS"] > 3)
      COUNTRY_CODE  PRODUCT_ID  UNITS
    0           FR           2      4
    """
    opened = open_store(store)
    if isinstance(cube, Cube):
        return CubeHandle(cube, opened)
    if not isinstance(cube, str):
        raise InvalidType(f"A handle is opened for a Cube or its prefix, not for {type(cube).__name__}: {cube!r}.")
    prefix = prefix_of(cube)
    return CubeHandle(valid_cube(prefix, require_members(prefix, opened)), opened)


@dataclass(frozen=True, slots=True, repr=False)
class CubeHandle:
    """A cube and its store, made by `kartothek_cube.open`.

    Nothing is kept but these two: every call reads what it needs, so that a handle never is out of
    date and an interrupted call leaves nothing behind in it. ``sales["UNITS"]`` is the column for
    conditions, with completion of names; in a notebook the handle shows the cube.

    Attributes
    ----------
    cube : Cube
        What the functions take as ``cube``.
    store : Store
        What they take as ``store``.

    Examples
    --------
    >>> import kartothek_cube
    >>> import pyarrow as pa
    >>> cube = kartothek_cube.Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> sales = kartothek_cube.open(cube, "hmemory://shop")
    >>> _ = sales.build(pa.table({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"]}))
    >>> sales, sales.columns, sales.count(sales["PRODUCT_ID"] > 1)
    (<cube 'sales' in hmemory://shop>, ['COUNTRY_CODE', 'PRODUCT_ID'], 1)
    """

    cube: Cube
    store: Store

    def __repr__(self) -> str:
        return f"<cube {self.cube.uuid_prefix!r} in {self.store.name}>"

    def _repr_html_(self) -> str:
        from kartothek_cube.core.display import Markup, escape, in_notebook

        try:
            return self.describe()._repr_html_()
        except KartothekCubeError as error:  # a cube that is still to be built has a handle, too
            return in_notebook(Markup(f"{escape(repr(self))}<br>{escape(str(error))}"))

    def __getitem__(self, column: str) -> VirtualColumn:
        """``C(column)``: the column, to be compared with a constant."""
        return verbs.C(column)

    def _ipython_key_completions_(self) -> list[str]:
        # An error would end up in the middle of what somebody types.
        with suppress(Exception):
            return self.columns
        return []

    @property
    def columns(self) -> list[str]:
        """The names of the columns that a query has, in its order."""
        return list(self.plan().schema.names)

    # --- reading ----------------------------------------------------------------------------------

    def query(
        self,
        conditions: IntoConditions = None,
        datasets: IntoDatasets = None,
        dimension_columns: Columns = None,
        payload_columns: Columns = None,
        *,
        as_of: CubeState | None = None,
        options: Overrides | None = None,
    ) -> pd.DataFrame:
        """The rows as one frame of pandas, as `query_cube`; without rows an empty one."""
        from kartothek_cube.core.arrow.pandas import to_frame

        return to_frame(
            self.query_arrow(conditions, datasets, dimension_columns, payload_columns, as_of=as_of, options=options)
        )

    def query_arrow(
        self,
        conditions: IntoConditions = None,
        datasets: IntoDatasets = None,
        dimension_columns: Columns = None,
        payload_columns: Columns = None,
        *,
        as_of: CubeState | None = None,
        options: Overrides | None = None,
    ) -> pa.Table:
        """The rows as one Arrow table: `query_cube_arrow`."""
        return verbs.query_cube_arrow(
            self.cube,
            self.store,
            conditions,
            datasets,
            dimension_columns,
            payload_columns,
            as_of=as_of,
            options=options,
        )

    def stream(
        self,
        conditions: IntoConditions = None,
        datasets: IntoDatasets = None,
        dimension_columns: Columns = None,
        payload_columns: Columns = None,
        *,
        limit: int | None = None,
        as_of: CubeState | None = None,
        options: Overrides | None = None,
    ) -> pa.RecordBatchReader:
        """The rows batch by batch, with bounded memory: `stream_cube`."""
        return verbs.stream_cube(
            self.cube,
            self.store,
            conditions,
            datasets,
            dimension_columns,
            payload_columns,
            limit=limit,
            as_of=as_of,
            options=options,
        )

    def head(self, n: int = 5) -> pd.DataFrame:
        """The first rows as one frame of pandas: `stream` with a limit."""
        from kartothek_cube.core.arrow.pandas import to_frame

        return to_frame(self.stream(limit=n).read_all())

    def groups(
        self,
        partition_by: Columns = None,
        conditions: IntoConditions = None,
        datasets: IntoDatasets = None,
        dimension_columns: Columns = None,
        payload_columns: Columns = None,
        *,
        as_of: CubeState | None = None,
        changed_since: CubeState | None = None,
        options: Overrides | None = None,
    ) -> Iterator[tuple[GroupKey, pa.Table]]:
        """One key and one table after the other, by any indexed columns: `iter_cube`."""
        return verbs.iter_cube(
            self.cube,
            self.store,
            conditions,
            datasets,
            dimension_columns,
            partition_by,
            payload_columns,
            as_of=as_of,
            changed_since=changed_since,
            options=options,
        )

    def count(
        self,
        conditions: IntoConditions = None,
        datasets: IntoDatasets = None,
        dimension_columns: Columns = None,
        *,
        as_of: CubeState | None = None,
        options: Overrides | None = None,
    ) -> int:
        """The number of rows, without reading payload: `count_cube`."""
        return verbs.count_cube(
            self.cube, self.store, conditions, datasets, dimension_columns, as_of=as_of, options=options
        )

    def plan(
        self,
        conditions: IntoConditions = None,
        datasets: IntoDatasets = None,
        dimension_columns: Columns = None,
        partition_by: Columns = None,
        payload_columns: Columns = None,
        *,
        as_of: CubeState | None = None,
        changed_since: CubeState | None = None,
        options: Overrides | None = None,
    ) -> QueryPlan:
        """What a query would read, and why: `plan_cube_query`. ``explain()`` of it is a text."""
        return verbs.plan_cube_query(
            self.cube,
            self.store,
            conditions,
            datasets,
            dimension_columns,
            partition_by,
            payload_columns,
            as_of=as_of,
            changed_since=changed_since,
            options=options,
        )

    def scan(
        self,
        *,
        datasets: IntoDatasets = None,
        dimension_columns: Columns = None,
        as_of: AsOf | None = None,
        options: Overrides | None = None,
    ) -> LazyFrame:
        """The cube as a lazy frame of Polars: `scan_cube`."""
        return verbs.scan_cube(
            self.cube,
            self.store,
            datasets=datasets,
            dimension_columns=dimension_columns,
            as_of=as_of,
            options=options,
        )

    def sql(self, statement: str, *, as_of: AsOf | None = None, options: Overrides | None = None) -> DuckDBPyRelation:
        """A statement of DuckDB; this cube is the table of its prefix: `connect`."""
        return verbs.connect(self.store, as_of=as_of, options=options).sql(statement)

    # --- looking ----------------------------------------------------------------------------------

    def describe(self, *, as_of: AsOf | None = None, options: Overrides | None = None) -> CubeDescription:
        """Datasets, columns with types, indices, tags: `describe_cube`."""
        return verbs.describe_cube(self.cube.uuid_prefix, self.store, as_of=as_of, options=options)

    def stats(
        self, datasets: IntoDatasets = None, *, as_of: AsOf | None = None, options: Overrides | None = None
    ) -> CubeStats:
        """Partitions, files, rows and bytes by dataset: `collect_stats`."""
        return verbs.collect_stats(self.cube, self.store, datasets, as_of=as_of, options=options)

    def history(self, *, options: Overrides | None = None) -> pd.DataFrame:
        """The writes, newest first: `cube_history`."""
        return verbs.cube_history(self.cube, self.store, options=options)

    def changes(
        self,
        since: CubeState,
        until: CubeState | None = None,
        conditions: IntoConditions = None,
        datasets: Columns = None,
        dimension_columns: Columns = None,
        payload_columns: Columns = None,
        *,
        options: Overrides | None = None,
    ) -> pa.RecordBatchReader:
        """The cells that differ between two states: `query_cube_changes`."""
        return verbs.query_cube_changes(
            self.cube,
            self.store,
            since,
            until,
            conditions,
            datasets,
            dimension_columns,
            payload_columns,
            options=options,
        )

    def verify(self, deep: bool = False, *, options: Overrides | None = None) -> VerifyReport:
        """What is wrong, and what mends it: `verify_cube`."""
        return verbs.verify_cube(self.cube, self.store, deep, options=options)

    def report(self, *, changed_since: CubeState | None = None, options: Overrides | None = None) -> CubeReport:
        """All there is to see, as one page: `cube_report`."""
        return verbs.cube_report(self.cube, self.store, changed_since=changed_since, options=options)

    # --- writing ----------------------------------------------------------------------------------

    def build(
        self,
        data: IntoCubeData,
        metadata: Mapping[str, UserMetadata] | None = None,
        overwrite: bool = False,
        partition_on: Mapping[str, Columns] | None = None,
        *,
        options: Overrides | None = None,
    ) -> dict[str, DatasetMetadata]:
        """Write the datasets of a new cube: `build_cube`."""
        return verbs.build_cube(data, self.cube, self.store, metadata, overwrite, partition_on, options=options)

    def extend(
        self,
        data: IntoCubeData,
        metadata: Mapping[str, UserMetadata] | None = None,
        overwrite: bool = False,
        partition_on: Mapping[str, Columns] | None = None,
        *,
        options: Overrides | None = None,
    ) -> dict[str, DatasetMetadata]:
        """Add datasets, or replace them; the others are not rewritten: `extend_cube`."""
        return verbs.extend_cube(data, self.cube, self.store, metadata, overwrite, partition_on, options=options)

    def append(
        self,
        data: IntoCubeData,
        metadata: Mapping[str, UserMetadata] | None = None,
        *,
        options: Overrides | None = None,
    ) -> dict[str, DatasetMetadata]:
        """Add rows, or newer rows of cells: `append_to_cube`."""
        return verbs.append_to_cube(data, self.cube, self.store, metadata, options=options)

    def update(
        self,
        data: IntoCubeData,
        remove_conditions: IntoConditions,
        ktk_cube_dataset_ids: Columns = None,
        metadata: Mapping[str, UserMetadata] | None = None,
        *,
        on_conflict: OnConflict = "raise",
        options: Overrides | None = None,
    ) -> dict[str, DatasetMetadata]:
        """Replace whole partitions: `update_cube`."""
        return verbs.update_cube(
            data,
            self.cube,
            self.store,
            remove_conditions,
            ktk_cube_dataset_ids,
            metadata,
            on_conflict=on_conflict,
            options=options,
        )

    def delete_cells(
        self,
        conditions: IntoConditions,
        *,
        datasets: Columns = None,
        on_conflict: OnConflict = "raise",
        dry_run: bool = False,
        options: Overrides | None = None,
    ) -> dict[str, RowsReport]:
        """Delete the cells of a query: `delete_cells`."""
        return verbs.delete_cells(
            self.cube,
            self.store,
            conditions,
            datasets=datasets,
            on_conflict=on_conflict,
            dry_run=dry_run,
            options=options,
        )

    def undo(self, commit: str | None = None, *, options: Overrides | None = None) -> dict[str, DatasetMetadata]:
        """Take the last write back, or another one: `undo_cube`."""
        return verbs.undo_cube(self.cube, self.store, commit, options=options)

    def tag(self, name: str, *, as_of: CubeState | None = None, options: Overrides | None = None) -> None:
        """Name a state, which keeps it: `tag_cube`."""
        verbs.tag_cube(self.cube, self.store, name, as_of=as_of, options=options)

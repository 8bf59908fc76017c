"""A cube, or a dataset, with its store bound, for notebooks: each method calls a verb.

In order:

- cubes
- datasets
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, cast

from kartothek_cube.api import cube as cube_verbs
from kartothek_cube.api import dataset as dataset_verbs
from kartothek_cube.core.arguments import converter_str
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.stores.open import open_store
from kartothek_cube.cube.cube import Cube, prefix_of
from kartothek_cube.cube.members import require_members, valid_cube
from kartothek_cube.errors import InvalidType, KartothekCubeError
from kartothek_cube.typing import (
    AsOf,
    Columns,
    ColumnsByTable,
    CubeState,
    DeleteScope,
    GroupKey,
    IntoConditions,
    IntoCubeData,
    IntoDatasets,
    IntoItems,
    IntoMetadata,
    IntoPredicates,
    StoreLike,
    UserMetadata,
)

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from duckdb import DuckDBPyRelation
    from polars import LazyFrame

    from kartothek_cube.api.dataset import DatasetMetadata, PublishedDelta, RowsReport, ScanPlan, VerifyReport
    from kartothek_cube.core.commit.change import OnConflict
    from kartothek_cube.core.expressions.conditions import VirtualColumn
    from kartothek_cube.core.metadata.snapshot import Snapshot
    from kartothek_cube.core.rows.edits import WhenMatched
    from kartothek_cube.core.rows.merge import WhenNotMatched
    from kartothek_cube.core.runtime.options import Overrides
    from kartothek_cube.cube.query.plan import QueryPlan
    from kartothek_cube.cube.verbs.describe import CubeDescription
    from kartothek_cube.cube.verbs.maintain import CubeStats
    from kartothek_cube.cube.verbs.report import CubeReport

    Where: TypeAlias = IntoPredicates | IntoConditions


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
        return cube_verbs.C(column)

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
        return cube_verbs.query_cube_arrow(
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
        return cube_verbs.stream_cube(
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
        return cube_verbs.iter_cube(
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
        return cube_verbs.count_cube(
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
        return cube_verbs.plan_cube_query(
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
        return cube_verbs.scan_cube(
            self.cube,
            self.store,
            datasets=datasets,
            dimension_columns=dimension_columns,
            as_of=as_of,
            options=options,
        )

    def sql(self, statement: str, *, as_of: AsOf | None = None, options: Overrides | None = None) -> DuckDBPyRelation:
        """A statement of DuckDB; this cube is the table of its prefix: `connect`."""
        return cube_verbs.connect(self.store, as_of=as_of, options=options).sql(statement)

    # --- looking ----------------------------------------------------------------------------------

    def describe(self, *, as_of: AsOf | None = None, options: Overrides | None = None) -> CubeDescription:
        """Datasets, columns with types, indices, tags: `describe_cube`."""
        return cube_verbs.describe_cube(self.cube.uuid_prefix, self.store, as_of=as_of, options=options)

    def stats(
        self, datasets: IntoDatasets = None, *, as_of: AsOf | None = None, options: Overrides | None = None
    ) -> CubeStats:
        """Partitions, files, rows and bytes by dataset: `collect_stats`."""
        return cube_verbs.collect_stats(self.cube, self.store, datasets, as_of=as_of, options=options)

    def history(self, *, options: Overrides | None = None) -> pd.DataFrame:
        """The writes, newest first: `cube_history`."""
        return cube_verbs.cube_history(self.cube, self.store, options=options)

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
        return cube_verbs.query_cube_changes(
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
        return cube_verbs.verify_cube(self.cube, self.store, deep, options=options)

    def report(self, *, changed_since: CubeState | None = None, options: Overrides | None = None) -> CubeReport:
        """All there is to see, as one page: `cube_report`."""
        return cube_verbs.cube_report(self.cube, self.store, changed_since=changed_since, options=options)

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
        return cube_verbs.build_cube(data, self.cube, self.store, metadata, overwrite, partition_on, options=options)

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
        return cube_verbs.extend_cube(data, self.cube, self.store, metadata, overwrite, partition_on, options=options)

    def append(
        self,
        data: IntoCubeData,
        metadata: Mapping[str, UserMetadata] | None = None,
        *,
        options: Overrides | None = None,
    ) -> dict[str, DatasetMetadata]:
        """Add rows, or newer rows of cells: `append_to_cube`."""
        return cube_verbs.append_to_cube(data, self.cube, self.store, metadata, options=options)

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
        return cube_verbs.update_cube(
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
        return cube_verbs.delete_cells(
            self.cube,
            self.store,
            conditions,
            datasets=datasets,
            on_conflict=on_conflict,
            dry_run=dry_run,
            options=options,
        )

    def publish_delta(
        self, *, datasets: Columns = None, always: bool = False, options: Overrides | None = None
    ) -> dict[str, PublishedDelta]:
        """Make Delta tables of the datasets, for other engines: `publish_cube_delta`."""
        return cube_verbs.publish_cube_delta(self.cube, self.store, datasets=datasets, always=always, options=options)

    def undo(self, commit: str | None = None, *, options: Overrides | None = None) -> dict[str, DatasetMetadata]:
        """Take the last write back, or another one: `undo_cube`."""
        return cube_verbs.undo_cube(self.cube, self.store, commit, options=options)

    def tag(self, name: str, *, as_of: CubeState | None = None, options: Overrides | None = None) -> None:
        """Name a state, which keeps it: `tag_cube`."""
        cube_verbs.tag_cube(self.cube, self.store, name, as_of=as_of, options=options)


# --- datasets -------------------------------------------------------------------------------------


def open_dataset(dataset_uuid: str, store: StoreLike) -> DatasetHandle:
    """Bind a dataset to its store, as `kartothek_cube.open` does for a cube.

    Nothing is read, and the dataset need not exist yet.

    Parameters
    ----------
    dataset_uuid : str
        The dataset.
    store : str, path, store or callable
        The store, in any form that `open_store` takes.

    Returns
    -------
    DatasetHandle
        A small picklable value. Its methods are the functions of ``kartothek_cube.api.dataset``
        without their arguments ``dataset_uuid`` and ``store``.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube import open_dataset
    >>> prices = open_dataset("prices", "hmemory://")
    >>> _ = prices.append(pa.table({"PRODUCT_ID": [1, 2], "PRICE": [0.99, 1.49]}))
    >>> prices.query(prices["PRICE"] > 1.0)
       PRICE  PRODUCT_ID
    0   1.49           2
    """
    return DatasetHandle(converter_str(dataset_uuid), open_store(store))


@dataclass(frozen=True, slots=True, repr=False)
class DatasetHandle:
    """A dataset and its store, made by `open_dataset`.

    Where the functions take predicates, the methods take conditions, too:
    ``prices["PRICE"] > 1.0``, with completion of column names, or the text ``"PRICE > 1.0"``.

    Attributes
    ----------
    dataset_uuid : str
        What the functions take as ``dataset_uuid``.
    store : Store
        What they take as ``store``.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube import open_dataset
    >>> prices = open_dataset("prices", "hmemory://shop")
    >>> _ = prices.append(pa.table({"PRODUCT_ID": [1, 2], "PRICE": [0.99, 1.49]}))
    >>> prices, prices.columns, prices.delete_rows(prices["PRICE"] < 1.0).deleted
    (<dataset 'prices' in hmemory://shop>, ['PRICE', 'PRODUCT_ID'], 1)
    """

    dataset_uuid: str
    store: Store

    def _predicates(self, where: Where | None) -> IntoPredicates | None:
        """Conditions as predicates; predicates as they are."""
        from kartothek_cube.core.expressions.conditions import Condition, Conjunction, conjunction_of

        is_list = isinstance(where, list) and bool(where) and all(isinstance(each, str | Condition) for each in where)
        if not is_list and not isinstance(where, str | Condition | Conjunction):
            return cast("IntoPredicates | None", where)
        types = {field.name: field.type for schema in self._snapshot().schemas.values() for field in schema}
        clauses = conjunction_of(cast("IntoConditions", where), types).predicate
        return None if clauses is None else [cast("list[tuple[str, str, object]]", clauses)]

    def _snapshot(self) -> Snapshot:
        from kartothek_cube.core.dataset.reference import dataset_ref

        return dataset_ref(self.dataset_uuid, self.store, None).snapshot()

    def __repr__(self) -> str:
        return f"<dataset {self.dataset_uuid!r} in {self.store.name}>"

    def _repr_html_(self) -> str:
        from kartothek_cube.core.display import Markup, escape, in_notebook, table
        from kartothek_cube.core.write.layout import layout_of

        head = Markup(f"<strong>Dataset {escape(self.dataset_uuid)}</strong> in {escape(self.store.name)}")
        try:
            described, snapshot = self.describe(), self._snapshot()
        except KartothekCubeError as error:  # a dataset that is still to be written has a handle, too
            return in_notebook(head, Markup(f"<br>{escape(str(error))}"))
        layout = layout_of(snapshot.document.metadata, self.dataset_uuid)
        shown = Markup(f"<br>layout: {escape(str(layout))}") if layout else Markup("")
        return in_notebook(head, shown, table([*map(str, described)], described.to_numpy().tolist()))

    def __getitem__(self, column: str) -> VirtualColumn:
        """``C(column)``: the column, to be compared with a constant."""
        from kartothek_cube.core.expressions.conditions import C

        return C(column)

    def _ipython_key_completions_(self) -> list[str]:
        # An error would end up in the middle of what somebody types.
        with suppress(Exception):
            return self.columns
        return []

    @property
    def columns(self) -> list[str]:
        """The names of the columns, in the order of the schema."""
        return list(self.plan().scan.request.schema.names)

    # --- reading ----------------------------------------------------------------------------------

    def query(
        self,
        predicates: Where | None = None,
        columns: ColumnsByTable = None,
        *,
        as_of: AsOf | None = None,
        options: Overrides | None = None,
    ) -> pd.DataFrame:
        """The rows as a frame of pandas: `read_table`."""
        return dataset_verbs.read_table(
            self.dataset_uuid,
            self.store,
            columns=columns,
            predicates=self._predicates(predicates),
            as_of=as_of,
            options=options,
        )

    def query_arrow(
        self,
        predicates: Where | None = None,
        columns: ColumnsByTable = None,
        *,
        as_of: AsOf | None = None,
        options: Overrides | None = None,
    ) -> pa.Table:
        """The rows as an Arrow table: `read_table_arrow`."""
        return dataset_verbs.read_table_arrow(
            self.dataset_uuid, self.store, columns, self._predicates(predicates), as_of=as_of, options=options
        )

    def stream(
        self,
        predicates: Where | None = None,
        columns: ColumnsByTable = None,
        *,
        limit: int | None = None,
        as_of: AsOf | None = None,
        options: Overrides | None = None,
    ) -> pa.RecordBatchReader:
        """The rows batch by batch, with bounded memory: `stream_table`."""
        return dataset_verbs.stream_table(
            self.dataset_uuid,
            self.store,
            columns,
            self._predicates(predicates),
            limit=limit,
            as_of=as_of,
            options=options,
        )

    def head(self, n: int = 5) -> pd.DataFrame:
        """The first rows as a frame of pandas: `stream` with a limit."""
        from kartothek_cube.core.arrow.pandas import to_frame

        return to_frame(self.stream(limit=n).read_all(), nullable=True)

    def plan(
        self,
        predicates: Where | None = None,
        columns: ColumnsByTable = None,
        *,
        as_of: AsOf | None = None,
        options: Overrides | None = None,
    ) -> ScanPlan:
        """What a query would read, and why: `plan_table_scan`. ``explain()`` of it is a text."""
        return dataset_verbs.plan_table_scan(
            self.dataset_uuid, self.store, columns, self._predicates(predicates), as_of=as_of, options=options
        )

    def scan(self, *, as_of: AsOf | None = None, options: Overrides | None = None) -> LazyFrame:
        """The dataset as a lazy frame of Polars: `scan_dataset`."""
        return dataset_verbs.scan_dataset(self.dataset_uuid, self.store, as_of=as_of, options=options)

    def sql(self, statement: str, *, as_of: AsOf | None = None, options: Overrides | None = None) -> DuckDBPyRelation:
        """A statement of DuckDB; this dataset is the table of its uuid: `connect`."""
        return dataset_verbs.connect(self.store, as_of=as_of, options=options).sql(statement)

    # --- looking ----------------------------------------------------------------------------------

    def describe(self, *, as_of: AsOf | None = None, options: Overrides | None = None) -> pd.DataFrame:
        """One row a column: ``column``, ``type``, and ``found by``, its index."""
        import pandas as pd

        plan = self.plan(as_of=as_of, options=options)
        found_by = dict.fromkeys(plan.secondary_indices, "index") | dict.fromkeys(plan.partition_keys, "partition")
        fields = list(plan.scan.request.schema)
        return pd.DataFrame(
            {
                "column": [field.name for field in fields],
                "type": [str(field.type) for field in fields],
                "found by": [found_by.get(field.name, "") for field in fields],
            }
        )

    def history(self, *, options: Overrides | None = None) -> pd.DataFrame:
        """The commits, newest first: `history`."""
        return dataset_verbs.history(self.dataset_uuid, self.store, options=options)

    def changes(
        self,
        since: AsOf,
        until: AsOf | None = None,
        columns: ColumnsByTable = None,
        predicates: Where | None = None,
        *,
        on: Columns = None,
        options: Overrides | None = None,
    ) -> pa.RecordBatchReader:
        """The rows that differ between two states: `read_dataset_changes`."""
        return dataset_verbs.read_dataset_changes(
            self.dataset_uuid, self.store, since, until, columns, self._predicates(predicates), on=on, options=options
        )

    def verify(self, deep: bool = False, *, options: Overrides | None = None) -> VerifyReport:
        """What is wrong, and what mends it: `verify_dataset`."""
        return dataset_verbs.verify_dataset(self.dataset_uuid, self.store, deep, options=options)

    # --- writing ----------------------------------------------------------------------------------

    def append(
        self,
        data: IntoItems,
        delete_scope: DeleteScope | None = None,
        metadata: IntoMetadata = None,
        *,
        partition_on: Columns = None,
        sort_partitions_by: Columns = None,
        secondary_indices: Columns = None,
        add_columns: bool = False,
        on_conflict: OnConflict = "raise",
        options: Overrides | None = None,
    ) -> DatasetMetadata:
        """Add rows, and begin the dataset if there is none: `update_dataset_from_dataframes`.

        ``delete_scope`` replaces partitions.
        """
        return dataset_verbs.update_dataset_from_dataframes(
            data,
            self.store,
            self.dataset_uuid,
            delete_scope,
            metadata,
            partition_on=partition_on,
            sort_partitions_by=sort_partitions_by,
            secondary_indices=secondary_indices,
            add_columns=add_columns,
            on_conflict=on_conflict,
            options=options,
        )

    def merge(
        self,
        data: IntoItems,
        on: Columns,
        *,
        when_matched: WhenMatched = "update",
        when_not_matched: WhenNotMatched = "insert",
        when_not_matched_by_source: str | None = None,
        on_conflict: OnConflict = "raise",
        dry_run: bool = False,
        options: Overrides | None = None,
    ) -> RowsReport:
        """Insert, update or delete rows by key: `merge_dataset`."""
        return dataset_verbs.merge_dataset(
            data,
            self.store,
            self.dataset_uuid,
            on,
            when_matched=when_matched,
            when_not_matched=when_not_matched,
            when_not_matched_by_source=when_not_matched_by_source,
            on_conflict=on_conflict,
            dry_run=dry_run,
            options=options,
        )

    def delete_rows(
        self,
        predicates: Where,
        *,
        on_conflict: OnConflict = "raise",
        dry_run: bool = False,
        options: Overrides | None = None,
    ) -> RowsReport:
        """Delete rows: `delete_rows`."""
        return dataset_verbs.delete_rows(
            self.dataset_uuid,
            self.store,
            cast("IntoPredicates", self._predicates(predicates)),
            on_conflict=on_conflict,
            dry_run=dry_run,
            options=options,
        )

    def update_rows(
        self,
        predicates: Where,
        values: Mapping[str, object] | Callable[[pa.Table], pa.Table],
        *,
        on_conflict: OnConflict = "raise",
        dry_run: bool = False,
        options: Overrides | None = None,
    ) -> RowsReport:
        """Change rows: `update_rows`."""
        return dataset_verbs.update_rows(
            self.dataset_uuid,
            self.store,
            cast("IntoPredicates", self._predicates(predicates)),
            values,
            on_conflict=on_conflict,
            dry_run=dry_run,
            options=options,
        )

    def publish_delta(self, *, always: bool = False, options: Overrides | None = None) -> PublishedDelta:
        """Make a Delta table of it, for other engines: `publish_delta`."""
        return dataset_verbs.publish_delta(self.dataset_uuid, self.store, always=always, options=options)

    def unpublish_delta(self, *, options: Overrides | None = None) -> None:
        """Remove the log of the Delta table: `unpublish_delta`."""
        dataset_verbs.unpublish_delta(self.dataset_uuid, self.store, options=options)

    def undo(self, commit: str | None = None, *, options: Overrides | None = None) -> DatasetMetadata:
        """Take the last commit back, or another one: `undo`."""
        return dataset_verbs.undo(self.dataset_uuid, self.store, commit, options=options)

    def tag(self, name: str, *, as_of: AsOf | None = None, options: Overrides | None = None) -> None:
        """Name a state, which keeps it: `tag_dataset`."""
        dataset_verbs.tag_dataset(self.dataset_uuid, self.store, name, as_of=as_of, options=options)

"""`open_dataset`: a dataset with its store bound. Each method calls a verb of `api.dataset`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, cast

from kartothek_cube.api import dataset as verbs
from kartothek_cube.core.arguments import converter_str
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.stores.open import open_store
from kartothek_cube.errors import KartothekCubeError
from kartothek_cube.typing import (
    AsOf,
    Columns,
    ColumnsByTable,
    DeleteScope,
    IntoConditions,
    IntoItems,
    IntoMetadata,
    IntoPredicates,
    StoreLike,
)

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from duckdb import DuckDBPyRelation
    from polars import LazyFrame

    from kartothek_cube.api.dataset import DatasetMetadata, RowsReport, ScanPlan, VerifyReport
    from kartothek_cube.core.commit.change import OnConflict
    from kartothek_cube.core.expressions.conditions import VirtualColumn
    from kartothek_cube.core.metadata.snapshot import Snapshot
    from kartothek_cube.core.rows.edits import WhenMatched
    from kartothek_cube.core.rows.merge import WhenNotMatched
    from kartothek_cube.core.runtime.options import Overrides

    Where: TypeAlias = IntoPredicates | IntoConditions

__all__ = ["DatasetHandle", "open_dataset"]


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
        return verbs.read_table(
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
        return verbs.read_table_arrow(
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
        return verbs.stream_table(
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
        return verbs.plan_table_scan(
            self.dataset_uuid, self.store, columns, self._predicates(predicates), as_of=as_of, options=options
        )

    def scan(self, *, as_of: AsOf | None = None, options: Overrides | None = None) -> LazyFrame:
        """The dataset as a lazy frame of Polars: `scan_dataset`."""
        return verbs.scan_dataset(self.dataset_uuid, self.store, as_of=as_of, options=options)

    def sql(self, statement: str, *, as_of: AsOf | None = None, options: Overrides | None = None) -> DuckDBPyRelation:
        """A statement of DuckDB; this dataset is the table of its uuid: `connect`."""
        return verbs.connect(self.store, as_of=as_of, options=options).sql(statement)

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
        return verbs.history(self.dataset_uuid, self.store, options=options)

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
        return verbs.read_dataset_changes(
            self.dataset_uuid, self.store, since, until, columns, self._predicates(predicates), on=on, options=options
        )

    def verify(self, deep: bool = False, *, options: Overrides | None = None) -> VerifyReport:
        """What is wrong, and what mends it: `verify_dataset`."""
        return verbs.verify_dataset(self.dataset_uuid, self.store, deep, options=options)

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
        return verbs.update_dataset_from_dataframes(
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
        return verbs.merge_dataset(
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
        return verbs.delete_rows(
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
        return verbs.update_rows(
            self.dataset_uuid,
            self.store,
            cast("IntoPredicates", self._predicates(predicates)),
            values,
            on_conflict=on_conflict,
            dry_run=dry_run,
            options=options,
        )

    def undo(self, commit: str | None = None, *, options: Overrides | None = None) -> DatasetMetadata:
        """Take the last commit back, or another one: `undo`."""
        return verbs.undo(self.dataset_uuid, self.store, commit, options=options)

    def tag(self, name: str, *, as_of: AsOf | None = None, options: Overrides | None = None) -> None:
        """Name a state, which keeps it: `tag_dataset`."""
        verbs.tag_dataset(self.dataset_uuid, self.store, name, as_of=as_of, options=options)

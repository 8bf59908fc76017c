"""What changed in a dataset between two states, row by row."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from typing import TypeAlias

import pyarrow as pa

from kartothek_cube.core.arguments import as_list
from kartothek_cube.core.arrow.difference import Difference, DifferenceBuffer, changes_schema
from kartothek_cube.core.dataset.reference import dataset_ref
from kartothek_cube.core.expressions.predicates import columns_of, parse_predicates
from kartothek_cube.core.metadata.naming import SINGLE_TABLE
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.runtime.options import Overrides, current_options
from kartothek_cube.core.runtime.telemetry import operation
from kartothek_cube.core.scan.execute import stream_tables, stream_together
from kartothek_cube.core.scan.plan import (
    changed_files,
    check_change_type,
    check_predicate_columns,
    check_same_types,
    check_since,
    check_table,
    checked_columns,
    names_of,
    shared_partition_keys,
    widened,
    with_columns_of,
)
from kartothek_cube.core.snapshots.time_travel import check_as_of, snapshots_between
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.errors import InvalidInput
from kartothek_cube.typing import AsOf, Columns, ColumnsByTable, IntoPredicates, StoreLike

__all__ = ["read_dataset_changes"]


def read_dataset_changes(
    dataset_uuid: str,
    store: StoreLike,
    since: AsOf,
    until: AsOf | None = None,
    columns: ColumnsByTable = None,
    predicates: IntoPredicates | None = None,
    *,
    on: Columns = None,
    table: str = SINGLE_TABLE,
    options: Overrides | None = None,
) -> pa.RecordBatchReader:
    """Read the rows of a dataset that came or went between two states.

    The result is the net difference of ``read_table(…, as_of=since)`` and
    ``read_table(…, as_of=until)``, whatever the commits between them were. Only files that one of
    the states has and the other has not are read. Null equals null, and NaN equals NaN. See the
    page *What changed*.

    Parameters
    ----------
    dataset_uuid : str
        The dataset.
    store : str, path, store or callable
        The store, in any form that `open_store` takes.
    since, until : str or datetime
        The older and the later state: the id of a commit, a tag, or a moment, as ``as_of`` of
        `read_table`. Without ``until``, the newest state.
    columns, predicates, table
        As in `read_table`.
    on : str or list of str, optional
        Columns of a key. Rows that went and rows that came with the same key are updates. Of
        several rows of a key, those in the same partition belong together first.
    options : optional
        Settings for this call and for reading its batches, from `options`. Rows beyond
        ``bytes_in_flight`` wait in a temporary file.

    Returns
    -------
    pyarrow.RecordBatchReader
        The column ``_change_type``, then those of the rows: ``insert`` and ``delete``; with ``on``
        also ``update_preimage``, each followed by its ``update_postimage``. Columns and types are
        those of ``until``, or wider where an overwrite has narrowed them; columns that ``since``
        lacks are null there. No other order is promised.

    Raises
    ------
    DatasetNotFound
        If the dataset does not exist.
    HistoryUnavailable
        If history does not reach back to ``since`` or ``until``.
    InvalidInput, InvalidType
        If ``until`` comes before ``since``, a column had another type then, or as in `read_table`.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube import open_store, read_dataset_changes
    >>> from kartothek_cube.api.dataset import history, store_dataframes_as_dataset
    >>> from kartothek_cube.api.dataset import update_dataset_from_dataframes
    >>> store = open_store("hmemory://")
    >>> sales = pd.DataFrame({"COUNTRY_CODE": ["DE", "FR"], "UNITS": [3, 4]})
    >>> _ = store_dataframes_as_dataset(store, "sales", [sales], partition_on=["COUNTRY_CODE"])
    >>> scope = [{"COUNTRY_CODE": "DE"}]
    >>> new = sales[:1].assign(UNITS=5)
    >>> _ = update_dataset_from_dataframes([new], store, "sales", delete_scope=scope)
    >>> first = history("sales", store)["commit"].iloc[-1]
    >>> read_dataset_changes("sales", store, first, on="COUNTRY_CODE").read_pandas()
           _change_type COUNTRY_CODE  UNITS
    0   update_preimage           DE      3
    1  update_postimage           DE      5
    """
    with operation("read_dataset_changes", options) as op:
        names, filters = names_of(columns, table, "columns"), parse_predicates(predicates)
        key = None if on is None else [str(column) for column in as_list(on, "on")]
        if key == []:
            raise InvalidInput("on names no column. Give the columns of a key, or leave it out.")
        first, last = check_since(since), check_as_of(until, "until")
        source = dataset_ref(dataset_uuid, store, None)
        before, after = _states(source.store, source.snapshot(), first, last)
        was = before.schemas.get(table, pa.schema([]))
        schema = widened(check_table(after, table), dict(zip(was.names, was.types, strict=True)))
        shown = checked_columns(names, schema, source.uuid)
        check_change_type(shown, f"Dataset {source.uuid!r}")
        checked_columns(key, schema, source.uuid)
        check_predicate_columns(filters, schema, source.uuid)
        within = [] if key is None else shared_partition_keys(before, after, table, key)
        read = [*shown, *dict.fromkeys(c for c in (*(key or ()), *within) if c not in shown)]
        check_same_types(was, schema, {*shown, *(key or ()), *columns_of(filters)}, source.uuid)
        schemas = {**after.schemas, table: schema}
        past = with_columns_of(before, schemas, ())
        present = after if schema.equals(after.schemas[table]) else with_columns_of(after, schemas, ())
        plans = [
            changed_files(source.store, snapshot, other, table, read, filters)
            for snapshot, other in ((past, present), (present, past))
        ]
        # Predicates on partition columns differ from file to file.
        stream = stream_together if filters is None else stream_tables
        gone, new = (stream(source.store, plan.request, plan.tasks()) for plan in plans)
        stored = pa.schema([schema.field(c) for c in read])
        hidden = [c for c in within if c not in shown]
        buffer = DifferenceBuffer(stored, key, within, current_options().bytes_in_flight // 2, hidden)
        result = changes_schema(pa.schema([schema.field(c) for c in shown]))
        differences = _compared(gone, new, buffer) if all(map(len, plans)) else _taken(gone, new, stored)
        batches = (
            batch
            for difference in differences
            for changes in (difference.updates(result), difference.others(result))
            for batch in changes.to_batches()
            if batch.num_rows
        )
        return pa.RecordBatchReader.from_batches(result, op.lasting(batches))


def _states(store: Store, newest: Snapshot, since: AsOf, until: AsOf | None) -> tuple[Snapshot, Snapshot]:
    pair = snapshots_between(store, newest, since, until)
    if pair.order > 0:
        raise InvalidInput(
            f"Dataset {newest.uuid!r}: until={until!r} comes before since={since!r}. Exchange them to see the changes."
        )
    return pair.before, pair.after


Rows: TypeAlias = Generator[pa.Table, None, None]


def _taken(before: Rows, after: Rows, schema: pa.Schema) -> Iterator[Difference]:
    """The rows of only one state: nothing can be equal, so that they need not wait for others."""
    nothing = schema.empty_table()
    with closing(before), closing(after):
        for rows in before:
            yield Difference(nothing, nothing, rows, nothing)
        for rows in after:
            yield Difference(nothing, nothing, nothing, rows)


def _compared(before: Rows, after: Rows, buffer: DifferenceBuffer) -> Iterator[Difference]:
    with buffer, closing(before), closing(after):
        for rows in before:
            buffer.add(rows, None)
        for rows in after:
            buffer.add(None, rows)
        yield from buffer.differences()

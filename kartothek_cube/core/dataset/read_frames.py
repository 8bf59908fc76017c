"""Reading a dataset partition by partition or group by group: one dict of frames, by table, for each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from kartothek_cube.core.compat.factory import DatasetFactory
from kartothek_cube.core.dataset.arguments import as_list, check_flag, source_of
from kartothek_cube.core.dataset.groups import make_group_plan
from kartothek_cube.core.dataset.load_groups import iter_groups, load_groups
from kartothek_cube.core.dataset.requests import GroupArguments, checked_label_filter
from kartothek_cube.core.frames import to_frame
from kartothek_cube.core.options import Overrides
from kartothek_cube.core.predicates import parse_predicates
from kartothek_cube.core.telemetry import operation
from kartothek_cube.errors import InvalidInput
from kartothek_cube.typing import AsOf, IntoPredicates, StoreLike

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["read_dataset_as_dataframes", "read_dataset_as_dataframes__iterator"]


def read_dataset_as_dataframes(
    dataset_uuid: str | None = None,
    store: StoreLike | None = None,
    tables: Iterable[str] | None = None,
    columns: Mapping[str, Iterable[str]] | None = None,
    concat_partitions_on_primary_index: bool = False,
    predicate_pushdown_to_io: bool = True,
    categoricals: Mapping[str, Iterable[str]] | None = None,
    label_filter: Callable[[str], bool] | None = None,
    dates_as_object: bool = False,
    predicates: IntoPredicates | None = None,
    factory: DatasetFactory | None = None,
    dispatch_by: Iterable[str] | None = None,
    *,
    as_of: AsOf | None = None,
    options: Overrides | None = None,
) -> list[dict[str, pd.DataFrame]]:
    """Read a dataset as one dict of frames for each partition, or for each value of indexed columns.

    Parameters
    ----------
    dataset_uuid : str, optional
        The dataset.
    store : str, path, store or callable, optional
        Where it lies; everything that `open_store` takes.
    tables : list of str, optional
        Tables to load; by default all. Names that the dataset does not have are passed over.
    columns : dict of table to list of str, optional
        Columns to return, in this order; of tables that are not named, all: partition keys first, then the others by name.
    concat_partitions_on_primary_index : bool, default False
        The same as ``dispatch_by`` the partition keys.
    predicate_pushdown_to_io : bool
        Accepted from kartothek; the result does not depend on it.
    categoricals : dict of table to list of str, optional
        Columns to return as pandas categoricals.
    label_filter : callable, optional
        Called with each label that the indices leave; a partition is read if it returns True.
    dates_as_object : bool, default False
        Return dates as ``datetime.date`` objects and not as ``datetime64``.
    predicates : list of list of tuple, optional
        ``[[(column, operator, value), ...], ...]``: an OR of ANDs. Every table that is read must have the columns.
    factory : DatasetFactory, optional
        Instead of ``dataset_uuid`` and ``store``: the dataset as the factory has loaded it.
    dispatch_by : str or list of str, optional
        Indexed columns, partition keys included. One entry for each combination of their values, ascending; a row with
        null in one of them is in no entry. ``[]``: everything in one entry, also where nothing matches.
    as_of : str or datetime, optional
        A commit's id or a moment (without a zone: UTC): the dataset as it was then, instead of as it is. `history` lists the commits.
    options : optional
        What `options` returns: settings for this call.

    Returns
    -------
    list of dict of str to pandas.DataFrame
        For each partition or group a frame for each of its tables, with a fresh row index and in the types of the
        dataset's schema, whatever its file looks like. Partitions follow the document; one that no index excludes is
        there even if no row of it matches.

    Raises
    ------
    DatasetNotFound
        If the dataset does not exist in the store.
    KeyNotFound
        If a file that the dataset names does not exist.
    UnknownColumn
        If a table lacks a column that is asked for, also by predicates or ``dispatch_by``.
    InvalidRequest
        If a column of ``dispatch_by`` has no index.
    InvalidInput, InvalidType
        If arguments contradict each other or do not fit the dataset, or its history does not reach back to ``as_of``. No data file was read.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube.api.cube import Cube, build_cube
    >>> from kartothek_cube import open_store
    >>> store = open_store("hmemory://")
    >>> sales = pa.table({"PRODUCT_ID": [1, 2, 3], "COUNTRY_CODE": ["FR", "DE", "DE"]})
    >>> _ = build_cube(sales, Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales"), store)
    >>> [german, french] = read_dataset_as_dataframes("sales++seed", store, dispatch_by="COUNTRY_CODE")
    >>> german["table"]
      COUNTRY_CODE  PRODUCT_ID
    0           DE           2
    1           DE           3
    """
    with operation("read_dataset_as_dataframes", options) as op:
        source, convert = source_of(dataset_uuid, store, factory, as_of), _frames_of(dates_as_object)
        arguments = _arguments(tables, columns, categoricals, label_filter, predicates, dispatch_by, concat_partitions_on_primary_index)
        plan = make_group_plan(source.store, source.snapshot(), arguments, keep=source.keep)
        return [op.returned(frames, _rows) for frames in load_groups(source.store, plan, convert)]


def read_dataset_as_dataframes__iterator(
    dataset_uuid: str | None = None,
    store: StoreLike | None = None,
    tables: Iterable[str] | None = None,
    columns: Mapping[str, Iterable[str]] | None = None,
    concat_partitions_on_primary_index: bool = False,
    predicate_pushdown_to_io: bool = True,
    categoricals: Mapping[str, Iterable[str]] | None = None,
    label_filter: Callable[[str], bool] | None = None,
    dates_as_object: bool = False,
    predicates: IntoPredicates | None = None,
    factory: DatasetFactory | None = None,
    dispatch_by: Iterable[str] | None = None,
    *,
    as_of: AsOf | None = None,
    options: Overrides | None = None,
) -> Iterator[dict[str, pd.DataFrame]]:
    """Read a dataset entry by entry, with bounded memory; arguments, entries and errors as in `read_dataset_as_dataframes`.

    Arguments are checked by the call, not by the first step. The next entries are loaded in threads while one is worked on,
    as many as fit into the option ``bytes_in_flight``; the options that hold for the call hold for all of them.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube.api.cube import Cube, build_cube
    >>> from kartothek_cube import open_store
    >>> store = open_store("hmemory://")
    >>> sales = pa.table({"PRODUCT_ID": [1, 2, 3], "COUNTRY_CODE": ["FR", "DE", "DE"]})
    >>> _ = build_cube(sales, Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales"), store)
    >>> [len(frames["table"]) for frames in read_dataset_as_dataframes__iterator("sales++seed", store)]
    [2, 1]
    """
    with operation("read_dataset_as_dataframes__iterator", options) as op:
        source, convert = source_of(dataset_uuid, store, factory, as_of), _frames_of(dates_as_object)
        arguments = _arguments(tables, columns, categoricals, label_filter, predicates, dispatch_by, concat_partitions_on_primary_index)
        plan = make_group_plan(source.store, source.snapshot(), arguments, keep=source.keep)
        return op.lasting(iter_groups(source.store, plan, convert), _rows)


def _arguments(tables: object, columns: object, categoricals: object, label_filter: object, predicates: object, dispatch_by: object, by_partition_keys: object) -> GroupArguments:
    by_keys = check_flag(by_partition_keys, "concat_partitions_on_primary_index")
    if by_keys and dispatch_by is not None:
        raise InvalidInput("Both `dispatch_by` and `concat_partitions_on_primary_index` are provided; the latter means dispatch by the partition keys.")
    return GroupArguments(
        None if tables is None else {str(table) for table in as_list(tables, "tables")},
        columns,
        categoricals,
        parse_predicates(predicates),
        checked_label_filter(label_filter),
        None if dispatch_by is None else as_list(dispatch_by, "dispatch_by"),
        by_keys,
    )


def _frames_of(dates_as_object: object) -> Callable[[dict[str, pa.Table]], dict[str, pd.DataFrame]]:
    as_objects = check_flag(dates_as_object, "dates_as_object")
    return lambda tables: {name: to_frame(t, dates_as_object=as_objects, nullable=True) for name, t in tables.items()}


def _rows(frames: Mapping[str, pd.DataFrame]) -> int:
    return sum(map(len, frames.values()))

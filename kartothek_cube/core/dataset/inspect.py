"""List datasets, and show statistics of row groups and hashes of rows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from kartothek_cube.core.arguments import as_list
from kartothek_cube.core.arrow.keys import group_starts, pack_one
from kartothek_cube.core.arrow.pandas import to_frame
from kartothek_cube.core.dataset.reference import dataset_ref
from kartothek_cube.core.expressions.predicates import parse_predicates
from kartothek_cube.core.io.reader import FileRequest, read_rows
from kartothek_cube.core.kartothek.factory import DatasetFactory
from kartothek_cube.core.maintenance.hashing import Hashes, row_group_table, row_hashes, total_hash
from kartothek_cube.core.metadata.naming import JSON_SUFFIX, MSGPACK_SUFFIX, SINGLE_TABLE
from kartothek_cube.core.runtime.executor import THREADS, Executor, map_files
from kartothek_cube.core.runtime.options import Overrides
from kartothek_cube.core.runtime.telemetry import operation
from kartothek_cube.core.scan.plan import FilePlan, ScanTask, checked_columns, labels_of, make_file_plan
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.stores.open import open_instrumented
from kartothek_cube.errors import InvalidInput
from kartothek_cube.typing import AsOf, Columns, IntoPredicates, StoreLike

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "collect_dataset_metadata",
    "collect_dataset_metadata_on",
    "hash_dataset",
    "hash_dataset_on",
    "list_datasets",
]

_HASH = "hash"


def collect_dataset_metadata(
    store: StoreLike | None = None,
    dataset_uuid: str | None = None,
    table_name: str = SINGLE_TABLE,
    predicates: IntoPredicates | None = None,
    frac: float = 1.0,
    factory: DatasetFactory | None = None,
    *,
    random_state: int | np.random.Generator | np.random.BitGenerator | np.random.SeedSequence | None = None,
    as_of: AsOf | None = None,
    options: Overrides | None = None,
) -> pd.DataFrame:
    """Statistics from the footers of the data files: one row per row group.

    Parameters
    ----------
    store : str, path, store or callable
        The store, in any form that `open_store` takes.
    dataset_uuid : str
        The dataset.
    table_name : str, default "table"
        The table.
    predicates : list of list of tuple, optional
        Only files that may have matching rows by their partition values and indices. Rows are not
        read.
    frac : float, default 1.0
        Share of the files, above 0 and at most 1. The sample is random and has at least one file.
    factory : DatasetFactory, optional
        Instead of ``dataset_uuid`` and ``store``.
    random_state : int or numpy.random.Generator, optional
        Seed of the sample.
    as_of : str or datetime, optional
        As in `read_table`.
    options : optional
        Settings for this call, from `options`.

    Returns
    -------
    pandas.DataFrame
        In the order of the document; without files, an empty frame with the same types. Sizes are
        in bytes.

        - ``partition_label``: label of the partition.
        - ``row_group_id``: position of the row group in its file, from 0.
        - ``row_group_compressed_size``, ``row_group_uncompressed_size``: size of the column chunks,
          encoded in the file and decoded.
        - ``number_rows_total``, ``number_row_groups``: of the file.
        - ``serialized_size``: size of the file.
        - ``number_rows_per_row_group``: rows of the row group.

        kartothek returns an uncompressed size as ``row_group_compressed_size``, and the size of the
        footer as ``serialized_size``.

    Raises
    ------
    InvalidInput, InvalidType
        If ``frac`` is out of range, or the predicates do not fit the dataset.
    DatasetNotFound, KeyNotFound
        If the dataset, the table, or a file does not exist.
    Unsupported
        If a file is not in Parquet.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube import open_store
    >>> from kartothek_cube.api.dataset import collect_dataset_metadata, store_dataframes_as_dataset
    >>> store = open_store("hmemory://")
    >>> sales = pd.DataFrame({"PRODUCT_ID": [1, 2, 3], "COUNTRY_CODE": ["DE", "DE", "FR"]})
    >>> _ = store_dataframes_as_dataset(store, "sales", [sales], partition_on=["COUNTRY_CODE"])
    >>> collect_dataset_metadata(store, "sales")["number_rows_total"].tolist()
    [2, 1]
    """
    with operation("collect_dataset_metadata", options):
        return collect_dataset_metadata_on(
            THREADS, store, dataset_uuid, table_name, predicates, frac, factory, random_state, as_of
        )


def collect_dataset_metadata_on(
    executor: Executor,
    store: StoreLike | None,
    dataset_uuid: str | None,
    table_name: str,
    predicates: IntoPredicates | None,
    frac: float,
    factory: DatasetFactory | None,
    random_state: int | np.random.Generator | np.random.BitGenerator | np.random.SeedSequence | None,
    as_of: AsOf | None,
) -> pd.DataFrame:
    """`collect_dataset_metadata` inside an operation; the executor reads the footers."""
    is_number = isinstance(frac, (int, float, np.number)) and not isinstance(frac, bool)  # type: ignore[redundant-expr]
    if not is_number or not 0 < frac <= 1:
        raise InvalidInput(f"Invalid value for parameter `frac`: {frac!r}. It is a number above 0 and at most 1.")
    source = dataset_ref(dataset_uuid, store, factory, as_of)
    snapshot = source.snapshot()
    plan = make_file_plan(source.store, snapshot, table_name, [], parse_predicates(predicates), keep=source.keep)
    labels = labels_of(plan, snapshot, table_name)
    sample: Sequence[int] = range(len(labels))
    if frac < 1 and labels:
        size = max(1, int(len(labels) * float(frac)))
        sample = sorted(np.random.default_rng(random_state).choice(len(labels), size, replace=False).tolist())
    files = [(labels[i], plan.files[i].as_py()) for i in sample]
    frame: pd.DataFrame = row_group_table(source.store, snapshot.uuid, files, executor).to_pandas()
    return frame.astype({"partition_label": object})  # kartothek's type, not pandas' new text type


# --- hashes ---------------------------------------------------------------------------------------


def hash_dataset(
    store: StoreLike | None = None,
    dataset_uuid: str | None = None,
    subset: Columns = None,
    group_key: Columns = None,
    table: str = SINGLE_TABLE,
    predicates: IntoPredicates | None = None,
    factory: DatasetFactory | None = None,
    *,
    as_of: AsOf | None = None,
    options: Overrides | None = None,
) -> pd.Series[int]:
    """A 64-bit hash of the rows of each partition, or of each group of rows.

    Equal rows have equal hashes, independent of order, files, encodings, widths of types and
    versions of libraries; duplicate rows count. So hashes show whether two datasets have the same
    rows, or where they differ. They are not cryptographic. They differ from kartothek's hashes,
    which depend on the version of pandas.

    Parameters
    ----------
    store : str, path, store or callable
        The store, in any form that `open_store` takes.
    dataset_uuid : str
        The dataset.
    subset : str or list of str, optional
        Columns to hash, by default all. Their names count, their order does not.
    group_key : str or list of str, optional
        Group rows by these columns.
    table : str, default "table"
        The table.
    predicates : list of list of tuple, optional
        Hash only matching rows.
    factory : DatasetFactory, optional
        Instead of ``dataset_uuid`` and ``store``.
    as_of : str or datetime, optional
        As in `read_table`.
    options : optional
        Settings for this call, from `options`.

    Returns
    -------
    pandas.Series
        Type ``uint64``. Without ``group_key``: by label, in the order of the document; with
        predicates, without partitions that have no matching row. With ``group_key``: by the sorted
        values of these columns, in a ``MultiIndex`` if there are several; nulls are one group.

    Raises
    ------
    InvalidInput, InvalidType
        If columns or predicates do not fit the dataset.
    DatasetNotFound, KeyNotFound
        If the dataset, the table, or a file does not exist.

    Notes
    -----
    The hash of a group is the sum of the hashes of its rows modulo 2^64.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube import open_store
    >>> from kartothek_cube.api.dataset import hash_dataset, store_dataframes_as_dataset
    >>> store = open_store("hmemory://")
    >>> sales = pd.DataFrame({"PRODUCT_ID": [1, 2, 3], "COUNTRY_CODE": ["DE", "DE", "FR"]})
    >>> _ = store_dataframes_as_dataset(store, "sales", [sales])
    >>> _ = store_dataframes_as_dataset(store, "copy", [sales[::-1]], partition_on=["COUNTRY_CODE"])
    >>> hashes = hash_dataset(store, "sales", group_key="COUNTRY_CODE")
    >>> hashes.equals(hash_dataset(store, "copy", group_key="COUNTRY_CODE")), list(hashes.index)
    (True, ['DE', 'FR'])
    """
    with operation("hash_dataset", options):
        return hash_dataset_on(THREADS, store, dataset_uuid, subset, group_key, table, predicates, factory, as_of)


def hash_dataset_on(
    executor: Executor,
    store: StoreLike | None,
    dataset_uuid: str | None,
    subset: Columns,
    group_key: Columns,
    table: str,
    predicates: IntoPredicates | None,
    factory: DatasetFactory | None,
    as_of: AsOf | None,
) -> pd.Series[int]:
    """`hash_dataset` inside an operation; the executor reads the files."""
    source = dataset_ref(dataset_uuid, store, factory, as_of)
    snapshot = source.snapshot()
    hashed = None if subset is None else [str(c) for c in as_list(subset, "subset")]
    keys = [str(c) for c in as_list(group_key, "group_key")]
    to_read = None if hashed is None else list(dict.fromkeys([*hashed, *keys]))
    plan = make_file_plan(source.store, snapshot, table, to_read, parse_predicates(predicates), keep=source.keep)
    columns = list(plan.request.columns) if hashed is None else hashed
    if group_key is None:
        return _by_partition(source.store, plan, columns, labels_of(plan, snapshot, table), executor)
    return _by_group(source.store, plan, columns, keys, executor)


def _by_partition(
    store: Store, plan: FilePlan, columns: Sequence[str], labels: Sequence[str], executor: Executor
) -> pd.Series[int]:
    import pandas as pd

    hashed = map_files(partial(_file_hash, store, plan.request, columns), plan.tasks(), executor=executor, heavy=True)
    by_label = {
        label: value
        for label, (value, rows) in zip(labels, hashed, strict=True)
        if rows or plan.request.predicates is None
    }
    index = pd.Index(list(by_label), dtype=object)
    # pandas' stubs take an array of integers for one of floats.
    return cast("pd.Series[int]", pd.Series(np.array(list(by_label.values()), dtype=np.uint64), index=index))


def _file_hash(store: Store, request: FileRequest, columns: Sequence[str], task: ScanTask) -> tuple[np.uint64, int]:
    hashes = row_hashes(read_rows(store, task.key, request, task.constants), columns)
    return total_hash(hashes), len(hashes)


def _by_group(
    store: Store, plan: FilePlan, columns: Sequence[str], keys: Sequence[str], executor: Executor
) -> pd.Series[int]:
    import pandas as pd

    request = plan.request
    fields = [request.schema.field(c) for c in checked_columns(keys, request.schema, request.dataset)]
    nested = [f.name for f in fields if pt.is_nested(f.type)]
    if nested or not fields:
        raise InvalidInput(
            f"The columns {nested} make no groups of dataset {request.dataset!r}; "
            "group_key names columns without lists, at least one."
        )
    schema = pa.schema(fields)
    of_file = partial(_group_hashes, store, request, columns, schema)
    hashed = map_files(of_file, plan.tasks(), executor=executor, heavy=True)
    # Without files the result is empty, in the types of the columns.
    parts = list(hashed) or [_summed(schema.empty_table(), np.zeros(0, dtype=np.uint64))]
    merged = pa.concat_tables(parts).combine_chunks()
    result = _summed(merged.select(range(len(keys))), merged.column(len(keys)).to_numpy())
    frame = to_frame(result.select(range(len(keys))), dates_as_object=True)
    index = pd.Index(frame[keys[0]], name=keys[0]) if len(keys) == 1 else pd.MultiIndex.from_frame(frame)
    return pd.Series(result.column(len(keys)).to_numpy(), index=index)


def _group_hashes(
    store: Store, request: FileRequest, columns: Sequence[str], keys: pa.Schema, task: ScanTask
) -> pa.Table:
    rows = read_rows(store, task.key, request, task.constants)
    columns_of_keys = []
    for key in keys:
        column = rows.column(key.name)
        if pt.is_floating(key.type):
            # One group for NaN and null, and one for 0.0 and -0.0, to which adding 0.0 leads.
            column = pc.if_else(pc.is_nan(column), pa.scalar(None, key.type), pc.add(column, 0.0).cast(key.type))
        columns_of_keys.append(column)
    return _summed(pa.table(columns_of_keys, schema=keys), row_hashes(rows, columns))


def _summed(keys: pa.Table, hashes: Hashes) -> pa.Table:
    """The distinct keys, sorted, and the sum of the hashes of each key as the last column."""
    codes = pack_one(keys, keys.column_names)
    order = np.argsort(codes, kind="stable")
    starts = group_starts(codes[order])
    # Overflow wraps around: the sum modulo 2^64.
    sums = np.add.reduceat(hashes[order], starts) if len(starts) else np.zeros(0, dtype=np.uint64)
    return keys.take(pa.array(order[starts])).append_column(_HASH, pa.array(sums, type=pa.uint64()))


_DOCUMENTS = (JSON_SUFFIX, MSGPACK_SUFFIX)


def list_datasets(store: StoreLike) -> list[str]:
    """Uuids of the datasets in a store, sorted: one listing of the top level, no document is read.

    Datasets of a cube appear as ``<uuid_prefix>++<dataset>``. A dataset exists if and only if its
    document exists, see the page *The format*. It also names datasets that a write to a cube makes
    and has not committed: readers do not see them yet.

    Parameters
    ----------
    store : str, path, store or callable
        The store, in any form that `open_store` takes.

    Returns
    -------
    list of str
        Uuids, e.g. ``["prices", "sales++seed"]``.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube.api.dataset import store_dataframes_as_dataset
    >>> sales = pa.table({"PRODUCT_ID": [1], "UNITS": [3]})
    >>> _ = store_dataframes_as_dataset("hfs://listed", "sales", [sales], overwrite=True)
    >>> list_datasets("hfs://listed")
    ['sales']
    """
    keys = (entry.key for entry in open_instrumented(store).list("").entries)
    return sorted({key.removesuffix(end) for key in keys for end in _DOCUMENTS if key.endswith(end)})

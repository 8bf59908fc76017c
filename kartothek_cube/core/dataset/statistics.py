"""Figures of a dataset: row groups and sizes of its files, and hashes of its rows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from kartothek_cube.core.compat.factory import DatasetFactory
from kartothek_cube.core.dataset.arguments import as_list, source_of
from kartothek_cube.core.dataset.plan import labels_of, make_file_plan
from kartothek_cube.core.dataset.requests import checked_columns
from kartothek_cube.core.files import FileRequest, read_rows
from kartothek_cube.core.frames import to_frame
from kartothek_cube.core.maintenance.hashing import Hashes, row_hashes, total_hash
from kartothek_cube.core.maintenance.row_groups import row_group_table
from kartothek_cube.core.naming import SINGLE_TABLE
from kartothek_cube.core.options import Overrides
from kartothek_cube.core.parallel import THREADS, Executor, map_files
from kartothek_cube.core.predicates import parse_predicates
from kartothek_cube.core.rowkeys import group_starts, pack_one
from kartothek_cube.core.scan import FilePlan, ScanTask
from kartothek_cube.core.store import Store
from kartothek_cube.core.telemetry import operation
from kartothek_cube.errors import InvalidInput
from kartothek_cube.typing import AsOf, Columns, IntoPredicates, StoreLike

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["collect_dataset_metadata", "collect_dataset_metadata_on", "hash_dataset", "hash_dataset_on"]

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
    """What the footers of the data files say: one row for each row group.

    Parameters
    ----------
    store : str, path, store or callable
        Where the dataset lies; everything that `open_store` takes.
    dataset_uuid : str
        The dataset.
    table_name : str, default "table"
        Which table of the dataset.
    predicates : list of list of tuple, optional
        Only files that may hold matching rows, as partition values and indices say; rows are not looked at.
    frac : float, default 1.0
        Share of the files, above 0 and at most 1; at least one file is taken. Which ones is random.
    factory : DatasetFactory, optional
        Instead of ``dataset_uuid`` and ``store``.
    random_state : int or numpy.random.Generator, optional
        Makes the choice of files repeatable.
    as_of : str or datetime, optional
        As in `read_table`.
    options : optional
        What `options` returns: settings for this call.

    Returns
    -------
    pandas.DataFrame
        In the order of the document; without files, an empty frame with the same types. Sizes are in bytes.

        - ``partition_label``: label of the partition.
        - ``row_group_id``: position of the row group in its file.
        - ``row_group_compressed_size``, ``row_group_uncompressed_size``: size of its column chunks in the file, and decoded.
        - ``number_rows_total``, ``number_row_groups``: of the file.
        - ``serialized_size``: size of the file.
        - ``number_rows_per_row_group``: rows of the row group.

        In kartothek ``row_group_compressed_size`` is an uncompressed size, and ``serialized_size`` that of the footer.

    Raises
    ------
    InvalidInput, InvalidType
        If ``frac`` is out of its range, or the predicates do not fit the dataset.
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
        return collect_dataset_metadata_on(THREADS, store, dataset_uuid, table_name, predicates, frac, factory, random_state, as_of)


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
    """Read row group statistics as `collect_dataset_metadata` does, inside an operation; the executor reads the footers."""
    share = _checked_share(frac)
    source = source_of(dataset_uuid, store, factory, as_of)
    snapshot = source.snapshot()
    plan = make_file_plan(source.store, snapshot, table_name, [], parse_predicates(predicates), keep=source.keep)
    labels = labels_of(plan, snapshot, table_name)
    chosen = _sample(len(labels), share, random_state)
    files = [(labels[i], plan.files[int(i)].as_py()) for i in chosen]
    frame: pd.DataFrame = row_group_table(source.store, snapshot.uuid, files, executor).to_pandas()
    return frame.astype({"partition_label": object})


def _checked_share(frac: object) -> float:
    if isinstance(frac, bool) or not isinstance(frac, (int, float, np.number)) or not 0 < frac <= 1:
        raise InvalidInput(f"Invalid value for parameter `frac`: {frac!r}. It is a number above 0 and at most 1.")
    return float(frac)


def _sample(n: int, share: float, random_state: int | np.random.Generator | np.random.BitGenerator | np.random.SeedSequence | None) -> Sequence[int]:
    if share == 1.0 or not n:
        return range(n)
    picked = np.random.default_rng(random_state).choice(n, max(1, int(n * share)), replace=False)
    return [int(i) for i in np.sort(picked)]


# --- hashes -----------------------------------------------------------------------------------------------------------


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

    Equal rows give equal hashes, in whatever order, files, encodings and widths of types they are stored, and whichever versions of
    libraries compute them; a row counts as often as it is there. So hashes tell whether two datasets hold the same rows, or where they differ.
    They are no protection against forgery, and their values are others than those of kartothek, which depend on the version of pandas.

    Parameters
    ----------
    store : str, path, store or callable
        Where the dataset lies; everything that `open_store` takes.
    dataset_uuid : str
        The dataset.
    subset : str or list of str, optional
        Columns that count, by default all. Their order does not matter, their names do.
    group_key : str or list of str, optional
        Columns whose values make the groups.
    table : str, default "table"
        Which table of the dataset.
    predicates : list of list of tuple, optional
        Only rows that satisfy them.
    factory : DatasetFactory, optional
        Instead of ``dataset_uuid`` and ``store``.
    as_of : str or datetime, optional
        As in `read_table`.
    options : optional
        What `options` returns: settings for this call.

    Returns
    -------
    pandas.Series
        Type ``uint64``. Without ``group_key`` by label, in the order of the document; with predicates, partitions without a matching
        row are left out. With ``group_key`` by the sorted values of these columns, in a ``MultiIndex`` if there are several; null
        values make a group of their own.

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
    >>> one, other = (hash_dataset(store, uuid, group_key="COUNTRY_CODE") for uuid in ("sales", "copy"))
    >>> one.equals(other), list(one.index)
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
    """Hash a dataset as `hash_dataset` does, inside an operation; the executor reads the files."""
    source = source_of(dataset_uuid, store, factory, as_of)
    snapshot = source.snapshot()
    counted = None if subset is None else [str(c) for c in as_list(subset, "subset")]
    keys = [str(c) for c in as_list(group_key, "group_key")]
    wanted = None if counted is None else list(dict.fromkeys([*counted, *keys]))
    plan = make_file_plan(source.store, snapshot, table, wanted, parse_predicates(predicates), keep=source.keep)
    columns = list(plan.request.columns) if counted is None else counted
    if group_key is None:
        return _by_partition(source.store, plan, columns, labels_of(plan, snapshot, table), executor)
    return _by_group(source.store, plan, columns, keys, executor)


def _by_partition(store: Store, plan: FilePlan, columns: Sequence[str], labels: Sequence[str], executor: Executor) -> pd.Series[int]:
    import pandas as pd

    hashed = map_files(partial(_file_hash, store, plan.request, columns), plan.tasks(), executor=executor, heavy=True)
    found = {label: value for label, (value, rows) in zip(labels, hashed, strict=True) if rows or plan.request.predicates is None}
    # pandas' stubs take an array of integers for one of floats.
    return cast("pd.Series[int]", pd.Series(np.array(list(found.values()), dtype=np.uint64), index=pd.Index(list(found), dtype=object)))


def _file_hash(store: Store, request: FileRequest, columns: Sequence[str], task: ScanTask) -> tuple[np.uint64, int]:
    hashes = row_hashes(read_rows(store, task.key, request, task.constants), columns)
    return total_hash(hashes), len(hashes)


def _by_group(store: Store, plan: FilePlan, columns: Sequence[str], keys: Sequence[str], executor: Executor) -> pd.Series[int]:
    import pandas as pd

    schema = _key_schema(plan.request, keys)
    hashed = map_files(partial(_group_hashes, store, plan.request, columns, schema), plan.tasks(), executor=executor, heavy=True)
    parts = list(hashed) or [_summed(schema.empty_table(), np.zeros(0, dtype=np.uint64))]
    merged = pa.concat_tables(parts).combine_chunks()
    result = _summed(merged.select(range(len(keys))), merged.column(len(keys)).to_numpy())
    frame = to_frame(result.select(range(len(keys))), dates_as_object=True)
    index = pd.Index(frame[keys[0]], name=keys[0]) if len(keys) == 1 else pd.MultiIndex.from_frame(frame)
    return pd.Series(result.column(len(keys)).to_numpy(), index=index)


def _group_hashes(store: Store, request: FileRequest, columns: Sequence[str], keys: pa.Schema, task: ScanTask) -> pa.Table:
    rows = read_rows(store, task.key, request, task.constants)
    return _summed(pa.table([_key_column(rows.column(c)) for c in keys.names], schema=keys), row_hashes(rows, columns))


def _key_schema(request: FileRequest, keys: Sequence[str]) -> pa.Schema:
    fields = [request.schema.field(c) for c in checked_columns(keys, request.schema, request.dataset)]
    nested = [f.name for f in fields if pt.is_nested(f.type)]
    if nested or not fields:
        raise InvalidInput(f"The columns {nested} make no groups of dataset {request.dataset!r}; group_key names columns without lists, at least one.")
    return pa.schema(fields)


def _key_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The values that groups have: NaN is null."""
    if not pt.is_floating(column.type):
        return column
    return pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), pc.add(column, 0.0).cast(column.type))


def _summed(keys: pa.Table, hashes: Hashes) -> pa.Table:
    """The distinct keys in their order, and behind them the sum of the hashes of each."""
    codes = pack_one(keys, keys.column_names)
    order = np.argsort(codes, kind="stable")
    starts = group_starts(codes[order])
    sums = np.add.reduceat(hashes[order], starts) if len(starts) else np.zeros(0, dtype=np.uint64)
    return keys.take(pa.array(order[starts])).append_column(_HASH, pa.array(sums, type=pa.uint64()))

"""What the footers of data files say of their row groups."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from kartothek_cube.core.naming import DATA_SUFFIX
from kartothek_cube.core.parallel import THREADS, Executor, map_files
from kartothek_cube.core.parquet import open_file
from kartothek_cube.core.store import Store
from kartothek_cube.errors import Unsupported

__all__ = ["ROW_GROUP_SCHEMA", "row_group_table"]

ROW_GROUP_SCHEMA = pa.schema(
    [
        ("partition_label", pa.string()),
        ("row_group_id", pa.int64()),
        ("row_group_compressed_size", pa.int64()),
        ("row_group_uncompressed_size", pa.int64()),
        ("number_rows_total", pa.int64()),
        ("number_row_groups", pa.int64()),
        ("serialized_size", pa.int64()),
        ("number_rows_per_row_group", pa.int64()),
    ]
)


def row_group_table(store: Store, dataset: str, files: Sequence[tuple[str, str]], executor: Executor = THREADS) -> pa.Table:
    """One row for each row group of these files, given as ``(label, key)``, in their order; the columns are those of `ROW_GROUP_SCHEMA`."""
    rows = [row for found in map_files(partial(_row_groups, store, dataset), files, executor=executor, store=store) for row in found]
    return pa.Table.from_pylist(rows, schema=ROW_GROUP_SCHEMA)


def _row_groups(store: Store, dataset: str, file: tuple[str, str]) -> list[dict[str, Any]]:
    label, key = file
    if not key.endswith(DATA_SUFFIX):
        raise Unsupported(f"The file {key!r} of dataset {dataset!r} is no Parquet file, so it has no row groups.")
    with open_file(store, key, dataset) as source:
        metadata, chunks = source.metadata, source.chunks(range(source.metadata.num_row_groups), {*source.schema.names})
        size = source.size
    return [_row(label, metadata, group, size, chunks[group]) for group in range(metadata.num_row_groups)]


def _row(label: str, metadata: Any, number: int, size: int, chunks: Sequence[Any]) -> dict[str, Any]:
    group = metadata.row_group(number)
    sizes = np.array([[c.total_compressed_size, c.total_uncompressed_size] for c in chunks], dtype=np.int64).reshape(-1, 2).sum(axis=0)
    values = (label, number, int(sizes[0]), int(sizes[1]), metadata.num_rows, metadata.num_row_groups, size, group.num_rows)
    return dict(zip(ROW_GROUP_SCHEMA.names, values, strict=True))

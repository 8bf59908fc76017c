"""Cuts rows into physical partitions: at most one sort, then slices by offsets. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from kartothek_cube.core.arrow.sort_keys import IntArray, group_starts, pack_one
from kartothek_cube.core.metadata.naming import label_of
from kartothek_cube.core.metadata.partition_values import partition_text
from kartothek_cube.core.write.receipt import PartitionRows
from kartothek_cube.errors import InvalidInput, Unsupported

__all__ = ["split_rows"]

# NumPy sorts 16-bit keys by radix, five times as fast as wider ones.
_RADIX_KEYS = 2**16


def split_rows(table: pa.Table, partition_on: Sequence[str], base_label: str, uuid: str) -> list[PartitionRows]:
    """Cut rows by partition values: partitions in order of their values, rows in input order."""
    if not partition_on:
        return [PartitionRows({}, base_label, table)]
    columns = [(name, table.column(name)) for name in partition_on]
    nulls = [n for n, c in columns if pc.any(pc.is_null(c, nan_is_null=pt.is_floating(c.type))).as_py()]
    if nulls:
        raise InvalidInput(
            f"There are nulls in the partition columns {nulls} of dataset {uuid!r}; a path cannot name them."
        )
    table, starts = _grouped(table, partition_on)
    firsts = _distinct_rows(table.select(list(partition_on)).take(pa.array(starts)), uuid)
    # The path has these values, and readers take them from there, whatever the file says.
    payload = table.drop_columns(list(partition_on))
    if payload.num_columns == 0:
        raise InvalidInput(f"No data left to save outside partition columns {list(partition_on)} in dataset {uuid!r}.")
    lengths = np.diff(np.append(starts, table.num_rows))
    types = {name: table.schema.field(name).type for name in partition_on}
    parts = []
    for values, start, length in zip(firsts, starts, lengths, strict=True):
        pairs: list[tuple[str, str | bytes]] = []
        for name, value in values.items():
            try:
                pairs.append((name, partition_text(value, types[name])))
            except Unsupported as error:
                raise Unsupported(f"Partition column {name!r} of dataset {uuid!r}: {error}") from None
        label = label_of(pairs, base_label)  # type: ignore[arg-type]
        parts.append(PartitionRows(values, label, payload.slice(start, length)))
    return parts


def _grouped(table: pa.Table, by: Sequence[str]) -> tuple[pa.Table, IntArray]:
    """The rows sorted by some columns, equal ones in their order, and the start of each group."""
    if not table.num_rows:
        return table, np.zeros(0, dtype=np.int64)
    changed = np.zeros(table.num_rows - 1, dtype=bool)
    for column in map(table.column, by):
        changed |= pc.not_equal(column.slice(1), column.slice(0, len(column) - 1)).to_numpy()
    starts = np.concatenate(([0], np.flatnonzero(changed) + 1)).astype(np.int64)
    # Keys are packed once per run of equal rows. Rows that are grouped already are not sorted.
    keys = pack_one(table.select(list(by)).take(pa.array(starts)), by)
    if bool((keys[1:] > keys[:-1]).all()):
        return table, starts
    keys = np.repeat(keys, np.diff(np.append(starts, table.num_rows)))
    keys = keys.astype(np.uint16) if int(keys.min()) >= 0 and int(keys.max()) < _RADIX_KEYS else keys
    order = np.argsort(keys, kind="stable")
    return table.take(pa.array(order)), group_starts(keys[order])


def _distinct_rows(rows: pa.Table, uuid: str) -> list[dict[str, Any]]:
    columns = []
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        try:
            columns.append(column.to_pylist())
        except UnicodeDecodeError:
            raise InvalidInput(
                f"Partition column {name!r} of dataset {uuid!r} has text that is not UTF-8, which a path cannot name."
            ) from None
        except (OverflowError, ValueError):
            raise InvalidInput(
                f"Partition column {name!r} of dataset {uuid!r} has moments outside the years 1 to 9999, "
                "which a path cannot name."
            ) from None
    return [dict(zip(rows.column_names, row, strict=True)) for row in zip(*columns, strict=True)]

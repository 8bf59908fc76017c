"""Cutting rows into physical partitions: one sort at most, and one cut by offsets. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from kartothek_cube.core.metadata.partition_values import partition_text
from kartothek_cube.core.naming import label_of
from kartothek_cube.core.receipt import PartitionRows
from kartothek_cube.core.rowkeys import IntArray, group_starts, pack_one
from kartothek_cube.errors import InvalidInput, Unsupported

__all__ = ["split_rows"]

_COUNTED = 2**16


def split_rows(table: pa.Table, partition_on: Sequence[str], base_label: str, where: str) -> list[PartitionRows]:
    """Cut rows by their partition values; order inside a part is kept, parts come in order of their values."""
    if not partition_on:
        return [PartitionRows({}, base_label, table)]
    nulls = [column for column in partition_on if pc.any(pc.is_null(table.column(column), nan_is_null=pt.is_floating(table.schema.field(column).type))).as_py()]
    if nulls:
        raise InvalidInput(f"There are nulls in the partition columns {nulls} of dataset {where!r}; a path cannot name them.")
    table, starts = _grouped(table, partition_on)
    firsts = _distinct_rows(table.select(list(partition_on)).take(pa.array(starts)), where)
    payload = table.drop_columns(list(partition_on))
    if payload.num_columns == 0:
        raise InvalidInput(f"No data left to save outside partition columns {list(partition_on)} in dataset {where!r}.")
    lengths = np.diff(np.append(starts, table.num_rows))
    return [_part(values, table.schema, base_label, payload.slice(s, n), where) for values, s, n in zip(firsts, starts, lengths, strict=True)]


def _grouped(table: pa.Table, by: Sequence[str]) -> tuple[pa.Table, IntArray]:
    """The rows with those together that are equal in some columns, groups in order, and where each group begins. Keys are packed once a run of rows."""
    starts = _run_starts(table, by)
    keys = pack_one(table.select(list(by)).take(pa.array(starts)), by)
    if bool((keys[1:] > keys[:-1]).all()):
        return table, starts
    keys = np.repeat(keys, np.diff(np.append(starts, table.num_rows)))
    # Numbers of 16 bits are sorted by counting, which is five times as fast.
    keys = keys.astype(np.uint16) if int(keys.min()) >= 0 and int(keys.max()) < _COUNTED else keys
    order = np.argsort(keys, kind="stable")
    return table.take(pa.array(order)), group_starts(keys[order])


def _run_starts(table: pa.Table, by: Sequence[str]) -> IntArray:
    """Positions of rows that differ from the row before."""
    if not table.num_rows:
        return np.zeros(0, dtype=np.int64)
    changed = np.zeros(table.num_rows - 1, dtype=bool)
    for column in map(table.column, by):
        changed |= pc.not_equal(column.slice(1), column.slice(0, len(column) - 1)).to_numpy()
    return np.concatenate(([0], np.flatnonzero(changed) + 1)).astype(np.int64)


def _distinct_rows(rows: pa.Table, where: str) -> list[dict[str, Any]]:
    columns = []
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        try:
            columns.append(column.to_pylist())
        except UnicodeDecodeError:
            raise InvalidInput(f"Partition column {name!r} of dataset {where!r} has text that is not UTF-8, which a path cannot name.") from None
        except (OverflowError, ValueError):
            raise InvalidInput(f"Partition column {name!r} of dataset {where!r} has moments outside the years 1 to 9999, which a path cannot name.") from None
    return [dict(zip(rows.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


def _part(values: dict[str, Any], schema: pa.Schema, base_label: str, rows: pa.Table, where: str) -> PartitionRows:
    pairs = [(c, _named_text(v, schema.field(c), where)) for c, v in values.items()]
    return PartitionRows(values, label_of(pairs, base_label), rows)  # type: ignore[arg-type]


def _named_text(value: object, field: pa.Field, where: str) -> str | bytes:
    try:
        return partition_text(value, field.type)
    except Unsupported as error:
        raise Unsupported(f"Partition column {field.name!r} of dataset {where!r}: {error}") from None

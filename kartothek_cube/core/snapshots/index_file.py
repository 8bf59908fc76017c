"""Index files: a secondary index to bytes, and a file to the index, whole or in part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from kartothek_cube.core.expressions.predicates import Clause
from kartothek_cube.core.io.formats import encode_groups
from kartothek_cube.core.io.parquet import stream_columns
from kartothek_cube.core.metadata.index import (
    INDEX_ROWS,
    LABELS,
    SecondaryIndex,
    grouped,
    index_from_table,
    merge_indices,
)
from kartothek_cube.core.stores.contract import Store

__all__ = ["index_bytes", "read_index"]

# An index of more values is too large to be kept for other comparisons.
_MANY_VALUES = 1_000_000


def index_bytes(index: SecondaryIndex, group_rows: int = INDEX_ROWS) -> memoryview:
    """The bytes of an index file: distinct values, sorted, each with the list of its labels."""
    whole = grouped(index)
    schema = pa.schema([(index.column, index.type), (LABELS, pa.list_(pa.string()))])

    def groups() -> Iterator[pa.Table]:
        for start in range(0, max(1, len(whole.keys)), group_rows):
            # The dictionary of a row group has its own labels only.
            group = whole.slice(start, group_rows).packed()
            yield pa.table([group.keys, group.lists.dictionary.take(group.lists.indices)], names=schema.names)

    return memoryview(encode_groups(groups(), schema, [index.column]))


def read_index(
    store: Store, key: str, uuid: str, column: str, data_type: pa.DataType, clauses: Sequence[Clause] = ()
) -> tuple[SecondaryIndex, bool]:
    """The index of a file, and whether it is whole.

    With ``clauses`` only those row groups are read that may have a matching value.
    """
    predicates = (tuple(clauses),) if clauses else None
    pieces, values, is_whole, is_kept = list[SecondaryIndex](), 0, True, True
    for table, is_whole in stream_columns(store, key, uuid, predicates, pa.schema([(column, data_type)])):  # noqa: B007
        pieces.append(index_from_table(table, column, data_type, key))
        values += len(pieces[-1].keys)
        if clauses and values > _MANY_VALUES:
            pieces, is_kept = [merge_indices(pieces).select(clauses).packed()], False
    index = pieces[0] if len(pieces) == 1 else merge_indices(pieces).compacted()
    return index, is_whole and is_kept

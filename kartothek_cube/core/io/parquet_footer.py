"""What the footer of a Parquet file says: checked once, and kept for who opens the file next."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Sequence
from itertools import accumulate
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from kartothek_cube.core.expressions.predicates import Bounds
from kartothek_cube.core.runtime.executor import LruCache

__all__ = ["FileState", "ParquetFooter", "check_rows", "column_positions", "file_state", "keep_footer", "kept_footer"]

# Rows that any file may claim, and further ones for each of its bytes. Columns that a file lacks
# are filled with nulls, so a false number of rows would take memory at once.
_ROWS, _ROWS_PER_BYTE = 2**27, 2**16
_KEPT_BYTES = 64 * 2**20
# A footer in memory takes about so many times the bytes that it takes in the file.
_RATIO = 8
# The clock of a file system may stand still for some milliseconds, and that of a server differ.
_SETTLED_NS = 2 * 10**9


def check_rows(metadata: pq.FileMetaData, size: int) -> list[int]:
    """The number of rows of each row group; ``size`` is that of the file.

    Raises
    ------
    pyarrow.ArrowInvalid
        If the numbers contradict each other, or no file of this size can hold so many rows.
    """
    rows = [metadata.row_group(g).num_rows for g in range(metadata.num_row_groups)]
    if sum(rows) != metadata.num_rows or min(rows, default=0) < 0 or metadata.num_rows > _ROWS + size * _ROWS_PER_BYTE:
        raise pa.ArrowInvalid(
            f"Its footer says that {size:,} bytes hold {metadata.num_rows:,} rows, and its row groups {rows[:5]}"
        )
    return rows


def column_positions(metadata: pq.FileMetaData, schema: pa.Schema) -> dict[str, range]:
    """Positions of the chunks of each column in a row group; a nested column has several.

    Names are ambiguous: "a.b" may be a column or a part of one.

    Raises
    ------
    pyarrow.ArrowInvalid
        If the schema has other columns than the row groups.
    """
    # Every column has at least one chunk, so equal numbers mean that none is nested.
    counts = [1] * len(schema) if metadata.num_columns == len(schema) else [_leaves(t) for t in schema.types]
    if sum(counts) != metadata.num_columns:
        raise pa.ArrowInvalid(f"Its schema has {sum(counts):,} columns where it has {metadata.num_columns:,}")
    return {
        name: range(end - count, end) for name, count, end in zip(schema.names, counts, accumulate(counts), strict=True)
    }


def _leaves(data_type: pa.DataType) -> int:
    """The number of primitive columns that a column of this type is stored as."""
    if isinstance(data_type, pa.BaseExtensionType):
        return _leaves(data_type.storage_type)
    if pa.types.is_map(data_type):
        return _leaves(data_type.key_type) + _leaves(data_type.item_type)
    if pa.types.is_struct(data_type):
        return sum(_leaves(field.type) for field in data_type)
    return _leaves(data_type.value_type) if hasattr(data_type, "value_type") else 1


class ParquetFooter:
    """The footer of a file of ``size`` bytes, and what was found out about it. Safe for threads.

    Attributes
    ----------
    metadata, schema
        Those of the file.
    rows : list[int]
        The rows of each row group.
    positions : dict[str, range]
        As `column_positions`.
    bounds : dict
        The bounds of row groups that were asked for, by column and type; None: unknown.

    Raises
    ------
    pyarrow.ArrowInvalid
        If the footer contradicts itself.
    """

    def __init__(self, file: pq.ParquetFile, size: int) -> None:
        self.metadata, self.schema = file.metadata, file.schema_arrow
        if len({*self.schema.names}) != len(self.schema.names):
            raise pa.ArrowInvalid(f"Its columns do not have different names: {self.schema.names}")
        self.rows = check_rows(self.metadata, size)
        self.positions = column_positions(self.metadata, self.schema)
        self.bounds: dict[tuple[str, pa.DataType], Bounds | None] = {}
        self._checked: dict[int, frozenset[int]] = {}

    def is_checked(self, groups: Collection[int], positions: Sequence[int]) -> bool:
        """Whether none of these column chunks is damaged, as far as somebody has looked."""
        return all(self._checked.get(position, frozenset()).issuperset(groups) for position in positions)

    def set_checked(self, groups: Collection[int], positions: Sequence[int]) -> None:
        """Note that these column chunks are not damaged."""
        for position in positions:
            self._checked[position] = self._checked.get(position, frozenset()).union(groups)


class FileState(NamedTuple):
    """What differs once a file has been replaced."""

    inode: int
    size: int
    modified_ns: int
    # Tools that copy a directory set the modification time back.
    changed_ns: int


def file_state(path: str) -> FileState:
    """The state of a file now."""
    found = os.stat(path)  # noqa: PTH116 - a `Path` takes as long as ten of these
    return FileState(found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


# The footers of the files that this process has opened last, by path.
_kept = LruCache[str, tuple[FileState, ParquetFooter]](_KEPT_BYTES)


def kept_footer(path: str, state: FileState) -> ParquetFooter | None:
    """The footer of a local file, if this process has read it in this state."""
    kept, footer = _kept.get(path) or (None, None)
    return footer if kept == state else None


def keep_footer(path: str, state: FileState, footer: ParquetFooter) -> None:
    """Keep a footer for the next who opens the file, unless the file may still be written."""
    if time.time_ns() - max(state.modified_ns, state.changed_ns) > _SETTLED_NS:
        _kept.put(path, (state, footer), footer.metadata.serialized_size * _RATIO)

"""The work per file of a change of rows: find the matches, write the file that takes its place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from kartothek_cube.core.arrow.keys import sorted_table
from kartothek_cube.core.commit.dataset_write import stage_prepared
from kartothek_cube.core.io.reader import FileFigures, FileRequest, file_figures, format_like, grouped_like, read_rows
from kartothek_cube.core.metadata.naming import decode_key, label_of, new_id
from kartothek_cube.core.metadata.snapshot import CubeColumns, Snapshot, cube_columns, is_seed_dataset
from kartothek_cube.core.rows.edits import Found, RowEdit
from kartothek_cube.core.runtime.executor import READ_FILES, Executor, map_files
from kartothek_cube.core.runtime.options import Phase
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.write.input_rows import InputPartition
from kartothek_cube.core.write.layout import NO_LAYOUT, DatasetLayout, layout_of
from kartothek_cube.core.write.prepare import WriteRequest, prepare
from kartothek_cube.core.write.stage import PartitionRows, Receipt, StageRequest, stage_part
from kartothek_cube.errors import InvalidRequest, Unsupported

__all__ = ["Match", "RewriteSpec", "Rewritten", "StoredFile", "find_matches", "rewrite_files", "rewrite_spec"]

# The rows of a file, the rows of the new one, and its bytes.
_COPIES = 3
# Rows of several files that move become one file for each partition, unless they are many.
_FEW_BYTES = 2**16


@dataclass(frozen=True, slots=True)
class RewriteSpec:
    """What the rewrites of the files of a dataset share; small and picklable, for other executors.

    Attributes
    ----------
    uuid, table : str
        The dataset and its one table.
    schema : pyarrow.Schema
        All columns.
    partition_keys, index_columns : tuple of str
        Those of the dataset.
    cube : CubeColumns | None
        The columns of the cube that the dataset belongs to.
    is_seed : bool
        Whether it says which cells the cube has.
    layout : DatasetLayout
        The layout on record.
    """

    uuid: str
    table: str
    schema: pa.Schema
    partition_keys: tuple[str, ...]
    index_columns: tuple[str, ...]
    cube: CubeColumns | None
    is_seed: bool = False
    layout: DatasetLayout = NO_LAYOUT

    @property
    def stored(self) -> list[str]:
        """The columns inside the files."""
        return [name for name in self.schema.names if name not in self.partition_keys]

    @property
    def sort_columns(self) -> tuple[str, ...]:
        """The columns that sort the rows of each file of a cube."""
        return () if self.cube is None else tuple(c for c in self.cube.dimensions if c in self.stored)

    def staging(self, key: str, figures: FileFigures) -> StageRequest:
        """How the file is written that takes the place of ``key``."""
        like = format_like([key], [figures], len(self.stored), adaptive=self.cube is not None)
        file_format, keys = self.layout.format(grouped_like(like, figures)), self.partition_keys
        return StageRequest(self.uuid, keys, self.index_columns, self.sort_columns, file_format, self.table)


def rewrite_spec(base: Snapshot) -> RewriteSpec:
    """The spec of a dataset.

    Raises
    ------
    InvalidRequest
        If the document lists no partitions.
    Unsupported
        If the dataset has several tables.
    """
    if base.document.partitions is None:
        raise InvalidRequest(
            f"The document of dataset {base.uuid!r} lists no partitions: every data file in its folder is a partition, "
            "so files cannot be replaced. "
            "Write the dataset anew, e.g. with store_dataframes_as_dataset(..., overwrite=True)."
        )
    if len(base.schemas) != 1:
        raise Unsupported(
            f"Dataset {base.uuid!r} has the tables {sorted(base.schemas)}; rows are changed in datasets of one table. "
            "Replace partitions with update_dataset_from_dataframes(..., delete_scope=[...])."
        )
    [(table, schema)] = base.schemas.items()
    indexed = tuple(sorted(base.secondary_columns))
    metadata = base.document.metadata
    cube = cube_columns(metadata)
    is_seed, layout = is_seed_dataset(metadata), layout_of(metadata, base.uuid).within(schema.names)
    return RewriteSpec(base.uuid, table, schema, base.partition_keys, indexed, cube, is_seed, layout)


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of a dataset, with its label and partition values."""

    label: str
    key: str
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Match:
    """The rows of a file that match or change; the figures of the file if some change."""

    file: StoredFile
    found: Found
    figures: FileFigures | None

    @property
    def removes_all(self) -> bool:
        """Whether no row of the file stays."""
        return self.figures is not None and self.found.deleted == self.figures.rows


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A file that was replaced or removed.

    Attributes
    ----------
    label : str
        The label of the old file.
    receipt : Receipt | None
        The new file; None if no row stays.
    moved : pyarrow.Table
        Rows that belong to other partitions now.
    added : tuple of Receipt
        Files with such rows that are written already.
    """

    label: str
    receipt: Receipt | None
    moved: pa.Table
    added: tuple[Receipt, ...] = ()


def find_matches(
    store: Store, spec: RewriteSpec, edit: RowEdit, files: Sequence[StoredFile], executor: Executor
) -> list[Match]:
    """The matches of each file. Only what decides is decoded: columns, and row groups."""
    # Heavy: the columns of a file with a million rows take some tenths of a second.
    work = partial(_find, store, spec, edit)
    return list(map_files(work, files, executor=executor, heavy=True, store=store, phase=READ_FILES))


def _find(store: Store, spec: RewriteSpec, edit: RowEdit, file: StoredFile) -> Match:
    request = FileRequest(spec.uuid, spec.schema, edit.columns, edit.predicates)
    found = edit.find(read_rows(store, file.key, request, file.values))
    return Match(file, found, file_figures(store, spec.uuid, file.key) if found.deleted or found.updated else None)


def rewrite_files(
    store: Store,
    spec: RewriteSpec,
    edit: RowEdit,
    matches: Sequence[Match],
    executor: Executor,
    new_rows: WriteRequest | None = None,
) -> Iterator[Rewritten]:
    """Write the files that take the places of those with changes.

    With ``new_rows`` also files with the rows that moved, unless these are few.
    """
    work, phase = partial(_rewrite, store, spec, edit, new_rows), Phase("write", "files")
    return map_files(work, matches, executor=executor, heavy=True, store=store, weight=_weight, phase=phase)


def _weight(match: Match) -> int:
    return 0 if match.figures is None or match.removes_all else _COPIES * match.figures.unpacked


def _rewrite(store: Store, spec: RewriteSpec, edit: RowEdit, new_rows: WriteRequest | None, match: Match) -> Rewritten:
    file, figures = match.file, match.figures
    # Nothing of the file stays, so it is not even read again.
    if figures is None or match.removes_all:
        return Rewritten(file.label, None, spec.schema.empty_table())
    request = FileRequest(spec.uuid, spec.schema, tuple(spec.schema.names))
    after = edit.apply(read_rows(store, file.key, request, file.values))
    moved, added = after.moved, list[Receipt]()
    if new_rows is not None and moved.nbytes > _FEW_BYTES:
        added = stage_prepared(store, new_rows, prepare(new_rows, InputPartition(new_id(), {spec.table: moved})))
        moved = moved.slice(0, 0)
    if not after.kept.num_rows:
        return Rewritten(file.label, None, moved, tuple(added))
    # The values as the path of a file has them: a label of another library may say anything.
    texts = dict(decode_key(file.key).pairs)
    label = label_of([(column, texts[column]) for column in spec.partition_keys], new_id())
    kept = after.kept.select(spec.stored)
    # Updates may have changed the order. Files of a cube stay in the order that they have.
    if spec.cube is None and spec.layout.sort_by:
        kept = sorted_table(kept, spec.layout.sort_by)
    part = PartitionRows(file.values, label, kept)
    receipt = stage_part(store, spec.staging(file.key, figures), part, spec.schema)
    return Rewritten(file.label, receipt, moved, tuple(added))

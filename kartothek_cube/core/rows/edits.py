"""What happens to the rows of a file: deleted, updated, merged with a source.

In order:

- the rows of a merge: one for each key
- the edits
- the work per file: find the matches, write the file in its place
- the result
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from msgspec import Struct

from kartothek_cube.core.arguments import pluralize
from kartothek_cube.core.arrow.keys import KeyIndex, Positions, sorted_table, take_chunked
from kartothek_cube.core.display import (
    Explanation,
    Markup,
    Step,
    StepRow,
    details,
    escape,
    first_files,
    in_notebook,
    render,
    table_cell,
)
from kartothek_cube.core.expressions.predicates import Clause, Mask, Predicates, filter_table, matching_rows
from kartothek_cube.core.io.reader import FileRequest, FileStats, file_stats, format_like, grouped_like, read_rows
from kartothek_cube.core.metadata.naming import decode_key, label_of, new_id
from kartothek_cube.core.metadata.snapshot import CubeColumns, Snapshot, cube_columns, is_seed_dataset
from kartothek_cube.core.runtime.executor import READ_FILES, map_files
from kartothek_cube.core.runtime.options import Phase
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.write.input_rows import InputPartition
from kartothek_cube.core.write.layout import NO_LAYOUT, DatasetLayout, StageRequest, layout_of
from kartothek_cube.core.write.prepare import PartitionRows, WriteRequest, prepare
from kartothek_cube.core.write.stage import Receipt, stage_part, stage_prepared
from kartothek_cube.errors import InvalidInput, InvalidRequest, InvalidType, Unsupported
from kartothek_cube.typing import Executor

# With fewer rows than this part of the source, its keys are narrowed down first.
_FEW = 16


class SourceKeys(Protocol):
    """The keys of a merge, wherever its rows are."""

    @property
    def on(self) -> tuple[str, ...]:
        """The key columns; none has nulls."""

    @property
    def num_rows(self) -> int:
        """The number of rows, each with another key."""

    @property
    def listed(self) -> frozenset[str]:
        """The key columns whose values are known: where an index or partition values have them."""

    def distinct(self, column: str) -> pa.Array:
        """The distinct values of a key column."""

    def combinations(self, columns: Sequence[str]) -> pa.Table:
        """All combinations of values of some key columns, perhaps several times."""

    def range_of(self, column: str) -> tuple[Clause, ...]:
        """A condition that all values of a key column satisfy."""

    def key(self, number: int) -> dict[str, Any]:
        """The key of a row."""


@dataclass(frozen=True)
class MergeSource:
    """Rows with one row for each key, in the types of the dataset.

    Attributes
    ----------
    rows : pyarrow.Table
        All rows, perhaps in a file that is mapped into memory.
    on : tuple of str
        The key columns; none has nulls.
    """

    rows: pa.Table
    on: tuple[str, ...]
    values: list[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", [c for c in self.rows.column_names if c not in self.on])

    def __reduce__(self) -> tuple[object, ...]:
        return MergeSource, (self.rows, self.on)

    # Built once: all threads that look for keys share it.
    @cached_property
    def _index(self) -> KeyIndex:
        return KeyIndex(self.rows, self.on, few_hits=True)

    @property
    def is_unique(self) -> bool:
        """Whether each key occurs once."""
        return self._index.is_unique

    @property
    def num_rows(self) -> int:
        """As in `SourceKeys`."""
        return int(self.rows.num_rows)

    @property
    def listed(self) -> frozenset[str]:
        """As in `SourceKeys`."""
        return frozenset(self.on)

    def combinations(self, columns: Sequence[str]) -> pa.Table:
        """As in `SourceKeys`."""
        return self.rows.select(list(columns))

    def key(self, number: int) -> dict[str, Any]:
        """As in `SourceKeys`."""
        return dict(self.rows.select(list(self.on)).slice(number, 1).to_pylist()[0])

    def positions(self, rows: pa.Table) -> Positions:
        """For each of these rows the position of the source row with its key, or -1."""
        pairs = [(self.rows.column(c), rows.column(c)) for c in self.on]
        can_narrow = all(mine.type.equals(other.type) and not pt.is_decimal(mine.type) for mine, other in pairs)
        if self._index.is_numeric or rows.num_rows * _FEW > self.num_rows or not can_narrow:
            return self._index.positions(rows)
        # A search in all keys costs the source again for types without a direct table, so what the
        # few rows cannot have is left out first.
        near = np.ones(self.num_rows, dtype=bool)
        for mine, others in pairs:
            # With zero added, 0.0 and -0.0 are one key.
            values, wanted = (pc.add(v, 0.0) if pt.is_floating(v.type) else v for v in (mine, pc.unique(others)))
            near &= pc.is_in(values, value_set=wanted).to_numpy()
        places = np.flatnonzero(near)
        found = KeyIndex(take_chunked(self.rows.select(list(self.on)), places), self.on).positions(rows)
        return np.where(found >= 0, places[found], -1) if len(places) else np.full(rows.num_rows, -1)

    def distinct(self, column: str) -> pa.Array:
        """The distinct values of a key column."""
        return self._distinct[column]

    def ranges(self) -> Predicates | None:
        """A condition that all keys satisfy: between least and greatest value."""
        clauses = tuple(clause for column in self.on for clause in self.range_of(column))
        return (clauses,) if clauses else None

    def range_of(self, column: str) -> tuple[Clause, ...]:
        """The clauses of `ranges` on one column: the least and the greatest value, or none."""
        return self._ranges[column]

    @cached_property
    def _distinct(self) -> dict[str, pa.Array]:
        return {column: pc.unique(self.rows.column(column)) for column in self.on}

    @cached_property
    def _ranges(self) -> dict[str, tuple[Clause, ...]]:
        return {column: _range(column, values) for column, values in self._distinct.items()}


def _range(column: str, values: pa.Array) -> tuple[Clause, ...]:
    data_type = values.type
    # Other types have no order in conditions, or constants that lose digits.
    is_plain = pt.is_integer(data_type) or pt.is_floating(data_type) or pt.is_string(data_type)
    is_time = pt.is_date(data_type) or (pt.is_timestamp(data_type) and data_type.tz is None and data_type.unit != "ns")
    if not len(values) or not (is_plain or is_time):
        return ()
    ends = pc.min_max(values)
    try:
        return Clause(column, ">=", ends["min"].as_py()), Clause(column, "<=", ends["max"].as_py())
    except (OverflowError, ValueError):  # Python knows no years beyond 9999
        return ()


def check_keys(source: MergeSource, dataset: str) -> None:
    """Raise if a key of the source occurs twice."""
    if source.is_unique:
        return
    positions = source.positions(source.rows)
    others = np.flatnonzero(positions != np.arange(len(positions)))
    if len(others):
        raise InvalidInput(
            f"The rows to be merged into dataset {dataset!r} have the key {source.key(int(others[0]))} twice. "
            "Which of the two rows should win? Give one row for each key."
        )


def check_no_nulls(rows: pa.Table, on: Sequence[str], dataset: str) -> None:
    """Raise if a key has a null or NaN."""
    for column in on:
        values = rows.column(column)
        nulls = int(pc.sum(pc.is_null(values, nan_is_null=pt.is_floating(values.type))).as_py() or 0)
        if nulls:
            raise InvalidInput(
                f"{nulls:,} rows to be merged into dataset {dataset!r} have no value in the key column {column!r}. "
                "A key without a value matches no row; leave such rows out, or append them."
            )


# --- the edits ------------------------------------------------------------------------------------


WhenMatched: TypeAlias = Literal["update", "ignore", "delete", "error"]

Values: TypeAlias = Mapping[str, pa.Scalar] | Callable[[pa.Table], pa.Table]
"""One value for each column, or a function of the matching rows of a file."""


class Found(NamedTuple):
    """Numbers of rows of a file: those that match, that are to be deleted, to be updated.

    ``sources`` has the positions of the source rows that they match.
    """

    matched: int
    deleted: int = 0
    updated: int = 0
    sources: Positions | None = None


class EditedRows(NamedTuple):
    """The rows of a file after an edit.

    ``kept`` is in the order of the file; the rows in ``moved`` belong to other partitions now.
    """

    kept: pa.Table
    moved: pa.Table


class RowEdit(Protocol):
    """A change of rows, which can be pickled."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that `find` needs."""

    @property
    def predicates(self) -> Predicates | None:
        """A condition that all rows satisfy which match or change."""

    def find(self, rows: pa.Table) -> Found:
        """The matches among the rows of a file that satisfy `predicates`."""

    def apply(self, rows: pa.Table) -> EditedRows:
        """Change all rows of a file, partition columns included."""


class DeleteRows(Struct, frozen=True):
    """Rows that satisfy the predicates are deleted."""

    predicates: Predicates
    columns: tuple[str, ...] = ()

    def find(self, rows: pa.Table) -> Found:
        """As in `RowEdit`."""
        return Found(rows.num_rows, deleted=rows.num_rows)

    def apply(self, rows: pa.Table) -> EditedRows:
        """As in `RowEdit`."""
        return EditedRows(filter_table(rows, ~matching_rows(rows, self.predicates)), rows.slice(0, 0))


@dataclass(frozen=True, slots=True)
class UpdateRows:
    """Rows that satisfy the predicates get other values; a function may not change ``fixed``."""

    predicates: Predicates
    values: Values
    partition_keys: tuple[str, ...]
    fixed: tuple[str, ...]
    dataset: str
    columns: tuple[str, ...] = ()

    def find(self, rows: pa.Table) -> Found:
        """As in `RowEdit`."""
        return Found(rows.num_rows, updated=rows.num_rows)

    def apply(self, rows: pa.Table) -> EditedRows:
        """As in `RowEdit`."""
        mask = matching_rows(rows, self.predicates)
        matching = filter_table(rows, mask)
        if callable(self.values):
            after = self._checked(self.values(matching), matching)
            new = {name: after.column(name) for name in after.column_names}
        else:
            repeated = {name: pa.repeat(value, matching.num_rows) for name, value in self.values.items()}
            new = {name: pa.chunked_array([values]) for name, values in repeated.items()}
        changed, moves = _with_values(rows, mask, new, self.partition_keys)
        return EditedRows(filter_table(changed, ~moves), filter_table(changed, moves))

    def _checked(self, after: object, before: pa.Table) -> pa.Table:
        """What the function returned; an error unless length and schema are as before."""
        subject = f"The function in values for dataset {self.dataset!r}"
        if not isinstance(after, pa.Table):
            raise InvalidType(f"{subject} should return a pyarrow.Table, but returned {type(after).__name__}.")
        if after.num_rows != before.num_rows:
            raise InvalidInput(f"{subject} returned {after.num_rows:,} rows for {before.num_rows:,}.")
        if sorted(after.column_names) != sorted(before.column_names):
            raise InvalidInput(f"{subject} returned the columns {after.column_names}, not {before.column_names}.")
        for name in before.column_names:
            given, expected = after.schema.field(name).type, before.schema.field(name).type
            if given != expected:
                raise InvalidType(f"{subject} returned {given} for column {name!r}, which is {expected}. Cast it.")
            if name in self.fixed and not after.column(name).equals(before.column(name)):
                raise InvalidInput(f"{subject} changed column {name!r}, which addresses the cells of a cube.")
            if name in self.partition_keys and after.column(name).null_count:
                raise InvalidInput(f"{subject} returned nulls for the partition column {name!r}.")
        return after


class MergeRows(Struct, frozen=True):
    """Rows with a key of a source are changed by its row; rows without one may be deleted."""

    source: MergeSource
    when_matched: WhenMatched
    deletes_others: bool
    partition_keys: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """As in `RowEdit`."""
        return self.source.on

    @property
    def predicates(self) -> Predicates | None:
        """As in `RowEdit`."""
        return None if self.deletes_others else self.source.ranges()

    def find(self, rows: pa.Table) -> Found:
        """As in `RowEdit`."""
        positions = self.source.positions(rows)
        sources = positions[positions >= 0]
        deleted = len(sources) if self.when_matched == "delete" else 0
        if self.deletes_others:
            deleted += len(positions) - len(sources)
        return Found(len(sources), deleted, len(sources) if self._updates else 0, np.unique(sources))

    def apply(self, rows: pa.Table) -> EditedRows:
        """As in `RowEdit`."""
        positions = self.source.positions(rows)
        is_matched: Mask = positions >= 0
        changed, moves = rows, np.zeros(len(positions), dtype=bool)
        if self._updates:
            found = take_chunked(self.source.rows.select(self.source.values), positions[is_matched].astype(np.int64))
            new = {name: found.column(name) for name in found.column_names}
            changed, moves = _with_values(rows, is_matched, new, self.partition_keys)
        # A row without a value in a key matches nothing, so it counts among the others.
        gone = np.zeros(len(positions), dtype=bool)
        if self.when_matched == "delete":
            gone |= is_matched
        if self.deletes_others:
            gone |= ~is_matched
        return EditedRows(filter_table(changed, ~(gone | moves)), filter_table(changed, moves))

    @property
    def _updates(self) -> bool:
        return self.when_matched == "update" and bool(self.source.values)


def _with_values(
    rows: pa.Table, mask: Mask, new: Mapping[str, pa.ChunkedArray], partition_keys: Sequence[str]
) -> tuple[pa.Table, Mask]:
    """The rows with new values where the mask is true, and which of them left their partition."""
    moves: Mask = np.zeros(rows.num_rows, dtype=bool)
    changed, chosen = rows, pa.array(mask)
    for name, values in new.items():
        field, old = rows.schema.field(name), rows.column(name)
        if name in partition_keys:
            # A null that a partition column gets here is refused when its path is made.
            moves[mask] |= ~pc.equal(old.filter(chosen), values).fill_null(False).to_numpy()
        replaced = _replaced(old, mask, values.cast(field.type))
        changed = changed.set_column(changed.schema.get_field_index(name), field, replaced)
    return changed, moves


def _replaced(column: pa.ChunkedArray, mask: Mask, values: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column with other values where the mask is true."""
    pieces, start, used = list[pa.Array](), 0, 0
    # Chunk by chunk: joined, the texts of a column may be longer than Arrow's offsets reach.
    for chunk in column.chunks:
        chosen = np.flatnonzero(mask[start : start + len(chunk)])
        order = np.arange(len(chunk))
        order[chosen] = len(chunk) + np.arange(len(chosen))
        both = pa.concat_arrays([chunk, *values.slice(used, len(chosen)).chunks]) if len(chosen) else chunk
        pieces.append(both.take(pa.array(order)) if len(chosen) else chunk)
        start, used = start + len(chunk), used + len(chosen)
    return pa.chunked_array(pieces, column.type)


# --- the work per file ----------------------------------------------------------------------------


# The rows of a file, the rows of the new one, and its bytes.
_COPIES = 3
# Rows of several files that move become one file for each partition, unless they are many.
_FEW_BYTES = 2**16


class RewriteSpec(Struct, frozen=True):
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

    def staging(self, key: str, figures: FileStats) -> StageRequest:
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


class StoredFile(Struct, frozen=True):
    """A file of a dataset, with its label and partition values."""

    label: str
    key: str
    values: Mapping[str, Any]


class Match(Struct, frozen=True):
    """The rows of a file that match or change; the figures of the file if some change."""

    file: StoredFile
    found: Found
    figures: FileStats | None

    @property
    def removes_all(self) -> bool:
        """Whether no row of the file stays."""
        return self.figures is not None and self.found.deleted == self.figures.rows


class Rewritten(Struct, frozen=True):
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
    store: Store,
    edits: Sequence[tuple[RewriteSpec, RowEdit]],
    files: Sequence[tuple[int, StoredFile]],
    executor: Executor,
) -> Generator[Match, None, None]:
    """The matches of each file, which comes with the number of its edit.

    Only what decides is decoded: columns, and row groups.
    """
    # Heavy: the columns of a file with a million rows take some tenths of a second.
    work = partial(_find, store, edits)
    return map_files(work, files, executor=executor, heavy=True, store=store, phase=READ_FILES)


def _find(store: Store, edits: Sequence[tuple[RewriteSpec, RowEdit]], numbered: tuple[int, StoredFile]) -> Match:
    (spec, edit), file = edits[numbered[0]], numbered[1]
    request = FileRequest(spec.uuid, spec.schema, edit.columns, edit.predicates)
    found = edit.find(read_rows(store, file.key, request, file.values))
    return Match(file, found, file_stats(store, spec.uuid, file.key) if found.deleted or found.updated else None)


def rewrite_files(
    store: Store,
    edits: Sequence[tuple[RewriteSpec, RowEdit]],
    matches: Sequence[tuple[int, Match]],
    executor: Executor,
    new_rows: WriteRequest | None = None,
) -> Generator[Rewritten, None, None]:
    """Write the files that take the places of those with changes, which come as in `find_matches`.

    With ``new_rows`` also files with the rows that moved, unless these are few.
    """
    work, phase = partial(_rewrite, store, edits, new_rows), Phase("write", "files")
    return map_files(work, matches, executor=executor, heavy=True, store=store, weight=_weight, phase=phase)


def _weight(numbered: tuple[int, Match]) -> int:
    _, match = numbered
    return 0 if match.figures is None or match.removes_all else _COPIES * match.figures.unpacked


def _rewrite(
    store: Store,
    edits: Sequence[tuple[RewriteSpec, RowEdit]],
    new_rows: WriteRequest | None,
    numbered: tuple[int, Match],
) -> Rewritten:
    (spec, edit), match = edits[numbered[0]], numbered[1]
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


# --- the result -----------------------------------------------------------------------------------


class RowsReport(Struct, frozen=True, eq=False):
    """What a change of rows did, or with ``dry_run`` would do.

    Attributes
    ----------
    dataset : str
        The dataset.
    matched : int
        Rows of the dataset that satisfied the predicates, or had a key of the source.
    deleted, updated, inserted : int
        Rows that are gone, that have new values, and that are new.
    files_rewritten : int
        Files that another file replaced, with the rows that stay.
    files_added : int
        Files of inserted rows, and of rows that moved to another partition; 0 in a dry run.
    files_removed : int
        Files of which no row stays.
    files_untouched : int
        All other files. They may have been read, but no row of them changes.
    bytes : int
        Size of the new files; in a dry run the size of the files that would be rewritten.
    commit : str or None
        Id of the commit; None if nothing was written.
    dry_run : bool
        Nothing was written.
    files : tuple of str
        Keys of the files that were rewritten or removed.

    Examples
    --------
    >>> RowsReport("sales", 3, deleted=3, files_rewritten=1, files_untouched=9, dry_run=True)
    RowsReport('sales': 3 rows matched, 3 deleted; 1 file rewritten, 9 untouched; a dry run)
    """

    dataset: str
    matched: int = 0
    deleted: int = 0
    updated: int = 0
    inserted: int = 0
    files_rewritten: int = 0
    files_added: int = 0
    files_removed: int = 0
    files_untouched: int = 0
    bytes: int = 0
    commit: str | None = None
    dry_run: bool = False
    files: tuple[str, ...] = ()

    def explain(self, format: str = "text") -> str:  # noqa: A002 - the name users know from data frames
        """Explain the result, as ``"text"``, ``"html"`` or ``"json"``.

        Raises
        ------
        InvalidInput
            For another format.
        """
        if format == "text":
            return "\n".join(self._lines())
        if format == "html":
            return self._html()
        # Programs get all steps in the form of other plans and reports.
        return render(self._explanation(), format)

    def _figures(self) -> list[tuple[str, str, str]]:
        """What is counted, the count, and a remark; counts of 0 that say nothing are left out."""
        total = self.files_rewritten + self.files_removed + self.files_untouched
        rows = [
            ("rows deleted", self.deleted, ""),
            ("rows updated", self.updated, ""),
            ("rows inserted", self.inserted, ""),
            ("files rewritten", self.files_rewritten, "with the rows that stay"),
            ("files removed", self.files_removed, "no row stays"),
            ("files added", self.files_added, "of inserted and moved rows"),
        ]
        shown = [("rows matched", self.matched, ""), *(row for row in rows if row[1])]
        shown.append(("files untouched", self.files_untouched, f"of {total:,}"))
        size = "of the files to rewrite" if self.dry_run else "of the new files"
        figures = [(name, f"{count:,}", note) for name, count, note in shown]
        # Where files are only removed, or rows only added in a dry run, there is no size to tell.
        return [*figures, ("bytes", f"{self.bytes:,}", size)] if self.bytes else figures

    @property
    def _outcome(self) -> str:
        return self.commit or ("none, a dry run" if self.dry_run else "none, nothing to do")

    def _lines(self) -> list[str]:
        figures = self._figures()
        width = max(len(count) for _, count, _ in figures)
        lines = [f"Rows of dataset {self.dataset!r}", f"commit: {self._outcome}", ""]
        lines += [f"   {name:<15}  {count:>{width}}  {note}".rstrip() for name, count, note in figures]
        if self.files:
            lines += [
                "",
                f"{self._head_of_files}: {len(self.files):,}",
                *(f"   {key}" for key in first_files(self.files)),
            ]
        return lines

    @property
    def _head_of_files(self) -> str:
        return "Files that would be replaced or removed" if self.dry_run else "Files that were replaced or removed"

    def _html(self) -> str:
        head = f"<strong>{escape(f'Rows of dataset {self.dataset!r}')}</strong>"
        commit = f'<br><span class="q">commit:</span> <code>{escape(self._outcome)}</code>'
        rows = (
            f"<tr>{table_cell(name)}{table_cell(count, 'n')}{table_cell(note, 'q')}</tr>"
            for name, count, note in self._figures()
        )
        parts = [Markup(f"{head}{commit}<table><tbody>{''.join(rows)}</tbody></table>")]
        if self.files:
            keys = "<br>".join(f"<code>{escape(key)}</code>" for key in first_files(self.files))
            parts.append(details(f"{self._head_of_files}: {len(self.files):,}", Markup(keys)))
        return in_notebook(*parts)

    def _explanation(self) -> Explanation:
        """All counts, those of 0 as well, for programs."""
        facts = (("commit", self._outcome), ("bytes", f"{self.bytes:,}"))
        total = self.files_rewritten + self.files_removed + self.files_untouched
        rows = [(name, getattr(self, name)) for name in ("matched", "deleted", "updated", "inserted")]
        files = (
            StepRow("rewritten", self.files_rewritten, self.files_rewritten, "with the rows that stay"),
            StepRow("removed", self.files_removed, 0, "no row stays"),
            StepRow("added", 0, self.files_added, "inserted and moved rows"),
            StepRow("untouched", self.files_untouched, self.files_untouched, f"of {pluralize(total, 'file')}"),
        )
        steps = (
            Step("Rows", "rows", tuple(StepRow(name, None, count) for name, count in rows)),
            Step("Files", "files", files),
        )
        return Explanation(f"Rows of dataset {self.dataset!r}", facts, steps, self.files)

    def __repr__(self) -> str:
        rows = ", ".join(f"{n:,} {name}" for name in ("deleted", "updated", "inserted") if (n := getattr(self, name)))
        counts = (self.files_rewritten, "rewritten"), (self.files_added, "added"), (self.files_removed, "removed")
        files = [f"{pluralize(n, 'file')} {word}" for n, word in counts if n]
        parts = [f"{pluralize(self.matched, 'row')} matched" + (f", {rows}" if rows else "")]
        untouched = f"{self.files_untouched:,}" if files else pluralize(self.files_untouched, "file")
        parts.append(", ".join([*files, f"{untouched} untouched"]))
        parts.append(f"commit {self.commit}" if self.commit else "a dry run" if self.dry_run else "nothing to do")
        return f"RowsReport({self.dataset!r}: {'; '.join(parts)})"

    def _repr_html_(self) -> str:
        return self.explain("html")

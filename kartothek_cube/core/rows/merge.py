"""The plan of a merge: source, files with its keys, new keys.

In order:

- a source in files of the store
- files that may have the keys: partition values, indices, statistics
- the plan
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, chain
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from msgspec import Struct
from msgspec.structs import replace

from kartothek_cube.core.arguments import did_you_mean
from kartothek_cube.core.arrow.keys import KeyIndex, Spill, take_rows
from kartothek_cube.core.arrow.types import unify
from kartothek_cube.core.expressions.predicates import Clause, Mask, Predicates, may_hold
from kartothek_cube.core.io.formats import ParquetFormat
from kartothek_cube.core.io.reader import FileRequest, read_rows
from kartothek_cube.core.metadata.naming import data_key, new_id
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.rows.edits import (
    EditedRows,
    Found,
    MergeRows,
    MergeSource,
    RewriteSpec,
    RowEdit,
    SourceKeys,
    WhenMatched,
    check_keys,
    check_no_nulls,
)
from kartothek_cube.core.rows.run import RowsPlan, RowsSearch, plan_rows, stored_files, with_all_columns
from kartothek_cube.core.runtime.executor import THREADS, map_files, map_in_threads
from kartothek_cube.core.runtime.options import Phase
from kartothek_cube.core.snapshots.loader import load_index
from kartothek_cube.core.snapshots.statistics import statistics_of_files
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.write.input_rows import InputPartition, chunk_bytes, elements_in
from kartothek_cube.core.write.plan import column_names
from kartothek_cube.core.write.prepare import WriteRequest, prepare
from kartothek_cube.core.write.stage import Receipt, stage_prepared
from kartothek_cube.errors import CommitConflict, InvalidInput, UnknownColumn, Unsupported
from kartothek_cube.typing import Executor

# The number of a row in its file; such a column would be a strange one to merge.
_NUMBER = "__kartothek_cube_number"
# Small row groups: a search reads those whose range of keys it needs.
_FORMAT = ParquetFormat("ZSTD", chunk_size=16_384)


class SourceFile(Struct, frozen=True):
    """A file of the source, sorted by key; ``ranges`` has clauses that all its keys satisfy."""

    key: str
    rows: int
    nbytes: int
    ranges: Mapping[str, tuple[Clause, ...]]


class WrittenFile(NamedTuple):
    """What the writer of a file tells.

    ``combinations`` has the values of the partition columns among the keys that occur together,
    ``sizes`` the bytes of the distinct values of key columns with an index.
    """

    file: SourceFile
    combinations: pa.Table
    sizes: Mapping[str, int]


def write_source(
    store: Store, uuid: str, folder: str, source: MergeSource, together: Sequence[str], indexed: Sequence[str]
) -> WrittenFile:
    """Write rows that are sorted by key below the dataset's folder. No commit names the file."""
    rows, key = source.rows, data_key(uuid, folder, new_id(), _FORMAT.file_suffix)
    # A search that reads some row groups does not know how many rows come before them.
    store.put(key, memoryview(_FORMAT.encode(rows.append_column(_NUMBER, pa.array(np.arange(rows.num_rows))))))
    file = SourceFile(key, rows.num_rows, rows.nbytes, {column: source.range_of(column) for column in source.on})
    combinations = rows.select(list(together))
    if together:
        combinations = combinations.group_by(list(together)).aggregate([])
    return WrittenFile(file, combinations, {column: source.distinct(column).nbytes for column in indexed})


@dataclass(frozen=True, slots=True)
class SourceFiles:
    """The files of a source; small, and travels to every task.

    Attributes
    ----------
    dataset : str
        Its uuid, for errors.
    schema : pyarrow.Schema
        The columns of the source in the types of the dataset.
    on : tuple of str
        The key columns.
    files : tuple of SourceFile
        Each key is in one of them.
    """

    dataset: str
    schema: pa.Schema
    on: tuple[str, ...]
    files: tuple[SourceFile, ...]

    @property
    def starts(self) -> list[int]:
        """The number of the first row of each file; last the number of all rows."""
        return [0, *accumulate(file.rows for file in self.files)]

    def range_of(self, column: str) -> tuple[Clause, ...]:
        """The clauses that all values of a key column satisfy."""
        ranges = [file.ranges[column] for file in self.files]
        if not ranges or not all(ranges):
            return ()
        low, high = min(least.value for least, _ in ranges), max(most.value for _, most in ranges)
        return Clause(column, ">=", low), Clause(column, "<=", high)

    def read(
        self, store: Store, file: SourceFile, columns: Sequence[str], predicates: Predicates | None = None
    ) -> pa.Table:
        """Rows of a file in their order, with their numbers in it as the last column."""
        schema = self.schema.append(pa.field(_NUMBER, pa.int64()))
        return read_rows(store, file.key, FileRequest(self.dataset, schema, (*columns, _NUMBER), predicates))

    def matching(self, store: Store, rows: pa.Table, columns: Sequence[str]) -> pa.Table:
        """The rows with the keys of others, in any order, and their numbers as the last column.

        Of each file only what matches is kept, which is no larger than ``rows``.
        """
        keys = MergeSource(_with_keys(rows.select(list(self.on))), self.on)
        # Of a partition column the range is one value: row groups of other partitions are not read.
        ranges = keys.ranges()
        files = [
            (file, start)
            for file, start in zip(self.files, self.starts, strict=False)
            if keys.num_rows and _overlap(file.ranges, ranges)
        ]

        def found_in(numbered: tuple[SourceFile, int]) -> pa.Table:
            file, start = numbered
            source = self.read(store, file, columns, ranges)
            positions = MergeSource(source, self.on).positions(keys.rows)
            taken = take_rows(source, np.unique(positions[positions >= 0]).astype(np.int64))
            return taken.set_column(len(columns), _NUMBER, pc.add(taken.column(_NUMBER), start))

        found = map_in_threads(found_in, files, store=store, weight=lambda numbered: 2 * numbered[0].nbytes)
        schema = pa.schema([*(self.schema.field(c) for c in columns), (_NUMBER, pa.int64())])
        return pa.concat_tables([schema.empty_table(), *found])


def _with_keys(rows: pa.Table) -> pa.Table:
    """The rows without a null or NaN."""
    # They match nothing, and a range with one of them would be none.
    for name in rows.column_names:
        column = rows.column(name)
        rows = rows.filter(pc.invert(pc.is_null(column, nan_is_null=pt.is_floating(column.type))))
    return rows


def _overlap(ranges: Mapping[str, tuple[Clause, ...]], others: Predicates | None) -> bool:
    """Whether values of both ranges may be equal in all columns."""
    for clause in others[0] if others else ():
        ends = ranges[clause.column]
        if ends and (clause.value > ends[1].value if clause.op == ">=" else clause.value < ends[0].value):
            return False
    return True


class MergeFiles(Struct, frozen=True):
    """As `MergeRows` with a source in files."""

    store: Store
    source: SourceFiles
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
        clauses = tuple(chain.from_iterable(map(self.source.range_of, self.source.on)))
        return (clauses,) if clauses and not self.deletes_others else None

    def find(self, rows: pa.Table) -> Found:
        """As in `RowEdit`."""
        keys = self.source.matching(self.store, rows, self.source.on)
        numbers = keys.column(_NUMBER).to_numpy()
        # Whether there are other columns decides whether rows are updated; their values do not.
        others = [c for c in self.source.schema.names if c not in self.source.on]
        for column in others:
            keys = keys.append_column(column, pa.nulls(keys.num_rows))
        found = self._merge(keys).find(rows)
        return found if found.sources is None else found._replace(sources=numbers[found.sources])

    def apply(self, rows: pa.Table) -> EditedRows:
        """As in `RowEdit`."""
        return self._merge(self.source.matching(self.store, rows, self.source.schema.names)).apply(rows)

    def _merge(self, source: pa.Table) -> MergeRows:
        matching = MergeSource(source.drop_columns([_NUMBER]), self.source.on)
        return MergeRows(matching, self.when_matched, self.deletes_others, self.partition_keys)


class StagedSource(Struct, frozen=True):
    """The keys of a source in files, as `SourceKeys`; for the process that plans the merge.

    Where the values of a key column have more bytes than the limit, they are not listed.
    """

    store: Store
    files: SourceFiles
    written: tuple[WrittenFile, ...]
    limit: int

    @property
    def on(self) -> tuple[str, ...]:
        """As in `SourceKeys`."""
        return self.files.on

    @property
    def num_rows(self) -> int:
        """As in `SourceKeys`."""
        return self.files.starts[-1]

    @property
    def listed(self) -> frozenset[str]:
        """As in `SourceKeys`."""
        if not self.written:
            return frozenset()
        sizes = {c: sum(w.sizes[c] for w in self.written) for c in self.written[0].sizes}
        small = [column for column, size in sizes.items() if size <= self.limit]
        return frozenset([*self.written[0].combinations.column_names, *small])

    def distinct(self, column: str) -> pa.Array:
        """As in `SourceKeys`."""
        # From the files, not from their writers: Spark bounds what all tasks together may return.
        return pc.unique(self._read([column]).column(column))

    def combinations(self, columns: Sequence[str]) -> pa.Table:
        """As in `SourceKeys`."""
        known = [w.combinations for w in self.written]
        # A dataset that was replaced meanwhile may have other partition columns.
        if not all(set(columns) <= set(rows.column_names) for rows in known):
            return self._read(columns)
        return pa.concat_tables([rows.select(list(columns)) for rows in known])

    def _read(self, columns: Sequence[str]) -> pa.Table:
        """Distinct values of some columns of each file, that occur together."""

        def values_in(file: SourceFile) -> pa.Table:
            return self.files.read(self.store, file, columns).select(columns).group_by(columns).aggregate([])

        return pa.concat_tables(list(map_in_threads(values_in, self.files.files, store=self.store)))

    def range_of(self, column: str) -> tuple[Clause, ...]:
        """As in `SourceKeys`."""
        return self.files.range_of(column)

    def key(self, number: int) -> dict[str, Any]:
        """As in `SourceKeys`."""
        starts = self.files.starts
        at = int(np.searchsorted(starts, number, side="right")) - 1
        rows = self.files.read(self.store, self.files.files[at], self.on)
        return dict(rows.select(list(self.on)).slice(number - starts[at], 1).to_pylist()[0])


# --- the rows to be inserted ----------------------------------------------------------------------


class _NewRows(NamedTuple):
    """A file, and one bit for each of its rows: whether the row is to be inserted."""

    file: SourceFile
    bits: np.ndarray[Any, np.dtype[np.uint8]]

    def taken_from(self, rows: pa.Table) -> pa.Table:
        return take_rows(rows, np.flatnonzero(np.unpackbits(self.bits, count=self.file.rows)))


def stage_new_rows(
    store: Store, plan: RowsPlan, source: SourceFiles, write: WriteRequest, executor: Executor
) -> list[Receipt]:
    """Write the files of the rows that a merge inserts."""
    work = partial(_stage, store, source, write, plan.spec.table, plan.spec.schema)
    items = list(_bundles(source, plan.is_new, chunk_bytes()))
    staged = map_files(
        work,
        items,
        executor=executor,
        heavy=True,
        store=store,
        weight=lambda bundle: 2 * max(new.file.nbytes for new in bundle),
        phase=_INSERT,
    )
    return list(chain.from_iterable(staged))


_INSERT = Phase("write", "files")


def _bundles(source: SourceFiles, is_new: Mask, limit: int) -> Iterator[tuple[_NewRows, ...]]:
    """Files with new rows, together as long as these take fewer bytes than the limit."""
    bundle, size = list[_NewRows](), 0.0
    for file, start in zip(source.files, source.starts, strict=False):
        mask = is_new[start : start + file.rows]
        if not mask.any():
            continue
        nbytes = file.nbytes * float(mask.mean())
        if bundle and size + nbytes > limit:
            yield tuple(bundle)
            bundle, size = [], 0.0
        bundle.append(_NewRows(file, np.packbits(mask)))
        size += nbytes
    if bundle:
        yield tuple(bundle)


def _stage(
    store: Store, source: SourceFiles, write: WriteRequest, table: str, schema: pa.Schema, items: Iterable[_NewRows]
) -> list[Receipt]:
    new = [item.taken_from(source.read(store, item.file, source.schema.names)) for item in items]
    rows = with_all_columns(pa.concat_tables(new), schema)
    return stage_prepared(store, write, prepare(write, InputPartition(new_id(), {table: rows})))


# --- files that may have the keys -----------------------------------------------------------------


def partitions_with_keys(store: Store, base: Snapshot, source: SourceKeys) -> Mask:
    """One boolean per stored partition: whether a row of it may have a key of the source."""
    mask: Mask = np.full(len(base.partitions), source.num_rows > 0)
    known = [c for c in source.on if c in source.listed]
    keys = [c for c in known if c in base.partition_keys]
    if keys:
        mask &= KeyIndex(source.combinations(keys), keys).positions(base.values) >= 0
    # Where no partition is left, no index is read.
    indexed = [c for c in known if c in base.pruning_columns] if mask.any() else []
    for listed in map_in_threads(partial(_listed, store, base, source), indexed, store=store):
        mask &= listed
    # Reading statistics costs as much as reading the single file they might prune.
    bounded = base.columns_with_statistics(known) if np.count_nonzero(mask) > 1 else []
    if bounded:
        positions = np.flatnonzero(mask)
        statistics = statistics_of_files(store, base, base.files.take(pa.array(positions)), bounded)
        for column in bounded:
            values = source.distinct(column)
            bounds = statistics.bounds(column, values.type)
            ascending = values.take(pc.sort_indices(values)).cast(bounds.minimum.type)
            mask[positions] &= may_hold(bounds, ascending)
    return mask


def _listed(store: Store, base: Snapshot, source: SourceKeys, column: str) -> Mask:
    """Which partitions an index lists for the values of the source."""
    # The range limits which row groups of the index file are read; the set is looked up at once.
    index, _ = load_index(store, base, column, source.range_of(column))
    values, listed = source.distinct(column).cast(index.type), index.keys
    if pt.is_floating(listed.type):
        # Arrow tells -0.0 from 0.0 here; the sum is 0.0 for both.
        values, listed = pc.add(values, 0.0), pc.add(listed, 0.0)
    found = index.where(pc.is_in(listed, value_set=values).to_numpy(zero_copy_only=False))
    mask = np.zeros(len(base.partitions) + 1, dtype=bool)  # the last place: labels unknown to the document
    mask[base.partitions.places(found.labels)] = True
    return mask[:-1]


# --- the plan -------------------------------------------------------------------------------------


WhenNotMatched: TypeAlias = Literal["insert", "ignore"]

_WHEN_MATCHED, _WHEN_NOT_MATCHED = ("update", "ignore", "delete", "error"), ("insert", "ignore")


class MergeRules(Struct, frozen=True):
    """What a merge does with rows of the dataset and of the source, by their keys."""

    on: tuple[str, ...]
    when_matched: WhenMatched
    inserts: bool
    deletes_others: bool


def merge_rules(
    spec: RewriteSpec, on: object, when_matched: object, when_not_matched: object, by_source: object
) -> MergeRules:
    """The checked arguments of a merge.

    Raises
    ------
    InvalidInput, InvalidType, UnknownColumn, Unsupported
        If an argument has another value, or a column cannot be a key.
    """
    for name, value, allowed in (
        ("when_matched", when_matched, _WHEN_MATCHED),
        ("when_not_matched", when_not_matched, _WHEN_NOT_MATCHED),
        ("when_not_matched_by_source", by_source, (None, "delete")),
    ):
        if value not in allowed:
            raise InvalidInput(f"{name} is one of {', '.join(map(repr, allowed))}, not {value!r}.")
    columns = column_names(on, "on")
    if not columns:
        raise InvalidInput(f"on names the key columns of a merge into dataset {spec.uuid!r}; it names none.")
    _check_known(columns, spec, "The argument on names")
    nested = [c for c in columns if pt.is_nested(spec.schema.field(c).type)]
    if nested:
        raise Unsupported(f"The columns {nested} of dataset {spec.uuid!r} hold lists or structs, which are no keys.")
    cells = () if spec.cube is None else spec.cube.cell_columns(spec.schema.names)
    if cells and set(cells) != set(columns):
        raise InvalidInput(
            f"Dataset {spec.uuid!r} belongs to a cube, which addresses its rows by {list(cells)}: give these as on. "
            "Corrections of a cube are appended (append_to_cube): the newest row of a cell wins."
        )
    matched = next(mode for mode in _WHEN_MATCHED if mode == when_matched)
    return MergeRules(columns, matched, when_not_matched == "insert", by_source == "delete")  # type: ignore[arg-type]


def _check_known(columns: Sequence[str], spec: RewriteSpec, subject: str) -> None:
    unknown = sorted(set(columns) - set(spec.schema.names))
    if unknown:
        raise UnknownColumn(
            f"{subject} columns that dataset {spec.uuid!r} does not have: {', '.join(unknown)}. "
            f"It has {spec.schema.names}.{did_you_mean(unknown, spec.schema.names)}"
        )


@contextmanager
def merge_source(items: Iterable[Any], spec: RewriteSpec, rules: MergeRules) -> Iterator[MergeSource]:
    """All rows of the source, in the types of the dataset; if they are many, in a temporary file.

    Raises
    ------
    InvalidInput, UnknownColumn
        If a column is missing, unknown or of another type, if a key has a null or occurs twice.
    """
    tables = (_rows(element, spec) for item in items for element in elements_in(item, spec.uuid))
    first = next(tables, None)
    if first is None:
        raise InvalidInput(f"There are no rows to be merged into dataset {spec.uuid!r}, not even a frame without rows.")
    schema = source_schema(first.schema, spec, rules)
    with Spill(schema, chunk_bytes()) as spill:
        for rows in chain([first], tables):
            typed = typed_rows(rows, schema, spec.uuid)
            check_no_nulls(typed, rules.on, spec.uuid)
            check_partition_values(typed, spec.partition_keys, spec.uuid)
            spill.add(0, typed)
        source = MergeSource(spill.table(), rules.on)
        check_keys(source, spec.uuid)
        yield source


def _rows(element: InputPartition, spec: RewriteSpec) -> pa.Table:
    tables = [rows for rows in element.tables.values() if rows is not None]
    if len(tables) != 1:
        raise InvalidInput(f"A merge into dataset {spec.uuid!r} takes rows of one table, not of {len(tables)}.")
    return tables[0]


def source_schema(given: pa.Schema, spec: RewriteSpec, rules: MergeRules) -> pa.Schema:
    """The columns of the source in the types of the dataset.

    Raises
    ------
    InvalidInput, UnknownColumn
        If a column is missing, unknown or of another type.
    """
    _check_known(given.names, spec, "The rows to be merged have")
    needed = [*rules.on, *(spec.partition_keys if rules.inserts else ())]
    missing = [c for c in dict.fromkeys(needed) if c not in given.names]
    if missing:
        use = "columns of on and, for new rows, partition columns" if rules.inserts else "columns of on"
        raise InvalidInput(f"The rows to be merged into dataset {spec.uuid!r} lack {missing}: they need the {use}.")
    known = pa.schema([spec.schema.field(name) for name in given.names])
    wide = unify([known, given], f"dataset {spec.uuid!r}")
    # Only a column that is null throughout takes the type of the source.
    return pa.schema([wide.field(f.name) if pt.is_null(f.type) else f for f in known])


def typed_rows(rows: pa.Table, schema: pa.Schema, uuid: str) -> pa.Table:
    """Rows of the source in the types of `source_schema`; InvalidInput if a value does not fit."""
    if sorted(rows.column_names) != sorted(schema.names):
        raise InvalidInput(
            f"The rows to be merged into dataset {uuid!r} have the columns {schema.names}, but some of them "
            f"{rows.column_names}."
        )
    columns = []
    for field in schema:
        values = rows.column(field.name)
        unify([pa.schema([field]), pa.schema([(field.name, values.type)])], f"dataset {uuid!r}")
        try:
            columns.append(_exact(values, field.type))
        except pa.ArrowException as error:
            raise InvalidInput(
                f"Column {field.name!r} of dataset {uuid!r} is {field.type}, which cannot hold all values of the rows "
                f"to be merged: {error}"
            ) from None
    return pa.table(columns, schema=schema)


def _exact(values: pa.ChunkedArray, data_type: pa.DataType) -> pa.ChunkedArray:
    cast = values.cast(data_type)
    # Arrow refuses a number that an integer type cannot hold, but makes one infinite for a float.
    if pt.is_floating(data_type) and not pc.is_inf(cast).equals(pc.is_inf(values.cast(pa.float64()))):
        raise pa.ArrowInvalid("a value would become infinite")
    return cast


def check_same_source(source: pa.Schema, spec: RewriteSpec, rules: MergeRules) -> None:
    """Raise if the rows, read for an earlier state of the dataset, do not fit it any more.

    Raises
    ------
    CommitConflict
        If another writer changed the columns or the partition keys meanwhile.
    """
    try:
        is_same = source_schema(source, spec, rules).equals(source)
    except InvalidInput as error:
        raise CommitConflict(
            f"Dataset {spec.uuid!r} was changed while the rows to be merged were read: {error} Nothing was written."
        ) from error
    if not is_same:
        raise CommitConflict(
            f"Dataset {spec.uuid!r} got other types while the rows to be merged were read. Nothing was written; repeat "
            "the merge."
        )


def check_partition_values(rows: pa.Table, partition_keys: Sequence[str], uuid: str) -> None:
    """Raise if a partition column of the source has nulls, which no path can name."""
    nulls = [c for c in partition_keys if c in rows.column_names and rows.column(c).null_count]
    if nulls:
        raise InvalidInput(f"The rows to be merged into dataset {uuid!r} have nulls in the partition columns {nulls}.")


def with_source_types(spec: RewriteSpec, schema: pa.Schema) -> RewriteSpec:
    """The spec with types for columns that were null throughout."""
    fields = [schema.field(f.name) if pt.is_null(f.type) and f.name in schema.names else f for f in spec.schema]
    return replace(spec, schema=pa.schema(fields))


def merge_search(
    store: Store, base: Snapshot, spec: RewriteSpec, edit: RowEdit, source: SourceKeys, rules: MergeRules
) -> RowsSearch:
    """The files that may have keys of the source."""
    mask = partitions_with_keys(store, base, source)
    return RowsSearch(base, spec, edit, stored_files(base, spec.table, mask | rules.deletes_others))


def plan_merge(
    store: Store,
    base: Snapshot,
    spec: RewriteSpec,
    edit: RowEdit,
    source: SourceKeys,
    rules: MergeRules,
    executor: Executor = THREADS,
) -> RowsPlan:
    """Find the rows with keys of the source, and the keys without rows.

    Raises
    ------
    InvalidInput
        If ``when_matched`` is "error" and a row has a key of the source.
    """
    (plan,) = plan_rows(store, [merge_search(store, base, spec, edit, source, rules)], executor)
    is_new = np.ones(source.num_rows, dtype=bool)
    for match in plan.matches:
        if match.found.sources is not None:
            is_new[match.found.sources] = False
    if rules.when_matched == "error" and not is_new.all():
        raise InvalidInput(
            f"Dataset {spec.uuid!r} has rows with {int(np.count_nonzero(~is_new)):,} of the keys that are to be "
            f'merged, e.g. {source.key(int(np.argmin(is_new)))}, and when_matched is "error".'
        )
    return replace(plan, is_new=is_new) if rules.inserts else plan

"""The source of a merge in files of the store: of each, a search reads what it can need."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, chain
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from kartothek_cube.core.arrow.keys import take_rows
from kartothek_cube.core.commit.dataset_write import stage_prepared
from kartothek_cube.core.expressions.predicates import Clause, Mask, Predicates
from kartothek_cube.core.io.formats import ParquetFormat
from kartothek_cube.core.io.reader import FileRequest, read_rows
from kartothek_cube.core.metadata.naming import data_key, new_id
from kartothek_cube.core.rows.edits import EditedRows, Found, MergeRows, WhenMatched
from kartothek_cube.core.rows.run import RowsPlan, with_all_columns
from kartothek_cube.core.rows.source import MergeSource
from kartothek_cube.core.runtime.executor import Executor, map_files, map_in_threads
from kartothek_cube.core.runtime.options import Phase
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.write.input_rows import InputPartition, chunk_bytes
from kartothek_cube.core.write.prepare import WriteRequest, prepare
from kartothek_cube.core.write.stage import Receipt

__all__ = ["MergeFiles", "SourceFile", "SourceFiles", "StagedSource", "WrittenFile", "stage_new_rows", "write_source"]

# The number of a row in its file; such a column would be a strange one to merge.
_NUMBER = "__kartothek_cube_number"
# Small row groups: a search reads those whose range of keys it needs.
_FORMAT = ParquetFormat("ZSTD", chunk_size=16_384)


@dataclass(frozen=True, slots=True)
class SourceFile:
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


@dataclass(frozen=True, slots=True)
class MergeFiles:
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


@dataclass(frozen=True, slots=True)
class StagedSource:
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

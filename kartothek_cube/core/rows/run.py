"""A change of rows from the search to the commit: new files take the places of old ones."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import chain, islice

import numpy as np
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from kartothek_cube.core.arrow.keys import Spill, take_chunked, take_rows
from kartothek_cube.core.commit.change import Change
from kartothek_cube.core.expressions.predicates import Mask
from kartothek_cube.core.io.formats import AdaptiveParquetFormat
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.rows.edits import (
    Match,
    RewriteSpec,
    Rewritten,
    RowEdit,
    RowsReport,
    StoredFile,
    find_matches,
    rewrite_files,
)
from kartothek_cube.core.runtime.executor import THREADS
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.write.input_rows import chunk_bytes
from kartothek_cube.core.write.plan import plan_dataset_update
from kartothek_cube.core.write.prepare import WriteRequest
from kartothek_cube.core.write.stage import Receipt, stage_data
from kartothek_cube.errors import InvalidInput
from kartothek_cube.typing import Executor

_NONE: Mask = np.zeros(0, dtype=bool)


class RowsPlan(Struct, frozen=True):
    """A change of rows whose matches are found; nothing is written yet.

    Attributes
    ----------
    base : Snapshot
        The state that was searched.
    spec : RewriteSpec
        Settings of the rewrites.
    edit : RowEdit
        The change.
    matches : tuple of Match
        One for each file that was read.
    source : pyarrow.Table
        The rows of a merge.
    is_new : numpy.ndarray
        Which of them are to be added.
    """

    base: Snapshot
    spec: RewriteSpec
    edit: RowEdit
    matches: tuple[Match, ...]
    source: pa.Table
    is_new: Mask

    @property
    def touched(self) -> list[Match]:
        """The files with rows that change."""
        return [match for match in self.matches if match.figures is not None]

    @property
    def inserted(self) -> int:
        """The number of rows to be added."""
        return int(np.count_nonzero(self.is_new))

    def __bool__(self) -> bool:
        return bool(self.touched) or self.inserted > 0


class StagedRows(Struct, frozen=True):
    """The new files of a change of rows, the change that makes them visible, and its report."""

    change: Change
    report: RowsReport


def stored_files(base: Snapshot, table: str, mask: Mask) -> list[StoredFile]:
    """The files of the partitions where the mask is true."""
    positions = np.flatnonzero(mask)
    taken = base.partitions.take(positions)
    values = take_rows(base.values, positions).to_pylist() if base.partition_keys else [{}] * len(positions)
    rows = zip(taken.labels.to_pylist(), taken.file_column(table).to_pylist(), values, strict=True)
    return [StoredFile(*row) for row in rows if row[1] is not None]


class RowsSearch(Struct, frozen=True):
    """The files of a dataset that may have rows which change."""

    base: Snapshot
    spec: RewriteSpec
    edit: RowEdit
    files: Sequence[StoredFile]


def plan_rows(store: Store, searches: Sequence[RowsSearch], executor: Executor = THREADS) -> list[RowsPlan]:
    """Find the rows that match, in all files at once. No rows are to be added yet."""
    files = [(number, file) for number, search in enumerate(searches) for file in search.files]
    found = find_matches(store, [(search.spec, search.edit) for search in searches], files, executor)
    with closing(found):
        return [
            RowsPlan(s.base, s.spec, s.edit, tuple(islice(found, len(s.files))), s.spec.schema.empty_table(), _NONE)
            for s in searches
        ]


def check_seed_stays(plan: RowsPlan) -> None:
    """Raise if the seed of a cube would be empty: a cube without cells is none.

    Raises
    ------
    InvalidInput
        If no file would be left.
    """
    gone = [match for match in plan.touched if match.removes_all]
    if not plan.spec.is_seed or not gone or plan.inserted:
        return
    # Of the files that are left none was opened: one without rows counts as a file with rows.
    if len(gone) == len(plan.base.partitions):
        raise InvalidInput(
            f"Dataset {plan.spec.uuid!r} is the seed of a cube, which would have no cell left. "
            "Delete the whole cube instead (delete_cube, or the command delete)."
        )


def dry_report(plan: RowsPlan, *, dry_run: bool = True) -> RowsReport:
    """What the plan would do."""
    removed = [match for match in plan.touched if match.removes_all]
    return replace(
        _report(plan),
        files_rewritten=len(plan.touched) - len(removed),
        files_removed=len(removed),
        bytes=sum(m.figures.size for m in plan.touched if m.figures is not None and not m.removes_all),
        dry_run=dry_run,
    )


def _report(plan: RowsPlan) -> RowsReport:
    found = [match.found for match in plan.matches]
    return RowsReport(
        plan.spec.uuid,
        matched=sum(f.matched for f in found),
        deleted=sum(f.deleted for f in found),
        updated=sum(f.updated for f in found),
        inserted=plan.inserted,
        files_untouched=len(plan.base.partitions) - len(plan.touched),
        files=tuple(match.file.key for match in plan.touched),
    )


def stage_plans(store: Store, plans: Sequence[RowsPlan], executor: Executor = THREADS) -> list[StagedRows]:
    """As `stage_rows` for plans of several datasets, whose files are written at once."""
    rewritten = _rewritten(store, plans, executor)
    with closing(rewritten):
        return [_staged(store, plan, islice(rewritten, len(plan.touched))) for plan in plans]


def stage_rows(
    store: Store,
    plan: RowsPlan,
    executor: Executor = THREADS,
    inserted: Sequence[Receipt] = (),
    new_rows: WriteRequest | None = None,
) -> StagedRows:
    """Write the new files of a plan, invisible until the change is committed.

    ``inserted`` are files of new rows that somebody else has written already. With ``new_rows`` the
    executor writes rows that move to other partitions, too.
    """
    rewritten = _rewritten(store, [plan], executor, new_rows)
    with closing(rewritten):
        return _staged(store, plan, rewritten, inserted)


def _rewritten(
    store: Store, plans: Sequence[RowsPlan], executor: Executor, new_rows: WriteRequest | None = None
) -> Generator[Rewritten, None, None]:
    matches = [(number, match) for number, plan in enumerate(plans) for match in plan.touched]
    return rewrite_files(store, [(plan.spec, plan.edit) for plan in plans], matches, executor, new_rows)


def _staged(store: Store, plan: RowsPlan, files: Iterable[Rewritten], inserted: Sequence[Receipt] = ()) -> StagedRows:
    base, spec, receipts = plan.base, plan.spec, list[Receipt]()
    places, gone, landed = dict[str, str](), list[str](), list[Receipt]()
    limit = chunk_bytes()
    with Spill(spec.schema, limit) as moved:
        # Rows that move are gathered first: written by each task, they would be many small files.
        for rewritten in files:
            gone.append(rewritten.label)
            moved.add(0, rewritten.moved)
            landed += rewritten.added
            if rewritten.receipt is not None:
                receipts.append(rewritten.receipt)
                places[rewritten.receipt.label] = rewritten.label
        rows = moved.table()
        everything = np.ones(rows.num_rows, dtype=bool)
        blocks = chain(_blocks(rows, everything, limit), _blocks(plan.source, plan.is_new, limit))
        new = ({"data": {plan.spec.table: with_all_columns(rows, plan.spec.schema)}} for rows in blocks)
        added = (*stage_data(store, new_rows_request(plan), new).receipts, *landed, *inserted)
    report = replace(
        _report(plan),
        inserted=plan.inserted + sum(receipt.rows for receipt in inserted),
        files_rewritten=len(receipts),
        files_removed=len(gone) - len(receipts),
        files_added=len(added),
        bytes=sum(receipt.size for receipt in (*receipts, *added)),
    )
    change = Change(
        base.uuid,
        (*receipts, *added),
        {spec.table: spec.schema},
        base.partition_keys,
        spec.index_columns,
        removed=pa.array(gone, type=pa.string()),
        # Where the old file was, so that rows keep their order and override each other as before.
        places=places,
    )
    return StagedRows(change, replace(report, commit=change.commit))


def new_rows_request(plan: RowsPlan) -> WriteRequest:
    """How files of new rows are written."""
    spec = plan.spec
    # As the verbs for cubes and for datasets write new files.
    serializer = None if spec.cube is None else AdaptiveParquetFormat()
    return plan_dataset_update(spec.uuid, plan.base, serializer=serializer, sort_partitions_by=list(spec.sort_columns))


def with_all_columns(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows with all columns of a schema; those that are missing are null."""
    columns = [rows.column(f.name) if f.name in rows.column_names else pa.nulls(rows.num_rows, f.type) for f in schema]
    return pa.table(columns, schema=schema)


def _blocks(rows: pa.Table, mask: Mask, limit: int) -> Iterator[pa.Table]:
    """The rows where the mask is true, in blocks of about ``limit`` bytes; no rows make none."""
    positions = np.flatnonzero(mask)
    # The rows may be in a file, so no more than a block is copied at a time.
    step = max(1, rows.num_rows * limit // max(1, rows.nbytes))
    return (take_chunked(rows, positions[start : start + step]) for start in range(0, len(positions), step))

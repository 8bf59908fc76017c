"""Staging and publishing a write to a cube: all checks first, then files, then one commit a dataset in a safe order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from typing import TypeVar

import pyarrow as pa

from kartothek_cube.core.change import Change, Part, Receipt
from kartothek_cube.core.compat.dataset_metadata import DatasetMetadata
from kartothek_cube.core.metadata.chain import CubeCommit
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.metadata.txn import is_done, write_id
from kartothek_cube.core.naming import fresh_id
from kartothek_cube.core.parallel import map_in_threads
from kartothek_cube.core.progress import Phase
from kartothek_cube.core.publish import check_publishable, check_store_can_commit, publish
from kartothek_cube.core.rebase import needs_indices
from kartothek_cube.core.stage import Staging, stage_parts, stage_together
from kartothek_cube.core.store import Store
from kartothek_cube.cube.duplicates import refuse_duplicates
from kartothek_cube.cube.inflow import Inflow, Planner
from kartothek_cube.cube.inputs import Gathered, chunk_bytes, collect
from kartothek_cube.cube.prepare import DatasetWrite, prepare_parts
from kartothek_cube.cube.write import CubeWrite
from kartothek_cube.errors import CubeCommitIncomplete, InvalidInput, KartothekCubeError, MultiTableCommitAborted

__all__ = ["commit_cube_write", "publish_in_order", "run_cube_write", "stage_table", "write_gathered"]

T = TypeVar("T")


def write_gathered(store: Store, plan: Planner, gathered: Gathered) -> dict[str, DatasetMetadata]:
    """Plan, check, stage and publish rows. Those that are in memory are checked whole before the first file; others chunk by chunk."""
    if gathered.rest is not None:
        return _write_stream(store, plan, gathered)
    tables = collect(gathered.held)
    return run_cube_write(store, plan({i: t.schema for i, t in tables.items()}), tables)


def _write_stream(store: Store, plan: Planner, gathered: Gathered) -> dict[str, DatasetMetadata]:
    check_store_can_commit(store)
    inflow = Inflow(plan, chunk_bytes())
    chunks = inflow.chunks(chain(_given_up(gathered.held), gathered.rest or ()))
    receipts: dict[str, list[Receipt]] = {}
    # Four times, as the rows that gather, their sorted copy and the files take their share of the same bytes.
    for name, staged in map_in_threads(
        lambda item: _stage(store, *item), _parts(chunks), weight=lambda item: 4 * item[1].table.nbytes, phase=Phase("write", "files")
    ):
        receipts.setdefault(name, []).extend(staged)
    write = inflow.complete()
    if not write.allow_empty:
        _refuse_empty([i for i in write.datasets if not receipts.get(i)])
    for name, own in receipts.items():
        refuse_duplicates(store, write.datasets[name], own)
    return commit_cube_write(store, write, receipts)


def _parts(chunks: Iterable[tuple[DatasetWrite, pa.Table]]) -> Iterator[tuple[DatasetWrite, Part]]:
    # `map` and `_given_up`: no variable keeps rows that are stored.
    for write, parts in map(_prepared, chunks):
        for part in _given_up(parts):
            yield write, part


def _prepared(chunk: tuple[DatasetWrite, pa.Table]) -> tuple[DatasetWrite, list[Part]]:
    return chunk[0], prepare_parts(*chunk, fresh_id())


def _given_up(items: list[T]) -> Iterator[T]:
    """The items in their order, without keeping those that were given."""
    items.reverse()
    while items:
        yield items.pop()


def _stage(store: Store, write: DatasetWrite, part: Part) -> tuple[str, list[Receipt]]:
    return write.id, stage_parts(store, write.request, [part], write.schema)


def run_cube_write(store: Store, write: CubeWrite, tables: Mapping[str, pa.Table]) -> dict[str, DatasetMetadata]:
    """Check, stage and publish tables. Nothing is stored before the rows of every dataset have been checked."""
    check_store_can_commit(store)
    # Twice, as keys and order of the rows take about as much as their sorted copy.
    tried = list(map_in_threads(lambda name: _tried(write.datasets[name], tables[name]), list(tables), weight=lambda name: 2 * tables[name].nbytes))
    parts = {name: result() for name, result in zip(tables, tried, strict=True)}
    if not write.allow_empty:
        _refuse_empty([i for i, p in parts.items() if not p])
    _refuse_empty([i for i in write.datasets if _would_be_empty(write, i, parts)])
    staged = stage_together(store, [Staging(write.datasets[i].request, p, write.datasets[i].schema) for i, p in parts.items()])
    return commit_cube_write(store, write, dict(zip(parts, staged, strict=True)))


def _tried(write: DatasetWrite, table: pa.Table) -> Callable[[], list[Part]]:
    """What gives the parts or raises what is wrong with them: of several wrong datasets always the first one, whichever thread was faster."""
    prepared: Future[list[Part]] = Future()
    try:
        prepared.set_result(prepare_parts(write, table, fresh_id()))
    except KartothekCubeError as error:
        prepared.set_exception(error)
    return prepared.result


def stage_table(store: Store, write: DatasetWrite, table: pa.Table) -> list[Receipt]:
    """Check and stage one block of rows, e.g. in a Spark task."""
    return stage_parts(store, write.request, prepare_parts(write, table, fresh_id()), write.schema)


def commit_cube_write(store: Store, write: CubeWrite, receipts: Mapping[str, Sequence[Receipt]]) -> dict[str, DatasetMetadata]:
    """Publish staged files: enrichments first, the seed last, so that new cells appear with everything that belongs to them.

    Raises
    ------
    MultiTableCommitAborted
        If a dataset would be empty. Nothing is visible.
    CommitConflict
        If one of the datasets was changed in between in a way that contradicts this write. Nothing is visible.
    CubeCommitIncomplete
        If a later dataset could not be published. The message lists what landed.
    """
    _refuse_empty([i for i in write.datasets if _would_be_empty(write, i, receipts)])
    changes = {i: write.change(i, receipts.get(i, ())) for i in write.datasets}
    # New cells appear with everything that belongs to them; what goes disappears with the seed.
    order = sorted(changes, key=lambda name: (name == write.cube.seed_dataset) != write.may_vanish)
    landed = publish_in_order(store, write.cube.uuid_prefix, {i: changes[i] for i in order}, write.bases)
    return {i: DatasetMetadata.of(landed[i]) for i in changes}


def publish_in_order(store: Store, uuid_prefix: str, changes: Mapping[str, Change], bases: Mapping[str, Snapshot]) -> dict[str, Snapshot]:
    """Publish changes of several datasets of a cube, in their order, after all of them were checked against the newest state.

    Raises
    ------
    CommitConflict
        If one of the datasets was changed in between in a way that contradicts its change. Nothing is visible.
    CubeCommitIncomplete
        If a later dataset could not be published. The message lists what landed.
    """
    together = _cube_commit(changes, bases)
    changes = {i: replace(change, cube=together) for i, change in changes.items()}
    # One alone is checked as it is published.
    checked = {i: check_publishable(store, change, bases.get(i)) for i, change in changes.items()} if len(changes) > 1 else {}
    landed: dict[str, Snapshot] = {}
    for i, change in changes.items():
        with _telling(uuid_prefix, i, changes, landed):
            landed[i] = publish(store, change, bases.get(i), checked.pop(i, None))
    return landed


def _cube_commit(changes: Mapping[str, Change], bases: Mapping[str, Snapshot]) -> CubeCommit | None:
    """What the commits have in common, for readers that must not look between two of them; None if only one of them matters."""
    # An index changes no answer, so readers need not wait for it in all datasets.
    if not any(map(_touches_rows, changes.values())):
        return None
    write = _write_id(changes.values())
    uuids = sorted(change.uuid for i, change in changes.items() if not _has_number_only(change, bases.get(i), write))
    return CubeCommit(write, tuple(uuids)) if len(uuids) > 1 else None


def _write_id(changes: Collection[Change]) -> str:
    """A numbered write that is repeated after it stopped halfway is the same write."""
    txns = {change.txn for change in changes}
    txn = txns.pop() if len(txns) == 1 else None
    return fresh_id() if txn is None else write_id(txn, [change.uuid for change in changes])


def _has_number_only(change: Change, base: Snapshot | None, write: str) -> bool:
    """Whether a dataset has the number of a write from another one, e.g. to it alone, so that it will never have this write."""
    if base is None or not is_done(change.txn, base.document.metadata):
        return False
    return write not in [commit.cube.id for commit in base.chain if commit.cube is not None]


def _touches_rows(change: Change) -> bool:
    return change.replace or needs_indices(change)


@contextmanager
def _telling(uuid_prefix: str, name: str, changes: Mapping[str, Change], landed: Mapping[str, Snapshot]) -> Iterator[None]:
    """Let an error say which datasets have landed."""
    try:
        yield
    except Exception as error:
        if not landed:
            raise
        done = ", ".join(f"{i} ({_how(state)})" for i, state in landed.items())
        left = ", ".join(i for i in changes if i not in landed)
        # What is undone keeps its number, so the rest alone would be written then.
        mend = "`undo` with these commits takes back what landed" if changes[name].txn is None else "Repeat the write with the same txn, which completes it"
        raise CubeCommitIncomplete(
            f"Cube {uuid_prefix!r}: the commit stopped at dataset {name!r}. Landed: {done}. Not landed: {left}. {mend}. Reason: {error}"
        ) from error


def _how(landed: Snapshot) -> str:
    if landed.result is None or landed.result.skipped:
        return "before, with this number"
    return f"commit {landed.result.id}"


def _would_be_empty(write: CubeWrite, name: str, added: Mapping[str, Sequence[Part | Receipt]]) -> bool:
    if added.get(name) or write.may_vanish or name in write.done:
        return False
    if not write.allow_empty:
        return name not in write.bases or write.replace
    return len(write.bases[name].partitions) == len(write.removed.get(name, ())) and len(write.bases[name].partitions) > 0


def _refuse_empty(empty: Sequence[str]) -> None:
    if empty:
        cause: KartothekCubeError = InvalidInput(f"Cannot write empty datasets: {', '.join(sorted(empty))}")
        raise MultiTableCommitAborted(f"Aborting commit, nothing was written. {cause}") from cause

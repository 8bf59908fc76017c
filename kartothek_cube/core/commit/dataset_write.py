"""A write to one dataset: stage rows, merge the metadata, commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import chain, count
from typing import Any, TypeVar

import pyarrow as pa

from kartothek_cube.core.arguments import as_list
from kartothek_cube.core.commit.change import Change, OnConflict, check_on_conflict
from kartothek_cube.core.commit.commit import check_store_can_commit, commit_change
from kartothek_cube.core.metadata.commit_log import Txn, is_applied, parse_txn
from kartothek_cube.core.metadata.document import check_user_metadata
from kartothek_cube.core.metadata.naming import new_id
from kartothek_cube.core.metadata.snapshot import CommitResult, Snapshot
from kartothek_cube.core.runtime.executor import map_in_threads
from kartothek_cube.core.runtime.options import Phase, current_options
from kartothek_cube.core.snapshots.loader import with_indices
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.write.input_rows import as_items, elements_in, is_lazy, repeated
from kartothek_cube.core.write.layout import Scope, labels_in_scope, parse_scope
from kartothek_cube.core.write.plan import with_index_values
from kartothek_cube.core.write.prepare import PreparedRows, Schemas, WriteRequest, check_final
from kartothek_cube.core.write.stage import Drained, Receipt, stage_parts
from kartothek_cube.errors import CommitConflict, InvalidInput, InvalidType

Merger = Callable[[list[dict[str, Any]]], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class MetadataArguments:
    """The arguments ``metadata`` (a dict or a callable that makes one) and ``metadata_merger``."""

    metadata: Any = None
    merger: Merger | None = None


def metadata_arguments(metadata: object, merger: Any, uuid: str) -> MetadataArguments:
    """Both arguments, checked as far as possible before the rows are read."""
    if merger is not None and not callable(merger):
        raise InvalidType(
            f"metadata_merger for dataset {uuid!r} is called with a list of dicts and returns one; "
            f"{type(merger).__name__} cannot be called."
        )
    if not callable(metadata):
        user_metadata(metadata, uuid)
    return MetadataArguments(metadata, merger)


@dataclass(frozen=True, slots=True)
class StagedWrite:
    """Staged rows of one write.

    Attributes
    ----------
    request : WriteRequest
        The request, completed from the data.
    receipts : tuple of Receipt
        The staged files.
    schemas : Mapping[str, pyarrow.Schema]
        The schema of each table.
    items : int
        The number of items that the data had.
    """

    request: WriteRequest
    receipts: tuple[Receipt, ...]
    schemas: Mapping[str, pa.Schema]
    items: int


def stage_data(store: Store, request: WriteRequest, data: Any) -> StagedWrite:
    """Check and stage all rows.

    Rows in memory are checked before the first file is written, those of a stream as they come.
    """
    check_store_can_commit(store)
    items, numbers = as_items(data), count()
    schemas = Schemas(request)
    partitions = chain.from_iterable(elements_in(item, request.uuid) for item, _ in zip(items, numbers, strict=False))
    prepared: Iterable[PreparedRows] = schemas.prepared(partitions)
    if not is_lazy(items):
        checked = list(prepared)
        if twice := repeated(label for rows in checked if not rows.fresh for label in rows.labels):
            raise InvalidInput(f"The labels {twice} are duplicated. Nothing was written to dataset {request.uuid!r}.")
        check_final(schemas.request, schemas.tables)
        prepared = Drained(checked)
    phase = Phase("write", "partitions")
    # `schemas.request` changes: an element of a stream may bring another index.
    staged = map_in_threads(
        lambda rows: stage_prepared(store, schemas.request, rows),
        prepared,
        weight=lambda rows: rows.nbytes,
        phase=phase,
    )
    receipts = tuple(chain.from_iterable(staged))
    check_final(schemas.request, schemas.tables)
    if schemas.request != request:
        # Files of a stream may have been staged before an element brought another index.
        receipts = tuple(map_in_threads(lambda receipt: with_index_values(store, schemas.request, receipt), receipts))
    return StagedWrite(schemas.request, receipts, schemas.tables, next(numbers))


def stage_prepared(store: Store, request: WriteRequest, rows: PreparedRows) -> list[Receipt]:
    """Write the files of one input partition."""
    receipts = []
    for table, parts in rows.parts.items():
        # All tables of a partition have its label, so that they cannot be cut at different rows.
        staging = request.stage_request(table, rows.fresh, may_cut=len(rows.parts) == 1)
        receipts += stage_parts(store, staging, parts, rows.schemas[table])
    return receipts


@dataclass(frozen=True, slots=True)
class CommitOptions:
    """Which partitions a commit removes, and which other commits it tolerates.

    Attributes
    ----------
    delete_scope : tuple
        The argument of the verb.
    scope : Scope
        The argument, parsed for the state before.
    on_conflict : {"raise", "reapply"}
        What to do if another commit changed what this one removes or replaces.
    creates : bool
        Fail if another writer creates the dataset first.
    txn : Txn | None
        The number of the write.
    """

    delete_scope: tuple[Any, ...] = ()
    scope: Scope = ()
    on_conflict: OnConflict = "raise"
    creates: bool = True
    txn: Txn | None = None

    def labels(self, state: Snapshot) -> pa.Array:
        """The labels to be removed from any state of the dataset."""
        return labels_in_scope(state, parse_scope(list(self.delete_scope), state))


def update_options(
    delete_scope: object, base: Snapshot | None, on_conflict: object, txn: object = None
) -> CommitOptions:
    """The options of a write that adds to a dataset, from checked arguments."""
    scopes = as_list(delete_scope, "delete_scope")
    scope, mode = parse_scope(scopes, base), check_on_conflict(on_conflict)
    # A scope was made for a state, so no other writer may create the dataset meanwhile.
    return CommitOptions(tuple(scopes), scope, mode, creates=bool(scopes), txn=parse_txn(txn))


def commit_staged(store: Store, staged: StagedWrite, arguments: MetadataArguments, options: CommitOptions) -> Snapshot:
    """Commit the staged rows, and the removal of the partitions in the scope."""
    request = staged.request
    # A callable is called once, however often the commit is tried.
    arguments = replace(arguments, metadata=user_metadata(arguments.metadata, request.uuid))

    def merge(state: Snapshot | None) -> tuple[dict[str, Any], frozenset[str]]:
        return merge_metadata(None if request.replace else state, arguments, len(staged.receipts), request.uuid)

    values, forgotten = merge(request.base)
    change = Change(
        request.uuid,
        staged.receipts,
        staged.schemas,
        request.partition_on,
        request.index_columns,
        metadata=values,
        forgotten=forgotten,
        removed=removed_labels(store, request.base, options.scope),
        scope=options.labels if options.scope else None,
        merge=None if arguments.merger is None else merge,
        replace=request.replace,
        creates=options.creates,
        add_columns=request.add_columns,
        msgpack=request.msgpack,
        on_conflict=options.on_conflict,
        txn=options.txn,
        records=request.records(staged.schemas),
    )
    return commit_change(store, change, request.base)


def skipped(base: Snapshot | None, txn: Txn | None) -> Snapshot | None:
    """The dataset as it is, if a write with this number was applied; else None."""
    if base is None or not is_applied(txn, base.document.metadata):
        return None
    return replace(base, result=CommitResult(new_id(), 1, skipped=True))


def removed_labels(store: Store, base: Snapshot | None, scope: Scope) -> pa.Array:
    """Labels to be removed from the state before."""
    if base is None:
        return pa.array([], type=pa.string())
    needed = sorted({clause.column for clauses in scope for clause in clauses} & base.secondary_columns)
    return labels_in_scope(with_indices(store, base, needed), scope)


def merge_metadata(
    start: Snapshot | None, arguments: MetadataArguments, partitions: int, uuid: str
) -> tuple[dict[str, Any], frozenset[str]]:
    """The user metadata to be set, and the names to be removed."""
    current = dict(start.document.user_metadata) if start is not None else {}
    merged = current
    if arguments.merger is not None:
        # As in kartothek: the present metadata and one empty dict per new partition. Names that the
        # merger leaves out are removed.
        merged = arguments.merger([deepcopy(current), *({} for _ in range(partitions))])
        if not isinstance(merged, dict):
            raise InvalidType(
                f"The metadata_merger for dataset {uuid!r} should return a dict but returned {type(merged).__name__}."
            )
    given = user_metadata(arguments.metadata, uuid)
    after = {**merged, **given}
    # The argument is set even where the value is the same: another commit may be changing it.
    changed = {k: v for k, v in after.items() if k in given or k not in current or current[k] is not v}
    return check_user_metadata(changed, f"dataset {uuid!r}"), frozenset(current) - set(after) - {"creation_time"}


def user_metadata(metadata: object, uuid: str) -> dict[str, Any]:
    """The argument ``metadata``, called if it is callable, checked."""
    value = metadata() if callable(metadata) else metadata
    return {} if value is None else check_user_metadata(value, f"dataset {uuid!r}")


T = TypeVar("T")


def repeat_on_conflict(attempt: Callable[[], T]) -> T:
    """Repeat the build of an index after conflicts, up to ``commit_retries`` times."""
    # An index has to cover exactly the partitions from which it was built.
    for _ in range(current_options().commit_retries):
        with suppress(CommitConflict):
            return attempt()
    return attempt()

"""Executing a write to one dataset: stage rows, merge the metadata, publish."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import chain, count
from typing import Any

import pyarrow as pa

from kartothek_cube.core.change import Change, OnConflict, check_on_conflict
from kartothek_cube.core.commit import check_store_can_commit, commit
from kartothek_cube.core.dataset.adopt import with_index_values
from kartothek_cube.core.dataset.arguments import as_list
from kartothek_cube.core.dataset.prepare import PreparedRows, Schemas, WriteRequest, check_final
from kartothek_cube.core.dataset.scope import Scope, labels_in_scope, parse_scope
from kartothek_cube.core.input_rows import as_items, elements_in, is_lazy, repeated
from kartothek_cube.core.metadata.document import check_user_metadata
from kartothek_cube.core.metadata.snapshot import CommitResult, Snapshot
from kartothek_cube.core.metadata.txn import Txn, is_applied, parse_txn
from kartothek_cube.core.naming import fresh_id
from kartothek_cube.core.parallel import map_in_threads
from kartothek_cube.core.progress import Phase
from kartothek_cube.core.receipt import Receipt
from kartothek_cube.core.snapshots import with_indices
from kartothek_cube.core.stage import drain, stage_parts
from kartothek_cube.core.store import Store
from kartothek_cube.errors import InvalidInput, InvalidType

__all__ = [
    "CommitOptions",
    "MetadataArguments",
    "StagedWrite",
    "commit_staged",
    "merge_metadata",
    "metadata_arguments",
    "removed_labels",
    "skipped",
    "stage_data",
    "update_options",
    "user_metadata",
]

Merger = Callable[[list[dict[str, Any]]], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class MetadataArguments:
    """``metadata`` (a dict or a callable that returns one) and ``metadata_merger`` of a writing verb."""

    metadata: Any = None
    merger: Merger | None = None


def metadata_arguments(metadata: Any, merger: Any, uuid: str) -> MetadataArguments:
    """Both arguments, checked as far as they can be before all rows are there."""
    if merger is not None and not callable(merger):
        raise InvalidType(f"metadata_merger for dataset {uuid!r} is called with a list of dicts and returns one; {type(merger).__name__} cannot be called.")
    if not callable(metadata):
        user_metadata(metadata, uuid)
    return MetadataArguments(metadata, merger)


@dataclass(frozen=True, slots=True)
class StagedWrite:
    """What staging leaves: the request as the data with_index_values it, receipts, schemas, and how many items there were."""

    request: WriteRequest
    receipts: tuple[Receipt, ...]
    schemas: Mapping[str, pa.Schema]
    items: int


def stage_data(store: Store, request: WriteRequest, data: Any) -> StagedWrite:
    """Check and stage all rows. What is in memory is checked whole before the first file; the rest as it comes."""
    check_store_can_commit(store)
    items, numbers = as_items(data), count()
    schemas = Schemas(request)
    partitions = chain.from_iterable(elements_in(item, request.uuid) for item, _ in zip(items, numbers, strict=False))
    prepared = schemas.prepared(partitions)
    if not is_lazy(items):
        checked = list(prepared)
        if twice := repeated(label for rows in checked if not rows.fresh for label in rows.labels):
            raise InvalidInput(f"The labels {twice} are duplicated. Nothing was written to dataset {request.uuid!r}.")
        check_final(schemas.request, schemas.tables)
        prepared = drain(checked)
    phase = Phase("write", "partitions")
    # The request is that of `schemas` at the moment: an element of a stream may bring another index.
    staged = map_in_threads(lambda rows: stage_prepared(store, schemas.request, rows), prepared, weight=lambda rows: rows.nbytes, phase=phase)
    receipts = tuple(chain.from_iterable(staged))
    check_final(schemas.request, schemas.tables)
    if schemas.request != request:
        # Files of a stream that were staged before an element brought another index.
        receipts = tuple(map_in_threads(lambda receipt: with_index_values(store, schemas.request, receipt), receipts))
    return StagedWrite(schemas.request, receipts, schemas.tables, next(numbers))


def stage_prepared(store: Store, request: WriteRequest, rows: PreparedRows) -> list[Receipt]:
    """Write the files of one input partition."""
    receipts = []
    for table, parts in rows.parts.items():
        receipts += stage_parts(store, request.stage_request(table, rows.fresh), parts, rows.schemas[table])
    return receipts


@dataclass(frozen=True, slots=True)
class CommitOptions:
    """What a commit takes away, and what it tolerates.

    ``delete_scope`` is the argument, ``scope`` what it means for the dataset as it was; ``creates`` says that nobody else may make the dataset first; ``txn``
    is the number of the write.
    """

    delete_scope: tuple[Any, ...] = ()
    scope: Scope = ()
    on_conflict: OnConflict = "raise"
    creates: bool = True
    txn: Txn | None = None

    def labels(self, state: Snapshot) -> pa.Array:
        """The labels that go from any state of the dataset."""
        return labels_in_scope(state, parse_scope(list(self.delete_scope), state))


def update_options(delete_scope: Any, base: Snapshot | None, on_conflict: Any, txn: Any = None) -> CommitOptions:
    """The options of a write that adds to a dataset; the arguments are checked. A scope needs a state that it was made for."""
    given = as_list(delete_scope, "delete_scope")
    return CommitOptions(tuple(given), parse_scope(given, base), check_on_conflict(on_conflict), creates=bool(given), txn=parse_txn(txn))


def commit_staged(store: Store, staged: StagedWrite, arguments: MetadataArguments, options: CommitOptions) -> Snapshot:
    """Publish what was staged, and the removal of the partitions in the scope."""
    request = staged.request
    # A callable is asked once, however often the commit is tried.
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
    )
    return commit(store, change, request.base)


def skipped(base: Snapshot | None, txn: Txn | None) -> Snapshot | None:
    """The dataset as it is, if it has the number of a write, so that nothing needs to be staged for it; else None."""
    if base is None or not is_applied(txn, base.document.metadata):
        return None
    return replace(base, result=CommitResult(fresh_id(), 1, skipped=True))


def removed_labels(store: Store, base: Snapshot | None, scope: Scope) -> pa.Array:
    """Labels that go from the dataset as it was."""
    if base is None:
        return pa.array([], type=pa.string())
    needed = sorted({clause.column for clauses in scope for clause in clauses} & base.secondary_columns)
    return labels_in_scope(with_indices(store, base, needed), scope)


def merge_metadata(start: Snapshot | None, arguments: MetadataArguments, partitions: int, uuid: str) -> tuple[dict[str, Any], frozenset[str]]:
    """The user metadata to be set and the names to be removed.

    A merger gets the present metadata and one empty dict a new partition, as it did in kartothek; what it leaves out goes.
    """
    current = dict(start.document.user_metadata) if start is not None else {}
    merged = current if arguments.merger is None else _merged(arguments.merger, current, partitions, uuid)
    given = user_metadata(arguments.metadata, uuid)
    wanted = {**merged, **given}
    # What is given is set, also where it is so already: somebody may be changing it.
    changed = {k: v for k, v in wanted.items() if k in given or k not in current or current[k] is not v}
    return check_user_metadata(changed, f"dataset {uuid!r}"), frozenset(current) - set(wanted) - {"creation_time"}


def _merged(merger: Merger, current: dict[str, Any], partitions: int, uuid: str) -> dict[str, Any]:
    merged = merger([deepcopy(current), *({} for _ in range(partitions))])
    if not isinstance(merged, dict):
        raise InvalidType(f"The metadata_merger for dataset {uuid!r} should return a dict but returned {type(merged).__name__}.")
    return merged


def user_metadata(metadata: Any, uuid: str) -> dict[str, Any]:
    """The argument ``metadata``, called if it is callable, checked."""
    value = metadata() if callable(metadata) else metadata
    return {} if value is None else check_user_metadata(value, f"dataset {uuid!r}")

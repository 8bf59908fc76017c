"""Running a write to one dataset: stage elements, settle the metadata, publish."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import Any, TypeVar

import pyarrow as pa

from kartothek_cube.core.change import Change, OnConflict, Receipt
from kartothek_cube.core.compat.dataset_metadata import DatasetMetadata
from kartothek_cube.core.dataset.arguments import Source
from kartothek_cube.core.dataset.elements import as_items, elements_in, is_lazy, repeated
from kartothek_cube.core.dataset.prepare import Prepared, Schemas, WriteRequest, check_final, prepare, with_indexed
from kartothek_cube.core.dataset.scope import Scope, labels_in_scope
from kartothek_cube.core.metadata.document import check_user_metadata
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.parallel import run
from kartothek_cube.core.publish import check_store_can_commit, publish
from kartothek_cube.core.snapshots import with_indices
from kartothek_cube.core.stage import stage_parts
from kartothek_cube.core.store import Store
from kartothek_cube.errors import InvalidInput, InvalidType

__all__ = ["MetadataArguments", "Staged", "commit_change", "metadata_arguments", "settle_metadata", "stage_data", "user_metadata"]

T = TypeVar("T")
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
class Staged:
    """What staging leaves: the request as the data completed it, receipts, schemas, and how many items there were."""

    request: WriteRequest
    receipts: tuple[Receipt, ...]
    schemas: Mapping[str, pa.Schema]
    items: int


def stage_data(store: Store, request: WriteRequest, data: Any) -> Staged:
    """Check and stage all rows. What is in memory is checked whole before the first file is written; the rest as it comes."""
    check_store_can_commit(store)
    items = as_items(data)
    counted = _Counted(items)
    elements = chain.from_iterable(elements_in(item, request.uuid) for item in counted)
    first = list(islice(elements, 1))
    request = with_indexed(request, first)
    schemas = Schemas(request)
    prepared = schemas.checked(prepare(request, e) for e in chain(_given_up(first), elements))
    if not is_lazy(items):
        known = _refuse_equal_labels(request, list(prepared))
        check_final(request, schemas.tables)
        prepared = _given_up(known)
    receipts = tuple(chain.from_iterable(run(lambda e: stage_element(store, request, e), prepared, weight=lambda e: e.nbytes)))
    check_final(request, schemas.tables)
    return Staged(request, receipts, schemas.tables, counted.seen)


class _Counted:
    """Counts the items that it gives."""

    def __init__(self, items: Iterable[Any]) -> None:
        self._items, self.seen = items, 0

    def __iter__(self) -> Iterator[Any]:
        for item in self._items:
            self.seen += 1
            yield item


def _refuse_equal_labels(request: WriteRequest, elements: list[Prepared]) -> list[Prepared]:
    twice = repeated(label for e in elements if not e.fresh for label in e.labels)
    if twice:
        raise InvalidInput(f"The labels {twice} are duplicated. Nothing was written to dataset {request.uuid!r}.")
    return elements


def _given_up(elements: list[T]) -> Iterator[T]:
    """The elements, without keeping the rows of those that are stored."""
    elements.reverse()
    while elements:
        yield elements.pop()


def stage_element(store: Store, request: WriteRequest, element: Prepared) -> list[Receipt]:
    """Write the files of one element."""
    receipts = []
    for table, parts in element.parts.items():
        receipts += stage_parts(store, request.stage_request(table, element.fresh), parts, element.schemas[table])
    return receipts


def commit_staged(target: Source, staged: Staged, arguments: MetadataArguments, scope: Scope = (), on_conflict: OnConflict = "raise") -> DatasetMetadata:
    """Publish what was staged, and the removal of the partitions in the scope."""
    request = staged.request

    def merge(state: Snapshot | None) -> tuple[dict[str, Any], frozenset[str]]:
        return settle_metadata(None if request.replace else state, arguments, len(staged.receipts), request.uuid)

    values, forgotten = merge(request.base)
    change = Change(
        request.uuid,
        staged.receipts,
        staged.schemas,
        request.partition_on,
        request.index_columns,
        metadata=values,
        forgotten=forgotten,
        removed=_removed(target.store, request.base, scope),
        scope=partial(labels_in_scope, scope=scope) if scope else None,
        merge=None if arguments.merger is None else merge,
        replace=request.replace,
        add_columns=request.add_columns,
        msgpack=request.msgpack,
        on_conflict=on_conflict,
    )
    return commit_change(target, change, request.base)


def _removed(store: Store, base: Snapshot | None, scope: Scope) -> pa.Array:
    if base is None:
        return pa.array([], type=pa.string())
    needed = sorted({clause.column for clauses in scope for clause in clauses} & base.secondary_columns)
    return labels_in_scope(with_indices(store, base, needed), scope)


def commit_change(target: Source, change: Change, base: Snapshot | None) -> DatasetMetadata:
    """Publish a change; a factory through which it was asked for forgets what it knew."""
    landed = publish(target.store, change, base)
    if target.factory is not None:
        target.factory.invalidate()
    return DatasetMetadata.of(landed)


def settle_metadata(start: Snapshot | None, arguments: MetadataArguments, partitions: int, uuid: str) -> tuple[dict[str, Any], frozenset[str]]:
    """The user metadata to be set and the names to be removed.

    A merger gets the present metadata and one empty dict a new partition, as it did in kartothek; what it leaves out goes.
    """
    current = dict(start.document.user_metadata) if start is not None else {}
    merged = current if arguments.merger is None else _merged(arguments.merger, current, partitions, uuid)
    wanted = {**merged, **user_metadata(arguments.metadata, uuid)}
    changed = {k: v for k, v in wanted.items() if k not in current or current[k] is not v}
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

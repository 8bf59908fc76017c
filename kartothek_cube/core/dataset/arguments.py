"""Arguments that the dataset verbs share: which dataset is meant, and arguments that are lists."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from kartothek_cube.core.compat.dataset_metadata import DatasetMetadata
from kartothek_cube.core.compat.factory import DatasetFactory
from kartothek_cube.core.history import AsOf, check_as_of, load_snapshot_as_of
from kartothek_cube.core.metadata.document import VERSION
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.naming import check_uuid, fresh_id
from kartothek_cube.core.snapshots import load_snapshot
from kartothek_cube.core.store import Store
from kartothek_cube.core.stores import open_instrumented
from kartothek_cube.core.telemetry import name_dataset
from kartothek_cube.errors import InvalidInput, InvalidType, Unsupported

__all__ = ["DatasetRef", "as_list", "check_flag", "check_version", "source_of", "target_of"]


@dataclass(frozen=True, slots=True)
class DatasetRef:
    """A dataset in a store, named by its uuid or held by a factory; ``as_of`` says which state of it is read."""

    store: Store
    uuid: str
    factory: DatasetFactory | None = None
    as_of: AsOf | None = None

    def snapshot(self) -> Snapshot:
        """The state that was asked for; else the factory's snapshot, which stays as it is until it is invalidated; else the newest one."""
        if self.as_of is not None:
            return load_snapshot_as_of(self.store, self.uuid, self.as_of)
        return self.factory.snapshot if self.factory is not None else load_snapshot(self.store, self.uuid)

    @property
    def keep(self) -> Callable[[Snapshot], None] | None:
        """Where indices go that a scan has loaded: a factory keeps its own."""
        return None if self.factory is None else self.factory.remember

    def committed(self, landed: Snapshot) -> DatasetMetadata:
        """What a writing verb returns. The factory through which the dataset was named forgets what it read."""
        if self.factory is not None:
            self.factory.invalidate()
        return DatasetMetadata.of(landed)


def source_of(dataset_uuid: Any, store: Any, factory: Any, as_of: Any = None) -> DatasetRef:
    """Exactly ``dataset_uuid`` and ``store``, or exactly ``factory``. With ``as_of`` a factory only says where the dataset lies.

    Raises
    ------
    InvalidInput
        For any other combination.
    InvalidType
        If ``as_of`` is neither a commit's id nor a moment.
    """
    moment = check_as_of(as_of)
    if factory is None and dataset_uuid is not None and store is not None:
        return _named(DatasetRef(open_instrumented(store), str(dataset_uuid), None, moment))
    if isinstance(factory, DatasetFactory) and dataset_uuid is None and store is None:
        return _named(DatasetRef(open_instrumented(factory.store), factory.dataset_uuid, factory if moment is None else None, moment))
    raise InvalidInput("Need to supply either a `factory` (a DatasetFactory) or `dataset_uuid` and `store`, and not both.")


def as_list(value: Any, argument: str) -> list[Any]:
    """An argument that is a list of things: None is no thing, a scalar is one.

    Raises
    ------
    InvalidInput
        For sets and dicts, which have no order or mean something else.
    """
    if value is None:
        return []
    if isinstance(value, (set, frozenset, dict)):
        raise InvalidInput(f"The argument {argument} is a list; {type(value).__name__} is incompatible for normalisation: {value!r}")
    if isinstance(value, (str, bytes, int, float)) or not isinstance(value, Iterable):
        return [value]
    return list(value)


def target_of(store: Any, dataset_uuid: Any, factory: Any = None, *, generate: bool = False) -> DatasetRef:
    """Where a writing verb writes: ``store`` and ``dataset_uuid``, or ``factory``.

    Raises
    ------
    InvalidType
        If there is no store, or no uuid and none may be generated.
    InvalidInput
        If the uuid has illegal characters, or both forms are given.
    """
    if factory is not None:
        return source_of(dataset_uuid, store, factory)
    if store is None:
        raise InvalidType("Provided incompatible store type: None. Give a store, a URL, a path or a callable that returns a store.")
    if dataset_uuid is None and not generate:
        raise InvalidType("Give the argument dataset_uuid: the name of the dataset.")
    return _named(DatasetRef(open_instrumented(store), check_uuid(fresh_id() if dataset_uuid is None else dataset_uuid)))


def _named(source: DatasetRef) -> DatasetRef:
    name_dataset(source.uuid)
    return source


def check_flag(value: Any, argument: str) -> bool:
    """An argument that is True or False. Anything else is the value of another argument, and may mean the opposite of what it says (``"no"``).

    Raises
    ------
    InvalidType
        If it is neither.
    """
    if not isinstance(value, (bool, np.bool_)):
        raise InvalidType(f"The argument {argument} is True or False, not {value!r}.")
    return bool(value)


def check_version(version: object) -> None:
    """Refuse versions of the format other than 4."""
    if not isinstance(version, int) or version != VERSION:
        raise Unsupported(f"Only metadata version {VERSION} is supported, not {version!r}.")

"""Which dataset a verb works on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kartothek_cube.core.kartothek.dataset_metadata import DatasetMetadata
from kartothek_cube.core.kartothek.factory import DatasetFactory
from kartothek_cube.core.metadata.naming import check_uuid, new_id
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.runtime.telemetry import name_dataset
from kartothek_cube.core.snapshots.loader import load_snapshot
from kartothek_cube.core.snapshots.time_travel import AsOf, check_as_of, load_snapshot_as_of
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.stores.open import open_instrumented
from kartothek_cube.errors import InvalidInput, InvalidType
from kartothek_cube.typing import StoreLike

__all__ = ["DatasetRef", "dataset_ref", "target_of"]


@dataclass(frozen=True, slots=True)
class DatasetRef:
    """A dataset in a store, given by uuid or factory; ``as_of`` selects a past state."""

    store: Store
    uuid: str
    factory: DatasetFactory | None = None
    as_of: AsOf | None = None

    def snapshot(self) -> Snapshot:
        """The state ``as_of``; else the snapshot that the factory keeps; else the newest."""
        if self.as_of is not None:
            return load_snapshot_as_of(self.store, self.uuid, self.as_of)
        return self.factory.snapshot if self.factory is not None else load_snapshot(self.store, self.uuid)

    @property
    def keep(self) -> Callable[[Snapshot], None] | None:
        """Callback for the indices that a scan loads: a factory keeps them."""
        return None if self.factory is None else self.factory.remember

    def committed(self, snapshot: Snapshot) -> DatasetMetadata:
        """Invalidate the factory, and return the committed dataset."""
        if self.factory is not None:
            self.factory.invalidate()
        return DatasetMetadata.of(snapshot)


def dataset_ref(
    dataset_uuid: str | None, store: StoreLike | None, factory: DatasetFactory | None, as_of: AsOf | None = None
) -> DatasetRef:
    """The dataset of a verb: exactly ``dataset_uuid`` and ``store``, or exactly ``factory``.

    Raises
    ------
    InvalidInput
        For any other combination.
    InvalidType
        If ``as_of`` is neither the id of a commit nor a moment.
    """
    moment = check_as_of(as_of)
    if factory is None and dataset_uuid is not None and store is not None:
        return _named(DatasetRef(open_instrumented(store), str(dataset_uuid), None, moment))
    if isinstance(factory, DatasetFactory) and dataset_uuid is None and store is None:
        # A past state is not the state that the factory keeps: then only its store and uuid count.
        kept = factory if moment is None else None
        return _named(DatasetRef(open_instrumented(factory.store), factory.dataset_uuid, kept, moment))
    raise InvalidInput(
        "Need to supply either a `factory` (a DatasetFactory) or `dataset_uuid` and `store`, and not both."
    )


def target_of(
    store: StoreLike | None, dataset_uuid: str | None, factory: DatasetFactory | None = None, *, generate: bool = False
) -> DatasetRef:
    """The dataset that a verb writes: ``store`` and ``dataset_uuid``, or ``factory``.

    Raises
    ------
    InvalidType
        If there is no store, or no uuid and ``generate`` is False.
    InvalidInput
        If the uuid has illegal characters, or both forms are given.
    """
    if factory is not None:
        return dataset_ref(dataset_uuid, store, factory)
    if store is None:
        raise InvalidType(
            "Provided incompatible store type: None. Give a store, a URL, a path or a callable that returns a store."
        )
    if dataset_uuid is None and not generate:
        raise InvalidType("Give the argument dataset_uuid: the name of the dataset.")
    return _named(DatasetRef(open_instrumented(store), check_uuid(new_id() if dataset_uuid is None else dataset_uuid)))


def _named(source: DatasetRef) -> DatasetRef:
    name_dataset(source.uuid)  # for the log record of the operation
    return source

"""Which dataset a verb works on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from kartothek_cube.core.arguments import join_names
from kartothek_cube.core.metadata.naming import check_uuid, new_id
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.runtime.telemetry import name_dataset
from kartothek_cube.core.snapshots.loader import load_snapshot
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.stores.open import open_instrumented
from kartothek_cube.errors import DatasetNotFound, InvalidInput, InvalidType
from kartothek_cube.typing import AsOf, StoreLike

if TYPE_CHECKING:
    from kartothek_cube.core.kartothek.dataset_metadata import DatasetFactory, DatasetMetadata


class DatasetRef(Struct, frozen=True):
    """A dataset in a store, given by uuid or factory; ``as_of`` selects a past state."""

    store: Store
    uuid: str
    factory: DatasetFactory | None = None
    as_of: AsOf | None = None

    def snapshot(self) -> Snapshot:
        """The state ``as_of``; else the snapshot that the factory keeps; else the newest."""
        try:
            if self.as_of is not None:
                from kartothek_cube.core.snapshots.time_travel import load_snapshot_as_of

                return load_snapshot_as_of(self.store, self.uuid, self.as_of)
            return self.factory.snapshot if self.factory is not None else load_snapshot(self.store, self.uuid)
        except DatasetNotFound as error:
            start = f"{self.uuid}++"
            keys = self.store.list(start).keys
            names = {key.removeprefix(start).split(".")[0] for key in keys} - {""}
            if not names:
                raise
            first = f"{start}{min(names)}"
            raise DatasetNotFound(
                f"{error} {self.uuid!r} is a cube: query_cube({self.uuid!r}, store) reads it, and "
                f"read_table({first!r}, store) one of its datasets, which are {join_names(names)}."
            ) from error

    @property
    def keep(self) -> Callable[[Snapshot], None] | None:
        """Callback for the indices that a scan loads: a factory keeps them."""
        return None if self.factory is None else self.factory.remember

    def committed(self, snapshot: Snapshot) -> DatasetMetadata:
        """Invalidate the factory, and return the committed dataset."""
        from kartothek_cube.core.kartothek.dataset_metadata import DatasetMetadata

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
    moment = None
    if as_of is not None:
        from kartothek_cube.core.snapshots.time_travel import check_as_of

        moment = check_as_of(as_of)
    if factory is None and dataset_uuid is not None and store is not None:
        return _named(DatasetRef(open_instrumented(store), _uuid_of(dataset_uuid), None, moment))
    # The classes of kartothek's interface need the code of commits, which a read does without.
    from kartothek_cube.core.kartothek.dataset_metadata import DatasetFactory

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
    if dataset_uuid is not None:
        _uuid_of(dataset_uuid)  # a new name has to be text
    return _named(DatasetRef(open_instrumented(store), check_uuid(new_id() if dataset_uuid is None else dataset_uuid)))


def _uuid_of(given: object) -> str:
    """The uuid of a dataset as text; `InvalidType` for what is no uuid but a cube or a store."""
    prefix, seed = getattr(given, "uuid_prefix", None), getattr(given, "seed_dataset", "seed")
    if isinstance(prefix, str):
        raise InvalidType(
            f"dataset_uuid is the name of a single dataset, but the cube {prefix!r} was given. query_cube({prefix!r}, "
            f"store) reads the cube, read_table('{prefix}++{seed}', store) its seed."
        )
    if isinstance(given, (Store, Path)):
        raise InvalidType("dataset_uuid is a store: give the arguments by name, dataset_uuid=… and store=….")
    return str(given)


def _named(source: DatasetRef) -> DatasetRef:
    name_dataset(source.uuid)  # for the log record of the operation
    return source

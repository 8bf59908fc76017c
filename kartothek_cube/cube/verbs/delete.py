"""Deleting a cube, or some of its datasets."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from kartothek_cube.core.maintenance.delete import Deletion, find_deletion, find_listed_deletion, run_deletion
from kartothek_cube.core.options import Overrides
from kartothek_cube.core.parallel import THREADS, Executor
from kartothek_cube.core.store import Store
from kartothek_cube.core.stores import open_instrumented
from kartothek_cube.core.telemetry import operation
from kartothek_cube.cube.converters import converter_str_set_optional
from kartothek_cube.cube.cube import Cube, require_cube
from kartothek_cube.cube.discovery import dataset_ids
from kartothek_cube.cube.selection import check_uuids, given_datasets
from kartothek_cube.errors import CorruptDocument, DatasetNotFound, ReadOnlyStore
from kartothek_cube.typing import IntoDatasets, StoreLike

__all__ = ["delete_cube", "delete_cube_on", "plan_cube_deletion"]

_LOGGER = logging.getLogger(__name__)


def delete_cube(
    cube: Cube,
    store: StoreLike,
    datasets: IntoDatasets = None,
    *,
    options: Overrides | None = None,
) -> None:
    """Delete a cube, or some of its datasets: history, index files, data files, schema files and documents, in either encoding.

    The cube need not be valid, and a dataset need not have its schema file. Files that no document names stay, also those of older snapshots; call
    `cleanup_cube` with ``options(grace=timedelta(0), retain=timedelta(0))`` before if they are to go as well. Of a dataset whose document is damaged,
    everything goes that lies below ``<uuid>/``; what it named elsewhere nobody knows, so that stays, and a warning is logged. There is no grace period:
    whoever queries the cube meanwhile gets an error. If the call is interrupted, call it again.

    Parameters
    ----------
    cube, store
        As in `query_cube`.
    datasets : str, iterable of str, or dict, optional
        Which datasets, by id or as a dict dataset id → `DatasetMetadata`; those that do not exist are passed over. By default
        all. What is deleted is the dataset as it is now.
    options : optional
        What `options` returns: settings for this call.

    Raises
    ------
    Unsupported
        If a document is of a format that this version does not know; nothing is removed then.
    InvalidInput, InvalidType
        If ``cube`` is no `Cube`, or ``datasets`` holds something that is no dataset of it.
    ReadOnlyStore
        If the store cannot be written to.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube import Cube, build_cube, delete_cube, open_store
    >>> store = open_store("hmemory://")
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> _ = build_cube(pa.table({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"]}), cube, store)
    >>> delete_cube(cube, store)
    >>> store.list(recursive=True).keys
    []
    """
    with operation("delete_cube", options, cube=cube):
        delete_cube_on(THREADS, cube, store, datasets)


def delete_cube_on(executor: Executor, cube: Cube, store: StoreLike, datasets: IntoDatasets) -> None:
    """Delete a cube as `delete_cube` does, inside an operation; the executor removes the files."""
    opened = open_instrumented(store)
    for uuid, plan in plan_cube_deletion(cube, opened, datasets).items():
        run_deletion(opened, uuid, plan, executor)


def plan_cube_deletion(cube: Cube, store: Store, datasets: IntoDatasets = None) -> dict[str, Deletion]:
    """What to remove of each dataset by uuid, in the order in which the datasets go; errors as of `delete_cube`.

    The seed goes first: from the first file on a query fails, and once its document is gone there is no cube. The other way
    round an interrupted deletion would leave a cube that answers, with fewer columns. A document goes after all files that it
    names: while it is there, the next call finds them.
    """
    present = _present(require_cube(cube), store, datasets)
    if not store.capabilities.writable:
        raise ReadOnlyStore(f"The store {store.name} cannot be written to, so cube {cube.uuid_prefix!r} cannot be deleted.")
    plans: dict[str, Deletion] = {}
    for name in sorted(present, key=lambda i: (i != cube.seed_dataset, i)):
        uuid = cube.ktk_dataset_uuid(name)
        with suppress(DatasetNotFound):  # somebody else has deleted it since it was listed
            plans[uuid] = _plan(store, uuid)
    return plans


def _plan(store: Store, uuid: str) -> Deletion:
    try:
        return replace(find_deletion(store, uuid), garbage=())
    except CorruptDocument as error:
        _LOGGER.warning("Dataset %r cannot be read, so everything below %r is deleted, and files that it named elsewhere stay: %s", uuid, f"{uuid}/", error)
        return find_listed_deletion(store, uuid)


def _present(cube: Cube, store: Store, datasets: IntoDatasets) -> set[str]:
    """Ids of the datasets to be deleted, as far as they exist."""
    if isinstance(datasets, Mapping):
        given = given_datasets(datasets)
        check_uuids(given, cube)
        wanted: frozenset[str] | None = frozenset(given)
    else:
        wanted = converter_str_set_optional(datasets)
    present = dataset_ids(cube.uuid_prefix, store)
    return present if wanted is None else present & wanted

"""The verb `delete_cube`."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

from kartothek_cube.core.arguments import converter_str_set_optional
from kartothek_cube.core.maintenance.copy import (
    Deletion,
    abort_pending_in,
    find_deletion,
    find_listed_deletion,
    run_deletion,
)
from kartothek_cube.core.runtime.executor import THREADS, Executor
from kartothek_cube.core.runtime.options import Overrides
from kartothek_cube.core.runtime.telemetry import operation
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.cube.arguments import check_uuids, given_datasets
from kartothek_cube.cube.cube import Cube, require_cube
from kartothek_cube.cube.members.discovery import cube_and_store, dataset_ids
from kartothek_cube.errors import CorruptDocument, DatasetNotFound, ReadOnlyStore
from kartothek_cube.typing import IntoDatasets, StoreLike

__all__ = ["delete_cube", "delete_cube_on", "plan_cube_deletion"]

_LOGGER = logging.getLogger(__name__)


def delete_cube(
    cube: Cube | str,
    store: StoreLike,
    datasets: IntoDatasets = None,
    *,
    options: Overrides | None = None,
) -> None:
    """Delete a cube, or some of its datasets, with their history, indices, data and documents.

    The cube need not be valid, and a dataset need not have its schema file. Files that no document
    names stay, also those of older snapshots; to remove them, too, call `cleanup_cube` with
    ``options(grace=timedelta(0), retain=timedelta(0))`` before. If a document is damaged, all of
    ``<uuid>/`` is deleted; files that the document named elsewhere are unknown and stay, and a
    warning is logged. There is no grace period: concurrent queries of the cube fail. If the call is
    interrupted, call it again.

    Parameters
    ----------
    cube, store
        As in `query_cube`.
    datasets : str, iterable of str, or dict, optional
        The datasets, by id or as a dict dataset id → `DatasetMetadata`; by default all. Missing
        ones are ignored. The current state of a dataset is deleted, whatever the dict has.
    options : optional
        What `options` returns: settings for this call.

    Raises
    ------
    Unsupported
        If a document has a format that this version does not support. Nothing is removed then.
    InvalidInput, InvalidType
        If ``cube`` is no `Cube`, or ``datasets`` has something that is no dataset of it.
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


def delete_cube_on(executor: Executor, cube: Cube | str, store: StoreLike, datasets: IntoDatasets) -> None:
    """Delete a cube as `delete_cube` does; the executor removes the files."""
    cube, opened = cube_and_store(cube, store)
    plans = plan_cube_deletion(cube, opened, datasets)
    abort_pending_in(opened, plans)  # as long as the seed can tell
    for uuid, plan in plans.items():
        run_deletion(opened, uuid, plan, executor)


def plan_cube_deletion(cube: Cube, store: Store, datasets: IntoDatasets = None) -> dict[str, Deletion]:
    """Plan the deletion of each dataset, by uuid and in their order; errors as of `delete_cube`."""
    require_cube(cube)
    if isinstance(datasets, Mapping):
        given = given_datasets(datasets)
        check_uuids(given, cube)
        names: frozenset[str] | None = frozenset(given)
    else:
        names = converter_str_set_optional(datasets)
    present = dataset_ids(cube.uuid_prefix, store)
    chosen = present if names is None else present & names
    if not store.capabilities.writable:
        raise ReadOnlyStore(
            f"The store {store.name} cannot be written to, so cube {cube.uuid_prefix!r} cannot be deleted."
        )
    plans: dict[str, Deletion] = {}
    # The seed goes first: from its first file on queries fail, and without its document there is no
    # cube. In any other order an interrupted deletion would leave a cube that answers with fewer
    # columns.
    for name in sorted(chosen, key=lambda i: (i != cube.seed_dataset, i)):
        uuid = cube.ktk_dataset_uuid(name)
        try:
            plans[uuid] = replace(find_deletion(store, uuid), garbage=())
        except DatasetNotFound:
            continue  # another process has deleted it since the listing
        except CorruptDocument as error:
            text = (
                "Dataset %r cannot be read, so everything below %r is deleted, "
                "and files that it named elsewhere stay: %s"
            )
            _LOGGER.warning(text, uuid, f"{uuid}/", error)
            plans[uuid] = find_listed_deletion(store, uuid)
    return {uuid: replace(plan, ledger=tuple(u for u in plan.ledger if u not in plans)) for uuid, plan in plans.items()}

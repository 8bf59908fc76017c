"""Deleting a cube, or some of its datasets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from kartothek_cube.core.compat.dataset_metadata import DatasetMetadata
from kartothek_cube.core.maintenance.delete import Deletion, find_deletion, run_deletion
from kartothek_cube.core.options import Overrides, use_options
from kartothek_cube.core.store import Store
from kartothek_cube.core.stores import open_store
from kartothek_cube.cube.converters import converter_str_set_optional
from kartothek_cube.cube.cube import Cube, require_cube
from kartothek_cube.cube.discovery import dataset_ids
from kartothek_cube.cube.selection import check_uuids, given_datasets
from kartothek_cube.errors import DatasetNotFound, ReadOnlyStore

__all__ = ["delete_cube", "plan_cube_deletion"]


def delete_cube(
    cube: Cube,
    store: Any,
    datasets: Iterable[str] | str | Mapping[str, DatasetMetadata] | None = None,
    *,
    options: Overrides | None = None,
) -> None:
    """Delete a cube, or some of its datasets: index files, data files, schema files and documents, in either encoding.

    Only the documents have to be readable: a cube that is not valid, and a dataset without schema file, can be deleted too.
    Files that no document names stay; call `cleanup_cube` before if they are to go as well. There is no grace period: whoever
    queries the cube meanwhile gets an error. If the call is interrupted, call it again.

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
    CorruptDocument
        If a document cannot be read; nothing is removed then.
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
    with use_options(options):
        opened = open_store(store)
        for uuid, plan in plan_cube_deletion(cube, opened, datasets).items():
            run_deletion(opened, uuid, plan)


def plan_cube_deletion(cube: Cube, store: Store, datasets: Any = None) -> dict[str, Deletion]:
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
            plans[uuid] = replace(find_deletion(store, uuid), garbage=())
    return plans


def _present(cube: Cube, store: Store, datasets: Any) -> set[str]:
    """Ids of the datasets to be deleted, as far as they exist."""
    if isinstance(datasets, Mapping):
        given = given_datasets(datasets)
        check_uuids(given, cube)
        wanted: frozenset[str] | None = frozenset(given)
    else:
        wanted = converter_str_set_optional(datasets)
    present = dataset_ids(cube.uuid_prefix, store)
    return present if wanted is None else present & wanted

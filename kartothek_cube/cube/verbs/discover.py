"""Find the datasets of a cube, recover its `Cube`, and check that they fit together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kartothek_cube.core.kartothek.dataset_metadata import DatasetMetadata
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.stores.open import open_instrumented
from kartothek_cube.cube.cube import Cube, get_payload_subset, prefix_of, visible_columns
from kartothek_cube.cube.members.consistency import check_infos, infos_of
from kartothek_cube.cube.members.discovery import cube_and_store, dataset_ids, load_cube, read_members, valid_cube
from kartothek_cube.errors import InvalidInput
from kartothek_cube.typing import AsOf, Columns, StoreLike

__all__ = [
    "check_datasets",
    "discover_cube",
    "discover_datasets",
    "discover_datasets_unchecked",
    "discover_ktk_cube_dataset_ids",
    "get_cube_payload",
    "open_cube",
]


def discover_ktk_cube_dataset_ids(uuid_prefix: Cube | str, store: StoreLike) -> set[str]:
    """Ids of the datasets under a prefix. One listing of the top level; no document is read.

    It also names datasets that a write makes and has not committed: readers do not see them yet.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube import Cube, build_cube, open_store
    >>> store = open_store("hmemory://")
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> _ = build_cube(pa.table({"PRODUCT_ID": [1], "COUNTRY_CODE": ["DE"]}), cube, store)
    >>> discover_ktk_cube_dataset_ids("sales", store)
    {'seed'}
    """
    opened = open_instrumented(store)
    return dataset_ids(prefix_of(uuid_prefix), opened)


def discover_datasets_unchecked(
    uuid_prefix: Cube | str, store: StoreLike, filter_ktk_cube_dataset_ids: Columns = None, *, as_of: AsOf | None = None
) -> dict[str, DatasetMetadata]:
    """The datasets under a prefix, by id; ``as_of`` as in `query_cube`.

    An incomplete dataset is left out, with a warning in the log.

    Examples
    --------
    >>> from kartothek_cube import open_store
    >>> discover_datasets_unchecked("sales", open_store("hmemory://"))
    {}
    """
    opened = open_instrumented(store)
    members = read_members(prefix_of(uuid_prefix), opened, filter_ktk_cube_dataset_ids, skip_broken=True, as_of=as_of)
    return {i: DatasetMetadata.of(s) for i, s in members.items()}


def discover_datasets(
    cube: Cube | str, store: StoreLike, filter_ktk_cube_dataset_ids: Columns = None, *, as_of: AsOf | None = None
) -> dict[str, DatasetMetadata]:
    """The datasets of a valid cube, by id; ``as_of`` as in `query_cube`.

    Raises
    ------
    InvalidInput
        If a dataset in ``filter_ktk_cube_dataset_ids`` is missing, or the datasets do not fit
        together.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube import Cube, build_cube, open_store
    >>> store = open_store("hmemory://")
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> _ = build_cube(pa.table({"PRODUCT_ID": [1], "COUNTRY_CODE": ["DE"]}), cube, store)
    >>> sorted(discover_datasets(cube, store))
    ['seed']
    """
    members = load_cube(*cube_and_store(cube, store, as_of), filter_ktk_cube_dataset_ids, as_of=as_of)
    return {i: DatasetMetadata.of(s) for i, s in members.items()}


def discover_cube(
    uuid_prefix: Cube | str, store: StoreLike, filter_ktk_cube_dataset_ids: Columns = None, *, as_of: AsOf | None = None
) -> tuple[Cube, dict[str, DatasetMetadata]]:
    """The `Cube` that the stored metadata describe, and its datasets; ``as_of`` as in `query_cube`.

    The partition indices of the datasets are loaded, the secondary indices are not.

    Raises
    ------
    InvalidInput
        If there is no seed dataset or more than one, or the datasets do not fit together. The
        message names the cubes of the store if this one is missing.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube import Cube, build_cube, open_store
    >>> store = open_store("hmemory://")
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> _ = build_cube(pa.table({"PRODUCT_ID": [1], "COUNTRY_CODE": ["DE"]}), cube, store)
    >>> discover_cube("sales", store)[0] == cube
    True
    """
    cube, members = _discover(uuid_prefix, store, filter_ktk_cube_dataset_ids, as_of)
    return cube, {i: DatasetMetadata.of(s).load_partition_indices() for i, s in members.items()}


def _discover(
    uuid_prefix: Cube | str, store: StoreLike, only: Iterable[str] | str | None, as_of: AsOf | None
) -> tuple[Cube, dict[str, Snapshot]]:
    opened, prefix = open_instrumented(store), prefix_of(uuid_prefix)
    members = read_members(prefix, opened, only, as_of=as_of)
    return valid_cube(prefix, members, opened), members


def open_cube(uuid_prefix: Cube | str, store: StoreLike, *, as_of: AsOf | None = None) -> Cube:
    """The `Cube` that the stored metadata describe.

    ``as_of`` as in `query_cube`, errors as in `discover_cube`.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube import Cube, build_cube, open_cube, open_store
    >>> store = open_store("hmemory://")
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> _ = build_cube(pa.table({"PRODUCT_ID": [1], "COUNTRY_CODE": ["DE"]}), cube, store)
    >>> open_cube("sales", store).dimension_columns
    ('PRODUCT_ID',)
    """
    return _discover(uuid_prefix, store, None, as_of)[0]


def check_datasets(datasets: Mapping[str, DatasetMetadata], cube: Cube) -> dict[str, DatasetMetadata]:
    """Check that datasets make a valid cube, and return them with their partition indices loaded.

    Raises
    ------
    InvalidInput
        If they do not. The message names the dataset and the reason.

    Examples
    --------
    >>> from kartothek_cube import Cube
    >>> check_datasets({}, Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales"))
    Traceback (most recent call last):
    kartothek_cube.errors.InvalidInput: Seed data ("seed") is missing. Datasets of the cube ...
    """
    if not isinstance(datasets, Mapping):
        raise InvalidInput(f"Expected a dict dataset id → DatasetMetadata, got {type(datasets).__name__}.")
    check_infos(infos_of({i: d.snapshot for i, d in datasets.items()}), cube)
    return {i: d.load_partition_indices() for i, d in datasets.items()}


def get_cube_payload(datasets: Mapping[str, DatasetMetadata], cube: Cube) -> set[str]:
    """All payload columns of some datasets: neither dimension nor partition columns of the cube.

    Examples
    --------
    >>> from kartothek_cube import Cube
    >>> get_cube_payload({}, Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales"))
    set()
    """
    return {c for d in datasets.values() for c in get_payload_subset(visible_columns(d.schema.names), cube)}

"""Finds cubes and datasets by name in a store, and opens them as tables."""

from __future__ import annotations

from kartothek_cube.core.arguments import converter_str_tupleset, did_you_mean, join_names
from kartothek_cube.core.dataset.maintain import list_datasets
from kartothek_cube.core.metadata.naming import SINGLE_TABLE, check_uuid
from kartothek_cube.core.runtime.options import Options
from kartothek_cube.core.scan.plan import check_table
from kartothek_cube.core.snapshots.loader import find_snapshot
from kartothek_cube.core.snapshots.time_travel import check_as_of, load_snapshot_as_of, snapshot_at
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.cube.cube import Cube, prefix_of, require_cube
from kartothek_cube.cube.members import prefixes_of, read_members, require_members, seeds_of, valid_cube
from kartothek_cube.cube.query.intention import QueryArguments
from kartothek_cube.cube.query.planning import load_members_of
from kartothek_cube.engines.tables import CubeTable, DatasetTable, Table
from kartothek_cube.errors import DatasetNotFound
from kartothek_cube.typing import AsOf, Columns, IntoDatasets

__all__ = ["find_table", "list_tables", "open_cube_table", "open_dataset_table"]


def open_cube_table(
    cube: Cube | str,
    store: Store,
    verb: str,
    options: Options,
    *,
    datasets: IntoDatasets = None,
    dimension_columns: Columns = None,
    as_of: AsOf | None = None,
) -> CubeTable:
    """Pin a cube, given as a `Cube` or by its prefix; errors as of `query_cube`.

    Raises
    ------
    InvalidInput
        If the store has no such cube; the message has the names that may be meant.
    """
    if not isinstance(cube, str):
        members = load_members_of(QueryArguments(require_cube(cube), datasets=datasets, as_of=as_of), store)
    else:
        members = require_members(prefix_of(cube), store, as_of)
        cube = valid_cube(cube, members)
        if datasets is not None:
            members = load_members_of(QueryArguments(cube, datasets=datasets, as_of=as_of), store)
    dimensions = None if dimension_columns is None else converter_str_tupleset(dimension_columns)
    return CubeTable(cube, members, store, verb, options, dimensions)


def open_dataset_table(
    dataset_uuid: str,
    store: Store,
    verb: str,
    options: Options,
    *,
    table: str = SINGLE_TABLE,
    as_of: AsOf | None = None,
) -> DatasetTable:
    """Pin one table of a dataset.

    Raises
    ------
    DatasetNotFound
        If the store has no such dataset; the message has the names that may be meant.
    KeyNotFound, InvalidInput
        If the dataset has no such table, or its history does not reach back to ``as_of``.
    """
    try:
        snapshot = load_snapshot_as_of(store, check_uuid(dataset_uuid), as_of)
    except DatasetNotFound as error:
        uuids = list_datasets(store)
        raise DatasetNotFound(f"{error} There are: {join_names(uuids)}.{did_you_mean([dataset_uuid], uuids)}") from None
    check_table(snapshot, table)
    return DatasetTable(snapshot, table, store, verb, options)


def find_table(name: str, store: Store, verb: str, options: Options, as_of: AsOf | None = None) -> Table | None:
    """The cube with this prefix, else the dataset with this uuid; None if there is neither."""
    members = read_members(name, store)
    if seeds_of(members):
        members = members if as_of is None else read_members(name, store, as_of=as_of)
        return CubeTable(valid_cube(name, members), members, store, verb, options)
    snapshot = find_snapshot(store, name)
    if snapshot is None:
        return None
    target = check_as_of(as_of)
    if target is not None:
        snapshot = snapshot_at(store, snapshot, target)
    table = SINGLE_TABLE if SINGLE_TABLE in snapshot.tables else snapshot.tables[0]
    return DatasetTable(snapshot, table, store, verb, options)


def list_tables(store: Store) -> list[str]:
    """Prefixes of the cubes and uuids of the datasets in a store; one listing."""
    uuids = list_datasets(store)
    return sorted({*prefixes_of(uuids), *uuids})

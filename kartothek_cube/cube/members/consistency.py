"""Which datasets make a valid cube: the checks on schemas, partition keys, dimensions and indices.

Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from kartothek_cube.core.arrow.types import compatible
from kartothek_cube.core.metadata.naming import SINGLE_TABLE
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.cube.cube import Cube, get_payload_subset, visible_columns
from kartothek_cube.errors import InvalidInput

__all__ = ["DatasetInfo", "check_infos", "check_members", "each_fault", "info_of", "infos_of"]


_GAPS = ' Whole numbers with missing values are floats in pandas: drop or fill the missing ones, then astype("int64").'


@dataclass(frozen=True, slots=True)
class DatasetInfo:
    """The properties of a dataset that the checks use, whether it is stored or planned."""

    id: str
    schema: pa.Schema
    partition_keys: tuple[str, ...]
    secondary: frozenset[str]
    tables: tuple[str, ...] = (SINGLE_TABLE,)

    @property
    def columns(self) -> list[str]:
        """The columns that a query can show."""
        return visible_columns(self.schema.names)


def info_of(dataset_id: str, snapshot: Snapshot) -> DatasetInfo:
    """The info of a stored dataset."""
    return DatasetInfo(
        dataset_id, snapshot.schema, snapshot.partition_keys, snapshot.secondary_columns, snapshot.tables
    )


def infos_of(snapshots: Mapping[str, Snapshot]) -> dict[str, DatasetInfo]:
    """The infos of several stored datasets."""
    return {i: info_of(i, s) for i, s in snapshots.items()}


def check_infos(infos: Mapping[str, DatasetInfo], cube: Cube) -> None:
    """Raise `InvalidInput` unless these datasets make a valid cube."""
    if cube.seed_dataset not in infos:
        names = ", ".join(sorted(infos)) or "none"
        hint = "" if infos else " Is it the right store? list_cubes(store) says which cubes it has."
        raise InvalidInput(
            f'Seed data ("{cube.seed_dataset}") is missing. Datasets of the cube "{cube.uuid_prefix}": {names}.{hint}'
        )
    check_members(infos, cube)


def check_members(infos: Mapping[str, DatasetInfo], cube: Cube) -> None:
    """Raise `InvalidInput` unless these datasets fit into one valid cube, even without its seed."""
    _check_tables(infos)
    _check_payload_overlap(infos, cube)
    _check_shared_types(infos)
    for name in sorted(infos):
        _check_partition_keys(infos[name], cube)
    for name in sorted(infos):
        _check_dimensions(infos[name], cube)
    for name in sorted(infos):
        _check_indices(infos[name], cube)


def each_fault(infos: Mapping[str, DatasetInfo], cube: Cube) -> Iterator[tuple[str, str | None, InvalidInput]]:
    """Every error that `check_members` could raise, not only the first.

    Each comes with the name of the check, and the id of the dataset if the check is about one.
    """
    yield from _faults("tables", None, partial(_check_tables, infos))
    yield from _faults("payload", None, partial(_check_payload_overlap, infos, cube))
    yield from _faults("types", None, partial(_check_shared_types, infos))
    for name, info in sorted(infos.items()):
        for check, of_one in {
            "partition-keys": _check_partition_keys,
            "dimensions": _check_dimensions,
            "indices": _check_indices,
        }.items():
            yield from _faults(check, name, partial(of_one, info, cube))


def _faults(check: str, name: str | None, run: Callable[[], None]) -> Iterator[tuple[str, str | None, InvalidInput]]:
    try:
        run()
    except InvalidInput as error:
        yield check, name, error


def _check_tables(infos: Mapping[str, DatasetInfo]) -> None:
    wrong = [
        f"{i} ({', '.join(info.tables)})" for i, info in sorted(infos.items()) if set(info.tables) != {SINGLE_TABLE}
    ]
    if wrong:
        raise InvalidInput(f"Invalid datasets because table is wrong. Expected {SINGLE_TABLE}: {', '.join(wrong)}")


def _check_payload_overlap(infos: Mapping[str, DatasetInfo], cube: Cube) -> None:
    owners: dict[str, list[str]] = {}
    for name, info in sorted(infos.items()):
        for column in get_payload_subset(info.columns, cube):
            owners.setdefault(column, []).append(name)
    shared = {c: names for c, names in sorted(owners.items()) if len(names) > 1}
    if shared:
        lines = "\n".join(f" - {c}: {', '.join(names)}" for c, names in shared.items())
        raise InvalidInput(f"Found columns present in multiple datasets:\n{lines}")


def _check_shared_types(infos: Mapping[str, DatasetInfo]) -> None:
    seen: dict[str, tuple[str, pa.DataType]] = {}
    for name, info in sorted(infos.items()):
        for field in info.schema:
            other, data_type = seen.setdefault(field.name, (name, field.type))
            if pa.types.is_null(data_type):
                seen[field.name] = (name, field.type)
            elif not compatible(data_type, field.type):
                types = (data_type, field.type)
                # The frequent cause: values are missing in one of two frames, so that pandas has
                # floats there.
                gaps = any(map(pa.types.is_integer, types)) and any(map(pa.types.is_floating, types))
                raise InvalidInput(
                    f'Found incompatible entries for column "{field.name}": '
                    f'{data_type} in dataset "{other}", {field.type} in dataset "{name}".{_GAPS if gaps else ""}'
                )


def _check_partition_keys(info: DatasetInfo, cube: Cube) -> None:
    if info.id == cube.seed_dataset:
        missing = sorted(set(cube.partition_columns) - set(info.partition_keys))
        if missing:
            raise InvalidInput(f'Seed dataset "{info.id}" has missing partition columns: {", ".join(missing)}')
    surplus = sorted((set(info.columns) - set(info.partition_keys)) & set(cube.partition_columns))
    if surplus:
        raise InvalidInput(f"Unspecified but provided partition columns in {info.id}: {', '.join(surplus)}")


def _check_dimensions(info: DatasetInfo, cube: Cube) -> None:
    missing = sorted(set(cube.dimension_columns) - set(info.columns))
    if info.id == cube.seed_dataset and missing:
        raise InvalidInput(f'Seed dataset "{info.id}" has missing dimension columns: {", ".join(missing)}')
    if len(missing) == len(cube.dimension_columns):
        dims = ", ".join(cube.dimension_columns)
        raise InvalidInput(f'Dataset "{info.id}" must have at least 1 of the following dimension columns: {dims}')


def _check_indices(info: DatasetInfo, cube: Cube) -> None:
    wrong = sorted(info.secondary & set(info.partition_keys))
    if wrong:
        raise InvalidInput(
            f'"{wrong[0]}" in dataset "{info.id}" is of type ExplicitSecondaryIndex but should be PartitionIndex.'
        )
    if info.id == cube.seed_dataset:
        dimensions = set(cube.dimension_columns) - cube.suppress_index_on - set(info.partition_keys)
        _check_none_missing("ExplicitSecondaryIndex", dimensions - info.secondary, info)
    missing = (cube.index_columns & set(info.columns)) - set(info.partition_keys) - info.secondary
    _check_none_missing("ExplicitSecondaryIndex or PartitionIndex", missing, info)


def _check_none_missing(index: str, columns: Collection[str], info: DatasetInfo) -> None:
    if columns:
        raise InvalidInput(f'{index} "{min(columns)}" is missing in dataset "{info.id}".')

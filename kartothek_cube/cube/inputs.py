"""The forms of data, ``partition_on`` and ``metadata`` that the writing verbs accept, brought to one form each."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import pyarrow as pa

from kartothek_cube.core.frames import concat_blocks, is_block, to_table
from kartothek_cube.core.metadata.document import check_user_metadata
from kartothek_cube.cube.constants import (
    KTK_CUBE_METADATA_DIMENSION_COLUMNS,
    KTK_CUBE_METADATA_KEY_IS_SEED,
    KTK_CUBE_METADATA_PARTITION_COLUMNS,
    KTK_CUBE_METADATA_SUPPRESS_INDEX_ON,
)
from kartothek_cube.cube.converters import converter_str, converter_str_tupleset
from kartothek_cube.cube.cube import Cube, require_cube
from kartothek_cube.errors import InvalidInput, InvalidType

__all__ = ["collect_data", "cube_metadata", "resolve_metadata", "resolve_partition_on"]


def collect_data(data: Any, cube: Cube) -> dict[str, pa.Table]:
    """One table per dataset, in order of first appearance.

    ``data`` is one block of rows (the seed), a mapping dataset id → block, or an iterable of such; a block is a pandas
    frame or anything with ``__arrow_c_stream__``; None is passed over.
    """
    require_cube(cube)
    if isinstance(data, (str, bytes)) or not (is_block(data) or isinstance(data, Iterable)):
        raise InvalidType(f"Expected data of the cube {cube.uuid_prefix!r}: a frame, a dict dataset id → frame, or an iterable of such; got {data!r}.")
    blocks: dict[str, list[pa.Table]] = {}
    for element in [data] if is_block(data) or isinstance(data, Mapping) else data:
        for name, block in _as_mapping(element, cube).items():
            cube.ktk_dataset_uuid(name)
            blocks.setdefault(converter_str(name), []).extend([] if block is None else [_rows(block, str(name))])
    empty = [name for name, tables in blocks.items() if not tables]
    if empty:
        raise InvalidInput(f"Cannot concatenate 0 dataframes. There is no data for dataset {', '.join(empty)}.")
    return {name: concat_blocks(_typed(tables), name) for name, tables in blocks.items()}


def _rows(block: Any, name: str) -> pa.Table:
    try:
        return to_table(block, name)
    except pa.ArrowInvalid:  # a stream of single values, as a Series or an array gives it
        raise InvalidType(f'Provided DataFrame is not a pandas.DataFrame or None, but is a "{type(block).__name__}" (dataset {name!r}).') from None


def _typed(tables: list[pa.Table]) -> list[pa.Table]:
    """The blocks without empty ones, whose types say nothing; one with other columns stays, to be refused."""
    first = next((t for t in tables if t.num_rows), tables[0])
    return [t for t in tables if t.num_rows or t is first or set(t.column_names) != set(first.column_names)]


def _as_mapping(element: Any, cube: Cube) -> Mapping[Any, Any]:
    return element if isinstance(element, Mapping) else {cube.seed_dataset: element}


def resolve_partition_on(cube: Cube, names: Iterable[str], given: Any) -> dict[str, tuple[str, ...]]:
    """Partition columns of each dataset: as given, by default those of the cube; the seed's are fixed."""
    if given is not None and not isinstance(given, Mapping):
        raise InvalidType(f"partition_on should be a dict dataset id → columns, but is {type(given).__name__}.")
    given = given or {}
    resolved = {name: _columns(name, given[name]) if name in given else cube.partition_columns for name in names}
    if resolved.get(cube.seed_dataset, cube.partition_columns) != cube.partition_columns:
        fixed = ", ".join(cube.partition_columns)
        raise InvalidInput(f"Seed dataset {cube.seed_dataset} must have the following, fixed partition-on attribute: {fixed}")
    return resolved


def _columns(name: str, columns: Any) -> tuple[str, ...]:
    if not isinstance(columns, Iterable):
        raise InvalidType(f"partition_on of dataset {name} should be a list of columns ([] for none), but is {columns!r}.")
    listed = tuple(columns) if not isinstance(columns, (str, bytes)) else (columns,)
    if len(set(listed)) != len(listed):
        raise InvalidInput(f"partition-on attribute of dataset {name} contains duplicates: {', '.join(map(str, listed))}")
    return converter_str_tupleset(listed)


def resolve_metadata(given: Any, names: Collection[str]) -> dict[str, dict[str, Any]]:
    """User metadata of each dataset, as it will come back from the document."""
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise InvalidType(f"Provided metadata should be a dict but is {type(given).__name__}.")
    unknown = sorted(str(k) for k in given if k not in names)
    if unknown:
        raise InvalidInput(f"Provided metadata for otherwise unspecified ktk_cube_dataset_ids: {', '.join(unknown)}")
    for name in sorted(given):
        if not isinstance(given[name], dict):
            raise InvalidType(f"Provided metadata for dataset {name} should be a dict but is {type(given[name]).__name__}.")
    return {name: check_user_metadata(metadata, f"dataset {name}") for name, metadata in given.items()}


def cube_metadata(cube: Cube, name: str, user: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata that a dataset of the cube gets: the user's, and what the cube can be recovered from."""
    return {
        **user,
        KTK_CUBE_METADATA_DIMENSION_COLUMNS: list(cube.dimension_columns),
        KTK_CUBE_METADATA_KEY_IS_SEED: name == cube.seed_dataset,
        KTK_CUBE_METADATA_PARTITION_COLUMNS: list(cube.partition_columns),
        KTK_CUBE_METADATA_SUPPRESS_INDEX_ON: sorted(cube.suppress_index_on),
    }

"""The forms of data, ``partition_on`` and ``metadata`` that the writing verbs accept, brought to one form each."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from kartothek_cube.core.frames import concat_blocks, is_block, to_table
from kartothek_cube.core.input_rows import chunk_bytes, is_lazy, is_stream, open_stream, stream_blocks
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

__all__ = [
    "Block",
    "InputData",
    "check_has_blocks",
    "concat",
    "cube_metadata",
    "materialize",
    "read_input",
    "resolve_metadata",
    "resolve_partition_on",
]

Block: TypeAlias = tuple[str, pa.Table | None]

# So that rows of a stream can wait with those of other datasets.
_BLOCKS_PER_CHUNK = 4


class InputData(NamedTuple):
    """Blocks of rows, each with its dataset: those that are in memory, and a stream of what is still to come.

    None instead of a block names a dataset without giving rows. ``rest`` is None if everything is in memory.
    """

    blocks: list[Block]
    rest: Iterator[Block] | None

    @property
    def names(self) -> list[str]:
        """The datasets known so far, by first appearance."""
        return list(dict.fromkeys(name for name, _ in self.blocks))


def read_input(data: Any, cube: Cube) -> InputData:
    """Bring data into the form of blocks.

    ``data`` is one block of rows (the seed), a mapping dataset id → block, or an iterable of such; a block is a pandas
    frame or anything with ``__arrow_c_stream__``; None is passed over. What is in memory is taken whole; streams and lazy
    iterables up to the share of the bytes in flight that one set of files may have.
    """
    require_cube(cube)
    if isinstance(data, (str, bytes)) or not (is_block(data) or isinstance(data, Iterable)):
        raise InvalidType(f"Expected data of the cube {cube.uuid_prefix!r}: a frame, a dict dataset id → frame, or an iterable of such; got {data!r}.")
    items = [data] if is_block(data) or isinstance(data, Mapping) else data
    blocks = (block for item in items for block in _blocks(item, cube))
    if not is_lazy(items) and not any(is_lazy(list(item.values())) for item in items if isinstance(item, Mapping)):
        return InputData(list(blocks), None)
    waiting, size, limit = list[Block](), 0, chunk_bytes()
    for name, table in blocks:
        waiting.append((name, table))
        size += 0 if table is None else table.nbytes
        if size > limit:
            return InputData(waiting, blocks)
    return InputData(waiting, None)


def _blocks(item: Any, cube: Cube) -> Iterator[Block]:
    for key, block in (item if isinstance(item, Mapping) else {cube.seed_dataset: item}).items():
        cube.ktk_dataset_uuid(key)
        name = converter_str(key)
        if is_stream(block):
            limit = max(1, chunk_bytes() // _BLOCKS_PER_CHUNK)
            yield from ((name, rows) for rows in stream_blocks(open_stream(block, name), name, limit))
        else:
            yield name, None if block is None else to_table(block, name)


def concat(blocks: Iterable[Block]) -> dict[str, pa.Table]:
    """One table per dataset, in order of first appearance."""
    tables: dict[str, list[pa.Table]] = {}
    for name, table in blocks:
        tables.setdefault(name, []).extend([] if table is None else [table])
    check_has_blocks([name for name, given in tables.items() if not given])
    return {name: concat_blocks(_typed(given), name) for name, given in tables.items()}


def check_has_blocks(without: Collection[str]) -> None:
    """Raise for datasets that were named, but without a single block."""
    if without:
        raise InvalidInput(f"Cannot concatenate 0 dataframes. There is no data for dataset {', '.join(without)}.")


def _typed(tables: list[pa.Table]) -> list[pa.Table]:
    """The blocks without empty ones, whose types say nothing; one with other columns stays, to be refused."""
    first = next((t for t in tables if t.num_rows), tables[0])
    return [t for t in tables if t.num_rows or t is first or set(t.column_names) != set(first.column_names)]


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


def resolve_metadata(given: Any, names: Collection[str], *, more: bool = False) -> dict[str, dict[str, Any]]:
    """User metadata of each dataset, as it will come back from the document. ``more``: there may be datasets with other names yet."""
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise InvalidType(f"Provided metadata should be a dict but is {type(given).__name__}.")
    unknown = sorted(str(k) for k in given if k not in names)
    if unknown and not more:
        raise InvalidInput(f"Provided metadata for otherwise unspecified ktk_cube_dataset_ids: {', '.join(unknown)}")
    for name in sorted(given):
        if not isinstance(given[name], dict):
            raise InvalidType(f"Provided metadata for dataset {name} should be a dict but is {type(given[name]).__name__}.")
    return {name: check_user_metadata(metadata, f"dataset {name}") for name, metadata in given.items()}


def materialize(given: Any) -> Any:
    """The argument, also one level deep, with lists instead of what can be read only once."""
    if isinstance(given, Mapping):
        return {key: materialize(value) for key, value in given.items()}
    return list(given) if isinstance(given, Iterator) else given


def cube_metadata(cube: Cube, name: str, user: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata that a dataset of the cube gets: the user's, and what the cube can be recovered from."""
    return {
        **user,
        KTK_CUBE_METADATA_DIMENSION_COLUMNS: list(cube.dimension_columns),
        KTK_CUBE_METADATA_KEY_IS_SEED: name == cube.seed_dataset,
        KTK_CUBE_METADATA_PARTITION_COLUMNS: list(cube.partition_columns),
        KTK_CUBE_METADATA_SUPPRESS_INDEX_ON: sorted(cube.suppress_index_on),
    }

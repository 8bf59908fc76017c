"""Converts data, ``partition_on`` and ``metadata`` of the writing verbs to one form each."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from kartothek_cube.core.arguments import converter_str, converter_str_tupleset
from kartothek_cube.core.arrow.pandas import concat_blocks, is_block, to_table
from kartothek_cube.core.metadata.document import check_user_metadata
from kartothek_cube.core.metadata.snapshot import (
    KTK_CUBE_METADATA_DIMENSION_COLUMNS,
    KTK_CUBE_METADATA_KEY_IS_SEED,
    KTK_CUBE_METADATA_PARTITION_COLUMNS,
)
from kartothek_cube.core.write.input_rows import chunk_bytes, is_lazy, is_stream, open_stream, stream_blocks
from kartothek_cube.core.write.prepare import refuse_derived
from kartothek_cube.cube.cube import KTK_CUBE_METADATA_SUPPRESS_INDEX_ON, Cube, require_cube
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

# Blocks of a stream are smaller than a chunk: they are buffered beside those of other datasets.
_BLOCKS_PER_CHUNK = 4


class InputData(NamedTuple):
    """Blocks of rows, each with its dataset: those in memory, and a stream of the rest.

    None instead of a block names a dataset without rows. ``rest`` is None if everything is in
    memory.
    """

    blocks: list[Block]
    rest: Iterator[Block] | None

    @property
    def names(self) -> list[str]:
        """The datasets known so far, by first appearance."""
        return list(dict.fromkeys(name for name, _ in self.blocks))


def read_input(data: object, cube: Cube) -> InputData:
    """Convert data to blocks.

    ``data`` is one block of rows (the seed), a mapping dataset id → block, or an iterable of these.
    A block is a pandas frame or anything with ``__arrow_c_stream__``; None is skipped. Data in
    memory is taken whole; of streams and lazy iterables about one chunk is read.
    """
    require_cube(cube)
    if is_block(data) or isinstance(data, Mapping):
        items: Iterable[Any] = [data]
    elif isinstance(data, Iterable) and not isinstance(data, (str, bytes)):
        items = data
    else:
        raise InvalidType(
            f"Expected data of the cube {cube.uuid_prefix!r}: "
            f"a frame, a dict dataset id → frame, or an iterable of such; got {data!r}."
        )
    blocks = (block for item in items for block in _blocks(item, cube))
    # What is in memory is taken whole: all rows are checked before the first file is written.
    if not is_lazy(items) and not any(is_lazy(list(item.values())) for item in items if isinstance(item, Mapping)):
        return InputData(list(blocks), None)
    waiting, size, limit = list[Block](), 0, chunk_bytes()
    for name, table in blocks:
        waiting.append((name, table))
        size += 0 if table is None else table.nbytes
        if size > limit:
            return InputData(waiting, blocks)
    return InputData(waiting, None)


def _blocks(item: object, cube: Cube) -> Iterator[Block]:
    for key, block in (item if isinstance(item, Mapping) else {cube.seed_dataset: item}).items():
        cube.ktk_dataset_uuid(key)  # checks the id
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
    for name, given in tables.items():
        # The types of an empty block say nothing, so it is dropped. One with other columns stays:
        # `concat_blocks` refuses it.
        first = next((t for t in given if t.num_rows), given[0])
        columns = set(first.column_names)
        tables[name] = [t for t in given if t.num_rows or t is first or set(t.column_names) != columns]
    return {name: concat_blocks(given, name) for name, given in tables.items()}


def check_has_blocks(without: Collection[str]) -> None:
    """Raise for datasets that are named without a single block."""
    if without:
        raise InvalidInput(f"Cannot concatenate 0 dataframes. There is no data for dataset {', '.join(without)}.")


def resolve_partition_on(cube: Cube, names: Iterable[str], partition_on: object) -> dict[str, tuple[str, ...]]:
    """Partition columns of each dataset, by default those of the cube; the seed has no choice."""
    if partition_on is not None and not isinstance(partition_on, Mapping):
        raise InvalidType(f"partition_on should be a dict dataset id → columns, but is {type(partition_on).__name__}.")
    given = partition_on or {}
    resolved = dict.fromkeys(names, cube.partition_columns)
    for name in [name for name in resolved if name in given]:
        columns = given[name]
        if not isinstance(columns, Iterable):
            raise InvalidType(
                f"partition_on of dataset {name} should be a list of columns ([] for none), but is {columns!r}."
            )
        listed = tuple(columns) if not isinstance(columns, (str, bytes)) else (columns,)
        refuse_derived(listed, f"partition_on of dataset {name}")
        if len(set(listed)) != len(listed):
            raise InvalidInput(
                f"partition-on attribute of dataset {name} contains duplicates: {', '.join(map(str, listed))}"
            )
        resolved[name] = converter_str_tupleset(listed)
    if resolved.get(cube.seed_dataset, cube.partition_columns) != cube.partition_columns:
        fixed = ", ".join(cube.partition_columns)
        raise InvalidInput(
            f"Seed dataset {cube.seed_dataset} must have the following, fixed partition-on attribute: {fixed}"
        )
    return resolved


def resolve_metadata(metadata: object, names: Collection[str], *, more: bool = False) -> dict[str, dict[str, Any]]:
    """User metadata of each dataset, as a document returns it.

    ``more``: further datasets may follow, so an unknown name is no error.
    """
    if metadata is None:
        return {}
    if not isinstance(metadata, dict):
        raise InvalidType(f"Provided metadata should be a dict but is {type(metadata).__name__}.")
    unknown = sorted(str(k) for k in metadata if k not in names)
    if unknown and not more:
        raise InvalidInput(f"Provided metadata for otherwise unspecified ktk_cube_dataset_ids: {', '.join(unknown)}")
    for name, user in sorted(metadata.items(), key=lambda item: item[0]):
        if not isinstance(user, dict):
            raise InvalidType(f"Provided metadata for dataset {name} should be a dict but is {type(user).__name__}.")
    return {name: check_user_metadata(user, f"dataset {name}") for name, user in metadata.items()}


def materialize(argument: object) -> Any:
    """The argument with lists instead of iterators, which can be read only once; also in a dict."""
    if isinstance(argument, Mapping):
        return {key: materialize(value) for key, value in argument.items()}
    return list(argument) if isinstance(argument, Iterator) else argument


def cube_metadata(cube: Cube, name: str, user: Mapping[str, Any]) -> dict[str, Any]:
    """The stored metadata of a dataset: the user's, and keys from which the `Cube` is recovered."""
    return {
        **user,
        KTK_CUBE_METADATA_DIMENSION_COLUMNS: list(cube.dimension_columns),
        KTK_CUBE_METADATA_KEY_IS_SEED: name == cube.seed_dataset,
        KTK_CUBE_METADATA_PARTITION_COLUMNS: list(cube.partition_columns),
        KTK_CUBE_METADATA_SUPPRESS_INDEX_ON: sorted(cube.suppress_index_on),
    }

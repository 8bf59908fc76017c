"""The forms of data, ``partition_on`` and ``metadata`` that the writing verbs accept, brought to one form each."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from kartothek_cube.core.dataset.elements import stream_blocks
from kartothek_cube.core.frames import concat_blocks, is_block, is_frame, is_series, no_frame, to_table
from kartothek_cube.core.metadata.document import check_user_metadata
from kartothek_cube.core.options import current_options
from kartothek_cube.cube.constants import (
    KTK_CUBE_METADATA_DIMENSION_COLUMNS,
    KTK_CUBE_METADATA_KEY_IS_SEED,
    KTK_CUBE_METADATA_PARTITION_COLUMNS,
    KTK_CUBE_METADATA_SUPPRESS_INDEX_ON,
)
from kartothek_cube.cube.converters import converter_str, converter_str_tupleset
from kartothek_cube.cube.cube import Cube, require_cube
from kartothek_cube.errors import InvalidInput, InvalidType

__all__ = ["Block", "Gathered", "chunk_bytes", "collect", "cube_metadata", "gather", "refuse_missing", "resolve_metadata", "resolve_partition_on", "reusable"]

Block: TypeAlias = tuple[str, pa.Table | None]

_BLOCKS_PER_CHUNK = 4


class Gathered(NamedTuple):
    """Blocks of rows, each with its dataset: those that are in memory, and a stream of what is still to come.

    None instead of a block names a dataset without giving rows. ``rest`` is None if everything is in memory.
    """

    held: list[Block]
    rest: Iterator[Block] | None

    @property
    def names(self) -> list[str]:
        """The datasets known so far, by first appearance."""
        return list(dict.fromkeys(name for name, _ in self.held))


def gather(data: Any, cube: Cube) -> Gathered:
    """Bring data into the form of blocks.

    ``data`` is one block of rows (the seed), a mapping dataset id → block, or an iterable of such; a block is a pandas
    frame or anything with ``__arrow_c_stream__``; None is passed over. What is in memory is gathered whole; streams and
    lazy iterables up to the share of the bytes in flight that one set of files may have.
    """
    require_cube(cube)
    if isinstance(data, (str, bytes)) or not (is_block(data) or isinstance(data, Iterable)):
        raise InvalidType(f"Expected data of the cube {cube.uuid_prefix!r}: a frame, a dict dataset id → frame, or an iterable of such; got {data!r}.")
    items = [data] if is_block(data) or isinstance(data, Mapping) else data
    blocks = (block for item in items for block in _blocks(item, cube))
    if _is_in_memory(items):
        return Gathered(list(blocks), None)
    held, size, limit = list[Block](), 0, chunk_bytes()
    for name, table in blocks:
        held.append((name, table))
        size += 0 if table is None else table.nbytes
        if size > limit:
            return Gathered(held, blocks)
    return Gathered(held, None)


def chunk_bytes() -> int:
    """Bytes of the rows that become one set of files, where not all rows fit into memory.

    A quarter of the bytes in flight: for rows that gather, for their sorted copy, for rows that are being stored, and for their files.
    """
    return max(1, current_options().bytes_in_flight // 4)


def collect(held: Iterable[Block]) -> dict[str, pa.Table]:
    """One table per dataset, in order of first appearance."""
    blocks: dict[str, list[pa.Table]] = {}
    for name, table in held:
        blocks.setdefault(name, []).extend([] if table is None else [table])
    refuse_missing([name for name, tables in blocks.items() if not tables])
    return {name: concat_blocks(_typed(tables), name) for name, tables in blocks.items()}


def refuse_missing(names: Collection[str]) -> None:
    """Refuse datasets that were named, but without a single block."""
    if names:
        raise InvalidInput(f"Cannot concatenate 0 dataframes. There is no data for dataset {', '.join(names)}.")


def _is_in_memory(items: Any) -> bool:
    if not isinstance(items, (list, tuple)):
        return False
    return not any(_is_stream(block) for item in items for block in (item.values() if isinstance(item, Mapping) else [item]))


def _is_stream(block: Any) -> bool:
    """Whether rows come in batches, of which nobody knows how many there are. Tables, Polars' too, know their size."""
    known = is_frame(block) or is_series(block) or hasattr(block, "nbytes") or hasattr(block, "estimated_size")
    return hasattr(block, "__arrow_c_stream__") and not known


def _blocks(item: Any, cube: Cube) -> Iterator[Block]:
    for key, block in (item if isinstance(item, Mapping) else {cube.seed_dataset: item}).items():
        cube.ktk_dataset_uuid(key)
        name = converter_str(key)
        if _is_stream(block):
            yield from ((name, rows) for rows in stream_blocks(_reader(block, name), name, max(1, chunk_bytes() // _BLOCKS_PER_CHUNK)))
        else:
            yield name, None if block is None else to_table(block, name)


def _reader(stream: Any, name: str) -> pa.RecordBatchReader:
    try:
        return pa.RecordBatchReader.from_stream(stream)
    except pa.ArrowInvalid as error:  # a stream of single values
        raise no_frame(stream, name, error) from None


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


def reusable(given: Any) -> Any:
    """The argument, also one level deep, with lists instead of what can be read only once."""
    if isinstance(given, Mapping):
        return {key: reusable(value) for key, value in given.items()}
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

"""All forms of rows that writing verbs accept, as Arrow tables; streams in bounded blocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
from msgspec import Struct

from kartothek_cube.core.arrow.pandas import is_block, is_frame, is_series, no_frame, plain_frame, to_table
from kartothek_cube.core.metadata.naming import SINGLE_TABLE, new_id
from kartothek_cube.core.runtime.options import current_options
from kartothek_cube.errors import InvalidInput, InvalidRequest, InvalidType

_MEMBERS = {"data", "label", "indices", "metadata"}


class InputPartition(Struct, frozen=True):
    """Rows that are written together: one partition, or one per value of the partition columns.

    Attributes
    ----------
    label : str
        The label of the partition, or the last segment of it.
    tables : Mapping[str, pyarrow.Table | None]
        Rows by table, in stored types; None for a table that is named without rows.
    fresh : bool
        Whether the label is new and random, and not chosen by the user.
    indexed : tuple of str
        Columns that kartothek's deprecated member ``indices`` has an index for.
    """

    label: str
    tables: Mapping[str, pa.Table | None]
    fresh: bool = True
    indexed: tuple[str, ...] = ()


def elements_in(item: object, uuid: str) -> Iterator[InputPartition]:
    """The partitions in one item of the data.

    An item is a block of rows (a frame, anything with ``__arrow_c_stream__``), a dict table →
    block, a dict with ``data`` and perhaps ``label``, a list of pairs (table, block), a list of
    items, or None. A stream is cut into blocks that fit into memory.

    Raises
    ------
    InvalidInput
        If it is none of these.
    """
    if item is None:
        return
    if is_stream(item):
        try:
            reader = open_stream(item, uuid)
        except InvalidType as error:
            # Datasets raise InvalidInput for every item that has no form of rows.
            raise InvalidInput(str(error)) from None
        for block in stream_blocks(reader, uuid, chunk_bytes()):
            yield InputPartition(new_id(), {SINGLE_TABLE: block})
    elif isinstance(item, Mapping):
        yield from _from_mapping(item, uuid)
    elif isinstance(item, list) and item and isinstance(item[0], tuple):
        yield InputPartition(new_id(), _tables(_pairs(item, uuid), uuid))
    elif isinstance(item, list):
        nested = [partition for part in item for partition in elements_in(part, uuid)]
        if twice := repeated(partition.label for partition in nested):
            raise InvalidRequest(
                f"Duplicate labels for nested metapartitions are not allowed! Dataset {uuid!r}, labels {twice}."
            )
        yield from nested
    else:
        yield InputPartition(new_id(), {SINGLE_TABLE: as_rows(item, uuid)})


# --- streams --------------------------------------------------------------------------------------


def is_stream(block: object) -> bool:
    """Whether rows arrive in batches of unknown number."""
    if not hasattr(block, "__arrow_c_stream__") or is_frame(block) or is_series(block):
        return False
    # Tables know their size: `nbytes` in Arrow, `estimated_size` in Polars. The class is asked, as
    # old versions of pyarrow raise where they cannot measure a column.
    return not (hasattr(type(block), "nbytes") or hasattr(type(block), "estimated_size"))


def is_lazy(items: Iterable[Any]) -> bool:
    """Whether not all rows are in memory yet, so that checks run block by block."""
    return not isinstance(items, (list, tuple)) or any(map(is_stream, items))


def is_repeatable(data: object) -> bool:
    """Whether all rows are blocks in memory, so that they can be gone through twice."""
    items = data if isinstance(data, (list, tuple)) else [data]
    return all(is_block(item) and not is_stream(item) for item in items)


def chunk_bytes() -> int:
    """Bytes of the rows that become one set of files, if not all rows fit into memory."""
    # Four things are in memory: rows being collected, their sorted copy, rows being encoded, files.
    return max(1, current_options().bytes_in_flight // 4)


def open_stream(stream: Any, dataset: str) -> pa.RecordBatchReader:
    """The batches of a stream; `InvalidType` if it has single values instead of named columns."""
    try:
        return pa.RecordBatchReader.from_stream(stream)
    except pa.ArrowInvalid as error:
        raise no_frame(stream, dataset, error) from None


def stream_blocks(reader: pa.RecordBatchReader, dataset: str, limit: int) -> Iterator[pa.Table]:
    """Rows in stored types, in blocks of about ``limit`` bytes; an empty stream makes one."""
    batches, size, is_empty = list[pa.RecordBatch](), 0, True
    for batch in reader:
        nbytes = _nbytes(batch)
        rows = max(1, int(batch.num_rows * limit / nbytes)) if nbytes > limit else max(1, batch.num_rows)
        for start in range(0, batch.num_rows, rows):
            batches.append(batch.slice(start, rows))
            size += _nbytes(batches[-1])
            if size >= limit:
                yield to_table(pa.Table.from_batches(batches, reader.schema), dataset)
                batches, size, is_empty = [], 0, False
    if batches or is_empty:
        yield to_table(pa.Table.from_batches(batches, reader.schema), dataset)


def _nbytes(batch: pa.RecordBatch) -> int:
    try:
        return int(batch.nbytes)
    except pa.ArrowTypeError:  # older versions of pyarrow cannot measure views
        return int(batch.get_total_buffer_size())


# --- kartothek's dicts and lists ------------------------------------------------------------------


def _from_mapping(item: Mapping[Any, Any], uuid: str) -> Iterator[InputPartition]:
    if "data" not in item:
        if isinstance(item.get("label"), str):
            raise InvalidInput(
                f"An element for dataset {uuid!r} has a label but no 'data'; "
                "write {'label': ..., 'data': {table: rows}}."
            )
        if item:
            yield InputPartition(new_id(), _tables(item, uuid))
        return
    unknown = sorted(map(str, set(item) - _MEMBERS))
    if unknown:
        raise InvalidInput(
            f"An element for dataset {uuid!r} has members that mean nothing beside 'data': {unknown}. "
            f"Known are {sorted(_MEMBERS)}."
        )
    data = item["data"]
    if not isinstance(data, (Mapping, list)):
        raise InvalidInput(
            f"The member 'data' of an element for dataset {uuid!r} is a dict table → rows, "
            f"but is {type(data).__name__}."
        )
    tables = _tables(data if isinstance(data, Mapping) else _pairs(data, uuid), uuid)
    if not tables:
        return
    label = item.get("label")
    if label is not None and (not isinstance(label, str) or not label):
        raise InvalidInput(f"A label of dataset {uuid!r} is a text, not {label!r}.")
    # Only the columns count: the values of an index are always computed from the rows.
    indexed = tuple(column for column, index in dict(item.get("indices") or {}).items() if index)
    for table, rows in tables.items():
        missing = sorted(set(indexed) - set(rows.column_names)) if rows is not None else []
        if missing:
            raise InvalidInput(
                f"There is no column corresponding to index {missing} in table {table!r} "
                f"of an element for dataset {uuid!r}."
            )
    yield InputPartition(new_id() if label is None else label, tables, fresh=label is None, indexed=indexed)


def _pairs(pairs: list[Any], uuid: str) -> dict[str, Any]:
    if not all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
        raise InvalidInput(f"A list of tables for dataset {uuid!r} has pairs (table, rows), but one item is none.")
    tables = dict(pairs)
    if len(tables) != len(pairs):
        raise InvalidInput(f"A list of tables for dataset {uuid!r} names a table twice: {[name for name, _ in pairs]}.")
    return tables


def _tables(data: Mapping[Any, Any], uuid: str) -> dict[str, pa.Table | None]:
    return {table: None if rows is None else as_rows(rows, uuid) for table, rows in data.items()}


def repeated(labels: Iterable[str]) -> list[str]:
    """The labels that occur more than once, sorted."""
    return sorted(label for label, times in Counter(labels).items() if times > 1)


def as_rows(rows: Any, uuid: str) -> pa.Table:
    """One block of rows in stored types, without pandas' row labels; errors as of `to_table`."""
    if isinstance(rows, pa.ChunkedArray) or not is_block(rows):
        raise InvalidInput(
            f"Unexpected type during parsing encountered: {type(rows).__name__}. "
            f"Dataset {uuid!r} takes frames, Arrow tables, dicts and lists of these."
        )
    return to_table(plain_frame(rows, uuid) if is_frame(rows) else rows, uuid)


def as_items(data: object) -> Iterable[Any]:
    """The items of an argument: a block of rows, a dict or None is one item."""
    is_text = isinstance(data, (str, bytes))
    if data is None or isinstance(data, Mapping) or (not is_text and is_block(data)):
        return [data]
    if is_text or not isinstance(data, Iterable):
        raise InvalidInput(
            f"Unexpected type during parsing encountered: {type(data).__name__}. "
            "Give rows, or a list or generator of rows; of files e.g. "
            "pyarrow.dataset.dataset(path).scanner().to_reader()."
        )
    return data

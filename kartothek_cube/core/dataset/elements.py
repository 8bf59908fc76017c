"""The forms of rows that the writing verbs accept, brought to one: elements, each a label and a table of rows by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kartothek_cube.core.frames import is_block, is_frame, is_series, to_table
from kartothek_cube.core.naming import SINGLE_TABLE, column_name, fresh_id
from kartothek_cube.core.options import current_options
from kartothek_cube.errors import InvalidInput, InvalidRequest, Unsupported

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Element", "as_items", "as_rows", "elements_in", "is_lazy", "repeated", "stream_blocks"]

_MEMBERS = {"data", "label", "indices", "metadata"}


@dataclass(frozen=True, slots=True)
class Element:
    """Rows that are written together: one partition, or one for each value of the partition columns.

    Attributes
    ----------
    label : str
        The partition's label, or the last part of it.
    tables : Mapping[str, pyarrow.Table | None]
        Rows by table, in stored types; None names a table without giving rows.
    fresh : bool
        The label is new and random, and not chosen by the user.
    indexed : tuple of str
        Columns for which the element brought an index (kartothek's deprecated member ``indices``).
    """

    label: str
    tables: Mapping[str, pa.Table | None]
    fresh: bool = True
    indexed: tuple[str, ...] = ()


def elements_in(item: Any, uuid: str) -> Iterator[Element]:
    """The elements of one item of the data.

    An item is a block of rows (a frame, anything with ``__arrow_c_stream__``), a dict table → block, a dict with ``data`` and perhaps
    ``label``, a list of pairs (table, block), a list of items, or None. A stream is cut into blocks that fit into memory.

    Raises
    ------
    InvalidInput
        If it is none of these.
    """
    if item is None:
        return
    if is_stream(item):
        yield from (Element(fresh_id(), {SINGLE_TABLE: block}) for block in _blocks(item, uuid))
    elif isinstance(item, Mapping):
        yield from _from_mapping(item, uuid)
    elif isinstance(item, list) and item and isinstance(item[0], tuple):
        yield Element(fresh_id(), _tables(_pairs(item, uuid), uuid))
    elif isinstance(item, list):
        yield from _distinct([element for part in item for element in elements_in(part, uuid)], uuid)
    else:
        yield Element(fresh_id(), {SINGLE_TABLE: as_rows(item, uuid)})


def is_stream(item: Any) -> bool:
    """Whether rows come in batches, of which nobody knows how many there are."""
    return hasattr(item, "__arrow_c_stream__") and not (is_frame(item) or is_series(item) or isinstance(item, (pa.Table, pa.RecordBatch, pa.ChunkedArray)))


def is_lazy(items: Iterable[Any]) -> bool:
    """Whether the rows are not all in memory yet, so that they are checked as they come."""
    return not isinstance(items, (list, tuple)) or any(is_stream(item) for item in items)


def _blocks(stream: Any, uuid: str) -> Iterator[pa.Table]:
    """Blocks of a size of which several fit into the bytes in flight."""
    return stream_blocks(_reader(stream, uuid), uuid, max(1, current_options().bytes_in_flight // 4))


def stream_blocks(reader: pa.RecordBatchReader, uuid: str, limit: int) -> Iterator[pa.Table]:
    """The rows of a stream in stored types, in blocks of about ``limit`` bytes; at least one block, which has the columns."""
    held, size, nothing = list[pa.RecordBatch](), 0, True
    for batch in reader:
        for piece in _pieces(batch, limit):
            held.append(piece)
            size += _size(piece)
            if size >= limit:
                yield to_table(pa.Table.from_batches(held, reader.schema), uuid)
                held, size, nothing = [], 0, False
    if held or nothing:
        yield to_table(pa.Table.from_batches(held, reader.schema), uuid)


def _reader(stream: Any, uuid: str) -> pa.RecordBatchReader:
    try:
        return pa.RecordBatchReader.from_stream(stream)
    except pa.ArrowInvalid as error:
        raise InvalidInput(f"A stream of {type(stream).__name__} for dataset {uuid!r} cannot be read as Arrow columns with names: {error}") from None


def _size(batch: pa.RecordBatch) -> int:
    try:
        return int(batch.nbytes)
    except pa.ArrowTypeError:  # older versions of pyarrow do not know it of views
        return int(batch.get_total_buffer_size())


def _pieces(batch: pa.RecordBatch, limit: int) -> Iterator[pa.RecordBatch]:
    size = _size(batch)
    rows = max(1, int(batch.num_rows * limit / size)) if size > limit else max(1, batch.num_rows)
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def _from_mapping(item: Mapping[Any, Any], uuid: str) -> Iterator[Element]:
    if "data" not in item:
        if isinstance(item.get("label"), str):
            raise InvalidInput(f"An element for dataset {uuid!r} has a label but no 'data'; write {{'label': ..., 'data': {{table: rows}}}}.")
        tables = _tables(item, uuid)
        yield from [Element(fresh_id(), tables)] if tables else []
        return
    unknown = sorted(map(str, set(item) - _MEMBERS))
    if unknown:
        raise InvalidInput(f"An element for dataset {uuid!r} has members that mean nothing beside 'data': {unknown}. Known are {sorted(_MEMBERS)}.")
    data = item["data"]
    if not isinstance(data, (Mapping, list)):
        raise InvalidInput(f"The member 'data' of an element for dataset {uuid!r} is a dict table → rows, but is {type(data).__name__}.")
    tables, label = _tables(data if isinstance(data, Mapping) else _pairs(data, uuid), uuid), item.get("label")
    if tables:
        yield Element(_label(label, uuid), tables, fresh=label is None, indexed=_indexed(item.get("indices"), tables, uuid))


def _pairs(pairs: list[Any], uuid: str) -> dict[str, Any]:
    if not all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
        raise InvalidInput(f"A list of tables for dataset {uuid!r} has pairs (table, rows), but one item is none.")
    tables = dict(pairs)
    if len(tables) != len(pairs):
        raise InvalidInput(f"A list of tables for dataset {uuid!r} names a table twice: {[name for name, _ in pairs]}.")
    return tables


def _tables(data: Mapping[Any, Any], uuid: str) -> dict[str, pa.Table | None]:
    return {table: None if rows is None else as_rows(rows, uuid) for table, rows in data.items()}


def _label(label: Any, uuid: str) -> str:
    if label is None:
        return fresh_id()
    if not isinstance(label, str) or not label:
        raise InvalidInput(f"A label of dataset {uuid!r} is a text, not {label!r}.")
    return label


def _indexed(indices: Any, tables: Mapping[str, pa.Table | None], uuid: str) -> tuple[str, ...]:
    """The columns only: their values are taken from the rows."""
    if not indices:
        return ()
    columns = tuple(column for column, index in dict(indices).items() if index)
    for table, rows in tables.items():
        missing = sorted(set(columns) - set(rows.column_names)) if rows is not None else []
        if missing:
            raise InvalidInput(f"There is no column corresponding to index {missing} in table {table!r} of an element for dataset {uuid!r}.")
    return columns


def _distinct(elements: list[Element], uuid: str) -> list[Element]:
    twice = repeated(element.label for element in elements)
    if twice:
        raise InvalidRequest(f"Duplicate labels for nested metapartitions are not allowed! Dataset {uuid!r}, labels {twice}.")
    return elements


def repeated(labels: Iterable[str]) -> list[str]:
    """Those that occur more than once."""
    return sorted(label for label, times in Counter(labels).items() if times > 1)


def as_rows(rows: Any, uuid: str) -> pa.Table:
    """One block of rows in stored types, without row labels; see `to_table` for the errors."""
    if isinstance(rows, pa.ChunkedArray) or not is_block(rows):
        raise InvalidInput(
            f"Unexpected type during parsing encountered: {type(rows).__name__}. Dataset {uuid!r} takes frames, Arrow tables, dicts and lists of these."
        )
    return to_table(_plain_frame(rows, uuid) if is_frame(rows) else rows, uuid)


def _plain_frame(frame: pd.DataFrame, uuid: str) -> pd.DataFrame:
    if frame.index.nlevels > 1:
        raise Unsupported(f"Treatment of MultiIndex not implemented: call reset_index() on the frame for dataset {uuid!r}; row labels are not stored.")
    names = [column_name(name) for name in frame.columns]
    return frame if names == list(frame.columns) else frame.set_axis(names, axis=1)


def as_items(data: Any) -> Iterable[Any]:
    """The items of the argument: a block of rows, a dict or None is one item."""
    if isinstance(data, (str, bytes)):
        raise InvalidInput(f"Unexpected type during parsing encountered: {type(data).__name__}. Give rows, or a list or generator of rows.")
    if data is None or isinstance(data, Mapping) or is_block(data):
        return [data]
    if not isinstance(data, Iterable):
        raise InvalidInput(f"Unexpected type during parsing encountered: {type(data).__name__}. Give rows, or a list or generator of rows.")
    return data

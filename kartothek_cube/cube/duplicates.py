"""Cells that two files of one write share: found from the ends of each file, and where these overlap from the key columns of the files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa

from kartothek_cube.core.files import FileRequest, open_rows
from kartothek_cube.core.markup import counted
from kartothek_cube.core.options import current_options
from kartothek_cube.core.parallel import map_in_threads
from kartothek_cube.core.receipt import Receipt
from kartothek_cube.core.rowkeys import pack, pack_one, stable_order
from kartothek_cube.core.store import Store
from kartothek_cube.cube.prepare import DatasetWrite
from kartothek_cube.errors import InvalidInput

__all__ = ["check_duplicates", "overlapping"]

# Below this many bytes of a file at a time, opening files costs more than their rows.
_LEAST_PIECE = 2**16
# So many files are open at a time in one thread; of more, any two meet in one of several passes.
_MOST_OPEN = 64


def check_duplicates(store: Store, write: DatasetWrite, receipts: Sequence[Receipt], places: str = "two blocks") -> None:
    """Read the key columns of files that may share cells, and refuse a cell that occurs twice.

    Each file has a cell once and is sorted, so files that overlap are read side by side, a piece of each at a time: the
    memory does not grow with the number of rows. ``places`` says in the message where a cell was found.

    Raises
    ------
    InvalidInput
        Naming dataset and cell.
    """
    passes = [files for chain in overlapping(write, receipts) for files in _passes(chain)]
    for _ in map_in_threads(lambda files: _check(store, write, files, places), passes):
        pass


def overlapping(write: DatasetWrite, receipts: Sequence[Receipt]) -> Iterator[list[Receipt]]:
    """Sets of files of one partition of the cube whose ranges of cells overlap."""
    shared = [c for c in write.request.partition_on if c in write.sort_columns]
    groups: dict[tuple[Any, ...], list[Receipt]] = {}
    for receipt in receipts:
        groups.setdefault(tuple(receipt.values[c] for c in shared), []).append(receipt)
    for files in groups.values():
        yield from _chains(sorted(files, key=lambda r: r.low))


def _chains(files: Sequence[Receipt]) -> Iterator[list[Receipt]]:
    """Runs of files, sorted by their least cell, of which each begins before the greatest cell so far."""
    chain = [files[0]]
    greatest = files[0].high
    for file in files[1:]:
        if file.low > greatest:
            if len(chain) > 1:
                yield chain
            chain = []
        chain.append(file)
        greatest = max(greatest, file.high)
    if len(chain) > 1:
        yield chain


def _passes(files: Sequence[Receipt]) -> Iterator[list[Receipt]]:
    """Sets of at most `_MOST_OPEN` files, in one of which any two meet."""
    if len(files) <= _MOST_OPEN:
        yield list(files)
        return
    half = _MOST_OPEN // 2
    for left, right in combinations([files[i : i + half] for i in range(0, len(files), half)], 2):
        yield [*left, *right]


def _check(store: Store, write: DatasetWrite, files: Sequence[Receipt], places: str) -> None:
    request = FileRequest(write.request.uuid, write.schema, write.dimensions)
    settings = current_options()
    nbytes = max(_LEAST_PIECE, settings.bytes_in_flight // (4 * settings.thread_count * len(files)))
    streams = [open_rows(store, file.key, request, nbytes, file.values)[1] for file in files]
    for cells in _side_by_side(streams, write.dimensions):
        keys = pack_one(cells, write.dimensions)
        order = stable_order(keys)
        keys = keys if order is None else keys[order]
        repeated = np.flatnonzero(keys[1:] == keys[:-1])
        if len(repeated):
            first = int(repeated[0]) if order is None else int(order[repeated[0]])
            _raise_duplicate(write, files[0], cells.slice(first, 1), len(repeated), places)


def _side_by_side(streams: Sequence[Iterator[pa.Table]], columns: Sequence[str]) -> Iterator[pa.Table]:
    """The rows of sorted streams, cut so that equal rows come in one table."""
    heads = {i: head for i, stream in enumerate(streams) if (head := next(stream, None)) is not None}
    while heads:
        keys = pack(list(heads.values()), columns)
        # Up to here every stream has shown all its rows.
        frontier = min(int(k[-1]) for k in keys)
        counts = [int(np.searchsorted(k, frontier, side="right")) for k in keys]
        yield pa.concat_tables([head.slice(0, n) for head, n in zip(heads.values(), counts, strict=True)])
        rests = {i: _refilled(head, n, streams[i]) for (i, head), n in zip(heads.items(), counts, strict=True)}
        heads = {i: rest for i, rest in rests.items() if rest.num_rows}


def _refilled(head: pa.Table, used: int, stream: Iterator[pa.Table]) -> pa.Table:
    """What is left of a head; where that is less than what went, with the next piece."""
    rest = head.slice(used)
    if rest.num_rows >= used:
        return rest
    more = next(stream, None)
    return rest if more is None else pa.concat_tables([rest, more])


def _raise_duplicate(write: DatasetWrite, file: Receipt, row: pa.Table, repeated: int, places: str) -> None:
    cell = {**{c: v for c, v in file.values.items() if c in write.sort_columns}, **row.to_pylist()[0]}
    raise InvalidInput(
        f'Found duplicate cells by [{", ".join(write.sort_columns)}] in dataset "{write.id}": {counted(repeated, "row")} with a cell that another one has. '
        f"Example: {cell} occurs in {places}. A cell may occur once."
    )

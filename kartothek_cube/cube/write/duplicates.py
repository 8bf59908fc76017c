"""Cells that two files of one write share.

Only files whose ranges of cells overlap can share any. Of these the key columns are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np
import pyarrow as pa

from kartothek_cube.core.arguments import pluralize
from kartothek_cube.core.arrow.keys import pack, pack_one, stable_order
from kartothek_cube.core.io.reader import FileRequest, open_rows
from kartothek_cube.core.runtime.executor import map_in_threads
from kartothek_cube.core.runtime.options import current_options
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.write.stage import Receipt
from kartothek_cube.cube.write.prepare import DatasetWrite
from kartothek_cube.errors import InvalidInput

__all__ = ["check_duplicates", "overlapping"]

# With fewer bytes at a time, opening a file costs more than reading its rows.
_LEAST_PIECE = 2**16
# Files that one thread has open. More files are compared in several passes.
_MOST_OPEN = 64


def check_duplicates(
    store: Store, write: DatasetWrite, receipts: Sequence[Receipt], places: str = "two blocks"
) -> None:
    """Read the key columns of files that may share cells, and refuse a cell that occurs twice.

    ``places`` says in the error message where a cell occurs.

    Raises
    ------
    InvalidInput
        With dataset and cell.
    """
    passes: list[list[Receipt]] = []
    for chain in overlapping(write, receipts):
        half = len(chain) if len(chain) <= _MOST_OPEN else _MOST_OPEN // 2
        parts = [chain[i : i + half] for i in range(0, len(chain), half)]
        # Any two files are in one of the passes, or a cell in both would go unnoticed.
        passes += [[*left, *right] for left, right in combinations(parts, 2)] if len(parts) > 1 else parts
    for _ in map_in_threads(lambda files: _check_files(store, write, files, places), passes):
        pass


def overlapping(write: DatasetWrite, receipts: Sequence[Receipt]) -> Iterator[list[Receipt]]:
    """Sets of files of one partition of the cube whose ranges of cells overlap."""
    shared = [c for c in write.request.partition_on if c in write.sort_columns]
    groups: dict[tuple[object, ...], list[Receipt]] = {}
    for receipt in receipts:
        groups.setdefault(tuple(receipt.values[c] for c in shared), []).append(receipt)
    for group in groups.values():
        first, *files = sorted(group, key=lambda r: r.low)
        chain, greatest = [first], first.high
        for file in files:
            if file.low > greatest:
                if len(chain) > 1:
                    yield chain
                chain = []
            chain.append(file)
            greatest = max(greatest, file.high)
        if len(chain) > 1:
            yield chain


def _check_files(store: Store, write: DatasetWrite, files: Sequence[Receipt], places: str) -> None:
    request = FileRequest(write.request.uuid, write.schema, write.dimensions)
    settings = current_options()
    # A piece of each file at a time: memory does not grow with the number of rows.
    nbytes = max(_LEAST_PIECE, settings.bytes_in_flight // (4 * settings.thread_count * len(files)))
    streams = [open_rows(store, file.key, request, nbytes, file.values)[1] for file in files]
    for cells in _side_by_side(streams, write.dimensions):
        keys = pack_one(cells, write.dimensions)
        order = stable_order(keys)
        keys = keys if order is None else keys[order]
        duplicates = np.flatnonzero(keys[1:] == keys[:-1])
        if len(duplicates):
            first = int(duplicates[0]) if order is None else int(order[duplicates[0]])
            values = {c: v for c, v in files[0].values.items() if c in write.sort_columns}
            cell = {**values, **cells.slice(first, 1).to_pylist()[0]}
            raise InvalidInput(
                f'Found duplicate cells by [{", ".join(write.sort_columns)}] in dataset "{write.id}": '
                f"{pluralize(len(duplicates), 'row')} with a cell that another one has. "
                f"Example: {cell} occurs in {places}. A cell may occur once: "
                "aggregate such rows, or add a dimension that tells them apart."
            )


def _side_by_side(streams: Sequence[Iterator[pa.Table]], columns: Sequence[str]) -> Iterator[pa.Table]:
    """The rows of sorted streams, cut so that equal rows are in one table."""
    heads = {i: head for i, stream in enumerate(streams) if (head := next(stream, None)) is not None}
    while heads:
        keys = pack(list(heads.values()), columns)
        # The head of every stream has all its rows up to this key.
        frontier = min(int(k[-1]) for k in keys)
        counts = [int(np.searchsorted(k, frontier, side="right")) for k in keys]
        yield pa.concat_tables([head.slice(0, n) for head, n in zip(heads.values(), counts, strict=True)])
        rests = {}
        for (i, head), n in zip(heads.items(), counts, strict=True):
            rests[i] = head.slice(n)
            # Read on when more than half of the head is used up: copies stay linear.
            if rests[i].num_rows < n and (more := next(streams[i], None)) is not None:
                rests[i] = pa.concat_tables([rests[i], more])
        heads = {i: rest for i, rest in rests.items() if rest.num_rows}

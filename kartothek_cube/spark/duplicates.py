"""Cells that two tasks wrote: found from the ends of each file, and where these overlap from the key columns of the files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from kartothek_cube.core.change import Receipt
from kartothek_cube.core.parallel import run
from kartothek_cube.core.parquet import FileRequest, read_rows
from kartothek_cube.core.rowkeys import pack_one
from kartothek_cube.core.store import Store
from kartothek_cube.cube.prepare import DatasetWrite
from kartothek_cube.errors import InvalidInput

__all__ = ["overlapping", "refuse_duplicates"]


def refuse_duplicates(store: Store, write: DatasetWrite, receipts: Sequence[Receipt]) -> None:
    """Read the key columns of files that may share cells, and refuse a cell that occurs twice.

    Raises
    ------
    InvalidInput
        Naming dataset and cell.
    """
    for _ in run(lambda files: _check(store, write, files), list(overlapping(write, receipts))):
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


def _check(store: Store, write: DatasetWrite, files: Sequence[Receipt]) -> None:
    request = FileRequest(write.request.uuid, write.schema, write.dimensions)
    cells = pa.concat_tables([read_rows(store, r.key, request, r.values) for r in files])
    keys = np.sort(pack_one(cells, write.dimensions), kind="stable")
    repeated = int(np.count_nonzero(keys[1:] == keys[:-1]))
    if repeated:
        _refuse(write, files[0], cells, repeated)


def _refuse(write: DatasetWrite, file: Receipt, cells: pa.Table, repeated: int) -> None:
    keys = pack_one(cells, write.dimensions)
    order = np.argsort(keys, kind="stable")
    first = int(np.flatnonzero(keys[order][1:] == keys[order][:-1])[0])
    cell = {**{c: v for c, v in file.values.items() if c in write.sort_columns}, **cells.slice(int(order[first]), 1).to_pylist()[0]}
    raise InvalidInput(
        f'Found duplicate cells by [{", ".join(write.sort_columns)}] in dataset "{write.id}": {repeated:,} rows repeat a cell. '
        f"Example: {cell} occurs in the rows of two tasks. A cell may occur once."
    )

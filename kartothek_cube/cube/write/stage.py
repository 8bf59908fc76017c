"""Stages a write to a cube: checks rows, partitions them, stores files that no reader sees yet."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from itertools import chain
from typing import TypeAlias

import pyarrow as pa

from kartothek_cube.core.commit.commit import check_store_can_commit
from kartothek_cube.core.metadata.naming import new_id
from kartothek_cube.core.runtime.executor import map_in_threads
from kartothek_cube.core.runtime.progress import Phase
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.write.input_rows import chunk_bytes
from kartothek_cube.core.write.receipt import PartitionRows, Receipt
from kartothek_cube.core.write.stage import Staging, drain, stage_parts, stage_together
from kartothek_cube.cube.write.buffer import Planner, WriteBuffer
from kartothek_cube.cube.write.duplicates import check_duplicates
from kartothek_cube.cube.write.input_data import InputData, concat
from kartothek_cube.cube.write.plan import CubeWrite, check_not_empty, check_stays_filled
from kartothek_cube.cube.write.prepare import DatasetWrite, prepare_parts
from kartothek_cube.errors import KartothekCubeError

__all__ = ["Receipts", "stage_input", "stage_table", "stage_tables"]

Receipts: TypeAlias = Mapping[str, list[Receipt]]
"""Dataset → receipts of its staged files."""


def stage_input(store: Store, plan: Planner, data: InputData) -> tuple[CubeWrite, Receipts]:
    """Plan, check and stage rows.

    Rows in memory are all checked before the first file is written, a stream chunk by chunk.
    """
    if data.rest is not None:
        return _stage_stream(store, plan, data)
    tables = concat(data.blocks)
    write = plan({i: t.schema for i, t in tables.items()})
    return write, stage_tables(store, write, tables)


def stage_tables(store: Store, write: CubeWrite, tables: Mapping[str, pa.Table]) -> Receipts:
    """Check and stage tables.

    Nothing is stored before the rows of every dataset have been checked.
    """
    check_store_can_commit(store)

    def prepare(name: str) -> Callable[[], list[PartitionRows]]:
        # Errors are raised in the order of the datasets, whichever thread is faster.
        prepared: Future[list[PartitionRows]] = Future()
        try:
            prepared.set_result(prepare_parts(write.datasets[name], tables[name], new_id()))
        except KartothekCubeError as error:
            prepared.set_exception(error)
        return prepared.result

    # Twice the bytes: keys and order of the rows take about as much as their sorted copy.
    prepared = list(map_in_threads(prepare, list(tables), weight=lambda name: 2 * tables[name].nbytes))
    parts = {name: result() for name, result in zip(tables, prepared, strict=True)}
    check_not_empty(write, parts)
    check_stays_filled(write, parts)
    stagings = [Staging(write.datasets[i].request, p, write.datasets[i].schema) for i, p in parts.items()]
    return dict(zip(parts, stage_together(store, stagings), strict=True))


def stage_table(store: Store, write: DatasetWrite, table: pa.Table) -> list[Receipt]:
    """Check and stage one block of rows, e.g. in a Spark task."""
    return stage_parts(store, write.request, prepare_parts(write, table, new_id()), write.schema)


def _stage_stream(store: Store, plan: Planner, data: InputData) -> tuple[CubeWrite, Receipts]:
    check_store_can_commit(store)
    buffer = WriteBuffer(plan, chunk_bytes())

    def prepare(chunk: tuple[DatasetWrite, pa.Table]) -> tuple[DatasetWrite, list[PartitionRows]]:
        return chunk[0], prepare_parts(*chunk, new_id())

    def prepared() -> Iterator[tuple[DatasetWrite, PartitionRows]]:
        # `map` and `drain`: no local variable keeps rows alive that are stored.
        for write, parts in map(prepare, buffer.chunks(chain(drain(data.blocks), data.rest or ()))):
            for part in drain(parts):
                yield write, part

    receipts: dict[str, list[Receipt]] = {}
    for name, staged in map_in_threads(
        lambda item: (item[0].id, stage_parts(store, item[0].request, [item[1]], item[0].schema)),
        prepared(),
        # Buffered rows, their sorted copy and the files share the bytes in flight.
        weight=lambda item: 4 * item[1].table.nbytes,
        phase=Phase("write", "files"),
    ):
        receipts.setdefault(name, []).extend(staged)
    write = buffer.complete()
    check_not_empty(write, receipts, write.datasets)
    for name, staged in receipts.items():
        check_duplicates(store, write.datasets[name], staged)
    return write, receipts

"""Staging a write to a cube: rows are checked, cut and stored under fresh keys; nothing is visible yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from itertools import chain
from typing import TypeAlias

import pyarrow as pa

from kartothek_cube.core.commit import check_store_can_commit
from kartothek_cube.core.input_rows import chunk_bytes
from kartothek_cube.core.naming import fresh_id
from kartothek_cube.core.parallel import map_in_threads
from kartothek_cube.core.progress import Phase
from kartothek_cube.core.receipt import PartitionRows, Receipt
from kartothek_cube.core.stage import Staging, drain, stage_parts, stage_together
from kartothek_cube.core.store import Store
from kartothek_cube.cube.duplicates import check_duplicates
from kartothek_cube.cube.input_data import InputData, concat
from kartothek_cube.cube.prepare import DatasetWrite, prepare_parts
from kartothek_cube.cube.write_buffer import Planner, WriteBuffer
from kartothek_cube.cube.write_plan import CubeWrite, check_not_empty, check_stays_filled
from kartothek_cube.errors import KartothekCubeError

__all__ = ["Receipts", "stage_input", "stage_table", "stage_tables"]

Receipts: TypeAlias = Mapping[str, list[Receipt]]
"""Dataset → what was staged of it."""


def stage_input(store: Store, plan: Planner, data: InputData) -> tuple[CubeWrite, Receipts]:
    """Plan, check and stage rows.

    Those that are in memory are checked whole before the first file; others chunk by chunk.
    """
    if data.rest is not None:
        return _stage_stream(store, plan, data)
    tables = concat(data.blocks)
    write = plan({i: t.schema for i, t in tables.items()})
    return write, stage_tables(store, write, tables)


def stage_tables(store: Store, write: CubeWrite, tables: Mapping[str, pa.Table]) -> Receipts:
    """Check and stage tables. Nothing is stored before the rows of every dataset have been checked."""
    check_store_can_commit(store)

    def prepare(name: str) -> Callable[[], list[PartitionRows]]:
        # Of several wrong datasets the first one is named, whichever thread was faster.
        prepared: Future[list[PartitionRows]] = Future()
        try:
            prepared.set_result(prepare_parts(write.datasets[name], tables[name], fresh_id()))
        except KartothekCubeError as error:
            prepared.set_exception(error)
        return prepared.result

    # Twice, as keys and order of the rows take about as much as their sorted copy.
    prepared = list(map_in_threads(prepare, list(tables), weight=lambda name: 2 * tables[name].nbytes))
    parts = {name: result() for name, result in zip(tables, prepared, strict=True)}
    check_not_empty(write, parts)
    check_stays_filled(write, parts)
    stagings = [Staging(write.datasets[i].request, p, write.datasets[i].schema) for i, p in parts.items()]
    return dict(zip(parts, stage_together(store, stagings), strict=True))


def stage_table(store: Store, write: DatasetWrite, table: pa.Table) -> list[Receipt]:
    """Check and stage one block of rows, e.g. in a Spark task."""
    return stage_parts(store, write.request, prepare_parts(write, table, fresh_id()), write.schema)


def _stage_stream(store: Store, plan: Planner, data: InputData) -> tuple[CubeWrite, Receipts]:
    check_store_can_commit(store)
    buffer = WriteBuffer(plan, chunk_bytes())
    parts = _parts(buffer.chunks(chain(drain(data.blocks), data.rest or ())))
    receipts: dict[str, list[Receipt]] = {}
    # Four times, as the rows that gather, their sorted copy and the files take their share of the same bytes.
    for name, staged in map_in_threads(
        lambda item: (item[0].id, stage_parts(store, item[0].request, [item[1]], item[0].schema)),
        parts,
        weight=lambda item: 4 * item[1].table.nbytes,
        phase=Phase("write", "files"),
    ):
        receipts.setdefault(name, []).extend(staged)
    write = buffer.complete()
    check_not_empty(write, receipts, write.datasets)
    for name, staged in receipts.items():
        check_duplicates(store, write.datasets[name], staged)
    return write, receipts


def _parts(chunks: Iterable[tuple[DatasetWrite, pa.Table]]) -> Iterator[tuple[DatasetWrite, PartitionRows]]:
    # `map` and `drain`: no variable keeps rows that are stored.
    for write, parts in map(_prepared, chunks):
        for part in drain(parts):
            yield write, part


def _prepared(chunk: tuple[DatasetWrite, pa.Table]) -> tuple[DatasetWrite, list[PartitionRows]]:
    return chunk[0], prepare_parts(*chunk, fresh_id())

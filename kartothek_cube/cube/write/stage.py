"""Begins a write to a cube and stages its rows in files that no reader sees yet.

In order:

- the begin: the datasets as they are now, and what is planned from them once columns are known
- staging
- the write buffer, for rows that do not all fit into memory
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future
from functools import partial
from itertools import chain
from typing import Protocol, TypeAlias

import pyarrow as pa
from msgspec import Struct, field

from kartothek_cube.core.arguments import converter_str_set_optional
from kartothek_cube.core.arrow.types import unify
from kartothek_cube.core.commit.change import check_on_conflict
from kartothek_cube.core.io.formats import FileFormat
from kartothek_cube.core.metadata.commit_log import parse_txn
from kartothek_cube.core.metadata.naming import new_id
from kartothek_cube.core.runtime.executor import map_in_threads
from kartothek_cube.core.runtime.options import Phase
from kartothek_cube.core.stores.contract import Store, check_store_can_commit
from kartothek_cube.core.write.input_rows import chunk_bytes
from kartothek_cube.core.write.prepare import PartitionRows
from kartothek_cube.core.write.stage import Drained, Receipt, Staging, stage_parts, stage_together
from kartothek_cube.cube.cube import Cube
from kartothek_cube.cube.members import existing_for_build, load_cube
from kartothek_cube.cube.write.plan import (
    Block,
    CubeWrite,
    InputData,
    MemberWrite,
    check_arguments,
    check_duplicates,
    check_extension,
    check_has_blocks,
    check_not_empty,
    check_stays_filled,
    concat,
    materialize,
    plan_append,
    plan_build,
    plan_extend,
    plan_update,
    prepare_parts,
)
from kartothek_cube.errors import InvalidInput, KartothekCubeError
from kartothek_cube.typing import IntoConditions

Receipts: TypeAlias = Mapping[str, list[Receipt]]
"""Dataset → receipts of its staged files."""


class Planner(Protocol):
    """Plans a write from the columns of each dataset.

    With ``more``, further datasets may follow: a missing one is no error yet.
    """

    def __call__(self, schemas: Mapping[str, pa.Schema], *, more: bool = False) -> CubeWrite:
        """The plan; an error if these columns cannot be written."""


def begin_datasets(
    cube: Cube,
    store: Store,
    names: Collection[str],
    metadata: object,
    overwrite: bool,
    partition_on: object,
    serializer: FileFormat | None,
    on_conflict: object,
    txn: object = None,
    *,
    extends: bool,
    more: bool = False,
) -> Planner:
    """Begin to make datasets, of a new cube or of one that this ``extends``.

    From now on commits of others to the present datasets are conflicts. ``names``: the datasets
    known so far; with ``more``, others may follow.
    """
    check, plan = (check_extension, plan_extend) if extends else (check_arguments, plan_build)
    keys = materialize(partition_on)
    # Before the store is asked; the plan repeats it with the names that are known then.
    check(cube, names, metadata, keys, more=more)
    rule, number = check_on_conflict(on_conflict), parse_txn(txn)
    return partial(
        plan,
        cube,
        existing=load_cube(cube, store) if extends else existing_for_build(cube, store),
        metadata=metadata,
        overwrite=overwrite,
        partition_on=keys,
        serializer=serializer,
        on_conflict=rule,
        txn=number,
    )


def begin_append(
    cube: Cube, store: Store, metadata: object, serializer: FileFormat | None, txn: object = None
) -> Planner:
    """Begin to add rows to datasets of a cube."""
    number = parse_txn(txn)
    existing = load_cube(cube, store)
    return partial(plan_append, cube, existing=existing, metadata=metadata, serializer=serializer, txn=number)


def begin_update(
    cube: Cube,
    store: Store,
    remove_conditions: IntoConditions,
    ktk_cube_dataset_ids: object,
    metadata: object,
    serializer: FileFormat | None,
    on_conflict: object,
    txn: object = None,
) -> Planner:
    """Begin to remove partitions and add rows."""
    rule, number = check_on_conflict(on_conflict), parse_txn(txn)
    names = converter_str_set_optional(ktk_cube_dataset_ids)
    return partial(
        plan_update,
        cube,
        existing=load_cube(cube, store),
        remove_conditions=materialize(remove_conditions),
        names=None if names is None else sorted(names),
        metadata=metadata,
        serializer=serializer,
        on_conflict=rule,
        txn=number,
    )


# --- staging --------------------------------------------------------------------------------------


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


def stage_table(store: Store, write: MemberWrite, table: pa.Table) -> list[Receipt]:
    """Check and stage one block of rows, e.g. in a Spark task."""
    return stage_parts(store, write.request, prepare_parts(write, table, new_id()), write.schema)


def _stage_stream(store: Store, plan: Planner, data: InputData) -> tuple[CubeWrite, Receipts]:
    check_store_can_commit(store)
    buffer = WriteBuffer(plan, chunk_bytes())

    def prepare(chunk: tuple[MemberWrite, pa.Table]) -> tuple[MemberWrite, list[PartitionRows]]:
        return chunk[0], prepare_parts(*chunk, new_id())

    def prepared() -> Iterator[tuple[MemberWrite, PartitionRows]]:
        # `map` and `Drained`: no local variable keeps rows alive that are stored.
        for write, parts in map(prepare, buffer.chunks(chain(Drained(data.blocks), data.rest or ()))):
            for part in Drained(parts):
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
    # Each chunk was checked alone: a cell in two chunks shows only in their files.
    for name, staged in receipts.items():
        check_duplicates(store, write.datasets[name], staged)
    return write, receipts


# --- the write buffer -----------------------------------------------------------------------------


class DatasetBuffer(Struct):
    """The columns of one dataset so far, and its buffered rows."""

    schema: pa.Schema | None = None
    has_rows: bool = False
    waiting: list[pa.Table] = field(default_factory=list)
    size: int = 0

    def add(self, name: str, block: pa.Table) -> bool:
        """Buffer a block; True if the schema changes."""
        schema = self.schema
        if schema is not None and set(schema.names) != set(block.column_names):
            raise InvalidInput(
                "Not all DataFrames have the same set of columns! "
                f"(dataset {name!r}: {schema.names}, then {block.column_names})"
            )
        block = block if schema is None else block.select(schema.names)
        # The columns of an empty block count, its types do not.
        if schema is None or (block.num_rows and not self.has_rows):
            self.schema = block.schema
        elif block.num_rows:
            self.schema = unify([schema, block.schema], f"the blocks of dataset {name!r}")
        self.has_rows |= block.num_rows > 0
        self.waiting += [block] if block.num_rows else []
        self.size += block.nbytes
        return schema is None or schema != self.schema

    def take(self) -> pa.Table:
        """Remove all buffered rows and return them in the widest types so far."""
        assert self.schema is not None
        tables = [t if t.schema.equals(self.schema) else t.cast(self.schema) for t in self.waiting]
        self.waiting, self.size = [], 0
        return pa.concat_tables(tables)


class WriteBuffer:
    """Blocks of several datasets, planned as they come.

    Parameters
    ----------
    plan : Planner
        Called for the first block of each dataset and when a column widens, so that errors show at
        the first block.
    limit : int
        Bytes of the buffered rows of all datasets together.
    """

    def __init__(self, plan: Planner, limit: int) -> None:
        self._plan, self._limit = plan, limit
        self._datasets: dict[str, DatasetBuffer] = {}
        self._write: CubeWrite | None = None

    def chunks(self, blocks: Iterable[Block]) -> Iterator[tuple[MemberWrite, pa.Table]]:
        """Chunks of rows to store together; over the limit, the largest buffer is drained."""
        for name, block in blocks:
            buffer = self._datasets.setdefault(name, DatasetBuffer())
            if block is not None and buffer.add(name, block):
                self._write = self._plan(self._schemas(), more=True)
            del block  # only the buffer holds the rows, so that they are freed once they are stored
            while sum(buffer.size for buffer in self._datasets.values()) > self._limit:
                yield self._drain(max(self._datasets, key=lambda i: self._datasets[i].size))
        for name in [name for name, buffer in self._datasets.items() if buffer.waiting]:
            yield self._drain(name)

    def _drain(self, name: str) -> tuple[MemberWrite, pa.Table]:
        assert self._write is not None
        return self._write.datasets[name], self._datasets[name].take()

    def _schemas(self) -> dict[str, pa.Schema]:
        return {name: buffer.schema for name, buffer in self._datasets.items() if buffer.schema is not None}

    def complete(self) -> CubeWrite:
        """The plan for all datasets that came."""
        check_has_blocks([name for name, buffer in self._datasets.items() if buffer.schema is None])
        return self._plan(self._schemas())

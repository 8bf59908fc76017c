"""Rows that do not all fit into memory, on their way to a cube: they gather dataset by dataset and leave in chunks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from kartothek_cube.core.schema import unify
from kartothek_cube.cube.input_data import Block, check_has_blocks
from kartothek_cube.cube.prepare import DatasetWrite
from kartothek_cube.cube.write_plan import CubeWrite
from kartothek_cube.errors import InvalidInput

__all__ = ["Planner", "WriteBuffer"]


class Planner(Protocol):
    """Plans a write from the columns of each dataset; with ``more``, further datasets may follow, which is not held against these."""

    def __call__(self, schemas: Mapping[str, pa.Schema], *, more: bool = False) -> CubeWrite:
        """The plan; an error if these columns cannot be written."""


@dataclass(slots=True)
class DatasetBuffer:
    """What is known of one dataset, and its rows that wait. An empty block gives columns, but its types say nothing."""

    schema: pa.Schema | None = None
    has_rows: bool = False
    waiting: list[pa.Table] = field(default_factory=list)
    size: int = 0

    def add(self, name: str, block: pa.Table) -> bool:
        """Take a block; whether it changes what is known of the columns."""
        known = self.schema
        if known is not None and set(known.names) != set(block.column_names):
            raise InvalidInput(f"Not all DataFrames have the same set of columns! (dataset {name!r}: {known.names}, then {block.column_names})")
        block = block if known is None else block.select(known.names)
        if known is None or (block.num_rows and not self.has_rows):
            self.schema = block.schema
        elif block.num_rows:
            self.schema = unify([known, block.schema], f"the blocks of dataset {name!r}")
        self.has_rows |= block.num_rows > 0
        self.waiting += [block] if block.num_rows else []
        self.size += block.nbytes
        return known is None or known != self.schema

    def take(self) -> pa.Table:
        """The rows that wait, in the widest types so far."""
        assert self.schema is not None
        tables = [t if t.schema.equals(self.schema) else t.cast(self.schema) for t in self.waiting]
        self.waiting, self.size = [], 0
        return pa.concat_tables(tables)


class WriteBuffer:
    """Blocks of several datasets, planned as they come.

    Parameters
    ----------
    plan : Planner
        Called for the first block of each dataset and where a column widens, so that what cannot be written is found at its first block.
    limit : int
        Bytes of the rows that wait, of all datasets together.
    """

    def __init__(self, plan: Planner, limit: int) -> None:
        self._plan, self._limit = plan, limit
        self._datasets: dict[str, DatasetBuffer] = {}
        self._write: CubeWrite | None = None

    def chunks(self, blocks: Iterable[Block]) -> Iterator[tuple[DatasetWrite, pa.Table]]:
        """Rows to be stored together, and how. Where too many wait, those of the dataset that has most leave."""
        for name, block in blocks:
            self._add(name, block)
            while sum(buffer.size for buffer in self._datasets.values()) > self._limit:
                yield self._leave(max(self._datasets, key=lambda i: self._datasets[i].size))
        for name in [name for name, buffer in self._datasets.items() if buffer.waiting]:
            yield self._leave(name)

    def _add(self, name: str, block: pa.Table | None) -> None:
        buffer = self._datasets.setdefault(name, DatasetBuffer())
        if block is not None and buffer.add(name, block):
            self._write = self._plan(self._schemas(), more=True)

    def _leave(self, name: str) -> tuple[DatasetWrite, pa.Table]:
        assert self._write is not None
        return self._write.datasets[name], self._datasets[name].take()

    def _schemas(self) -> dict[str, pa.Schema]:
        return {name: buffer.schema for name, buffer in self._datasets.items() if buffer.schema is not None}

    def complete(self) -> CubeWrite:
        """The plan for all that came."""
        check_has_blocks([name for name, buffer in self._datasets.items() if buffer.schema is None])
        return self._plan(self._schemas())

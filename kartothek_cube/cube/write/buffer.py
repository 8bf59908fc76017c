"""A write buffer for rows that do not all fit into memory: filled in blocks, drained in chunks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from kartothek_cube.core.arrow.schema import unify
from kartothek_cube.cube.write.input_data import Block, check_has_blocks
from kartothek_cube.cube.write.plan import CubeWrite
from kartothek_cube.cube.write.prepare import DatasetWrite
from kartothek_cube.errors import InvalidInput

__all__ = ["Planner", "WriteBuffer"]


class Planner(Protocol):
    """Plans a write from the columns of each dataset.

    With ``more``, further datasets may follow: a missing one is no error yet.
    """

    def __call__(self, schemas: Mapping[str, pa.Schema], *, more: bool = False) -> CubeWrite:
        """The plan; an error if these columns cannot be written."""


@dataclass(slots=True)
class DatasetBuffer:
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

    def chunks(self, blocks: Iterable[Block]) -> Iterator[tuple[DatasetWrite, pa.Table]]:
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

    def _drain(self, name: str) -> tuple[DatasetWrite, pa.Table]:
        assert self._write is not None
        return self._write.datasets[name], self._datasets[name].take()

    def _schemas(self) -> dict[str, pa.Schema]:
        return {name: buffer.schema for name, buffer in self._datasets.items() if buffer.schema is not None}

    def complete(self) -> CubeWrite:
        """The plan for all datasets that came."""
        check_has_blocks([name for name, buffer in self._datasets.items() if buffer.schema is None])
        return self._plan(self._schemas())

"""Small cubes for the tests of the verbs, and functions that inspect them."""

from __future__ import annotations

import itertools
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kartothek_cube.api.cube import Cube, build_cube, extend_cube, query_cube_arrow
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.snapshots.loader import load_index, load_snapshot
from kartothek_cube.cube.write.commit import commit_cube_write
from kartothek_cube.cube.write.stage import stage_tables
from kartothek_cube.testing.stores import CountingStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kartothek_cube.core.stores.contract import Store

CUBE = Cube(["x", "y"], ["p"], "cube", index_columns=["i1", "i2"])

# Four cells in two physical partitions; the rows are not sorted.
SEED = pa.table(
    {
        "x": [1, 0, 1, 0],
        "y": ["b", "a", "a", "b"],
        "p": [1, 0, 1, 0],
        "i1": [20, 10, 10, 20],
        "v1": [3.5, 0.5, None, 1.5],
    }
)
# Fewer dimensions, no partitions: only x=1, and x=7, which the seed lacks.
ENRICH = pa.table({"x": [7, 1], "i2": ["other", "one"], "v2": [70, 10]})


_NUMBERS = itertools.count()


class ColdStore(CountingStore):
    """Counts calls, and shares no cached snapshot with the inner store."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._identity = ("cold", next(_NUMBERS))

    @property
    def identity(self) -> Any:
        return self._identity


def table(**columns: Any) -> pa.Table:
    """A table from lists."""
    return pa.table(columns)


def with_column(data: pa.Table, name: str, values: Any) -> pa.Table:
    """The table with one column added or replaced."""
    values = values if isinstance(values, (pa.Array, pa.ChunkedArray)) else pa.array(values)
    if name in data.column_names:
        return data.set_column(data.column_names.index(name), name, values)
    return data.append_column(name, values)


def build_two(store: Any) -> None:
    """The seed and the enrichment `e`."""
    build_cube(SEED, CUBE, store)
    extend_cube({"e": ENRICH}, CUBE, store, partition_on={"e": []})


def contents(store: Store) -> dict[str, bytes]:
    """Everything that a store holds."""
    return {key: store.get(key) for key in store.list(recursive=True).keys}


@contextmanager
def refused(store: Store, error: type[Exception], *words: str) -> Iterator[None]:
    """The block raises an error with these words, and leaves every byte of the store unchanged."""
    before = contents(store)
    with pytest.raises(error) as caught:
        yield
    for word in words:
        assert word in str(caught.value)
    assert contents(store) == before


def snapshot(store: Any, dataset: str = "seed", prefix: str = "cube") -> Snapshot:
    """The newest state of a dataset."""
    return load_snapshot(store, f"{prefix}++{dataset}")


def files(store: Any, dataset: str = "seed") -> list[str]:
    """Keys of the data files, in the order of the document."""
    return snapshot(store, dataset).files.to_pylist()


def stored_rows(store: Store, key: str) -> pa.Table:
    """One data file, read as it is stored."""
    return pq.read_table(pa.BufferReader(store.get(key)))


def index_of(store: Any, column: str, dataset: str = "seed") -> dict[Any, set[str]]:
    """A secondary index as value → labels."""
    index, _ = load_index(store, snapshot(store, dataset), column)
    found: dict[Any, set[str]] = {}
    for value, label in zip(index.values.to_pylist(), index.labels.to_pylist(), strict=True):
        found.setdefault(value, set()).add(label)
    return found


def answers(store: Any, cube: Cube = CUBE, **arguments: Any) -> list[dict[str, Any]]:
    """The rows of a query."""
    return query_cube_arrow(cube, store, **arguments).to_pylist()


def write_tables(store, write, tables):
    """Stage and commit tables by a plan that the caller made."""
    return commit_cube_write(store, write, stage_tables(store, write, tables))

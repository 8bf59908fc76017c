"""The peers pyarrow, DuckDB and Polars, each in its best form, on the files of a cube."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from data import KEYS, Place, Tables
from duckdb import DuckDBPyConnection, connect

CORES = os.cpu_count() or 1
Conditions = Mapping[str, Any]
T = TypeVar("T")


@dataclass(frozen=True)
class Question:
    """A query as every peer gets it: a join of datasets, seed first.

    The rows have certain values in some columns, one or those of a `range`. They come in partition
    order or sorted.
    """

    place: Place
    datasets: Sequence[str]
    conditions: Conditions = field(default_factory=dict)
    order: bool = False

    def conditions_of(self, dataset: str) -> Conditions:
        """Those that its columns answer: every peer gets them at the scan."""
        return {column: value for column, value in self.conditions.items() if column in _columns(self.place, dataset)}

    def keys_of(self, dataset: str) -> list[str]:
        """What it is joined on."""
        return [key for key in KEYS if key in _columns(self.place, dataset)]

    def is_restricted(self, dataset: str) -> bool:
        """Whether only cells that it has are asked for."""
        return bool(self.conditions_of(dataset).keys() - set(KEYS))

    @property
    def sorted_by(self) -> list[str]:
        """The order of a cube's rows."""
        return [*self.place.cube.dimension_columns, *self.place.cube.partition_columns] if self.order else []


@cache
def _columns(place: Place, dataset: str) -> frozenset[str]:
    names = pq.read_schema(place.files(dataset)[0]).names
    return frozenset([*names, *(() if dataset == "products" else place.cube.partition_columns)])


# --- pyarrow --------------------------------------------------------------------------------------


def read_raw(question: Question) -> int:
    """Rows of all files, read and thrown away, one file in each thread."""
    return sum(_read(question, lambda table: table.num_rows))


def read_tables(question: Question) -> int:
    """The same, but all of them stay in memory until the last one is there."""
    return sum(table.num_rows for table in _read(question, lambda table: table))


def _read(question: Question, use: Callable[[pa.Table], T]) -> list[T]:
    files = [file for name in question.datasets for file in question.place.files(name)]
    with ThreadPoolExecutor(CORES) as pool:
        return list(pool.map(lambda path: use(pq.ParquetFile(path, memory_map=True).read(use_threads=False)), files))


def write_plain(tables: Tables, folder: Path, *, by: str = "WEEK", compression: str = "snappy") -> None:
    """The partitions of sorted tables as files in Hive folders, one file in each thread."""

    def write(part: tuple[Path, pa.Table]) -> None:
        path, table = part
        path.parent.mkdir()
        pq.write_table(table, path, compression=compression)

    parts = [part for name, table in tables.items() for part in _parts(table, folder / name, by)]
    with ThreadPoolExecutor(CORES) as pool:
        list(pool.map(write, parts))


def _parts(table: pa.Table, folder: Path, by: str) -> Iterator[tuple[Path, pa.Table]]:
    folder.mkdir(parents=True, exist_ok=True)
    if by not in table.column_names:
        yield folder / "all" / "part.parquet", table
        return
    counts = pc.value_counts(table.column(by))
    rest, start = table.drop_columns([by]), 0
    for value, count in zip(counts.field("values").to_pylist(), counts.field("counts").to_pylist(), strict=True):
        yield folder / f"{by}={value}" / "part.parquet", rest.slice(start, count)
        start += count


# --- DuckDB and Polars ----------------------------------------------------------------------------


def duckdb(question: Question) -> pa.Table:
    """Hive partitions, conditions at the scans, all cores, footers kept between queries.

    Rows come in any order unless the question asks for one.
    """
    return connection().sql(statement(question)).to_arrow_table()


@cache
def connection() -> DuckDBPyConnection:
    """One that stays."""
    opened = connect(config={"threads": CORES})
    for setting in ("parquet_metadata_cache = true", "preserve_insertion_order = false", "enable_progress_bar = false"):
        opened.sql(f"set {setting}")
    return opened


def statement(question: Question) -> str:
    """The join in SQL."""
    first, *others = (_scan(question, name) for name in question.datasets)
    joins = (
        f"{'inner' if question.is_restricted(name) else 'left'} join {scan} using ({', '.join(question.keys_of(name))})"
        for name, scan in zip(question.datasets[1:], others, strict=True)
    )
    order = f"order by {', '.join(question.sorted_by)}" if question.order else ""
    return " ".join(["select * from", first, *joins, order])


def _scan(question: Question, name: str) -> str:
    where = " and ".join(_compared(column, value) for column, value in question.conditions_of(name).items()) or "true"
    files = question.place.pattern(name)
    return f"(select * from read_parquet('{files}', hive_partitioning = true) where {where}) as {name}"


def _compared(column: str, value: Any) -> str:
    if isinstance(value, range):
        return f"{column} >= {value.start} and {column} < {value.stop}"
    return f"{column} = {value!r}"


def polars(question: Question) -> pa.Table:
    """Lazily, with hive partitions and conditions at the scans; all cores."""
    frame = joined(question)
    return (frame.sort(question.sorted_by) if question.order else frame).collect(engine="streaming").to_arrow()


def joined(question: Question) -> pl.LazyFrame:
    """The join as a lazy frame."""
    first, *others = (_lazy(question, name) for name in question.datasets)
    for name, other in zip(question.datasets[1:], others, strict=True):
        first = first.join(other, on=question.keys_of(name), how="inner" if question.is_restricted(name) else "left")
    return first


def _lazy(question: Question, name: str) -> pl.LazyFrame:
    scan = pl.scan_parquet(question.place.pattern(name), hive_partitioning=True)
    return scan.filter(*(_condition(pl.col(column), value) for column, value in question.conditions_of(name).items()))


def _condition(column: pl.Expr, value: Any) -> pl.Expr:
    return column.is_between(value.start, value.stop, closed="left") if isinstance(value, range) else column == value

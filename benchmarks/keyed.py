"""Tables whose rows have keys, ours and those of four formats, with the same verbs.

A verb opens the table anew, as a job does; several appends keep it open. Each is the fastest way
that the format has.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import logging
import os
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import polars as pl
import pyarrow as pa
from data import _store, forget

from kartothek_cube import Cube, append_to_cube, build_cube, extend_cube, options, query_cube_arrow
from kartothek_cube.api.dataset import (
    compact_dataset,
    delete_rows,
    garbage_collect_dataset,
    merge_dataset,
    read_table_arrow,
    store_dataframes_as_dataset,
    update_dataset_from_dataframes,
)
from kartothek_cube.core.stores.contract import Store

# A key, the partitions of those formats that have some, what tells states apart, a later column.
KEY, PART, VALUE, FEATURE = "CUSTOMER", "DAY", "UNITS", "SCORE"
UUID, NAME = "customers", "bench.customers"
# Of states that nobody reads any more, compaction leaves nothing.
AT_ONCE = options(grace=timedelta(0), retain=timedelta(0))
BATCH = 1000


class Appending:
    """Commits of few rows."""

    def appends(self, batches: Sequence[pa.Table]) -> Iterator[object]:
        """Something after each commit."""
        raise NotImplementedError

    def append(self, rows: pa.Table) -> None:
        """Each thousand of them by a commit."""
        deque(self.appends([rows.slice(i, BATCH) for i in range(0, rows.num_rows, BATCH)]), 0)


@dataclass(frozen=True)
class Ours(Appending):
    """A dataset in a folder. With an index its keys are looked for in there."""

    root: Path
    index: bool = True
    package: ClassVar[str] = "kartothek_cube"

    @property
    def store(self) -> Store:
        return _store(self.root)

    def build(self, rows: pa.Table) -> None:
        store_dataframes_as_dataset(
            self.store, UUID, [rows], partition_on=PART, secondary_indices=[KEY] if self.index else None
        )

    def merge(self, rows: pa.Table) -> None:
        forget()
        merge_dataset(rows, self.store, UUID, [KEY] if self.index else [PART, KEY])

    def delete(self, key: int, store: Store | None = None) -> None:
        forget()
        delete_rows(UUID, store or self.store, [[(KEY, "==", key)]])

    def appends(self, batches: Sequence[pa.Table]) -> Iterator[object]:
        for rows in batches:
            yield update_dataset_from_dataframes([rows], self.store, UUID)

    def replace(self, rows: pa.Table) -> None:
        forget()
        update_dataset_from_dataframes([rows], self.store, UUID, delete_scope=[{PART: day_of(rows)}])

    def compact(self) -> None:
        compact_dataset(UUID, self.store)
        garbage_collect_dataset(UUID, self.store, options=AT_ONCE)

    def read(self) -> pa.Table:
        forget()
        return read_table_arrow(UUID, self.store, columns=[KEY, PART, VALUE])

    def read_all(self) -> pa.Table:
        return read_table_arrow(UUID, self.store)

    def where(self, column: str, value: int) -> pa.Table:
        forget()
        return read_table_arrow(UUID, self.store, predicates=[[(column, "==", value)]])


@dataclass(frozen=True)
class Cells:
    """A cube in a folder: a column is a dataset of its own, later rows hide those of their cell."""

    root: Path
    package: ClassVar[str] = "kartothek_cube"
    cube: ClassVar[Cube] = Cube([KEY], [PART], UUID, suppress_index_on=[KEY])

    @property
    def store(self) -> Store:
        return _store(self.root)

    def build(self, rows: pa.Table) -> None:
        datasets = {self.cube.seed_dataset: rows}
        if FEATURE in rows.column_names:
            datasets = {
                self.cube.seed_dataset: rows.drop_columns([FEATURE]),
                FEATURE: rows.select([KEY, PART, FEATURE]),
            }
        build_cube(datasets, self.cube, self.store)

    def add(self, rows: pa.Table) -> None:
        forget()
        extend_cube({FEATURE: rows}, self.cube, self.store)

    def refresh(self, rows: pa.Table) -> None:
        forget()
        extend_cube({FEATURE: rows}, self.cube, self.store, overwrite=True)

    def merge(self, rows: pa.Table) -> None:
        forget()
        append_to_cube(rows, self.cube, self.store)

    def read(self, *more: str) -> pa.Table:
        forget()
        return query_cube_arrow(self.cube, self.store, payload_columns=[VALUE, *more])

    def read_all(self) -> pa.Table:
        forget()
        return query_cube_arrow(self.cube, self.store)


@dataclass(frozen=True)
class Delta(Appending):
    """Merges say the partition, too: other partitions are left out."""

    root: Path
    package: ClassVar[str] = "deltalake"

    def build(self, rows: pa.Table) -> None:
        from deltalake import write_deltalake  # nobody has to have it

        write_deltalake(self.root, rows, partition_by=[PART])

    def _table(self) -> Any:
        from deltalake import DeltaTable

        return DeltaTable(self.root)

    def merge(self, rows: pa.Table) -> None:
        predicate = f"t.{PART} = s.{PART} AND t.{KEY} = s.{KEY}"
        merge = self._table().merge(rows, predicate, source_alias="s", target_alias="t")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()

    def delete(self, key: int) -> None:
        self._table().delete(f"{KEY} = {key}")

    def add(self, rows: pa.Table) -> None:
        """Joined and written anew: a merge that adds the column takes longer."""
        from deltalake import write_deltalake

        joined = joinable(self.read_all()).join(rows, [PART, KEY])
        write_deltalake(self._table(), joined, mode="overwrite", schema_mode="overwrite", partition_by=[PART])

    def refresh(self, rows: pa.Table) -> None:
        from deltalake import write_deltalake

        joined = joinable(self.read_all().drop_columns([FEATURE])).join(rows, [PART, KEY])
        write_deltalake(self._table(), joined, mode="overwrite", partition_by=[PART])

    def appends(self, batches: Sequence[pa.Table]) -> Iterator[object]:
        from deltalake import write_deltalake

        table = self._table()
        for rows in batches:
            yield write_deltalake(table, rows, mode="append")

    def replace(self, rows: pa.Table) -> None:
        from deltalake import write_deltalake

        write_deltalake(self._table(), rows, mode="overwrite", predicate=f"{PART} = {day_of(rows)}")

    def compact(self) -> None:
        table = self._table()
        table.optimize.compact()
        table.create_checkpoint()
        table.vacuum(0, dry_run=False, enforce_retention_duration=False)

    def _select(self, columns: str, condition: str = "true") -> pa.Table:
        from deltalake import QueryBuilder  # twice as fast as `to_pyarrow_table`

        query = QueryBuilder().register("t", self._table())
        return pa.table(query.execute(f"SELECT {columns} FROM t WHERE {condition}").read_all())

    def read(self, *more: str) -> pa.Table:
        return self._select(", ".join(f'"{name}"' for name in (KEY, PART, VALUE, *more)))

    def read_all(self) -> pa.Table:
        return self._select("*")

    def where(self, column: str, value: int) -> pa.Table:
        return self._select("*", f'"{column}" = {value}')


@dataclass(frozen=True)
class Iceberg(Appending):
    """The catalogue is a file of SQLite. With a second key column, a merge takes far longer."""

    root: Path
    package: ClassVar[str] = "pyiceberg"

    def _catalog(self) -> Any:
        from pyiceberg.catalog.sql import SqlCatalog  # nobody has to have it

        logging.getLogger("pyiceberg").setLevel(logging.ERROR)  # each of its own retries is a warning
        self.root.mkdir(parents=True, exist_ok=True)
        return SqlCatalog("bench", uri=f"sqlite:///{self.root}/catalog.db", warehouse=f"file://{self.root}")

    def _table(self) -> Any:
        return self._catalog().load_table(NAME)

    def build(self, rows: pa.Table) -> None:
        catalog = self._catalog()
        catalog.create_namespace("bench")
        table = catalog.create_table(NAME, rows.schema, properties={"write.parquet.compression-codec": "snappy"})
        with table.update_spec() as spec:
            spec.add_identity(PART)
        table.append(rows)

    def merge(self, rows: pa.Table) -> None:
        self._table().upsert(rows, join_cols=[KEY])

    def delete(self, key: int) -> None:
        self._table().delete(f"{KEY} = {key}")

    def add(self, rows: pa.Table) -> None:
        from pyiceberg.types import DoubleType

        table = self._table()
        with table.update_schema() as update:
            update.add_column(FEATURE, DoubleType())
        self.refresh(rows)

    def refresh(self, rows: pa.Table) -> None:
        """Read, joined and written anew."""
        table = self._table()
        old = pl.DataFrame(table.scan().to_arrow().drop_columns([FEATURE]))
        table.overwrite(old.join(pl.DataFrame(rows), on=[PART, KEY]).to_arrow())

    def appends(self, batches: Sequence[pa.Table]) -> Iterator[object]:
        table = self._table()
        for rows in batches:
            yield table.append(rows)

    def replace(self, rows: pa.Table) -> None:
        self._table().overwrite(rows, overwrite_filter=f"{PART} = {day_of(rows)}")

    def compact(self) -> None:
        """Written anew: it has nothing else. Old files stay, since it removes none."""
        table = self._table()
        table.overwrite(table.scan().to_arrow())

    def read(self, *more: str) -> pa.Table:
        return self._table().scan(selected_fields=(KEY, PART, VALUE, *more)).to_arrow()

    def read_all(self) -> pa.Table:
        return self._table().scan().to_arrow()

    def where(self, column: str, value: int) -> pa.Table:
        return self._table().scan(f"{column} = {value}").to_arrow()


@dataclass(frozen=True)
class Lance(Appending):
    """No partitions, files as large as they are by default, an index on the key."""

    root: Path
    package: ClassVar[str] = "lance"

    def build(self, rows: pa.Table) -> None:
        import lance  # nobody has to have it

        lance.write_dataset(rows, self.root).create_scalar_index(KEY, "BTREE")

    def _dataset(self) -> Any:
        import lance

        return lance.dataset(self.root)

    def merge(self, rows: pa.Table) -> None:
        os.environ["LANCE_MEM_POOL_SIZE"] = str(8 * 2**30)  # a join of a million rows needs more than its 300 MB
        self._dataset().merge_insert(KEY).when_matched_update_all().when_not_matched_insert_all().execute(rows)

    def delete(self, key: int) -> None:
        self._dataset().delete(f"{KEY} = {key}")

    def add(self, rows: pa.Table) -> None:
        self._dataset().merge(rows.select([KEY, FEATURE]), KEY)

    def refresh(self, rows: pa.Table) -> None:
        os.environ["LANCE_MEM_POOL_SIZE"] = str(8 * 2**30)
        self._dataset().merge_insert(KEY).when_matched_update_all().execute(rows.select([KEY, FEATURE]))

    def appends(self, batches: Sequence[pa.Table]) -> Iterator[object]:
        import lance

        table = self._dataset()
        for rows in batches:
            table = lance.write_dataset(rows, table, mode="append")
            yield table

    def replace(self, rows: pa.Table) -> None:
        """By two commits: one that inserts and deletes insists on unique keys."""
        import lance

        table = self._dataset()
        table.delete(f"{PART} = {day_of(rows)}")
        lance.write_dataset(rows, table, mode="append")

    def compact(self) -> None:
        table = self._dataset()
        table.optimize.compact_files()
        table.optimize.optimize_indices()
        table.cleanup_old_versions(timedelta(0))

    def read(self, *more: str) -> pa.Table:
        return self._dataset().to_table(columns=[KEY, PART, VALUE, *more])

    def read_all(self) -> pa.Table:
        return self._dataset().to_table()

    def where(self, column: str, value: int) -> pa.Table:
        return self._dataset().to_table(filter=f"{column} = {value}")


@dataclass(frozen=True)
class Positions(Lance):
    """Columns whose values come in the order of the rows, which spares the join by key."""

    def add(self, rows: pa.Table) -> None:
        self._dataset().add_columns(rows.select([FEATURE]).to_reader())

    def refresh(self, rows: pa.Table) -> None:
        self._dataset().drop_columns([FEATURE])
        self.add(rows)


@dataclass(frozen=True)
class DuckLake(Appending):
    """The catalogue is a file of DuckDB, whose version has to be that of the extension's wheel."""

    root: Path
    package: ClassVar[str] = "duckdb_extension_ducklake"
    catalog: ClassVar[str] = ""
    settings: ClassVar[str] = ""

    def _connection(self) -> Any:
        from duckdb import connect

        lake = connect(config={"allow_unsigned_extensions": "true"})
        lake.sql("set enable_progress_bar = false")
        for package in {self.package, DuckLake.package}:
            [folder] = _folders(package)
            name = package.removeprefix("duckdb_extension_")
            lake.sql(f"LOAD '{folder}/extensions/v{importlib.metadata.version(package)}/{name}.duckdb_extension'")
        self.root.mkdir(parents=True, exist_ok=True)
        where = f"ducklake:{self.catalog}{self.root}/catalog.ducklake"
        lake.sql(f"ATTACH '{where}' AS lake (DATA_PATH '{self.root}/data/'{self.settings})")
        lake.sql("USE lake")
        return lake

    def _run(self, *statements: str, rows: pa.Table | None = None) -> None:
        with self._connection() as lake:
            if rows is not None:
                lake.register("source", rows)
            for statement in statements:
                lake.execute(statement)

    def build(self, rows: pa.Table) -> None:
        create = ("CREATE TABLE t AS FROM source LIMIT 0", f"ALTER TABLE t SET PARTITIONED BY ({PART})")
        self._run(*create, "INSERT INTO t FROM source", rows=rows)

    def merge(self, rows: pa.Table) -> None:
        self._run(
            f"MERGE INTO t USING source AS s ON t.{PART} = s.{PART} AND t.{KEY} = s.{KEY} "
            "WHEN MATCHED THEN UPDATE WHEN NOT MATCHED THEN INSERT",
            rows=rows,
        )

    def delete(self, key: int) -> None:
        self._run(f"DELETE FROM t WHERE {KEY} = {key}")

    def add(self, rows: pa.Table) -> None:
        self._run("BEGIN", f"ALTER TABLE t ADD COLUMN {FEATURE} DOUBLE", self._UPDATE, "COMMIT", rows=rows)

    def refresh(self, rows: pa.Table) -> None:
        self._run(self._UPDATE, rows=rows)

    _UPDATE: ClassVar[str] = (
        f"UPDATE t SET {FEATURE} = s.{FEATURE} FROM source AS s WHERE t.{PART} = s.{PART} AND t.{KEY} = s.{KEY}"
    )

    def appends(self, batches: Sequence[pa.Table]) -> Iterator[object]:
        with self._connection() as lake:
            for rows in batches:
                lake.register("source", rows)
                yield lake.execute("INSERT INTO t FROM source")

    def replace(self, rows: pa.Table) -> None:
        self._run(
            "BEGIN", f"DELETE FROM t WHERE {PART} = {day_of(rows)}", "INSERT INTO t FROM source", "COMMIT", rows=rows
        )

    def compact(self) -> None:
        self._run(
            "CALL ducklake_flush_inlined_data('lake')",
            "CALL ducklake_rewrite_data_files('lake', delete_threshold => 0)",
            "CALL ducklake_merge_adjacent_files('lake')",
            "CALL ducklake_expire_snapshots('lake', older_than => now())",
            "CALL ducklake_cleanup_old_files('lake', cleanup_all => true)",
        )

    def _select(self, columns: str, condition: str = "true") -> pa.Table:
        with self._connection() as lake:
            return lake.sql(f"SELECT {columns} FROM t WHERE {condition}").to_arrow_table()

    def read(self, *more: str) -> pa.Table:
        return self._select(", ".join((KEY, PART, VALUE, *more)))

    def read_all(self) -> pa.Table:
        return self._select("*")

    def where(self, column: str, value: int) -> pa.Table:
        return self._select("*", f"{column} = {value}")


@dataclass(frozen=True)
class SharedDuckLake(DuckLake):
    """The catalogue is a file of SQLite: one of DuckDB has one process at a time."""

    package: ClassVar[str] = "duckdb_extension_sqlite_scanner"
    catalog: ClassVar[str] = "sqlite:"
    settings: ClassVar[str] = ", META_JOURNAL_MODE 'WAL', META_BUSY_TIMEOUT 10000"


Keyed = Ours | Cells | Delta | Iceberg | Lance | DuckLake
PEERS: dict[str, type[Delta | Iceberg | Lance | DuckLake]] = {
    "deltalake": Delta,
    "PyIceberg": Iceberg,
    "Lance": Lance,
    "DuckLake": DuckLake,
}


def _folders(package: str) -> list[str]:
    spec = importlib.util.find_spec(package)
    return list(spec.submodule_search_locations or ()) if spec else []


def is_installed(kind: type[Keyed]) -> bool:
    """Whether its package is there; an extension needs its own release of DuckDB."""
    return bool(_folders(kind.package)) and (
        not issubclass(kind, DuckLake)
        or importlib.metadata.version("duckdb") == importlib.metadata.version(kind.package)
    )


def day_of(rows: pa.Table) -> int:
    """The partition of rows that are all of one."""
    [day] = rows[PART].unique().to_pylist()
    return int(day)


def joinable(rows: pa.Table) -> pa.Table:
    """pyarrow joins no views of texts."""
    fields = [f.with_type(pa.string()) if pa.types.is_string_view(f.type) else f for f in rows.schema]
    return rows.cast(pa.schema(fields))


def digest(table: Keyed) -> str:
    """Equal for equal rows in any order."""
    return digest_of(table.read(), VALUE)


def digest_of(rows: pa.Table, *columns: str) -> str:
    """The same of rows, with some of their columns."""
    frame = pl.DataFrame(rows).select(KEY, PART, *columns)
    return f"{len(frame)} {frame.hash_rows().sort().hash().sum()}"

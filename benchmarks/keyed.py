"""Tables whose rows have keys, ours and those of four formats: the same rows merged and deleted."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import polars as pl
import pyarrow as pa
from data import _store, forget

from kartothek_cube.api.dataset import delete_rows, merge_dataset, read_table_arrow, store_dataframes_as_dataset
from kartothek_cube.core.stores.contract import Store

# A key, the partitions of those formats that have some, and what tells states apart.
KEY, PART, VALUE = "CUSTOMER", "DAY", "UNITS"
UUID, NAME = "customers", "bench.customers"


@dataclass(frozen=True)
class Ours:
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

    def read(self) -> pa.Table:
        return read_table_arrow(UUID, self.store, columns=[KEY, PART, VALUE])


@dataclass(frozen=True)
class Delta:
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

    def read(self) -> pa.Table:
        return self._table().to_pyarrow_table(columns=[KEY, PART, VALUE])


@dataclass(frozen=True)
class Iceberg:
    """The catalogue is a file of SQLite. With a second key column, a merge takes far longer."""

    root: Path
    package: ClassVar[str] = "pyiceberg"

    def _catalog(self) -> Any:
        from pyiceberg.catalog.sql import SqlCatalog  # nobody has to have it

        self.root.mkdir(parents=True, exist_ok=True)
        return SqlCatalog("bench", uri=f"sqlite:///{self.root}/catalog.db", warehouse=f"file://{self.root}")

    def _table(self) -> Any:
        return self._catalog().load_table(NAME)

    def build(self, rows: pa.Table) -> None:
        catalog = self._catalog()
        catalog.create_namespace("bench")
        table = catalog.create_table(NAME, schema=rows.schema)
        with table.update_spec() as spec:
            spec.add_identity(PART)
        table.append(rows)

    def merge(self, rows: pa.Table) -> None:
        self._table().upsert(rows, join_cols=[KEY])

    def delete(self, key: int) -> None:
        self._table().delete(f"{KEY} = {key}")

    def read(self) -> pa.Table:
        return self._table().scan(selected_fields=(KEY, PART, VALUE)).to_arrow()


@dataclass(frozen=True)
class Lance:
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

    def read(self) -> pa.Table:
        return self._dataset().to_table(columns=[KEY, PART, VALUE])


@dataclass(frozen=True)
class DuckLake:
    """The catalogue is a file of DuckDB, whose version has to be that of the extension's wheel."""

    root: Path
    package: ClassVar[str] = "duckdb_extension_ducklake"

    def _connection(self) -> Any:
        from duckdb import connect

        version, [folder] = importlib.metadata.version(self.package), _folders(self.package)
        lake = connect(config={"allow_unsigned_extensions": "true"})
        lake.sql("set enable_progress_bar = false")
        lake.sql(f"LOAD '{folder}/extensions/v{version}/ducklake.duckdb_extension'")
        self.root.mkdir(parents=True, exist_ok=True)
        lake.sql(f"ATTACH 'ducklake:{self.root}/catalog.ducklake' AS lake (DATA_PATH '{self.root}/data/')")
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

    def read(self) -> pa.Table:
        with self._connection() as lake:
            return lake.sql(f"SELECT {KEY}, {PART}, {VALUE} FROM t").to_arrow_table()


Keyed = Ours | Delta | Iceberg | Lance | DuckLake
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
        kind is not DuckLake or importlib.metadata.version("duckdb") == importlib.metadata.version(kind.package)
    )


def digest(table: Keyed) -> str:
    """Equal for equal rows in any order."""
    frame = pl.DataFrame(table.read())
    return f"{len(frame)} {frame.select(KEY, PART, VALUE).hash_rows().sort().hash().sum()}"

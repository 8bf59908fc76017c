"""Tables with versions: ours and those of deltalake and PyIceberg, with the same commits."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from data import Place, forget

from kartothek_cube import C, Cube, append_to_cube, build_cube, query_cube_changes, read_dataset_changes, update_cube
from kartothek_cube.api.dataset import history
from kartothek_cube.core.stores.contract import Store

# Rows are cells of this cube; its seed is a dataset like any other.
CUBE = Cube(["CELL"], ["DAY"], "table", suppress_index_on=["CELL"])
SEED = CUBE.ktk_dataset_uuid(CUBE.seed_dataset)


@dataclass(frozen=True)
class Ours:
    """A cube in a folder."""

    root: Path

    @property
    def place(self) -> Place:
        return Place(CUBE, self.root)

    def build(self, rows: pa.Table) -> None:
        build_cube(rows, CUBE, self.place.store)

    def append(self, rows: pa.Table) -> None:
        append_to_cube(rows, CUBE, self.place.store)

    def replace(self, rows: pa.Table, day: int) -> None:
        update_cube(rows, CUBE, self.place.store, C("DAY") == day)

    def update(self, rows: pa.Table) -> None:
        """Later rows hide those of the same cell."""
        append_to_cube(rows, CUBE, self.place.store)

    def version(self) -> str:
        return str(history(SEED, self.place.store)["commit"].iloc[0])

    def changes(self, since: str, store: Store | None = None) -> int:
        """The number of changed rows, as nobody has seen the table before."""
        forget()
        return self.changes_again(since, store)

    def changes_again(self, since: str, store: Store | None = None) -> int:
        return read_dataset_changes(SEED, store or self.place.store, since).read_all().num_rows

    def updates(self, since: str) -> int:
        """The same of cells."""
        forget()
        return query_cube_changes(CUBE, self.place.store, since).read_all().num_rows


@dataclass(frozen=True)
class Delta:
    """A table of deltalake with a change data feed."""

    root: Path

    def _table(self) -> Any:
        from deltalake import DeltaTable  # nobody has to have it

        return DeltaTable(self.root)

    def _write(self, rows: pa.Table, **arguments: Any) -> None:
        from deltalake import write_deltalake

        write_deltalake(self.root, rows, **arguments)

    def build(self, rows: pa.Table) -> None:
        self._write(rows, partition_by=["DAY"], configuration={"delta.enableChangeDataFeed": "true"})

    def append(self, rows: pa.Table) -> None:
        self._write(rows, mode="append")

    def replace(self, rows: pa.Table, day: int) -> None:
        self._write(rows, mode="overwrite", predicate=f"DAY = {day}")

    def update(self, rows: pa.Table) -> None:
        merge = self._table().merge(rows, "t.DAY = s.DAY AND t.CELL = s.CELL", source_alias="s", target_alias="t")
        merge.when_matched_update_all().execute()

    def version(self) -> int:
        return int(self._table().version())

    def changes(self, since: int) -> int:
        return pa.table(self._table().load_cdf(starting_version=since + 1)).num_rows

    updates = changes


@dataclass(frozen=True)
class Iceberg:
    """A table of PyIceberg whose catalogue is a file of SQLite. Only appended rows can be asked."""

    root: Path

    def _catalog(self) -> Any:
        from pyiceberg.catalog.sql import SqlCatalog  # nobody has to have it

        self.root.mkdir(parents=True, exist_ok=True)
        return SqlCatalog("bench", uri=f"sqlite:///{self.root}/catalog.db", warehouse=f"file://{self.root}")

    def _table(self) -> Any:
        return self._catalog().load_table("bench.rows")

    def build(self, rows: pa.Table) -> None:
        catalog = self._catalog()
        catalog.create_namespace("bench")
        table = catalog.create_table("bench.rows", schema=rows.schema)
        with table.update_spec() as spec:
            spec.add_identity("DAY")
        table.append(rows)

    def append(self, rows: pa.Table) -> None:
        self._table().append(rows)

    def version(self) -> int:
        return int(self._table().metadata.current_snapshot_id)

    def changes(self, since: int) -> int:
        return int(self._table().incremental_append_scan(from_snapshot_id_exclusive=since).to_arrow().num_rows)


Format = Ours | Delta | Iceberg
PACKAGES: dict[type[Format], str] = {Delta: "deltalake", Iceberg: "pyiceberg"}


def is_installed(kind: type[Format]) -> bool:
    """Whether the package of a peer is there."""
    return importlib.util.find_spec(PACKAGES.get(kind, "kartothek_cube")) is not None

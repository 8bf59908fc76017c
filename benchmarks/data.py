"""The measured data: cubes with large partitions, with many partitions, and of metadata only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kartothek_cube import Cube, open_store
from kartothek_cube.core.metadata.document import Document, PartitionColumns, render_document
from kartothek_cube.core.metadata.naming import document_key, index_key, schema_key
from kartothek_cube.core.metadata.snapshot import common_metadata_bytes
from kartothek_cube.core.snapshots.loader import _cache
from kartothek_cube.core.snapshots.statistics import _cache as statistics_cache
from kartothek_cube.core.stores.contract import Store

KEYS = ("WEEK", "PRODUCT_ID", "DAY")
# Many rows a partition, without an index on cells; many partitions, with the indices that are the
# default.
WIDE = Cube(["PRODUCT_ID", "DAY"], ["WEEK"], "wide", index_columns=["BRAND"], suppress_index_on=["PRODUCT_ID", "DAY"])
BROAD = Cube(["PRODUCT_ID", "DAY"], ["WEEK"], "broad", suppress_index_on=["PRODUCT_ID", "DAY"])
LONG = Cube(["PRODUCT_ID", "DAY"], ["WEEK"], "long")
# Of these, only the metadata exist.
EMPTY = Cube("PRODUCT_ID", "DAY", "empty", suppress_index_on="PRODUCT_ID")
INDEXED = Cube("PRODUCT_ID", "DAY", "indexed")
PAYLOAD = {"seed": "SALES", "forecast": "FORECAST"}
DAYS, BRANDS, SHARE = 7, 97, 0.6
INDEX_ROWS = 10_000
Tables = Mapping[str, pa.Table]


@dataclass(frozen=True)
class Place:
    """A cube in a folder, for us and for those who read its files."""

    cube: Cube
    root: Path

    @property
    def store(self) -> Store:
        """The folder as we read it."""
        return _store(self.root)

    def files(self, dataset: str) -> list[str]:
        """Local paths, looked for once."""
        return _files(self.root / self.cube.ktk_dataset_uuid(dataset) / "table")

    def pattern(self, dataset: str) -> str:
        """What DuckDB and Polars look for."""
        return f"{self.root}/{self.cube.ktk_dataset_uuid(dataset)}/table/**/*.parquet"


@cache
def _store(root: Path) -> Store:
    """Nobody else waits for the disk after writing, so neither do we."""
    return open_store(root, fsync=False)


@cache
def _files(folder: Path) -> list[str]:
    return sorted(map(str, folder.rglob("*.parquet")))


# --- tables ---------------------------------------------------------------------------------------


def tables(rows: int, weeks: int, first: int = 0) -> Tables:
    """A seed, its stock (equal keys) and forecasts for 60 % of its cells, all in key order.

    A partition is a week.
    """
    rng, keys = np.random.default_rng(first), _keys(rows // weeks, np.arange(first, first + weeks))
    n = len(keys["WEEK"])
    seed = pa.table({**keys, "UNITS": rng.integers(0, 99, n), "SALES": rng.random(n)})
    stock = pa.table({**keys, "STOCK": rng.integers(0, 99, n)})
    forecast = pa.table({**keys, "FORECAST": rng.random(n)}).take(pa.array(np.flatnonzero(rng.random(n) < SHARE)))
    return {"seed": seed, "stock": stock, "forecast": forecast}


def with_products(found: Tables) -> Tables:
    """And a dataset of one row a product."""
    ids = np.unique(found["seed"].column("PRODUCT_ID").to_numpy())
    brands = pa.array([f"brand {i}" for i in range(BRANDS)]).take(pa.array(ids % BRANDS))
    return {**found, "products": pa.table({"PRODUCT_ID": ids, "BRAND": brands})}


def broad(rows: int, weeks: int, columns: int) -> pa.Table:
    """Many columns of payload, every tenth one of texts."""
    rng, keys = np.random.default_rng(4), _keys(rows // weeks, np.arange(weeks))
    n = len(keys["WEEK"])
    texts = pa.array([f"label {i}" for i in range(BRANDS)])
    payload = [
        pa.array(rng.random(n)) if i % 10 else texts.take(pa.array(rng.integers(0, BRANDS, n))) for i in range(columns)
    ]
    return pa.table({**keys, **{f"V{i}": values for i, values in enumerate(payload)}})


def _keys(per_week: int, weeks: np.ndarray) -> dict[str, np.ndarray]:
    cell, week = np.tile(np.arange(per_week), len(weeks)), np.repeat(weeks, per_week)
    return {"PRODUCT_ID": cell // DAYS, "DAY": cell % DAYS + DAYS * week, "WEEK": week}


def shuffled(found: Tables) -> Tables:
    """The same rows in no order."""
    rng = np.random.default_rng(3)
    return {name: table.take(pa.array(rng.permutation(table.num_rows))) for name, table in found.items()}


# --- metadata without data ------------------------------------------------------------------------


def empty_dataset(cube: Cube, store: Store, name: str, payload: str, partitions: int, index: str | None = None) -> None:
    """A dataset without data: planning does not need them."""
    uuid, labels = cube.ktk_dataset_uuid(name), empty_labels(partitions)
    files = {"table": pa.array([f"{uuid}/table/{label}.parquet" for label in labels])}
    metadata = {
        "ktk_cube_is_seed": name == "seed",
        "ktk_cube_dimension_columns": ["PRODUCT_ID"],
        "ktk_cube_partition_columns": ["DAY"],
    }
    indices = {"PRODUCT_ID": index} if index else {}
    store.put(
        document_key(uuid),
        render_document(Document(uuid, metadata, ("DAY",), indices, PartitionColumns(pa.array(labels), files))),
    )
    store.put(
        schema_key(uuid),
        common_metadata_bytes(pa.schema([("DAY", pa.int64()), ("PRODUCT_ID", pa.int64()), (payload, pa.float64())])),
    )


def empty_cube(place: Place, partitions: int, index: str | None = None) -> None:
    """Two such datasets; the index is one of the seed."""
    for name, payload in PAYLOAD.items():
        empty_dataset(
            place.cube, place.store, name, payload, partitions, index if name == place.cube.seed_dataset else None
        )


def empty_labels(partitions: int) -> list[str]:
    return [f"DAY={i}/{i:032x}" for i in range(partitions)]


def write_index(place: Place, values: int, each: int, partitions: int) -> str:
    """Write an index of the seed on its product, row group by row group, and return its key.

    Each of ``values`` products has ``each`` labels, in the order of the partitions.
    """
    key = index_key(
        place.cube.ktk_dataset_uuid(place.cube.seed_dataset), "PRODUCT_ID", datetime(2026, 1, 1, tzinfo=UTC)
    )
    labels, schema = (
        pa.array(empty_labels(partitions)),
        pa.schema([("PRODUCT_ID", pa.int64()), ("partition", pa.list_(pa.string()))]),
    )
    (place.root / key).parent.mkdir(parents=True, exist_ok=True)
    with pq.ParquetWriter(place.root / key, schema) as writer:
        for start in range(0, values, INDEX_ROWS):
            products = np.arange(start, min(start + INDEX_ROWS, values))
            picked = np.sort((products[:, None] + np.arange(each) * (partitions // each)) % partitions)
            lists = pa.ListArray.from_arrays(
                pa.array(np.arange(len(products) + 1, dtype=np.int32) * each), labels.take(pa.array(picked.ravel()))
            )
            writer.write_table(pa.table([pa.array(products), lists], schema=schema))
    return key


def few_rows(day: int, values: int) -> pa.Table:
    """Rows of a new partition, of some of the products of an index."""
    rng = np.random.default_rng(day)
    products = np.sort(rng.choice(values, 1000, replace=False))
    return pa.table({"DAY": np.full(1000, day), "PRODUCT_ID": products, "SALES": rng.random(1000)})


def write_cells(place: Place, partition: int) -> None:
    """The rows of one partition: of the product of the same number, and of others."""
    for name, payload in PAYLOAD.items():
        path = place.root / place.cube.ktk_dataset_uuid(name) / "table" / f"{empty_labels(partition + 1)[-1]}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(
            pa.table(
                {"PRODUCT_ID": np.arange(partition, partition + 100), payload: np.random.default_rng(1).random(100)}
            ),
            path,
        )


def forget() -> None:
    """Drop snapshots and statistics that this process has cached, so that all is read anew."""
    statistics_cache.clear()
    with _cache._lock:  # noqa: SLF001
        _cache._entries.clear()  # noqa: SLF001

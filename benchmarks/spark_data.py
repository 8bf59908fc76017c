"""The reference cube of the Spark benchmark, rows to stage, and many groups without data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from data import EMPTY, PAYLOAD, empty_dataset

from kartothek_cube import Cube, build_cube, open_store, plan_cube_query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kartothek_cube.cube.query.plan import QueryPlan

CUBE = Cube(
    ["PRODUCT_ID", "DAY"],
    ["WEEK"],
    "bench",
    index_columns=["BRAND", "CAMPAIGN"],
    suppress_index_on=["PRODUCT_ID", "DAY"],
)
WEEKS = 64
STAGED = Cube(["PRODUCT_ID", "DAY"], ["WEEK"], "staged", suppress_index_on=["PRODUCT_ID", "DAY"])
STAGED_WEEKS = 40


@dataclass(frozen=True)
class Reference:
    """Where the cube lies. Spark reads the same files."""

    root: Path
    url: str

    def native(self, spark: SparkSession, where: str = "true", columns: tuple[str, ...] = ("*",)) -> DataFrame:
        """The same join by Spark alone."""
        seed, forecast = (
            spark.read.parquet(str(self.root / f"bench++{name}" / "table")) for name in ("seed", "forecast")
        )
        return seed.join(forecast, ["WEEK", "PRODUCT_ID", "DAY"], "left").where(where).select(*columns)


def build_reference(folder: Path, rows: int) -> Reference:
    """A seed of nine columns, brands, campaigns, and forecasts for nine rows of ten.

    1 % of the rows have a brand, in all weeks; 1 % have a campaign, in a tenth of the weeks.
    """
    rng, root = np.random.default_rng(1), folder / "reference"
    seed = _seed(rng, max(7, rows // WEEKS))
    some = pa.array(np.flatnonzero(rng.random(seed.num_rows) < 0.9))
    forecast = seed.select(["PRODUCT_ID", "DAY", "WEEK"]).take(some)
    for name in ("FORECAST", "FORECAST_HIGH", "FORECAST_LOW"):
        forecast = forecast.append_column(name, pa.array(rng.random(len(some))))
    build_cube({"seed": seed, "forecast": forecast}, CUBE, open_store(root, fsync=False))
    return Reference(root, f"hfs://{root.resolve()}")


def _seed(rng: np.random.Generator, per_week: int) -> pa.Table:
    cell, week = np.tile(np.arange(per_week), WEEKS), np.repeat(np.arange(WEEKS), per_week)
    n = len(cell)
    return pa.table(
        {
            "PRODUCT_ID": cell // 7,
            "DAY": pa.array((7 * week + cell % 7).astype("datetime64[D]")).cast(pa.timestamp("us")),
            "WEEK": week,
            "BRAND": rng.integers(0, 100, n),
            "CAMPAIGN": 10 * (week % 10) + rng.integers(0, 10, n),
            "PRICE": rng.integers(99, 9999, n) / 100,
            "PROMOTED": rng.random(n) < 0.1,
            "STORE": pa.array([f"store {i}" for i in range(200)]).take(pa.array(rng.integers(0, 200, n))),
            "SALES": rng.integers(0, 100, n).astype(float),
        }
    )


def rows_to_stage(spark: SparkSession, rows: int, weeks: int, tasks: int) -> DataFrame:
    """Seven columns, no cell twice, the rows of all weeks in every task and in no order."""
    products = -(-rows // (7 * weeks))
    cell = f"(id div {weeks})"
    return spark.range(0, rows, 1, tasks).selectExpr(
        f"pmod({cell} div 7 * 1000003, {products}) AS PRODUCT_ID",
        f"pmod({cell}, 7) AS DAY",
        f"pmod(id, {weeks}) AS WEEK",
        "pmod(xxhash64(id), 100) AS UNITS",
        "pmod(xxhash64(id, 1), 1000) AS STOCK",
        "pmod(xxhash64(id, 2), 10000) / 100D AS SALES",
        "pmod(xxhash64(id, 3), 1000000007) / 1e9D AS SHARE",
    )


def empty_store(groups: int) -> Any:
    """A store with a cube of two datasets of which only the metadata exist."""
    store = open_store("hmemory://")
    for name, payload in PAYLOAD.items():
        empty_dataset(EMPTY, store, name, payload, groups)
    return store


def empty_plan(store: Any) -> QueryPlan:
    """The plan of a query of the whole cube, of one group a partition."""
    return plan_cube_query(EMPTY, store, partition_by="DAY")

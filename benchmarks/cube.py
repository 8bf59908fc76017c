"""Building and querying a cube, against pyarrow alone and DuckDB on the same files."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from timing import best_of, show

from kartothek_cube import C, Cube, build_cube, open_store, plan_cube_query, query_cube_arrow
from kartothek_cube.core.store import Store

CUBE = Cube(["PRODUCT_ID", "DAY"], ["WEEK"], "bench", index_columns=["BRAND"], suppress_index_on=["PRODUCT_ID", "DAY"])
WEEKS = 50


def tables(rows: int) -> dict[str, pa.Table]:
    """A seed, two enrichments of its cells and one of products."""
    rng = np.random.default_rng(1)
    per_week = rows // WEEKS
    product, week = np.tile(np.arange(per_week) // 7, WEEKS), np.repeat(np.arange(WEEKS), per_week)
    day = np.tile(np.arange(per_week) % 7, WEEKS) + 7 * week
    cells = {"PRODUCT_ID": product, "DAY": day, "WEEK": week}
    seed = pa.table({**cells, "UNITS": rng.integers(0, 99, len(day)), "SALES": rng.random(len(day))})
    stock = pa.table({**cells, "STOCK": rng.integers(0, 99, len(day))})
    some = np.flatnonzero(rng.random(len(day)) < 0.6)
    forecast = pa.table({**cells, "FORECAST": rng.random(len(day))}).take(pa.array(some))
    products = pa.table({"PRODUCT_ID": np.unique(product), "BRAND": [f"brand {p % 97}" for p in np.unique(product)]})
    return {"seed": seed, "stock": stock, "forecast": forecast, "products": products}


def write_with_pyarrow(data: dict[str, pa.Table], folder: Path) -> None:
    """The same partitions as plain files."""
    for name, table in data.items():
        target = folder / name
        target.mkdir(parents=True, exist_ok=True)
        if "WEEK" not in table.column_names:
            pq.write_table(table, target / "all.parquet", compression="zstd")
            continue
        starts = np.searchsorted(table.column("WEEK").to_numpy(), np.arange(WEEKS + 1))
        for week in range(WEEKS):
            part = table.slice(starts[week], starts[week + 1] - starts[week]).drop_columns(["WEEK"])
            pq.write_table(part, target / f"{week}.parquet", compression="zstd")


def read_raw(store: Store) -> int:
    """All files of the cube with pyarrow alone."""
    files = [key for keys in plan_cube_query(CUBE, store).files().values() for key in keys]
    return sum(pq.ParquetFile(store.local_path(key)).read(use_threads=False).num_rows for key in files)


def duckdb_join(root: Path, where: str = "", order: str = "") -> pa.Table:
    """The query system's whole-cube join in SQL."""
    scan = {n: f"read_parquet('{root}/bench++{n}/table/**/*.parquet', hive_partitioning=true) as {n}" for n in ("seed", "stock", "forecast", "products")}
    sql = f"""select * from {scan["seed"]} left join {scan["stock"]} using (WEEK, PRODUCT_ID, DAY) left join {scan["forecast"]} using (WEEK, PRODUCT_ID, DAY)
        left join {scan["products"]} using (PRODUCT_ID) {where} {order}"""
    return duckdb.sql(sql).to_arrow_table()


def main(rows: int) -> None:
    """Print the table."""
    duckdb.sql("set threads = 2")
    data = tables(rows)
    with tempfile.TemporaryDirectory() as folder:
        root, plain = Path(folder) / "cube", Path(folder) / "plain"
        store = open_store(root, fsync=False)

        def build() -> object:
            return build_cube(data, CUBE, store, partition_on={"products": []}, overwrite=True)

        built = best_of({"ours": build, "pyarrow": lambda: write_with_pyarrow(data, plain)}, 2)
        works = {
            "whole": lambda: query_cube_arrow(CUBE, store),
            "raw": lambda: read_raw(store),
            "whole, DuckDB": lambda: duckdb_join(root, order="order by PRODUCT_ID, DAY, WEEK"),
            "one week": lambda: query_cube_arrow(CUBE, store, C("WEEK") == 7),
            "one week, DuckDB": lambda: duckdb_join(root, where="where WEEK = 7"),
            "brand": lambda: query_cube_arrow(CUBE, store, C("BRAND") == "brand 5"),
            "brand, DuckDB": lambda: duckdb_join(root, where="where BRAND = 'brand 5'"),
        }
        build()
        t = best_of(works, 3)
    show(
        [
            (f"build {rows:,} rows, 4 datasets", built["ours"], "pyarrow, same partitions", built["pyarrow"]),
            ("whole cube in dimension order", t["whole"], "pyarrow, reading only", t["raw"]),
            ("whole cube in dimension order", t["whole"], "DuckDB, same join and order", t["whole, DuckDB"]),
            ("one partition of 50", t["one week"], "DuckDB", t["one week, DuckDB"]),
            ("one brand of 97", t["brand"], "DuckDB", t["brand, DuckDB"]),
        ]
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2_000_000)

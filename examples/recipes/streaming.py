"""A result larger than memory goes to a Parquet file and into another dataset, batch by batch.

`stream_cube` gives the rows of a query as Arrow batches, a few files ahead of the one that
you work on. `options(bytes_in_flight=...)` says how much may wait; writers that take a
generator are bound by it, too. What comes out is a `pyarrow.RecordBatchReader`, so DuckDB,
Polars and `pyarrow.dataset.write_dataset` take it as it is. `examples/streaming.py` shows
the other direction: a Spark stream that writes into a cube, exactly once.

    python streaming.py [store-url]        writes shop.parquet here
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from shop import CUBE, new_shop, store_from

from kartothek_cube import C, options, stream_cube
from kartothek_cube.api.dataset import read_table_arrow, store_dataframes_as_dataset__iter


def to_file(store: Any, path: str) -> int:
    """The sales of Germany as one Parquet file; returns its rows."""
    with stream_cube(CUBE, store, C("COUNTRY_CODE") == "DE") as batches, pq.ParquetWriter(path, batches.schema) as file:
        for batch in batches:
            file.write_batch(batch)
    return pq.read_metadata(path).num_rows


def prices(store: Any) -> Iterator[pa.Table]:
    """Something computed for each batch; only one is here at a time."""
    with stream_cube(CUBE, store, payload_columns=["UNITS", "TURNOVER"]) as batches:
        for batch in batches:
            rows = pa.table(batch)
            price = pc.round(pc.divide(rows["TURNOVER"], rows["UNITS"]), 2)
            yield rows.select(["COUNTRY_CODE", "PRODUCT_ID", "SALES_DATE"]).append_column("PRICE", price)


def main() -> None:
    """A file, and a dataset."""
    store = store_from()
    new_shop(store)
    with options(bytes_in_flight=64 << 20):
        print(f"shop.parquet has {to_file(store, 'shop.parquet'):,} rows")
        store_dataframes_as_dataset__iter(
            prices(store), store, "recipe_prices", partition_on=["COUNTRY_CODE"], overwrite=True
        )
    found = read_table_arrow("recipe_prices", store)
    print(
        f"the dataset recipe_prices has {found.num_rows:,} rows, "
        f"with prices from {pc.min(found['PRICE'])} to {pc.max(found['PRICE'])}"
    )


if __name__ == "__main__":
    main()

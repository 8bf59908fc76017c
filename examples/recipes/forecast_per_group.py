"""A forecast for each product and store of a brand, per group, which becomes one more dataset.

`partition_by` makes groups of any indexed column, whatever the partitions are. A group
comes as an Arrow table, the next ones are loaded meanwhile, and only a few are in memory.
The forecast becomes a dataset of its own beside the sales: it has its own commits, and a
new forecast replaces it without touching them. With Spark, `map_cube_groups` calls the same
function in the executors.

    python forecast_per_group.py [store-url]
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from shop import CUBE, new_shop, products, store_from

from kartothek_cube import C, extend_cube, iter_cube, query_cube

CELL = [*CUBE.dimension_columns, *CUBE.partition_columns]


def forecast(sales: pd.DataFrame) -> pd.DataFrame:
    """Per cell, the mean of its product, store and weekday over the four before, or unknown."""
    weekday = sales["SALES_DATE"].dt.day_of_week.rename("WEEKDAY")
    series = sales.sort_values("SALES_DATE").groupby(["PRODUCT_ID", "STORE_ID", weekday])["UNITS"]
    expected = series.transform(lambda units: units.shift().rolling(4, min_periods=1).mean())
    return sales[CELL].assign(EXPECTED=expected)


def forecasts(store: Any) -> Iterator[dict[str, pd.DataFrame]]:
    """One block a brand; nothing is gathered here."""
    for brand, rows in iter_cube(CUBE, store, partition_by="BRAND", payload_columns=["UNITS"]):
        print(f"{brand['BRAND']}: {rows.num_rows:,} rows")
        yield {"forecast": forecast(rows.to_pandas())}


def main() -> None:
    """Sales, products, forecast, and how good it was."""
    store = store_from()
    new_shop(store)
    cube = CUBE.copy(index_columns=["BRAND"])
    extend_cube({"products": products()}, cube, store, partition_on={"products": []})

    # Again tomorrow: overwrite=True replaces the dataset.
    extend_cube(forecasts(store), cube, store, overwrite=True)

    april = query_cube(
        cube,
        store,
        (C("MONTH") == "2024-04") & (C("EXPECTED") > 0.0),
        payload_columns=["UNITS", "EXPECTED", "DEPARTMENT"],
    )[0]
    error = (april["UNITS"] - april["EXPECTED"]).abs().groupby(april["DEPARTMENT"]).sum() / april["UNITS"].groupby(
        april["DEPARTMENT"]
    ).sum()
    print("mean error in April, of the units:")
    print((100 * error).round(1).astype(str).add(" %").to_string(header=False))


if __name__ == "__main__":
    main()

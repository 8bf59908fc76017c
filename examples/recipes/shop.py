"""The shared cube of the recipes: sales in six stores of two countries, invented but repeatable.

A recipe is `python examples/recipes/<name>.py [store-url]`; without an argument the store
is the directory `shop-data` here.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pandas as pd

from kartothek_cube import Cube, build_cube, delete_cube, list_cubes, open_store

CUBE = Cube(
    uuid_prefix="recipe_shop",
    seed_dataset="sales",
    dimension_columns=["PRODUCT_ID", "STORE_ID", "SALES_DATE"],
    partition_columns=["COUNTRY_CODE", "MONTH"],
)
COUNTRIES = {11: "DE", 12: "DE", 13: "DE", 14: "DE", 21: "FR", 22: "FR"}
PRICES = {1: 0.99, 2: 2.49, 3: 1.29, 4: 7.99, 5: 3.49, 6: 0.49, 7: 4.99, 8: 12.99}


def sales(first: Any, last: Any) -> pd.DataFrame:
    """What was sold from the first to the last day: a row for each day, product and store."""
    days = pd.date_range(first, last)
    names = ["SALES_DATE", "PRODUCT_ID", "STORE_ID"]
    cells = pd.MultiIndex.from_product([days, PRICES, COUNTRIES], names=names).to_frame(index=False)
    demand = [12 - product for product in PRICES for _ in COUNTRIES]
    units = np.concatenate([np.random.default_rng(day.toordinal()).poisson(demand) for day in days])
    rows = cells.assign(
        COUNTRY_CODE=cells["STORE_ID"].map(COUNTRIES),
        MONTH=cells["SALES_DATE"].dt.strftime("%Y-%m"),
        UNITS=units,
        TURNOVER=(units * cells["PRODUCT_ID"].map(PRICES)).round(2),
    )
    return rows[rows["UNITS"] > 0].reset_index(drop=True)


def sales_of(day: pd.Timestamp) -> pd.DataFrame:
    """What the stores sold on a day."""
    return sales(day, day)


def products() -> pd.DataFrame:
    """The master of products."""
    brands = ["Acme", "Bolt", "Acme", "Corda", "Bolt", "Acme", "Corda", "Corda"]
    departments = ["DAIRY", "DAIRY", "BAKERY", "MEAT", "MEAT", "BAKERY", "MEAT", "WINE"]
    return pd.DataFrame({"PRODUCT_ID": list(PRICES), "BRAND": brands, "DEPARTMENT": departments})


def store_from() -> Any:
    """The store that the command line names."""
    return open_store(sys.argv[1] if len(sys.argv) > 1 else "hfs://shop-data")


def new_shop(store: Any, first: str = "2024-03-01", last: str = "2024-04-30") -> None:
    """The cube with its sales; one that is there is replaced."""
    if CUBE.uuid_prefix in list_cubes(store):
        delete_cube(CUBE, store)
    build_cube({"sales": sales(first, last)}, CUBE, store)


def units(frame: pd.DataFrame) -> int:
    """All units of a result."""
    return int(frame["UNITS"].sum())

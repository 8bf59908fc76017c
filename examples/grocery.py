"""A year of grocery sales as a cube, end to end through Spark.

Read it from top to bottom; run it with ``make demo`` or ``python examples/grocery.py``.

The cube's cells are product × store × week. Its seed, ``sales``, says which cells exist: something
was sold. Six more datasets join it by the columns that they share with it, and all of them read as
one wide table of 40 columns. The story is what happens to such a cube in practice: it is built
while the last four weeks are still a forecast, extended, looked at, corrected, used for a job per
department whose result becomes a part of it, reported on, and asked in SQL.

    python examples/grocery.py --size small            three periods of four weeks instead of
    thirteen python examples/grocery.py --store /data/grocery   keep the cube
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import grocery_chart
import grocery_figures
import grocery_tables
import numpy as np
import pandas as pd
import pyarrow as pa
from grocery_report import Report, say, table
from grocery_spark import start_sail, start_spark
from grocery_tables import Source, find_source
from pyspark.sql import functions as F

from kartothek_cube import C, Cube, cleanup_cube, collect_stats, iter_cube, list_cubes, plan_cube_query, query_cube
from kartothek_cube.spark import (
    append_to_cube_from_spark,
    build_cube_from_spark,
    extend_cube_from_spark,
    map_cube_groups,
    register,
    update_cube_from_spark,
)

CUBE = Cube(
    uuid_prefix="grocery",
    seed_dataset="sales",
    dimension_columns=["PRODUCT_ID", "STORE_ID", "WEEK"],
    partition_columns=["PERIOD", "STORE_GROUP"],
    index_columns=["DEPARTMENT", "BRAND", "MAILER", "CAMPAIGN_TYPE", "STORE_CLASS", "RESPONSE_CLASS"],
)

PERIODS = {"full": 13, "small": 3}
LARGEST = {13: "A", 3: "C"}
"""The class of the largest stores by visits. In three periods no store gets beyond C."""


def story(source: Source, store: str, chart: Path, report: Report) -> grocery_figures.Figures:
    """Everything that happens to the cube. Returns the figures by which it is judged."""
    last = source.periods
    meat = (C("DEPARTMENT") == "MEAT") & (C("STORE_CLASS") == LARGEST[last]) & (C("PERIOD") < last)

    with report.step(
        "Build",
        "The sales as first delivered, where the last period is a copy of the one before, "
        "and the masters of products and stores.",
    ):
        build_cube_from_spark(
            {
                "sales": grocery_tables.first_delivery(source),
                "products": grocery_tables.products(source),
                "stores": grocery_tables.stores(source),
            },
            CUBE,
            store,
            partition_on={"products": [], "stores": ["STORE_GROUP"]},
        )
        show_datasets(store, "sales", "products", "stores")
        figures = grocery_figures.first_delivery(CUBE, store)

    with report.step(
        "Extend",
        "Promotions of the periods that are over, coupons, and the traffic in the stores. "
        "Nothing that is there is written again.",
    ):
        extend_cube_from_spark(
            {
                "promotions": grocery_tables.promotions(source).where(F.col("PERIOD") < last),
                "coupons": grocery_tables.coupons(source),
                "traffic": grocery_tables.traffic(source),
            },
            CUBE,
            store,
            partition_on={"coupons": ["PERIOD"], "traffic": ["STORE_GROUP", "PERIOD"]},
        )
        show_datasets(store, "promotions", "coupons", "traffic")

    with report.step(
        "Plan",
        "Which files would a question read? Meat that was in a mailer, in the largest stores. "
        "The plan reads indices, but no data.",
    ):
        in_mailer = C("MAILER") != "0"
        say(plan_cube_query(CUBE, store, meat & in_mailer, payload_columns=["UNITS", "SALES_VALUE"]).explain())
        say()

    with report.step("Ask", "Does the mailer sell meat in the largest stores?"):
        show_mailer(query_cube(CUBE, store, meat, payload_columns=["UNITS", "SALES_VALUE", "MAILER"])[0])

    with report.step(
        "Update",
        f"The real sales of period {last} replace their stand-ins in one commit; "
        "then the promotions of that period are appended.",
    ):
        update_cube_from_spark(
            {"sales": grocery_tables.sales(source).where(F.col("PERIOD") == last)},
            CUBE,
            store,
            remove_conditions=C("PERIOD") == last,
        )
        append_to_cube_from_spark(
            {"promotions": grocery_tables.promotions(source).where(F.col("PERIOD") == last)}, CUBE, store
        )
        show_datasets(store, "sales", "promotions")

    with report.step(
        "Compute",
        "How do the products respond to price and promotion? "
        "One pandas function, called for each department in the executors.",
    ):
        payload = ["UNITS", "SALES_VALUE", "PRICE", "DISPLAY"]
        responses = map_cube_groups(
            response, RESPONSE_SCHEMA, CUBE, store, partition_by="DEPARTMENT", payload_columns=payload
        )
        extend_cube_from_spark({"response": responses}, CUBE, store, partition_on={"response": []}, shuffle=True)
        show_datasets(store, "response")

    with report.step(
        "Report", "The result is a part of the cube now: sales by class of response, and where promotion pays."
    ):
        products = sales_by_product(store)
        show_classes(products)
        say(grocery_chart.save_chart(grocery_chart.summarise(products), chart))
        say(f"Chart: {chart}\n ")

    with report.step(
        "SQL",
        "Who knows SQL asks Spark: the cube is a data source like any other. Here the departments that sell best.",
    ):
        register(source.spark)
        source.spark.sql(BEST_SELLERS_VIEW.format(store=store))
        table(("department", "units", "sales in $"), [tuple(row) for row in source.spark.sql(BEST_SELLERS).collect()])

    with report.step(
        "Look after it",
        "What the cube consists of, and which files nobody needs any more. A dry run: nothing is removed.",
    ):
        show_datasets(store, "sales", "products", "stores", "promotions", "coupons", "traffic", "response")
        say(f"{cleanup_cube(CUBE, store, dry_run=True)}\n ")

    with report.step(
        "Check",
        "All seven datasets as one table, held against figures that were computed from the source by other means.",
    ):
        figures |= grocery_figures.finished(CUBE, store)
        table(("figure", "value"), list(figures.items()))
    return figures


BEST_SELLERS_VIEW = (
    "CREATE TEMPORARY VIEW grocery USING kartothek_cube "
    "OPTIONS (path '{store}', cube 'grocery', columns 'DEPARTMENT,UNITS,SALES_VALUE')"
)
BEST_SELLERS = (
    "SELECT DEPARTMENT, SUM(UNITS), ROUND(SUM(SALES_VALUE)) AS SALES FROM grocery "
    "GROUP BY DEPARTMENT ORDER BY SALES DESC LIMIT 5"
)

RESPONSE_SCHEMA = (
    "PRODUCT_ID bigint, CELLS bigint, ELASTICITY double, PROMO_CELLS bigint, PROMO_UPLIFT double, RESPONSE_CLASS string"
)


def response(key: dict[str, Any], sales: pd.DataFrame) -> pd.DataFrame:  # noqa: ARG001 - which department it is makes no difference
    """How the products of a department respond to price and to promotion.

    Only products with at least 50 cells in which something was sold for money. The price elasticity
    is the slope of the units over the price, both as logarithms, and unknown with fewer than three
    prices. The uplift compares the mean units of promoted cells with those of the other cells of
    the stores that have promotions; it is unknown with fewer than ten promoted cells.
    """
    cells = sales[(sales["UNITS"] > 0) & (sales["SALES_VALUE"] > 0)]
    cells = cells[cells.groupby("PRODUCT_ID")["UNITS"].transform("size") >= 50]
    product, units, promoted = cells["PRODUCT_ID"], cells["UNITS"], cells["DISPLAY"].notna()

    x, y = np.log(cells["PRICE"]), np.log(units)
    x, y = x - x.groupby(product).transform("mean"), y - y.groupby(product).transform("mean")
    slope = (x * y).groupby(product).sum() / (x * x).groupby(product).sum()
    elasticity = slope.where(cells.groupby("PRODUCT_ID")["PRICE"].nunique() >= 3).round(6)

    promo_cells = promoted.groupby(product).sum()
    unpromoted = ~promoted & (cells["STORE_GROUP"] == "MAIN")
    uplift = units.where(promoted).groupby(product).mean() / units.where(unpromoted).groupby(product).mean()
    result = pd.DataFrame(
        {
            "CELLS": product.groupby(product).size(),
            "ELASTICITY": elasticity,
            "PROMO_CELLS": promo_cells,
            "PROMO_UPLIFT": uplift.where(promo_cells >= 10),
        }
    )
    classes = [elasticity.isna(), elasticity < -1, elasticity < 0]
    return result.assign(RESPONSE_CLASS=np.select(classes, ["unknown", "elastic", "inelastic"], "flat")).reset_index(
        names="PRODUCT_ID"
    )


def show_datasets(store: str, *datasets: str) -> None:
    """Rows, partitions, files and size of some datasets."""
    stats = collect_stats(CUBE, store, datasets)
    rows = [
        (name, s["rows"], s["partitions"], s["files"], s["blobsize"] / 1e6)
        for name, s in ((name, stats[name]) for name in datasets)
    ]
    table(("dataset", "rows", "partitions", "files", "MB"), rows)


def show_mailer(cells: pd.DataFrame) -> None:
    """Units and sales of a cell with and without mailer."""
    mailer = cells["MAILER"].fillna("0").ne("0").map({True: "in the mailer", False: "not in it"})
    answer = cells.groupby(mailer).agg(cells=("UNITS", "size"), units=("UNITS", "mean"), sales=("SALES_VALUE", "mean"))
    rows = [(str(name), int(row.cells), float(row.units), float(row.sales)) for name, row in answer.iterrows()]
    table(("product, store and week", "cells", "units in each", "$ in each"), rows)


def sales_by_product(store: str) -> pd.DataFrame:
    """The products with a known response: class, uplift, units, sales, and promoted sales."""
    payload = ["DEPARTMENT", "UNITS", "SALES_VALUE", "DISPLAY", "PROMO_UPLIFT"]
    groups = [
        by_product(cells) for _, cells in iter_cube(CUBE, store, partition_by="RESPONSE_CLASS", payload_columns=payload)
    ]
    return pd.concat(groups, ignore_index=True)


def by_product(cells: pa.Table) -> pd.DataFrame:
    """One row a product, of one row a cell."""
    frame: pd.DataFrame = cells.to_pandas()
    frame["PROMOTED_SALES"] = frame["SALES_VALUE"].where(frame["DISPLAY"].notna(), 0.0)
    master = ["RESPONSE_CLASS", "DEPARTMENT", "PRODUCT_ID", "PROMO_UPLIFT"]
    return frame.groupby(master, dropna=False, as_index=False)[["UNITS", "SALES_VALUE", "PROMOTED_SALES"]].sum()


def show_classes(products: pd.DataFrame) -> None:
    """Units and sales by class of response."""
    classes = products.groupby("RESPONSE_CLASS")
    answer = classes.agg(
        products=("PRODUCT_ID", "size"),
        units=("UNITS", "sum"),
        sales=("SALES_VALUE", "sum"),
        uplift=("PROMO_UPLIFT", "median"),
    )
    rows = [
        (str(name), int(row.products), int(row.units), round(row.sales), f"{100 * (row.uplift - 1):+.0f} %")
        for name, row in answer.iterrows()
    ]
    table(("response to price", "products", "units", "sales in $", "units when promoted"), rows)


def main() -> None:
    """Read the arguments, run the story, and fail if the cube is not what it should be."""
    arguments = parse_arguments()
    with tempfile.TemporaryDirectory(prefix="grocery-") as folder:
        store = place(arguments.store or str(Path(folder) / "store"))
        if CUBE.uuid_prefix in list_cubes(store):
            sys.exit(
                f"There is a cube {CUBE.uuid_prefix!r} in {store} already. Name another store, or remove that cube."
            )
        periods = PERIODS[arguments.size]
        print(
            f"A grocery cube of {periods} periods of four weeks. "
            "Data: Complete Journey (84.51°), realistic but simulated, for research and education."
        )
        print(f"Store: {store}" + ("" if arguments.store else ", removed at the end; STORE=<url> keeps the cube"))
        report = Report()
        with report.step("Start", f"{arguments.engine.capitalize()}, on all cores of this machine."):
            spark = start_sail() if arguments.engine == "sail" else start_spark(Path(folder))
        try:
            figures = story(Source(spark, find_source(), periods), store, arguments.chart, report)
        finally:
            spark.stop()
    report.summary()
    judge(figures, periods)


def judge(figures: grocery_figures.Figures, periods: int) -> None:
    """Say that the cube is right, or fail with what is wrong."""
    wrong = grocery_figures.differences(figures, grocery_figures.EXPECTED[periods])
    if wrong:
        sys.exit("\n".join(["\nThe cube is not what it should be:", *(f"  {line}" for line in wrong)]))
    print(f"\nAll {len(figures)} figures are as they should be.")


def parse_arguments() -> argparse.Namespace:
    """Arguments of the command line, with defaults from the environment."""
    parser = argparse.ArgumentParser(
        description="Build, extend, update, query and judge a cube of grocery sales with Spark."
    )
    parser.add_argument(
        "--size",
        choices=list(PERIODS),
        default=os.environ.get("SIZE") or "full",
        help="a year, or its first three periods (default: full)",
    )
    parser.add_argument(
        "--engine",
        choices=["spark", "sail"],
        default=os.environ.get("ENGINE") or "spark",
        help="what runs it; sail needs no Java (default: spark)",
    )
    parser.add_argument(
        "--store",
        default=os.environ.get("STORE"),
        help="URL or directory that keeps the cube (default: a temporary directory)",
    )
    parser.add_argument(
        "--chart", type=Path, default=Path("grocery.png"), help="where the chart is saved (default: grocery.png)"
    )
    arguments = parser.parse_args()
    if arguments.size not in PERIODS:  # argparse does not look at defaults
        parser.error(f"SIZE is {' or '.join(PERIODS)}, not {arguments.size!r}")
    return arguments


def place(store: str) -> str:
    """The store's address as Spark's tasks understand it: a directory by its full path."""
    return store if "://" in store else f"hfs://{Path(store).resolve()}"


if __name__ == "__main__":
    main()

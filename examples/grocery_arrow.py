"""Three tables of the grocery cube, prepared with Arrow instead of Spark.

Names, types and meanings are those of ``grocery_tables``; it has less columns.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from grocery_tables import PERIODS, find_source

NAMES = {"product_id": "PRODUCT_ID", "store_id": "STORE_ID", "week": "WEEK"}
CELL = ["PERIOD", "STORE_GROUP", *NAMES.values()]


def sales(weeks: int) -> pa.Table:
    """What was sold of a product in a store in a week, in the first weeks of the year.

    Money is added up in whole cents.
    """
    rows = _source("transactions", [*NAMES, "quantity", "sales_value"], weeks)
    rows = rows.append_column("cents", pc.round(pc.multiply(rows["sales_value"], 100)).cast(pa.int64()))
    cells = rows.group_by(list(NAMES)).aggregate([("quantity", "sum"), ("cents", "sum")])
    units, paid = cells["quantity_sum"], cells["cents_sum"].cast(pa.float64())
    some_units = pc.if_else(pc.equal(units, 0), pa.scalar(None, pa.int64()), units)
    return _cells(
        cells, UNITS=units, SALES_VALUE=pc.divide(paid, 100.0), PRICE=pc.divide(paid, pc.multiply(some_units, 100))
    )


def first_delivery(sales: pa.Table, period: int) -> pa.Table:
    """The sales of an unfinished period: the period before, moved on by four weeks, stands in."""
    known = sales.filter(pc.less(sales["PERIOD"], period))
    stand_in = known.filter(pc.equal(known["PERIOD"], period - 1))
    for column, step in {"PERIOD": 1, "WEEK": 4}.items():
        stand_in = stand_in.set_column(stand_in.column_names.index(column), column, pc.add(stand_in[column], step))
    return pa.concat_tables([known, stand_in])


def products() -> pa.Table:
    """The product master, unsold products included."""
    rows = _source("products", ["product_id", "department", "brand", "product_category"])
    return rows.rename_columns(["PRODUCT_ID", "DEPARTMENT", "BRAND", "CATEGORY"])


def promotions(weeks: int) -> pa.Table:
    """Where a product stood out in the store and in the mailer, if the store ever sold the product.

    ``"0"`` means nowhere.
    """
    pair = ["product_id", "store_id"]
    sold = _source("transactions", pair, weeks).group_by(pair).aggregate([])
    rows = _source("promotions", [*NAMES, "display_location", "mailer_location"], weeks).join(
        sold, pair, join_type="left semi"
    )
    cells = rows.group_by(list(NAMES)).aggregate([("display_location", "max"), ("mailer_location", "max")])
    return _cells(cells, DISPLAY=cells["display_location_max"], MAILER=cells["mailer_location_max"])


def _source(name: str, columns: list[str], weeks: int | None = None) -> pa.Table:
    return pq.read_table(
        find_source() / f"{name}.parquet", columns=columns, filters=None if weeks is None else [("week", "<=", weeks)]
    )


def _cells(rows: pa.Table, **payload: pa.ChunkedArray) -> pa.Table:
    """A table of cells: where they are, and what they have."""
    main_stores = pc.unique(_source("promotions", ["store_id"])["store_id"])
    period = pc.min_element_wise(pc.add(pc.divide(pc.subtract(rows["week"], 1), 4), 1), PERIODS)
    group = pc.if_else(pc.is_in(rows["store_id"], value_set=main_stores), "MAIN", "OTHER")
    where = {name: rows[column] for column, name in NAMES.items()}
    return pa.table({"PERIOD": period, "STORE_GROUP": group, **where, **payload})

"""Grocery sales for the command `demo`, invented: the same rows for the same seed."""

from __future__ import annotations

from datetime import date, timedelta
from typing import TYPE_CHECKING, SupportsInt

if TYPE_CHECKING:
    import pyarrow as pa


PRODUCTS, STORES, WEEKS = 120, 8, 26
FIRST_WEEK = date(2024, 1, 1)  # a Monday
# Department → how its sales swing over half a year.
_DEPARTMENTS = {"BAKERY": 0.05, "DAIRY": 0.1, "DRINKS": 0.6, "FROZEN": 0.4, "PRODUCE": 0.3}
_BRANDS = ("Acme", "Bolt", "Corner", "Daily", "Elm")
_MAILERS = ("front page", "inside", "leaflet")
# Leaflets begin in June, so that their index leaves out files: it has no other month.
_FIRST_LEAFLET = 22
_SHARE_OFFERED, _SHARE_SOLD = 0.1, 0.8


def products(seed: int = 0) -> pa.Table:
    """One row a product."""
    import numpy as np
    import pyarrow as pa

    numbers = np.arange(PRODUCTS)
    prices = np.round(np.random.default_rng(seed).lognormal(0.9, 0.5, PRODUCTS), 2)
    return pa.table(
        {
            "PRODUCT_ID": numbers + 1,
            "BRAND": [_BRANDS[n % len(_BRANDS)] for n in numbers * 7 // 3],
            "DEPARTMENT": [list(_DEPARTMENTS)[n % len(_DEPARTMENTS)] for n in numbers],
            "PRICE": prices,
        }
    )


def promotions(seed: int = 0) -> pa.Table:
    """Which product was advertised in which week, and where: a tenth of them."""
    import numpy as np
    import pyarrow as pa

    random = np.random.default_rng(seed + 1)
    week, product = np.nonzero(random.random((WEEKS, PRODUCTS)) < _SHARE_OFFERED)
    return pa.table(
        {
            "PRODUCT_ID": product + 1,
            "WEEK": [_monday(number) for number in week],
            "PERIOD": [_monday(number).strftime("%Y-%m") for number in week],
            "MAILER": [_MAILERS[n] for n in random.integers(0, len(_MAILERS) - (week < _FIRST_LEAFLET))],
        }
    )


def sales(seed: int = 0) -> pa.Table:
    """Units by product, store and week, with seasons, larger and smaller stores, and offers."""
    import numpy as np
    import pyarrow as pa

    random = np.random.default_rng(seed + 2)
    week, store, product = np.nonzero(random.random((WEEKS, STORES, PRODUCTS)) < _SHARE_SOLD)
    swing = np.array([list(_DEPARTMENTS.values())[n % len(_DEPARTMENTS)] for n in range(PRODUCTS)])
    offers = promotions(seed)
    days = np.array([(day - FIRST_WEEK).days for day in offers["WEEK"].to_pylist()])
    lift = np.ones((WEEKS, PRODUCTS))
    lift[days // 7, offers["PRODUCT_ID"].to_numpy() - 1] = 2.5
    season = 1 - swing[product] * np.cos(week / WEEKS * np.pi)
    mean = 6 * season * lift[week, product] * (0.5 + store / STORES)
    units = random.poisson(mean) + 1
    values = np.round(units * products(seed)["PRICE"].to_numpy()[product], 2)
    return pa.table(
        {
            "PRODUCT_ID": product + 1,
            "STORE_ID": store + 1,
            "WEEK": [_monday(number) for number in week],
            "PERIOD": [_monday(number).strftime("%Y-%m") for number in week],
            "UNITS": units,
            "SALES_VALUE": values,
        }
    )


def late_sales(seed: int = 0) -> pa.Table:
    """Newer rows of one store in the last week: one unit more of each product."""
    import pyarrow.compute as pc

    rows = sales(seed)
    rows = rows.filter(pc.and_(pc.equal(rows["STORE_ID"], 1), pc.equal(rows["WEEK"], _monday(WEEKS - 1))))
    return rows.set_column(rows.schema.get_field_index("UNITS"), "UNITS", pc.add(rows["UNITS"], 1))


def _monday(number: SupportsInt) -> date:
    return FIRST_WEEK + timedelta(weeks=int(number))

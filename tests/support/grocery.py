"""A small cube of grocery sales: invented rows, columns and partitions of the demo."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd

from kartothek_cube.api.cube import Cube

CUBE = Cube(
    uuid_prefix="grocery",
    seed_dataset="sales",
    dimension_columns=["PRODUCT_ID", "STORE_ID", "WEEK"],
    partition_columns=["PERIOD", "STORE_GROUP"],
    index_columns=["DEPARTMENT", "BRAND", "MAILER", "CAMPAIGN_TYPE", "STORE_CLASS", "RESPONSE_CLASS"],
)
PARTITION_ON = {"products": [], "stores": ["STORE_GROUP"], "coupons": ["PERIOD"], "traffic": ["STORE_GROUP", "PERIOD"]}
PERIODS = (1, 2, 3)
DEPARTMENTS = np.array(["GROCERY", "MEAT", "CNTRL/STORE SUP", "ELECT &PLUMBING", "PRODUCE"])

# Both libraries answer each of these queries.
QUERIES = {
    "everything": "{}",
    "condition on an index of an enrichment": (
        "dict(conditions=(C('MAILER') == 'A') & (C('DEPARTMENT') == 'CNTRL/STORE SUP'))"
    ),
    "one frame a department": (
        "dict(partition_by='DEPARTMENT', payload_columns=['UNITS', 'SALES_VALUE', 'PRICE', 'DISPLAY'])"
    ),
    "projection": (
        "dict(dimension_columns=['STORE_ID', 'WEEK'], payload_columns=['VISITS', 'KIDS_SHARE', 'STORE_CLASS'])"
    ),
    "condition on payload of the seed": (
        "dict(conditions=(C('SALES_VALUE') > 20.0) & (C('STORE_CLASS') == 'A'), "
        "payload_columns=['UNITS', 'LAST_SOLD', 'COUPONS'])"
    ),
    "groups of a partition and an index column": (
        "dict(partition_by=['PERIOD', 'CAMPAIGN_TYPE'], conditions=C('WEEK') > 5, payload_columns=['REACH'])"
    ),
}


def cube_json() -> str:
    """The cube in the options of the command line."""
    names = (
        "dimension_columns",
        "partition_columns",
        "uuid_prefix",
        "seed_dataset",
        "index_columns",
        "suppress_index_on",
    )
    return json.dumps(
        {
            name: value if isinstance(value := getattr(CUBE, name), str) else sorted(value, key=list(value).index)
            for name in names
        }
    )


def products() -> pd.DataFrame:
    """50 products; some have no category."""
    ids = np.arange(1, 51)
    category = [None if i % 7 == 0 else f"C{i % 9}" for i in ids]
    brand = np.where(ids % 3 == 0, "National", "Private")
    return pd.DataFrame(
        {
            "PRODUCT_ID": ids,
            "DEPARTMENT": DEPARTMENTS[ids % 5],
            "BRAND": brand,
            "MANUFACTURER_ID": ids * 11,
            "CATEGORY": category,
        }
    )


def stores() -> pd.DataFrame:
    """Twelve stores, eight of them with promotions."""
    ids = np.arange(301, 313)
    classes = np.array(["A", "B", "C", "D"])[ids % 4]
    return pd.DataFrame(
        {
            "STORE_ID": ids,
            "STORE_GROUP": group_of(ids),
            "STORE_CLASS": classes,
            "FIRST_WEEK": ids % 3 + 1,
            "FIRST_SALE": moments(ids),
        }
    )


def group_of(store_ids: Any) -> Any:
    """The store group of each store."""
    return np.where(np.asarray(store_ids) <= 308, "MAIN", "OTHER").astype(object)


def moments(numbers: Any) -> Any:
    """Random whole seconds of 2017."""
    return pd.to_datetime("2017-01-01") + pd.to_timedelta(np.asarray(numbers) * 1237, unit="s")


def cells(periods: Any, share: float, seed: int) -> pd.DataFrame:
    """Some cells of some periods, with their partition columns."""
    grid = [
        (p, s, w)
        for w in range(1, 4 * max(periods) + 1)
        if (w - 1) // 4 + 1 in periods
        for s in range(301, 313)
        for p in range(1, 56)
    ]
    picked = np.random.default_rng(seed).random(len(grid)) < share
    frame = pd.DataFrame(np.array(grid)[picked], columns=["PRODUCT_ID", "STORE_ID", "WEEK"])
    return frame.assign(PERIOD=(frame["WEEK"] - 1) // 4 + 1, STORE_GROUP=group_of(frame["STORE_ID"]))


def sales(periods: Any = PERIODS, share: float = 0.65, seed: int = 1) -> pd.DataFrame:
    """The seed; a cell without units has no price."""
    frame, rng = cells(periods, share, seed), np.random.default_rng(seed)
    units, cents = rng.integers(0, 6, len(frame)), rng.integers(1, 4000, len(frame))
    price = np.where(units == 0, np.nan, cents / 100 / np.maximum(units, 1))
    baskets = (units % 3 + 1).astype("int32")
    return frame.assign(
        UNITS=units,
        SALES_VALUE=cents / 100,
        PRICE=price,
        BASKETS=baskets,
        LAST_SOLD=moments(rng.integers(0, 20000, len(frame))),
    )


def promotions(periods: Any = PERIODS, seed: int = 2) -> pd.DataFrame:
    """Promotions of the main stores only, some of them for cells without sales."""
    frame, rng = cells(periods, 0.2, seed), np.random.default_rng(seed)
    frame = frame[frame["STORE_GROUP"] == "MAIN"].reset_index(drop=True)
    display, mailer = (
        np.array(letters)[rng.integers(0, 3, len(frame))] for letters in (["0", "5", "9"], ["0", "A", "D"])
    )
    return frame.assign(DISPLAY=display, MAILER=mailer, FEATURED=(display != "0") & (mailer != "0"))


def coupons(periods: Any = PERIODS) -> pd.DataFrame:
    """Coupons by product and week."""
    frame = (
        cells(periods, 0.3, 3)[["PRODUCT_ID", "WEEK", "PERIOD"]]
        .drop_duplicates(["PRODUCT_ID", "WEEK"])
        .reset_index(drop=True)
    )
    kind = np.where(frame["PRODUCT_ID"] % 2 == 0, "Type A", "Type B")
    return frame.assign(
        COUPONS=(frame["WEEK"] % 3 + 1).astype("int32"), REACH=frame["PRODUCT_ID"] * 7, CAMPAIGN_TYPE=kind
    )


def traffic(periods: Any = PERIODS) -> pd.DataFrame:
    """Traffic by store and week."""
    frame = (
        cells(periods, 1.0, 4)[["STORE_ID", "WEEK", "PERIOD", "STORE_GROUP"]]
        .drop_duplicates(["STORE_ID", "WEEK"])
        .reset_index(drop=True)
    )
    share = np.where(frame["WEEK"] % 5 == 0, np.nan, frame["WEEK"] / 50)
    return frame.assign(VISITS=frame["STORE_ID"] * 3 + frame["WEEK"], KIDS_SHARE=share)


def first_delivery() -> dict[str, pd.DataFrame]:
    """The datasets for `build_cube`."""
    return {"sales": sales(), "products": products(), "stores": stores()}


def enrichments() -> dict[str, pd.DataFrame]:
    """The datasets for `extend_cube`."""
    return {"promotions": promotions(), "coupons": coupons(), "traffic": traffic()}


def next_delivery(period: int, seed: int) -> dict[str, pd.DataFrame]:
    """One more period, with newer rows for some existing cells."""
    again = sales(share=0.65).iloc[:: 200 + seed].assign(UNITS=900 + seed)
    new = sales([period], 0.1, seed)
    return {"sales": pd.concat([new, again], ignore_index=True), "promotions": promotions([period], seed)}

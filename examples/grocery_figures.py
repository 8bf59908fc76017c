"""The figures of the finished cube, computed from the source by other means, and a comparison."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from kartothek_cube import C, Cube, iter_cube

Figures = dict[str, int | float]

EXPECTED: dict[int, Figures] = {
    13: {
        "cells of the first delivery": 1_312_808,
        "their sales": 4_499_579.95,
        "cells": 1_338_177,
        "columns": 40,
        "sales": 4_596_039.58,
        "units": 152_923_108,
        "cells with a coupon": 279_582,
        "cells with an elasticity": 819_571,
        "cells with a category": 1_332_613,
        "cells on display": 136_936,
        "departments": 30,
        "cells with a department": 1_334_628,
        "cells of GROCERY": 860_967,
        "cells of CNTRL/STORE SUP": 15,
        "cells of TOYS": 2,
        "elastic products": 236,
        "inelastic products": 3_794,
        "flat products": 1_390,
        "unknown products": 755,
        "median uplift, elastic": 1.24,
    },
    3: {
        "cells of the first delivery": 288_127,
        "their sales": 962_287.78,
        "cells": 289_317,
        "columns": 40,
        "sales": 963_032.83,
        "units": 30_064_467,
        "cells with a coupon": 16_115,
        "cells with an elasticity": 74_471,
        "cells with a category": 288_412,
        "cells on display": 29_667,
        "departments": 25,
        "cells with a department": 288_697,
        "cells of GROCERY": 187_362,
        "cells of CNTRL/STORE SUP": 1,
        "cells of TOYS": 0,
        "elastic products": 77,
        "inelastic products": 379,
        "flat products": 186,
        "unknown products": 166,
        "median uplift, elastic": 1.35,
    },
}
"""By number of periods; computed with DuckDB from the source tables."""


def first_delivery(cube: Cube, store: Any) -> Figures:
    """Size of the cube before the last period came true."""
    totals = _totals(table for _, table in iter_cube(cube, store, payload_columns=["SALES_VALUE"]))
    return {"cells of the first delivery": totals["rows"], "their sales": round(totals["SALES_VALUE"] / 100, 2)}


def finished(cube: Cube, store: Any) -> Figures:
    """Read the cube with all its columns, partition by partition, to spare memory."""
    return _everything(cube, store) | _departments(cube, store) | _responses(cube, store)


def differences(found: Figures, expected: Figures) -> list[str]:
    """What is not as it should be, one line a figure."""
    return [
        f"{name}: {found.get(name)} instead of {value}" for name, value in expected.items() if found.get(name) != value
    ]


def _everything(cube: Cube, store: Any) -> Figures:
    columns: set[str] = set()

    def watched() -> Iterable[pa.Table]:
        for _, table in iter_cube(cube, store):
            columns.update(table.column_names)
            yield table

    totals = _totals(watched())
    return {
        "cells": totals["rows"],
        "columns": len(columns),
        "sales": round(totals["SALES_VALUE"] / 100, 2),
        "units": totals["UNITS"],
        "cells with a coupon": totals["COUPONS"],
        "cells with an elasticity": totals["ELASTICITY"],
        "cells with a category": totals["CATEGORY"],
        "cells on display": sum(
            table.num_rows for _, table in iter_cube(cube, store, C("DISPLAY") != "0", payload_columns=["DISPLAY"])
        ),
    }


def _totals(tables: Iterable[pa.Table]) -> Counter[str]:
    """Rows, sums of cents and units, and numbers of values, over all tables."""
    totals: Counter[str] = Counter()
    for table in tables:
        totals["rows"] += table.num_rows
        totals["SALES_VALUE"] += pc.sum(pc.round(pc.multiply(table["SALES_VALUE"], 100.0)).cast("int64")).as_py()
        for name in {"COUPONS", "ELASTICITY", "CATEGORY"}.intersection(table.column_names):
            totals[name] += table.num_rows - table[name].null_count
        if "UNITS" in table.column_names:
            totals["UNITS"] += pc.sum(table["UNITS"]).as_py()
    return totals


def _departments(cube: Cube, store: Any) -> Figures:
    groups = iter_cube(cube, store, partition_by="DEPARTMENT", payload_columns=["UNITS"])
    cells = Counter({key["DEPARTMENT"]: table.num_rows for key, table in groups})
    named = {f"cells of {department}": cells[department] for department in ("GROCERY", "CNTRL/STORE SUP", "TOYS")}
    return {"departments": len(cells), "cells with a department": cells.total(), **named}


def _responses(cube: Cube, store: Any) -> Figures:
    tables = [
        table
        for _, table in iter_cube(
            cube, store, dimension_columns="PRODUCT_ID", partition_by="RESPONSE_CLASS", payload_columns=["PROMO_UPLIFT"]
        )
    ]
    products: pd.DataFrame = pa.concat_tables(tables).to_pandas().drop_duplicates("PRODUCT_ID")
    classes = Counter(products["RESPONSE_CLASS"])
    uplift = products.loc[products["RESPONSE_CLASS"] == "elastic", "PROMO_UPLIFT"].median()
    counts = {f"{name} products": classes[name] for name in ("elastic", "inelastic", "flat", "unknown")}
    return {**counts, "median uplift, elastic": round(float(uplift), 2)}

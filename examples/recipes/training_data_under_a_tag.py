"""A model was trained a month ago, and somebody asks which data it has seen.

The state of the cube gets the name of the model when it is trained. The cube goes on: days
are appended, a month is corrected, small files are merged, garbage is collected. The tag
keeps the files of its state, so that the same query gives the same rows a month later, to
explain a forecast, to repeat the training, or to compare it with the data of today.

    python training_data_under_a_tag.py [store-url]
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pandas as pd
from shop import CUBE, new_shop, sales, sales_of, store_from

from kartothek_cube import C, append_to_cube, cleanup_cube, list_cube_tags, options, query_cube, tag_cube, update_cube

MODEL = "demand-model-7"


def training_data(store: Any, as_of: str | None = None) -> pd.DataFrame:
    """What a model learns from: units by product and day."""
    columns = ["PRODUCT_ID", "SALES_DATE"]
    cells = query_cube(CUBE, store, payload_columns=["UNITS"], as_of=as_of)[0]
    return cells.groupby(columns, as_index=False)["UNITS"].sum()


def train(store: Any) -> float:
    """A model that could hardly be simpler, on a state that has its name from now on."""
    tag_cube(CUBE, store, MODEL)
    return float(training_data(store, as_of=MODEL)["UNITS"].mean())


def a_month_passes(store: Any) -> None:
    """New days, a corrected month, and no history."""
    for day in pd.date_range("2024-05-01", "2024-05-31"):
        append_to_cube({"sales": sales_of(day)}, CUBE, store)
    half = sales("2024-04-01", "2024-04-30").assign(UNITS=lambda rows: rows["UNITS"] // 2)
    update_cube({"sales": half}, CUBE, store, remove_conditions=C("MONTH") == "2024-04")
    cleanup_cube(CUBE, store, options=options(grace=timedelta(0), retain=timedelta(0)))


def main() -> None:
    """A training, a month, and the same training again."""
    store = store_from()
    new_shop(store, "2024-03-01", "2024-04-30")
    forecast = train(store)
    a_month_passes(store)

    print(list_cube_tags(CUBE, store)[["name", "time"]].to_string())
    again, today = (float(training_data(store, state)["UNITS"].mean()) for state in (MODEL, None))
    print(f"trained on {forecast:.2f} units a day, now again on {again:.2f}; the data of today have {today:.2f}")


if __name__ == "__main__":
    main()

"""Is the data as it should be? Checks for after the nightly load; a failure ends with exit code 1.

Four kinds: is the storage whole; is every cell there once; which cells has one dataset and
another one lacks; and how much has a number changed since the state before.

    python checks.py [store-url]
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pandas as pd
from shop import CUBE, new_shop, sales, sales_of, store_from

from kartothek_cube import append_to_cube, count_cube, extend_cube, query_cube, verify_cube
from kartothek_cube.api.dataset import history

CELL = [*CUBE.dimension_columns, *CUBE.partition_columns]
MOST = 0.25  # the share by which a country's turnover may change from one load to the next


def broken(store: Any) -> Iterator[str]:
    """Missing files, indices that miss rows, cells twice in a file; all data are read."""
    for finding in verify_cube(CUBE, store, deep=True).errors:
        yield f"{finding.key or finding.dataset}: {finding.message} {finding.mend}"


def repeated(frame: pd.DataFrame) -> Iterator[str]:
    """A query shows each cell once. What comes from elsewhere is checked before it is loaded."""
    again = frame.loc[frame.duplicated(CELL), CELL]
    if len(again):
        yield f"{len(again)} rows of the delivery repeat a cell, the first is {again.iloc[0].to_dict()}"


def lacking(store: Any, payload: str) -> Iterator[str]:
    """Cells of the seed without a value of an enrichment."""
    for month, rows in query_cube(CUBE, store, payload_columns=[payload])[0].groupby("MONTH"):
        if missing := int(rows[payload].isna().sum()):
            yield f"{month}: {missing} of {len(rows)} cells have no {payload}"


def changed(store: Any) -> Iterator[str]:
    """Turnover now against that before the last commit to the sales."""
    commits = history(CUBE.ktk_dataset_uuid("sales"), store)
    now, before = turnover(store), turnover(store, as_of=commits["commit"][1])
    for country in before.index:
        if abs(now[country] - before[country]) > MOST * before[country]:
            yield f"turnover of {country} went from {before[country]:,.0f} to {now[country]:,.0f}"


def turnover(store: Any, as_of: str | None = None) -> pd.Series:
    """By country, now or then."""
    rows = query_cube(CUBE, store, payload_columns=["TURNOVER"], as_of=as_of)[0]
    return rows.groupby("COUNTRY_CODE")["TURNOVER"].sum()


def main() -> None:
    """A load with faults in it, and what the checks say."""
    store = store_from()
    new_shop(store, "2024-03-01", "2024-04-29")
    weather = sales("2024-03-01", "2024-04-28")[CELL].assign(RAIN=0.5)
    extend_cube({"weather": weather}, CUBE, store)

    # The delivery has two rows twice, and the turnover of France in cents.
    day = sales_of(pd.Timestamp("2024-04-30"))
    day["TURNOVER"] = day["TURNOVER"].where(day["COUNTRY_CODE"] != "FR", 100 * day["TURNOVER"])
    found = list(repeated(pd.concat([day, day.head(2)])))
    append_to_cube({"sales": day}, CUBE, store)

    found += [*broken(store), *lacking(store, "RAIN"), *changed(store)]
    print(f"{count_cube(CUBE, store):,} rows, {len(found)} faults")
    sys.exit("\n".join(found) if found else 0)


if __name__ == "__main__":
    main()

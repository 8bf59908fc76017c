"""Every night one more day of sales arrives. Some nights fail, and some deliveries come twice.

The job asks the cube which of the last days it lacks, and appends those, each in one
commit: readers see all of a day or nothing of it. So it can be started again as often as
one likes, catches up on what it missed, and nobody keeps a list of what was loaded. Should
a day be loaded twice by two jobs at the same time, its cells are there once nevertheless:
the newest row of a cell wins. Many days make many small files; `compact_cube` joins those
of a month that is over.

    python daily_append.py [store-url]        start it twice: the second run finds everything there
"""

from __future__ import annotations

from typing import Any

import pandas as pd
from shop import CUBE, new_shop, sales_of, store_from

from kartothek_cube import C, append_to_cube, count_cube, list_cubes

TODAY = pd.Timestamp("2024-04-30")
LOOK_BACK = pd.Timedelta(days=14)


def lacking(store: Any, today: pd.Timestamp) -> list[pd.Timestamp]:
    """The days that the cube should have by now, and has no row of.

    The index on SALES_DATE answers most of it.
    """
    return [
        day for day in pd.date_range(today - LOOK_BACK, today) if not count_cube(CUBE, store, C("SALES_DATE") == day)
    ]


def load(store: Any, today: pd.Timestamp) -> list[pd.Timestamp]:
    """Append what is lacking."""
    found = lacking(store, today)
    for day in found:
        append_to_cube({"sales": sales_of(day)}, CUBE, store)
        print(f"appended {day:%Y-%m-%d}: the cube has {count_cube(CUBE, store):,} rows")
    return found


def main() -> None:
    """Tonight's run."""
    store = store_from()
    if CUBE.uuid_prefix not in list_cubes(store):
        new_shop(store, "2024-03-01", "2024-04-27")
    loaded = load(store, TODAY)
    print(f"{len(loaded)} days were lacking" if loaded else "no day is lacking")


if __name__ == "__main__":
    main()

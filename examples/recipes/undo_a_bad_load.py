"""Last night a load went wrong, and a good one came after it.

The bad one is taken back; the good one stays.

Every write is kept for a week with what it removed. `cube_history` lists them, `as_of=`
looks at the state before, and `undo_cube` makes a new write that is the bad one backwards,
in all of its datasets at once. It writes no data file and can be undone itself.

    python undo_a_bad_load.py [store-url]
"""

from __future__ import annotations

from typing import Any

import pandas as pd
from shop import CUBE, new_shop, sales_of, store_from

from kartothek_cube import C, append_to_cube, cube_history, query_cube, undo_cube, update_cube


def turnover(store: Any, as_of: str | None = None) -> float:
    """All turnover, now or then."""
    return float(query_cube(CUBE, store, payload_columns=["TURNOVER"], as_of=as_of)[0]["TURNOVER"].sum())


def suspect(store: Any) -> str:
    """The newest write that removed partitions, which no nightly load should."""
    writes = cube_history(CUBE, store)
    return str(writes.loc[writes["removed"] > 0, "commit"].iloc[0])


def main() -> None:
    """A bad load, a good one, and the bad one taken back."""
    store = store_from()
    new_shop(store, "2024-03-01", "2024-04-29")
    right = turnover(store)

    # Somebody replaces a whole month by one day.
    update_cube({"sales": sales_of(pd.Timestamp("2024-03-31"))}, CUBE, store, remove_conditions=C("MONTH") == "2024-03")
    append_to_cube({"sales": sales_of(pd.Timestamp("2024-04-30"))}, CUBE, store)
    print(f"turnover: {turnover(store):,.2f}, and it was {right:,.2f}")

    print(cube_history(CUBE, store)[["time", "datasets", "added", "removed"]].to_string())
    undo_cube(CUBE, store, suspect(store))
    print(
        f"undone: {turnover(store):,.2f}, which is {turnover(store) - right:,.2f} more than before: "
        "the day that was loaded rightly"
    )


if __name__ == "__main__":
    main()

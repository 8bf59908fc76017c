"""A repeated question reads too much: an index on its column lets the query read fewer files.

The plan says what a query would read, and which index decided it. An index can be built at
any time, from one column of each file, and every later write keeps it up to date. It pays
where a value is in few of the files, but between the least and the greatest value of many,
and it is what `partition_by` needs. An index that nobody uses costs a little at each write:
drop it.

    python add_an_index.py [store-url]
"""

from __future__ import annotations

from typing import Any

import pandas as pd
from shop import CUBE, new_shop, sales, store_from

from kartothek_cube import C, build_cube_index, drop_cube_index, extend_cube, open_cube, plan_cube_query, query_cube

QUESTION = C("CAMPAIGN") == "Easter"
CAMPAIGNS = {
    "2024-01": "Winter",
    "2024-02": "Winter",
    "2024-03": "Easter",
    "2024-04": "Spring",
    "2024-05": "Spring",
    "2024-06": "Summer",
}


def campaigns() -> pd.DataFrame:
    """Which cells were part of a campaign: one product in another one each month."""
    cells = sales("2024-01-01", "2024-06-30")[[*CUBE.dimension_columns, *CUBE.partition_columns]]
    cells = cells[cells["PRODUCT_ID"].isin([1, 4])]
    return cells.assign(CAMPAIGN=cells["MONTH"].map(CAMPAIGNS).where(cells["PRODUCT_ID"] == 1, "Clearance"))


def files_read(store: Any) -> int:
    """How many files the question reads. Asking costs documents and indices, no data."""
    return sum(map(len, plan_cube_query(CUBE, store, QUESTION).files().values()))


def main() -> None:
    """Ask without the index, with it, and without it again."""
    store = store_from()
    new_shop(store, "2024-01-01", "2024-06-30")
    extend_cube({"campaigns": campaigns()}, CUBE, store)
    before, rows = files_read(store), len(query_cube(CUBE, store, QUESTION)[0])

    build_cube_index(CUBE, store, "CAMPAIGN")
    print(f"files that are read: {before} without the index, {files_read(store)} with it")
    print(f"rows: {rows} without the index, {len(query_cube(CUBE, store, QUESTION)[0])} with it")

    # The cube as the store has it now knows the index, so it makes groups.
    cube = open_cube(CUBE.uuid_prefix, store)
    groups = query_cube(cube, store, partition_by="CAMPAIGN", payload_columns=["UNITS"])
    print({str(group["CAMPAIGN"].iloc[0]): int(group["UNITS"].sum()) for group in groups})

    drop_cube_index(cube, store, "CAMPAIGN")
    print(f"files that are read when it is dropped: {files_read(store)}")


if __name__ == "__main__":
    main()

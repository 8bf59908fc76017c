"""The sales of a month were wrong: the tills of one country counted everything twice.

Corrected data replace them.

A scope is a set of whole partitions. `update_cube` removes those that the conditions take
and adds the corrected rows in the same commit, so that no reader ever sees the month
without rows, or with both. A single dataset has the same with
`update_dataset_from_dataframes(delete_scope=...)`. Give the whole of the scope: what the
new rows lack is gone.

    python backfill_scope.py [store-url]
"""

from __future__ import annotations

from typing import Any

import pandas as pd
from shop import CUBE, new_shop, sales, store_from, units

from kartothek_cube import C, append_to_cube, query_cube, update_cube
from kartothek_cube.api.dataset import read_table, store_dataframes_as_dataset, update_dataset_from_dataframes

SCOPE = (C("COUNTRY_CODE") == "FR") & (C("MONTH") == "2024-04")


def french_april() -> pd.DataFrame:
    """What was really sold."""
    april = sales("2024-04-01", "2024-04-30")
    return april[april["COUNTRY_CODE"] == "FR"]


def backfill_cube(store: Any) -> None:
    """In a cube the scope is a condition on partition columns."""
    update_cube({"sales": french_april()}, CUBE, store, remove_conditions=SCOPE)


def backfill_dataset(store: Any) -> None:
    """In a dataset it is a list of dicts; a dict takes what has all of its values."""
    update_dataset_from_dataframes(
        [french_april()], store, "recipe_tills", delete_scope=[{"COUNTRY_CODE": "FR", "MONTH": "2024-04"}]
    )


def main() -> None:
    """Spoil a month, and mend it."""
    store = store_from()
    new_shop(store)
    right = units(query_cube(CUBE, store, payload_columns=["UNITS"])[0])

    doubled = french_april().assign(UNITS=lambda rows: 2 * rows["UNITS"])
    append_to_cube({"sales": doubled}, CUBE, store)
    store_dataframes_as_dataset(
        store, "recipe_tills", [query_cube(CUBE, store)[0]], partition_on=["COUNTRY_CODE", "MONTH"], overwrite=True
    )
    print(f"wrong:  {units(query_cube(CUBE, store, payload_columns=['UNITS'])[0]):,} units")

    backfill_cube(store)
    backfill_dataset(store)
    print(f"cube:   {units(query_cube(CUBE, store, payload_columns=['UNITS'])[0]):,} units")
    print(f"tills:  {units(read_table('recipe_tills', store, columns=['UNITS'])):,} units")
    print(f"really: {right:,} units")


if __name__ == "__main__":
    main()

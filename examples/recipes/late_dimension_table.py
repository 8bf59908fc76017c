"""A master table comes late: the cube is full of sales, then brands are known, and some change.

An enrichment needs one dimension column only. Nothing that is there is written again, and
queries have the new columns at once, for all of the past: a product without brand has null
there, and a condition on BRAND leaves it out. Because BRAND is an index column of the cube,
it also makes groups. A new version of the master replaces the old one as a whole; `as_of=`
still has the old one.

    python late_dimension_table.py [store-url]
"""

from __future__ import annotations

from typing import Any

import pandas as pd
from shop import CUBE, new_shop, products, sales_of, store_from

from kartothek_cube import C, append_to_cube, extend_cube, query_cube
from kartothek_cube.api.dataset import history

WITH_BRANDS = CUBE.copy(index_columns=["BRAND"])


def units_by_brand(store: Any, **as_of: Any) -> dict[str, int]:
    """One frame a brand: `partition_by` needs no partition column."""
    groups = query_cube(WITH_BRANDS, store, partition_by="BRAND", payload_columns=["UNITS"], **as_of)
    return {str(group["BRAND"].iloc[0]): int(group["UNITS"].sum()) for group in groups}


def main() -> None:
    """Sales first, products later, and newer products after that."""
    store = store_from()
    new_shop(store)
    extend_cube({"products": products()}, WITH_BRANDS, store, partition_on={"products": []})
    print(f"units by brand: {units_by_brand(store)}")

    # A product that the master does not know yet.
    unknown = sales_of(pd.Timestamp("2024-04-30")).head(3).assign(PRODUCT_ID=99)
    append_to_cube({"sales": unknown}, WITH_BRANDS, store)
    everything = query_cube(WITH_BRANDS, store, payload_columns=["UNITS", "BRAND"])[0]
    print(
        f"rows without brand: {everything['BRAND'].isna().sum()}, "
        f"rows of Acme: {len(query_cube(WITH_BRANDS, store, C('BRAND') == 'Acme')[0])}"
    )

    # Bolt is sold to Acme.
    newer = products().replace({"BRAND": {"Bolt": "Acme"}})
    extend_cube({"products": newer}, WITH_BRANDS, store, overwrite=True, partition_on={"products": []})
    before = history(CUBE.ktk_dataset_uuid("products"), store)["commit"][1]
    print(f"after the sale: {units_by_brand(store)}")
    print(f"as of before:   {units_by_brand(store, as_of=before)}")


if __name__ == "__main__":
    main()

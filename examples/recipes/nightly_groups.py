"""Something is computed each night for each country and month, but only where sales have changed.

The commit of the result notes which state of the cube it was computed from. The next night
starts there: in one commit it replaces changed groups, removes those that are gone, and
moves the note. A night that fails before has done nothing, and the next one does its work.
What is written to the cube meanwhile is found tomorrow. The first night computes all
groups, and so does one whose note is older than the history of the cube.

    python nightly_groups.py [store-url]
"""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa
from shop import CUBE, new_shop, sales, sales_of, store_from

from kartothek_cube import C, append_to_cube, load_group, plan_cube_query, remove_partitions
from kartothek_cube.api.cube import QueryPlan
from kartothek_cube.api.dataset import (
    DatasetMetadata,
    list_datasets,
    store_dataframes_as_dataset,
    update_dataset_from_dataframes,
)
from kartothek_cube.errors import HistoryUnavailable

RESULT = "recipe_expected"


def expected(sold: pa.Table) -> pa.Table:
    """The mean units of a product in a store. A group whose rows are gone has none."""
    by = [*CUBE.partition_columns, "PRODUCT_ID", "STORE_ID"]
    return sold.group_by(by).aggregate([("UNITS", "mean")]).select([*by, "UNITS_mean"])


def work(store: Any) -> QueryPlan:
    """What has to be computed; no data are read."""
    if RESULT in list_datasets(store):
        note = DatasetMetadata.load_from_store(RESULT, store).metadata["computed_from"]
        try:
            return plan_cube_query(CUBE, store, payload_columns=["UNITS"], changed_since=note)
        except HistoryUnavailable as error:
            print(f"everything again: {error}")
    return plan_cube_query(CUBE, store, payload_columns=["UNITS"])


def night(store: Any) -> None:
    """Compute, and commit once. Where nothing has changed the commit is the new note alone."""
    tonight = work(store)
    rows = (expected(load_group(group, store)) for group in tonight.groups)
    note = {"computed_from": tonight.commits}
    if tonight.removed is None:
        by = CUBE.partition_columns
        store_dataframes_as_dataset(store, RESULT, rows, partition_on=by, metadata=note, overwrite=True)
    else:
        scope = [*(group.key for group in tonight.groups), *tonight.removed_group_keys()]
        update_dataset_from_dataframes(rows, store, RESULT, delete_scope=scope, metadata=note)
    print(f"computed {len(tonight.groups)} groups, removed {len(tonight.removed_group_keys())}")


def main() -> None:
    """Four nights."""
    store = store_from()
    new_shop(store)
    night(store)
    night(store)
    append_to_cube({"sales": sales_of(pd.Timestamp("2024-05-01"))}, CUBE, store)
    night(store)
    append_to_cube({"sales": sales("2024-04-10", "2024-04-10").query("COUNTRY_CODE == 'FR'")}, CUBE, store)
    remove_partitions(CUBE, store, C("MONTH") == "2024-03")
    night(store)


if __name__ == "__main__":
    main()

"""The numbers of writes outlive an update by the real kartothek, which does not know them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from kartothek_cube.api.dataset import commit_receipts, read_table_arrow, stage_partitions

UPDATE = """
import sys
from functools import partial
import pandas as pd
from storefact import get_store_from_url
from kartothek.io.eager import update_dataset_from_dataframes
store = partial(get_store_from_url, sys.argv[1])
update_dataset_from_dataframes([pd.DataFrame({"x": [2]})], store=store, dataset_uuid="uuid")
print("null")
"""


def numbered(store_url, number):
    return commit_receipts(
        stage_partitions(pa.table({"x": [1]}), store_url, "uuid"), store_url, "uuid", txn=("app", number)
    ).commit.skipped


@pytest.mark.interop
def test_an_update_by_kartothek_keeps_the_numbers(run_kartothek, store_url):
    assert not numbered(store_url, 4)
    run_kartothek(UPDATE, store_url)
    assert numbered(store_url, 4)
    assert not numbered(store_url, 5)
    assert sorted(read_table_arrow("uuid", store_url).column("x").to_pylist()) == [1, 1, 2]

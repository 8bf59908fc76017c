"""The layout and dropped columns outlive an update by the real kartothek, which reads on."""

from __future__ import annotations

import pyarrow as pa
import pytest

from kartothek_cube.api.dataset import (
    DatasetFactory,
    drop_columns,
    read_table_arrow,
    set_layout,
    store_dataframes_as_dataset,
    update_dataset_from_dataframes,
)
from kartothek_cube.core.snapshots.loader import load_snapshot
from kartothek_cube.core.stores.open import open_store
from kartothek_cube.core.write.layout import dropped_columns

UPDATE = """
import json, sys
from functools import partial
import pandas as pd
from storefact import get_store_from_url
from kartothek.io.eager import read_table, update_dataset_from_dataframes
store = partial(get_store_from_url, sys.argv[1])
named = read_table("uuid", store, table="table", columns=["x"])
whole = read_table("uuid", store, table="table")
update_dataset_from_dataframes([pd.DataFrame({"x": [2]})], store=store, dataset_uuid="uuid")
print(json.dumps([named["x"].tolist(), sorted(whole.columns), whole["x"].tolist()]))
"""


@pytest.mark.interop
def test_kartothek_reads_and_updates_a_dataset_with_a_dropped_column(run_kartothek, store_url):
    store_dataframes_as_dataset(store_url, "uuid", [pa.table({"x": [1], "v1": [0.5]})])
    set_layout("uuid", store_url, sort_by="x", compression="ZSTD")
    drop_columns("uuid", store_url, "v1")
    named, columns, x = run_kartothek(UPDATE, store_url)
    assert (named, x) == ([1], [1])
    assert columns == ["x"]
    assert str(DatasetFactory("uuid", store_url).layout) == "sorted by x; ZSTD"
    assert read_table_arrow("uuid", store_url).to_pydict() == {"x": [1, 2]}
    snapshot = load_snapshot(open_store(store_url), "uuid")
    assert dropped_columns(snapshot.document.metadata, "uuid")["table"].names == ["v1"]
    update_dataset_from_dataframes([pa.table({"x": [3], "v1": [1.5]})], store_url, "uuid", add_columns=True)
    assert sorted(read_table_arrow("uuid", store_url)["v1"].to_pylist(), key=str) == [0.5, 1.5, None]

"""A Delta table of a dataset that the real kartothek writes, too."""

from __future__ import annotations

import warnings

import pyarrow as pa
import pytest

from kartothek_cube import open_store, publish_delta
from kartothek_cube.api.dataset import (
    compact_dataset,
    read_table_arrow,
    store_dataframes_as_dataset,
    update_dataset_from_dataframes,
)
from kartothek_cube.errors import Unsupported
from tests.caches import forget
from tests.support.delta import UUID, by_polars, comparable, log_keys, versions

pytest.importorskip("polars", reason="not installed: polars")
pytest.importorskip("deltalake", reason="not installed: deltalake")

KARTOTHEK = """
import datetime, json, sys
from functools import partial
import pandas as pd
from storefact import get_store_from_url
from kartothek.io.eager import garbage_collect_dataset, read_table, update_dataset_from_dataframes
store = partial(get_store_from_url, sys.argv[1])
if sys.argv[2] == "collect":
    garbage_collect_dataset(dataset_uuid="uuid", store=store)
else:
    texts = ["b", "ü %" if len(sys.argv) < 4 else sys.argv[3]]
    rows = pd.DataFrame({"p": texts, "x": [int(sys.argv[2]), 8], "d": [datetime.date(2024, 1, 1)] * 2})
    update_dataset_from_dataframes([rows], store=store, dataset_uuid="uuid", delete_scope=[{"p": "b"}])
print(json.dumps(sorted(int(x) for x in read_table("uuid", store, table="table")["x"])))
"""
DAY = pa.array([19_000, 19_001], pa.int32()).cast(pa.date32())
ROWS = pa.table({"p": ["a", "b"], "x": [1, 2], "d": DAY})


def shown(tmp_path, store):
    """The values of `x` in the newest version, which has the rows of the dataset."""
    forget(store)
    rows = by_polars(tmp_path / "store").collect().to_arrow()
    assert comparable(rows) == comparable(read_table_arrow(UUID, store))
    return sorted(rows["x"].to_pylist())


@pytest.mark.interop
def test_commits_of_kartothek_are_caught_up_and_its_garbage_collection_too(run_kartothek, tmp_path):
    url = f"hfs://{tmp_path / 'store'}"
    store = open_store(url)
    store_dataframes_as_dataset(store, UUID, [ROWS], partition_on="p")
    publish_delta(UUID, store, always=True)
    assert run_kartothek(KARTOTHEK, url, "7") == [1, 7, 8]
    # Nobody has published yet: the version is what it was.
    assert sorted(by_polars(tmp_path / "store").collect()["x"].to_list()) == [1, 2]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        update_dataset_from_dataframes([ROWS.slice(0, 1)], store, UUID)
    assert shown(tmp_path, store) == [1, 1, 7, 8]
    assert run_kartothek(KARTOTHEK, url, "9") == [1, 1, 8, 8, 9]
    assert publish_delta(UUID, store).version == 2
    assert shown(tmp_path, store) == [1, 1, 8, 8, 9]
    run_kartothek(KARTOTHEK, url, "collect")
    assert log_keys(store) == []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        update_dataset_from_dataframes([ROWS.slice(0, 1)], store, UUID)
    assert [*versions(store)] == [0]
    assert shown(tmp_path, store) == [1, 1, 1, 8, 8, 9]


@pytest.mark.interop
def test_a_path_of_kartothek_with_a_slash_in_a_value_is_written_anew(run_kartothek, tmp_path):
    url = f"hfs://{tmp_path / 'store'}"
    store = open_store(url)
    store_dataframes_as_dataset(store, UUID, [ROWS], partition_on="p")
    run_kartothek(KARTOTHEK, url, "7", "ü/%")
    with pytest.raises(
        Unsupported, match=r"the folders of 'uuid/table/p=%C3%BC/%25/.*compact_dataset\('uuid', store, rewrite"
    ):
        publish_delta(UUID, store)
    assert log_keys(store) == []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compact_dataset(UUID, store, rewrite=True)
    publish_delta(UUID, store)
    assert shown(tmp_path, store) == [1, 7, 8]

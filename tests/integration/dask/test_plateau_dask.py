"""plateau's functions on dask: its shapes."""

from __future__ import annotations

import datetime as dt

import dask
import dask.bag as db
import dask.dataframe as dd
import pandas as pd
import pytest

from kartothek_cube.api.dataset import read_dataset_as_dataframes
from kartothek_cube.errors import InvalidInput
from kartothek_cube.plateau.api import dataset as api
from kartothek_cube.plateau.io.dask import bag, dataframe, delayed
from kartothek_cube.plateau.io.eager import read_table, store_dataframes_as_dataset

ROWS = pd.DataFrame({"p": ["a", "b"], "x": [1, 2], "v1": [dt.date(2024, 5, 1), dt.date(2024, 5, 2)]})


@pytest.fixture
def store(tmp_path):
    url = f"hfs://{tmp_path / 'store'}"
    store_dataframes_as_dataset(url, "d", [ROWS], partition_on=["p"], secondary_indices=["x"], table_name="shop")
    return url


def test_frames_come_instead_of_dicts_with_dates_as_dates(store):
    days = [dt.date(2024, 5, 1), dt.date(2024, 5, 2)]
    ddf = dataframe.read_dataset_as_ddf("d", store, "shop", columns=["v1"], dask_index_on="x")
    assert (ddf.divisions, ddf.compute()["v1"].tolist()) == ((1, 2, 2), days)
    entries = bag.read_dataset_as_dataframe_bag("d", store, columns=["v1"]).compute(scheduler="threads")
    parts = dask.compute(*delayed.read_dataset_as_delayed("d", store, columns=["v1"]))
    assert [frame["v1"].tolist() for frame in entries] == [frame["v1"].tolist() for frame in parts]
    assert sorted(day for frame in parts for day in frame["v1"]) == days


def test_items_are_of_the_named_table(store):
    for uuid, lazy in (
        ("e", bag.store_bag_as_dataset(db.from_sequence([ROWS]), store, "e", table_name="till")),
        ("f", delayed.store_delayed_as_dataset([dask.delayed(ROWS)], store, "f", table_name="till")),
        ("g", delayed.update_dataset_from_delayed([[ROWS, ROWS]], store, "g", table_name="till")),
        ("h", dataframe.store_dataset_from_ddf(dd.from_map(lambda _: ROWS, [0]), store, "h", table="till")),
    ):
        lazy.compute(scheduler="threads")
        assert set(read_dataset_as_dataframes(uuid, store)[0]) == {"till"}
    assert len(read_table("g", store)) == 4


def test_dicts_are_refused(store):
    with pytest.raises(InvalidInput, match="Unexpected type during parsing"):
        delayed.store_delayed_as_dataset([{"table": ROWS}], store, "new").compute(scheduler="threads")


def test_the_other_functions_take_the_table_from_the_dataset(store):
    assert api.collect_dataset_metadata(store, "d").compute()["number_rows_total"].tolist() == [1, 1]
    assert len(api.hash_dataset(store, "d", table="shop").compute()) == 2
    api.build_dataset_indices__bag(store, "d", ["v1"]).compute()
    assert sorted(api.DatasetFactory("d", store).indices) == ["v1", "x"]
    assert [part.compute().keys for part in api.garbage_collect_dataset__delayed("d", store)] != []
    update = api.update_dataset_from_ddf(None, store, "d", table="shop", delete_scope=[{"p": "a"}])
    assert len(update.compute().partitions) == 1
    api.delete_dataset__delayed("d", store).compute()

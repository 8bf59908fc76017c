"""Workers that die in the middle of a write: nothing is lost, and nothing comes twice."""

from __future__ import annotations

import os
import signal
import warnings
from datetime import timedelta
from functools import partial
from pathlib import Path

import dask.dataframe as dd
import pandas as pd
import pytest

from kartothek_cube import Cube, options, query_cube
from kartothek_cube.api.dataset import history, read_table, store_dataframes_as_dataset
from kartothek_cube.core.stores.contract import StoreView
from kartothek_cube.core.stores.open import open_store
from kartothek_cube.dask.bag_cube import append_to_cube_from_bag
from kartothek_cube.dask.dataframe import update_dataset_from_ddf
from kartothek_cube.dask.dataframe_cube import build_cube_from_dataframe

ROWS = pd.DataFrame({"p": [i % 5 for i in range(400)], "x": range(400), "v1": [i / 2 for i in range(400)]})


def die_once(marker):
    """Kill this process, unless it or another one was killed here before."""
    try:
        Path(marker).touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def dies(frame, marker, row):
    if row in frame["x"].tolist():
        die_once(marker)
    return frame


class Mortal(StoreView):
    """A store whose process is killed at a call on documents: right before it, or after it."""

    def __init__(self, url, marker, when):
        super().__init__(open_store(url))
        self._made = url, marker, when

    def __reduce__(self):
        return Mortal, self._made

    def put_if(self, key, data, version):
        _, marker, when = self._made
        is_document = ".by-dataset-metadata." in key and "/" not in key
        if is_document and when == "before":
            die_once(marker)
        done = super().put_if(key, data, version)
        if is_document and when == "after":
            die_once(marker)
        return done


class MortalFiles(Mortal):
    """The same for the first data file."""

    def __reduce__(self):
        return MortalFiles, self._made

    def put(self, key, data):
        done = super().put(key, data)
        if key.endswith(".parquet") and "/indices/" not in key:
            die_once(self._made[1])
        return done


@pytest.fixture(scope="module")
def _mortal_cluster():
    import dask
    from distributed import Client, LocalCluster

    with (
        dask.config.set({"distributed.comm.timeouts.connect": "3s", "distributed.comm.retry.count": 0}),
        warnings.catch_warnings(action="ignore"),
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0", silence_logs=50
        ) as found,
        Client(found, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture
def compute(_mortal_cluster):
    with _mortal_cluster.as_current():
        yield lambda lazy: _mortal_cluster.compute(lazy).result(timeout=120)


@pytest.fixture(autouse=True)
def _patience():
    """No waiting for a write that will not go on."""
    with options(patience=timedelta(seconds=1)):
        yield


@pytest.fixture
def store(tmp_path):
    url = f"hfs://{tmp_path / 'store'}"
    store_dataframes_as_dataset(url, "d", [ROWS[:100]], partition_on=["p"], secondary_indices=["x"])
    return url


LONG = pytest.mark.exhaustive


@pytest.mark.parametrize(
    "where", [pytest.param("rows", marks=LONG), "files", pytest.param("before", marks=LONG), "after"]
)
def test_a_killed_worker_in_a_shuffled_update_loses_nothing(store, compute, tmp_path, where):
    marker = str(tmp_path / "killed")
    ddf = dd.from_pandas(ROWS, npartitions=6)
    if where == "rows":
        ddf = ddf.map_partitions(partial(dies, marker=marker, row=250), meta=ddf)
    made = {"rows": store, "files": MortalFiles(store, marker, "")}.get(where) or Mortal(store, marker, where)
    lazy = update_dataset_from_ddf(ddf, made, "d", shuffle=True, num_buckets=2, delete_scope=[{"p": 0}])
    compute(lazy)
    assert Path(marker).exists()
    found = read_table("d", store)
    kept = ROWS[:100][ROWS[:100]["p"] != 0]
    assert sorted(found["x"]) == sorted([*kept["x"], *ROWS["x"]])
    assert len(history("d", store)) == 2


@pytest.mark.parametrize("when", [pytest.param("before", marks=LONG), "after"])
def test_a_killed_worker_in_a_write_to_a_cube_leaves_all_of_it_once(tmp_path, compute, when):
    import dask.bag as db

    url, cube = f"hfs://{tmp_path / 'cubes'}", Cube(["x"], ["p"], "cube")
    frames = {"seed": dd.from_pandas(ROWS[["p", "x"]], npartitions=3), "e": dd.from_pandas(ROWS, npartitions=2)}
    compute(build_cube_from_dataframe(frames, cube, Mortal(url, str(tmp_path / "one"), when), shuffle=True))
    assert query_cube(cube, url)[0]["v1"].tolist() == ROWS["v1"].tolist()
    more = db.from_sequence([{"seed": ROWS[["p", "x"]].assign(x=ROWS["x"] + 400), "e": ROWS[:5].assign(v1=9.0)}])
    compute(append_to_cube_from_bag(more, cube, Mortal(url, str(tmp_path / "two"), when), ["seed", "e"]))
    assert (tmp_path / "two").exists()
    found = query_cube(cube, url)[0]
    assert (len(found), found["v1"].head(5).tolist()) == (800, [9.0] * 5)
    assert len(history("cube++e", url)) == 2

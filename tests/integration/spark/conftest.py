"""A small cube in Spark and in Arrow, and a look at what a write left in the store."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pytest

from kartothek_cube import Cube, build_cube, extend_cube

P, X, Y = range(4), range(10), range(5)


@pytest.fixture
def cube() -> Cube:
    return Cube(dimension_columns=["x", "y"], partition_columns=["p"], uuid_prefix="cube", index_columns=["i1"])


@pytest.fixture
def seed() -> pa.Table:
    rows = [(x, y, p, (x + p) % 3, x + 10.0 * y, dt.datetime(2024, 3, 10, 2, 30) + dt.timedelta(hours=x)) for p in P for x in X for y in Y]
    return pa.table(dict(zip(["x", "y", "p", "i1", "v1", "t"], map(list, zip(*rows, strict=True)), strict=True)))


@pytest.fixture
def enrichment() -> pa.Table:
    return pa.table({"x": [0, 1, 2, 3], "v2": ["a", None, "c", "d"]})


@pytest.fixture
def built(cube, seed, enrichment, store_url) -> str:
    """The URL of a store that has the cube, written without Spark."""
    build_cube(seed, cube, store_url)
    extend_cube({"e": enrichment}, cube, store_url, partition_on={"e": []})
    return store_url


@pytest.fixture
def frame(spark, seed):
    """The seed as a Spark data frame of three partitions."""
    return spark.createDataFrame(seed, "x bigint, y bigint, p bigint, i1 bigint, v1 double, t timestamp_ntz").repartition(3)


@pytest.fixture
def files(store_url):
    """A function: the data files that lie in the store, named by a document or not."""
    root = Path(store_url.removeprefix("hfs://"))
    return lambda dataset="seed": sorted(str(p.relative_to(root)) for p in (root / f"cube++{dataset}" / "table").rglob("*.parquet"))


@pytest.fixture
def pickled_by_value(request):
    """The executors cannot import a test module, so what it defines travels whole."""
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(request.module)
    yield
    cloudpickle.unregister_pickle_by_value(request.module)

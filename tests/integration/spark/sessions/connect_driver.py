"""The verbs of Spark on Spark Connect, which cannot share a process with a classic session.

Run by `tests/integration/spark/test_other_sessions.py`.
"""

from __future__ import annotations

import warnings

import pyarrow as pa
import pytest

from kartothek_cube import C, Cube, build_cube
from kartothek_cube.spark import query_cube_spark
from kartothek_cube.spark.session import is_connect
from kartothek_cube.testing.drivers import DriverTests
from tests.support.job_behaviour import JobBehaviour
from tests.support.spark_driver import SparkDriver
from tests.support.spark_sessions import prepare, started


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    prepare()
    from pyspark.sql import SparkSession

    with warnings.catch_warnings():
        # The server is started with the settings; that they are set once more, and cannot be, is
        # said of each.
        warnings.filterwarnings("ignore", message="Failed to set spark", category=UserWarning)
        session = started(SparkSession.builder.remote("local[2]"), tmp_path_factory.mktemp("spark"))
    assert is_connect(session)
    yield session
    session.stop()


class TestSparkConnect(DriverTests):
    @pytest.fixture
    def driver(self, spark):
        return SparkDriver(spark)


class TestJobsOfConnect(JobBehaviour):
    pass


def test_sparks_own_reader_reads_the_files_of_a_query(spark, store_url, capfd):
    cube = Cube(["x"], ["p"], "cube")
    rows = pa.table({"x": range(4), "p": ["München", "a b", "a b", "c"], "v1": [1.0, float("nan"), None, 4.0]})
    build_cube(rows, cube, store_url)
    for condition in (None, C("v1") > 0.5, C("p") != "a b", C("p") == "nobody"):
        found, expected = (query_cube_spark(cube, store_url, condition, native=n) for n in (True, False))
        assert found.schema == expected.schema
        assert sorted(map(str, found.collect())) == sorted(map(str, expected.collect()))
    query_cube_spark(cube, store_url, C("p") != "a b", native=True).select("x").explain()
    assert "ReadSchema: struct<x:bigint>" in capfd.readouterr().out

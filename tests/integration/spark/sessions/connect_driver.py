"""The verbs of Spark on Spark Connect, which cannot share a process with a classic session. Run by `tests/integration/spark/test_other_sessions.py`."""

from __future__ import annotations

import warnings

import pytest

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
        # The server is started with the settings; that they are set once more, and cannot be, is said of each.
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

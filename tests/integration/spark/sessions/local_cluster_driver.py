"""The verbs of Spark with executors that are processes of their own, shuffled, and when they die. Run by `tests/integration/spark/test_other_sessions.py`."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import pytest

from kartothek_cube.testing.drivers import DriverTests
from tests.support.failures import ExecutorFailureTests
from tests.support.spark_driver import SparkDriver
from tests.support.spark_sessions import prepare, started


def make_home(home):
    """A home for Spark that shows what is installed. Executors work below it, and what they leave there stays."""
    home.mkdir()
    for entry in Path(find_spec("pyspark").origin).parent.iterdir():
        (home / entry.name).symlink_to(entry)
    return str(home)


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    prepare()
    folder = tmp_path_factory.mktemp("spark")
    os.environ["SPARK_HOME"] = make_home(folder / "home")
    # Executors listen where the driver does, not where other machines could reach them.
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    from pyspark.sql import SparkSession

    # The executors do not inherit the driver's environment.
    settings = {"spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"], "spark.executor.memory": "512m"}
    session = started(SparkSession.builder.master("local-cluster[2,1,1024]"), folder, **settings)
    yield session
    session.stop()


class TestLocalCluster(DriverTests):
    @pytest.fixture
    def driver(self, spark):
        return SparkDriver(spark, shuffle=True)


class TestFailuresLocalCluster(ExecutorFailureTests):
    @pytest.fixture
    def driver(self, spark):
        return SparkDriver(spark, shuffle=True)

"""The verbs of Spark with executors that are processes of their own, shuffled, and when they die.

Then the store is an object store: executors share no folder with the driver.

Run by `tests/integration/spark/test_other_sessions.py`.
"""

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
    """A home for Spark that shows what is installed.

    Executors work below it, and what they leave there stays.
    """
    home.mkdir()
    for entry in Path(find_spec("pyspark").origin).parent.iterdir():
        (home / entry.name).symlink_to(entry)
    return str(home)


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    prepare()
    folder = tmp_path_factory.mktemp("spark")
    os.environ["SPARK_HOME"] = make_home(folder / "home")
    os.environ["SPARK_WORKER_DIR"] = str(folder / "work")
    # Executors listen where the driver does, not where other machines could reach them.
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    from pyspark.sql import SparkSession

    # The executors do not inherit the driver's environment, and have folders of their own.
    own = tmp_path_factory.mktemp("executors")
    settings = {
        "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
        "spark.executorEnv.AWS_ACCESS_KEY_ID": "key",
        "spark.executorEnv.AWS_SECRET_ACCESS_KEY": "secret",
        "spark.executorEnv.TMPDIR": str(own),
        "spark.executor.memory": "512m",
    }
    session = started(SparkSession.builder.master("local-cluster[2,1,1024]"), folder, **settings)
    yield session
    session.stop()


class TestLocalCluster(DriverTests):
    @pytest.fixture
    def driver(self, spark):
        return SparkDriver(spark, shuffle=True)


@pytest.fixture
def bucket(s3_process, monkeypatch):
    """The URL of a bucket, without credentials: driver and executors have theirs as environment."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    return f"s3://{s3_process.new_bucket()}/cubes?endpoint={s3_process.endpoint}&region=us-east-1"


class TestFailuresLocalCluster(ExecutorFailureTests):
    @pytest.fixture
    def store(self, bucket):
        return bucket

    @pytest.fixture
    def driver(self, spark):
        return SparkDriver(spark, shuffle=True)

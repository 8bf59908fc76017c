"""A session of Sail for the tests of this room, which have an environment of their own.

`pyspark-client` and `pyspark` are one package in Python, so that no environment has both.
"""

from __future__ import annotations

import importlib.util

import pytest

from tests.support.spark_sessions import SPARK_CONF

collect_ignore_glob = [] if importlib.util.find_spec("pysail") else ["test_*.py"]


@pytest.fixture(scope="session")
def spark():
    from pysail.spark import SparkConnectServer
    from pyspark.sql import SparkSession

    server = SparkConnectServer()
    server.start()
    builder = SparkSession.builder.remote("sc://{}:{}".format(*server.listening_address))
    for name in ("spark.sql.session.timeZone", "spark.sql.shuffle.partitions"):
        builder = builder.config(name, SPARK_CONF[name])
    session = builder.getOrCreate()
    yield session
    session.stop()
    server.stop()

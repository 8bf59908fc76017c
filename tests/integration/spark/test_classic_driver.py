"""The verbs of Spark behave as the eager ones on a classic session, also when its workers die."""

from __future__ import annotations

import pytest

from kartothek_cube.testing.drivers import DriverTests
from tests.support.failures import FailureTests
from tests.support.spark_driver import SparkDriver


class TestSparkClassic(DriverTests):
    @pytest.fixture
    def driver(self, spark):
        return SparkDriver(spark)


class TestFailuresClassic(FailureTests):
    @pytest.fixture
    def driver(self, spark):
        return SparkDriver(spark)

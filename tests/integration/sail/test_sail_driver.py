"""The verbs of Spark behave on Sail as the eager ones do."""

from __future__ import annotations

from itertools import groupby

import pytest

from kartothek_cube.spark.session import is_connect, is_sail
from kartothek_cube.testing.driver import CUBE
from kartothek_cube.testing.drivers import DriverTests
from tests.support.job_behaviour import JobBehaviour
from tests.support.spark_driver import SparkDriver


def test_the_session_is_recognised(spark):
    assert is_connect(spark)
    assert is_sail(spark)


class TestSail(DriverTests):
    @pytest.fixture
    def driver(self, spark):
        return SparkDriver(spark)

    def test_rows_of_a_group_come_one_after_the_other(self, driver, cube_store):
        # Sail returns the rows of tasks as these end, so that groups have no order.
        values = driver.query_cube(CUBE, cube_store, partition_by=["i1"]).column("i1").to_pylist()
        assert sorted(value for value, _ in groupby(values)) == [0, 1, 10, 11]


class TestSailShuffled(TestSail):
    @pytest.fixture
    def driver(self, spark):
        return SparkDriver(spark, shuffle=True)


class TestJobsOfSail(JobBehaviour):
    # Sail reports no progress before the end, so that there is nothing to fail.
    test_an_error_of_the_progress_function_cancels_the_job = None

"""The verbs of dask behave as the eager ones, on the threaded scheduler and on a cluster."""

from __future__ import annotations

import pytest

from kartothek_cube.testing.drivers import DriverTests
from tests.support.dask_driver import DaskDriver


def in_threads(lazy):
    return lazy.compute(scheduler="threads")


class TestFrames(DriverTests):
    @pytest.fixture
    def driver(self):
        return DaskDriver(in_threads)


class TestShuffledFrames(DriverTests):
    @pytest.fixture
    def driver(self):
        return DaskDriver(in_threads, shuffle=True)


class TestBags(DriverTests):
    @pytest.fixture
    def driver(self):
        return DaskDriver(in_threads, frames=False)


class TestCluster(DriverTests):
    @pytest.fixture
    def driver(self, cluster):
        return DaskDriver(cluster.compute_now, shuffle=True)


class TestClusterBags(DriverTests):
    @pytest.fixture
    def driver(self, cluster):
        return DaskDriver(cluster.compute_now, frames=False)

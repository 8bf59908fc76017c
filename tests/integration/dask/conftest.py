"""One cluster of two processes for all tests of dask."""

from __future__ import annotations

import warnings
from types import SimpleNamespace

import pytest

pytest.importorskip("distributed", reason="not installed: distributed")


@pytest.fixture(scope="session")
def _cluster():
    from distributed import Client, LocalCluster

    with (
        warnings.catch_warnings(action="ignore"),
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0", silence_logs=50
        ) as found,
        Client(found, set_as_default=False) as client,
    ):
        yield SimpleNamespace(cluster=found, client=client)


@pytest.fixture
def cluster(_cluster):
    """The cluster as the default of dask, for one test."""
    with _cluster.client.as_current():
        yield SimpleNamespace(**vars(_cluster), compute_now=lambda lazy: _cluster.client.compute(lazy).result())

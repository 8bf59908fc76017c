from __future__ import annotations

import pytest

from tests.support.commits import announced_arrivals


@pytest.fixture(autouse=True)
def _announced_arrivals():
    """A test can wait for commits that join a queue."""
    with announced_arrivals():
        yield

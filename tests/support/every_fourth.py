"""A plugin of pytest: of all tests of a run the first of each four."""

from __future__ import annotations

import pytest


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the others out."""
    items[:] = items[::4]

"""Of the behaviours in another session, `make test` runs the first of each four."""

from __future__ import annotations

import pytest

from tests.support.thoroughness import is_exhaustive


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the others out."""
    if not is_exhaustive():
        items[:] = items[::4]

"""For whoever runs the verbs in a new way: the behaviour suite `DriverTests`."""

from __future__ import annotations

import pytest

# Before they are imported: a failure shows the values.
pytest.register_assert_rewrite("kartothek_cube.testing.drivers_cube", "kartothek_cube.testing.drivers_dataset")

from kartothek_cube.testing.drivers_cube import CubeDriverTests  # noqa: E402
from kartothek_cube.testing.drivers_dataset import DatasetDriverTests  # noqa: E402

__all__ = ["DriverTests", "behaviours"]


class DriverTests(CubeDriverTests, DatasetDriverTests):
    """One behaviour for every way of running.

    Subclass it and provide the fixture ``driver``: a `Driver`, which may serve all tests.

    Each test gets a directory store of its own, as the URL ``store``; override this fixture for an
    engine whose tasks see no common disk. What a driver writes is read eagerly and what it reads
    was written eagerly; the naive model says what is right. Nothing is passed over: an engine that
    lacks a verb fails its tests.

    Examples
    --------
    >>> import pytest
    >>> from kartothek_cube.testing.driver import EagerDriver
    >>> from kartothek_cube.testing.drivers import DriverTests
    >>> class TestMyEngine(DriverTests):
    ...     @pytest.fixture
    ...     def driver(self):
    ...         return EagerDriver(threads=2)
    """


def behaviours() -> list[str]:
    """The names of the tests, so that whoever runs them elsewhere can see that none was left out.

    Examples
    --------
    >>> "test_the_newest_row_of_a_cell_wins" in behaviours()
    True
    """
    return [name for name in dir(DriverTests) if name.startswith("test_")]

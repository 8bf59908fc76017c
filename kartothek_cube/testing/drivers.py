"""The behaviour suite `DriverTests` for engines that run the verbs."""

from __future__ import annotations

import pytest

# Before the imports, so that failed assertions show their values.
pytest.register_assert_rewrite("kartothek_cube.testing.drivers_cube", "kartothek_cube.testing.drivers_dataset")

from kartothek_cube.testing.drivers_cube import CubeDriverTests  # noqa: E402
from kartothek_cube.testing.drivers_dataset import DatasetDriverTests  # noqa: E402

__all__ = ["DriverTests", "behaviours"]


class DriverTests(CubeDriverTests, DatasetDriverTests):
    """The behaviour that every `Driver` must show.

    Subclass it and provide the fixture ``driver``: a `Driver`, which may serve all tests.

    Each test gets a directory store of its own, as the URL ``store``; override this fixture for an
    engine whose tasks share no disk. Tests read eagerly what the driver writes, and write eagerly
    what the driver reads. The naive model gives the expected rows. No test is skipped: an engine
    without a verb fails the tests of the verb.

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
    """The names of all tests, to check that a run elsewhere left none out.

    Examples
    --------
    >>> "test_the_newest_row_of_a_cell_wins" in behaviours()
    True
    """
    return [name for name in dir(DriverTests) if name.startswith("test_")]

"""Conformance suites for stores and engines, a naive model of a cube, and random cubes."""

import pytest

# Before the imports, so that failed assertions show their values.
pytest.register_assert_rewrite(*(f"{__name__}.{module}" for module in ("drivers", "stores", "strategies")))

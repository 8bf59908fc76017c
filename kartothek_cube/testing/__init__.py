"""Conformance suites for stores and engines, a naive model of a cube, and random cubes."""

import sys

if "pytest" in sys.modules:  # before the imports, so that failed assertions show their values
    sys.modules["pytest"].register_assert_rewrite(
        *(f"{__name__}.{module}" for module in ("driver", "drivers", "stores", "strategies"))
    )

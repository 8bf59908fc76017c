"""The packages that engines need, and their oldest releases."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version

from kartothek_cube.errors import MissingExtra

__all__ = ["OLDEST", "require"]

# Extra → its package and the oldest release that works; `pyproject.toml` has the same.
OLDEST = {"polars": ("polars", "1.30.0"), "sql": ("duckdb", "1.2.0"), "daft": ("daft", "0.7.26")}


def require(extra: str) -> None:
    """Raise `MissingExtra` unless the package of an extra is installed and new enough."""
    package, oldest = OLDEST[extra]
    try:
        installed = version(package)
    except PackageNotFoundError:
        installed = "none"
    if installed == "none" or _numbers(installed) < _numbers(oldest):
        raise MissingExtra(
            f"This needs the package {package}, at least {oldest} (installed: {installed}): "
            f"pip install 'kartothek-cube[{extra}]'"
        )


def _numbers(release: str) -> tuple[int, ...]:
    """The first three numbers of a release: 1.30 is 1.30.0."""
    numbers = [int(number) for number in re.findall(r"\d+", release)]
    return tuple([*numbers, 0, 0][:3])

"""Which columns of a dataset a cube sees, and of which kind they are."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from kartothek_cube.cube.constants import LEGACY_TIMESTAMP_PAYLOAD
from kartothek_cube.cube.cube import Cube

__all__ = ["get_payload_subset", "visible_columns"]


def visible_columns(names: Iterable[str]) -> list[str]:
    """Column names without the hidden ones: those that begin with two underscores, and kartothek's old time stamp."""
    return [n for n in names if not n.startswith("__") and n != LEGACY_TIMESTAMP_PAYLOAD]


def get_payload_subset(columns: Collection[str], cube: Cube) -> set[str]:
    """The payload among some columns: those that are neither dimension nor partition columns of the cube.

    Examples
    --------
    >>> cube = Cube(["PRODUCT_ID", "SALES_DATE"], ["COUNTRY_CODE"], "sales")
    >>> sorted(get_payload_subset({"PRODUCT_ID", "COUNTRY_CODE", "UNITS"}, cube))
    ['UNITS']
    """
    return set(columns) - set(cube.dimension_columns) - set(cube.partition_columns)

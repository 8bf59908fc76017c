"""The small cube, functions and store of `DriverTests`.

Tasks import this module, so it must not need pytest.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

import pyarrow as pa

from kartothek_cube.api.cube import Cube, query_cube_arrow
from kartothek_cube.core.stores.contract import StoreView
from kartothek_cube.core.stores.open import open_store
from kartothek_cube.testing.model import NaiveCube, Row
from kartothek_cube.typing import StoreLike

__all__ = [
    "CUBE",
    "PARTITION_ON",
    "TOTALS",
    "InBetween",
    "data_files",
    "documents",
    "enrichment",
    "every_type",
    "expected",
    "model",
    "ordered",
    "rows_in",
    "seed",
    "total",
]

CUBE = Cube(["x", "y"], ["p"], "cube", index_columns=["i1"])
PARTITION_ON: dict[str, Any] = {"e": []}
TOTALS = pa.schema([("x", pa.int64()), ("total", pa.float64())])
_DOCUMENT = ".by-dataset-metadata."


def seed(partitions: Iterable[int] = (0, 1), add: float = 0.0) -> pa.Table:
    """Eight rows for each ``p``: four ``x``, two ``y``; ``i1`` is ``10 * p`` or one more."""
    rows = [
        (x, y, p, 10 * p + x % 2, add + 10.0 * p + x + y / 2) for p in partitions for x in range(4) for y in range(2)
    ]
    return pa.table(dict(zip(("x", "y", "p", "i1", "v1"), map(list, zip(*rows, strict=True)), strict=True)))


def enrichment() -> pa.Table:
    """Rows for some ``x``, one of them without a partner in the seed."""
    return pa.table({"x": [0, 1, 2, 9], "v2": ["a", None, "c", "z"]})


def every_type() -> pa.Table:
    """Three rows with a column of each type that all engines have, with nulls and a NaN."""
    columns: dict[str, tuple[pa.DataType, list[Any]]] = {
        "x": (pa.int64(), [1, 2, 3]),
        "p": (pa.string(), ["DE", "ä/b", "DE"]),
        "boolean": (pa.bool_(), [True, None, False]),
        "small": (pa.int8(), [-1, None, 127]),
        "int": (pa.int32(), [-1, None, 2**31 - 1]),
        "float": (pa.float32(), [0.5, None, float("nan")]),
        "text": (pa.string(), ["", None, "ä"]),
        "bytes": (pa.binary(), [b"", None, b"\0\xff"]),
        "date": (pa.date32(), [dt.date(1969, 12, 31), None, dt.date(2024, 2, 29)]),
        # The first is a local time that New York's clocks skipped.
        "time": (
            pa.timestamp("us"),
            [
                dt.datetime.fromisoformat("2024-03-10T02:30"),
                None,
                dt.datetime.fromisoformat("1969-12-31T23:59:59.999999"),
            ],
        ),
        "price": (pa.decimal128(10, 2), [Decimal("1.20"), None, Decimal("-99999999.99")]),
        "nothing": (pa.null(), [None, None, None]),
    }
    return pa.table([pa.array(values, data_type) for data_type, values in columns.values()], names=list(columns))


def model() -> NaiveCube:
    """The reference model with `seed` and `enrichment`."""
    naive = NaiveCube(CUBE)
    naive.build({"seed": seed().to_pylist(), "e": enrichment().to_pylist()}, PARTITION_ON)
    return naive


def expected(naive: NaiveCube, **query: Any) -> list[Row]:
    """The rows of a query of the model, sorted."""
    return ordered(row for group in naive.query(**query) for row in group)


def ordered(rows: pa.Table | Iterable[Row]) -> list[Row]:
    """Rows sorted by ``x``, ``y``, ``p``, then by all other columns; nulls first."""
    listed = rows.to_pylist() if isinstance(rows, pa.Table) else list(rows)

    def key(row: Row) -> list[tuple[bool, Any]]:
        names = sorted(row, key=lambda name: (name not in ("x", "y", "p"), name))
        return [(row[name] is not None, row[name]) for name in names]

    return sorted(listed, key=key)


def rows_in(store: StoreLike, cube: Cube = CUBE) -> list[Row]:
    """All rows of a cube, read eagerly; none without a cube."""
    return ordered(query_cube_arrow(cube, store)) if documents(store) else []


def documents(store: StoreLike) -> list[str]:
    """The keys of all metadata documents."""
    return sorted(key for key in open_store(store).list(recursive=True).keys if _DOCUMENT in key and "/" not in key)


def data_files(store: StoreLike) -> list[str]:
    """The keys of all data files, referenced or not."""
    return sorted(
        key
        for key in open_store(store).list(recursive=True).keys
        if key.endswith(".parquet") and "/indices/" not in key
    )


def total(key: dict[str, Any], table: pa.Table) -> pa.Table:
    """A group function: ``x`` and the sum of ``v1``."""
    return pa.table({"x": [key["x"]], "total": [sum(table.column("v1").to_pylist())]})


class InBetween(StoreView):
    """A store with a concurrent commit: right before the test's first commit, another one lands.

    Planning and staging of the test are done by then. In other processes it is the plain store.

    Parameters
    ----------
    url : str
        The store.
    action : Callable
        The other commit.
    """

    def __init__(self, url: str, action: Callable[[], object]) -> None:
        super().__init__(open_store(url))
        self._url, self._action = url, [action]

    def __reduce__(self) -> tuple[Any, ...]:
        return open_store, (self._url,)

    def put_if(self, key: str, data: Any, version: Any) -> Any:
        """Run the other commit first, once."""
        while _DOCUMENT in key and self._action:
            self._action.pop()()
        return super().put_if(key, data, version)

"""Random cubes and datasets with columns of many types, for tests against other engines."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from kartothek_cube.api.cube import Cube, append_to_cube, build_cube, query_cube_arrow
from kartothek_cube.core.dataset.read import read_table_arrow
from kartothek_cube.core.stores.local import MemoryStore
from tests.support.commits import UUID, write

NAN = float("nan")
DAYS = [dt.date(2024, 2, 28), dt.date(2024, 2, 29), dt.date(1969, 12, 31)]
MOMENTS = [dt.datetime(2024, 2, 29), dt.datetime(2024, 2, 29, 12, 0, 0, 1), dt.datetime(1969, 12, 31, 23)]
UTC_MOMENTS = [moment.replace(tzinfo=dt.UTC) for moment in MOMENTS]
TEXTS = ["", "a", "ab", "b", "ä", "a\x7f", "aÿb", "😀", "%", "it's"]


@dataclass(frozen=True)
class Kind:
    """A type, values of it, and constants that an engine compares with them."""

    type: pa.DataType
    values: list[Any]
    others: list[Any]

    @property
    def constants(self) -> list[Any]:
        """Values and others."""
        return [*self.values, *self.others]


KINDS: dict[str, Kind] = {
    "int64": Kind(pa.int64(), [-1, 0, 1, 2**53 + 1], [7, 0.5, 1.0, float(2**53), 2**63 - 1, 2**64, Decimal("0.5")]),
    "int32": Kind(pa.int32(), [-(2**31), 0, 3], [1, 2**40, 2.5, 3.0, True]),
    "uint8": Kind(pa.uint8(), [0, 1, 255], [-1, 300, 254.5, 2**32]),
    "float64": Kind(
        pa.float64(),
        [-1.5, -0.0, 0.0, 1.0, NAN, NAN, float("inf"), float("-inf")],
        [0, 1, 2**53 + 1, 0.25, Decimal("-1.5")],
    ),
    "float32": Kind(pa.float32(), [0.1, -0.0, 2.5, NAN, NAN, float("-inf")], [0, 2, 2**24 + 1, 1e300, Decimal("0.1")]),
    "text": Kind(pa.string(), TEXTS, ["aa", "A", "\U0010ffff", "a\0"]),
    "bool": Kind(pa.bool_(), [False, True], [1, 0]),
    "date": Kind(pa.date32(), DAYS, [dt.date(1, 1, 1), dt.date(9999, 12, 31), *MOMENTS[:2], "2024-02-29"]),
    "moment": Kind(pa.timestamp("us"), MOMENTS, [dt.datetime(1, 1, 1), *DAYS, "2024-02-29 00:00:00", UTC_MOMENTS[0]]),
    "utc": Kind(pa.timestamp("us", tz="UTC"), UTC_MOMENTS, [MOMENTS[0], DAYS[1]]),
    "decimal": Kind(
        pa.decimal128(6, 2), [Decimal("-0.50"), Decimal("1.00"), Decimal("9999.99")], [1, 0.5, 10**9, 1.005]
    ),
    "binary": Kind(pa.binary(), [b"", b"a", b"a\0", b"\xff"], [b"b"]),
}
_KEYS = ("text", "int64", "date")
# Most rules are about floats.
_FLOATS = ("float64", "float32") * 3
_PAYLOAD = (*_FLOATS, "int32", "uint8", "text", "bool", "date", "moment", "utc", "decimal", "binary", "int64")


@dataclass(frozen=True)
class RandomTable:
    """A stored cube or dataset.

    Attributes
    ----------
    name
        The prefix of the cube or the uuid of the dataset.
    kinds
        The kind of each column.
    keys
        The columns that tell rows apart.
    partitions
        The partition columns.
    whole
        All rows.
    """

    store: MemoryStore
    name: str
    kinds: Mapping[str, str]
    keys: tuple[str, ...]
    partitions: tuple[str, ...]
    whole: pa.Table

    def columns(self, *kinds: str) -> list[str]:
        """The columns of these kinds; all without any."""
        return [column for column, kind in self.kinds.items() if not kinds or kind in kinds]

    @property
    def is_cube(self) -> bool:
        """Whether it is a cube."""
        return self.name != UUID


@st.composite
def random_cubes(draw: st.DrawFn) -> RandomTable:
    """Draw a cube of a seed and up to two enrichments, with an append of newer rows."""
    partitions = draw(st.sampled_from([("p",), ("p", "q")]))
    kinds = {"x": "int64", "y": draw(st.sampled_from(_KEYS)), "i1": draw(st.sampled_from(_KEYS))}
    kinds |= {"p": "text"} | ({"q": draw(st.sampled_from(_KEYS[1:]))} if "q" in partitions else {})
    cube = Cube(["x", "y"], list(partitions), "cube", seed_dataset="seed", index_columns=["i1"])
    cells = draw(st.lists(_row({"x": "small", "y": kinds["y"], **_of(kinds, partitions)}), min_size=1, max_size=10))
    cells = list({(cell["x"], cell["y"]): cell for cell in cells}.values())
    layouts = {"seed": (("x", "y", *partitions), ("i1",))}
    if draw(st.booleans()):
        layouts["enrich"] = (("x", *draw(st.sampled_from([partitions, ("p",), ()]))), ())
    if draw(st.booleans()):
        layouts["extra"] = (("x", "y", *draw(st.sampled_from([partitions, ()]))), ())
    payload = {name: draw(_payload(number)) for number, name in enumerate(layouts)}
    kinds |= {column: kind for columns in payload.values() for column, kind in columns.items()}

    def rows_of(name: str, chosen: list[dict[str, Any]]) -> pa.Table:
        keys, more = layouts[name]
        filled = draw(st.lists(_row({**_of(kinds, more)}, payload[name]), min_size=len(chosen), max_size=len(chosen)))
        rows = [{key: cell[key] for key in keys} | row for cell, row in zip(chosen, filled, strict=True)]
        unique = {tuple(row[key] for key in keys): row for row in rows}
        return _arrow(list(unique.values()), kinds, (*keys, *more, *payload[name]))

    def tables(names: Iterable[str], *, is_whole: bool) -> dict[str, pa.Table]:
        some = {name: draw(st.integers(1, 2 ** len(cells) - 1)) for name in names}
        return {
            name: rows_of(name, [c for i, c in enumerate(cells) if (is_whole and name == "seed") or bits >> i & 1])
            for name, bits in some.items()
        }

    store = MemoryStore()
    own = {name: [key for key in keys if key in partitions] for name, (keys, _) in layouts.items() if name != "seed"}
    build_cube(tables(layouts, is_whole=True), cube, store, partition_on=own)
    if draw(st.booleans()):
        names = draw(st.lists(st.sampled_from(sorted(layouts)), min_size=1, unique=True))
        append_to_cube(tables(names, is_whole=False), cube, store)
    whole = query_cube_arrow(cube, store)
    return RandomTable(store, "cube", kinds, ("x", "y"), partitions, whole)


@st.composite
def random_datasets(draw: st.DrawFn) -> RandomTable:
    """Draw a dataset: partitioned or not, with or without an index, small row groups."""
    kinds = {"x": "int64", "p": draw(st.sampled_from(("text", "int64", "bool", "date", "moment")))} | draw(_payload(0))
    kinds |= {"i1": draw(st.sampled_from(_KEYS))}
    payload = {column: kind for column, kind in kinds.items() if column not in ("x", "p")}
    rows = draw(st.lists(_row({"p": kinds["p"]}, payload), min_size=1, max_size=12))
    table = _arrow([{"x": x, **row} for x, row in enumerate(rows)], kinds, tuple(kinds))
    on, index = draw(st.sampled_from([[], ["p"]])), draw(st.sampled_from([[], ["i1"]]))
    store, half = MemoryStore(), draw(st.sampled_from([0, table.num_rows // 2]))
    for part in (table[:half], table[half:]):
        if part.num_rows:
            write(store, part, on=on, index=index, serializer={"chunk_size": draw(st.sampled_from([1, 2, None]))})
    return RandomTable(store, UUID, kinds, ("x",), tuple(on), read_table_arrow(UUID, store))


def _payload(number: int) -> st.SearchStrategy[dict[str, str]]:
    kinds = st.lists(st.sampled_from(_PAYLOAD), min_size=1, max_size=3, unique=True)
    return kinds.map(lambda chosen: {f"v{number}_{kind}": kind for kind in chosen})


def _of(kinds: Mapping[str, str], columns: Iterable[str]) -> dict[str, str]:
    return {column: kinds[column] for column in columns}


def _row(keys: Mapping[str, str], payload: Mapping[str, str] | None = None) -> st.SearchStrategy[dict[str, Any]]:
    def values(kind: str) -> st.SearchStrategy[Any]:
        return st.sampled_from([0, 1, 2] if kind == "small" else KINDS[kind].values)

    return st.fixed_dictionaries(
        {c: values(kind) for c, kind in keys.items()}
        | {c: st.one_of(values(kind), values(kind), st.none()) for c, kind in (payload or {}).items()}
    )


def _arrow(rows: list[dict[str, Any]], kinds: Mapping[str, str], columns: tuple[str, ...]) -> pa.Table:
    arrays = {c: pa.array([row[c] for row in rows], KINDS[kinds[c]].type, from_pandas=False) for c in columns}
    return pa.table(arrays)


def rows_as_set(rows: Iterable[Iterable[Any]]) -> Counter[tuple[Any, ...]]:
    """Rows with their numbers; NaN equals NaN, and 0.0 equals -0.0."""

    def plain(value: Any) -> Any:
        if isinstance(value, float):
            return "NaN" if value != value else value + 0.0  # noqa: PLR0124
        return value

    return Counter(tuple(map(plain, row)) for row in rows)

"""However the same data lie in the store, the answers are the same."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kartothek_cube import options
from kartothek_cube.api.cube import (
    C,
    Cube,
    append_to_cube,
    build_cube,
    count_cube,
    extend_cube,
    iter_cube,
    query_cube_arrow,
)
from kartothek_cube.api.serialization import ParquetSerializer
from kartothek_cube.core.stores.local import MemoryStore

# What could be partition columns are functions of the cell, so that a cell lies in one partition
# whichever of them are.
PARTS = {"p": lambda x, y: "ab/"[x % 3], "q": lambda x, y: (x + ord(y)) % 2 == 0, "r": lambda x, y: 0}
XS, YS = range(4), "uv"
COLUMNS = ["i1", "i2", "k", "p", "q", "r", "v1", "v2", "x", "y"]
ENRICHMENT = {"x": pa.int64(), "k": pa.int64(), "i2": pa.string(), "v2": pa.string(), "p": pa.string()}
SEED = {
    "x": pa.int64(),
    "y": pa.string(),
    "p": pa.string(),
    "q": pa.bool_(),
    "r": pa.int64(),
    "i1": pa.int64(),
    "v1": pa.float64(),
}


@dataclass(frozen=True)
class Layout:
    """How a cube lies in the store."""

    partition_columns: tuple[str, ...]
    enrichment_on: str
    index_columns: frozenset[str]
    rows_in_group: int
    calls: int
    statistics: bool | tuple[str, ...] = False

    @property
    def cube(self):
        return Cube(["x", "y"], self.partition_columns, "cube", index_columns=self.index_columns | {"i1"})

    @property
    def enrichment_columns(self):
        """Everything but a partition column that the cube does not have: it would be payload of the
        seed as well.
        """
        return [c for c in ENRICHMENT if c != "p" or self.enrichment_on == "p"]


def layouts():
    columns = st.sampled_from([("p",), ("q",), ("r",), ("p", "q"), ("q", "p"), ("r", "q", "p")])

    def choose(parts):
        keys = st.sampled_from(["", "k", *(c for c in parts if c == "p")])
        indexed = st.frozensets(st.sampled_from(["i2", "k"]))
        kept = st.sampled_from([True, True, False, ("v1", "v2"), ("x",)])
        return st.builds(Layout, st.just(parts), keys, indexed, st.sampled_from([1, 2, 100]), st.integers(2, 6), kept)

    return columns.flatmap(choose)


SIMPLEST = Layout(("r",), "", frozenset(), 100, 1)


@st.composite
def logs(draw):
    """Rows of the seed and of the enrichment in the order in which they are written; a cell may
    come again, with other values.
    """
    cells = draw(st.lists(st.tuples(st.sampled_from(XS), st.sampled_from(YS)), min_size=1, max_size=12))
    number, text = st.integers(0, 5), st.sampled_from(["a", "b", None])
    seed = [
        cell_of(x, y) | {"i1": draw(number), "v1": draw(st.sampled_from([0.5, 1.5, 0.0, -0.0, None]))} for x, y in cells
    ]
    # Its own key is a function of the cell, like the partition columns.
    rows = [
        (x, draw(text), draw(st.sampled_from("st")))
        for x in draw(st.lists(st.sampled_from(XS), min_size=1, max_size=10))
    ]
    return seed, [{"x": x, "k": x // 2, "v2": v2, "i2": i2, "p": PARTS["p"](x, "")} for x, v2, i2 in rows]


def cell_of(x, y):
    return {"x": x, "y": y} | {c: PARTS[c](x, y) for c in "pqr"}


def deliveries(log, dimensions, calls):
    """The log in so many deliveries; in each the last row of a cell counts."""
    size = -(-len(log) // calls)
    for start in range(0, len(log), size):
        yield list({tuple(row[d] for d in dimensions): row for row in log[start : start + size]}.values())


def written(log, layout):
    """A store with the cube."""
    store, cube, serializer = MemoryStore(), layout.cube, ParquetSerializer(chunk_size=layout.rows_in_group)
    seed = [pa.Table.from_pylist(rows, pa.schema(SEED)) for rows in deliveries(log[0], "xy", layout.calls)]
    enrichment = [
        pa.Table.from_pylist(rows, pa.schema(ENRICHMENT)).select(layout.enrichment_columns)
        for rows in deliveries(log[1], "x", layout.calls)
    ]
    with options(statistics=layout.statistics):
        build_cube(seed[0], cube, store, df_serializer=serializer)
        extend_cube(
            {"e": enrichment[0]}, cube, store, partition_on={"e": list(layout.enrichment_on)}, df_serializer=serializer
        )
        for later in itertools.zip_longest(seed[1:], enrichment[1:]):
            append_to_cube(
                {name: rows for name, rows in zip(("seed", "e"), later, strict=True) if rows is not None},
                cube,
                store,
                df_serializer=serializer,
            )
    return store


LITERALS = {
    "x": [0, 2, 3, 9],
    "y": ["u", "v", "w"],
    "p": ["a", "/", "c"],
    "i1": [0, 2, 3, 5],
    "i2": ["s", "t", "z"],
    "k": [0, 1],
    "v1": [0.5, 1.0, 0.0],
    "v2": ["a", "b", "c"],
}


@st.composite
def conditions(draw):
    # Payload more often: overwritten values and nulls are there.
    column = draw(st.sampled_from([*LITERALS, "i1", "i1", "i1", "i2", "i2", "v1", "v2"]))
    value, other = draw(st.sampled_from(LITERALS[column])), draw(st.sampled_from(LITERALS[column]))
    c = C(column)
    return draw(
        st.sampled_from(
            [
                c == value,
                c != value,
                c < value,
                c <= value,
                c > value,
                c >= value,
                c.isin([value, other]),
                c.in_interval(value, other),
            ]
        )
    )


def answers(store, layout, where):
    """The rows of a query in their order, their number, the rows of two kinds of groups, and of a
    projection to the enrichment's dimension.
    """
    table = query_cube_arrow(layout.cube, store, where, payload_columns=COLUMNS)
    assert table.column_names == COLUMNS
    return (
        table.to_pylist(),
        count_cube(layout.cube, store, where),
        groups(store, layout, where, "i1"),
        groups(store, layout, where, "x"),
        projected(store, layout, where),
    )


def groups(store, layout, where, by):
    found = iter_cube(layout.cube, store, where, partition_by=by, payload_columns=COLUMNS)
    return [(key, sorted(map(repr, rows.to_pylist()))) for key, rows in found]


def projected(store, layout, where):
    """Each once, whatever partitions it comes from; of conditions only those that the projection
    can answer.
    """
    kept = [c for c in where if c.column in ("x", "y", "i2", "k", "v2")]
    table = query_cube_arrow(layout.cube, store, kept, dimension_columns=["x"], payload_columns=["v2", "i2"])
    return {(row["x"], row["v2"], row["i2"]) for row in table.to_pylist()}


@given(logs(), layouts(), st.lists(st.lists(conditions(), max_size=2), min_size=2, max_size=2))
@settings(max_examples=settings().max_examples // 2, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_answers_do_not_hang_on_how_the_data_lie(log, layout, questions):
    simple, store = written(log, SIMPLEST), written(log, layout)
    for where in questions:
        assert answers(store, layout, where) == answers(simple, SIMPLEST, where)


def test_the_layouts_differ_in_what_they_are_about():
    log = (
        [cell_of(x, y) | {"i1": x, "v1": 0.5} for x in XS for y in YS],
        [{"x": x, "k": x // 2, "v2": "a", "i2": "s", "p": PARTS["p"](x, "")} for x in XS],
    )
    counts = {}
    for layout in (SIMPLEST, Layout(("p", "q"), "p", frozenset({"i2"}), 1, 3)):
        keys = written(log, layout).list("cube++", recursive=True).keys
        counts[layout.calls] = [
            len([k for k in keys if k.endswith(".parquet") and part in k])
            for part in ("cube++seed/table", "cube++e/table", "cube++e/indices")
        ]
    assert counts[1] == [1, 1, 0]
    assert counts[3][0] > 6
    assert counts[3][1] > 3
    assert counts[3][2] >= 1

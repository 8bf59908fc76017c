"""Hypothesis strategies: small random cubes with data, and queries of them.

This is the only module of the package that imports Hypothesis.

Examples
--------
>>> from hypothesis import given, strategies as st
>>> from kartothek_cube.testing.strategies import cubes_with_data, queries
>>> @given(st.data())
... def test_no_condition_no_harm(data):
...     case = data.draw(cubes_with_data())
...     query = data.draw(queries(case))
...     case.model().query(conditions=query.conditions)
"""

from __future__ import annotations

import datetime
import itertools
import operator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from hypothesis import strategies as st

from kartothek_cube.core.expressions.conditions import C, Condition
from kartothek_cube.cube.cube import Cube
from kartothek_cube.testing.model import NaiveCube, Row

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "CubeCase",
    "Kind",
    "Layout",
    "Query",
    "Removal",
    "Step",
    "Update",
    "Write",
    "apply_step",
    "cubes_with_data",
    "empty_cubes",
    "queries",
    "removals",
    "updates",
    "writes",
]

Kind: TypeAlias = Literal["int", "float", "str", "bool", "date", "timestamp"]
"""The type of a column: the Arrow types int64, double, string, bool, date32 and timestamp[us]."""

_DATES = tuple(datetime.date(2020, 2, day) for day in (27, 28, 29))
_VALUES: Mapping[Kind, tuple[Any, ...]] = {
    # The large values reveal a conversion to floats, and an overflow in differences of keys.
    "int": (0, 1, 2, -1, 2**53 + 1, -(2**63)),
    "float": (0.0, 0.5, 1.5, -2.25, 1e300),
    # Slash, equals sign, blank and umlaut need escapes in partition values.
    "str": ("a", "b", "B", "a/b", "x=1 ä"),
    "bool": (False, True),
    "date": _DATES,
    "timestamp": tuple(
        datetime.datetime.combine(day, datetime.time(hour, microsecond=1)) for day in _DATES[:2] for hour in (0, 12)
    ),
}
# Literals that are not in the data.
_NEARBY: Mapping[Kind, tuple[Any, ...]] = {
    "int": (-5, 7, 2**53),
    "float": (1.0, -1e300),
    "str": ("", "aa", "z"),
    "bool": (),
    "date": (datetime.date(2019, 12, 31), datetime.date(2020, 3, 1)),
    "timestamp": (
        datetime.datetime.combine(_DATES[0], datetime.time(6)),
        datetime.datetime.combine(datetime.date(2021, 1, 1), datetime.time()),
    ),
}


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns and the partitioning of one dataset of a cube.

    Attributes
    ----------
    dimensions, payload
        The dimension columns, and the columns that are neither dimension nor partition columns of
        the cube.
    partition_on
        The partition columns of the dataset. With `is_default` a write need not name them.
    required
        The payload columns without nulls: index columns and partition keys.
    """

    dimensions: tuple[str, ...]
    payload: tuple[str, ...]
    partition_on: tuple[str, ...]
    required: frozenset[str]
    is_default: bool = False

    def key(self, cube: Cube) -> tuple[str, ...]:
        """Return the columns that must be unique in the rows of one write call."""
        return (*(column for column in cube.partition_columns if column in self.partition_on), *self.dimensions)

    def columns(self, cube: Cube) -> tuple[str, ...]:
        """Return all columns, in the order of `key` and `payload`."""
        return (*self.key(cube), *self.payload)


@dataclass(frozen=True, slots=True)
class Write:
    """One write call, with rows for each dataset. A build or extension replaces datasets."""

    verb: Literal["build", "extend", "append"]
    data: Mapping[str, Sequence[Row]]
    partition_on: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Removal:
    """One removal of partitions from some datasets, or from all."""

    conditions: tuple[Condition, ...]
    datasets: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Update:
    """One removal of partitions, and rows for each dataset, in one call.

    Conditions of None remove nothing.
    """

    data: Mapping[str, Sequence[Row]]
    conditions: tuple[Condition, ...] | None
    datasets: tuple[str, ...] | None


Step: TypeAlias = Write | Removal | Update
"""One call that changes a cube."""


@dataclass(frozen=True, slots=True)
class CubeCase:
    """A cube, the types of its columns, and the calls that fill it.

    Attributes
    ----------
    kinds
        The type of every column.
    layouts
        Dataset id to columns and partitioning.
    steps
        The calls in order; the first call is a build.
    pool
        The cells of all rows: values of all dimension and partition columns.
    indexed
        Columns that were indexed after the write of their dataset.
    """

    cube: Cube
    kinds: Mapping[str, Kind]
    layouts: Mapping[str, Layout]
    steps: tuple[Step, ...] = ()
    pool: tuple[Row, ...] = ()
    indexed: frozenset[str] = frozenset()

    def model(self) -> NaiveCube:
        """Return the naive model after all steps."""
        model = NaiveCube(self.cube)
        for step in self.steps:
            apply_step(model, step)
        return model


@dataclass(frozen=True, slots=True)
class Query:
    """The arguments of a query."""

    conditions: tuple[Condition, ...] = ()
    datasets: tuple[str, ...] | None = None
    dimension_columns: tuple[str, ...] | None = None
    partition_by: tuple[str, ...] | None = None
    payload_columns: tuple[str, ...] | None = None


_COMPARISONS = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)
_PAYLOAD_KINDS: tuple[Kind, ...] = ("int", "float", "str", "bool", "date", "timestamp")
_DIMENSION_KINDS: tuple[Kind, ...] = ("int", "str", "date", "timestamp")
_KEY_KINDS: tuple[Kind, ...] = ("int", "str", "bool")


@st.composite
def cubes_with_data(draw: st.DrawFn) -> CubeCase:
    """Draw a small cube and the calls that fill it.

    One to three dimensions, one or two partition columns, a seed and up to three enrichments with
    fewer dimensions, other partition columns, and cells that the seed lacks. Up to three appends
    write some cells again; sometimes a call removes partitions. At most 12 rows a call and 3
    partitions, so that examples shrink quickly.
    """
    case = draw(empty_cubes())
    extended = [name for name in case.layouts if name != case.cube.seed_dataset and draw(st.booleans())]
    first = [draw(writes(case, "build", [name for name in case.layouts if name not in extended]))]
    if extended:
        first.append(draw(writes(case, "extend", extended)))
    case = replace(case, steps=tuple(first))
    later: list[Step] = []
    for _ in range(draw(st.integers(0, 3))):
        if _rarely(draw):
            conditions = draw(st.lists(_conditions(case, set(case.cube.partition_columns)), min_size=1, max_size=2))
            columns = {condition.column for condition in conditions}
            # Only datasets with these keys: every call of a case must succeed.
            names = [name for name, layout in case.layouts.items() if columns <= set(layout.partition_on)]
            later.append(Removal(tuple(conditions), tuple(names)))
        else:
            names = draw(st.lists(st.sampled_from(list(case.layouts)), min_size=1, unique=True))
            later.append(draw(writes(case, "append", names)))
    return replace(case, steps=(*first, *later))


@st.composite
def empty_cubes(draw: st.DrawFn) -> CubeCase:
    """Draw a cube as `cubes_with_data` does, without calls: layouts of datasets, and cells."""
    dimensions = ("x", "y", "z")[: draw(st.integers(1, 3))]
    partitions = ("p", "q")[: draw(st.integers(1, 2))]
    indexed = ("i1", "i2")[: draw(st.integers(0, 2))]
    suppressed = dimensions[-1:] if _rarely(draw) else ()
    cube = Cube(
        dimensions, partitions, "cube", seed_dataset="seed", index_columns=indexed, suppress_index_on=suppressed
    )
    layouts = _draw_layouts(draw, cube)
    kinds: dict[str, Kind] = {column: draw(st.sampled_from(_DIMENSION_KINDS)) for column in dimensions}
    keys = {*partitions, *(column for layout in layouts.values() for column in layout.partition_on)}
    payload = {column for layout in layouts.values() for column in layout.payload}
    for column in sorted((keys | payload) - set(dimensions)):
        kinds[column] = draw(st.sampled_from(_KEY_KINDS if column in keys else _PAYLOAD_KINDS))
    # All datasets take their cells from one small pool, so that they share cells. Small sizes come
    # first, since Hypothesis shrinks to the first; large sizes are repeated, so that they are drawn
    # more often.
    places = _draw_different(draw, kinds, partitions, (1, 2, 3, 3, 3, 2))
    cells = _draw_different(draw, kinds, dimensions, (1, 2, 3, 4, 5, 6, 4, 5, 6, 4, 5, 6))
    return CubeCase(cube, kinds, layouts, pool=tuple(place | cell for cell, place in itertools.product(cells, places)))


@st.composite
def writes(draw: st.DrawFn, case: CubeCase, verb: Literal["build", "extend", "append"], names: Sequence[str]) -> Write:
    """Draw rows for these datasets, at least one for each."""
    keys = {name: case.layouts[name].partition_on for name in names if not case.layouts[name].is_default}
    return Write(verb, {name: _draw_rows(draw, case, name) for name in names}, {} if verb == "append" else keys)


@st.composite
def removals(draw: st.DrawFn, case: CubeCase) -> Removal:
    """Draw conditions on partition columns, and datasets or None for all; some must be refused."""
    # Without conditions all partitions go, and nothing is left to query, so that is rare.
    fewest = 0 if _rarely(draw) else 1
    conditions = tuple(draw(st.lists(_conditions(case, set(case.cube.partition_columns)), min_size=fewest, max_size=2)))
    return Removal(conditions, draw(st.none() | st.lists(st.sampled_from(list(case.layouts)), unique=True).map(tuple)))


@st.composite
def updates(draw: st.DrawFn, case: CubeCase) -> Update:
    """Draw a removal and rows in one call; some must be refused."""
    removal = draw(removals(case))
    names = list(case.layouts if removal.datasets is None else removal.datasets)
    write = draw(writes(case, "append", draw(st.lists(st.sampled_from(names), unique=True)) if names else []))
    # Without rows, the call must name the datasets.
    datasets = removal.datasets if write.data else tuple(names)
    return Update(write.data, None if _rarely(draw) else removal.conditions, datasets)


@st.composite
def queries(draw: st.DrawFn, case: CubeCase) -> Query:
    """Draw a query: conditions on any columns, projections, groups, payload and datasets.

    Most are valid. Some must be refused, because they project payload of more dimensions or
    partition by a column without an index.
    """
    others = [name for name in case.layouts if name != case.cube.seed_dataset]
    datasets = None
    if others and not draw(st.booleans()):
        datasets = (case.cube.seed_dataset, *draw(st.lists(st.sampled_from(others), unique=True)))
    dimensions = draw(
        st.none() | st.lists(st.sampled_from(case.cube.dimension_columns), min_size=1, unique=True).map(tuple)
    )
    # Some queries project payload of more dimensions, and must be refused.
    kept = set(case.cube.dimension_columns if dimensions is None or _rarely(draw) else dimensions)
    visible = [layout for name, layout in case.layouts.items() if datasets is None or name in datasets]
    usable = {column for layout in visible if kept.issuperset(layout.dimensions) for column in layout.payload}
    usable |= kept | set(case.cube.partition_columns)
    conditions = draw(st.lists(_conditions(case, usable | set(case.cube.dimension_columns)), max_size=2))
    by = None
    if not draw(st.booleans()):
        keys = {column for layout in case.layouts.values() for column in layout.partition_on}
        indexed = keys | case.cube.index_columns | set(case.cube.dimension_columns) | case.indexed
        choices = usable if _rarely(draw) else usable & indexed
        by = tuple(draw(st.lists(st.sampled_from(sorted(choices)), max_size=2, unique=True)))
    payload = None
    # Without a selection, a projection is refused if any payload has more dimensions: so rarely.
    projects = dimensions is not None and len(dimensions) < len(case.cube.dimension_columns)
    if not (_rarely(draw) if projects else draw(st.booleans())):
        payload = tuple(draw(st.lists(st.sampled_from(sorted(usable)), unique=True)))
    return Query(tuple(conditions), datasets, dimensions, by, payload)


def _rarely(draw: st.DrawFn) -> bool:
    return draw(st.integers(0, 9)) == 9


def _draw_layouts(draw: st.DrawFn, cube: Cube) -> dict[str, Layout]:
    # Names before and after "seed", since nothing may depend on the order of names.
    names = ["seed", *("enrich", "zzz", "more")[: draw(st.integers(0, 3))]]
    owners = {column: draw(st.sampled_from(names)) for column in sorted(cube.index_columns)}
    layouts = {}
    for number, name in enumerate(names):
        required = [column for column, owner in owners.items() if owner == name]
        optional = [f"v{number}{letter}" for letter in "ab"[: draw(st.integers(0, 2))]]
        dimensions = cube.dimension_columns
        if number:
            dimensions = tuple(sorted(draw(st.lists(st.sampled_from(dimensions), min_size=1, unique=True))))
        # The seed has the partition columns of the cube, else reading refuses the cube.
        if not number or draw(st.booleans()):
            layouts[name] = Layout(
                dimensions, (*required, *optional), cube.partition_columns, frozenset(required), is_default=True
            )
            continue
        own_key = [f"k_{name}"] if draw(st.booleans()) else []
        choices = [*cube.partition_columns, *own_key, *required, *(dimensions[1:] if draw(st.booleans()) else ())]
        partition_on = draw(st.lists(st.sampled_from(choices), unique=True).map(tuple))
        payload = (*required, *own_key, *optional)
        layouts[name] = Layout(dimensions, payload, partition_on, frozenset([*required, *own_key]))
    return layouts


def _draw_different(
    draw: st.DrawFn, kinds: Mapping[str, Kind], columns: Sequence[str], sizes: Sequence[int]
) -> list[Row]:
    possible = [
        dict(zip(columns, values, strict=True))
        for values in itertools.product(*(_VALUES[kinds[column]] for column in columns))
    ]
    size = min(draw(st.sampled_from(sizes)), len(possible))
    return [possible.pop(draw(st.integers(0, len(possible) - 1))) for _ in range(size)]


def _draw_rows(draw: st.DrawFn, case: CubeCase, name: str) -> list[Row]:
    layout = case.layouts[name]
    key = layout.key(case.cube)
    keys = list({tuple(row[column] for column in key): row for row in case.pool}.values())[:12]
    # One number with a bit for each row: half of the rows on average, and quick to draw and shrink.
    chosen = draw(st.integers(1, 2 ** len(keys) - 1))
    rows = [row for number, row in enumerate(keys) if chosen >> number & 1]
    values = {
        column: (*(() if column in layout.required else (None,) * 3), *_VALUES[case.kinds[column]])
        for column in layout.payload
    }
    return [
        {column: row[column] for column in key} | {column: draw(st.sampled_from(values[column])) for column in values}
        for row in rows
    ]


def _conditions(case: CubeCase, columns: set[str]) -> st.SearchStrategy[Condition]:
    payload = sorted(columns - set(case.cube.dimension_columns) - set(case.cube.partition_columns))
    # Payload columns more often: they have nulls, overwritten values and inner joins.
    return st.sampled_from([*sorted(columns), *payload, *payload]).flatmap(lambda column: _conditions_on(case, column))


def _conditions_on(case: CubeCase, column: str) -> st.SearchStrategy[Condition]:
    written = [
        row.get(column)
        for step in case.steps
        if not isinstance(step, Removal)
        for rows in step.data.values()
        for row in rows
    ]
    # Values that were written as often as any others, so that many conditions match some rows.
    seen = list(dict.fromkeys(value for value in written if value is not None))
    literal = st.sampled_from(_VALUES[case.kinds[column]] + _NEARBY[case.kinds[column]])
    if seen:
        literal = st.sampled_from(seen) | literal
    bound = st.none() | literal
    compare = [st.builds(operation, st.just(C(column)), literal) for operation in _COMPARISONS]
    lists = st.lists(literal, max_size=4).map(tuple)
    return st.one_of(
        *compare,
        lists.map(C(column).isin),
        lists.map(C(column).isnotin),
        st.builds(lambda start, stop: C(column).in_interval(start, stop), bound, bound),
    )


def apply_step(model: NaiveCube, step: Step) -> None:
    """Run the call on the naive model, which raises the errors that the library must raise."""
    if isinstance(step, Removal):
        model.remove_partitions(step.conditions, step.datasets)
    elif isinstance(step, Update):
        model.update(step.data, step.conditions, step.datasets)
    elif step.verb == "append":
        model.append(step.data)
    else:
        {"build": model.build, "extend": model.extend}[step.verb](step.data, step.partition_on)

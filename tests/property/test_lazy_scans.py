"""A lazy frame of a cube or dataset gives what Polars gives on the whole table in memory."""

from __future__ import annotations

import operator
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from kartothek_cube import scan_cube, scan_dataset
from tests.support.random_tables import KINDS, NAN, RandomTable, random_cubes, random_datasets, rows_as_set

pytestmark = pytest.mark.slow
SETTINGS = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
COMPARISONS = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]
NUMBERS = ("int64", "int32", "uint8", "float64", "float32", "decimal")
FLOATS = ("float64", "float32")
TIMES = ("date", "moment", "utc")


def scanned(table: RandomTable) -> pl.LazyFrame:
    """The lazy frame of a table."""
    return scan_cube(table.name, table.store) if table.is_cube else scan_dataset(table.name, table.store)


# --- expressions ----------------------------------------------------------------------------------


@st.composite
def comparisons(draw, table, columns):
    column = draw(st.sampled_from(columns))
    constant = draw(st.sampled_from(KINDS[table.kinds[column]].constants))
    compare, value = draw(st.sampled_from(COMPARISONS)), pl.col(column)
    is_turned = draw(st.booleans())
    return compare(pl.lit(constant), value) if is_turned else compare(value, constant)


@st.composite
def memberships(draw, table, columns):
    column = draw(st.sampled_from(columns))
    kind = KINDS[table.kinds[column]]
    # Polars takes values of one type.
    constants = [value for value in kind.constants if value != 2**64]
    one = draw(st.sampled_from(constants))
    fitting = [v for v in constants if type(v) is type(one) and getattr(v, "tzinfo", 0) == getattr(one, "tzinfo", 0)]
    return pl.col(column).is_in(draw(st.lists(st.sampled_from([*fitting, None]), max_size=4)))


@st.composite
def ranges(draw, table, columns):
    column = draw(st.sampled_from(columns))
    low, high = (draw(st.sampled_from(KINDS[table.kinds[column]].constants)) for _ in range(2))
    return pl.col(column).is_between(low, high, closed=draw(st.sampled_from(["both", "left", "right", "none"])))


@st.composite
def null_tests(draw, table, columns):
    column = pl.col(draw(st.sampled_from(columns)))
    return column.is_null() if draw(st.booleans()) else column.is_not_null()


@st.composite
def others(draw, table, columns):
    """What only Polars can evaluate."""
    column = draw(st.sampled_from(columns))
    kind, value = table.kinds[column], pl.col(column)
    choices = [value == pl.col(draw(st.sampled_from(table.columns(kind)))), value.eq_missing(None)]
    choices += [pl.when(value.is_null()).then(None).otherwise(value.is_in(KINDS[kind].values[:2]))]
    choices += [value == value.max(), value.is_duplicated(), value.is_in([None], nulls_equal=True)]
    choices += [pl.lit(draw(st.sampled_from([True, False]))), pl.len() > 3, pl.lit(None, dtype=pl.Boolean)]
    if kind in NUMBERS:
        choices += [
            value + 1 > 1,
            value * 2 <= 2,
            value.cast(pl.Float64) >= 0.5,
            value.cast(pl.Int8, strict=False) == 1,
        ]
        choices += [pl.lit(7) - value < 7, value == draw(st.sampled_from(NUMBERS_BY_TYPE)), -value >= 0]
    if kind in FLOATS:
        choices += [value.is_nan(), value.is_not_nan(), value.is_finite(), value == NAN, value > NAN, value <= NAN]
        choices += [value.is_in([0.0, NAN]), value < NAN, value.is_between(0.0, NAN), value > float("inf")]
    if kind == "text":
        choices += [
            value.str.starts_with("a"),
            value.str.len_chars() > 1,
            value + "a" >= "ab",
            value.cast(pl.Binary) > b"a",
        ]
    if kind == "bool":
        choices += [value, ~value, value & value, value.cast(pl.Int8) == 1, value.not_(), value != True]  # noqa: E712
    if kind in TIMES:
        choices += [value.dt.year() == 2024, value.dt.year() < 2000, value.cast(pl.Date) >= KINDS["date"].values[0]]
        choices += [value.dt.offset_by("1d") > KINDS[kind].values[0], value > pl.lit(2**21 * 2).cast(pl.Date)]
        choices += [value.dt.truncate("1d") == value]
    # Hypothesis may not compare expressions.
    return choices[draw(st.integers(0, len(choices) - 1))]


NUMBERS_BY_TYPE = range(-1, 3)


def expressions(table: RandomTable, columns: list[str] | None = None) -> st.SearchStrategy[pl.Expr]:
    """Filters on some columns."""
    usable = columns or table.columns()
    leaves = [comparisons, comparisons, memberships, ranges, ranges, null_tests, others]
    leaf = st.one_of(*(strategy(table, usable) for strategy in leaves))
    # What can be pushed stands alone as often as not.
    return leaf | st.recursive(
        leaf,
        lambda inner: st.one_of(
            inner.map(operator.inv),
            st.builds(operator.and_, inner, inner),
            st.builds(operator.or_, inner, inner),
            st.builds(pl.any_horizontal, inner, inner),
            st.builds(pl.all_horizontal, inner, inner),
        ),
        max_leaves=6,
    )


@st.composite
def queries(draw, table):
    """What follows on a filter: a function of a lazy frame, whose rows do not depend on order."""
    columns = draw(st.lists(st.sampled_from(table.columns()), min_size=1, max_size=3, unique=True))
    keys, more = list(table.keys), pl.col(columns[0])
    counted = [
        pl.len(),
        more.null_count().alias("nulls"),
        more.n_unique().alias("distinct"),
        pl.col("x").sum().alias("s"),
    ]
    answers = [
        lambda frame: frame,
        lambda frame: frame.select(columns),
        lambda frame: frame.select(pl.len()),
        lambda frame: frame.group_by(columns).agg(pl.len().alias("n"), pl.col("x").sum().alias("s")),
        lambda frame: frame.select(counted),
        lambda frame: frame.sort(keys).head(2),
        lambda frame: frame.sort(columns[0], descending=True, nulls_last=True).select(columns[0]).head(3),
        lambda frame: frame.sort(keys).tail(2).select(columns),
        lambda frame: frame.join(frame.select(columns[0]).unique(), on=columns[0], how="semi"),
        lambda frame: pl.concat([frame.select(columns), frame.filter(pl.col("x") > 0).select(columns)]),
        lambda frame: frame.with_columns(pl.col("x").alias("z")).filter(pl.col("z") >= 1),
        lambda frame: frame.rename({"x": columns[0] + "_"}).filter(pl.col(columns[0] + "_") >= 1),
    ]
    return answers[draw(st.integers(0, len(answers) - 1))]


def outcome(frame: pl.LazyFrame, engine: Any) -> pl.DataFrame | None:
    """The answer of a query; None if Polars refuses it."""
    try:
        return frame.collect(engine=engine)
    except (pl.exceptions.PolarsError, TypeError):
        return None


def check(table: RandomTable, frame: pl.LazyFrame, query: Any, engine: str) -> None:
    """The frame gives the answer that the table in memory gives, if this is no error."""
    expected = outcome(query(pl.from_arrow(table.whole).lazy()), "in-memory")
    if expected is None:
        return
    note(query(frame).explain(optimized=False))
    found = query(frame).collect(engine=engine)
    assert found.schema == expected.schema
    assert rows_as_set(found.rows()) == rows_as_set(expected.rows())


ENGINES = st.sampled_from(["in-memory", "streaming"])


@SETTINGS
@given(st.data(), random_cubes() | random_datasets())
def test_a_filter_keeps_the_rows_that_polars_keeps(data, table):
    frame = pl.from_arrow(table.whole).lazy()
    lazy = scanned(table)
    assert lazy.collect_schema() == frame.collect_schema()
    for _ in range(6):
        condition = data.draw(expressions(table))
        check(table, lazy, lambda f, e=condition: f.filter(e), data.draw(ENGINES))


@SETTINGS
@given(st.data(), random_cubes() | random_datasets())
def test_queries_after_several_filters_answer_as_in_memory(data, table):
    first, second = data.draw(expressions(table)), data.draw(expressions(table))
    query = data.draw(queries(table))
    check(table, scanned(table), lambda f: query(f.filter(first).filter(second)), data.draw(ENGINES))


@SETTINGS
@given(st.data(), random_cubes())
def test_a_filter_on_partition_columns_is_what_polars_makes_of_their_values(data, table):
    condition = data.draw(expressions(table, list(table.partitions)))
    query = data.draw(queries(table))
    check(table, scanned(table), lambda f: query(f.filter(condition)), data.draw(ENGINES))


@SETTINGS
@given(st.data(), random_cubes() | random_datasets(), st.integers(0, 5))
def test_a_head_is_some_rows_of_the_answer(data, table, limit):
    condition = data.draw(expressions(table))
    columns = data.draw(st.lists(st.sampled_from(table.columns()), min_size=1, unique=True))
    whole = outcome(pl.from_arrow(table.whole).lazy().filter(condition).select(columns), "in-memory")
    if whole is None:
        return
    frame, engine = scanned(table), data.draw(ENGINES)
    found = frame.filter(condition).select(columns).head(limit).collect(engine=engine)
    assert found.height == min(limit, whole.height)
    assert rows_as_set(found.rows()) <= rows_as_set(whole.rows())
    # Polars keeps what it has resolved for a frame.
    assert frame.filter(condition).select(columns).collect(engine=engine).height == whole.height
    assert frame.head(limit).filter(condition).collect(engine=engine).height <= limit

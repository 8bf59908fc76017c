"""Spark's filters as comparisons of ours: what is kept means the same, what is only similar never
loses a row.
"""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringStartsWith,
)

from kartothek_cube import Cube, build_cube, extend_cube
from kartothek_cube.api.dataset import store_dataframes_as_dataset
from kartothek_cube.core.expressions.predicates import Clause, matching_values
from kartothek_cube.spark import register
from kartothek_cube.spark.datasource.options import comparable, push
from tests.support.thoroughness import some

KINDS = {
    "i": pa.int64(),
    "u": pa.uint64(),
    "f": pa.float64(),
    "s": pa.string(),
    "b": pa.bool_(),
    "d": pa.date32(),
    "t": pa.timestamp("us"),
    "c": pa.dictionary(pa.int32(), pa.string()),
    "m": pa.decimal128(5, 2),
    "y": pa.binary(),
    "ns": pa.timestamp("ns"),
    "z": pa.timestamp("us", tz="UTC"),
    "l": pa.list_(pa.int64()),
}
NAN = float("nan")
EXACT, INEXACT = True, False
MOMENT = dt.datetime(2024, 3, 10, 2, 30)


def translate(spark_filter, types, *, cube=False):
    """The clause of a filter, and whether Spark need not filter again; None without one."""
    pushed = push([spark_filter], types, cube=cube)
    assert pushed.rest in ((), (spark_filter,))
    assert pushed.clauses or pushed.rest
    return (*pushed.clauses, pushed.rest == ()) if pushed.clauses else None


@pytest.mark.parametrize(
    ("spark_filter", "clause"),
    [
        (EqualTo(("i",), 1), Clause("i", "==", 1)),
        (EqualNullSafe(("i",), 1), Clause("i", "==", 1)),
        (EqualTo(("f",), 1.5), Clause("f", "==", 1.5)),
        (EqualTo(("b",), True), Clause("b", "==", True)),
        (EqualTo(("c",), "DE"), Clause("c", "==", "DE")),
        (EqualTo(("u",), Decimal(2**63)), Clause("u", "==", 2**63)),
        (EqualTo(("d",), dt.date(2024, 1, 1)), Clause("d", "==", dt.date(2024, 1, 1))),
        (GreaterThan(("t",), MOMENT), Clause("t", ">", MOMENT)),
        (GreaterThanOrEqual(("s",), "x"), Clause("s", ">=", "x")),
        (LessThan(("f",), 1.5), Clause("f", "<", 1.5)),
        (LessThanOrEqual(("f",), 1.5), Clause("f", "<=", 1.5)),
        (In(("i",), (1, None)), Clause("i", "in", (1,))),
        (In(("i",), (None,)), Clause("i", "in", ())),
    ],
    ids=str,
)
@pytest.mark.parametrize("cube", [True, False])
def test_what_means_the_same_is_kept(spark_filter, clause, cube):
    assert translate(spark_filter, KINDS, cube=cube) == (clause, EXACT)


@pytest.mark.parametrize(
    ("spark_filter", "clause"),
    [
        (Not(EqualTo(("i",), 1)), Clause("i", "!=", 1)),
        (Not(In(("s",), ("a", "b"))), Clause("s", "not in", ("a", "b"))),
        (Not(In(("i",), (1, None))), Clause("i", "not in", (1,))),  # never true for Spark
    ],
    ids=str,
)
@pytest.mark.parametrize("cube", [True, False])
def test_what_lets_nulls_pass_leaves_files_out_and_is_given_back(spark_filter, clause, cube):
    assert translate(spark_filter, KINDS, cube=cube) == (clause, INEXACT)


@pytest.mark.parametrize(
    ("spark_filter", "clause", "exact"),
    [
        (IsNull(("i",)), Clause("i", "==", None), EXACT),
        (IsNotNull(("s",)), Clause("s", "!=", None), EXACT),
        (Not(IsNull(("i",))), Clause("i", "!=", None), EXACT),
        (IsNull(("f",)), Clause("f", "==", None), INEXACT),
    ],
    ids=str,
)
def test_datasets_know_nulls_and_cubes_do_not(spark_filter, clause, exact):
    assert translate(spark_filter, KINDS) == (clause, exact)
    assert translate(spark_filter, KINDS, cube=True) is None


@pytest.mark.parametrize(
    "spark_filter",
    [
        EqualTo(("f",), NAN),  # equal to itself for Spark, null for us
        EqualNullSafe(("f",), NAN),
        LessThan(("f",), NAN),
        In(("f",), (1.0, NAN)),
        Not(In(("f",), (1.0, NAN))),
        Not(EqualTo(("f",), NAN)),
        GreaterThan(("f",), 1.0),  # NaN is greater than everything for Spark
        GreaterThanOrEqual(("f",), 1.0),
        IsNotNull(("f",)),  # NaN is not null for Spark
        Not(EqualNullSafe(("i",), 1)),  # null is another value for Spark
        EqualNullSafe(("i",), None),
        EqualTo(("d",), dt.date(1582, 10, 20)),  # may have been the 10th for Spark
        In(("d",), (dt.date(2024, 1, 1), dt.date(1500, 1, 1))),
        Not(In(("d",), (dt.date(1, 1, 1),))),
        EqualTo(("i",), "1"),
        EqualTo(("s",), 1),
        EqualTo(("m",), "1"),
        EqualTo(("y",), b"a\0"),
        EqualTo(("ns",), MOMENT),  # cut to microseconds on its way to Spark
        EqualTo(("z",), MOMENT),
        IsNull(("l",)),
        EqualTo(("a", "b"), 1),  # a field of a struct
        EqualTo(("unknown",), 1),
        StringStartsWith(("s",), "a"),
        StringContains(("s",), "a"),
        Not(StringContains(("s",), "a")),
    ],
    ids=str,
)
@pytest.mark.parametrize("cube", [True, False])
def test_what_means_something_else_is_left_to_spark(spark_filter, cube):
    assert translate(spark_filter, KINDS, cube=cube) is None
    pushed = push([spark_filter], KINDS, cube=cube)
    assert pushed.clauses == ()
    assert [id(f) for f in pushed.rest] == [id(spark_filter)]


def test_decimals_are_compared_in_datasets_and_in_cubes():
    assert translate(EqualTo(("m",), Decimal("1.50")), KINDS) == (Clause("m", "==", Decimal("1.50")), EXACT)
    assert translate(EqualTo(("m",), Decimal("1.50")), KINDS, cube=True) == translate(
        EqualTo(("m",), Decimal("1.50")), KINDS
    )
    # Spark compares numbers of two kinds as doubles.
    assert translate(EqualTo(("m",), 1.5), KINDS) is None
    assert translate(EqualTo(("i",), 1.5), KINDS) is None
    assert translate(EqualTo(("m",), Decimal(2)), KINDS) == (Clause("m", "==", Decimal(2)), EXACT)
    assert translate(Not(In(("m",), (Decimal(2), Decimal("1.5")))), KINDS) == (
        Clause("m", "not in", (Decimal(2), Decimal("1.5"))),
        INEXACT,
    )


def test_the_work_is_divided_between_us_and_spark():
    given_ = [
        IsNotNull(("i",)),
        EqualTo(("i",), 1),
        EqualTo(("i",), 1),
        Not(EqualTo(("s",), "a")),
        StringStartsWith(("s",), "b"),
    ]
    pushed = push(given_, KINDS)
    assert pushed.clauses == (Clause("i", "!=", None), Clause("i", "==", 1), Clause("s", "!=", "a"))
    assert list(pushed.rest) == given_[3:]


def test_where_nan_is_left_out_a_comparison_with_it_is_ours():
    both = [IsNotNull(("f",)), GreaterThan(("f",), 1.0), LessThan(("f",), 2.0)]
    assert push(both, KINDS).rest == ()
    assert push(both[:2], KINDS).clauses == ()


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (pa.uint32(), True),
        (pa.large_string(), True),
        (pa.float16(), False),
        (pa.time64("us"), False),
        (pa.null(), False),
    ],
)
def test_types_whose_values_change_on_their_way_are_not_compared(kind, expected):
    assert comparable(kind) is expected


# --- against what Spark means ---------------------------------------------------------------------

NUMBERS = st.sampled_from([None, NAN, -math.inf, -1.0, -0.0, 0.0, 0.5, 2.0, math.inf])
WHOLE = st.sampled_from([None, -1, 0, 1, 2])
TEXTS = st.sampled_from([None, "", "a", "b", "B"])
COMPARISONS = [EqualTo, EqualNullSafe, LessThan, LessThanOrEqual, GreaterThan, GreaterThanOrEqual]


def order(value):
    """Spark's order: NaN is one value above all others."""
    return (1, 0.0) if isinstance(value, float) and math.isnan(value) else (0, value)


def spark_says(spark_filter, value):
    """Whether Spark leaves a row: True, False, or None for unknown."""
    if isinstance(spark_filter, Not):
        inner = spark_says(spark_filter.child, value)
        return None if inner is None else not inner
    if isinstance(spark_filter, IsNull | IsNotNull):
        return (value is None) == isinstance(spark_filter, IsNull)
    if isinstance(spark_filter, In):
        if value is None:
            return None
        return (
            True
            if any(v is not None and order(v) == order(value) for v in spark_filter.value)
            else (None if None in spark_filter.value else False)
        )
    if isinstance(spark_filter, EqualNullSafe):
        return value is not None and order(value) == order(spark_filter.value)
    if value is None:
        return None
    a, b = order(value), order(spark_filter.value)
    return {EqualTo: a == b, LessThan: a < b, LessThanOrEqual: a <= b, GreaterThan: a > b, GreaterThanOrEqual: a >= b}[
        type(spark_filter)
    ]


@st.composite
def filters_and_values(draw):
    values, kind = draw(
        st.sampled_from(
            [
                (NUMBERS, pa.float64()),
                (NUMBERS, pa.float32()),
                (WHOLE, pa.int64()),
                (WHOLE, pa.int8()),
                (TEXTS, pa.string()),
            ]
        )
    )
    present = values.filter(lambda v: v is not None)
    spark_filter = draw(
        st.one_of(
            st.builds(lambda kind, v: kind(("c",), v), st.sampled_from(COMPARISONS), present),
            st.builds(lambda v: In(("c",), tuple(v)), st.lists(values, min_size=1, max_size=3)),
            st.sampled_from([IsNull(("c",)), IsNotNull(("c",))]),
        )
    )
    return draw(st.sampled_from([spark_filter, Not(spark_filter)])), pa.array(draw(st.lists(values, max_size=6)), kind)


@given(filters_and_values(), st.booleans())
def test_no_row_that_spark_wants_is_lost_and_exact_means_exact(found, cube):
    spark_filter, values = found
    translated = translate(spark_filter, {"c": values.type}, cube=cube)
    wanted = np.array([spark_says(spark_filter, v) is True for v in values.to_pylist()], dtype=bool)
    if translated is not None:
        clause, exact = translated
        ours = matching_values(values, clause)
        assert (ours | ~wanted).all()
        if exact:
            assert (ours == wanted).all()


# By cubes and datasets in turn.
FILTERS = [
    "f > 1 and s != 'b'",
    "f < 2 and s is not null",
    "f in (1, 'NaN')",
    "not (f = 1)",
    "s not in ('a', 'b') and x > 1",
    "f is null and s <=> null",
    "u = 9223372036854775808",
    "t > timestamp_ntz'2024-03-10 02:30:00'",
    "e is null and d > date'2024-01-01'",
    "e != 'a'",
]


def test_a_filter_gives_the_same_rows_whoever_applies_it(spark, store_url):
    from functools import reduce

    from pyspark.sql import functions as F

    n, filters = 8, some(FILTERS, 4)
    seed = pa.table(
        {
            "x": range(n),
            "p": [i % 2 for i in range(n)],
            "f": [None, NAN, -0.0, 0.0, 1.0, 2.0, math.inf, NAN],
            "s": [None, "a", "b", "ab", "", None, "a", "c"],
            "t": [MOMENT + dt.timedelta(microseconds=i - 3) for i in range(n)],
            "d": [dt.date(2024, 1, i % 3 + 1) for i in range(n)],
            "u": pa.array([2**63 + i - 4 for i in range(n)], pa.uint64()),
        }
    )
    cube = Cube(["x"], ["p"], "cube")
    build_cube(seed, cube, store_url)
    extend_cube(
        {"e": pa.table({"x": [0, 1, 2, 3], "e": ["a", None, "b", "c"]})}, cube, store_url, partition_on={"e": []}
    )
    whole = seed.append_column("e", pa.array(["a", None, "b", "c"] + [None] * 4))
    store_dataframes_as_dataset(
        store_url, "whole", [whole.to_pandas(types_mapper=None).astype({"u": "uint64"})], partition_on=["p"]
    )
    register(spark)

    def load(i):
        target = ({"cube": "cube"}, {"dataset": "whole"})[i % 2]
        return (
            spark.read.format("kartothek_cube")
            .options(store=store_url, push_down=True, parallelism=1, blocksize=9, **target)
            .load()
        )

    def rows(frame_of):
        chosen = [frame_of(i).where(text).select(F.lit(text).alias("filter"), "x") for i, text in enumerate(filters)]
        return sorted(map(tuple, reduce(lambda a, b: a.unionAll(b), chosen).collect()))

    native = [spark.createDataFrame(frame.toArrow(), frame.schema) for frame in (load(0), load(1))]
    found = rows(load)
    assert found == rows(lambda i: native[i % 2])
    assert len({text for text, _ in found}) == len(filters)

"""How conditions are made, refused, joined, written down, and what rows they keep."""

from __future__ import annotations

import datetime as dt
import operator
import pickle
import subprocess
import sys
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kartothek_cube.api.cube import (
    Cube,
    build_cube,
    build_cube_index,
    extend_cube,
    plan_cube_query,
    query_cube_arrow,
    remove_partitions,
)
from kartothek_cube.core.expressions.conditions import (
    C,
    Condition,
    Conjunction,
    EqualityCondition,
    GreaterEqualCondition,
    GreaterThanCondition,
    InequalityCondition,
    InIntervalCondition,
    IsInCondition,
    IsNotInCondition,
    LessEqualCondition,
    LessThanCondition,
    SimpleCondition,
    VirtualColumn,
    convert_predicates_to_cube_conditions,
    write_predicate_as_cube_condition,
)
from kartothek_cube.core.expressions.predicates import Clause
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import InvalidInput, InvalidType

TYPES = {
    "i": pa.int64(),
    "s": pa.string(),
    "f": pa.float64(),
    "b": pa.bool_(),
    "t": pa.timestamp("ns"),
    "l": pa.list_(pa.int64()),
}

OPERATORS = [
    (operator.eq, EqualityCondition, "=="),
    (operator.ne, InequalityCondition, "!="),
    (operator.lt, LessThanCondition, "<"),
    (operator.le, LessEqualCondition, "<="),
    (operator.gt, GreaterThanCondition, ">"),
    (operator.ge, GreaterEqualCondition, ">="),
]
ALL_NINE = [
    *(compare(C("x"), 1) for compare, _, _ in OPERATORS),
    C("x").isin([1, 2]),
    C("x").isnotin([1, 2]),
    C("x").in_interval(1, 2),
]
NULLS = [None, float("nan"), np.float64("nan"), pd.NaT, pd.NA, np.datetime64("NaT", "ns")]


# --- making conditions ----------------------------------------------------------------------------


@pytest.mark.parametrize(("compare", "cls", "op"), OPERATORS)
def test_operators_make_conditions(compare, cls, op):
    condition = compare(C("x"), 1)
    assert condition == cls("x", 1)
    assert type(condition) is cls
    assert (condition.column, condition.value, condition.OP, condition.active) == ("x", 1, op, True)
    assert condition.predicate_part == [("x", op, 1)]
    assert str(condition) == f"x {op} 1"
    assert repr(condition) == f"{cls.__name__}(column='x', value=1)"


def test_reflected_comparisons_make_conditions():
    assert operator.lt(1, C("x")) == GreaterThanCondition("x", 1)
    assert (np.int64(1) < C("x")) == GreaterThanCondition("x", 1)
    assert (pd.Timestamp(0) == C("x")) == EqualityCondition("x", pd.Timestamp(0))


def test_isin_keeps_a_tuple():
    condition = C("x").isin([1, 2])
    assert condition == IsInCondition("x", (1, 2))
    assert (condition.OP, condition.predicate_part, str(condition)) == ("in", [("x", "in", (1, 2))], "x in (1, 2)")
    assert repr(condition) == "IsInCondition(column='x', value=(1, 2))"


def test_isnotin_keeps_a_tuple():
    condition = C("x").isnotin(i for i in (1, 2))
    assert condition == IsNotInCondition("x", (1, 2))
    assert condition != C("x").isin([1, 2])
    assert (condition.OP, condition.predicate_part, str(condition)) == (
        "not in",
        [("x", "not in", (1, 2))],
        "x not in (1, 2)",
    )
    assert repr(condition) == "IsNotInCondition(column='x', value=(1, 2))"
    assert Conjunction(condition).clauses == (Clause("x", "not in", (1, 2)),)
    assert C("x").isnotin("abc").value == ("abc",)
    assert pickle.loads(pickle.dumps(condition)) == condition
    assert len({condition, C("x").isnotin([1, 2]), C("x").isin([1, 2])}) == 2


def test_isnotin_of_nothing_is_active_and_excludes_only_nulls_of_a_frame():
    condition = C("x").isnotin([])
    assert condition.active
    assert list(condition.filter_df(pd.DataFrame({"x": [1.0, None, 2.0]})).index) == [0, 2]


@pytest.mark.parametrize(
    "values", [{1: "a", 2: "b"}.keys(), (i for i in (1, 2)), np.array([1, 2]), pd.Series([1, 2]), range(1, 3)]
)
def test_isin_takes_any_iterable(values):
    assert C("x").isin(values) == C("x").isin([1, 2])


def test_isin_of_a_scalar_is_isin_of_one_value():  # cube 25
    assert C("x").isin(42) == C("x").isin([42])


def test_isin_of_a_text_is_isin_of_that_text():  # cube 26
    assert C("x").isin("abc").value == ("abc",)


@pytest.mark.parametrize("nothing", [[], None])
def test_isin_of_nothing_is_active_and_matches_nothing(nothing):
    condition = C("x").isin(nothing)
    assert condition.active
    assert len(condition.filter_df(pd.DataFrame({"x": [1]}))) == 0


@pytest.mark.parametrize(
    ("start", "stop", "parts"),
    [
        (1, 2, [("x", ">=", 1), ("x", "<", 2)]),
        (1, None, [("x", ">=", 1)]),
        (None, 2, [("x", "<", 2)]),
        (None, None, []),
    ],
)
def test_intervals_are_half_open_and_none_is_an_open_end(start, stop, parts):  # cube 21, 27
    condition = C("x").in_interval(start, stop)
    assert condition == InIntervalCondition("x", start, stop)
    assert condition.predicate_part == parts
    assert condition.active == bool(parts)
    assert str(condition) == f"x.in_interval({start}, {stop})"
    assert repr(condition) == f"InIntervalCondition(column='x', start={start}, stop={stop})"


def test_a_virtual_column_has_a_name_and_no_hash():
    assert VirtualColumn is C
    assert C(b"foo").name == "foo"
    assert repr(C("x")) == str(C("x")) == "VirtualColumn(name='x')"
    assert C("x")
    assert pickle.loads(pickle.dumps(C("x"))).name == "x"
    with pytest.raises(TypeError):
        hash(C("x"))
    with pytest.raises(AttributeError):
        C("x").name = "y"
    with pytest.raises(InvalidType):
        C(1)


# --- what cannot be compared ----------------------------------------------------------------------


@pytest.mark.parametrize("null", NULLS, ids=repr)
@pytest.mark.parametrize("compare", [o[0] for o in OPERATORS])
def test_comparing_with_a_null_names_the_column(compare, null):  # cube 19
    with pytest.raises(InvalidInput, match='Cannot use NULL-value to compare w/ column "x"'):
        compare(C("x"), null)


@pytest.mark.parametrize("null", NULLS, ids=repr)
@pytest.mark.parametrize("compare", [C("x").isin, C("x").isnotin], ids=["isin", "isnotin"])
def test_a_null_among_the_values_of_isin_is_refused(compare, null):  # cube 20
    with pytest.raises(InvalidInput, match='Cannot use NULL-value to compare w/ column "x"'):
        compare([1, null])


@pytest.mark.parametrize("null", NULLS[1:], ids=repr)
def test_a_null_other_than_none_is_no_bound(null):  # cube 21
    for bounds in ((null, None), (1, null)):
        with pytest.raises(InvalidInput, match='Cannot use NULL-value to compare w/ column "x"'):
            C("x").in_interval(*bounds)


def refused(value):
    yield lambda: C("x") == value
    yield lambda: C("x") >= value
    yield lambda: C("x").isin(value)
    yield lambda: C("x").isin([1, value])
    yield lambda: C("x").in_interval(value)
    yield lambda: C("x").in_interval(1, value)


@pytest.mark.parametrize("make", list(refused(C("y"))))
def test_two_columns_cannot_be_compared(make):  # cube 22
    with pytest.raises(InvalidType, match="Cannot compare two columns"):
        make()


@pytest.mark.parametrize("value", [C("y") == 1, C("y").in_interval(1), Conjunction([])], ids=repr)
def test_a_condition_is_no_value(value):  # cube 23
    for make in refused(value):
        with pytest.raises(InvalidType, match="Cannot use nested conditions"):
            make()


def test_nulls_are_reported_before_columns_and_columns_before_containers():
    with pytest.raises(InvalidInput, match="NULL-value"):
        C("x").isin([C("y"), None])
    with pytest.raises(InvalidType, match="two columns"):
        C("x").isin([[1], C("y")])


@pytest.mark.parametrize(
    "value",
    [[1], [1, 2], (), {1}, {1: 2}, np.array([1, 2]), pd.Series([1]), pd.DataFrame()],
    ids=lambda v: type(v).__name__,
)
def test_containers_are_refused_with_a_pointer_to_isin(value):
    for make in (lambda: C("x") == value, lambda: C("x").isin([value]), lambda: C("x").in_interval(value)):
        with pytest.raises(InvalidInput, match=f'Cannot compare column "x" with a {type(value).__name__}.*isin'):
            make()


def test_the_abstract_condition_cannot_be_made():
    with pytest.raises(TypeError):
        Condition("x")


# --- conditions as values -------------------------------------------------------------------------


@pytest.mark.parametrize("condition", ALL_NINE, ids=str)
def test_conditions_are_immutable_hashable_and_picklable(condition):
    twin = pickle.loads(pickle.dumps(condition))
    assert twin == condition
    assert hash(twin) == hash(condition)
    assert type(twin) is type(condition)
    for name in ("column", "value", "start", "stop", "OP", "nonsense"):
        with pytest.raises(AttributeError):
            setattr(condition, name, "y")


def test_different_conditions_are_unequal_and_hash_differently():
    everything = [*ALL_NINE, C("y") == 1, C("x") == 2, C("x").isin([1]), C("x").in_interval(1)]
    assert len(set(everything)) == len(everything) == len({hash(c) for c in everything})
    assert (C("x") == 1) != 1


def test_values_are_equal_as_python_has_it():
    assert (C("x") == 1) == (C("x") == 1.0)


@pytest.mark.parametrize("condition", ALL_NINE, ids=str)
def test_conditions_have_no_truth_value(condition):
    with pytest.raises(InvalidType, match="Cannot check if a condition is non-zero"):
        bool(condition)


def test_chained_comparisons_are_refused():  # cube 24
    with pytest.raises(TypeError, match="Cannot check if a condition is non-zero"):
        1 < C("x") <= 5  # noqa: B015 -- the comparison is the subject


@pytest.mark.parametrize("side", [C("x") == 1, Conjunction(C("x") == 1)], ids=["condition", "conjunction"])
def test_or_and_not_say_what_to_write_instead(side):
    for left, right in ((side, C("y") == 2), (side, 1), (1, side), (True, side)):
        with pytest.raises(InvalidType, match=r"cannot be joined by `\|`.*isin.*filter the result"):
            operator.or_(left, right)
    with pytest.raises(InvalidType, match=r"cannot be inverted by `~`.*!=.*isnotin"):
        operator.inv(side)


@pytest.mark.parametrize("join", [operator.and_, operator.or_])
@pytest.mark.parametrize("other", [1, "a", C("y"), C("y") == 1], ids=repr)
def test_forgotten_brackets_are_said_to_be_missing(join, other):
    with pytest.raises(InvalidType, match="brackets"):
        join(C("x"), other)


def test_forgotten_brackets_on_the_right_are_said_to_be_missing():
    with pytest.raises(InvalidType, match="brackets"):
        _ = C("x") == 1 & C("y") == 2
    with pytest.raises(InvalidType, match="brackets"):
        _ = C("x") == 1 | C("y") == 2
    with pytest.raises(InvalidType, match="brackets"):
        _ = 1 & (C("y") == 2)


# --- conjunctions ---------------------------------------------------------------------------------

a, b, c, d = C("a") == 1, C("b") < 2, C("c").isin([3]), C("d").in_interval(4)


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        (None, ()),
        ([], ()),
        (a, (a,)),
        ([a, b], (a, b)),
        ((a, b), (a, b)),
        ({a}, (a,)),
        ({b: 1, a: 2}.keys(), (b, a)),
        (Conjunction([a, b]), (a, b)),
    ],
)
def test_a_conjunction_is_made_of_nothing_one_several_or_another_conjunction(argument, expected):  # cube 31
    assert Conjunction(argument).conditions == expected
    assert Conjunction(condition for condition in expected).conditions == expected


class SparkColumn:
    """Like a column of Spark: it looks like an iterable, and refuses."""

    def __iter__(self):
        raise TypeError("Column is not iterable")

    def __repr__(self):
        return "Column<'(x > 3)'>"


@pytest.mark.parametrize(
    "argument", [1, "abc", C("a"), [1], [None], [Conjunction([])], [C("a")], SparkColumn()], ids=repr
)
def test_a_conjunction_is_made_of_conditions_only(argument):  # cube 31
    with pytest.raises(InvalidType, match="Can only build conjunction out of conditions"):
        Conjunction(argument)


@pytest.mark.parametrize("joined", [a & b & c & d, (a & b) & (c & d), a & (b & (c & d)), (a & (b & c)) & d])
def test_and_is_associative(joined):  # cube 29
    assert joined.conditions == (a, b, c, d)


def test_from_two_puts_left_before_right():
    assert Conjunction.from_two(Conjunction([b, a]), c) == Conjunction([b, a, c]) == Conjunction([b, a]) & c


@pytest.mark.parametrize("other", [None, 1, "a", C("a"), [b]], ids=repr)
def test_and_takes_conditions_only(other):  # cube 30
    for left in (a, Conjunction(a)):
        with pytest.raises(InvalidType, match="Can only build conjunction out of conditions"):
            left & other


def test_conjunctions_are_values():  # cube 32
    both = a & d
    assert hash(both) == hash(a & d)
    assert len({hash(j) for j in (a & b, b & a, Conjunction(a), Conjunction(C("a") != 1), Conjunction(None))}) == 5
    assert a & b != b & a
    assert pickle.loads(pickle.dumps(both)) == both
    assert Conjunction(None)
    with pytest.raises(AttributeError):
        both.conditions = ()


def test_inactive_conditions_vanish():  # cube 27, 28
    inactive = C("x").in_interval()
    both = inactive & (C("y") == 1)
    assert both.columns == {"y"}
    assert both.split_by_column() == {"y": Conjunction(C("y") == 1)}
    assert both.predicate == [("y", "==", 1)]
    assert Conjunction([inactive, inactive]).predicate is None
    assert Conjunction(inactive).clauses == ()
    assert both.conditions == (inactive, C("y") == 1)


def test_predicate_lists_all_parts_in_order():
    assert (d & a & c).predicate == [("d", ">=", 4), ("a", "==", 1), ("c", "in", (3,))]
    assert Conjunction(None).predicate is None


def test_columns_are_split_by_first_appearance():
    parts = (b & a & (C("b") > 0)).split_by_column()
    assert list(parts) == ["b", "a"]
    assert parts["b"].conditions == (b, C("b") > 0)


def test_clauses_are_the_comparisons_in_their_order():
    joined = (C("x") != 1) & (C("y") < 2) & (C("x") != 3) & C("z").isin([4])
    assert joined.clauses == (Clause("x", "!=", 1), Clause("y", "<", 2), Clause("x", "!=", 3), Clause("z", "in", (4,)))
    assert (C("x") != 1).clauses == Conjunction(C("x") != 1).clauses


def test_text_of_a_conjunction_brackets_each_condition():
    assert str(a & b) == "(a == 1) & (b < 2)"
    assert str(Conjunction(None)) == ""


# --- filter_df ------------------------------------------------------------------------------------


@pytest.fixture
def frame():
    return pd.DataFrame(
        {
            "i": [3, 1, 2, 4],
            "u": np.array([3, 1, 2, 4], dtype="uint8"),
            "f": [3.0, None, 2.0, 4.0],
            "s": ["c", None, "b", "d"],
            "b": [True, False, False, True],
            "t": pd.to_datetime(["2020-01-03", None, "2020-01-02", "2020-01-04"]),
            "d": [dt.date(2020, 1, 3), None, dt.date(2020, 1, 2), dt.date(2020, 1, 4)],
            "y": [b"c", None, b"b", b"d"],
        },
        index=["k", "l", "m", "n"],
    )


VALUES = {"i": 3, "u": 3, "f": 3.0, "s": "c", "t": pd.Timestamp("2020-01-03"), "d": dt.date(2020, 1, 3), "y": b"c"}
BELOW = {"i": "lm", "u": "lm"}


@pytest.mark.parametrize("column", VALUES)
@pytest.mark.parametrize(
    ("compare", "equal", "below", "above"), [(op[0], op[0](1, 1), op[0](0, 1), op[0](2, 1)) for op in OPERATORS]
)
def test_every_operator_on_every_type_keeps_labels_and_never_matches_null(
    frame, column, compare, equal, below, above
):  # cube 34, 35
    small = BELOW.get(column, "m")
    expected = (
        "k" * equal + small * below + "n" * above
    )  # row k holds the value, n a larger one, m (and l, where it is no null) smaller ones
    result = compare(C(column), VALUES[column]).filter_df(frame)
    assert list(result.index) == sorted(expected)
    pd.testing.assert_frame_equal(result, frame.loc[sorted(expected)])


@pytest.mark.parametrize("column", VALUES)
def test_isin_and_interval_on_every_type(frame, column):
    value = VALUES[column]
    assert list(C(column).isin([value]).filter_df(frame).index) == ["k"]
    assert list(C(column).isnotin([value]).filter_df(frame).index) == list((C(column) != value).filter_df(frame).index)
    assert list(C(column).in_interval(value).filter_df(frame).index) == ["k", "n"]
    assert list(C(column).in_interval(None, value).filter_df(frame).index) == list(BELOW.get(column, "m"))
    assert len(C(column).in_interval(value, value).filter_df(frame)) == 0


def test_booleans_are_compared_with_booleans(frame):
    assert list((C("b") == True).filter_df(frame).index) == ["k", "n"]  # noqa: E712 -- makes a condition
    assert list((C("b") != np.True_).filter_df(frame).index) == ["l", "m"]


def test_an_empty_conjunction_returns_all_rows_as_a_new_frame(frame):  # cube 33
    for conjunction in (Conjunction(None), Conjunction(C("nonsense").in_interval())):
        result = conjunction.filter_df(frame)
        assert result is not frame
        pd.testing.assert_frame_equal(result, frame)


def test_conditions_are_joined_by_and(frame):
    assert list(((C("i") > 1) & (C("s") != "d")).filter_df(frame).index) == ["k", "m"]
    assert list(((C("i") > 1) & (C("i") > 2)).filter_df(frame).index) == ["k", "n"]


def test_nulls_of_one_restricted_column_drop_the_row_for_all(frame):  # cube 34
    frame.loc["m", "s"] = None
    assert list(((C("s") != "zzz") & (C("f") != 0.0)).filter_df(frame).index) == ["k", "n"]


@pytest.mark.parametrize("dtype", ["object", "string", "category", "str"])
def test_text_columns_of_every_dtype(dtype):
    df = pd.DataFrame({"s": pd.Series(["b", None, "a"], dtype=dtype)})
    assert list((C("s") != "a").filter_df(df).index) == [0]
    assert list(C("s").isin(["a", "b", "c"]).filter_df(df).index) == [0, 2]
    assert (C("s") != "a").filter_df(df).dtypes["s"] == df.dtypes["s"]


def test_categories_are_compared_by_value_not_by_their_order():
    df = pd.DataFrame({"s": pd.Categorical(["b", "a"], categories=["b", "a"], ordered=True)})
    assert list((C("s") > "a").filter_df(df).index) == [0]


def test_nullable_integers_are_integers():
    df = pd.DataFrame({"i": pd.array([1, None, 3], dtype="Int64")})
    assert list((C("i") != 1).filter_df(df).index) == [2]


@pytest.mark.parametrize("dtype", ["int64", "float64", "datetime64[ns]", "bool"])
def test_an_empty_frame_stays_empty_and_keeps_its_types(dtype):
    df = pd.DataFrame({"x": pd.Series([], dtype=dtype), "z": pd.Series([], dtype="int8")})
    value = np.zeros(1, dtype=dtype)[0] if dtype != "int64" else 0
    pd.testing.assert_frame_equal((C("x") == value).filter_df(df), df)


def test_a_column_without_values_matches_nothing():
    df = pd.DataFrame({"x": [None, None]})
    assert len((C("x") != "a").filter_df(df)) == 0


def test_repeated_row_labels_are_kept():  # cube 35
    df = pd.DataFrame({"x": [1, 2, 3]}, index=[7, 7, 7])
    assert (C("x") > 1).filter_df(df)["x"].tolist() == [2, 3]


def test_a_missing_column_is_a_key_error_that_names_it(frame):
    with pytest.raises(KeyError, match="the frame does not have: nonsense") as error:
        (C("nonsense") == 1).filter_df(frame)
    assert isinstance(error.value, InvalidInput)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        *[("i", v) for v in (True, "1", "a", dt.date(2020, 1, 1), pd.Timestamp(0))],
        *[("f", v) for v in (False, "a", "1", Decimal("0.1"))],
        *[("s", v) for v in (1, 1.0, True, dt.date(2020, 1, 1))],
        *[("b", v) for v in (1, 1.0, "a")],
        *[("t", v) for v in (1, 1.0, True, b"a")],
        *[("d", v) for v in (1, "a", pd.Timestamp(0, tz="UTC"))],
    ],
    ids=repr,
)
def test_a_value_of_another_kind_is_refused_with_the_column(frame, column, value):
    for condition in (C(column) == value, C(column).isin([value]), C(column).in_interval(value)):
        for df in (frame, frame.iloc[:1]):
            with pytest.raises(InvalidType, match=f"(?i)unexpected type for predicate: column '{column}'"):
                condition.filter_df(df)


def test_signed_and_unsigned_integers_of_any_width_are_compared(frame):
    for value in (3, np.int8(3), np.uint64(3)):
        assert list((C("i") == value).filter_df(frame).index) == ["k"]
        assert list((C("u") == value).filter_df(frame).index) == ["k"]
    assert len((C("u") < 10**30).filter_df(frame)) == 4
    assert len((C("u") > -1).filter_df(frame)) == 4


@pytest.mark.parametrize(
    "value",
    [
        dt.date(2020, 1, 3),
        dt.datetime(2020, 1, 3),
        pd.Timestamp("2020-01-03"),
        np.datetime64("2020-01-03"),
        "2020-01-03",
    ],
    ids=lambda v: type(v).__name__,
)
def test_timestamp_columns_are_compared_with_every_kind_of_date(frame, value):
    assert list((C("t") <= value).filter_df(frame).index) == ["k", "m"]
    assert list(C("t").isin([value]).filter_df(frame).index) == ["k"]


def test_times_without_a_zone_are_utc_where_the_column_has_a_zone():
    df = pd.DataFrame(
        {"t": pd.to_datetime(["2020-01-01 23:30", "2020-01-02 00:30"]).tz_localize("UTC").tz_convert("Europe/Berlin")}
    )
    for value in (
        "2020-01-02",
        dt.date(2020, 1, 2),
        dt.datetime(2020, 1, 2),
        pd.Timestamp("2020-01-02 01:00", tz="Europe/Berlin"),
    ):
        assert list((C("t") >= value).filter_df(df).index) == [1]


def test_text_that_is_no_timestamp_is_refused_with_the_column(frame):
    with pytest.raises(InvalidInput, match=r"'t'.*'foo'"):
        (C("t") == "foo").filter_df(frame)


def test_a_frame_with_two_columns_of_one_name_is_refused():
    with pytest.raises(InvalidInput, match="several columns of one name: x, x"):
        (C("x") == 1).filter_df(pd.DataFrame([[1, 2]], columns=["x", "x"]))


def test_a_column_of_mixed_types_is_refused():
    with pytest.raises(InvalidType, match="mixed"):
        (C("x") == 1).filter_df(pd.DataFrame({"x": [1, "a"]}))


@given(st.lists(st.none() | st.integers(-3, 3)), st.sampled_from(OPERATORS), st.integers(-3, 3))
def test_filter_agrees_with_python(values, entry, value):
    df = pd.DataFrame({"x": pd.array(values, dtype="Int64")})
    expected = [i for i, v in enumerate(values) if v is not None and entry[0](v, value)]
    assert list(entry[0](C("x"), value).filter_df(df).index) == expected


@given(st.lists(st.none() | st.integers(-3, 3)), st.lists(st.integers(-3, 3)))
def test_isnotin_is_unequal_to_each_value(values, excluded):
    df = pd.DataFrame({"x": pd.array(values, dtype="Int64")})
    expected = [i for i, v in enumerate(values) if v is not None and v not in excluded]
    assert list(C("x").isnotin(excluded).filter_df(df).index) == expected
    if excluded:
        assert list(Conjunction(C("x") != v for v in excluded).filter_df(df).index) == expected


# --- text -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("i == 1", C("i") == 1),
        ("i=1", C("i") == 1),
        ("i!=1", C("i") != 1),
        ("i < 1", C("i") < 1),
        ("i <=1", C("i") <= 1),
        ("i> 1", C("i") > 1),
        ("i >= -1", C("i") >= -1),
        ("  (  i == 1 )  ", C("i") == 1),
        ("(i==1", C("i") == 1),
        ("i==1)", C("i") == 1),
        ("s==a", C("s") == "a"),
        ("s == a b ", C("s") == "a b"),
        ("s == ' a b '", C("s") == " a b "),
        ('s == "a"', C("s") == "a"),
        ("s == nan", C("s") == "nan"),
        ("f < 1.5", C("f") < 1.5),
        ("b == True", C("b") == True),  # noqa: E712 -- makes a condition
        ("t >= 2020-01-02 03:04", C("t") >= pd.Timestamp(2020, 1, 2, 3, 4)),
        ("i in (1, 2)", C("i").isin([1, 2])),
        ("(i in(1,))", C("i").isin([1])),
        (" ( i  not  in ( 1 ,-2 ) ) ", C("i").isnotin([1, -2])),
        ("i not in ()", C("i").isnotin([])),
        ("s not in (a b, 'c, (d)=e', \"it's\")", C("s").isnotin(["a b", "c, (d)=e", "it's"])),
        (r"s in ('a\\b')", C("s").isin(["a\\b"])),
        (
            "t in (2020-01-02, '2020-01-03 04:05')",
            C("t").isin([pd.Timestamp(2020, 1, 2), pd.Timestamp(2020, 1, 3, 4, 5)]),
        ),
    ],
)
def test_one_condition_is_read_from_text(text, expected):  # cube 36, 37
    assert Condition.from_string(text, TYPES) == expected
    assert Conjunction.from_string(text, TYPES) == Conjunction(expected)


def test_a_bracketed_or_lonely_condition_may_have_an_empty_text_as_value():
    empty = C("s") == ""
    assert Condition.from_string(str(empty), TYPES) == empty
    assert Conjunction.from_string(str(Conjunction(empty)), TYPES) == Conjunction(empty)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "i",
        "==1",
        "i==",
        "((i==1))",
        "i ~ 1",
        "i in 1",
        "i in (1",
        "i in (1,,2)",
        "i in (,)",
        "i in ((1, 2))",
        "s in ('a' b)",
        "i.in_interval(1, 2)",
        "i==1==2",
    ],
)
def test_text_that_is_no_condition_is_quoted_in_the_error(text):  # cube 39
    with pytest.raises(InvalidInput) as error:
        Condition.from_string(text, TYPES)
    assert f'Cannot parse condition "{text}"' in str(error.value)


@pytest.mark.parametrize("name", ["Order No", "not in", "a in b", "Price (EUR)", "#"])
def test_a_column_may_have_spaces_in_its_name(name):
    types = {name: pa.string(), "s": pa.string()}
    for condition in (C(name) == "v", C(name) >= "in (v", C(name).isin(["a=1", "b"]), C(name).isnotin(["a < 1"])):
        assert Condition.from_string(str(condition), types) == condition
        assert Conjunction.from_string(str(condition & (C("s") == "w")), types) == condition & (C("s") == "w")


def test_an_unknown_column_is_named_with_the_text_and_the_known_ones():  # cube 39
    with pytest.raises(InvalidInput, match=r'Unknown column "z" in condition "z == 1".*b, f, i, l, s, t'):
        Condition.from_string("z == 1", TYPES)


@pytest.mark.parametrize(
    "text",
    ["i == a", "i == 1,5", "i=<1", "f == x", "b == maybe", "t == x", "l == 1", "f == nan", "t == nat"],
)
def test_a_value_that_is_no_literal_or_a_null_is_a_value_error(text):
    with pytest.raises(ValueError):
        Condition.from_string(text, TYPES)


@pytest.mark.parametrize(
    "text", ["i in (a)", "i not in (1.5.)", "f in (1, x)", "l in (1)", "l in ('1')", "f in (nan)", "t not in (nat)"]
)
def test_a_list_of_values_that_are_no_literals_is_a_value_error(text):
    with pytest.raises(ValueError):
        Condition.from_string(text, TYPES)


@pytest.mark.parametrize("text", ["", "  ", "\n"])
def test_blank_text_is_no_restriction(text):  # cube 38
    assert Conjunction.from_string(text, TYPES) == Conjunction(None)


def test_several_conditions_are_read_from_text():  # cube 40
    expected = (C("i") == 1) & (C("s") != "b")
    for text in ("i==1&s!=b", "(i == 1) & (s != b)", "(i==1 & s!=b)", str(expected)):
        assert Conjunction.from_string(text, TYPES) == expected


@pytest.mark.parametrize(("text", "part"), [("s==a&b", "b"), ("i==1 &", "")])
def test_an_ampersand_separates_everywhere(text, part):
    with pytest.raises(InvalidInput) as error:
        Conjunction.from_string(text, TYPES)
    assert f'Cannot parse condition "{part}"' in str(error.value)


plain_text = st.text(st.characters(exclude_characters=")=&'\"", exclude_categories=["C", "Z"]), min_size=1)
simple = st.one_of(
    st.builds(lambda o, v: o[0](C("i"), v), st.sampled_from(OPERATORS), st.integers()),
    st.builds(lambda o, v: o[0](C("s"), v), st.sampled_from(OPERATORS), plain_text),
    st.builds(lambda o, v: o[0](C("f"), v), st.sampled_from(OPERATORS), st.floats(allow_nan=False)),
    st.builds(
        lambda o, v: o[0](C("t"), pd.Timestamp(v)),
        st.sampled_from(OPERATORS),
        st.datetimes(dt.datetime(1700, 1, 1), dt.datetime(2200, 1, 1)),
    ),
)


@given(st.lists(simple))
def test_simple_conditions_survive_text(conditions):  # cube 40
    conjunction = Conjunction(conditions)
    assert Conjunction.from_string(str(conjunction), TYPES) == conjunction
    for condition in conditions:
        assert Condition.from_string(str(condition), TYPES) == condition


any_text = st.text(st.characters(exclude_characters="&", codec="utf-8"))


@given(
    st.sampled_from([IsInCondition, IsNotInCondition]),
    st.lists(st.integers()),
    st.lists(any_text),
    st.lists(st.floats(allow_nan=False)),
)
def test_lists_of_numbers_and_texts_survive_text(cls, numbers, texts, floats):
    conjunction = Conjunction([cls("i", numbers), cls("s", texts), cls("f", floats)])
    assert Conjunction.from_string(str(conjunction), TYPES) == conjunction
    for condition in conjunction.conditions:
        assert Condition.from_string(str(condition), TYPES) == condition


# --- JSON -----------------------------------------------------------------------------------------


def test_json_form_is_a_list_of_attributes_and_class_names():
    assert ((C("a") == 1) & C("b").isin([1, 2]) & C("c").in_interval(1, None)).to_jsonarray() == [
        {"type": "EqualityCondition", "column": "a", "value": 1},
        {"type": "IsInCondition", "column": "b", "value": [1, 2]},
        {"type": "InIntervalCondition", "column": "c", "start": 1, "stop": None},
    ]


def test_json_keeps_values_that_json_does_not_know():
    now = pd.Timestamp("2020-01-01")
    assert Conjunction(C("t") == now).to_jsonarray()[0]["value"] is now


def test_all_nine_classes_survive_json():  # cube 41
    conjunction = Conjunction(ALL_NINE)
    array = conjunction.to_jsonarray()
    before = [dict(item) for item in array]
    restored = Conjunction.from_jsonarray(array)
    assert restored == conjunction
    assert [type(r) for r in restored.conditions] == [type(e) for e in ALL_NINE]
    assert array == before


@given(
    st.lists(
        simple
        | st.builds(lambda cls, v: cls("s", v), st.sampled_from([IsInCondition, IsNotInCondition]), st.lists(st.text()))
        | st.builds(lambda v, w: C("i").in_interval(v, w), st.integers(), st.integers())
    )
)
def test_conditions_survive_json(conditions):
    conjunction = Conjunction(conditions)
    assert Conjunction.from_jsonarray(conjunction.to_jsonarray()) == conjunction


@pytest.mark.parametrize(
    ("array", "error", "words"),
    [
        ((), InvalidType, "jsonarray must be a list"),
        ({}, InvalidType, "jsonarray must be a list"),
        ("[]", InvalidType, "jsonarray must be a list"),
        ([1], InvalidType, "Condition in jsonarray must be a dict"),
        ([{}], InvalidInput, "Missing type value for condition"),
        *[
            ([{"type": t}], InvalidType, "Unknown condition class")
            for t in ("Condition", "SimpleCondition", "Conjunction", "C", "VirtualColumn", "", "x", None, [])
        ],
        ([{"type": "EqualityCondition", "column": "a"}], InvalidType, "value"),
        ([{"type": "EqualityCondition", "column": "a", "value": 1, "foo": 2}], InvalidType, "foo"),
        ([{"type": "EqualityCondition", "column": "a", "value": None}], InvalidInput, "NULL-value"),
    ],
    ids=repr,
)
def test_json_that_describes_no_condition_is_refused(array, error, words):  # cube 42
    with pytest.raises(error, match=words):
        Conjunction.from_jsonarray(array)


# --- dataset predicates ---------------------------------------------------------------------------


@pytest.mark.parametrize("value", [1, "a b) 'c' ", 1.5, True, pd.Timestamp(2020, 1, 2, 3, 4, 5)], ids=repr)
@pytest.mark.parametrize(("compare", "cls", "op"), OPERATORS)
def test_predicates_become_conditions_with_their_exact_values(compare, cls, op, value):
    condition = write_predicate_as_cube_condition(("a b", op, value))
    assert condition == compare(C("a b"), value) == cls("a b", value)


def test_predicates_with_in_become_isin():
    assert write_predicate_as_cube_condition(("x", "in", [1, 2])) == C("x").isin([1, 2])
    assert write_predicate_as_cube_condition(("x", "not in", [1, 2])) == C("x").isnotin([1, 2])
    assert write_predicate_as_cube_condition(("x", "not in", (i for i in (1, 2)))) == C("x").isnotin([1, 2])
    assert write_predicate_as_cube_condition(("x", "in", 1)) == C("x").isin([1])


@pytest.mark.parametrize("text", ["", "nan", "NaT", "then"])
def test_a_text_that_is_no_moment_selects_nothing_by_mistake(text):
    frame = pd.DataFrame({"t": pd.to_datetime(["2024-05-01"])})
    with pytest.raises(InvalidInput, match="no timestamp"):
        (C("t") != text).filter_df(frame)


def test_one_inner_list_of_predicates_becomes_a_tuple_of_conditions():
    assert convert_predicates_to_cube_conditions([[("x", "==", 1), ("y", "<", 2)]]) == (C("x") == 1, C("y") < 2)
    assert convert_predicates_to_cube_conditions([[]]) == ()


@pytest.mark.parametrize("predicate", [(), ("x", "=="), ("x", "==", 1, 2)], ids=repr)
def test_predicates_of_wrong_length_are_refused(predicate):  # cube 43
    with pytest.raises(InvalidInput, match="exactly 3 entries"):
        write_predicate_as_cube_condition(predicate)


@pytest.mark.parametrize("predicates", [[], [[("x", "==", 1)], [("x", "==", 2)]]], ids=repr)
def test_predicates_with_an_or_are_refused(predicates):  # cube 43
    with pytest.raises(InvalidInput, match="Cube conditions cannot handle 'or' operators"):
        convert_predicates_to_cube_conditions(predicates)


@pytest.mark.parametrize("value", [dt.time(12), None, [1]], ids=repr)
def test_predicates_on_times_nulls_and_lists_are_refused(value):  # cube 43
    with pytest.raises(InvalidType):
        write_predicate_as_cube_condition(("x", "==", value))
    with pytest.raises(InvalidType):
        convert_predicates_to_cube_conditions(None)


def test_predicates_with_an_unknown_operator_are_refused():
    with pytest.raises(InvalidInput, match="Unknown operator '~'"):
        write_predicate_as_cube_condition(("x", "~", 1))


def test_simple_condition_is_the_base_of_all_with_one_operator():
    assert all(isinstance(condition, SimpleCondition) for condition in ALL_NINE[:-1])
    assert not isinstance(ALL_NINE[-1], SimpleCondition)


# --- isnotin in queries ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cube_store():
    """Three partitions; `i1` is indexed and is null where x is 3, dataset `e` lacks the cell x=5
    and has a null for x=4.
    """
    store = MemoryStore()
    cube = Cube(["x"], ["p"], "cube", suppress_index_on=["x"])
    build_cube(pa.table({"x": range(6), "p": [0, 0, 1, 1, 2, 2], "i1": [10, 20, 10, None, 30, 20]}), cube, store)
    extend_cube({"e": pa.table({"x": range(5), "v1": ["a", "b", "c", "d", None]})}, cube, store, partition_on={"e": []})
    build_cube_index(cube, store, ["i1"], ["seed"])
    return cube, store


@pytest.mark.parametrize(
    ("condition", "expected", "files"),
    [
        (C("x").isnotin([0, 5, 9]), [1, 2, 3, 4], 3),
        (C("p").isnotin([0, 2]), [2, 3], 1),
        (C("p").isnotin([0]) & C("p").isnotin([1]), [4, 5], 1),
        (C("p").isnotin([]), [0, 1, 2, 3, 4, 5], 3),
        (C("i1").isnotin([10, 20]), [3, 4], 3),
        (C("i1").isnotin([]), [0, 1, 2, 3, 4, 5], 3),
        (C("v1").isnotin(["a", "c"]), [1, 3, 4], 3),
        (C("v1").isnotin([]), [0, 1, 2, 3, 4], 3),
    ],
    ids=str,
)
def test_isnotin_matches_in_queries_what_unequal_to_each_value_matches(cube_store, condition, expected, files):
    cube, store = cube_store
    plan = plan_cube_query(cube, store, condition)
    assert query_cube_arrow(cube, store, condition).column("x").to_pylist() == expected
    assert len(plan.files()["seed"]) == files
    same = [C(part.column) != value for part in Conjunction(condition).conditions for value in part.value]
    if same:
        assert query_cube_arrow(cube, store, same).column("x").to_pylist() == expected


@pytest.mark.parametrize(("column", "value"), [("x", "a"), ("i1", "1.5"), ("v1", True), ("p", "0")])
def test_isnotin_is_checked_against_the_type_of_its_column(cube_store, column, value):
    with pytest.raises(InvalidType, match=f"`{column} not in .*'{column}'"):
        query_cube_arrow(*cube_store, C(column).isnotin([value]))


def test_isnotin_says_which_partitions_are_removed():
    store, cube = MemoryStore(), Cube(["x"], ["p"], "cube")
    build_cube(pa.table({"x": [1, 2, 3], "p": ["a", "b", "c"]}), cube, store)
    remove_partitions(cube, store, C("p").isnotin(["b"]))
    assert query_cube_arrow(cube, store).column("p").to_pylist() == ["b"]


def test_isnotin_is_shown_by_a_plan(cube_store):
    assert "x not in [1, 2]" in plan_cube_query(*cube_store, C("x").isnotin([1, 2])).explain()


def test_the_text_form_knows_its_operators_whatever_was_imported_first():
    code = (
        "import pyarrow as pa; from kartothek_cube.core.expressions.conditions import Conjunction;"
        "print(Conjunction.from_string('x >= 2', {'x': pa.int64()}))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout.strip()) == (0, "(x >= 2)"), ran.stderr

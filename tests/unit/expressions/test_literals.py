from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kartothek_cube.core.expressions.conditions import C, Condition
from kartothek_cube.errors import InvalidInput

TYPES = {
    "b": pa.bool_(),
    "d": pa.date32(),
    "d64": pa.date64(),
    "f": pa.float64(),
    "i": pa.int64(),
    "l": pa.large_string(),
    "n": pa.decimal128(5, 2),
    "s": pa.string(),
    "t": pa.timestamp("us"),
    "v": pa.dictionary(pa.int32(), pa.string()),
}


@given(day=st.dates(), column=st.sampled_from(["d", "d64"]))
def test_dates_are_read_from_text(day, column):
    for condition in (C(column) == day, C(column) > day):
        assert Condition.from_string(str(condition), TYPES) == condition
    assert Condition.from_string(f"{column} in ({day}, '{day}')", TYPES) == C(column).isin([day, day])
    assert Condition.from_string(f"{column} != '{day}'", TYPES) == (C(column) != day)


def test_texts_of_every_kind_are_read():
    assert Condition.from_string("l == 'a b'", TYPES) == (C("l") == "a b")
    assert Condition.from_string("v in (a, 'b, c')", TYPES) == C("v").isin(["a", "b, c"])
    assert Condition.from_string("n == 1.50", TYPES) == (C("n") == Decimal("1.5"))
    assert Condition.from_string("i > 3.5", TYPES) == (C("i") > Decimal("3.5"))
    assert Condition.from_string("i in (1, 2e3)", TYPES) == C("i").isin([1, 2000])


@pytest.mark.parametrize("column", ["s", "l", "v"])
def test_a_date_without_quotes_is_text_where_the_column_has_texts(column):
    assert Condition.from_string(f"{column} >= 2024-01-01", TYPES) == (C(column) >= "2024-01-01")
    assert Condition.from_string(f"{column} in (2024-01-01, 2024-1-2)", TYPES) == C(column).isin(
        ["2024-01-01", "2024-1-2"]
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("i > 3,5", "column i is int64 and takes a number."),
        ("i >> 3", "column i is int64 and takes a number."),
        ("f > i", "column f is double and takes a number. A column is compared with a value, not with another column."),
        (
            "f in (1, i)",
            "column f is double and takes a number. A column is compared with a value, not with another column.",
        ),
        ("i > 3 and f > 2", "column i is int64 and takes a number. Conditions are joined by &, and there is no or."),
        ("i > 3 || f > 2", "column i is int64 and takes a number. Conditions are joined by &, and there is no or."),
        ("i == NULL", "column i is int64 and takes a number. Nothing can be compared with a null."),
        ("d > yesterday", "column d is date32[day] and takes a date such as 2024-01-31."),
        ("d == 2024-13-01", "column d is date32[day] and takes a date such as 2024-01-31."),
        ("t > soon", "column t is timestamp[us] and takes a time such as 2024-01-31 12:00."),
        ("b == maybe", "column b is bool and takes true or false."),
        (r"i in ('\x')", "column i is int64 and takes a number."),
        (r"s in ('\x')", "column s is string and takes a text."),
    ],
)
def test_a_value_that_is_none_is_told_what_the_column_takes(text, message):
    with pytest.raises(InvalidInput) as error:
        Condition.from_string(text, TYPES)
    assert str(error.value) == f'Condition "{text}": {message}'


def test_a_type_that_texts_have_no_values_of_is_named_with_its_column():
    with pytest.raises(InvalidInput) as error:
        Condition.from_string("n == 1", {"n": pa.time64("us")})
    assert (
        str(error.value) == 'Cannot handle type time64[us] of column "n": '
        "conditions as text are on texts, numbers, booleans, dates and times."
    )


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("3 < i", " The column stands on the left."),
        ("0 < i < 5", " The column stands on the left."),
        ("I == 3", " Did you mean 'i'?"),
        ("zzz == 3", "s, t, v."),
        ("zzz in ()", "s, t, v."),
    ],
)
def test_an_unknown_column_may_have_been_meant_otherwise(text, end):
    with pytest.raises(InvalidInput, match="Unknown column") as error:
        Condition.from_string(text, TYPES)
    assert str(error.value).endswith(end)


def test_of_many_columns_the_first_are_named():
    with pytest.raises(InvalidInput, match=r"payload000, .*payload011, … \(300 in all\)\. Did you mean 'payload123'\?"):
        Condition.from_string("paylod123 == 1", {f"payload{i:03}": pa.int64() for i in range(300)})

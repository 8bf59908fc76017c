"""Constants in the type of a column: which are taken, and where they lie among its values."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from kartothek_cube.core.expressions.literals import Literal, check_literal, is_own_kind, literal, literal_array
from kartothek_cube.errors import InvalidType

US = pa.timestamp("us")
BERLIN = pa.timestamp("us", tz="Europe/Berlin")

MOMENT = dt.datetime(2020, 1, 1, 12, 30, 0, 5)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int8(), [1, -1, 2**70, np.int8(1), np.int64(1), np.uint8(1), pa.scalar(1)]),  # H12
        (pa.int8(), [1.0, 1.5, np.float64(1), float("inf"), Decimal("1e99"), Decimal("0.1"), pa.scalar(1.5)]),
        (pa.uint8(), [1, np.uint64(1), np.int8(-1), -0.5]),  # H12
        (pa.float32(), [1.0, float("inf"), np.float32(1), 1, 10**400, np.int8(1), Decimal("2.5")]),
        (pa.bool_(), [True, np.bool_(False)]),
        (pa.string(), ["a", b"a", "ä".encode()]),
        (pa.binary(), ["a", b"\xff"]),
        (pa.date32(), [dt.date(2020, 1, 1), "2020-01-01", b"2020-01-01"]),
        (pa.date32(), [MOMENT, pd.Timestamp(MOMENT), np.datetime64("2020-01-01"), pa.scalar(MOMENT)]),
        (US, [MOMENT, pd.Timestamp(MOMENT), np.datetime64(MOMENT), pa.scalar(MOMENT), dt.date(2020, 1, 1)]),
        (US, ["2020-01-01", "2020-01-01 12:30", "2020-01-01T12:30:00.000000005", b"2020-01-01"]),
        (BERLIN, [MOMENT, MOMENT.replace(tzinfo=dt.UTC), "2020-01-01T12:30Z", "2020-01-01 12:30:00+01:00"]),
        (pa.decimal128(4, 2), [Decimal("1.5"), Decimal("-1e99"), 1, 2.5, float("-inf"), 10**99, np.int8(1)]),
        (pa.null(), [1, "a", None]),
        (pa.dictionary(pa.int8(), pa.string()), ["a"]),
    ],
    ids=str,
)
def test_constants_that_fit(kind, values):
    for value in values:
        check_literal(value, kind, "x")


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int64(), [True, "1", np.bool_(True), dt.date(2020, 1, 1)]),
        (pa.uint64(), [True]),
        (pa.float64(), [True, "1.0", Decimal("0.1"), Decimal("1e400")]),
        (pa.bool_(), [0, 1, "True"]),
        (pa.string(), [1, dt.date(2020, 1, 1), b"\xff"]),
        (pa.binary(), [1]),
        (pa.date32(), [MOMENT.replace(tzinfo=dt.UTC), "1.1.2020", "2020-01-01T12:00", b"\xff", 1]),  # H15
        (US, [1, MOMENT.replace(tzinfo=dt.UTC), "2020-01-01T12:00Z", "2020-02-30", "2020", "now", b"\xff"]),  # H16
        (BERLIN, [dt.date(2020, 1, 1), "2020-01-01", "2020-01-01T12:00"]),
        (pa.decimal128(4, 2), ["1.0", 0.1, True]),
        (pa.list_(pa.int64()), [1, [1]]),
        (pa.struct([("a", pa.int64())]), [{"a": 1}]),
    ],
    ids=str,
)
def test_constants_that_do_not_fit_are_refused_with_column_and_value(kind, values):
    for value in values:
        with pytest.raises(InvalidType, match=r"Column 'x' of dataset 'uuid' is .* the value is"):
            check_literal(value, kind, "x", " of dataset 'uuid'")


@pytest.mark.parametrize(
    ("value", "kind", "floor", "exact"),
    [
        (-128, pa.int8(), -128, True),
        (128, pa.int8(), 127, False),
        (-(2**70), pa.int64(), None, False),
        (-1, pa.uint64(), None, False),
        (2**64 - 1, pa.uint64(), 2**64 - 1, True),
        (np.int64(-1), pa.uint8(), None, False),
        (Decimal("1.5"), pa.decimal128(4, 2), Decimal("1.50"), True),
        (Decimal("99.99"), pa.decimal128(4, 2), Decimal("99.99"), True),
        (Decimal("99.991"), pa.decimal128(4, 2), Decimal("99.99"), False),
        (Decimal(100), pa.decimal128(4, 2), Decimal("99.99"), False),
        (Decimal("-99.991"), pa.decimal128(4, 2), None, False),
        (Decimal("-0.001"), pa.decimal128(4, 2), Decimal("-0.01"), False),
        (Decimal("1e-999999"), pa.decimal128(38, 38), Decimal(0), False),
        (Decimal("-0e999"), pa.decimal128(4, 2), Decimal(0), True),
        (Decimal("-Infinity"), pa.decimal128(4, 2), None, False),
        (Decimal("Infinity"), pa.decimal128(38, 0), Decimal(10**38 - 1), False),
        (Decimal(1234), pa.decimal128(4, -2), Decimal(1200), False),
        (2.5, pa.decimal128(4, 2), Decimal("2.50"), True),
        (7, pa.decimal128(4, 2), Decimal("7.00"), True),
        (1.5, pa.int8(), 1, False),
        (-1.5, pa.int8(), -2, False),
        (2.0, pa.uint64(), 2, True),
        (float("-inf"), pa.int64(), None, False),
        (float(2**63), pa.int64(), 2**63 - 1, False),
        (Decimal("1e999999"), pa.int64(), 2**63 - 1, False),
        (2**53 + 1, pa.float64(), 2.0**53, False),
        (-(2**53) - 1, pa.float64(), -(2.0**53) - 2, False),
        (3, pa.float64(), 3.0, True),
        (10**400, pa.float64(), 1.7976931348623157e308, False),
        (-(10**400), pa.float64(), float("-inf"), False),
        (dt.datetime(2020, 1, 1), pa.date32(), dt.date(2020, 1, 1), True),
        (dt.datetime(2020, 1, 1, 0, 0, 0, 1), pa.date32(), dt.date(2020, 1, 1), False),
        (dt.datetime(1969, 12, 31, 12), pa.date32(), dt.date(1969, 12, 31), False),
        (np.datetime64(30_000, "Y"), pa.date32(), dt.date.max, False),
        (np.datetime64(-30_000, "Y"), pa.date32(), None, False),
        (dt.date(2020, 1, 1), US, dt.datetime(2020, 1, 1), True),
        ("2020-01-01 12:30", US, dt.datetime(2020, 1, 1, 12, 30), True),
        ("2020-01-01T12:30:00.000005001", US, MOMENT, False),
        ("9999-12-31T23:59:59.999999999", US, dt.datetime(9999, 12, 31, 23, 59, 59, 999999), False),
    ],
)
def test_the_greatest_value_that_is_not_above_a_constant(value, kind, floor, exact):
    found = literal(value, kind)
    assert (None if found.floor is None else found.floor.as_py(), found.exact) == (floor, exact)
    assert found.floor is None or found.floor.type.equals(kind)


@pytest.mark.parametrize(
    ("unit", "ticks", "exact"), [("s", -1, False), ("ms", -1, False), ("us", -1000, False), ("ns", -999999, True)]
)
@pytest.mark.parametrize(
    "value",
    [
        pd.Timestamp(-999999),
        np.datetime64(-999999, "ns"),
        np.datetime64(-999999000, "ps"),
        pd.Timestamp(-999999, tz="UTC"),
    ],
)
def test_moments_are_exact_in_every_unit(unit, ticks, exact, value):
    assert literal(value, pa.timestamp(unit)) == Literal(pa.scalar(ticks, pa.int64()).cast(pa.timestamp(unit)), exact)


@pytest.mark.parametrize(("year", "floor"), [(-300_000, None), (300_000, 2**63 - 1)])
def test_moments_beyond_the_range_lie_below_or_above_all(year, floor):
    found = literal(np.datetime64(year - 1970, "Y"), US)
    assert (None if found.floor is None else found.floor.value, found.exact) == (floor, False)


@pytest.mark.parametrize(
    "value",
    [
        MOMENT,
        pd.Timestamp(MOMENT),
        pd.Timestamp(MOMENT).as_unit("us"),
        np.datetime64(MOMENT, "us"),
        np.datetime64(MOMENT, "ns"),
    ],
)
def test_every_spelling_of_a_moment_is_the_same(value):
    assert literal(value, US) == Literal(pa.scalar(MOMENT, US))
    assert literal_array([value], US).to_pylist() == [MOMENT]


@pytest.mark.parametrize("year", [1, 1600, 2400, 9999])
def test_moments_beyond_the_nanosecond_range(year):
    moment = dt.datetime(year, 12, 31)
    assert literal(np.datetime64(moment, "us"), US) == Literal(pa.scalar(moment, US))
    assert literal(np.datetime64(moment, "D"), US) == Literal(pa.scalar(moment, US))
    assert literal(pd.Timestamp(moment), US) == Literal(pa.scalar(moment, US))


def test_naive_moment_counts_as_utc_where_the_column_has_a_zone():
    expected = Literal(pa.scalar(dt.datetime(2020, 1, 1, 11, tzinfo=dt.UTC), BERLIN))
    assert literal(dt.datetime(2020, 1, 1, 11), BERLIN) == expected
    assert literal(pd.Timestamp("2020-01-01 12:00", tz="Europe/Berlin"), BERLIN) == expected
    assert literal(pd.Timestamp("2020-01-01 11:00").to_datetime64(), BERLIN) == expected


def test_second_of_two_equal_clock_times_is_kept_apart():
    from zoneinfo import ZoneInfo

    late = dt.datetime(2020, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1)
    assert literal(late, BERLIN) == Literal(pa.scalar(dt.datetime(2020, 10, 25, 1, 30, tzinfo=dt.UTC), BERLIN))


def test_constants_that_no_value_can_equal_are_left_out_of_lists():
    assert literal_array([1, 2**70], pa.int8()) == pa.array([1], pa.int8())
    assert literal_array([Decimal("0.5"), Decimal("0.555"), Decimal(100)], pa.decimal128(4, 2)) == pa.array(
        [Decimal("0.50")], pa.decimal128(4, 2)
    )
    assert literal_array([pd.Timestamp("2020-01-01 00:00:00.000000001"), pd.Timestamp(MOMENT)], US) == pa.array(
        [MOMENT], US
    )
    assert len(literal_array([1, "a"], pa.null())) == 0


FORMS = [
    *(
        [dt.datetime(9999, 1, 1), MOMENT],
        [pd.Timestamp(MOMENT)],
        [pd.Timestamp(MOMENT), pd.Timestamp(1)],
        [np.datetime64(MOMENT, "ns"), np.datetime64(1, "ns")],
    ),
    *(
        [np.datetime64(MOMENT, "us")],
        [np.datetime64(2**40, "s")],
        [np.datetime64(1, "D"), np.datetime64(7, "10us")],
        [MOMENT, np.datetime64(1, "s")],
    ),
    *(
        [MOMENT.replace(tzinfo=dt.timezone(dt.timedelta(hours=5)))],
        [pd.Timestamp(MOMENT, tz="Asia/Tokyo"), MOMENT],
        [np.datetime64(2**62, "s")],
        [],
    ),
]


@pytest.mark.parametrize("kind", [US, BERLIN, pa.timestamp("s"), pa.timestamp("ns", tz="UTC")], ids=str)
@pytest.mark.parametrize("values", FORMS, ids=str)
def test_moments_of_a_list_are_those_of_each(values, kind):
    places = [literal(value, kind) for value in values]
    assert literal_array(values, kind).cast(pa.int64()).to_pylist() == [
        place.floor.value for place in places if place.exact
    ]


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.dictionary(pa.int8(), pa.string())])
@pytest.mark.parametrize("value", ["\ud800", "a\udfffb"])
def test_text_that_is_no_text_is_compared_with_nothing(kind, value):
    with pytest.raises(InvalidType, match="Column 'x'"):
        check_literal(value, kind, "x")


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        ([1, 2.0, 2.5, Decimal(3), np.float32(4)], pa.int8(), [1, 2, 3, 4]),
        ([1.5, 2, 2**53 + 1], pa.float64(), [1.5, 2.0]),
        (
            [dt.date(2020, 1, 1), dt.datetime(2020, 1, 2), MOMENT],
            pa.date32(),
            [dt.date(2020, 1, 1), dt.date(2020, 1, 2)],
        ),
        ([dt.datetime(2020, 1, 1, 12)], pa.date32(), []),
        ([dt.date(2020, 1, 1), "2020-01-01T12:30:00.000005"], US, [dt.datetime(2020, 1, 1), MOMENT + dt.timedelta()]),
        ([1, 2.5, Decimal("0.125")], pa.decimal128(4, 2), [Decimal("1.00"), Decimal("2.50")]),
    ],
    ids=str,
)
def test_lists_hold_the_constants_that_a_value_can_equal(values, kind, expected):
    assert literal_array(values, kind).to_pylist() == expected


def test_constants_of_another_kind_are_not_pushed_to_where_they_mean_something_else():
    assert is_own_kind(1, pa.int8())
    assert is_own_kind(Decimal(1), pa.decimal128(4, 2))
    assert not is_own_kind(1.0, pa.int8())
    assert not is_own_kind(1, pa.float64())
    assert not is_own_kind(dt.date(2020, 1, 1), US)

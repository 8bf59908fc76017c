"""Conditions and moments as somebody types them."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

from kartothek_cube import Cube, append_to_cube, build_cube
from kartothek_cube.core.expressions.conditions import conditions_in
from tests.support.cli_cubes import CUBE, SEED

TYPES = {"p": pa.int64(), "s": pa.string(), "q": pa.string()}


@pytest.mark.parametrize(
    ("text", "doubt"),
    [
        ("s == NULL", "nothing can be compared with a null"),
        ("p == 1 & s != null", "nothing can be compared with a null"),
        ("s == None", "nothing can be compared with a null"),
        ("s in (a, NULL)", "nothing can be compared with a null"),
        ("s == q", "a column is compared with a value, not with another column"),
        ("s == a or p > 3", "conditions are joined by &, and there is no or"),
        ("s > a and q < b", "conditions are joined by &, and there is no or"),
        ("s == a || p in b", "conditions are joined by &, and there is no or"),
    ],
)
def test_a_text_without_quotes_that_may_be_meant_otherwise_is_refused(text, doubt):
    with pytest.raises(ValueError, match=r"^Condition ") as error:
        conditions_in(text, TYPES)
    assert f"{doubt}. For the text, write '" in str(error.value)


@pytest.mark.parametrize("value", ["NULL", "None", "q", "a or p > 3"])
@pytest.mark.parametrize("quote", ["'", '"'])
def test_quotes_make_it_a_text(value, quote):
    (condition,) = conditions_in(f"s == {quote}{value}{quote}", TYPES).conditions
    assert condition.value == value


@pytest.mark.parametrize(
    "text",
    ["s == Foo (bar)", "s != Foo (bar)", "p == 1 & s == Foo (bar)", "s == x)", "(p < 2", "s in (x))", "s == it's (x)"],
)
def test_a_bracket_that_may_belong_to_a_value_is_refused(text):
    with pytest.raises(ValueError, match=r"ambiguous.*in quotes, in a list|Cannot parse"):
        conditions_in(text, TYPES)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("(s == x)", "x"),
        ("(p == 1 & s == x)", "x"),
        ("(s == x) & (p in (1, 2))", "x"),
        ("s in ('Foo (bar)')", ("Foo (bar)",)),
        ("p in (1) & s == 'a ( b'", "a ( b"),
    ],
)
def test_brackets_around_conditions_and_in_quotes_are_fine(text, value):
    assert value in [condition[2] for condition in conditions_in(text, TYPES).predicate]


def test_an_error_repeats_what_was_written():
    with pytest.raises(ValueError, match=r'^Condition "d == 20240101": a moment'):
        conditions_in("d == 20240101", MOMENTS)


MOMENTS = {"t": pa.timestamp("us"), "z": pa.timestamp("us", tz="UTC"), "d": pa.date32()}


@pytest.mark.parametrize(
    "text",
    ["t >= 01.02.2024", "t == '13/02/2024'", "t in (2024-02-01, 03.01.2024)", "t > 2024", "z < today", "d == 20240201"],
)
def test_only_iso_texts_are_moments(text):
    with pytest.raises(ValueError, match=r"a moment is written as 2024-01-31, .*\.$"):
        conditions_in(text, MOMENTS)


@pytest.mark.parametrize(
    "text",
    ["t >= 2024-02-01", "t == '2024-02-01 12:30'", "z < 2024-02-01T23:00:00-05:00", "d in (2024-02-01, 2024-02-02)"],
)
def test_iso_texts_are_moments(text):
    assert len(conditions_in(text, MOMENTS).conditions) == 1


@pytest.mark.parametrize("text", ["s <> '001'", "s => 'M'", "s == a & q =! b"])
def test_an_operator_of_other_languages_is_no_part_of_a_text(text):
    with pytest.raises(ValueError, match="the operators are == != < <= > >="):
        conditions_in(text, TYPES)
    (condition,) = conditions_in("s < '> 001'", TYPES).conditions
    assert condition.value == "> 001"


@pytest.mark.parametrize("text", ["s > 'a' and q < 'b'", "s == 'a' or q in ('b')", "s == 'DE', 'FR'"])
def test_a_quoted_text_ends_at_its_quote(text):
    with pytest.raises(ValueError, match=r"joined by &, and there is no or, and several values are in \(\.\.\.\)"):
        conditions_in(text, TYPES)
    (condition,) = conditions_in("s == 'O'Neil'", TYPES).conditions
    assert condition.value == "O'Neil"


@pytest.mark.parametrize("value", ["none", "Null Co", "black or white", "O'Neil", "salt and p", "nullable"])
def test_other_texts_need_no_quotes(value):
    (condition,) = conditions_in(f"s == {value}", TYPES).conditions
    assert condition.value == value


def test_the_command_refuses_them_as_well(run):
    ran = run("my_cube", "query", "--where", "q == NULL")
    assert (ran.code, ran.out) == (2, "")
    assert (
        ran.err == 'Error: Could not parse conditions: Condition "q == NULL": nothing can be compared with a null. '
        "For the text, write 'NULL' in quotes.\n"
    )
    assert run("my_cube", "query", "--where", "v1 > v3").err.endswith(
        " A column is compared with a value, not with another column.\n"
    )


def test_dates_are_asked_for(run, folder):
    days = [dt.date(2024, 1, day) for day in (1, 2, 3)]
    build_cube(pa.table({"x": [0, 1, 2], "p": [0, 0, 0], "d": days}), Cube(["x"], ["p"], "days"), folder / "store")
    for text, rows in (
        ("d == 2024-01-02", 1),
        ("d >= '2024-01-02'", 2),
        ("d in (2024-01-01, 2024-01-03)", 2),
        ("d < 2024-01-01", 0),
    ):
        assert run("days", "query", "--where", text, "--columns", "").out.count("\n") == 1 + rows


def test_a_mistyped_column_is_recognised(run):
    for options in (["--where", "V1 > 1"], ["--columns", "V1"], ["--by", "I1"]):
        name = options[1][:2].lower()
        assert run("my_cube", "query", *options).err.endswith(f" Did you mean '{name}'?\n")


def test_a_commit_may_be_named_by_the_beginning_of_its_id(run, folder):
    append_to_cube(SEED, CUBE, folder / "store")
    first, second = (
        row["commit"] for row in run("my_cube", "history", "seed", "--format", "json").json["commits"][::-1]
    )
    assert (
        run("my_cube", "query", "--as-of", first[:12], "--columns", "").out
        == run("my_cube", "query", "--as-of", first, "--columns", "").out
    )
    assert second in run("my_cube", "undo", "--commit", second[:12], "--dry-run").out


def test_what_is_neither_a_commit_nor_a_time_is_told_how_times_look(run):
    assert run("my_cube", "query", "--as-of", "yesterday").err == (
        "Error: Cube 'my_cube' has no tag 'yesterday': it has no tags. "
        "A time is written as 2024-01-31 or 2024-01-31T12:00.\n"
    )

"""The least and the greatest values of columns, and what is said of those that are not known."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

from kartothek_cube import options
from kartothek_cube.api.cube import Cube, append_to_cube, build_cube, describe_cube
from kartothek_cube.core.stores.local import MemoryStore

CUBE = Cube(["x"], ["p"], "cube")


def described(*pieces, statistics=True, **columns):
    """The seed of a cube with these values in two rows, and what it says."""
    store = MemoryStore()
    build_cube(pa.table({"x": [1, 2], "p": [1, 2], **columns}), CUBE, store)
    for piece in pieces:
        append_to_cube(piece, CUBE, store, options=options(statistics=statistics))
    description = describe_cube("cube", store)
    (seed,) = description.datasets
    return description, seed


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pa.array([2, 1], pa.int16()), (1, 2)),
        (pa.array([0.5, float("nan")]), (0.5, 0.5)),
        (pa.array(["b", "a"]), ("a", "b")),
        (pa.array([dt.date(2024, 1, 2), dt.date(2024, 1, 1)]), (dt.date(2024, 1, 1), dt.date(2024, 1, 2))),
        (pa.array([True, False]), (False, True)),
        (pa.array([None, 3], pa.int64()), (3, 3)),
        (pa.array(["a" * 40, "b"]), ("a" * 32 + "…", "b")),
        (pa.array(["a", "b" * 40]), ("a", "b" * 31 + "c…")),
    ],
)
def test_ranges_are_those_of_all_files(values, expected):
    description, seed = described(v1=values)
    assert (seed.ranges["v1"].minimum, seed.ranges["v1"].maximum) == expected
    assert f"v1 {expected[0]} to {expected[1]}" in repr(description)
    assert all(str(end)[:20] in description._repr_html_() for end in expected)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["a" * 40, "b"], ("a" * 32 + "…", "b")),
        (["a", "b" * 40], ("a", "b" * 31 + "c…")),
        (["a", "b" * 32], ("a", "b" * 32)),
    ],
)
def test_only_the_end_that_was_cut_says_so(values, expected):
    _, seed = described(p=[1, 1], v1=values)
    assert (seed.ranges["v1"].minimum, seed.ranges["v1"].maximum) == expected


def test_a_moment_that_python_cannot_hold_is_left_out():
    far = pa.array([253402300799 * 10**6] * 2, pa.timestamp("us", tz="Europe/Berlin"))
    _, seed = described(v1=far)
    assert {*seed.ranges} == {"x"}


def test_a_column_without_known_values_has_no_range():
    _, seed = described(v1=pa.array([None, None], pa.int64()), v2=pa.array([[1], [2]]))
    assert {*seed.ranges} == {"x"}
    assert seed.rows == 2


def test_a_file_without_statistics_leaves_rows_and_ranges_unknown():
    more = pa.table({"x": [9], "p": [1]})
    _, seed = described(more)
    assert (seed.rows, str(seed.ranges["x"])) == (3, "1 to 9")
    description, seed = described(more, statistics=False)
    assert (seed.rows, seed.ranges) == (None, {})
    assert "row" not in repr(description)


def test_bytes_that_a_terminal_obeys_are_spelled():
    description, _ = described(v1=pa.array(["\x1b[2J", "z"]))
    assert "\x1b" not in repr(description)
    assert "\\x1b[2J to z" in repr(description)

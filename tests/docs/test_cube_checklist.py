"""The checklist of edge cases of cubes is whole, and every line of it is a test or says why it is none.

A test says in a comment which lines it is about, e.g. ``# cube 17, 18``. ``REGENERATE=1`` writes the column of tests anew.
"""

from __future__ import annotations

import re

import pytest

from tests.support.checklists import REPOSITORY, Checklist, check_row


def items_in(comment: str) -> set[str]:
    return {number for numbers in re.findall(r"\bcube (\d+(?:, (?:cube )?\d+)*)", comment) for number in re.findall(r"\d+", numbers)}


CHECKLIST = Checklist(REPOSITORY / "docs" / "cube-checklist.md", r"\d+", items_in)
ITEMS = [str(number) for number in range(1, 259)]
ROWS = CHECKLIST.rows()


def test_the_page_has_every_line_of_the_checklist_in_order():
    assert list(ROWS) == ITEMS


@pytest.mark.parametrize("item", ITEMS)
def test_a_line_is_a_test_or_says_why_it_is_none(item):
    check_row(ROWS[item])


def test_the_page_names_the_tests_that_exist():
    CHECKLIST.check_page()


def test_no_test_names_a_line_that_there_is_not():
    assert set(CHECKLIST.tests()) <= set(ITEMS)


SOURCE = """
x = 1  # cube 16

# cube 1 above
@pytest.mark.parametrize("x", [
    1,  # 10.1.14, cube 14 with 3 reasons
])
def test_a(x):
    pass  # cube 2, 3, cube 40

def test_b():  # a cube, 5 dimensions
    "cube 15"
"""


def test_items_are_found_in_comments_only():
    assert CHECKLIST.items_of(SOURCE) == {"test_a": {"1", "2", "3", "14", "40"}, "test_b": set()}

"""Every edge case of cubes in tests/checklist has a test or says why it has none.

A test says in a comment which rows it covers, e.g. ``# cube 17, 18``.
"""

from __future__ import annotations

import re

import pytest

from tests.support.checklists import Checklist, check_row, rows_in


def items_in(comment: str) -> set[str]:
    numbers = re.findall(r"\bcube (\d+(?:, (?:cube )?\d+)*)", comment)
    return {number for text in numbers for number in re.findall(r"\d+", text)}


CHECKLIST = Checklist("cubes.toml", items_in)
ITEMS = [str(number) for number in range(1, 259)]
ROWS = rows_in(CHECKLIST.name)


def test_the_list_has_every_edge_case_in_order():
    assert list(ROWS) == ITEMS


@pytest.mark.parametrize("item", ITEMS)
def test_an_edge_case_has_a_test_or_says_why_it_has_none(item):
    check_row(item, ROWS[item], CHECKLIST.tests())


def test_no_test_names_an_edge_case_that_does_not_exist():
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

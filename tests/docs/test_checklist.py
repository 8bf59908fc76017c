"""The checklist of edge cases of datasets is whole, and every line of it is a test or says why it is none.

A test says in a comment which lines it is about, e.g. ``# C14``. ``REGENERATE=1`` writes the column of tests anew.
"""

from __future__ import annotations

import re

import pytest

from tests.support.checklists import REPOSITORY, Checklist, check_row

CHECKLIST = Checklist(REPOSITORY / "docs" / "checklist.md", r"[A-L]\d\d", lambda comment: set(re.findall(r"\b([A-L]\d\d)\b", comment)))
WEAKNESSES = REPOSITORY / "docs" / "known-weaknesses.md"

# How many lines each group has.
GROUPS = {"A": 9, "B": 7, "C": 44, "D": 37, "E": 22, "F": 37, "G": 11, "H": 38, "I": 20, "J": 6, "K": 13, "L": 18}
N_WEAKNESSES = 60
N_OF_CORRECTNESS = 37
ITEMS = [f"{group}{number:02}" for group, count in GROUPS.items() for number in range(1, count + 1)]
ROWS = CHECKLIST.rows()


def test_the_page_has_every_line_of_the_checklist_in_order():
    assert list(ROWS) == ITEMS


@pytest.mark.parametrize("item", ITEMS)
def test_a_line_is_a_test_or_says_why_it_is_none(item):
    check_row(ROWS[item])


def test_the_page_names_the_tests_that_exist():
    CHECKLIST.check_page()


WEAKNESS = re.compile(r"^\| (\d+) \| .+? \| (mended|mended in part|same|same, for now|not applicable) \| (?:.+? \| )?(.+?) ?\|$", re.MULTILINE)
KNOWN = WEAKNESS.findall(WEAKNESSES.read_text(encoding="utf-8"))


def test_every_known_weakness_has_its_line():
    assert [int(number) for number, _, _ in KNOWN] == list(range(1, N_WEAKNESSES + 1))


@pytest.mark.parametrize("shown_by", [pytest.param(last, id=number) for number, fate, last in KNOWN[:N_OF_CORRECTNESS] if fate != "not applicable"])
def test_a_fault_of_correctness_that_is_mended_is_shown_by_tests(shown_by):
    for name in shown_by.split(", "):
        if name in ROWS:
            assert ROWS[name]["tests"]
        else:
            module, test = name.strip("`").split("::")
            (path,) = (REPOSITORY / "tests").rglob(f"{module}.py")
            assert f"\ndef {test}(" in path.read_text(encoding="utf-8")


SOURCE = """
x = 1  # C16

# E01 above
@pytest.mark.parametrize("x", [
    1,  # C14 with a reason
])
def test_a(x):
    pass  # D02, D03

def test_b():
    "C15"
"""


def test_items_are_found_in_comments_only():
    assert CHECKLIST.items_of(SOURCE) == {"test_a": {"C14", "D02", "D03", "E01"}, "test_b": set()}

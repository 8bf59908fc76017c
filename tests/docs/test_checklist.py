"""The lists of differences are whole, and each edge case of datasets has a test or a reason.

A test says in a comment which rows it covers, e.g. ``# C14``.
"""

from __future__ import annotations

import re

import pytest

from tests.support.checklists import REPOSITORY, Checklist, check_row, rows_in

CHECKLIST = Checklist("datasets.toml", lambda comment: set(re.findall(r"\b([A-L]\d\d)\b", comment)))

# How many rows each group has.
GROUPS = {"A": 9, "B": 7, "C": 44, "D": 37, "E": 22, "F": 37, "G": 11, "H": 38, "I": 20, "J": 6, "K": 13, "L": 18}
ITEMS = [f"{group}{number:02}" for group, count in GROUPS.items() for number in range(1, count + 1)]
ROWS = rows_in(CHECKLIST.name)


def test_the_list_has_every_edge_case_in_order():
    assert list(ROWS) == ITEMS


@pytest.mark.parametrize("item", ITEMS)
def test_an_edge_case_has_a_test_or_says_why_it_has_none(item):
    check_row(item, ROWS[item], CHECKLIST.tests())


WEAKNESSES = rows_in("weaknesses.toml")
N_WEAKNESSES = 60
N_OF_CORRECTNESS = 37
STATES = {"mended", "mended in part", "same", "not applicable"}


def test_every_known_weakness_has_its_row():
    assert [int(number) for number in WEAKNESSES] == list(range(1, N_WEAKNESSES + 1))
    assert all(row["weakness"] and row["here"] and row["state"] in STATES for row in WEAKNESSES.values())


@pytest.mark.parametrize(
    "number",
    [
        number
        for number, row in WEAKNESSES.items()
        if int(number) <= N_OF_CORRECTNESS and row["state"] != "not applicable"
    ],
)
def test_a_fault_of_correctness_that_is_mended_is_shown_by_tests(number):
    for name in WEAKNESSES[number]["tests"]:
        if name in ROWS:
            assert CHECKLIST.tests()[name]
        else:
            sources = (path.read_text(encoding="utf-8") for path in (REPOSITORY / "tests").rglob("test_*.py"))
            assert any(f"\ndef {name}(" in source for source in sources)


def test_a_deviation_says_what_was_and_what_is():
    rows = rows_in("deviations.toml")["deviation"]
    assert len(rows) >= 37
    assert all(row["kartothek"] and row["here"] and set(row) <= {"kartothek", "here", "why"} for row in rows)
    assert len({row["kartothek"] for row in rows}) == len(rows)


PAGE = (REPOSITORY / "docs" / "differences.md").read_text(encoding="utf-8")
NUMBERED = [int(number) for number in re.findall(r"^\| (\d+) \| \S.+ \| \S.+ \|$", PAGE, re.MULTILINE)]
# What `verify` and `check-migration` name in their messages.
REFERENCE = re.compile(r'_PAGE\}, (\d+)|page \\?"Differences from kartothek\\?", (\d+)')


def test_the_page_numbers_its_rows():
    assert list(range(1, len(NUMBERED) + 1)) == NUMBERED


def test_messages_name_rows_of_the_page():
    sources = [path.read_text(encoding="utf-8") for path in (REPOSITORY / "kartothek_cube").rglob("*.py")]
    named = {int("".join(groups)) for source in sources for groups in REFERENCE.findall(source)}
    assert len(named) >= 8
    assert named <= set(NUMBERED)


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

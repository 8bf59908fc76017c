"""Functions are short, and no module needs a table of contents."""

from __future__ import annotations

import statistics

import pytest

from tests.support.source import MODULES, functions

MEDIAN_LINES = 8
LONGEST_FUNCTION = 60
LONGEST_MODULE = 500

FUNCTIONS = [function for module in MODULES.values() for function in functions(module)]


def test_the_median_function_is_short():
    assert statistics.median(lines for _, lines in FUNCTIONS) <= MEDIAN_LINES


def test_no_function_is_long():
    assert {name: lines for name, lines in FUNCTIONS if lines > LONGEST_FUNCTION} == {}


@pytest.mark.parametrize("name", MODULES)
def test_a_module_is_short_enough_to_read(name):
    assert len(MODULES[name].text.splitlines()) <= LONGEST_MODULE


@pytest.mark.parametrize("name", [name for name, module in MODULES.items() if module.text.strip()])
def test_a_module_says_what_lives_in_it(name):
    first = MODULES[name].tree.body[0]
    text = getattr(getattr(first, "value", None), "value", None)
    assert isinstance(text, str)
    assert text.strip()

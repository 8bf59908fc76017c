"""Mutants are found, and each is on or off by its number."""

from __future__ import annotations

import ast

import pytest

from tests.mutants.__main__ import ROOT, modules, sample
from tests.mutants.mutations import SWITCH, Mutator

SOURCE = """
LIMIT = 1

def f(x, log):
    log.append(x)
    return x + 1 if not x > 2 else f"{x + 1}"
"""


def found():
    mutator = Mutator("room")
    mutator.visit(ast.parse(SOURCE))
    return mutator.found


def function(numbers, is_on):
    tree = ast.fix_missing_locations(Mutator("room", numbers).visit(ast.parse(SOURCE)))
    namespace = {SWITCH: is_on}
    exec(compile(tree, "mutated", "exec"), namespace)
    return namespace["f"]


def test_functions_have_mutants_and_neither_modules_nor_texts():
    assert [(mutant.before, mutant.after) for mutant in found()] == [
        ("log.append(x)", "pass"),
        ("not x > 2", "x > 2"),
        ("x > 2", "x >= 2"),
        ("2", "3"),
        ("x + 1", "x - 1"),
        ("1", "2"),
    ]


@pytest.mark.parametrize(
    ("before", "result", "logged"),
    [("log.append(x)", 3, []), ("x > 2", "3", [2]), ("2", 3, [2]), ("x + 1", 1, [2]), ("1", 4, [2])],
)
def test_a_mutant_is_on_by_its_number(before, result, logged):
    numbers = {mutant: n for n, mutant in enumerate(found())}
    chosen = next(n for mutant, n in numbers.items() if mutant.before == before)
    for is_on, expected in ((lambda _: False, (3, [2])), (lambda n: n == chosen, (result, logged))):
        log = []
        assert (function(numbers, is_on)(2, log), log) == expected


def test_the_sample_is_in_the_package():
    missing = set(sample())
    for room, path in modules(ROOT / "kartothek_cube"):
        mutator = Mutator(room)
        mutator.visit(ast.parse(path.read_text(encoding="utf-8")))
        missing.difference_update(mutator.found)
    assert missing == set()

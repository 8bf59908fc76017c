"""The measures of the package: signs of a house that can be carried on, bounded from both sides."""

from __future__ import annotations

import ast
import statistics
import tokenize
from collections import Counter
from io import StringIO
from pathlib import Path

import pytest

from tests.support.doc_blocks import number_of_words
from tests.support.source import MODULES

DOCS = Path(__file__).parents[1] / "docs"

# Modules with code: the rooms' `__init__` do not count. A verb and a command have a file each.
MOST_MODULES = 330
LONGEST_MODULE = 500
LONGEST_FUNCTION = 60
# Shorter in the mean than the first figure: thoughts are cut into splinters.
MEAN_LINES = (7, 10)
P90_LINES = 25
CALLED_ONCE = 0.45
COMMENTS_IN_1000_LINES = 30
ANY_PARAMETERS = 100
WORDS_OF_DOCUMENTATION = 50_000
# Files that may share a name: the verbs, and plain words that mean the same in each room.
PLAIN = {"__init__", "__main__", "arguments", "errors", "groups", "options", "plan", "report", "rows", "run"}


def lines_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function with its signature, without its docstring."""
    docstring = function.body[0] if ast.get_docstring(function) is not None else None
    inside = 0 if docstring is None else (docstring.end_lineno or 0) - docstring.lineno + 1
    return (function.end_lineno or 0) - function.lineno + 1 - inside


VERBS = {Path(module.path).stem for name, module in MODULES.items() if ".verbs." in name or ".cli.commands." in name}


def functions() -> list[tuple[str, int]]:
    """Names of all functions with their numbers of lines."""
    return [
        (f"{name}.{node.name}", lines_of(node))
        for name, module in MODULES.items()
        for node in ast.walk(module.tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]


def test_there_are_few_modules():
    assert sum(len(module.tree.body) > 1 for module in MODULES.values()) <= MOST_MODULES


def test_a_name_of_a_file_says_what_is_in_it():
    # The modules of `api` have the names that kartothek gave them.
    names = Counter(module.path.stem for name, module in MODULES.items() if not name.startswith("kartothek_cube.api."))
    assert {name: n for name, n in names.items() if n > 2 and name not in PLAIN | VERBS} == {}


@pytest.mark.parametrize("name", MODULES)
def test_a_module_is_short_enough_to_read(name):
    assert len(MODULES[name].text.splitlines()) <= LONGEST_MODULE


@pytest.mark.parametrize("name", MODULES)
def test_a_module_says_what_is_in_it(name):
    assert ast.get_docstring(MODULES[name].tree)


def test_no_function_is_long():
    assert {name: lines for name, lines in functions() if lines > LONGEST_FUNCTION} == {}


def test_a_function_is_a_thought_and_no_splinter():
    lengths = sorted(lines for _, lines in functions())
    low, high = MEAN_LINES
    assert low <= statistics.mean(lengths) <= high
    assert lengths[len(lengths) * 9 // 10] <= P90_LINES


def once_called(tree: ast.Module) -> tuple[int, int]:
    """How many private functions a module has, and how many of them it names once."""
    private = [
        node.name
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and node.name.startswith("_")
        and not node.name.startswith("__")
    ]
    uses = Counter(
        node.id if isinstance(node, ast.Name) else node.attr
        for node in ast.walk(tree)
        if (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)) or isinstance(node, ast.Attribute)
    )
    return len(private), sum(uses[name] == 1 for name in private)


def test_helpers_are_worth_their_name():
    counts = [once_called(module.tree) for module in MODULES.values()]
    assert sum(once for _, once in counts) <= CALLED_ONCE * sum(private for private, _ in counts)


def test_the_reasons_are_written_down():
    comments = sum(
        token.type == tokenize.COMMENT and not token.string.startswith(("# type:", "# noqa", "# pragma"))
        for module in MODULES.values()
        for token in tokenize.generate_tokens(StringIO(module.text).readline)
    )
    lines = sum(bool(line.strip()) for module in MODULES.values() for line in module.text.splitlines())
    assert comments / lines * 1000 >= COMMENTS_IN_1000_LINES


def test_few_parameters_may_be_anything():
    parameters = [
        argument
        for module in MODULES.values()
        for node in ast.walk(module.tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        for argument in ast.walk(node.args)
        if isinstance(argument, ast.arg)
        and argument.annotation is not None
        and ast.unparse(argument.annotation) == "Any"
    ]
    assert len(parameters) <= ANY_PARAMETERS


def test_the_documentation_can_be_read_in_a_day():
    pages = [page for page in DOCS.rglob("*.md") if "_build" not in page.parts]
    assert sum(number_of_words(page.read_text(encoding="utf-8")) for page in pages) <= WORDS_OF_DOCUMENTATION

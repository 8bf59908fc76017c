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
from tests.support.source import MODULES, Module, imports

DOCS = Path(__file__).parents[1] / "docs"

# Modules with code: the rooms' `__init__` do not count. These figures may be lowered only.
MOST_MODULES = 176
MOST_LINES = 40_800
MOST_IMPORTS = 1_876
# Lines of code of a module: without imports, docstrings, comments and blank lines. A bound on lines
# with docstrings would cut rooms apart.
LONGEST_MODULE = 650
MEAN_MODULE = 200
# A module that fewer than two others import has to be worth a file.
WORTH_A_FILE = 200
IMPORTS_OF_A_MODULE = 11
LONGEST_FUNCTION = 60
# Shorter in the mean than the first figure: thoughts are cut into splinters.
MEAN_LINES = (7, 10)
P90_LINES = 25
CALLED_ONCE = 0.45
COMMENTS_IN_1000_LINES = 30
ANY_PARAMETERS = 100
WORDS_OF_DOCUMENTATION = 50_000
# Files that may share a name: the verbs, and plain words that mean the same in each room.
PLAIN = {"__init__", "__main__", "commit", "execute", "options", "plan", "run", "stage"}


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


DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def code_lines(module: Module) -> int:
    """Lines without imports, docstrings, comments and blank lines."""
    left_out = set[int]()
    for node in ast.walk(module.tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            left_out.update(range(node.lineno, (node.end_lineno or 0) + 1))
        elif isinstance(node, DOCUMENTED) and ast.get_docstring(node) is not None:
            left_out.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    lines = enumerate(map(str.strip, module.text.splitlines()), start=1)
    return sum(bool(line) and not line.startswith("#") and number not in left_out for number, line in lines)


CODE = {name: code_lines(module) for name, module in MODULES.items() if len(module.tree.body) > 1}
IMPORTED = {name: {one for one in imports(MODULES[name]) if one in MODULES and one != name} for name in MODULES}


def test_there_are_few_modules_and_lines():
    assert len(CODE) <= MOST_MODULES
    assert sum(CODE.values()) <= MOST_LINES


def test_modules_are_deep():
    assert {name: lines for name, lines in CODE.items() if lines > LONGEST_MODULE} == {}
    assert statistics.mean(CODE.values()) >= MEAN_MODULE


def test_modules_need_few_others():
    numbers = [len(IMPORTED[name]) for name in CODE]
    assert sum(numbers) <= MOST_IMPORTS
    assert statistics.mean(numbers) <= IMPORTS_OF_A_MODULE


# What is started or loaded by its name, or without what its only importer needs.
DOORS = {
    "__main__",
    "cli.__main__",
    "cli.app",
    "cli.prompt",
    "cube.verbs.write",
    "dask",
    "spark",
    "spark.datasource",
    "testing",
    "testing.driver",
}


def test_a_small_module_is_shared():
    importers = Counter(one for names in IMPORTED.values() for one in names)
    # Modules that users import by the names of kartothek and plateau.
    doors = tuple(
        f"kartothek_cube.{room}" for room in ("api", "engines", "cli.commands", "dask.dataframe_cube", "plateau")
    )
    small = {name for name, lines in CODE.items() if lines <= WORTH_A_FILE and not name.startswith(doors)}
    alone = {name.removeprefix("kartothek_cube.") for name in small if importers[name] < 2}
    assert alone - DOORS == set()


def test_no_function_only_calls_one_of_its_own_name():
    for name, module in MODULES.items():
        for node in module.tree.body:
            if isinstance(node, ast.FunctionDef):
                *_, last = node.body
                value = last.value if isinstance(last, (ast.Return, ast.Expr)) else None
                if len(node.body) <= 1 + (ast.get_docstring(node) is not None) and isinstance(value, ast.Call):
                    assert ast.unparse(value.func) != node.name, f"{name}.{node.name}"


def test_a_name_of_a_file_says_what_is_in_it():
    # The modules of `api` have the names that kartothek gave them.
    names = Counter(module.path.stem for name, module in MODULES.items() if not name.startswith("kartothek_cube.api."))
    assert {name: n for name, n in names.items() if n > 2 and name not in PLAIN | VERBS} == {}


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

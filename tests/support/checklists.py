"""The lists of edge cases in tests/checklist, compared with the tests whose comments name them."""

from __future__ import annotations

import ast
import io
import tokenize
import tomllib
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

REPOSITORY = Path(__file__).parents[2]
LISTS = REPOSITORY / "tests" / "checklist"
NO_TEST = "no test: "


def rows_in(name: str) -> dict[str, Any]:
    """Item → row of one list."""
    return tomllib.loads((LISTS / name).read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Checklist:
    """A list of edge cases: kartothek's behaviour beside ours.

    Attributes
    ----------
    name
        The file in tests/checklist.
    items_in
        The items that a comment names.
    """

    name: str
    items_in: Callable[[str], set[str]]

    def items_of(self, source: str) -> dict[str, set[str]]:
        """Test function → the items of the comments inside it, above it and on its decorators."""
        tokens = tokenize.generate_tokens(io.StringIO(source).readline)
        comments = {token.start[0]: token.string for token in tokens if token.type == tokenize.COMMENT}
        found = {}
        for node in ast.parse(source).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
                while first - 1 in comments:
                    first -= 1
                lines = range(first, (node.end_lineno or first) + 1)
                found[node.name] = set().union(*(self.items_in(comments[line]) for line in lines if line in comments))
        return found

    def tests(self) -> dict[str, list[str]]:
        """Item → names of the tests whose comments name the item."""
        return _tests(self)


@cache
def _tests(checklist: Checklist) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted((REPOSITORY / "tests").rglob("test_*.py")):
        for test, items in checklist.items_of(path.read_text(encoding="utf-8")).items():
            for item in items:
                found[item].append(f"{path.stem}::{test}")
    return found


def check_row(item: str, row: dict[str, str], tests: dict[str, list[str]]) -> None:
    """A row states both behaviours, and has a test or a reason for its absence."""
    assert set(row) == {"kartothek", "here"}
    assert all(row.values())
    if row["here"].startswith(NO_TEST):
        assert len(row["here"]) > len(NO_TEST) + 20
    else:
        assert tests.get(item), f"no test names {item} in a comment"

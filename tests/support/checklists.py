"""Pages of the documentation that list edge cases, compared with the tests that name their lines in comments."""

from __future__ import annotations

import ast
import io
import os
import re
import tokenize
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

REPOSITORY = Path(__file__).parents[2]
NO_TEST = "no test: "


@dataclass(frozen=True)
class Checklist:
    """One page: a table whose rows are item, what kartothek does, what happens here, and the tests.

    Attributes
    ----------
    page
        The file.
    item
        A pattern of what stands in the first column.
    items_in
        The items that a comment names.
    """

    page: Path
    item: str
    items_in: Callable[[str], set[str]]

    @property
    def row(self) -> re.Pattern[str]:
        """A row of the table."""
        return re.compile(rf"^\| (?P<item>{self.item}) \| (?P<there>.+?) \| (?P<here>.+?) \| (?P<tests>.*?) ?\|$")

    def items_of(self, source: str) -> dict[str, set[str]]:
        """Test function → the items that comments inside it, on its decorators or right above them name."""
        comments = {token.start[0]: token.string for token in tokenize.generate_tokens(io.StringIO(source).readline) if token.type == tokenize.COMMENT}
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
        """Item → names of the tests that name it. The tests of the documentation are none."""
        found: dict[str, list[str]] = defaultdict(list)
        for path in sorted((REPOSITORY / "tests").rglob("test_*.py")):
            if REPOSITORY / "tests" / "docs" not in path.parents:
                for test, items in self.items_of(path.read_text(encoding="utf-8")).items():
                    for item in items:
                        found[item].append(f"`{path.stem}::{test}`")
        return found

    def regenerated(self, page: str) -> str:
        """The text of the page with the column of tests as it should be."""
        known = self.tests()

        def row(match: re.Match[str]) -> str:
            cells = [match["item"], match["there"], match["here"], ", ".join(known.get(match["item"], []))]
            return f"| {' | '.join(cells)} |"

        return "\n".join(self.row.sub(row, line) for line in page.splitlines()) + "\n"

    def rows(self) -> dict[str, re.Match[str]]:
        """Item → its row. ``REGENERATE=1`` writes the column of tests anew."""
        if os.environ.get("REGENERATE"):
            self.page.write_text(self.regenerated(self.page.read_text(encoding="utf-8")), encoding="utf-8")
        return {match["item"]: match for line in self.page.read_text(encoding="utf-8").splitlines() if (match := self.row.match(line))}

    def check_page(self) -> None:
        """The page names the tests that exist."""
        page = self.page.read_text(encoding="utf-8")
        assert page == self.regenerated(page), "REGENERATE=1 pytest tests/docs/test_checklist.py tests/docs/test_cube_checklist.py"


def check_row(row: re.Match[str]) -> None:
    """A row names a test, or says why there is none."""
    if row["here"].startswith(NO_TEST):
        assert len(row["here"]) > len(NO_TEST) + 20
    else:
        assert row["tests"], f"no test names {row['item']} in a comment"

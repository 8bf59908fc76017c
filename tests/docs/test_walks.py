"""The walks through the code name files and functions that exist, each file once in a walk."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "design" / "006-walks.md"
STEP = re.compile(r"^1\. \[(?P<name>\S+)\]\((?P<link>\S+)\) (?P<functions>`\w+`(?:, `\w+`)*): ", re.MULTILINE)
WALKS = PAGE.read_text(encoding="utf-8").split("\n## ")[1:]


def titles():
    return [walk.partition("\n")[0] for walk in WALKS]


def test_the_calls_that_matter_have_a_walk():
    assert len(WALKS) == 6
    assert all(len(STEP.findall(walk)) >= 3 for walk in WALKS)


@pytest.mark.parametrize("walk", WALKS, ids=titles())
def test_a_walk_goes_one_way(walk):
    files = [step["name"] for step in STEP.finditer(walk)]
    assert len(files) == len(set(files)) == len(re.findall(r"^1\. ", walk, re.MULTILINE))


@pytest.mark.parametrize("walk", WALKS, ids=titles())
def test_each_step_is_there(walk):
    for step in STEP.finditer(walk):
        path = (PAGE.parent / step["link"]).resolve()
        assert path.as_posix().endswith(f"kartothek_cube/{step['name']}")
        names = {getattr(node, "name", None) for node in ast.parse(path.read_text(encoding="utf-8")).body}
        assert set(re.findall(r"\w+", step["functions"])) <= names, step["name"]

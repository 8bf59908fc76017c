from __future__ import annotations

import pytest
from click.shell_completion import ShellComplete, get_completion_class

from kartothek_cube.cli import cli
from kartothek_cube.cli.app import COMMANDS
from kartothek_cube.core.dataset.history import history
from kartothek_cube.cube.verbs.history import cube_history

pytestmark = pytest.mark.usefixtures("folder")


def completions(*words):
    """What there is for the last word."""
    return ShellComplete(cli, {}, "kartothek_cube", "_KARTOTHEK_CUBE_COMPLETE").get_completions(
        list(words[:-1]), words[-1]
    )


def offered(*words):
    """What the shell offers for the last word."""
    return [item.value for item in completions(*words)]


def kinds(*words):
    """What the shell is told of it."""
    return [(item.type, item.value) for item in completions(*words)]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["my"], ["my_cube"]),
        ([""], ["check-migration", "demo", "doctor", "my_cube", "other", "sql"]),
        (["--store", "two", ""], ["check-migration", "demo", "doctor", "sql"]),
        (["--url", "store", "o"], ["other"]),
        (["--store", ""], ["dataset", "two"]),
        (["my_cube", "ver"], ["verify"]),
        (["my_cube", "index", "s"], ["seed"]),
        (["my_cube", "index", "enrich", "v"], ["v2", "v3"]),
        (["my_cube", "index", "enrich", "v2,v"], ["v2,v2", "v2,v3"]),
        (["my_cube", "stats", "--include", "seed,e"], ["seed,enrich"]),
        (["my_cube", "copy", "--tgt_store", "t"], ["two"]),
        (["my_cube", "query", "--columns", "v"], ["v1", "v2", "v3", "v4"]),
        (["my_cube", "query", "--by", ""], ["i1", "p", "q", "x", "y"]),
        (["my_cube", "query", "--where", "i"], ["i1"]),
        (["my_cube", "history", ""], ["enrich", "seed", "un"]),
        (["my_cube++enrich", "merge", "rows.csv", "--on", "x,v"], ["x,v2", "x,v3"]),
        (["my_cube", "merge", "rows.csv", "--on", ""], []),
        (["my_cube", "forget", "--where", "i"], ["i1"]),
        (["nope", "history", ""], []),
        (["--skv", "nope.yml", ""], []),
    ],
    ids=" ".join,
)
def test_the_shell_is_offered(words, expected):
    assert offered(*words) == expected


@pytest.mark.parametrize(
    "words", [["changes", "--since"], ["changes", "--until"], ["query", "--as-of"], ["report", "--changed-since"]]
)
def test_commits_are_offered_as_history_shows_them(folder, words):
    known = [history(f"my_cube++{name}", "store") for name in ("seed", "enrich", "un")]
    ids = {name for table in known for column in ("commit", "cube") for name in table[column].dropna()}
    assert set(cube_history("my_cube", "store")["commit"]) <= ids
    assert offered("my_cube", *words, "") == sorted(name[:8] for name in ids)
    assert offered("nope", *words, "") == []


@pytest.mark.parametrize(
    "words",
    [["--skv", "s"], ["my_cube", "query", "--output", "s"], ["my_cube", "report", "--output", "s"]],
    ids=" ".join,
)
def test_files_are_left_to_the_shell(words):
    assert kinds(*words) == [("file", "s")]
    assert kinds("--url", "s") == kinds("my_cube", "copy", "--tgt_url", "s") == [("dir", "s")]


def test_fish_parts_a_value_at_its_first_comma_only():
    source = get_completion_class("fish")(cli, {}, "kartothek_cube", "_KARTOTHEK_CUBE_COMPLETE").source()
    assert 'string split --max 1 "," $completion' in source


def test_commands_are_offered_behind_a_cube():
    assert offered("my_cube", "") == sorted(COMMANDS)
    assert offered("check-migration", "--d") == ["--deep"]

"""The texts of the help: what each option means, examples that the command takes, lines that a
terminal shows.
"""

from __future__ import annotations

import re
import shlex

import click
import pytest
from click.testing import CliRunner

from kartothek_cube.cli import cli
from kartothek_cube.cli.app import COMMANDS


def help_of(*words):
    ran = CliRunner().invoke(cli, [*words, "--help"], terminal_width=80, prog_name="kartothek_cube")
    assert ran.exit_code == 0
    return ran.output


def command(name):
    found = cli.get_command(click.Context(cli), name)
    assert found is not None
    return found


PAGES = {"": help_of(), **{name: help_of("sales", name) for name in COMMANDS}}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_of_help_fits_a_terminal_and_has_examples(name):
    assert [line for line in PAGES[name].splitlines() if len(line) > 80] == []
    assert "Examples:\n    kartothek_cube " in PAGES[name]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_says_what_it_means(name):
    options = [parameter for parameter in command(name).params if isinstance(parameter, click.Option)]
    assert [option.name for option in options if not option.help] == []


def test_the_help_of_a_command_needs_no_cube_in_front():
    assert help_of("stats") == help_of("sales", "stats")


@pytest.mark.parametrize("line", re.findall(r"^    kartothek_cube (.*)$", "\n".join(PAGES.values()), re.MULTILINE))
def test_the_command_takes_what_the_examples_say(line):
    words = shlex.split(line)
    name = next((word for word in words if word in COMMANDS), None)
    with cli.make_context("kartothek_cube", list(words)) as context:
        if name is not None and "--help" not in words:
            command(name).make_context(name, words[words.index(name) + 1 :], parent=context)


@pytest.mark.parametrize("name", ["stats", "sql"])
def test_stored_rows_and_cells_are_told_apart(name):
    assert "one row for each cell" in " ".join(PAGES[name].split())


@pytest.mark.parametrize("name", ["changes", "query", "report", "sql"])
def test_the_help_says_that_a_file_is_replaced(name):
    assert "is replaced" in " ".join(PAGES[name].split())


def test_the_help_says_what_an_exit_status_means():
    assert "Exit status:\n    0  it is done\n    1  " in PAGES[""]
    assert "KARTOTHEK_CUBE_URL" in PAGES[""]

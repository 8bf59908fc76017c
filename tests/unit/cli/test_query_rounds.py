from __future__ import annotations

import sys
from types import ModuleType

import pytest


class Embedded:
    """Stands for IPython: notes the frames that the shells would have, and leaves them at once."""

    def __init__(self):
        self.frames, self.banners, self.ends = [], [], []

    def __call__(self, *, banner1):
        import pandas as pd

        self.banners.append(banner1)
        self.frames.append(sys._getframe(1).f_locals["df"])
        assert (pd.get_option("display.width"), pd.get_option("display.max_rows")) == (None, 0)
        if self.ends:
            raise self.ends.pop()


@pytest.fixture
def shell(monkeypatch):
    embedded = Embedded()
    module = ModuleType("IPython")
    module.embed = embedded
    monkeypatch.setitem(sys.modules, "IPython", module)
    return embedded


def test_without_ipython_there_is_no_shell(run, monkeypatch):  # cube 256
    monkeypatch.setitem(sys.modules, "IPython", None)
    ran = run("my_cube", "query")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("Error: Could not load IPython")


@pytest.mark.usefixtures("shell")
def test_an_interrupted_prompt_aborts(run):  # cube 256
    ran = run("my_cube", "query", typed="")
    assert ran.code == 1
    assert ran.err.startswith("\nThere are no more answers. A script says what it wants with --where, ")
    assert ran.err.endswith("Aborted!\n")


def test_a_round_is_conditions_columns_and_a_shell(run, shell):
    ran = run("my_cube", "query", typed="x >= 2 & p == 1\nv1, v2\n")
    assert ran.code == 1  # the next prompt found no more lines
    assert shell.banners == ["Shell:"]
    assert shell.frames[0].to_dict("list") == {"p": [1, 1], "q": ["a", "b"], "v1": [3.0, 4.0], "v2": ["3", "4"], "x": [2, 3], "y": [1, 1]}


def test_no_payload_leaves_dimension_and_partition_columns(run, shell):
    run("my_cube", "query", typed="\n\n")
    assert list(shell.frames[0]) == ["p", "q", "x", "y"]
    assert len(shell.frames[0]) == 4


def test_everything_is_proposed_again(run, shell):  # cube 257
    ran = run("my_cube", "query", typed="x == 1\n__all__\n\n\n \nv1\n\n\n")
    assert "Payload Columns [__all__]: " in ran.out
    assert "Conditions [(x == 1)]: " in ran.out
    columns = [sorted(set(frame) - {"p", "q", "x", "y"}) for frame in shell.frames]
    assert columns == [["i1", "v1", "v2", "v3", "v4"], ["i1", "v1", "v2", "v3", "v4"], ["v1"], ["v1"]]
    assert [len(frame) for frame in shell.frames] == [1, 1, 4, 4]
    assert "Payload Columns [v1]: " in ran.out


def test_all_columns_named_are_everything(run, shell):  # cube 257
    ran = run("my_cube", "query", typed="\nv4,v3,v2,v1,i1,x\n")
    assert len(shell.frames) == 1
    ran = run("my_cube", "query", typed="\nv4,v3,v2,v1,i1,x\n\n")
    assert "Payload Columns [__all__]: " in ran.out


def test_what_does_not_parse_is_asked_again(run, shell):
    ran = run("my_cube", "query", typed="z == 1\nx\nx == 1\nv9,v8\nV1\nv1\n")
    assert "Error: Unknown: v8, v9\n" in ran.out
    assert "Error: Unknown: V1. Did you mean 'v1'?\n" in ran.out
    assert ran.out.count("Conditions: ") == 3
    assert ran.out.count("Payload Columns: ") == 3
    assert len(shell.frames) == 1


def test_no_rows_open_no_shell(run, shell):
    ran = run("--color=always", "my_cube", "query", typed="x > 100\n\n")
    assert "\x1b[31m\x1b[1mNo data found.\x1b[0m" in ran.out
    assert shell.frames == []


def test_killing_the_shell_ends_the_rounds(run, shell):
    shell.ends = [type("KillEmbedded", (Exception,), {})()]
    ran = run("my_cube", "query", typed="\n\n\n\n")
    assert (ran.code, ran.err) == (1, "Aborted!\n")
    assert len(shell.frames) == 1


def test_another_error_in_the_shell_is_not_hidden(run, shell):
    shell.ends = [ZeroDivisionError()]
    ran = run("my_cube", "query", typed="\n\n")
    assert (ran.code, type(ran.result.exception)) == (1, ZeroDivisionError)

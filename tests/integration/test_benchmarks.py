"""The benchmarks run with little data; nothing is timed here."""

from __future__ import annotations

import importlib
import math
from typing import Any

import pytest

from tests.support.benchmarks import BENCHMARKS, rows_of


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module of the benchmarks, which are scripts that lie beside each other."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module


def test_planning_is_compared_and_a_missing_peer_is_named(tmp_path):
    assert {(row["peer"], row["met"] is None) for row in rows_of("planning", tmp_path)} == {
        ("json.loads", False),
        ("kartothek 5.3", True),
    }


@pytest.mark.slow
@pytest.mark.parametrize("script", ["cube", "sql", "changes", "writing", "growth", "imports"])
def test_script_runs(script, tmp_path):
    pytest.importorskip("polars")
    pytest.importorskip("duckdb")
    assert rows_of(script, tmp_path)


def test_a_ratio_is_the_median_of_the_rounds(module):
    pairs = module("pairs")
    taken = {"peer": [pairs.Cost(s, s) for s in (10, 30, 50)], "ours": [pairs.Cost(s, math.nan) for s in (1, 1, 10)]}
    row = pairs.faster("work", taken, "peer", "ours", 10)
    assert (row.theirs, row.ours, row.ratio, row.target, row.verdict) == (30, 1, 10, ">= 10x", "met")
    assert pairs.within("work", taken, "peer", "ours", 0.05).verdict == "missed"
    assert pairs.absent("work", "peer", ">= 10x").verdict == "not run"
    assert pairs.beside("work", taken, "peer", "ours").verdict == ""


@pytest.mark.parametrize(
    ("figure", "text"),
    [(math.nan, ""), (0, "0.00"), (1234.5, "1,234"), (12.345, "12.35"), (0.5, "0.50"), (0.00321, "0.0032")],
)
def test_a_figure_keeps_two_digits(module, figure, text):
    assert module("pairs").readable(figure) == text


def test_a_section_of_the_page_is_replaced_by_its_next(module):
    put = module("run").put
    page = put(put("# Page\n", "cube", "first\n"), "growth", "other\n")
    assert put(page, "cube", "second\n") == page.replace("first", "second")


def test_rows_become_lines_of_a_table_and_name_their_work_once(module):
    row = module("pairs").Row("build", "pyarrow", 1.0, 2.0, 2.0, math.nan, "<= 1.3x", met=False)
    lines = module("run").section("planning", [row, row]).splitlines()
    assert lines[-2:] == [
        "| build | pyarrow | 1.00 s | 2.00 s | 2.00x | ≤1.3x **missed** |",
        "|  | pyarrow | 1.00 s | 2.00 s | 2.00x | ≤1.3x **missed** |",
    ]

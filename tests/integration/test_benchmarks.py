"""The benchmarks run with little data; nothing is timed here."""

from __future__ import annotations

import importlib
import math
import re
from functools import partial
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.support.benchmarks import BENCHMARKS, rows_of

SVG = "{http://www.w3.org/2000/svg}"


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
@pytest.mark.exhaustive
@pytest.mark.parametrize("script", ["cube", "limit", "sql", "changes", "writing", "growth", "imports"])
def test_script_runs(script, tmp_path):
    pytest.importorskip("polars")
    pytest.importorskip("duckdb")
    assert rows_of(script, tmp_path)


@pytest.mark.slow
@pytest.mark.exhaustive
def test_tables_are_compared_and_their_long_life_is_drawn(tmp_path):
    pytest.importorskip("polars")
    rows = rows_of("tables", tmp_path)
    assert [row["ours"] for row in rows if "conflicts" in row["work"] or "lost" in row["work"]][:2] == [0, 0]
    names = [word.text for word in ElementTree.parse(tmp_path / "longevity.svg").iter(f"{SVG}text")]
    assert {"ours", *(row["peer"] for row in rows if row["work"].endswith("size of the folder"))} <= {*names}


def test_lines_become_a_picture_that_has_room_for_all(module):
    lines = {"ours": [1.0, 2.0, 900.0], "first": [2.0, 3.0, 3.1], "second": [0.3, 3.0, 3.1]}
    root = ElementTree.fromstring(module("chart").curves("Growth", "It grows.", lines, "rounds", "ms"))
    width, height = float(root.get("width")), float(root.get("height"))
    points = [
        tuple(map(float, point.split(",")))
        for path in root.iter(f"{SVG}path")
        if path.get("class") != "line"
        for point in re.findall(r"[\d.]+,[\d.]+", path.get("d"))
    ]
    assert all(0 <= x <= width and 0 <= y <= height for x, y in points)
    ends = {word.text: float(word.get("y")) for word in root.iter(f"{SVG}text")}
    assert ends["ours"] < ends["first"]
    assert abs(ends["first"] - ends["second"]) >= 12
    assert {"1000 ms", "0.1 ms"} <= {*ends}


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


def test_pictures_of_a_script_are_kept(module, monkeypatch, tmp_path):
    run = module("run")
    lines = (
        "'Growth.'",
        "import sys",
        f"sys.path.append({str(BENCHMARKS)!r})",
        "import pairs",
        "pairs.keep('a.svg', '')",
    )
    (tmp_path / "growth.py").write_text("\n".join(lines))
    (tmp_path / "pictures").mkdir()
    monkeypatch.setattr(run, "HERE", tmp_path)
    assert run.rows_of("growth", (), tmp_path / "pictures") == []
    assert [file.name for file in (tmp_path / "pictures").iterdir()] == ["a.svg"]


def test_a_work_is_a_line_of_the_table_with_all_its_peers(module):
    row = partial(module("pairs").Row, "build")
    rows = [
        row("pyarrow", 1.0, 2.0, 2.0, math.nan, "<= 1.3x", met=False),
        row("DuckDB", 4.0, 2.0, 0.5, math.nan, "<= 1.3x", met=True),
        row("Lance", math.nan, math.nan, math.nan, math.nan, "<= 1x", met=None),
        module("pairs").Row("build: peak", "", math.nan, 5.0, math.nan, math.nan, "", met=None, unit="MiB"),
        row("Polars", 3.0, 2.0, 0.7, math.nan, "", met=None),
    ]
    lines = module("run").section("planning", rows).splitlines()
    assert lines[-3:] == [
        "|---|--:|---|",
        "| build | 2.00 s | pyarrow 1.00 (2.00x **missed** ≤1.3x), DuckDB 4.00, Polars 3.00 |",
        "| … peak | 5.00 MiB |  |",
    ]


def test_a_line_keeps_the_units_that_no_other_cell_says(module):
    row = module("pairs").Row("build", "pyarrow", 1.0, math.nan, math.nan, math.nan, "", met=None)
    assert module("run").line([row], "") == "| build |  | pyarrow 1.00 s (not run) |\n"


def test_a_target_without_a_peer_is_told_beside_ours(module):
    row = module("pairs").Row("memory", "", math.nan, 231.0, math.nan, math.nan, "<= 200", met=False, unit="MiB")
    assert module("run").line([row], "memory") == "|  | 231.00 MiB (**missed** ≤200) |  |\n"


def test_a_work_is_shortened_by_the_parts_that_it_shares_with_the_work_before(module):
    shortened = module("run").shortened
    assert shortened("cube: one brand", "cube: all rows") == "… one brand"
    assert shortened("cube: local: all rows", "cube: remote: all rows") == "… local: all rows"
    assert shortened("tables: all rows", "cube: all rows") == "tables: all rows"
    assert shortened("all rows", "all rows") == "all rows"

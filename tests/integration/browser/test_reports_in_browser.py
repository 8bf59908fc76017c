"""Reports, what notebooks show, and drawings in a real browser: nothing sticks out, nothing
complains.
"""

from __future__ import annotations

import pyarrow as pa
import pytest

from kartothek_cube import (
    C,
    Cube,
    build_cube,
    collect_stats,
    cube_report,
    describe_cube,
    describe_cube_changes,
    plan_cube_query,
    verify_cube,
)
from kartothek_cube.core.dataset.history import history
from kartothek_cube.core.rows.edits import RowsReport
from kartothek_cube.core.stores.local import MemoryStore
from tests.support.browser import CHROMIUM, opened
from tests.support.report_cubes import CUBE, full_store

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="not installed: chromium (make system-deps)")

# What a notebook says of its page: its theme, and the colours of text and ground.
THEMES = {
    "": "color:#212121;background:#fff",
    "light": "color:#212121;background:#fff",
    "dark": "color:#e0e0e0;background:#111",
}


def notebook(*shown, theme=""):
    """A page with output cells, as notebooks have them."""
    cells = "".join(f"<div style='margin:0 0 12px'>{value._repr_html_()}</div>" for value in shown)
    body = cells.replace("<details>", "<details open>")
    attribute = f" data-jp-theme-light={'true' if theme == 'light' else 'false'}" if theme else ""
    style = f"margin:8px;font:14px sans-serif;{THEMES[theme]}"
    return f"<!doctype html><html><meta charset='utf-8'><body{attribute} style='{style}'>{body}</body></html>"


def changed_rows(dataset):
    """The report of a change of rows."""
    files = tuple(f"{dataset}/table/p={n}/{n:032x}.parquet" for n in range(9))
    return RowsReport(dataset, 12_345_678, 12_345_678, 0, 4, 8, 2, 1, 4_991, 123_456_789, "0f" * 16, files=files)


def awkward():
    """A cube of many datasets with very long names, and what is left of it after most of its files
    are gone.
    """
    store, cube = MemoryStore(), Cube(["x"], ["p"], "c" * 60)
    build_cube(
        {f"{'_very_long' * 6}{i}"[1:]: pa.table({"x": [1], "p": ["a" * 90], f"v{i}": [1]}) for i in range(12)}
        | {"seed": pa.table({"x": [1], "p": ["a" * 90]})},
        cube,
        store,
    )
    shown = [
        describe_cube(cube.uuid_prefix, store),
        collect_stats(cube, store),
        plan_cube_query(cube, store),
        cube_report(cube, store),
    ]
    for key in store.list("", recursive=True).keys:
        if "very_long" in key and "/" in key:
            store.delete(key)
    rows = changed_rows(f"{cube.uuid_prefix}++seed")
    return *shown, rows, verify_cube(cube, store), cube_report(cube, store)


def pages():
    """The pages by name."""
    store = full_store()
    plan = plan_cube_query(CUBE, store, C("q") == 2, partition_by="i1")
    first = history("cube++seed", store)["commit"].iloc[-1]
    report, changes = cube_report(CUBE, store, changed_since=first), describe_cube_changes(CUBE, store, first)
    tables = (
        describe_cube("cube", store),
        plan,
        collect_stats(CUBE, store),
        changes,
        changed_rows("cube++seed"),
        verify_cube(CUBE, store),
    )
    return {
        "report": report.replace("<details>", "<details open>"),
        "notebook": notebook(*tables),
        "dark notebook": notebook(*tables, theme="dark"),
        "awkward": notebook(*awkward(), theme="dark"),
        "drawing": f"<!doctype html><html><body style='margin:0'>{plan.to_svg()}</body></html>",
        "cell": notebook(report),
        "dark cell": notebook(report, theme="dark"),
        "light cell": notebook(report, theme="light"),
        "light cell of code": notebook(report).replace("<body", "<body data-vscode-theme-kind=vscode-light"),
    }


def test_pages_fit_and_have_their_pictures_and_colours(tmp_path):
    found, complaints = opened(tmp_path, pages())
    assert complaints == []
    assert {name: one["over"] for name, one in found.items() if one["over"] > 0} == {}
    assert {name: one["empty"] for name, one in found.items() if one["empty"]} == {}
    assert {name: one["clipped"] for name, one in found.items() if one["clipped"]} == {}
    assert {
        name: one["wide"]
        for name, one in found.items()
        if one["wide"] and name[0] not in ("notebook", "dark notebook", "awkward")
    } == {}
    assert {name: one["dim"] for name, one in found.items() if one["dim"]} == {}
    assert all(one["texts"] > 50 for (name, _), one in found.items() if name != "drawing")
    assert all(one["pictures"] >= (1 if name == "drawing" else 5) for (name, _), one in found.items())
    light, dark = "rgb(255, 255, 255)", "rgb(17, 22, 27)"
    grounds = {name: one["ground"] for (name, width), one in found.items() if width == "1280"}
    assert [grounds[name] for name in ("report", "cell", "dark cell", "light cell", "light cell of code")] == [
        dark,
        dark,
        dark,
        light,
        light,
    ]
    assert grounds["drawing"] == "rgb(20, 24, 29)"
    assert len({found[name, "1280"]["ink"] for name in ("dark cell", "light cell")}) == 2

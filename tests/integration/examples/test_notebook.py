"""The notebook of the grocery demonstration: stored without outputs, run from top to bottom, and
looked at in a browser.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kartothek_cube import collect_stats, count_cube, open_cube
from kartothek_cube.api.dataset import history
from tests.support.browser import CHROMIUM, WIDTHS, opened

REPOSITORY = Path(__file__).parents[3]
NOTEBOOK = REPOSITORY / "examples" / "grocery.ipynb"
MISSING = [
    name
    for name in ("nbclient", "nbconvert", "ipykernel", "matplotlib", "pyspark")
    if importlib.util.find_spec(name) is None
]
needs_jupyter = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")


def test_it_is_stored_without_outputs():
    stored = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    code = [cell for cell in stored["cells"] if cell["cell_type"] == "code"]
    assert len(code) > 10
    assert [cell["id"] for cell in code if cell["outputs"] or cell["execution_count"] is not None] == []
    assert [cell["id"] for cell in stored["cells"] if cell["metadata"]] == []
    assert set(stored["metadata"]) == {"kernelspec", "language_info"}
    assert stored["metadata"]["kernelspec"]["name"] == "python3"
    assert set(stored["metadata"]["language_info"]) == {"name"}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A folder with what `make notebook` makes, and the store that the notebook leaves."""
    folder = tmp_path_factory.mktemp("notebook")
    command = [sys.executable, REPOSITORY / "scripts" / "notebook.py", NOTEBOOK, folder]
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | {"STORE": f"hfs://{folder}/store"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def outputs(folder, kind):
    """All outputs of a kind, as text."""
    cells = json.loads((folder / "grocery.ipynb").read_text(encoding="utf-8"))["cells"]
    found = [
        output["data"][kind] for cell in cells for output in cell.get("outputs", []) if kind in output.get("data", {})
    ]
    return ["".join(data) for data in found]


@pytest.mark.exhaustive
@pytest.mark.slow
@needs_jupyter
def test_every_cell_runs_in_order_and_complains_of_nothing(run):
    code = [
        cell
        for cell in json.loads((run / "grocery.ipynb").read_text(encoding="utf-8"))["cells"]
        if cell["cell_type"] == "code"
    ]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    printed = [
        (output["name"], "".join(output["text"]))
        for cell in code
        for output in cell["outputs"]
        if output["output_type"] == "stream"
    ]
    assert [name for name, _ in printed] == ["stdout", "stdout"]
    assert [text.splitlines()[0] for _, text in printed] == [
        "Query of cube 'grocery'",
        "update_cube grocery: write 0 of 2 files",
    ]


@pytest.mark.slow
@needs_jupyter
def test_it_shows_description_statistics_plan_findings_report_and_chart(run):
    shown = outputs(run, "text/html")
    texts = [re.sub(r"<style>.*?</style>|<[^>]+>", " ", html, flags=re.DOTALL).split() for html in shown]
    for words in (
        "Cube grocery dimensions:",
        "dataset partitions files",
        "Query of cube",
        "Verified cube",
        "Cube grocery hfs:",
    ):
        assert any(" ".join(text).startswith(words) for text in texts), words
    assert [html.startswith("<svg") for html in shown].count(True) == 1
    assert len(outputs(run, "image/png")) == 1


@pytest.mark.slow
@needs_jupyter
def test_the_cube_that_it_leaves_is_that_of_the_script(run):
    store = f"hfs://{run / 'store'}"
    cube = open_cube("grocery", store)
    commits = history("grocery++sales", store)["commit"]
    assert [count_cube(cube, store, as_of=commit) for commit in commits] == [289_317, 288_127]
    assert set(collect_stats(cube, store)) == {"sales", "products", "promotions", "response"}


@pytest.mark.slow
@needs_jupyter
@pytest.mark.parametrize("page", ["grocery.html", "grocery-dark.html"])
def test_its_page_loads_nothing(run, page):
    html = (run / page).read_text(encoding="utf-8")
    assert "<script" not in html
    assert re.findall(r"<link|@import|<iframe", html) == []
    assert [
        found
        for found in re.findall(r"""(?:src=|url\()\s*["']?([^"')>]{1,40})""", html)
        if not found.startswith(("data:", "#"))
    ] == []


@pytest.mark.slow
@needs_jupyter
@pytest.mark.skipif(CHROMIUM is None, reason="not installed: chromium (make system-deps)")
def test_its_page_fits_and_has_its_pictures_and_colours(run, tmp_path):
    names = ("grocery", "grocery-dark")
    found, complaints = opened(tmp_path, {name: (run / f"{name}.html").read_text(encoding="utf-8") for name in names})
    assert complaints == []
    assert set(found) == {(name, str(width)) for name in names for width in WIDTHS}
    for page in found.values():
        assert (page["over"], page["empty"], page["wide"], page["clipped"]) == (0, 0, 0, [])
        assert page["ours"] == 7
        assert page["dim"] == []
        assert page["pictures"] > 60
        assert page["set"] == ["left none"]
    light, dark = "rgb(255, 255, 255)", "rgb(17, 22, 27)"
    assert [found[name, "1280"]["ground"] for name in names] == [light, dark]

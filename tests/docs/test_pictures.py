"""The pictures of the documentation are what their script draws, and read in light and dark."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from scripts import pictures
from tests.support.doc_blocks import executed

SVG = "{http://www.w3.org/2000/svg}"
# What `make bench` draws from its figures.
MEASURED = {pictures.DOCS / "pictures" / "longevity.svg"}


@pytest.mark.parametrize("name", pictures.PICTURES)
def test_a_picture_is_what_the_script_draws(name):
    assert (pictures.DOCS / name).read_text(encoding="utf-8") == pictures.PICTURES[name](), (
        "run: python scripts/pictures.py"
    )


@pytest.mark.parametrize("name", pictures.PICTURES)
def test_a_picture_is_whole_and_says_what_it_shows(name):
    root = ElementTree.fromstring(pictures.PICTURES[name]())
    assert root.find(f"{SVG}title").text
    assert root.find(f"{SVG}desc").text
    assert "prefers-color-scheme:dark" in root.find(f"{SVG}style").text
    width, height = float(root.get("width")), float(root.get("height"))
    boxes = [
        (float(box.get("x")) + float(box.get("width")), float(box.get("y")) + float(box.get("height")))
        for box in root.iter(f"{SVG}rect")
    ]
    assert all(right <= width and bottom <= height for right, bottom in boxes)


def test_there_is_no_picture_that_nobody_draws():
    drawn = {pictures.DOCS / name for name in pictures.PICTURES} | MEASURED
    assert {path for path in pictures.DOCS.glob("pictures/*") if path not in drawn} == set()


def test_words_are_escaped():
    assert pictures.text(0, 0, "x < y & z").endswith(">x &lt; y &amp; z</text>")


def test_light_and_dark_have_the_same_colours():
    assert pictures.LIGHT.keys() == pictures.DARK.keys()


def test_the_plan_on_the_page_about_reports_is_what_its_code_draws(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = (pictures.DOCS / "report.md").read_text(encoding="utf-8").partition("![A plan")[0]
    executed(page, "docs/report.md", {"__name__": "__main__"})
    assert (tmp_path / "plan.svg").read_text(encoding="utf-8") == (pictures.DOCS / "plan.svg").read_text(
        encoding="utf-8"
    )

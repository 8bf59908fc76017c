"""What notebooks show of a cube: escaped, balanced, small."""

from __future__ import annotations

import pickle
from xml.etree import ElementTree

import pytest

from kartothek_cube import C, collect_stats, cube_report, describe_cube, plan_cube_query, verify_cube
from kartothek_cube.cube.verbs.stats import CubeStats
from tests.report.world import CUBE, EVIL, full_store

SHOWN = {
    "description": lambda store: describe_cube("cube", store),
    "statistics": lambda store: collect_stats(CUBE, store),
    "verification": lambda store: verify_cube(CUBE, store),
    "plan": lambda store: plan_cube_query(CUBE, store, (C("p") != "b") & (C("v2") == "<b>a</b>"), partition_by="p"),
    "report": lambda store: cube_report(CUBE, store),
}


@pytest.fixture(scope="module")
def store():
    return full_store()


def parsed(html):
    """The elements; fails where tags do not match or something is not escaped."""
    return ElementTree.fromstring(f"<body>{html.replace('&nbsp;', ' ').replace('<br>', '<br/>')}</body>")


@pytest.mark.parametrize("name", SHOWN)
def test_html_is_balanced_escaped_and_small(store, name):
    html = SHOWN[name](store)._repr_html_()
    tags = {element.tag for element in parsed(html).iter()}
    assert not {tag for tag in tags if tag in {"script", "link", "iframe", "img", "b>"}}
    assert "<script" not in html
    assert "src=" not in html
    assert len(html) < (45_000 if name == "report" else 25_000)


def test_the_description_shows_user_metadata_and_what_columns_are_called(store):
    text = "".join(parsed(describe_cube("cube", store)._repr_html_()).itertext())
    assert text.count(EVIL[:-1]) == 2
    assert "some" in text


def test_many_columns_open_on_a_click():
    description = describe_cube("cube", full_store())
    wide = type(description.datasets[0])("wide", (), 1, (), {f"c{i}": "int64" for i in range(40)}, (), {})
    html = type(description)("cube", "wide", {}, {}, (), (wide,))._repr_html_()
    assert "<summary>40 columns</summary>" in html


def test_statistics_are_a_dict_with_a_table(store):
    stats = collect_stats(CUBE, store)
    assert stats == dict(stats)
    assert pickle.loads(pickle.dumps(stats)) == stats
    rows = [[cell.text for cell in row] for row in parsed(stats._repr_html_()).iter("tr")]
    assert rows[0] == ["dataset", "partitions", "files", "rows", "size", "a file"]
    assert rows[-1][:4] == ["total", "9", "10", "32"]
    assert CubeStats()._repr_html_().count("<tr>") == 1


def test_findings_are_marked_by_words_and_not_by_colour_alone(store):
    html = verify_cube(CUBE, store)._repr_html_()
    assert '<span class="info">·&nbsp;info</span>' in html

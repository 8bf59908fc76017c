"""What notebooks show of a cube: escaped, balanced, small."""

from __future__ import annotations

import pickle
from xml.etree import ElementTree

import pytest

from kartothek_cube import (
    C,
    collect_stats,
    cube_report,
    describe_cube,
    describe_cube_changes,
    plan_cube_query,
    verify_cube,
)
from kartothek_cube.core.dataset.history import history
from kartothek_cube.cube.verbs.maintain import CubeStats
from tests.support.report_cubes import CUBE, EVIL, full_store


def first_commit(store):
    return history("cube++seed", store)["commit"].iloc[-1]


SHOWN = {
    "description": lambda store: describe_cube("cube", store),
    "statistics": lambda store: collect_stats(CUBE, store),
    "verification": lambda store: verify_cube(CUBE, store),
    "plan": lambda store: plan_cube_query(CUBE, store, (C("p") != "b") & (C("v2") == "<b>a</b>"), partition_by="p"),
    "changes": lambda store: describe_cube_changes(CUBE, store, first_commit(store)),
    "report": lambda store: cube_report(CUBE, store, changed_since=first_commit(store)),
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
    assert text.count(EVIL[:-1]) == 5, "payload, note, and the range of a column"
    assert "some" in text


def test_the_description_begins_with_the_seed_and_leaves_out_what_the_library_keeps(store):
    html = describe_cube("cube", store)._repr_html_()
    rows = [["".join(cell.itertext()) for cell in row] for row in next(parsed(html).iter("table")).iter("tr")]
    assert [row[0] for row in rows[1:]] == ["seed seed", "once", "some"]
    assert rows[2][2] == "–", "not partitioned"
    assert [word for word in ("ktk_cube_", "creation_time") if word in html] == []
    assert html.count("<details>") == 3 + 1, "ranges, and metadata of the one dataset that has some"


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
    assert rows[0] == ["dataset", "partitions", "files", "rows", "size", "mean file"]
    assert rows[-1][:4] == ["total", "9", "10", "32"]
    assert CubeStats()._repr_html_().count("<tr>") == 1


def test_a_drawing_stands_in_a_frame_that_moves_sideways(store):
    (*_, frame) = parsed(plan_cube_query(CUBE, store)._repr_html_())
    assert frame.get("class") == "kartothek-cube"
    assert frame[0].tag == "details"
    assert frame[0][1].tag.endswith("svg")


def test_findings_that_are_alike_are_one_row():
    store = full_store()
    keys = [key for key in store.list("cube++seed/table/", recursive=True).keys if key.endswith(".parquet")]
    for key in keys:
        store.delete(key)
    html = verify_cube(CUBE, store)._repr_html_()
    missing = [row for row in parsed(html).iter("tr") if "missing-file" in "".join(row.itertext())]
    assert len(missing) == 1
    text = "".join(missing[0].itertext())
    assert "missing-file, 7 times" in text
    assert "6 more of them" in text
    assert [key for key in verify_cube(CUBE, store).of("missing-file") if key.key not in text] == []
    assert "<code>restore" not in html, "words are no code"


def test_findings_are_marked_by_words_and_not_by_colour_alone(store):
    html = verify_cube(CUBE, store)._repr_html_()
    assert '<span class="info">·&nbsp;info</span>' in html

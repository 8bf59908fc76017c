"""The drawing of a plan."""

from __future__ import annotations

from itertools import pairwise
from xml.etree import ElementTree

import pyarrow as pa
import pytest

from kartothek_cube import C, Cube, build_cube, plan_cube_query
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.cube.query.picture import BANDS, MOST_DATASETS, MOST_ROWS, Box, _fitted, _label, bands, picture_of
from tests.support.report_cubes import CUBE, full_store, many_partitions


def picture(plan):
    counts = plan.file_counts()
    return picture_of(
        plan.intention, plan.aligned, plan.slice_order, plan.slice_offsets, plan.partitions, counts, len(plan.groups)
    )


@pytest.fixture(scope="module")
def store():
    return full_store()


@pytest.fixture(scope="module")
def many():
    return many_partitions(400)


def texts(svg):
    root = ElementTree.fromstring(svg)
    return root, [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]


def test_rows_are_partitions_and_columns_are_datasets(store):
    drawn = picture(plan_cube_query(CUBE, store, C("q") == 2, datasets=["seed", "some", "once"]))
    assert [(c.dataset, c.join) for c in drawn.columns] == [("seed", "seed"), ("once", "left"), ("some", "left")]
    assert [row.label for row in drawn.rows] == ["p=<script>, q=2", "p=b, q=2", "p=c & d, q=2"]
    assert drawn.rows[1].boxes == (Box(2, 1), Box(1, 1), Box(1, 1))
    assert drawn.rows[2].boxes == (Box(1, 1), Box(1, 1), Box(0, 0))


def test_what_is_dropped_is_counted_by_reason(store):
    drawn = picture(plan_cube_query(CUBE, store, (C("q") == 2) & (C("v2") == "a")))
    seed, some = drawn.columns[:2]
    assert (some.dataset, some.join) == ("some", "inner")
    assert (seed.total, seed.matched, seed.read) == (7, 4, 3)
    _, words = texts(plan_cube_query(CUBE, store, (C("q") == 2) & (C("v2") == "a")).to_svg())
    assert {"dropped by conditions", "no partner in the join", "3 files", "inner join"} <= set(words)


def test_a_file_that_many_groups_need_counts_once(store):
    drawn = picture(plan_cube_query(CUBE, store, partition_by="i1"))
    assert {row.boxes[1] for row in drawn.rows} == {Box(1, 1)}
    assert "in 2 groups by i1" in drawn.notes[1]


def test_many_partitions_become_bands(many):
    cube, store = many
    drawn = picture(plan_cube_query(cube, store))
    assert len(drawn.rows) == BANDS
    assert sum(row.partitions for row in drawn.rows) == 400
    assert sum(row.boxes[0].files for row in drawn.rows) == 400
    assert sum(row.boxes[1].present for row in drawn.rows) == 200
    assert (drawn.rows[0].label, drawn.rows[-1].last) == ("p=0", "p=399")


def test_the_drawing_does_not_grow_with_the_partitions(many):
    cube, store = many
    sizes = [len(plan_cube_query(cube, store, C("p") < n).to_svg()) for n in (MOST_ROWS, 100, 400)]
    assert max(sizes) < 25_000
    assert sizes[2] < 1.1 * sizes[1]


def test_the_drawing_does_not_grow_with_the_datasets():
    store, cube = MemoryStore(), Cube(["x"], ["p"], "wide")
    build_cube(
        {"seed": pa.table({"x": [1], "p": [1]})}
        | {f"d{i:02}": pa.table({"x": [1], "p": [1], f"v{i}": [1]}) for i in range(14)},
        cube,
        store,
    )
    _, words = texts(plan_cube_query(cube, store).to_svg())
    assert f"and {15 - MOST_DATASETS} more datasets" in words


def test_it_can_be_read_aloud_and_is_escaped(store):
    plan = plan_cube_query(CUBE, store, C("v2") != "</svg><script>")
    root, words = texts(plan.to_svg())
    assert root.get("role") == "img"
    assert root.get("aria-label") == root[0].text == "Query of cube 'cube'"
    assert [child.tag.split("}")[1] for child in root[:3]] == ["title", "desc", "style"]
    assert "seed (seed): " in root[1].text
    assert "</svg><script>" in words[1]
    assert "<script" not in plan.to_svg()


@pytest.mark.parametrize(
    "text", ["W" * 60, "漢字" * 30, "COUNTRY_CODE=DE, STORE_GROUP=MAIN, YEAR=2024", "\x01" * 40, "a" * 10_000, "W", ""]
)
def test_a_text_fits_its_place(text):
    fitted = _fitted(text, 204, 11.5)
    assert len(fitted) <= 29
    assert fitted == text or "…" in fitted


def test_an_empty_value_can_be_seen():
    store, cube = MemoryStore(), Cube(["x"], ["p", "q"], "blank")
    build_cube(pa.table({"x": [1], "p": [""], "q": [1]}), cube, store)
    (row,) = picture(plan_cube_query(cube, store)).rows
    assert (row.label, row.short) == ("p='', q=1", "'', 1")


def test_bands_say_how_long_they_are_and_what_shares_mean(many):
    cube, store = many
    plan = plan_cube_query(cube, store, C("p") < 390)
    assert picture(plan).notes[1].endswith("390 aligned partitions; 28 partitions a row")
    _, words = texts(plan.to_svg())
    legend = "lacking in some partitions of the row; % says in how many it is"
    assert {"partitions", "by p", legend} <= set(words)
    _, words = texts(plan_cube_query(cube, store, C("p") < 2).to_svg())
    assert legend not in words


def test_labels_that_do_not_fit_lose_the_names_of_the_columns():
    assert _label("COUNTRY_CODE=DE, YEAR=2024", "DE, 2024") == "COUNTRY_CODE=DE, YEAR=2024"
    assert _label("COUNTRY_CODE=DE, STORE_GROUP=MAIN, YEAR=2024", "DE, MAIN, 2024") == "DE, MAIN, 2024"


def test_it_has_a_light_and_a_dark_form_and_no_ids(store):
    svg = plan_cube_query(CUBE, store).to_svg()
    assert "prefers-color-scheme:dark" in svg
    assert "[data-jp-theme-light=false]" in svg
    assert " id=" not in svg


def test_equal_plans_give_equal_drawings(store):
    assert len({plan_cube_query(CUBE, store, C("q") == 1).to_svg() for _ in range(3)}) == 1


def test_nothing_to_read(store):
    plan = plan_cube_query(CUBE, store, C("q") == 99)
    _, words = texts(plan.to_svg())
    assert "no partition is read" in words


@pytest.mark.parametrize(("n", "most"), [(0, 0), (0, 3), (1, 3), (3, 3), (10, 3), (31, 30), (1_000_003, 14)])
def test_bands_are_equally_long_but_for_the_last(n, most):
    starts = bands(n, most).tolist()
    *lengths, last = [b - a for a, b in pairwise(starts)] or [0]
    assert (starts[0], starts[-1]) == (0, n)
    assert len(starts) - 1 <= most
    assert set(lengths) <= {-(-n // max(most, 1))}
    assert 0 < last <= min([*lengths, n]) or n == 0

"""`explain` and its answers, pinned: the examples of the guide to queries and a cube of sales.

The snapshots are files; ``REGENERATE=1`` writes them anew.
"""

from __future__ import annotations

import json
import os
import re
from html.parser import HTMLParser
from pathlib import Path

import pyarrow as pa
import pytest

from kartothek_cube.api.cube import (
    C,
    Cube,
    append_to_cube,
    build_cube,
    extend_cube,
    iter_cube,
    plan_cube_query,
    query_cube_arrow,
)
from kartothek_cube.core.stores.local import MemoryStore
from tests.support import grocery
from tests.support.cubes import CUBE, SEED, build_two, table, with_column

SNAPSHOTS = Path(__file__).parent / "snapshots"
LABEL = re.compile(r"[0-9a-f]{32}")

PRODUCTS = [1, 2, 3, 5, 6]
LINES = ["l1", "l2"]
TRUE = bool(1)


def product_data():
    """Everything about products alone."""
    checks = table(PRODUCT=[1, 2, 3, 4, 5, 6], OK=[True, False, True, True, True, True])
    schedule = table(PRODUCT=[1, 2, 3, 4, 5], SCHED=[True, True, False, True, True])
    predictions = table(PRODUCT=[1, 2, 3, 6], PRED=[10, 20, 30, 60])
    return {"data_checks": checks, "schedule": schedule, "predictions": predictions}


def build(cube, seed):
    store = MemoryStore()
    data = {"source": seed, **product_data()}
    build_cube(data, cube, store, partition_on={i: [] for i in data if i != "source"})
    return store


@pytest.fixture
def flat():
    cube = Cube(["PRODUCT"], ["PART"], "flat", "source")
    return cube, build(cube, table(PRODUCT=PRODUCTS, PART=[p % 2 for p in PRODUCTS]))


@pytest.fixture
def deep():
    cube = Cube(["PRODUCT", "LINE"], ["PART"], "deep", "source", suppress_index_on=["LINE"])
    cells = [(p, line) for p in PRODUCTS for line in LINES]
    return cube, build(
        cube,
        table(
            PRODUCT=[p for p, _ in cells],
            LINE=[line for _, line in cells],
            PART=[p % 2 for p, _ in cells],
            UNITS=list(range(10)),
        ),
    )


def assert_explained(name, plan):
    """The plan says what the snapshots say, but for the random names of files."""
    for suffix, shown in ((".txt", "text"), (".html", "html")):
        path, found = SNAPSHOTS / (name + suffix), LABEL.sub("LABEL", plan.explain(shown)) + "\n"
        if os.environ.get("REGENERATE"):
            path.write_text(found, encoding="utf-8")
        assert found == path.read_text(encoding="utf-8"), "REGENERATE=1 pytest tests/unit/cube/query/test_explain.py"


def test_conditions_on_two_datasets_restrict_a_third(flat):
    cube, store = flat
    conditions = (C("OK") == TRUE) & (C("SCHED") == TRUE)
    rows = query_cube_arrow(cube, store, conditions, payload_columns=["PRED"]).to_pylist()
    assert [(row["PRODUCT"], row["PRED"]) for row in rows] == [(1, 10), (5, None)]
    assert_explained("restricted", plan_cube_query(cube, store, conditions, payload_columns=["PRED"]))


def test_a_condition_of_fewer_dimensions_removes_all_cells_of_the_product(deep):
    cube, store = deep
    rows = query_cube_arrow(cube, store, C("SCHED") == TRUE, payload_columns=["UNITS"]).to_pylist()
    assert [(row["PRODUCT"], row["LINE"], row["UNITS"]) for row in rows] == [
        (p, line, 2 * PRODUCTS.index(p) + i) for p in (1, 2, 5) for i, line in enumerate(LINES)
    ]
    assert_explained(
        "fewer dimensions",
        plan_cube_query(cube, store, C("SCHED") == TRUE, partition_by="PRODUCT", payload_columns=["UNITS"]),
    )


def test_a_projection_leaves_the_other_dimension_out(deep):
    cube, store = deep
    arguments = {"conditions": C("OK") == TRUE, "dimension_columns": "PRODUCT", "payload_columns": ["PRED"]}
    rows = query_cube_arrow(cube, store, **arguments).to_pylist()
    assert [(row["PRODUCT"], row["PRED"]) for row in rows] == [(1, 10), (3, 30), (5, None), (6, 60)]
    assert_explained("projection", plan_cube_query(cube, store, **arguments))


@pytest.fixture(scope="module")
def sales():
    store = MemoryStore()
    build_cube(grocery.first_delivery(), grocery.CUBE, store, partition_on={"products": [], "stores": ["STORE_GROUP"]})
    names = {name: keys for name, keys in grocery.PARTITION_ON.items() if name in grocery.enrichments()}
    extend_cube(grocery.enrichments(), grocery.CUBE, store, partition_on=names)
    return store


def test_a_question_of_the_demonstration(sales):
    conditions = (C("DEPARTMENT") == "MEAT") & (C("STORE_CLASS") == "A") & (C("PERIOD") < 3) & (C("MAILER") != "0")
    arguments = {"conditions": conditions, "payload_columns": ["UNITS", "SALES_VALUE"]}
    assert query_cube_arrow(grocery.CUBE, sales, **arguments).num_rows > 0
    assert_explained("grocery", plan_cube_query(grocery.CUBE, sales, **arguments))


def test_a_group_for_each_department(sales):
    plan = plan_cube_query(grocery.CUBE, sales, partition_by="DEPARTMENT", payload_columns=["UNITS"])
    assert len(plan.groups) == len(grocery.DEPARTMENTS)
    assert_explained("departments", plan)


def test_there_is_no_snapshot_that_nobody_looks_at():
    names = re.findall(r'assert_explained\(\s*"([a-z ]+)"', Path(__file__).read_text(encoding="utf-8"))
    assert sorted(path.name for path in SNAPSHOTS.iterdir()) == sorted(
        name + suffix for name in names for suffix in (".txt", ".html")
    )


# --- rows in no group -----------------------------------------------------------------------------


def rows_of(plan, title):
    (step,) = [step for step in json.loads(plan.explain("json"))["steps"] if step["title"] == title]
    return {row["name"]: row for row in step["rows"]}


@pytest.fixture
def with_nulls():
    """The seed, and twice the same cells in new partitions without any value of `i1`."""
    store, bare = MemoryStore(), CUBE.copy(index_columns=[])
    build_cube(SEED, CUBE, store)
    for offset in (2, 4):
        other = with_column(
            with_column(SEED, "i1", pa.nulls(4, pa.int64())), "p", pa.array([p + offset for p in SEED["p"].to_pylist()])
        )
        append_to_cube(other, bare, store)
    return store


def test_files_without_a_value_of_the_group_are_counted(with_nulls):
    cube = CUBE.copy(index_columns=[])
    plan = plan_cube_query(cube, with_nulls, partition_by="i1")
    assert sum(rows.num_rows for _, rows in iter_cube(cube, with_nulls, partition_by="i1")) == 4
    assert rows_of(plan, "Partition by")["seed"] == {
        "name": "seed",
        "before": 6,
        "after": 4,
        "note": "by p, i1; in no group: 4 files without a value of i1",
    }
    assert rows_of(plan, "Re-grouping")["all"]["note"] == "by i1; cells without a value of i1 are in no group"
    assert sum(len(keys) for keys in plan.files().values()) == 2


@pytest.mark.parametrize(("condition", "count"), [(C("p") == 2, "1 file"), (C("p") >= 4, "2 files")])
def test_only_files_that_the_conditions_leave_are_counted(with_nulls, condition, count):
    plan = plan_cube_query(CUBE.copy(index_columns=[]), with_nulls, condition, partition_by="i1")
    assert rows_of(plan, "Partition by")["seed"]["note"].endswith(f"{count} without a value of i1")


@pytest.mark.parametrize(
    "arguments",
    [{"partition_by": "i1", "conditions": C("i1") == 10}, {"partition_by": "x"}, {"partition_by": "p"}, {}],
    ids=str,
)
def test_where_nothing_is_lost_nothing_is_said(with_nulls, arguments):
    plan = plan_cube_query(CUBE.copy(index_columns=[]), with_nulls, **arguments)
    assert "in no group" not in rows_of(plan, "Partition by")["seed"]["note"]


def test_an_overwritten_value_does_not_count_for_its_newer_file():
    store, bare = MemoryStore(), CUBE.copy(index_columns=[])
    build_cube(SEED, CUBE, store)
    append_to_cube(with_column(SEED, "i1", pa.nulls(4, pa.int64())), bare, store)
    plan = plan_cube_query(bare, store, partition_by="i1")
    assert rows_of(plan, "Partition by")["seed"]["note"] == "by p, i1; in no group: 2 files without a value of i1"
    assert list(iter_cube(bare, store, partition_by="i1")) == []


# --- formats --------------------------------------------------------------------------------------


def test_json_has_everything():
    store = MemoryStore()
    build_two(store)
    plan = plan_cube_query(CUBE, store, (C("i1") >= 10) & (C("x").isin(range(20))), partition_by="i2")
    found = json.loads(plan.explain("json"))
    assert list(found) == ["title", "columns", "conditions", "partition by", "steps", "files"]
    assert found["conditions"] == "i1 >= 10 and x in [0, 1, 2, 3, 4, … 20 values]"
    assert found["files"] == [key for keys in plan.files().values() for key in keys]
    titles = [
        "Labels",
        "Pre-conditions",
        "Statistics",
        "Partition by",
        "Alignment",
        "Re-grouping",
        "Join inside a partition",
        "Concatenation, ordered by x, y, p",
    ]
    assert [step["title"] for step in found["steps"]] == titles


class Tags(HTMLParser):
    """The tags and texts of a page; fails where they do not match."""

    def __init__(self):
        super().__init__()
        self.open, self.seen, self.texts = [], set(), []

    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)
        assert {name for name, _ in attrs} <= {"class", "rowspan"}
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def test_a_notebook_shows_a_table_in_which_everything_is_escaped():
    cube, store = Cube(["x"], ["<p>"], "sales"), MemoryStore()
    build_cube(table(**{"x": [1], "<p>": ["</table><script>alert(1)</script>"], "a&b": [1]}), cube, store)
    plan = plan_cube_query(cube, store, C("a&b") < 7)
    drawing = f"<details><summary>drawing</summary>{plan.to_svg()}</details>"
    assert plan._repr_html_() == f'{plan.explain("html")}<div class="kartothek-cube">{drawing}</div>'
    tags = Tags()
    tags.feed(plan.explain("html"))
    assert tags.open == []
    assert tags.seen == {
        "div",
        "style",
        "strong",
        "br",
        "span",
        "code",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "details",
        "summary",
    }
    assert "a&b < 7" in tags.texts
    assert "rows only: a&b" in tags.texts


def test_the_table_of_a_plan_has_the_colours_of_the_notebook():
    html = (SNAPSHOTS / "grocery.html").read_text(encoding="utf-8")
    assert "style=" not in html
    assert set(re.findall(r'class="([^"]*)"', html)) == {"kartothek-cube", "n", "q"}

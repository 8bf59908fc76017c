from __future__ import annotations

import json
import pickle
from html.parser import HTMLParser

import pytest

from kartothek_cube.core.dataset.read import plan_table_scan, residual
from kartothek_cube.core.display import predicates_text
from kartothek_cube.core.expressions.predicates import parse_predicates
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import InvalidInput, Unsupported
from kartothek_cube.testing.stores import CountingStore
from tests.caches import forget
from tests.support.commits import UUID, write

ROWS = {"p": ["a", "b", "c", "d"], "x": [1, 1, 1, 2], "y": ["u", "v", "u", "u"], "v1": [1.0, 2.0, 3.0, 4.0]}


@pytest.fixture(scope="module")
def store():
    memory = MemoryStore()
    write(memory, ROWS, on=["p"], index=["x", "y"], label="one")
    return memory


def plan(store, *conjunctions, **more):
    return plan_table_scan(UUID, store, predicates=[list(c) for c in conjunctions] or None, **more)


def steps(found):
    rows = [row for step in json.loads(found.explain("json"))["steps"] for row in step["rows"]]
    return {row["name"]: (row["before"], row["after"]) for row in rows}


def test_no_data_file_is_read(store):
    counting = CountingStore(store)
    found = plan(counting, [("p", "!=", "d"), ("x", "==", 1), ("v1", ">", 1.0)])
    found.explain(), found.files(), found.explain("html"), repr(found)
    assert [call.key for call in counting.calls if "/table/p=" in call.key] == []


def test_files_are_those_that_may_match_in_the_order_of_the_document(store):
    assert plan(store, [("p", "in", ["d", "b"])]).files() == [f"{UUID}/table/p={p}/one.parquet" for p in "bd"]
    assert len(plan(store).files()) == 4
    assert plan(store, [("y", "==", "nothing")]).files() == []


def test_every_step_says_what_it_left(store):
    found = plan(store, [("p", "!=", "b"), ("x", "==", 1), ("y", "==", "u"), ("v1", ">", 1.0)])
    assert steps(found) == {
        "partitions": (4, 4),
        "partition values": (4, 3),
        "secondary index on x": (3, 2),
        "secondary index on y": (2, 2),
        "row groups and rows": (None, None),
    }
    assert json.loads(found.explain("json"))["remaining"] == "x == 1 and y == 'u' and v1 > 1.0"


def test_alternatives_are_counted_together(store):
    found = plan(store, [("p", "==", "a"), ("x", "==", 2)], [("y", "==", "v")])
    assert steps(found) == {
        "partitions": (4, 4),
        "partition values": (4, 4),
        "secondary index on x": (4, 4),
        "secondary index on y": (4, 1),
    }


def notes(found):
    return {row["name"]: row["note"] for step in json.loads(found.explain("json"))["steps"] for row in step["rows"]}


@pytest.mark.parametrize(
    ("conjunctions", "counts", "clauses"),
    [
        ([[("x", "!=", 1)]], (None, None), "x != 1"),
        ([[("x", "!=", 1), ("x", "not in", [2, 3])]], (None, None), "x != 1, x not in [2, 3]"),
        ([[("x", "==", None)], [("x", "!=", 1), ("y", "==", "u")]], (None, None), "x == None, x != 1"),
        ([[("p", "==", "a"), ("x", "!=", 2)], [("p", "==", "b"), ("x", "==", 2)]], (2, 1), "x != 2"),
        ([[("x", "!=", 1), ("x", ">", 1)]], (4, 1), None),
        ([[("x", "!=", None)]], (4, 4), None),
    ],
)
def test_it_says_for_which_clauses_an_index_is_not_asked_and_why(store, conjunctions, counts, clauses):
    counting = CountingStore(store)
    forget(counting)
    found = plan(counting, *conjunctions)
    assert steps(found)["secondary index on x"] == counts
    assert notes(found)["secondary index on x"] == (
        "" if clauses is None else f"not asked for {clauses}: null satisfies it, and the index has no nulls"
    )
    assert any("/indices/x" in call.key for call in counting.calls) == (counts[0] is not None)


def test_it_says_which_columns_are_left_to_the_files(store):
    assert (
        notes(plan(store, [("v1", ">", 1.0), ("p", "==", "a")]))["row groups and rows"]
        == "v1: no index, answered inside the files"
    )
    for conjunctions in ([], [[("p", "==", "a"), ("x", "==", 1)]]):
        assert "row groups and rows" not in steps(plan(store, *conjunctions))


def test_without_predicates_there_are_no_steps_for_indices(store):
    assert steps(plan(store)) == {"partitions": (4, 4), "partition values": (4, 4)}


@pytest.mark.parametrize(
    ("predicates", "rest"),
    [
        (None, "none"),
        ([[("p", "==", 1)]], "none"),
        ([[("p", "==", 1), ("x", ">", 2)]], "x > 2"),
        ([[("p", "==", 1), ("x", ">", 2)], [("p", "==", 2)]], "none"),  # H08
        ([[("p", "==", 1), ("x", ">", 2)], [("p", "==", 2), ("x", ">", 2)]], "x > 2"),
        ([[("x", "in", list(range(1000)))], [("y", "==", None)]], "x in [0, 1, 2, 3, 4, … 1,000 values] or y == None"),
    ],
    ids=range(6),
)
def test_what_partition_values_leave_open(predicates, rest):
    assert predicates_text(residual(parse_predicates(predicates), ["p"])) == rest


def test_the_text_is_short_and_aligned(store):
    expected = f"""\
Scan of table 'table' of dataset 'uuid'
columns: x
predicates: p == 'a' and x == 1
remaining: x == 1

1. Pruning (files)
                            before      after
   partitions                    4          4  those that have a file of this table
   partition values              4          1  p
   secondary index on x          1          1

Files that are read: 1
   {UUID}/table/p=a/one.parquet"""
    assert plan(store, [("p", "==", "a"), ("x", "==", 1)], columns=["x"]).explain() == expected


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.text, self.open = set(), [], []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        assert {name for name, _ in attrs} <= {"class", "rowspan"}
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def test_html_is_escaped_and_small():
    store = MemoryStore()
    evil = "<script>alert('x')</script>&"
    for number in range(50):
        write(store, {"x": [evil], "<b>": [number]}, label=f"{number:02}")
    found = plan(store, [("x", "==", evil)], columns=["<b>"])
    parsed = Tags()
    parsed.feed(found._repr_html_())
    assert parsed.open == []
    assert {"table", "tr", "td"} <= parsed.tags
    assert not {"script", "b"} & parsed.tags
    assert repr(evil)[1:-1] in "".join(parsed.text)
    assert len(found._repr_html_()) < 3_000
    assert "… and 45 more" in found.explain()
    assert len(json.loads(found.explain("json"))["files"]) == 50


def test_a_plan_can_be_pickled_and_says_what_it_is(store):
    found = plan(store, [("x", "==", 2)])
    again = pickle.loads(pickle.dumps(found))
    assert again.files() == found.files()
    assert again.explain() == found.explain()
    assert repr(found) == "ScanPlan(dataset='uuid', table='table', files=1 of 4)"
    assert len(found) == 1


@pytest.mark.parametrize("error", [InvalidInput, Unsupported, ValueError])
def test_another_format_is_refused(store, error):
    with pytest.raises(error, match=r"'svg'.*text.*html.*json"):
        plan(store).explain("svg")

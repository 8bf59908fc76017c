"""`open_dataset`: the verbs of a dataset with the store bound."""

from __future__ import annotations

import inspect
import pickle

import pandas as pd
import pyarrow as pa
import pytest

from kartothek_cube import C, open_dataset, set_layout
from kartothek_cube.api import dataset as verbs
from kartothek_cube.errors import DatasetNotFound, InvalidInput, InvalidType

ROWS = pa.table({"x": [1, 2, 3], "p": ["a", "a", "b"], "v1": [1.0, 2.0, 3.0]})

CALLS = {
    "query": "read_table",
    "query_arrow": "read_table_arrow",
    "stream": "stream_table",
    "plan": "plan_table_scan",
    "scan": "scan_dataset",
    "history": "history",
    "changes": "read_dataset_changes",
    "verify": "verify_dataset",
    "append": "update_dataset_from_dataframes",
    "merge": "merge_dataset",
    "delete_rows": "delete_rows",
    "update_rows": "update_rows",
    "undo": "undo",
    "tag": "tag_dataset",
    "publish_delta": "publish_delta",
    "unpublish_delta": "unpublish_delta",
}


@pytest.fixture
def prices(tmp_path):
    handle = open_dataset("prices", tmp_path)
    handle.append(ROWS, partition_on="p", secondary_indices="x")
    return handle


@pytest.mark.parametrize("method", CALLS)
def test_a_method_has_arguments_of_its_function_only(method, prices):
    of_handle, of_verb = (
        inspect.signature(f).parameters for f in (getattr(prices, method), getattr(verbs, CALLS[method]))
    )
    # A list of frames is called otherwise in the function of kartothek.
    others = set(of_handle) - set(of_verb)
    assert others <= {"data"}
    assert {n for n in of_handle if n not in others and of_handle[n].default is inspect.Parameter.empty} <= {
        "since",
        "data",
        "on",
        "predicates",
        "values",
        "name",
    }
    shared = {n for n in set(of_handle) & set(of_verb) if inspect.Parameter.empty is not of_handle[n].default}
    assert {n for n in shared if of_handle[n].default != of_verb[n].default} == set()
    assert f"`{CALLS[method]}`" in getattr(prices, method).__doc__


def test_every_method_is_compared_with_its_function(prices):
    methods = {name for name in dir(prices) if not name.startswith("_")}
    assert methods - set(CALLS) == {"dataset_uuid", "store", "columns", "sql", "head", "describe"}


@pytest.mark.parametrize(
    "where",
    [
        [[("v1", ">", 1.0), ("p", "==", "a")]],
        (C("v1") > 1.0) & (C("p") == "a"),
        [C("v1") > 1.0, C("p") == "a"],
        "v1 > 1.0 & p == a",
        ["v1 > 1.0", "p == a"],
    ],
    ids=str,
)
def test_predicates_and_conditions_say_the_same(prices, where):
    assert prices.query(where)["x"].tolist() == [2]
    assert prices.query_arrow(where, ["x"]).to_pydict() == {"x": [2]}
    assert prices.stream(where, ["x"]).read_all().num_rows == 1
    assert len(prices.plan(where)) == 1


def test_the_first_rows_are_those_of_a_query(prices):
    prices.append(pa.table({"x": [None], "p": ["b"], "v1": [4.0]}, ROWS.schema))
    pd.testing.assert_frame_equal(prices.head(), prices.query())
    assert prices.head(3)["x"].tolist() == [1, 2, 3]
    assert list(prices.head(0)) == prices.columns


def test_a_single_condition_is_enough(prices):
    assert prices.query(prices["x"] == 3, ["v1"])["v1"].tolist() == [3.0]


def test_rows_change_and_come_back(prices):
    begun = prices.history()["commit"].iloc[0]
    assert prices.delete_rows(prices["x"] == 1).deleted == 1
    assert prices.update_rows(prices["x"] == 2, {"v1": 5.0}).updated == 1
    assert prices.merge(ROWS.slice(0, 1), "x").inserted == 1
    assert prices.query()["v1"].sum() == 9.0
    changed = prices.changes(begun, on="x").read_all()
    assert changed["_change_type"].to_pylist() == ["update_preimage", "update_postimage"]
    prices.tag("today")
    prices.undo()
    assert len(prices.query()) == 2
    assert len(prices.query(as_of="today")) == 3
    assert prices.verify(deep=True).ok


def test_nothing_to_delete_by_is_refused(prices):
    for nothing in (None, "", []):
        with pytest.raises((InvalidInput, InvalidType)):
            prices.delete_rows(nothing)


def test_rows_change_by_text(prices):
    assert prices.update_rows("p == b", {"v1": 5.0}).updated == 1
    assert prices.delete_rows("v1 >= 5").deleted == 1
    with pytest.raises(InvalidInput, match="v3"):
        prices.query("v3 > 1")


def test_lazy_frames_and_sql_see_the_dataset(prices):
    pytest.importorskip("polars", reason="not installed: polars")
    pytest.importorskip("duckdb", reason="not installed: duckdb")
    assert prices.scan().collect().height == 3
    assert prices.sql("SELECT max(v1) FROM prices").fetchall() == [(3.0,)]


def test_a_handle_shows_its_columns(prices):
    assert repr(prices) == f"<dataset 'prices' in {prices.store.name}>"
    assert prices.describe().to_dict("list") == {
        "column": prices.columns,
        "type": ["string", "double", "int64"],
        "found by": ["partition", "", "index"],
    }
    assert "<td>double</td>" in prices._repr_html_()
    assert prices._ipython_key_completions_() == ["p", "v1", "x"]


def test_a_handle_shows_the_layout_on_record(prices):
    assert "layout: sorted" not in prices._repr_html_()
    set_layout("prices", prices.store, sort_by="x")
    assert "layout: sorted by x" in prices._repr_html_()


def test_a_handle_of_what_is_not_there_yet(prices):
    absent = open_dataset("absent", prices.store)
    assert "absent" in absent._repr_html_()
    assert absent._ipython_key_completions_() == []
    with pytest.raises(DatasetNotFound, match="absent"):
        absent.query()


def test_a_handle_travels(prices):
    again = pickle.loads(pickle.dumps(prices))
    assert again == prices
    assert again.query().equals(prices.query())

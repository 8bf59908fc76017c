"""`kartothek_cube.open`: the verbs of a cube with the store bound."""

from __future__ import annotations

import inspect
import pickle
import signal
from datetime import timedelta
from functools import partial

import pandas as pd
import pyarrow as pa
import pytest

import kartothek_cube
from kartothek_cube import C, Cube, open_store, options, query_cube
from kartothek_cube.api import cube as verbs
from kartothek_cube.api.dataset import store_dataframes_as_dataset
from kartothek_cube.core.stores.contract import StoreView
from kartothek_cube.errors import InvalidInput, InvalidType

CUBE = Cube(["x"], ["p"], "sales", index_columns=["i1"])
SEED = pa.table({"x": [1, 2, 3], "p": ["a", "a", "b"], "i1": ["s", "t", "s"]})
VALUES = pa.table({"x": [1, 2, 3], "p": ["a", "a", "b"], "v1": [1.0, 2.0, 3.0]})

# Method → the function that it calls. The arguments are the same, but for cube and store.
CALLS = {
    "query": "query_cube",
    "query_arrow": "query_cube_arrow",
    "stream": "stream_cube",
    "groups": "iter_cube",
    "count": "count_cube",
    "plan": "plan_cube_query",
    "scan": "scan_cube",
    "describe": "describe_cube",
    "stats": "collect_stats",
    "history": "cube_history",
    "changes": "query_cube_changes",
    "verify": "verify_cube",
    "report": "cube_report",
    "build": "build_cube",
    "extend": "extend_cube",
    "append": "append_to_cube",
    "update": "update_cube",
    "delete_cells": "delete_cells",
    "undo": "undo_cube",
    "tag": "tag_cube",
    "publish_delta": "publish_cube_delta",
}
# What a handle does without: serializers, clocks, and what a frame of its own is returned for.
LEFT_OUT = {"executor", "cube", "uuid_prefix", "store", "df_serializer", "now", "rows"}
NOT_THERE = {"query": {"partition_by", "changed_since"}, "report": {"deep"}}
NOT_THERE |= {method: {"on_conflict"} for method in ("build", "extend")}


@pytest.fixture
def sales(tmp_path):
    handle = kartothek_cube.open(CUBE, tmp_path)
    handle.build({"seed": SEED, "values": VALUES})
    return handle


def parameters(function, left_out):
    found = inspect.signature(function).parameters.values()
    return {one.name: (one.default, one.kind is one.KEYWORD_ONLY) for one in found if one.name not in left_out}


@pytest.mark.parametrize("method", CALLS)
def test_a_method_has_the_arguments_of_its_function(method):
    of_handle = getattr(kartothek_cube.open(CUBE, "hmemory://"), method)
    wanted = parameters(getattr(verbs, CALLS[method]), LEFT_OUT | NOT_THERE.get(method, set()))
    assert parameters(of_handle, set()) == wanted
    assert f"`{CALLS[method]}`" in of_handle.__doc__


def test_every_method_is_compared_with_its_function():
    methods = {name for name in dir(kartothek_cube.open(CUBE, "hmemory://")) if not name.startswith("_")}
    assert methods - set(CALLS) == {"cube", "store", "columns", "sql", "head"}


def test_a_query_is_one_frame(sales):
    conditions = sales["v1"] > 1.0
    pd.testing.assert_frame_equal(sales.query(conditions), query_cube(CUBE, sales.store, C("v1") > 1.0)[0])
    assert list(sales.query(sales["v1"] > 9.0)) == sales.columns == ["i1", "p", "v1", "x"]
    assert sales.query(sales["v1"] > 9.0).empty


def test_the_first_rows_are_those_of_a_query(sales):
    pd.testing.assert_frame_equal(sales.head(), sales.query())
    pd.testing.assert_frame_equal(sales.head(2), sales.query().head(2))
    assert list(sales.head(0)) == sales.columns
    with pytest.raises(InvalidInput, match="cannot be -1"):
        sales.head(-1)


def test_a_column_that_is_not_there_is_named_by_the_query_with_the_cube_and_those_that_are(sales):
    with pytest.raises(InvalidInput, match=r"v1x\. The cube 'sales' has: i1, p, v1, x\. Did you mean 'v1'\?"):
        sales.query(sales["v1x"] > 1.0)


def test_each_way_of_reading_answers(sales):
    conditions = sales["i1"] == "s"
    assert sales.query_arrow(conditions).num_rows == sales.count(conditions) == 2
    assert sales.stream(limit=1).read_all().num_rows == 1
    assert [(key, table.num_rows) for key, table in sales.groups("i1")] == [({"i1": "s"}, 2), ({"i1": "t"}, 1)]
    assert sales.plan(partition_by="i1").groups[0].key == {"i1": "s"}
    assert sales.stats()["seed"]["rows"] == 3
    assert sales.verify().ok
    assert "sales" in sales.report()


def test_lazy_frames_and_sql_see_the_cube(sales):
    pl = pytest.importorskip("polars", reason="not installed: polars")
    pytest.importorskip("duckdb", reason="not installed: duckdb")
    assert sales.scan().filter(pl.col("i1") == "t").collect()["v1"].to_list() == [2.0]
    # The relation outlives the connection, of which nobody has a name.
    assert sales.sql("SELECT sum(v1) FROM sales").fetchall() == [(6.0,)]


def test_writes_and_history(sales):
    built = sales.history()["commit"].iloc[0]
    sales.append({"values": pa.table({"x": [3], "p": ["b"], "v1": [9.0]})})
    assert sales.query(sales["x"] == 3)["v1"].tolist() == [9.0]
    assert sales.changes(built).read_all()["_change_type"].to_pylist() == ["update_preimage", "update_postimage"]
    sales.tag("nine")
    sales.undo()
    assert sales.query(sales["x"] == 3)["v1"].tolist() == [3.0]
    assert sales.query(sales["x"] == 3, as_of="nine")["v1"].tolist() == [9.0]
    sales.update({"values": VALUES.slice(2)}, sales["p"] == "b", ["values"])
    sales.extend({"more": pa.table({"x": [1], "v2": [1]})}, partition_on={"more": []})
    assert sales.delete_cells(sales["x"] == 1)["seed"].deleted == 1
    assert sales.query()["x"].tolist() == [2, 3]


def test_a_prefix_opens_what_is_there(sales):
    assert kartothek_cube.open("sales", sales.store) == sales
    with pytest.raises(InvalidInput, match=r"There is no cube 'sale' .* It has: sales\. Did you mean 'sales'"):
        kartothek_cube.open("sale", sales.store)
    with pytest.raises(InvalidType, match="a Cube or its prefix, not for int: 3"):
        kartothek_cube.open(3, sales.store)


def test_a_handle_is_small_and_travels(sales):
    again = pickle.loads(pickle.dumps(sales))
    assert again == sales
    assert again.query().equals(sales.query())
    with pytest.raises((AttributeError, TypeError)):
        sales.cache = 1


def test_a_handle_shows_itself(sales):
    assert repr(sales) == f"<cube 'sales' in {sales.store.name}>"
    assert sales._repr_html_() == sales.describe()._repr_html_()
    unbuilt = kartothek_cube.open(Cube(["x"], ["p"], "<new>"[1:4]), "hmemory://")
    assert "new" in unbuilt._repr_html_()
    assert unbuilt._ipython_key_completions_() == []


def test_a_notebook_completes_columns_in_conditions(sales):
    completer = pytest.importorskip("IPython.core.completer", reason="not installed: ipython")
    shell = completer.IPCompleter(namespace={"sales": sales}, use_jedi=False)
    with completer.provisionalcompleter():
        found = [one.text for one in shell.completions('sales["v', len('sales["v'))]
    assert "v1" in found
    assert str(sales["v1"] > 1.0) == str(C("v1") > 1.0)


@pytest.fixture
def ctrl_c():
    """Press Ctrl-C: the main thread raises, whichever thread asks for it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield partial(signal.raise_signal, signal.SIGINT)
    signal.signal(signal.SIGINT, before)


class Interrupted(StoreView):
    """A store during one call of which Ctrl-C is pressed."""

    def __init__(self, inner, press):
        super().__init__(inner)
        self.calls, self.at, self.press = 0, None, press

    def around(self, operation, key, action):
        self.calls += 1
        if self.calls == self.at:
            self.press()
        return action()


def test_an_interrupted_query_leaves_a_usable_handle(sales, ctrl_c):
    everything = sales.query()
    view = Interrupted(sales.store, ctrl_c)
    kartothek_cube.open(CUBE, view).query()
    assert view.calls > 1
    for at in range(1, view.calls + 1):
        view = Interrupted(sales.store, ctrl_c)
        handle, view.at = kartothek_cube.open(CUBE, view), at
        with pytest.raises(KeyboardInterrupt):
            handle.query()
        view.at = None
        assert handle.query().equals(everything)


# Every third call: the three together are all.
@pytest.mark.parametrize("first", [1, 2, 3])
def test_an_interrupted_append_is_there_or_not(first, ctrl_c):
    rows = {"seed": SEED.slice(0, 1).set_column(0, "x", [[7]]), "values": VALUES.slice(0, 1).set_column(0, "x", [[7]])}
    at, is_done = first, False
    while not is_done:
        view = Interrupted(open_store("hmemory://"), ctrl_c)
        handle = kartothek_cube.open(CUBE, view)
        handle.build({"seed": SEED, "values": VALUES})
        view.calls, view.at, is_done = 0, at, True
        try:
            handle.append(rows)
        except KeyboardInterrupt:
            is_done = False
        view.at = None
        # Both datasets have the row, or neither.
        assert handle.query(handle["x"] == 7)["v1"].tolist() in ([[1.0]] if is_done else [[], [1.0]])
        with options(patience=timedelta(0)):  # what stopped is not waited for
            handle.append(rows)
        assert handle.query(handle["x"] == 7)["v1"].tolist() == [1.0]
        at += 3
    assert at > first + 9


def test_the_name_of_a_dataset_leads_to_its_handle(tmp_path):
    store_dataframes_as_dataset(tmp_path, "d", [pa.table({"x": [1]})])
    with pytest.raises(InvalidInput, match=r"open_dataset\('d', store\)"):
        kartothek_cube.open("d", tmp_path)

"""Statements of every form find the tables of the store, and run as DuckDB runs them."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest

from kartothek_cube import connect
from kartothek_cube.api.dataset import history, store_dataframes_as_dataset, update_dataset_from_dataframes
from kartothek_cube.core.metadata.naming import document_key
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.engines.duckdb import bare_count, created_name, explained, is_kept, split, split_calls
from tests.support.cubes import build_two
from tests.support.reads import MeasuredStore


@pytest.fixture
def store():
    store = MemoryStore()
    build_two(store)
    store_dataframes_as_dataset(store, "stock", [pa.table({"x": [1, 2], "a": ["one", "two"]})])
    return store


@pytest.fixture
def con(store):
    with connect(store) as connection:
        yield connection


def plans(rows):
    return [text for key, text in rows if key == "kartothek_cube"]


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("FROM f(1)", ["f(1)"]),
        ("FROM F (1), f\n(2) AS g", ["F (1)", "f\n(2)"]),
        ('FROM "f"((1), g(2))', ['"f"((1), g(2))']),
        ("FROM f('a)', ')', $$)$$, \"b)\")x", ["f('a)', ')', $$)$$, \"b)\")"]),
        ("FROM f /* ( */ (1 -- )\n) /* ) */", ["f /* ( */ (1 -- )\n)"]),
        ("SELECT 'ü' FROM f('ß') -- ä", ["f('ß')"]),
        ("SELECT 'f(1)', \"f(1)\", e'f(1)' -- f(1)", []),
        ("SELECT f, f.f, ff(1), f + (1)", []),
        ("-- f(1)", []),
        ("FROM f(1, (2)", []),
        ("FROM f('1)", []),
        ("", []),
    ],
)
def test_calls_of_a_function(text, calls):
    pieces = split_calls(text, "f")
    assert pieces[1::2] == calls
    assert "".join(pieces) == text


@pytest.mark.parametrize(
    "name", ["VIEW v", "OR REPLACE VIEW v", "TEMP MACRO m()", "/* f */ TEMPORARY VIEW v", "FUNCTION m()"]
)
def test_statements_that_run_later(name):
    assert is_kept(f"-- first\n create {name} AS SELECT 1")
    assert is_kept("PREPARE p AS SELECT 1")
    assert not is_kept("CREATE TABLE view AS SELECT 1")


# --- the parser -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("select count(*) from cube", ("cube", '"count_star()"')),
        ('-- rows\nSELECT COUNT(*) AS "n n" FROM "a b";', ("a b", '"n n"')),
        ("SELECT count() FROM cube", ("cube", '"count_star()"')),
        ("SELECT count(*) from FROM cube", None),
        ("SELECT count(*) FROM cube WHERE x = 1", None),
        ("SELECT count(*) FROM a, b", None),
    ],
)
def test_a_bare_count(text, found):
    assert bare_count(text) == found


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("CREATE TABLE t AS FROM cube", "t"),
        ('create or replace temp view "t t" as from cube', "t t"),
        ("/* new */ CREATE TEMPORARY TABLE IF NOT EXISTS t (x INT)", "t"),
        ("CREATE TABLE s.t (x INT)", None),
        ("CREATE SEQUENCE t", None),
        ("FROM cube", None),
    ],
)
def test_the_name_that_a_statement_creates(text, name):
    assert created_name(text) == name


@pytest.mark.parametrize(
    ("text", "runs"),
    [
        ("EXPLAIN FROM cube", False),
        ("explain analyze FROM cube", True),
        ("-- why\nEXPLAIN (FORMAT json) FROM cube", False),
        ("EXPLAIN (ANALYZE, FORMAT json) FROM cube", True),
        ("FROM explain", None),
    ],
)
def test_what_a_statement_explains(text, runs):
    found = explained(text)
    assert (found is not None) == (runs is not None)
    assert found is None or (found.body.strip(), found.runs) == ("FROM cube", runs)


def test_the_statements_of_a_text():
    inside = duckdb.connect()
    assert len(split(inside, "SELECT ';'; -- c;\nFROM cube")) == 2
    assert split(inside, "SELEC 1") == ["SELEC 1"]


# --- tables ---------------------------------------------------------------------------------------


def test_a_dataset_at_a_commit_of_its_own(store):
    first = history("stock", store)["commit"].iloc[-1]
    update_dataset_from_dataframes([pa.table({"x": [3], "a": ["three"]})], store, "stock")
    old = connect(store, as_of=first)
    assert old.sql("SELECT count(*), 1 FROM stock").fetchall() == [(2, 1)]
    assert ("stock",) in old.sql("SELECT table_name FROM information_schema.tables").fetchall()


def test_a_statement_sees_what_the_one_before_has_created(con):
    assert con.sql("CREATE TABLE stock AS SELECT 7 AS q; FROM stock").fetchall() == [(7,)]


@pytest.mark.parametrize("kind", ["TEMP TABLE", "TEMP VIEW", "TABLE", "VIEW"])
@pytest.mark.parametrize("is_known", [True, False])
def test_users_may_take_the_name_of_a_table(con, kind, is_known):
    if is_known:
        con.sql("FROM stock").fetchall()
    con.execute(f"CREATE {kind} stock AS SELECT 7 AS q")
    assert con.sql("FROM stock").fetchall() == [(7,)]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT x FROM stock WHERE x = ?",
        "SELECT x FROM stock JOIN (SELECT 1 AS x) USING (x) WHERE x = ?",
    ],
)
def test_a_broken_dataset_named_as_a_column_disturbs_nothing(store, text):
    store_dataframes_as_dataset(store, "x", [pa.table({"a": [1]})])
    store.put(document_key("x"), b"{")
    assert connect(store).execute(text, [1]).fetchall() == [(1,)]


def test_own_tables_and_variables_cost_no_requests(store):
    for number in range(5):
        store_dataframes_as_dataset(store, f"other{number}", [pa.table({"x": [number]})])
    measured = MeasuredStore(store)
    con = connect(measured)
    con.sql("SHOW TABLES").fetchall()
    con.execute("CREATE TABLE own AS SELECT 1 AS x")
    variable = pa.table({"x": [1]})
    for text, most in (("FROM own", 0), ("FROM variable", 1), ("SELECT 1", 0)):
        measured.calls.clear()
        assert con.sql(text).fetchall() == [(1,)]
        assert len(measured.calls) <= most, text
    del variable


# --- DuckDB's own ways ----------------------------------------------------------------------------


def test_a_query_may_be_named(con):
    assert con.sql(query="SELECT x FROM stock ORDER BY x").fetchall() == [(1,), (2,)]
    assert con.execute(query="SELECT x FROM stock ORDER BY x").fetchall() == [(1,), (2,)]
    with pytest.raises(TypeError):
        con.sql()


def test_methods_that_give_the_connection_give_this_one(con):
    assert con.begin().execute("SELECT x FROM stock ORDER BY x").fetchall() == [(1,), (2,)]
    con.rollback()


def test_arguments_of_shortcuts(con):
    assert con.sql("SELECT count(*) FROM stock", alias="rows").alias == "rows"
    assert plans(con.sql("EXPLAIN FROM stock", alias="plan").fetchall())
    with pytest.raises(duckdb.Error):
        con.execute("SELECT count(*) FROM stock", [1])


# --- EXPLAIN --------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["-- why\nEXPLAIN FROM stock", "EXPLAIN (FORMAT json) FROM stock"])
def test_forms_of_explain(con, text):
    (plan,) = plans(con.sql(text).fetchall())
    assert "dataset 'stock'" in plan


def test_explain_runs_nothing_of_the_user(con):
    con.execute("CREATE SEQUENCE numbers")
    (plan,) = plans(con.sql("EXPLAIN SELECT nextval('numbers'), x FROM stock").fetchall())
    assert "EXPLAIN ANALYZE" in plan
    assert con.sql("SELECT nextval('numbers')").fetchall() == [(1,)]
    assert plans(con.sql("EXPLAIN SELECT error('boom')").fetchall()) == []
    (plan,) = plans(con.sql("EXPLAIN SELECT * FROM stock, range(3)").fetchall())
    assert "EXPLAIN ANALYZE" in plan


def test_an_error_while_explaining_in_a_transaction(con):
    con.begin()
    con.sql("FROM stock").fetchall()
    with pytest.raises(duckdb.Error, match="nothing"):
        con.sql("EXPLAIN SELECT CAST(a AS INT), nothing FROM stock")
    con.rollback()
    assert len(con.sql("FROM stock").fetchall()) == 2

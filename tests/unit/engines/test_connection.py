"""`connect`: cubes and datasets as tables of DuckDB."""

from __future__ import annotations

import gc
import re
from concurrent.futures import ThreadPoolExecutor

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kartothek_cube import C, Cube, connect, options, query_cube_arrow
from kartothek_cube.api.cube import append_to_cube, build_cube, delete_cube, extend_cube, remove_partitions
from kartothek_cube.api.dataset import (
    delete_dataset,
    history,
    read_table_arrow,
    store_dataframes_as_dataset,
    update_dataset_from_dataframes,
)
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import InvalidInput, InvalidType, KartothekCubeError
from tests.support.all_types import ALL_TYPES, ODD_ZONES, nested_moments
from tests.support.cubes import CUBE, SEED, build_two, with_column
from tests.support.reads import MeasuredStore

NEW_CELL = with_column(SEED.slice(0, 1), "x", [5])
COLUMNS = ["i1", "i2", "p", "v1", "v2", "x", "y"]


@pytest.fixture
def store():
    store = MemoryStore()
    build_two(store)
    store_dataframes_as_dataset(store, "my-data", [pa.table({"x": [1, 2], "a": ["one", "two"]})])
    return store


@pytest.fixture
def con(store):
    with connect(store) as connection:
        yield connection


def count(connection, name="cube"):
    """The number of rows, not by the shortcut for ``count(*)``."""
    return connection.sql(f"SELECT count(*), 1 FROM {name}").fetchall()[0][0]


def append(store):
    append_to_cube(NEW_CELL, CUBE, store)


# --- names ----------------------------------------------------------------------------------------


def test_a_cube_is_a_table(con, store):
    expected = query_cube_arrow(CUBE, store)
    found = con.sql("SELECT * FROM cube ORDER BY x, y").to_arrow_table()
    assert found.column_names == COLUMNS
    assert found.to_pylist() == expected.sort_by([("x", "ascending"), ("y", "ascending")]).to_pylist()


def test_a_dataset_is_a_table(con):
    assert con.sql('SELECT a FROM "my-data" WHERE x = 2').fetchall() == [("two",)]
    assert con.sql('SELECT v2 FROM "cube++e" ORDER BY v2').fetchall() == [(10,), (70,)]


def test_only_the_tables_that_a_statement_names_are_read(store):
    measured = MeasuredStore(store)
    connection = connect(measured)
    assert measured.calls == []
    connection.sql("SELECT 1").fetchall()
    assert measured.calls == []
    connection.sql('FROM "my-data"')
    assert {key for key in measured.bytes if measured.bytes[key]} == {"my-data.by-dataset-metadata.json"}
    assert measured.files() == []


@pytest.mark.parametrize("name", ["cube", "CUBE", "Cube", '"CUBE"', '"cube++SEED"'])
def test_the_case_of_a_name_does_not_count(con, name):
    assert count(con, name) == 4
    assert count(con, name) == 4


def test_the_case_counts_where_two_names_differ_by_it(store):
    build_cube(SEED.slice(0, 1), Cube(["x", "y"], ["p"], "Cube"), store)
    connection = connect(store)
    assert [count(connection, name) for name in ("cube", "Cube", "cube", '"Cube"')] == [4, 1, 4, 1]


def test_a_cube_wins_over_a_dataset_of_its_name(store):
    store_dataframes_as_dataset(store, "cube", [pa.table({"z": [1]})])
    assert connect(store).sql("FROM cube").columns == COLUMNS


def test_a_cube_replaces_a_dataset_of_its_name(store):
    connection = connect(store)
    assert connection.sql('FROM "my-data"').columns == ["a", "x"]
    build_cube(SEED, Cube(["x", "y"], ["p"], "my-data"), store)
    assert connection.sql('FROM "my-data"').columns == ["i1", "p", "v1", "x", "y"]


@pytest.mark.parametrize("is_used", [False, True], ids=["unused", "used"])
@pytest.mark.parametrize("kind", ["TABLE", "VIEW"])
def test_a_table_of_the_user_wins(con, kind, is_used):
    if is_used:
        assert count(con) == 4
    con.execute(f"CREATE {kind} cube AS SELECT 7 AS q")
    assert con.sql("FROM cube").fetchall() == [(7,)]
    assert con.sql("SELECT count(*) FROM cube").fetchall() == [(1,)]
    assert con.table("cube").fetchall() == [(7,)]
    con.execute(f"DROP {kind} cube")
    assert count(con) == 4


@pytest.mark.parametrize("is_used", [False, True], ids=["unused", "used"])
def test_an_object_that_the_user_registers_wins(con, store, is_used):
    if is_used:
        assert count(con) == 4
    assert con.register("cube", pa.table({"q": [7]})) is con
    append(store)
    assert con.sql("FROM cube").fetchall() == [(7,)]
    con.unregister("cube")
    assert count(con) == 5


def test_a_table_in_another_schema_does_not_hide_a_cube(con):
    con.execute("CREATE SCHEMA other; CREATE TABLE other.cube AS SELECT 7 AS q")
    assert count(con) == 4
    assert con.sql("FROM other.cube").fetchall() == [(7,)]
    con.execute("USE other")
    assert con.sql("FROM cube").fetchall() == [(7,)]


def test_a_variable_of_the_caller_is_a_table(con):
    names = pa.table({"x": [1], "name": ["one"]})
    found = con.sql("SELECT DISTINCT name, v2 FROM names JOIN cube USING (x)").fetchall()
    assert found == [("one", 10)]
    assert con.execute("SELECT x FROM names").fetchall() == [(1,)]
    assert names.num_rows == 1

    def inside():
        weights = pl.DataFrame({"x": [0], "weight": [2]})
        assert weights.height == 1
        return con.query("SELECT count(*) AS n FROM weights JOIN cube USING (x)").fetchall()

    assert inside() == [(2,)]


@pytest.mark.parametrize("text", ["FROM cube", "SELECT * FROM cube NATURAL JOIN cube AS again", "SELECT * FROM cube;"])
def test_a_cube_wins_over_a_variable(con, text):
    cube = pa.table({"q": [7]})
    assert con.sql(text).columns == COLUMNS
    assert cube.num_rows == 1


def test_a_cte_hides_a_cube(con):
    for _ in range(2):
        assert con.sql("WITH cube AS (SELECT 7 AS q) FROM cube").fetchall() == [(7,)]
        assert count(con) == 4


# --- listings -------------------------------------------------------------------------------------

LISTED = ["cube", "cube++e", "cube++seed", "my-data"]


@pytest.mark.parametrize(
    "text",
    [
        "SHOW TABLES",
        " show tables;",
        "PRAGMA show_tables",
        "SELECT table_name FROM information_schema.tables",
        "SELECT view_name FROM duckdb_views() WHERE NOT internal",
        "SELECT name FROM (SHOW ALL TABLES)",
        "SELECT name FROM sqlite_master",
    ],
)
def test_listings_have_all_tables(con, text):
    assert sorted(row[0] for row in con.sql(text).fetchall()) == LISTED


@pytest.mark.parametrize("text", ["SHOW ALL TABLES", "DESCRIBE", "describe ;"])
def test_listings_with_columns(con, text):
    assert {row[2]: row[3] for row in con.sql(text).fetchall()}["cube"] == COLUMNS


def test_a_listing_has_the_newest_state(con, store):
    con.sql("SHOW TABLES").fetchall()
    delete_cube(CUBE, store)
    store_dataframes_as_dataset(store, "new", [pa.table({"x": [1]})])
    assert [name for (name,) in con.sql("SHOW TABLES").fetchall()] == ["my-data", "new"]


def test_a_listing_has_the_tables_of_the_user(con):
    con.execute("CREATE TABLE own (a INTEGER); CREATE TABLE cube (a INTEGER)")
    assert sorted(name for (name,) in con.sql("SHOW TABLES").fetchall()) == sorted([*LISTED, "own"])


def test_columns_are_listed(con):
    columns = "SELECT column_name FROM information_schema.columns WHERE table_name = 'cube'"
    assert sorted(name for (name,) in con.sql(columns).fetchall()) == COLUMNS


@pytest.mark.parametrize("text", ["DESCRIBE cube", "SHOW cube", "DESCRIBE SELECT * FROM cube", "SUMMARIZE cube"])
def test_columns_of_one_table(con, text):
    found = con.execute(text).fetchall()
    assert [(name, kind) for name, kind, *_ in found] == [
        ("i1", "BIGINT"),
        ("i2", "VARCHAR"),
        ("p", "BIGINT"),
        ("v1", "DOUBLE"),
        ("v2", "BIGINT"),
        ("x", "BIGINT"),
        ("y", "VARCHAR"),
    ]


# --- the newest state -----------------------------------------------------------------------------


@pytest.fixture(params=["sql", "execute", "table", "count", "join"])
def number(request, con):
    """Counts the rows of the cube by a statement of one kind."""
    ways = {
        "sql": lambda: len(con.sql("FROM cube").fetchall()),
        "execute": lambda: len(con.execute("SELECT x FROM cube").fetchall()),
        "table": lambda: len(con.table("cube").fetchall()),
        "count": lambda: con.sql("SELECT count(*) FROM cube").fetchall()[0][0],
        "join": lambda: len(con.sql("SELECT y FROM cube JOIN cube AS b USING (x, y)").fetchall()),
    }
    return ways[request.param]


def test_each_statement_has_the_newest_state(number, store):
    assert number() == 4
    append(store)
    assert number() == 5
    remove_partitions(CUBE, store, C("p") == 0, ["seed"])
    assert number() == 3
    delete_cube(CUBE, store)
    with pytest.raises(duckdb.CatalogException, match="cube"):
        number()
    build_cube(SEED.slice(0, 2), Cube(["x", "y"], ["p"], "cube"), store)
    assert number() == 2


def test_a_new_column(con, store):
    assert con.sql("FROM cube").columns == COLUMNS
    extend_cube({"late": pa.table({"x": [0], "v3": [1]})}, CUBE, store, partition_on={"late": []})
    assert con.sql("SELECT max(v3) FROM cube").fetchall() == [(1,)]
    assert "v3" in con.sql("FROM cube").columns


def test_a_dataset_that_changes(con, store):
    update_dataset_from_dataframes([pa.table({"x": [3], "a": ["three"]})], store, "my-data")
    assert count(con, '"my-data"') == 3
    delete_dataset("my-data", store)
    with pytest.raises(duckdb.CatalogException, match="my-data"):
        con.sql('FROM "my-data"').fetchall()


@pytest.mark.parametrize("kind", ["VIEW", "TEMP VIEW"])
def test_a_view_has_the_newest_state(con, store, kind):
    con.execute(f"CREATE {kind} own AS SELECT x FROM cube")
    con.execute(f"CREATE {kind} outer_one AS SELECT max(x) AS most FROM own")
    assert con.sql("FROM outer_one").fetchall() == [(1,)]
    append(store)
    assert con.sql("FROM outer_one").fetchall() == [(5,)]
    append_to_cube(with_column(SEED.slice(0, 1), "x", [6]), CUBE, store)
    assert con.sql("SELECT * FROM outer_one JOIN own ON x = most").fetchall() == [(6, 6)]


def test_a_prepared_statement_has_the_newest_state(con, store):
    con.execute("PREPARE own AS SELECT max(x) FROM cube WHERE p >= ?")
    assert con.execute("EXECUTE own(0)").fetchall() == [(1,)]
    append(store)
    assert con.execute("EXECUTE own(0)").fetchall() == [(5,)]


def test_a_macro_has_the_newest_state(con, store):
    con.execute("CREATE MACRO own(least) AS TABLE SELECT max(x) FROM cube WHERE x >= least")
    assert con.sql("FROM own(0)").fetchall() == [(1,)]
    append(store)
    assert con.sql("FROM own(0)").fetchall() == [(5,)]


def test_a_relation_is_fetched_later(con, store):
    relation = con.sql("SELECT x, y FROM cube").filter("x = 1").order("y")
    grouped = con.table("cube").aggregate("count(x) AS n")
    con.sql('FROM "my-data"').fetchall()
    assert relation.fetchall() == [(1, "a"), (1, "b")]
    assert grouped.fetchall() == [(4,)]
    # Until the next statement names the cube, its state is that of the last one.
    append(store)
    assert grouped.fetchall() == [(4,)]
    count(con)
    assert grouped.fetchall() == [(5,)]


@pytest.mark.skipif(not hasattr(duckdb.DuckDBPyRelation, "to_arrow_reader"), reason="needs DuckDB 2")
def test_a_reader_keeps_the_state_of_its_start(con, store):
    reader = con.sql("SELECT x FROM cube").to_arrow_reader(1)
    append(store)
    assert count(con.cursor()) == 5
    assert reader.read_all().num_rows == 4


def test_as_of_pins_all_statements(store):
    append(store)
    commits = history("cube++seed", store)["commit"].to_list()
    with connect(store, as_of=commits[-1]) as pinned:
        assert count(pinned) == 4
        append_to_cube(with_column(SEED.slice(0, 1), "x", [6]), CUBE, store)
        assert count(pinned) == 4
        assert count(pinned.cursor()) == 4
        assert pinned.sql("SELECT count(*) FROM cube").fetchall() == [(4,)]
    assert count(connect(store)) == 6


def test_as_of_a_moment(store):
    connection = connect(store, as_of="2999-01-01")
    assert count(connection) == 4
    with pytest.raises(InvalidInput, match="cube"):
        connect(store, as_of="1999-01-01").sql("FROM cube")
    assert connect(store, as_of="1999-01-01").sql("SHOW TABLES").fetchall() == []


def test_as_of_is_checked_at_the_call(store):
    with pytest.raises(InvalidType, match="7"):
        connect(store, as_of=7)


# --- connections ----------------------------------------------------------------------------------


@pytest.mark.parametrize("another", ["cursor", "duplicate"])
def test_another_connection_to_the_same_database(con, store, another):
    con.execute("CREATE TABLE own AS SELECT x FROM cube")
    other = getattr(con, another)()
    assert isinstance(other, duckdb.DuckDBPyConnection)
    assert count(other) == 4
    append(store)
    assert count(other) == 5
    assert count(other, "own") == 4
    other.close()
    assert count(con) == 5


def test_cursors_in_threads(con):
    def work(x):
        return con.cursor().execute("SELECT count(*) AS n FROM cube WHERE x = ?", [x % 2]).fetchall()

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(12))) == [[(2,)]] * 12


def test_with_closes(store):
    with connect(store) as connection:
        connection.sql("FROM cube")
    with pytest.raises(duckdb.ConnectionException):
        connection.sql("FROM cube")
    with pytest.raises(duckdb.ConnectionException):
        connection.execute("SELECT 1")


def test_closing_twice(store):
    connection = connect(store)
    connection.close()
    connection.close()
    with pytest.raises(duckdb.ConnectionException):
        connection.table("cube")


def test_it_is_a_connection_of_duckdb(con):
    assert isinstance(con, duckdb.DuckDBPyConnection)
    assert con.__class__ is duckdb.DuckDBPyConnection
    assert pl.read_database("SELECT x FROM cube WHERE p = 0", con).rows() == [(0,), (0,)]


def test_the_rows_of_execute_are_fetched_bit_by_bit(con):
    con.execute("SELECT x FROM cube ORDER BY x, y")
    assert con.fetchone() == (0,)
    assert con.fetchmany(2) == [(0,), (1,)]
    assert [column[0] for column in con.description] == ["x"]
    # The next statement ends the one before.
    con.execute("SELECT x FROM cube ORDER BY x, y")
    con.fetchone()
    assert con.execute('SELECT count(*) AS n FROM "my-data"').fetchall() == [(2,)]


def test_a_transaction_that_is_undone_takes_no_table_with_it(con):
    con.begin()
    assert count(con) == 4
    con.rollback()
    assert count(con) == 4


def test_a_transaction_that_was_aborted_can_be_ended(con):
    con.execute("CREATE TABLE own (a INTEGER PRIMARY KEY)")
    con.execute("INSERT INTO own VALUES (1)")
    con.begin()
    with pytest.raises(duckdb.Error):
        con.execute("INSERT INTO own VALUES (1)")
    with pytest.raises(duckdb.Error):
        con.execute("SELECT x FROM cube")
    con.execute("ROLLBACK")
    assert count(con) == 4


# --- statements -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("SELECT y FROM cube WHERE x = ? AND i1 = ?", [1, 20]),
        ("SELECT y FROM cube WHERE i1 = $2 AND x = $1", [1, 20]),
        ("SELECT y FROM cube WHERE x = $x AND i1 = $i", {"x": 1, "i": 20}),
    ],
)
def test_parameters(con, text, values):
    assert con.execute(text, values).fetchall() == [("b",)]
    assert con.execute(text, parameters=values).fetchall() == [("b",)]
    assert con.sql(text, params=values).fetchall() == [("b",)]
    assert con.query(text, params=values).fetchall() == [("b",)]
    assert con.from_query(text, params=values).fetchall() == [("b",)]


def test_executemany(con):
    con.execute("CREATE TABLE own (x INTEGER, step INTEGER)")
    con.executemany("INSERT INTO own SELECT x, $1 FROM cube WHERE y = 'a'", [[1], [2]])
    assert con.sql("FROM own ORDER BY ALL").fetchall() == [(0, 1), (0, 2), (1, 1), (1, 2)]


@pytest.mark.parametrize("run", ["sql", "execute", "query"])
def test_several_statements(con, run):
    text = 'CREATE TABLE own AS SELECT x FROM cube; INSERT INTO own SELECT v2 FROM "cube++e"; FROM own ORDER BY x'
    assert getattr(con, run)(text).fetchall() == [(0,), (0,), (1,), (1,), (10,), (70,)]


def test_a_parsed_statement(con):
    (statement,) = con.extract_statements("SELECT count(*) AS n FROM cube WHERE x = 1")
    assert con.execute(statement).fetchall() == [(2,)]
    assert con.sql(statement).fetchall() == [(2,)]


@pytest.mark.parametrize("name", ["cube", "CUBE", "cube++seed", "my-data"])
@pytest.mark.parametrize("way", ["table", "view"])
def test_relations_by_name(con, way, name):
    assert getattr(con, way)(name).aggregate("count(x) AS n").fetchall() == [(2 if name == "my-data" else 4,)]


def test_own_tables_by_name(con):
    con.execute("CREATE TABLE own_table AS SELECT 1 AS q; CREATE VIEW own AS SELECT 2 AS q")
    assert con.table("own_table").fetchall() == [(1,)]
    assert con.view("own").fetchall() == [(2,)]


def test_create_table_as(con, store):
    con.execute("CREATE TABLE own AS SELECT * FROM cube")
    append(store)
    assert count(con, "own") == 4


def test_insert_into_an_own_table(con):
    con.execute("CREATE TABLE own (x BIGINT, y VARCHAR)")
    con.execute("INSERT INTO own SELECT x, y FROM cube WHERE p = 1")
    con.execute("UPDATE own SET x = (SELECT max(v2) FROM cube)")
    con.execute("DELETE FROM own WHERE y IN (SELECT y FROM cube WHERE v1 > 3)")
    assert con.sql("FROM own").fetchall() == [(10, "a")]


@pytest.mark.parametrize("text", ["COPY cube TO '{}'", "COPY (SELECT * FROM cube) TO '{}' (FORMAT parquet)"])
def test_copy_to_a_file(con, store, tmp_path, text):
    path = tmp_path / "cube.parquet"
    con.execute(text.format(path))
    order = [("x", "ascending"), ("y", "ascending")]
    assert pq.read_table(path).sort_by(order).to_pylist() == query_cube_arrow(CUBE, store).sort_by(order).to_pylist()


LATERAL = """
    SELECT c.x, most FROM (SELECT DISTINCT x FROM cube) c,
        LATERAL (SELECT max(v2) AS most FROM "cube++e" e WHERE e.x = c.x) ORDER BY c.x
"""
RECURSIVE = """
    WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < (SELECT count(*) FROM cube))
    SELECT max(n) FROM r
"""


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("PIVOT cube ON y USING sum(x) GROUP BY p ORDER BY p", [(0, 0, 0), (1, 1, 1)]),
        ('SELECT DISTINCT v2, i2 FROM cube JOIN "cube++e" USING (x, v2, i2)', [(10, "one")]),
        ('SELECT c.x, e.v2 FROM "cube++e" e LEFT JOIN cube c USING (x) ORDER BY ALL', [(1, 10), (1, 10), (None, 70)]),
        ('SELECT c.y, d.a FROM cube c ASOF JOIN "my-data" d ON c.x >= d.x ORDER BY ALL', [("a", "one"), ("b", "one")]),
        (
            'SELECT DISTINCT x, (SELECT max(v2) FROM "cube++e" e WHERE e.x = c.x) AS most FROM cube c ORDER BY x',
            [(0, None), (1, 10)],
        ),
        ("SELECT y FROM cube c WHERE EXISTS (SELECT 1 FROM cube WHERE v1 > 3 AND y = c.y AND x = c.x)", [("b",)]),
        ("SELECT x, sum(v1) OVER (PARTITION BY x) FROM cube QUALIFY y = 'b' ORDER BY x", [(0, 2.0), (1, 3.5)]),
        ("WITH a AS (SELECT x FROM cube), b AS (FROM a WHERE x > 0) SELECT count(*) AS n FROM b", [(2,)]),
        ('SELECT x FROM cube EXCEPT SELECT x FROM "my-data"', [(0,)]),
        ("FROM cube SELECT max(x)", [(1,)]),
        ('SELECT (SELECT count(*) FROM cube) + (SELECT count(*) FROM "my-data")', [(6,)]),
        ("SELECT count(*) FROM (SELECT count(*) FROM cube)", [(1,)]),
        ("/* all */ SELECT count(*) FROM cube -- of them", [(4,)]),
        ("SELECT x FROM cube WHERE y = 'from nothing' OR i2 = 'one' LIMIT 1", [(1,)]),
        ('SELECT DISTINCT x FROM cube SEMI JOIN "cube++e" USING (x)', [(1,)]),
        (LATERAL, [(0, None), (1, 10)]),
        (RECURSIVE, [(4,)]),
        ('SELECT x FROM cube UNION BY NAME SELECT x, v2 FROM "cube++e" ORDER BY x, v2 LIMIT 1', [(0, None)]),
        ("SELECT max(COLUMNS('v.*')) FROM cube", [(3.5, 10)]),
        ("FROM query('SELECT count(*) FROM cube')", [(4,)]),
    ],
)  # fmt: skip
def test_all_that_duckdb_has(con, text, rows):
    assert con.sql(text).fetchall() == rows
    assert con.execute(text).fetchall() == rows


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("SELECT count(*) FROM cube", "count_star()"),
        ("select COUNT( * ) from Cube ;", "count_star()"),
        ("SELECT count() FROM cube", "count_star()"),
        ("SELECT count(*) AS n FROM cube", "n"),
        ("SELECT count(*) n FROM cube", "n"),
        ('SELECT count(*) AS "a ""b" FROM "cube"', 'a "b'),
    ],
)
def test_a_bare_count(con, text, name):
    relation = con.sql(text)
    assert relation.columns == [name]
    assert [str(kind) for kind in relation.types] == ["BIGINT"]
    assert relation.fetchall() == [(4,)]
    assert con.execute(text).fetchall() == [(4,)]


def test_a_bare_count_of_others(con):
    con.execute("CREATE TABLE own AS SELECT 1 AS q")
    rows = pa.table({"q": [1, 2]})
    assert con.sql("SELECT count(*) FROM own").fetchall() == [(1,)]
    assert con.sql("SELECT count(*) FROM rows").fetchall() == [(rows.num_rows,)]


def test_all_types():
    store = MemoryStore()
    # DuckDB has months in its intervals, and its own zone.
    data = ALL_TYPES.drop_columns(["dur", "tz"])
    store_dataframes_as_dataset(store, "uuid", [data], secondary_indices=["i64"])
    expected = read_table_arrow("uuid", store)
    with connect(store) as connection:
        found = connection.table("uuid").to_arrow_table()
    assert found.column_names == expected.column_names
    assert found.to_pylist() == expected.to_pylist()


@pytest.mark.parametrize("zone", ODD_ZONES)
def test_moments_in_a_zone_that_duckdb_lacks_are_the_same(zone):
    store = MemoryStore()
    rows, in_utc = (pa.table({"x": [0, 1, 2], **nested_moments(z)}) for z in (zone, "UTC"))
    store_dataframes_as_dataset(store, "uuid", [rows])
    with connect(store) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        assert connection.sql("SELECT plain, listed, struct FROM uuid ORDER BY x").fetchall() == [
            tuple(row.values()) for row in in_utc.select(["plain", "listed", "struct"]).to_pylist()
        ]
        wanted = "plain = TIMESTAMPTZ '1970-01-02 00:00:00.000001Z'"
        assert connection.sql(f"SELECT x, len(deep) FROM uuid WHERE {wanted}").fetchall() == [(0, 1)]
        assert connection.table("uuid").to_arrow_table().num_rows == 3


def test_no_rows():
    store = MemoryStore()
    store_dataframes_as_dataset(store, "uuid", [with_column(ALL_TYPES, "p", [0, 0, 0])], partition_on="p")
    update_dataset_from_dataframes([], store, "uuid", delete_scope=[{"p": 0}])
    assert connect(store).sql("SELECT i64, s FROM uuid").fetchall() == []
    assert connect(store).sql("SELECT count(*) FROM uuid").fetchall() == [(0,)]


# --- errors ---------------------------------------------------------------------------------------


def test_cubes_are_not_written(con, store):
    before = query_cube_arrow(CUBE, store)
    for text in ("INSERT INTO cube VALUES (1)", "DELETE FROM cube", "UPDATE cube SET x = 1", "DROP TABLE cube"):
        with pytest.raises(duckdb.Error):
            con.execute(text)
    con.execute("DROP VIEW cube")
    assert count(con) == 4
    assert query_cube_arrow(CUBE, store).equals(before)


@pytest.mark.parametrize("way", ["sql", "execute"])
def test_an_unknown_table_is_an_error_of_duckdb(con, way):
    with pytest.raises(duckdb.CatalogException, match="nothing"):
        getattr(con, way)("SELECT * FROM nothing").fetchall()
    with pytest.raises(duckdb.CatalogException, match="nothing"):
        con.table("nothing")
    with pytest.raises(duckdb.ParserException):
        getattr(con, way)("SELEKT 1")


@pytest.fixture
def broken(store):
    """A store in which the document of a dataset is damaged."""
    store.put("my-data.by-dataset-metadata.json", b"{")
    return store


def test_a_broken_dataset_is_named(broken):
    with pytest.raises(KartothekCubeError, match="my-data"):
        connect(broken).sql('FROM "my-data"')


def test_a_broken_dataset_does_not_hide_others(broken):
    names = [name for (name,) in connect(broken).sql("SHOW TABLES").fetchall()]
    assert names == ["cube", "cube++e", "cube++seed"]


def test_a_dataset_that_breaks_does_not_disturb_others(con, store):
    count(con, '"my-data"')
    con.execute("CREATE TEMP VIEW own AS SELECT x FROM cube")
    store.put("my-data.by-dataset-metadata.json", b"{")
    assert count(con, "own") == 4
    append(store)
    assert count(con, "own") == 5
    with pytest.raises(KartothekCubeError, match="my-data"):
        con.sql('FROM "my-data"')


@pytest.mark.parametrize("column", ["x", "v1"])
def test_a_file_that_is_gone(store, column):
    (key, *_) = [key for key in store.keys("cube++seed/table") if key.endswith(".parquet")]
    store.delete(key)
    for name in ("cube", '"cube++seed"'):
        with connect(store) as connection, pytest.raises(duckdb.Error, match=re.escape(key)) as caught:
            connection.sql(f"SELECT {column} FROM {name}").fetchall()
        assert "plan it again" in str(caught.value)


def test_a_file_that_is_gone_when_rows_are_counted(store):
    with options(statistics=False):
        build_cube(SEED, Cube([*CUBE.dimension_columns], [*CUBE.partition_columns], "plain"), store)
    (key, *_) = [key for key in store.keys("plain++seed/table") if key.endswith(".parquet")]
    store.delete(key)
    with pytest.raises(KartothekCubeError, match=re.escape(key)):
        connect(store).sql("SELECT count(*) FROM plain")


def test_a_cursor_finds_variables_of_its_caller(con):
    names = pa.table({"x": [1], "name": ["one"]})
    assert con.cursor().sql("SELECT DISTINCT name FROM names JOIN cube USING (x)").fetchall() == [("one",)]
    assert names.num_rows == 1


@pytest.mark.parametrize("make", ["sql", "query", "table", "changes"])
def test_a_relation_keeps_its_connection(store, make):
    commit = history("my-data", store)["commit"].iloc[0]
    text = 'FROM "my-data"'
    arguments = {"sql": [text], "query": [text], "table": ["my-data"], "changes": ["my-data", commit]}
    relation = getattr(connect(store), make)(*arguments[make])
    gc.collect()
    assert len(relation.fetchall()) == (0 if make == "changes" else 2)

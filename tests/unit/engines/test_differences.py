"""Differences in engines: as streams of Arrow, and in the SQL of `connect`."""

from __future__ import annotations

import datetime as dt
import threading
from itertools import product

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as pads
import pytest

from kartothek_cube import (
    C,
    append_to_cube,
    build_cube,
    connect,
    options,
    query_cube_changes,
    read_dataset_changes,
    remove_partitions,
)
from kartothek_cube.api.dataset import (
    delete_dataset,
    history,
    store_dataframes_as_dataset,
    update_dataset_from_dataframes,
)
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import DatasetNotFound, HistoryUnavailable, InvalidInput, InvalidType
from tests.support.cubes import CUBE, SEED, with_column
from tests.support.reads import MeasuredStore

SCOPE = [{"a": "one"}, {"a": "two"}]
CHANGED = with_column(SEED.slice(0, 1), "v1", [9.5])
ROWS = pa.table({"x": [1, 2], "a": ["one", "two"]})
UPDATE = [("update_preimage", 1, "b", 3.5), ("update_postimage", 1, "b", 9.5)]
DELETED = [("delete", 0, "a", 0.5), ("delete", 0, "b", 1.5)]
IMAGES = "SELECT _change_type, x, y, v1 FROM {} ORDER BY x DESC, y, v1"
CALL = "kartothek_changes('cube', since => $since)"


def first_of(store, uuid="cube++seed"):
    return history(uuid, store)["commit"].iloc[-1]


@pytest.fixture
def store():
    """A cube in which one cell changed, and a dataset in which one row came in place of another."""
    store = MemoryStore()
    build_cube(SEED, CUBE, store)
    append_to_cube(CHANGED, CUBE, store)
    store_dataframes_as_dataset(store, "my-data", [ROWS], partition_on=["a"])
    new = pa.table({"x": [2, 3], "a": ["TWO", "three"]})
    update_dataset_from_dataframes([new], store, "my-data", delete_scope=SCOPE)
    return store


@pytest.fixture
def since(store):
    return first_of(store)


@pytest.fixture
def con(store):
    with connect(store) as connection:
        yield connection


@pytest.fixture
def sql(con, since):
    """Run a statement with the first commit of the cube as `$since`."""
    return lambda text: con.execute(text, {"since": since}).fetchall()


def threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("kartothek_cube")]


# --- streams of Arrow -----------------------------------------------------------------------------


@pytest.fixture(params=["cube", "dataset"])
def reader(request, store, since):
    if request.param == "cube":
        return query_cube_changes(CUBE, store, since)
    return read_dataset_changes("cube++seed", store, since, on=["x", "y"])


def duckdb_by_name(stream):
    assert isinstance(stream, pa.RecordBatchReader)
    return duckdb.sql("FROM stream").fetchall()


@pytest.mark.parametrize(
    "rows_of",
    [
        lambda stream: pl.DataFrame(stream).rows(),
        lambda stream: pl.from_arrow(stream).rows(),
        lambda stream: duckdb.from_arrow(stream).fetchall(),
        duckdb_by_name,
        lambda stream: list(stream.read_pandas().itertuples(index=False, name=None)),
        lambda stream: list(stream.read_all().to_pandas().itertuples(index=False, name=None)),
    ],
    ids=["DataFrame", "from_arrow", "duckdb.from_arrow", "by name", "read_pandas", "read_all"],
)
def test_an_engine_takes_the_stream_once(reader, rows_of):
    kinds = [kind for kind, *_ in rows_of(reader)]
    assert kinds in (["update_preimage", "update_postimage"], ["insert"])
    assert pa.Table.from_batches(reader, reader.schema).num_rows == 0


def test_a_stream_is_written_as_files(reader, tmp_path):
    pads.write_dataset(reader, tmp_path, format="parquet")
    assert pads.dataset(tmp_path).to_table(columns=["x", "v1"]).to_pylist()[-1] == {"x": 1, "v1": 9.5}


PARTS, SIZE = 40, 1000


@pytest.fixture
def appended():
    """A dataset of which one commit added many files."""
    inner = MemoryStore()
    store_dataframes_as_dataset(inner, "many", [pa.table({"x": [-1]})])
    parts = [pa.table({"x": range(n * SIZE, (n + 1) * SIZE)}) for n in range(PARTS)]
    update_dataset_from_dataframes(parts, inner, "many")
    return MeasuredStore(inner)


FEW = options(threads=2, bytes_in_flight=4 * 8 * SIZE)


def test_rows_come_before_all_files_are_read(appended, only_fast):
    reader = read_dataset_changes("many", appended, first_of(appended, "many"), options=FEW)
    assert next(batch.num_rows for batch in reader if batch.num_rows) > 0
    assert 0 < len(appended.files()) < PARTS
    assert duckdb.sql("SELECT count(*), max(x) FROM reader").fetchall()[0][1] == PARTS * SIZE - 1
    assert len(appended.files()) == PARTS


def test_sql_takes_rows_as_they_are_read(appended, only_fast):
    with connect(appended, options=FEW) as con:
        changes = con.changes("many", first_of(appended, "many"))
        assert appended.files() == []
        assert changes.columns == ["_change_type", "x"]
        assert len(con.sql("SELECT x FROM changes LIMIT 3").fetchall()) == 3
        assert 0 < len(appended.files()) < PARTS
    assert threads() == []


# --- the table function ---------------------------------------------------------------------------


def test_a_cube(sql):
    assert sql(IMAGES.format(CALL)) == UPDATE


def test_columns_and_rows_are_those_of_the_verb(con, store, since):
    expected = query_cube_changes(CUBE, store, since).read_all()
    found = con.sql(f"FROM {CALL}", params={"since": since})
    assert found.columns == expected.column_names
    assert found.fetchall() == [tuple(row.values()) for row in expected.to_pylist()]


def test_a_column_that_did_not_change_has_the_same_rows(sql):
    assert sql(f"SELECT x FROM {CALL}") == [(1,), (1,)]
    assert sql(f"SELECT count(*) FROM {CALL}") == [(2,)]


def test_a_filter_is_about_changes_and_not_about_cells(sql):
    assert sql(f"SELECT v1 FROM {CALL} WHERE _change_type = 'update_postimage'") == [(9.5,)]
    assert sql(f"SELECT _change_type, v1 FROM {CALL} WHERE v1 > 9") == [("update_postimage", 9.5)]


def test_a_dataset(con, store):
    first = first_of(store, "my-data")
    found = con.sql(f"FROM kartothek_changes('my-data', since => '{first}') ORDER BY ALL").fetchall()
    assert found == [("delete", "one", 1), ("delete", "two", 2), ("insert", "TWO", 2), ("insert", "three", 3)]


@pytest.mark.parametrize("key", ["['x']", "'x'", "list_value('x')"])
def test_a_dataset_by_key(con, store, key):
    first = first_of(store, "my-data")
    call = f"kartothek_changes('my-data', on_columns => {key}, since => '{first}')"
    found = con.sql(f"SELECT x, _change_type, a FROM {call} ORDER BY ALL").fetchall()
    images = [(2, "update_postimage", "TWO"), (2, "update_preimage", "two")]
    assert found == [(1, "delete", "one"), *images, (3, "insert", "three")]


def test_counts_of_a_cube_are_by_dataset(con, store, since):
    found = con.sql("FROM kartothek_change_counts('cube', since => $since)", params={"since": since})
    assert found.columns == ["dataset", "inserted", "updated", "deleted"]
    assert found.fetchall()[0] == ("seed", 0, 1, 0)
    pinned = con.sql(f"FROM kartothek_change_counts('cube', since => '{since}')")
    remove_partitions(CUBE, store, C("p") == 0)
    assert pinned.fetchall()[0] == ("seed", 0, 1, 0)
    call = f"kartothek_change_counts('cube', since => '{since}')"
    assert con.sql(f"SELECT deleted FROM {call} WHERE dataset = 'seed'").fetchall() == [(2,)]


@pytest.mark.parametrize(("key", "counts"), [("", (2, None, 2)), (", on_columns => ['x']", (1, 1, 1))])
def test_counts_of_a_dataset_have_updates_by_key(con, store, key, counts):
    call = f"kartothek_change_counts('my-data', since => '{first_of(store, 'my-data')}'{key})"
    assert con.sql(f"FROM {call}").fetchall() == [("my-data", *counts)]


def test_both_functions_stand_in_one_statement(con, since):
    counts = f"Kartothek_Change_Counts('cube', since => '{since}')"
    changes = f"kartothek_changes('cube', since => '{since}')"
    assert con.sql(f"SELECT sum(updated), count(c.x) FROM {counts}, {changes} AS c").fetchall()[0][1] == 2


def test_a_cube_wins_over_a_dataset(store, sql):
    store_dataframes_as_dataset(store, "cube", [ROWS])
    assert sql(IMAGES.format(CALL)) == UPDATE


def test_until(con, store, since):
    second = history("cube++seed", store)["commit"].iloc[0]
    remove_partitions(CUBE, store, C("p") == 0)
    call = f"kartothek_changes('cube', since => '{since}', until => '{second}')"
    assert con.sql(IMAGES.format(call)).fetchall() == UPDATE
    later = f"kartothek_changes('cube', since => '{second}')"
    assert con.sql(IMAGES.format(later)).fetchall() == DELETED


def test_each_statement_sees_the_newest_state(store, sql):
    assert sql(IMAGES.format(CALL)) == UPDATE
    remove_partitions(CUBE, store, C("p") == 0)
    assert sql(IMAGES.format(CALL)) == UPDATE + DELETED


def test_a_pinned_connection_sees_its_state(store, since):
    last = history("cube++seed", store)["commit"].iloc[0]
    remove_partitions(CUBE, store, C("p") == 0)
    with connect(store, as_of=last) as pinned:
        assert pinned.execute(IMAGES.format(CALL), {"since": since}).fetchall() == UPDATE
        assert pinned.execute(IMAGES.format(CALL), {"since": last}).fetchall() == []
        without = CALL.replace(")", ", until => NULL)")
        assert pinned.execute(IMAGES.format(without), {"since": since}).fetchall() == UPDATE
        assert pinned.cursor().changes("cube", since).fetchall() == pinned.changes("cube", since).fetchall()
        assert len(pinned.changes("cube", since).fetchall()) == 2


@pytest.mark.parametrize(
    "call",
    [
        "kartothek_changes('cube', since => $since)",
        "KARTOTHEK_CHANGES ( 'cube', SINCE => $since )",
        "\"kartothek_changes\"('cube', since := $since)",
        "kartothek_changes('cube', since = $since)",
        "kartothek_changes(since => $since, 'cube')",
        "kartothek_changes('cu' || 'be', since => concat($since, ''))",
        "kartothek_changes('cube', /* ) */ since => (SELECT $since), until => now())",
        "kartothek_changes -- the cells (all\n ('cube', since => {'seed': $since})",
        "kartothek_changes('cube', since => MAP {'seed': $since}, until => NULL)",
    ],
)
def test_ways_to_write_a_call(sql, call):
    assert sql(IMAGES.format(call)) == UPDATE


@pytest.mark.parametrize("moment", ["TIMESTAMPTZ '{}+00'", "'{}+00'", "TIMESTAMP '{}'", "'{}'::TIMESTAMP"])
def test_moments(con, store, moment):
    written = pd.Timestamp(history("cube++seed", store)["time"].iloc[-1]).tz_convert("UTC")
    text = moment.format(written.tz_localize(None).isoformat(sep=" "))
    assert con.sql(IMAGES.format(f"kartothek_changes('cube', since => {text})")).fetchall() == UPDATE


def test_moments_of_python(con, store):
    written = history("cube++seed", store)["time"].iloc[-1].to_pydatetime()
    for moment in (written, written.astimezone(dt.UTC).replace(tzinfo=None)):
        assert con.execute(IMAGES.format(CALL), {"since": moment}).fetchall() == UPDATE


def test_a_date_is_its_first_moment(con):
    tomorrow = dt.datetime.now(dt.UTC).date() + dt.timedelta(1)
    call = f"kartothek_changes('cube', since => DATE '{tomorrow}')"
    assert con.sql(f"FROM {call}").fetchall() == []


def test_the_older_state_comes_from_a_table(con, since):
    con.execute("CREATE TABLE done (seen VARCHAR)")
    con.execute("INSERT INTO done VALUES (?)", [since])
    call = "kartothek_changes('cube', since => (SELECT max(seen) FROM done))"
    assert con.sql(IMAGES.format(call)).fetchall() == UPDATE


def test_the_older_state_is_a_variable(con, since):
    con.execute(f"SET VARIABLE seen = '{since}'")
    call = "kartothek_changes('cube', since => getvariable('seen'))"
    assert con.sql(IMAGES.format(call)).fetchall() == UPDATE


def test_parameters_of_the_call_and_of_the_rest(con, since):
    both = f"SELECT v1, $since = $since FROM {CALL} WHERE v1 > $least AND $since IS NOT NULL"
    assert con.execute(both, {"since": since, "least": 4}).fetchall() == [(9.5, True)]
    rest = f"SELECT v1 FROM {CALL} WHERE v1 > $least"
    assert con.sql(rest, params={"since": since, "least": 4}).fetchall() == [(9.5,)]


def test_several_calls_and_tables_in_one_statement(sql):
    names = pa.table({"x": [1, 0], "name": ["one", "zero"]})
    found = sql(f"""
        SELECT DISTINCT name, a.v1, b.v1, c.v1 FROM {CALL} AS a JOIN {CALL} AS b USING (x, y)
        JOIN cube AS c USING (x, y) JOIN names USING (x) WHERE a.v1 < b.v1 -- kartothek_changes('other')
    """)
    assert found == [("one", 3.5, 9.5, 9.5)]
    assert names.num_rows == 2


def test_a_relation_runs_again_and_beside_others(con, store, since):
    before = con.sql(f"FROM {CALL}", params={"since": since})
    last = history("cube++seed", store)["commit"].iloc[0]
    remove_partitions(CUBE, store, C("p") == 0)
    joined = con.sql(f"SELECT * FROM before UNION ALL FROM {CALL}", params={"since": last})
    assert joined.aggregate("count(*)").fetchall() == [(4,)]
    assert before.fetchall() == before.fetchall()
    assert len(before.fetchall()) == 2


def test_rows_go_into_tables_and_files(con, since, tmp_path):
    call = CALL.replace("$since", f"'{since}'")
    con.execute(f"CREATE TABLE log AS FROM {call}; INSERT INTO log FROM {call}")
    assert con.sql("SELECT count(*) FROM log").fetchall() == [(4,)]
    path = tmp_path / "changes.parquet"
    con.execute(f"COPY (FROM {call}) TO '{path}'")
    assert pads.dataset(path).count_rows() == 2


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("DESCRIBE FROM {}", 6),
        ("SUMMARIZE FROM {}", 6),
        ("PIVOT {} ON _change_type USING sum(v1) GROUP BY x", 1),
        ("(FROM {}) UNION ALL FROM {}", 4),
        ("WITH kartothek_changes AS (FROM {}) FROM kartothek_changes", 2),
        ("SELECT * FROM (VALUES (1), (0)) AS w(x), LATERAL (SELECT v1 FROM {} AS d WHERE d.x = w.x) AS l", 2),
        ("SELECT * FROM cube WHERE x IN (SELECT x FROM {})", 2),
        ("SELECT kind FROM {} AS d(kind)", 2),
    ],
)
def test_places_of_a_call(con, since, text, rows):
    assert len(con.sql(text.replace("{}", CALL.replace("$since", f"'{since}'"))).fetchall()) == rows


def test_no_table_is_left_behind(con, sql):
    sql(f"FROM {CALL}")
    assert [name for (name,) in con.sql("SHOW TABLES").fetchall()] == ["cube", "cube++seed", "my-data"]


def test_explain(con, since):
    for text in (f"EXPLAIN FROM {CALL}", f"EXPLAIN ANALYZE FROM {CALL} JOIN cube USING (x, y)"):
        rows = con.execute(text, {"since": since}).fetchall()
        assert "ARROW" in rows[0][1]
    assert "seed 3 of 3 files" in rows[-1][1]


@pytest.mark.parametrize("setting", ["python_enable_replacements", "enable_external_access"])
def test_where_variables_are_no_tables(con, sql, since, setting):
    con.execute(f"SET {setting} = false")
    mine = pa.table({"x": [1]})
    relation = con.sql(f"FROM {CALL}", params={"since": since})
    assert (len(relation.fetchall()), mine.num_rows) == (2, 1)
    assert sql(IMAGES.format(CALL)) == UPDATE
    for text in ("SELECT $since FROM mine", f"FROM {CALL} JOIN mine USING (x)"):
        with pytest.raises(duckdb.CatalogException, match="mine"):
            sql(text)
    for _ in range(70):
        sql(f"SELECT 1 FROM {CALL} LIMIT 1")
    assert len(con.sql("SHOW TABLES").fetchall()) < 70
    assert len(con.changes("cube", since).fetchall()) == 2


def test_an_aborted_transaction(con, sql):
    con.execute("BEGIN")
    with pytest.raises(duckdb.Error):
        sql(f"SELECT error('x') FROM {CALL}")
    with pytest.raises(duckdb.TransactionException):
        sql(f"FROM {CALL}")
    con.execute("ROLLBACK")
    assert len(sql(f"FROM {CALL}")) == 2


@pytest.mark.parametrize("text", ["SELECT 'kartothek_changes('", "SELECT 1 -- kartothek_changes('x')"])
def test_other_places_of_the_name_mean_nothing(con, text):
    assert len(con.sql(text).fetchall()) == 1


def test_a_table_of_the_name_stays_one(con):
    con.execute("CREATE TABLE kartothek_changes AS SELECT 7 AS q")
    assert con.sql("FROM kartothek_changes").fetchall() == [(7,)]


# --- the method -----------------------------------------------------------------------------------


def test_a_relation_of_the_method(con, since):
    changes = con.changes("cube", since)
    assert changes.filter("v1 > 9").project("_change_type, v1").fetchall() == [("update_postimage", 9.5)]
    assert con.sql(IMAGES.format("changes")).fetchall() == UPDATE
    assert con.sql(IMAGES.format("changes")).fetchall() == UPDATE


def test_the_method_pins_both_states(con, store):
    first = first_of(store, "my-data")
    cells, rows = con.changes("cube", first_of(store)), con.changes("my-data", first)
    remove_partitions(CUBE, store, C("p") == 0)
    update_dataset_from_dataframes([ROWS], store, "my-data")
    assert (len(cells.fetchall()), len(rows.fetchall())) == (2, 4)
    assert len(con.changes("cube", first_of(store)).fetchall()) == 4
    assert len(con.changes("my-data", first).fetchall()) == 2


def test_states_and_keys_of_the_method(con, store, since):
    last = history("cube++seed", store)["commit"].iloc[0]
    remove_partitions(CUBE, store, C("p") == 0)
    assert len(con.changes("cube", {"seed": since}, last).fetchall()) == 2
    first = first_of(store, "my-data")
    assert con.changes("my-data", first, on="x").filter("x = 2").aggregate(
        "count(DISTINCT _change_type)"
    ).fetchall() == [(2,)]


def test_conditions_are_those_of_the_query(con, since):
    changes = con.changes("cube", since, conditions=C("v1") > 9.0)
    assert changes.project("_change_type, v1").fetchall() == [("insert", 9.5)]


def test_planning_reads_no_data_file(store, since):
    measured = MeasuredStore(store)
    with connect(measured) as con:
        changes = con.changes("cube++seed", since)
        assert measured.files() == []
        changes.fetchall()
        assert len(measured.files()) == 1


def test_polars_takes_a_relation(con, since):
    assert con.changes("cube", since).pl()["_change_type"].to_list() == [kind for kind, *_ in UPDATE]


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        ("'cub', since => now()", DatasetNotFound, "Did you mean 'cube'?"),
        ("'my_data', since => now()", DatasetNotFound, "It has: cube, cube++seed, my-data.|Did you mean 'my-data'?"),
        ("7, since => now()", InvalidType, "not 7"),
        ("NULL, since => now()", InvalidType, "not None"),
        ("'cube'", InvalidInput, "since =>"),
        ("'cube', since => NULL", InvalidInput, "since =>"),
        ("'cube', '2024-05-01'", InvalidInput, "since =>"),
        ("", InvalidInput, "since =>"),
        ("since => now()", InvalidInput, "the cube or dataset"),
        ("'cube', since => now(), since => now()", InvalidInput, "once"),
        ("'cube', sinc => now()", InvalidInput, "Did you mean 'since'?"),
        ("'cube', since => 7", InvalidType, "not int"),
        ("'cube', since => missing", InvalidInput, "constants|missing"),
        ("'cube', since => $missing", InvalidInput, "parameters"),
        ("'cube', since => 'deadbeef'", HistoryUnavailable, "deadbeef"),
        ("'my-data', since => 'deadbeef'", HistoryUnavailable, "deadbeef"),
        ("'cube', since => TIMESTAMP '1999-01-01'", HistoryUnavailable, "1999-01-01"),
        ("'my-data', since => DATE '1999-01-01'", HistoryUnavailable, "1999-01-01"),
        ("'cube', since => now(), until => DATE '1999-01-01'", HistoryUnavailable, "1999-01-01"),
        ("'cube', since => now(), on_columns => 'x'", InvalidInput, "cells"),
        ("'my-data', since => now(), on_columns => ['z']", InvalidInput, "z"),
    ],
)
def test_errors_are_those_of_the_library(con, call, error, words):
    for run, name in product((con.sql, con.execute), ("kartothek_changes", "kartothek_change_counts")):
        with pytest.raises(error) as caught:
            run(f"FROM {name}({call})")
        for word in words.split("|"):
            assert word in str(caught.value)


@pytest.mark.parametrize("name", ["cube", "my-data"])
def test_an_end_before_the_beginning(con, store, name):
    uuid = "cube++seed" if name == "cube" else name
    last, first = history(uuid, store)["commit"]
    with pytest.raises(InvalidInput, match="before"):
        con.sql(f"FROM kartothek_changes('{name}', since => '{last}', until => '{first}')")


def test_parameters_by_position_are_refused(con, since):
    with pytest.raises(InvalidInput, match=r"a name, as \$since"):
        con.execute("FROM kartothek_changes('cube', since => ?)", [since])


@pytest.mark.parametrize("start", ["CREATE VIEW v AS", "CREATE OR REPLACE TEMP MACRO m() AS TABLE", "PREPARE p AS"])
def test_what_runs_later_has_no_differences(con, since, start):
    call = CALL.replace("$since", f"'{since}'")
    with pytest.raises(InvalidInput, match="create a table"):
        con.execute(f"{start} FROM {call}")


@pytest.mark.parametrize(
    "text", ["FROM kartothek_changes('cube', since => now()", "FROM kartothek_changes('cube' since)"]
)
def test_wrong_grammar_is_an_error_of_duckdb(con, text):
    with pytest.raises(duckdb.ParserException):
        con.sql(text)


def test_errors_of_the_method(con, since):
    with pytest.raises(DatasetNotFound, match="Did you mean 'cube'"):
        con.changes("Cubes", since)
    with pytest.raises(InvalidType, match="since"):
        con.changes("cube", None)
    with pytest.raises(InvalidInput, match="conditions are for cubes"):
        con.changes("my-data", "2030-01-01", conditions=C("x") > 1)


def test_a_file_that_is_gone_when_the_relation_runs(con, store):
    changes = con.changes("my-data", first_of(store, "my-data"))
    delete_dataset("my-data", store)
    with pytest.raises(duckdb.Error, match="my-data"):
        changes.fetchall()

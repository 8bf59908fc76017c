from __future__ import annotations

import json
import sys
from functools import partial

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

pytest.importorskip("duckdb", minversion="1.2")

from kartothek_cube import Cube, append_to_cube, build_cube, query_cube_arrow
from kartothek_cube.cli.context import SqlFailure
from tests.support.cli_cubes import CUBE, OTHER, leave_unmade

ORDERED = "SELECT x, p, v1, v2 FROM my_cube WHERE x > 1 ORDER BY x"
LINES = '"x","p","v1","v2"\n2,1,3,"3"\n3,1,4,"4"\n'


@pytest.fixture
def screen(monkeypatch):
    """Stdout is a terminal for the command."""
    # The runner replaces the stream, so its class is changed.
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda self: self.name != "<stdin>")


def test_without_a_terminal_rows_are_csv(run):
    ran = run("sql", ORDERED)
    assert (ran.code, ran.out, ran.err) == (0, LINES, "")


def test_a_statement_is_read_from_stdin(run):
    assert run("sql", "-", typed=f"{ORDERED};\n").out == LINES


def test_cubes_and_datasets_join(run):
    joined = 'SELECT sum(b.v3) s FROM other a JOIN "my_cube++enrich" b USING (x, p)'
    assert run("sql", joined).out == '"s"\n6\n'


def test_no_rows_have_a_header(run):
    assert run("sql", "SELECT x, q FROM my_cube WHERE x > 100").out == '"x","q"\n'


def test_a_difference(run):
    text = "SELECT count(*) n FROM kartothek_changes('my_cube', since => now())"
    assert run("sql", text).out == '"n"\n0\n'
    assert "Did you mean 'my_cube'?" in run("sql", text.replace("my_cube", "my_cub")).err


@pytest.mark.parametrize("place", ["before", "behind"])
def test_rows_as_json(run, place):
    options = ["--format", "json"]
    found = run("sql", ORDERED, *options) if place == "behind" else run(*options, "sql", ORDERED)
    assert found.json["rows"] == [{"x": 2, "p": 1, "v1": 3.0, "v2": "3"}, {"x": 3, "p": 1, "v1": 4.0, "v2": "4"}]
    assert found.json["columns"][3] == {"name": "v2", "type": "string"}


@pytest.mark.parametrize("name", ["out.parquet", "out.csv"])
def test_rows_go_to_a_file(run, folder, name):
    ran = run("sql", "FROM my_cube ORDER BY x", "--output", name)
    assert (ran.code, ran.out) == (0, f"4 rows in {name}\n")
    read = pq.read_table(name) if name.endswith("t") else pyarrow.csv.read_csv(name)
    expected = query_cube_arrow(CUBE, folder / "store").sort_by("x")
    assert read.column_names == expected.column_names
    assert read["v1"].to_pylist() == expected["v1"].to_pylist()
    assert not list(folder.glob(".*.partial"))
    document = run("sql", "FROM other", "--output", name, "--format", "json").json
    assert document == {"rows": 4, "files": {name: 4}}


def test_a_parquet_file_has_the_types_of_the_cube(run, folder):
    run("sql", "FROM my_cube ORDER BY x", "--output", "out.parquet")
    assert pq.read_schema("out.parquet").equals(query_cube_arrow(CUBE, folder / "store").schema)


def test_a_terminal_shows_a_table(run, screen, folder):
    build_cube(pa.table({"x": ["\x1b[31m", "\u202e"], "p": [0, 1]}), Cube(["x"], ["p"], "odd"), folder / "store")
    out = run("sql", "FROM other WHERE x = 3").out
    assert "│" in out
    assert "│     3 │" in out
    assert "\x1b" not in run("sql", "FROM odd").out
    assert "\u202e" not in run("sql", "FROM odd").out


@pytest.mark.usefixtures("screen")
def test_a_terminal_shows_the_ends_of_many_rows_and_all_columns(run, folder):
    assert len(run("sql", "FROM range(1000)").out.splitlines()) < 60
    wide = pa.table({"x": [0], "p": [0], **{f"v{number:03}": [0] for number in range(100)}})
    build_cube(wide, Cube(["x"], ["p"], "wide"), folder / "store")
    assert all(f"v{number:03}" in run("sql", "DESCRIBE wide").out for number in (20, 50, 99))


@pytest.mark.usefixtures("screen")
def test_a_terminal_shows_csv_where_it_is_asked_for(run):
    assert run("sql", ORDERED, "--output", "-").out == LINES


@pytest.mark.parametrize("as_table", [False, True])
def test_explain_shows_our_steps_as_text(run, request, as_table):
    if as_table:
        request.getfixturevalue("screen")
    lines = run("sql", "EXPLAIN SELECT v1 FROM my_cube WHERE p = 1").out.splitlines()
    assert "Query of cube 'my_cube'" in lines
    assert "conditions: p == 1" in lines
    assert lines[-1].endswith(".parquet")


def test_explain_as_json_has_the_same_texts(run):
    rows = run("sql", "EXPLAIN FROM other", "--format", "json").json["rows"]
    assert "Query of cube 'other'" in rows[-1]["explain_value"]


def test_several_statements_end_with_rows(run):
    text = f"CREATE VIEW late AS {ORDERED}; CREATE TABLE kept AS FROM late; SELECT count(*) n FROM kept;"
    assert run("sql", text).out == '"n"\n2\n'


@pytest.mark.parametrize("text", ["SET threads = 1", "CREATE TABLE t (a INT)", "CREATE VIEW v AS SELECT 1"])
def test_a_statement_without_rows_prints_nothing(run, text):
    ran = run("sql", text)
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    ran = run("sql", text, "--output", "out.csv")
    assert (ran.code, ran.err) == (2, "Error: The statement has no rows for out.csv.\n")


def test_an_older_state_is_asked_for_by_time_or_commit(run, folder):
    first = run("other", "history", "seed", "--format", "json").json["commits"][0]
    append_to_cube(pa.table({"x": [9], "p": [9], "v1": [9.0]}), OTHER, folder / "store")
    count = partial(run, "sql", "SELECT count(*) n FROM other")
    assert count().out == '"n"\n5\n'
    # Eight digits of an id may read as a date.
    for moment in (first["commit"], first["commit"][:12], first["time"]):
        assert count("--as-of", moment).out == '"n"\n4\n'
    assert count("--as-of", "2100-01-01").out == '"n"\n5\n'


def test_a_cube_that_nobody_sees_is_in_nobodys_way(run, folder):
    leave_unmade(str(folder / "store"), "unmade")
    commit = run("other", "history", "seed", "--format", "json").json["commits"][0]["commit"]
    assert run("sql", "SELECT count(*) n FROM other", "--as-of", commit[:12]).out == '"n"\n4\n'
    listed = run("sql", "SELECT table_name FROM duckdb_tables() UNION SELECT view_name FROM duckdb_views()")
    assert listed.code == 0
    assert "unmade" not in listed.out
    assert run("sql", "FROM unmade").code == 2


def test_threads_are_those_of_duckdb_too(run):
    assert run("-j", "3", "sql", "SELECT current_setting('threads') t").out == '"t"\n3\n'


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("SELEC 1", ['Error: Parser Error: syntax error at or near "SELEC"']),
        ("SELECT nope FROM other", ["Error: Binder Error: ", '"nope"']),
        ("FROM othr", ["Error: Catalog Error: Table with name othr does not exist!", "Did you mean 'other'?"]),
        ("SELECT 'a'::INT", ["Error: Conversion Error: "]),
        ("INSERT INTO other VALUES (1)", ["Error: Catalog Error: other is not an table"]),
        ("SELECT session", ["Error: Binder Error: "]),
        ("FROM self", ["Error: Catalog Error: Table with name self does not exist!"]),
        (" -- nothing", ["Error: There is no statement in this text."]),
    ],
)
def test_what_duckdb_refuses_is_its_message(run, text, lines):
    ran = run("sql", text)
    assert (ran.code, ran.out) == (2, "")
    assert [line for line in lines if line not in ran.err] == []
    assert "Traceback" not in ran.err


def test_the_message_of_duckdb_keeps_its_lines():
    assert SqlFailure("LINE 1: SELEC \x1b\n        ^").format_message() == "LINE 1: SELEC \\x1b\n        ^"


def test_a_missing_file_is_named_without_a_traceback(run, folder):
    path = next((folder / "store" / "other++seed" / "table").rglob("*.parquet"))
    path.unlink()
    ran = run("sql", "FROM other", "--output", "out.csv")
    assert ran.code == 2
    assert path.name in ran.err
    assert "plan it again" in ran.err
    assert "Traceback" not in ran.err
    assert not list(folder.glob("*out*"))
    (folder / "out.csv").write_text("earlier", encoding="utf-8")
    assert run("sql", "FROM other", "--output", "out.csv").code == 2
    assert (folder / "out.csv").read_text(encoding="utf-8") == "earlier"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('SELECT "DE"', "DE"),
        ('SELECT x FROM my_cube WHERE q = "a b"', "a b"),
        ("SELECT x FROM my_cube WHERE q=Acme", "Acme"),
        ("SELECT x FROM my_cube WHERE q IN (Acme, Bolt)", "Acme"),
        ("""SELECT x FROM my_cube WHERE q = "it's" """, "it''s"),
    ],
)
def test_a_text_without_its_quotes_has_a_remedy(run, text, name):
    ran = run("sql", text)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith('Error: Binder Error: Referenced column "')
    assert ran.err.splitlines()[-1] == f"If this is a text, it stands in single quotes: '{name}'"


@pytest.mark.parametrize(
    "text", ["SELECT sum(nope) s FROM other WHERE x > 1", "FROM other ORDER BY nope", "FROM nope", "SELEC 1"]
)
def test_other_mistakes_are_no_matter_of_quotes(run, text):
    assert "single quotes" not in run("sql", text).err


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["FROM other", "--output", "out.xlsx"], 2, "a file that ends in .parquet or .csv, or - for stdout"),
        (["FROM other", "--output", "no/out.csv"], 1, "there is no directory no."),
        (["FROM other", "--as-of", "0" * 32], 2, "0" * 32),
        (["FROM other", "--as-of", "abc"], 2, "A time is written as 2024-01-31"),
        (["SELECT 1 a, 2 a", "--output", "out.parquet"], 2, "Several columns of the result are called a; "),
        (["SELECT 1 a, 2 a", "--format", "json"], 2, "name them apart with AS."),
        (["SELECT [1] v", "--output", "out.csv"], 2, "CSV cannot hold column v of type list"),
        (["SELECT INTERVAL 1 DAY v", "--output", "out.parquet"], 2, "interval"),
        (["FROM", "other"], 2, "The statement is one argument, in quotes: cli sql 'FROM sales LIMIT 5'"),
        (["FROM other", "LIMIT 1"], 2, "Usage: cli sql [OPTIONS] [STATEMENT]\n"),
        ([], 2, "Missing argument 'STATEMENT', or - for stdin: "),
        (["--output", "out.csv"], 2, "Missing argument 'STATEMENT', or - for stdin: "),
    ],
)
def test_what_cannot_be_done_is_said(run, folder, words, code, message):
    ran = run("sql", *words)
    assert (ran.code, ran.out) == (code, "")
    assert message in ran.err
    assert not list(folder.glob("*out*"))


def test_two_columns_of_one_name_go_into_csv(run):
    assert run("sql", "SELECT 1 a, 2 a").out == '"a","a"\n1,2\n'


def test_a_cube_stands_in_the_statement(run):
    ran = run("my_cube", "sql", "SELECT 1")
    assert ran.code == 2
    assert "A cube stands in the statement: cli sql 'FROM my_cube LIMIT 5'" in ran.err


def test_a_misspelt_command_is_named(run):
    assert run("slq", "SELECT 1").err.endswith("Error: No such command 'SELECT 1'. Did you mean 'sql'?\n")


def test_a_store_that_is_not_there_is_named(run, folder):
    assert "Error: Could not open load store YAML: " in run("--skv", "no.yml", "sql", "SELECT 1").err
    err = run("--url", "no", "sql", "FROM other").err
    assert err.endswith(f"Tables: none. There is no directory {folder / 'no'}.\n")


def test_a_cube_may_be_called_like_the_command(run, folder):
    build_cube(pa.table({"x": [7], "p": [0]}), Cube(["x"], ["p"], "sql"), folder / "store")
    assert json.loads(run("sql", "info", "--format", "json").out)["uuid_prefix"] == "sql"
    assert run("sql", "SELECT x FROM sql").out == '"x"\n7\n'


def test_without_duckdb_the_extra_is_named(run, monkeypatch):
    monkeypatch.setattr("kartothek_cube.engines.verbs.OLDEST", {"sql": ("no-such-package", "1.2.0")})
    ran = run("sql", "FROM other")
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert "pip install 'kartothek-cube[sql]'" in ran.err


def test_without_prompt_toolkit_the_extra_is_named(run, monkeypatch):
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _: True)
    monkeypatch.delitem(sys.modules, "kartothek_cube.cli.prompt", raising=False)
    monkeypatch.setitem(sys.modules, "prompt_toolkit", None)
    ran = run("sql")
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert "pip install 'kartothek-cube[interactive]'" in ran.err


def test_a_reader_that_has_gone_ends_the_command(run, monkeypatch):
    def gone(*_):
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr("kartothek_cube.cli.output.CsvSink.write", gone)
    ran = run("sql", "FROM other")
    assert (ran.code, ran.err) == (1, "")


def test_ctrl_c_stops_duckdb_and_leaves_no_file(run, folder, monkeypatch):
    from concurrent.futures import Future

    result = Future.result
    pressed = []

    def press_once(future, timeout=None):
        """Ctrl-C comes when the rows begin to be written."""
        while not list(folder.glob(".*.partial")) and not future.done():
            pass
        if not pressed and not future.done():
            pressed.append(future)
            raise KeyboardInterrupt
        return result(future, timeout)

    monkeypatch.setattr("concurrent.futures.Future.result", press_once)
    ran = run("sql", "FROM range(1000000000000)", "--output", "out.csv")
    assert (ran.code, pressed != []) == (1, True)
    assert ran.err.endswith("Aborted!\n")
    assert not list(folder.glob("*out*"))
    assert not list(folder.glob(".*.partial"))


def test_rows_are_written_as_they_come(run, monkeypatch):
    sizes = []
    monkeypatch.setattr("kartothek_cube.cli.output.CsvSink.write", lambda _, batch: sizes.append(len(batch)))
    run("sql", "FROM range(1000000)")
    assert sum(sizes) == 1_000_000
    assert max(sizes) < 200_000

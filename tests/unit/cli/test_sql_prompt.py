"""The prompt of `sql` without a terminal: what ends an input, what is offered, what is asked."""

from __future__ import annotations

import pytest

pytest.importorskip("prompt_toolkit")
pytest.importorskip("duckdb", minversion="1.2")

import pyarrow as pa
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from kartothek_cube import Cube, build_cube, open_store
from kartothek_cube.api.dataset import store_dataframes_as_dataset
from kartothek_cube.cli.context import Failure
from kartothek_cube.cli.prompt import Names, StatementCompleter, is_whole, statement_of


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("", True),
        (" \n", True),
        ("FROM other", False),
        ("FROM other;", True),
        ("FROM other;\n-- all of it", True),
        ("FROM other; /* all of it */", True),
        ("FROM other /* ;", False),
        ("FROM other -- ;", False),
        ("SELECT ';", False),
        ("SELECT ';'", False),
        ("SELECT 'it''s;';", True),
        ('FROM "my_cube;', False),
        ('FROM "my_cube++un";', True),
        ("SELECT $$;", False),
        ("SELECT $$;$$;", True),
        ("SELECT 1; SELECT 2", False),
        (".tables", True),
        ("exit", True),
        ("Quit", True),
    ],
)
def test_enter_ends_a_whole_statement(text, whole):
    assert is_whole(text) is whole


@pytest.mark.parametrize(
    ("line", "statement"),
    [
        ("FROM other;", "FROM other;"),
        (".tables", "SHOW TABLES"),
        (".tables;", "SHOW TABLES"),
        (".schema other", 'SELECT column_name, column_type FROM (DESCRIBE "other")'),
        ('.schema "a""b";', 'SELECT column_name, column_type FROM (DESCRIBE "a""b")'),
        ('.schema a"b', 'SELECT column_name, column_type FROM (DESCRIBE "a""b")'),
    ],
)
def test_a_command_with_a_dot_is_a_statement(line, statement):
    assert statement_of(line) == statement


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (".tabels", "There is no command .tabels. Did you mean '.tables'?"),
        (".schema", ".schema needs the name of a table, as in .schema sales"),
    ],
)
def test_an_unknown_command_is_an_error(line, message):
    with pytest.raises(Failure) as caught:
        statement_of(line)
    assert caught.value.message == message


@pytest.fixture
def offered(folder):
    """What the completer of the store offers for a text; ``|`` is the cursor."""
    store = open_store(str(folder / "store"))
    store_dataframes_as_dataset(store, "single", [pa.table({"Two words": [1], "order": [2], "v9": [3]})])
    build_cube(pa.table({"x": [0], "p": [0], "only_here": [0]}), Cube(["x"], ["p"], "third"), store)
    completer = StatementCompleter(Names(store, None))

    def offered(text, *, tab=True):
        before, _, after = text.partition("|")
        document = Document(before + after, len(before))
        completions = completer.get_completions(document, CompleteEvent(completion_requested=tab))
        return [before[: len(before) + found.start_position] + found.text for found in completions]

    return offered


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sel", ["select"]),
        ("SEL", ["SELECT"]),
        ("FROM oth", ["FROM other", 'FROM "other++seed"']),
        ("FROM OTH", ["FROM other", 'FROM "other++seed"']),
        ('FROM "my_cube++', ['FROM "my_cube++enrich"', 'FROM "my_cube++seed"', 'FROM "my_cube++un"']),
        ("FROM other WHERE v", ["FROM other WHERE v1", "FROM other WHERE values", "FROM other WHERE view"]),
        ('FROM "my_cube++un" WHERE v4', ['FROM "my_cube++un" WHERE v4']),
        ("SELECT on| FROM third", ["SELECT only_here", "SELECT on"]),
        ("SELECT on| FROM other", ["SELECT on"]),
        ("SELECT only", ["SELECT only_here"]),
        ('SELECT "Tw| FROM single', ['SELECT "Two words"']),
        ("SELECT tw| FROM single", ['SELECT "Two words"']),
        ("SELECT ord| FROM single", ['SELECT "order"', "SELECT order"]),
        ("SELECT s.v9| FROM single s", ["SELECT s.v9"]),
        (".s", [".schema"]),
        (".schema my_cube++s", [".schema my_cube++seed"]),
        (".", [".exit", ".help", ".schema", ".tables"]),
    ],
)
def test_names_and_keywords_are_offered(offered, text, expected):
    assert offered(text) == expected


def test_nothing_is_offered_until_something_is_typed(offered):
    assert offered("FROM ", tab=False) == []
    assert "FROM other" in offered("FROM ")


def test_a_damaged_table_has_no_columns(offered, folder):
    (folder / "store" / "third++seed.by-dataset-metadata.json").write_text("{")
    assert offered("SELECT only| FROM third") == []
    assert offered("SELECT v1| FROM other, third") == ["SELECT v1"]


def test_names_are_those_of_the_moment(folder):
    store = open_store(str(folder / "store"))
    names = Names(store, None)
    assert names.columns("FROM other") == {"x", "p", "v1"}
    build_cube(pa.table({"x": [0], "p": [0], "w": [0]}), Cube(["x"], ["p"], "other"), store, overwrite=True)
    assert names.columns("FROM other") == {"x", "p", "v1"}
    assert Names(store, None).columns("FROM other") == {"x", "p", "w"}
    assert Names(store, "2100-01-01").columns("FROM other") == {"x", "p", "w"}

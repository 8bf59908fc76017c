"""SQL over a cube or dataset gives what it gives over the same rows in the engine's own memory."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, note, settings
from hypothesis import strategies as st

from kartothek_cube import connect, query_cube_changes, read_dataset_changes, scan_cube, scan_dataset
from kartothek_cube.api.dataset import history
from kartothek_cube.api.discover import discover_cube
from tests.support.random_tables import KINDS, NAN, RandomTable, random_cubes, random_datasets, rows_as_set

pytestmark = pytest.mark.slow
SETTINGS = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
NUMBERS = ("int64", "int32", "uint8", "float64", "float32", "decimal")
FLOATS = ("float64", "float32")
TIMES = ("date", "moment", "utc")
NANS = pa.table({"v": [NAN]})
# DuckDB 1.2 passes comparisons of floats to tables of Arrow, for which NaN is not the greatest, and
# a null with `ORDER BY … LIMIT`: its own tables of Arrow fail likewise.
IS_OLD = not duckdb.sql("SELECT v FROM NANS WHERE v > 1").fetchall()


def literal(value: Any) -> str:
    """A constant of Python in the SQL of DuckDB; Polars reads most of them."""
    match value:
        case None:
            return "NULL"
        case bool() | int() | Decimal():
            return str(value).upper()
        case float() if value != value or abs(value) == float("inf"):  # noqa: PLR0124 - NaN
            return f"CAST('{value}' AS DOUBLE)"
        case float():
            return f"CAST({value!r} AS DOUBLE)"
        case bytes():
            return "'" + "".join(f"\\x{byte:02X}" for byte in value) + "'::BLOB"
        case dt.datetime():
            return f"TIMESTAMP{'' if value.tzinfo is None else 'TZ'} '{value.isoformat(sep=' ')}'"
        case dt.date():
            return f"DATE '{value}'"
    return "'" + str(value).replace("'", "''") + "'"


@st.composite
def conditions(draw, table, columns, dialect):
    """A condition on one column."""
    column = draw(st.sampled_from(columns))
    kind = KINDS[table.kinds[column]]
    constant = st.sampled_from(kind.constants).map(literal)
    op = draw(st.sampled_from(["=", "<>", "<", "<=", ">", ">="]))
    negation = draw(st.sampled_from(["", "", "NOT "]))
    one, two = draw(constant), draw(constant)
    several = ", ".join(draw(st.lists(constant | st.just("NULL"), min_size=1, max_size=4)))
    choices = [f"{column} {op} {one}", f"{column} {op} {one}", f"{one} {op} {column}"]
    choices += [f"{column} {negation}IN ({several})", f"{column} {negation}IN ({one}, {two})"]
    choices += [f"{column} {negation}BETWEEN {one} AND {two}", f"{column} IS {negation}NULL"]
    choices += [
        f"({column} = {one} OR {column} = {two} OR {column} IS NULL)",
        f"({column} <= {one} OR {column} > {two})",
    ]
    choices += [f"{column} {op} {draw(st.sampled_from(table.columns(table.kinds[column])))}"]
    if dialect == "duckdb":
        choices += [f"{column} = ANY([{several}])", f"{column} IS {negation}DISTINCT FROM {one}"]
    if table.kinds[column] in NUMBERS:
        choices += [f"{column} + 1 {op} 1", f"CAST({column} AS DOUBLE) {op} 0.5", f"{column} * 2 <= {column}"]
    if table.kinds[column] in FLOATS:
        choices += [f"{column} {op} {literal(NAN)}", f"{column} IN (0.0, {literal(NAN)})", f"NOT {column} {op} {one}"]
        choices += [f"isnan({column})"] if dialect == "duckdb" else []
    if table.kinds[column] == "text":
        pattern = draw(st.sampled_from(["a%", "%b", "a\x7f%", "aÿ%", "%", "_", "ab", "", "😀%", "aÿ_"]))
        choices += [f"{column} {negation}LIKE '{pattern}'"] * 3 + [f"starts_with({column}, 'a')"]
        choices += [f"upper({column}) = 'A'"]
    if table.kinds[column] == "bool":
        choices += [column, f"NOT {column}", f"{column} IS TRUE", f"CAST({column} AS INTEGER) = 1"]
    if table.kinds[column] in TIMES:
        choices += [f"EXTRACT(year FROM {column}) = 2024", f"CAST({column} AS DATE) {op} DATE '2024-02-29'"]
        choices += [f"{column} < CAST('2024-03-01' AS DATE)"]
    return draw(st.sampled_from(choices))


def where(table: RandomTable, dialect: str) -> st.SearchStrategy[str]:
    """The text of a WHERE."""
    kinds = [kind for kind in KINDS if kind not in FLOATS] if dialect == "duckdb" and IS_OLD else []
    leaf = conditions(table, table.columns(*kinds), dialect)
    return leaf | st.recursive(
        leaf,
        lambda inner: st.one_of(
            inner.map("NOT ({})".format),
            st.builds("({} AND {})".format, inner, inner),
            st.builds("({} OR {})".format, inner, inner),
        ),
        max_leaves=5,
    )


@st.composite
def statements(draw, table, dialect):
    """A statement on ``{name}`` whose rows do not depend on their order."""
    columns = draw(st.lists(st.sampled_from(table.columns()), min_size=1, max_size=3, unique=True))
    text = draw(where(table, dialect))
    chosen, keys = ", ".join(columns), ", ".join(table.keys)
    choices = [
        f"SELECT * FROM {{name}} WHERE {text}",
        f"SELECT {chosen} FROM {{name}} WHERE {text}",
        f"SELECT count(*) AS n FROM {{name}} WHERE {text}",
        f"SELECT {chosen}, count(*) AS n, sum(x) AS s FROM {{name}} WHERE {text} GROUP BY {chosen}",
        f"SELECT count({columns[0]}) AS n, min(x) AS low, max(x) AS high FROM {{name}} WHERE {text}",
        f"SELECT DISTINCT {chosen} FROM {{name}} WHERE {text}",
        f"SELECT {chosen} FROM {{name}} WHERE x IN (SELECT x FROM {{name}} WHERE {text})",
    ]
    if dialect == "polars" or not IS_OLD:
        choices += [f"SELECT {chosen} FROM {{name}} WHERE {text} ORDER BY {keys} LIMIT 2"]
    return draw(st.sampled_from(choices))


def scanned(table: RandomTable) -> pl.LazyFrame:
    """The lazy frame of a table."""
    return scan_cube(table.name, table.store) if table.is_cube else scan_dataset(table.name, table.store)


@SETTINGS
@given(st.data(), random_cubes() | random_datasets())
def test_duckdb_answers_as_over_its_own_table(data, table):
    # A table of DuckDB's own: it pushes no filters into it that lose NaN.
    own, whole = duckdb.connect(), table.whole
    connection, lf = connect(table.store), scanned(table)
    for each in (own, connection):
        each.execute("SET TimeZone = 'UTC'")
    own.register("whole", whole)
    own.execute("CREATE TABLE own AS SELECT * FROM whole")
    own.register("lf", lf)
    for _ in range(3):
        text = data.draw(statements(table, "duckdb"))
        note(text)
        try:
            expected = own.execute(text.format(name="own")).fetchall()
        except duckdb.Error:
            continue
        assert rows_as_set(connection.sql(text.format(name=table.name)).fetchall()) == rows_as_set(expected)
        assert rows_as_set(own.sql(text.format(name="lf")).fetchall()) == rows_as_set(expected)


@SETTINGS
@given(st.data(), random_cubes() | random_datasets())
def test_duckdb_answers_over_a_difference_as_over_its_rows(data, table):
    since = history(f"{table.name}++seed" if table.is_cube else table.name, table.store)["commit"].iloc[-1]
    if table.is_cube:
        changes = query_cube_changes(discover_cube(table.name, table.store)[0], table.store, since)
    else:
        changes = read_dataset_changes(table.name, table.store, since)
    own, connection, whole = duckdb.connect(), connect(table.store), changes.read_all()
    for each in (own, connection):
        each.execute("SET TimeZone = 'UTC'")
    own.register("whole", whole)
    own.execute("CREATE TABLE own AS SELECT * FROM whole")
    relation = connection.changes(table.name, since)
    for _ in range(3):
        text = data.draw(statements(table, "duckdb"))
        note(text)
        try:
            expected = rows_as_set(own.execute(text.format(name="own")).fetchall())
        except duckdb.Error:
            continue
        call = f"kartothek_changes('{table.name}', since => '{since}')"
        assert rows_as_set(connection.sql(text.format(name=call)).fetchall()) == expected
        assert rows_as_set(connection.sql(text.format(name="relation")).fetchall()) == expected
    assert len(relation.fetchall()) == whole.num_rows


@SETTINGS
@given(st.data(), random_cubes() | random_datasets())
def test_sql_of_polars_answers_as_in_memory(data, table):
    text = data.draw(statements(table, "polars"))
    note(text)
    try:
        with pl.SQLContext(t=pl.from_arrow(table.whole).lazy()) as context:
            expected = context.execute(text.format(name="t")).collect()
    except pl.exceptions.PolarsError:
        assume(False)
    with pl.SQLContext(t=scanned(table)) as context:
        found = context.execute(text.format(name="t")).collect()
    assert rows_as_set(found.rows()) == rows_as_set(expected.rows())

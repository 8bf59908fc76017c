"""Rows of Polars and DuckDB, which come through Arrow's stream protocol, become stored types, or
are refused by name.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest

from kartothek_cube.core.arrow.pandas import is_block, to_table
from kartothek_cube.errors import InvalidInput, InvalidType, Unsupported

DAY = dt.date(2024, 5, 1)
NOON = dt.datetime(2024, 5, 1, 12, 0, 0, 1)

# Values, the type of Polars, the type that is stored.
POLARS = {
    "String": (["ä", None], pa.string()),
    "Categorical": (["b", None, "a"], pa.string()),
    "List(String)": ([["a"], None], pa.list_(pa.string())),
    "Array(Int64, 2)": ([[1, 2]], pa.list_(pa.int64())),
    "Struct({'y': String})": ([{"y": "a"}], pa.struct({"y": pa.string()})),
    "Datetime('ns')": ([NOON, None], pa.timestamp("us")),
    "Datetime('ms', 'UTC')": ([dt.datetime(2024, 5, 1, tzinfo=dt.UTC)], pa.timestamp("us", "UTC")),
    "Date": ([DAY, None], pa.date32()),
    "Time": ([dt.time(1, 2), None], pa.time64("us")),
    "Decimal(10, 2)": ([Decimal("1.10"), None], pa.decimal128(10, 2)),
    "Boolean": ([True, None], pa.bool_()),
    "Binary": ([b"\xff", None], pa.binary()),
    "UInt8": ([1, None], pa.uint8()),
    "Float32": ([0.5, None], pa.float32()),
}


@pytest.fixture
def pl():
    return pytest.importorskip("polars", reason="Polars is in the extra `test`")


def column(pl, kind, values):
    return pl.Series("v1", values, dtype=eval(f"pl.{kind}", {"pl": pl, **vars(pl)})).to_frame()


@pytest.mark.parametrize("kind", POLARS)
def test_columns_of_polars_become_stored_types(pl, kind):
    values, stored = POLARS[kind]
    frame = column(pl, kind, values)
    assert is_block(frame)
    table = to_table(frame, "uuid")
    assert table.schema.field("v1").type == stored
    assert table.column("v1").to_pylist() == values


def test_an_enumeration_of_polars_is_text(pl):
    table = to_table(pl.Series("v1", ["b", None, "a"], dtype=pl.Enum(["a", "b"])).to_frame(), "uuid")
    assert (table.schema.field("v1").type, table.column("v1").to_pylist()) == (pa.string(), ["b", None, "a"])


def test_lists_of_categories_are_refused_by_name(pl):
    if int(pl.__version__.split(".")[1]) < 32 and pl.__version__.startswith("1."):
        pytest.skip("Polars before 1.32 ends the process when it exports them")
    with pytest.raises(Unsupported, match="Column 'v1' of dataset 'uuid'"):
        to_table(column(pl, "List(Categorical)", [["a"]]), "uuid")


def test_what_polars_has_alone_is_refused_by_name(pl):
    with pytest.raises(InvalidInput, match="Column 'v1' of dataset 'uuid' cannot be stored as timestamp"):
        to_table(pl.Series("v1", [1]).cast(pl.Datetime("ns")).to_frame(), "uuid")
    with pytest.raises(InvalidType, match="dataset 'uuid'"):
        to_table(column(pl, "Int128", [1]), "uuid")
    assert not is_block(column(pl, "Int64", [1]).lazy())


@pytest.mark.parametrize(
    ("expression", "stored", "value"),
    [
        ("sum(7)", pa.decimal128(38, 0), Decimal(7)),
        ("sum(7)::BIGINT", pa.int64(), 7),
        ("'a'::ENUM('a', 'b')", pa.string(), "a"),
        ("DATE '2024-05-01'", pa.date32(), DAY),
        ("[1, 2]", pa.list_(pa.int32()), [1, 2]),
        ("'x'::BLOB", pa.binary(), b"x"),
        ("'00000000-0000-0000-0000-000000000001'::UUID", pa.string(), "00000000-0000-0000-0000-000000000001"),
    ],
)
def test_columns_of_duckdb_become_stored_types(expression, stored, value):
    relation = duckdb.sql(f"SELECT {expression} AS v1")
    assert is_block(relation)
    table = to_table(relation, "uuid")
    assert table.schema.field("v1").type == stored
    assert table.column("v1").to_pylist() == [value]

"""What a condition finds in one dataset is looked for in the files of the others before their
payload is read, and the rows are the same.
"""

from __future__ import annotations

import datetime

import numpy as np
import pyarrow as pa
import pytest

from kartothek_cube.api.cube import (
    C,
    Cube,
    append_to_cube,
    build_cube,
    count_cube,
    iter_cube,
    query_cube_arrow,
    stream_cube,
)
from kartothek_cube.core.io import parquet_rows
from kartothek_cube.core.io.formats import ParquetFormat
from kartothek_cube.core.io.parquet import ParquetSource
from kartothek_cube.core.stores.open import open_store
from kartothek_cube.cube.execute import load as join
from kartothek_cube.cube.execute import run
from kartothek_cube.cube.execute.load import BuildSide
from kartothek_cube.testing.stores import CountingStore

pytestmark = pytest.mark.usefixtures("fast_paths")

CUBE = Cube(["PRODUCT_ID", "DAY"], ["WEEK"], "cube", index_columns=["BRAND"], suppress_index_on=["PRODUCT_ID", "DAY"])
PRODUCTS, DAYS, WEEKS = 40, 5, 2
CELLS = PRODUCTS * DAYS
KEYS = {
    "PRODUCT_ID": np.tile(np.arange(CELLS) // DAYS, WEEKS),
    "DAY": np.tile(np.arange(CELLS) % DAYS, WEEKS),
    "WEEK": np.repeat(np.arange(WEEKS), CELLS),
}
NUMBERS = np.arange(len(KEYS["WEEK"]))
SEED = pa.table({**KEYS, "SALES": NUMBERS / 2, "NAME": [f"name {n % 3}" for n in NUMBERS]})
STOCK = pa.table({**KEYS, "STOCK": NUMBERS % 50})
FORECAST = pa.table({**KEYS, "FORECAST": NUMBERS * 1.5}).filter(pa.array(NUMBERS % 3 > 0))
BRANDS = pa.table({"PRODUCT_ID": np.arange(PRODUCTS), "BRAND": [f"brand {n // 2}" for n in range(PRODUCTS)]})


@pytest.fixture(autouse=True)
def as_if_large(monkeypatch):
    for name in ("_FILTERED_ROWS", "_FEW_ROWS", "_SKIPPED_ROWS"):
        monkeypatch.setattr(parquet_rows, name, 0)


@pytest.fixture
def decoded(monkeypatch):
    """Rows of each column that were decoded."""
    found = {}
    tables, batches = ParquetSource._decoded, ParquetSource._decoded_batches

    def note(columns, rows):
        for column in columns:
            found[column] = found.get(column, 0) + rows

    def decoded(self, file, groups, columns):
        table = tables(self, file, groups, columns)
        note(columns, table.num_rows)
        return table

    def decoded_batches(self, file, groups, columns, rows):
        for batch in batches(self, file, groups, columns, rows):
            note(columns, batch.num_rows)
            yield batch

    monkeypatch.setattr(ParquetSource, "_decoded", decoded)
    monkeypatch.setattr(ParquetSource, "_decoded_batches", decoded_batches)
    return found


def built(store=None, chunk_size=20, brands=BRANDS, cube=CUBE, seed=SEED):
    store = store or open_store("hmemory://")
    build_cube(
        {"seed": seed, "stock": STOCK, "forecast": FORECAST, "brands": brands},
        cube,
        store,
        partition_on={"brands": []},
        df_serializer=ParquetFormat(chunk_size=chunk_size),
    )
    return store


def without(monkeypatch):
    monkeypatch.setattr(BuildSide, "runtime_filter", ())


@pytest.mark.usefixtures("only_fast")
def test_payload_is_read_where_the_keys_are(decoded):
    found = query_cube_arrow(CUBE, built(), C("BRAND") == "brand 3", payload_columns=["SALES", "FORECAST"])
    assert found.column("PRODUCT_ID").unique().to_pylist() == [6, 7]
    # Of 200 rows a week, those of the products, and those before them in their row group of 20.
    assert decoded["SALES"] == WEEKS * 20
    assert decoded["FORECAST"] <= WEEKS * 20


@pytest.mark.usefixtures("only_fast")
@pytest.mark.parametrize("at_once", [1, WEEKS])
def test_a_few_rows_of_the_seed_say_what_is_read_of_others(monkeypatch, decoded, at_once):
    monkeypatch.setattr(run.BatchLoader, "limit", lambda _: at_once)
    store, joins = built(), []
    monkeypatch.setattr(run, "_join_parts", lambda *a, original=run._join_parts: joins.append(a) or original(*a))
    payload = ["SALES", "FORECAST", "STOCK"]
    found = query_cube_arrow(CUBE, store, C("SALES").isin([1.0, 101.0]), payload_columns=payload)
    assert [list(row.values()) for row in found.select(payload).to_pylist()] == [[1.0, 3.0, 2], [101.0, 303.0, 2]]
    assert len(joins) == at_once - 1
    assert decoded["FORECAST"] <= WEEKS * 20
    assert decoded["STOCK"] <= WEEKS * 20


@pytest.mark.every(3)
@pytest.mark.parametrize("appended", [False, True])
@pytest.mark.parametrize("chunk_size", [7, 1_000])
@pytest.mark.parametrize(
    "condition",
    [
        C("BRAND") == "brand 3",
        C("BRAND").isin(["brand 0", "brand 19", "no brand"]),
        C("BRAND") != "brand 3",
        C("BRAND") == "no brand",
        C("STOCK") == 7,
        C("STOCK") > 10,
        C("FORECAST") == 1.5 * 100,
        (C("STOCK") < 30) & (C("BRAND") >= "brand 5") & (C("DAY") == 2),
        (C("BRAND") == "brand 3") & (C("SALES") > 10.0),
        (C("FORECAST") < 300.0) & (C("STOCK") == 4),
        C("SALES").isin([3.25, 16.0, 17.5, 100.0]),
        (C("DAY") == 3) & (C("NAME") == "name 1"),
    ],
    ids=str,
)
def test_rows_are_the_same(monkeypatch, condition, chunk_size, appended):
    store = built(chunk_size=chunk_size)
    if appended:
        append_to_cube(
            {
                "seed": SEED.slice(30, 15).set_column(3, "SALES", pa.array(np.arange(15) + 0.25)),
                "stock": STOCK.slice(30, 5).set_column(3, "STOCK", pa.array([7] * 5)),
                "brands": BRANDS.slice(6, 1).set_column(1, "BRAND", pa.array(["brand 0"])),
            },
            CUBE,
            store,
        )

    def answers():
        yield query_cube_arrow(CUBE, store, condition)
        yield query_cube_arrow(CUBE, store, condition, payload_columns=["NAME"])
        yield count_cube(CUBE, store, condition)
        yield stream_cube(CUBE, store, condition).read_all().sort_by([(c, "ascending") for c in ("WEEK", *KEYS)])
        yield [table for _, table in iter_cube(CUBE, store, condition, partition_by="BRAND")]
        yield [table for _, table in iter_cube(CUBE, store, condition, partition_by="WEEK")]

    found = list(answers())
    without(monkeypatch)
    assert found == list(answers())


def test_projected_cells_are_the_same(monkeypatch):
    store, condition = built(), (C("BRAND") == "brand 3") & (C("DAY") > 1)

    def answer():
        return query_cube_arrow(CUBE, store, condition, dimension_columns=["PRODUCT_ID"], payload_columns=["BRAND"])

    found = answer()
    assert found.num_rows == 2 * WEEKS
    without(monkeypatch)
    assert found == answer()


def test_keys_may_be_stored_in_a_narrower_type():
    brands = BRANDS.set_column(0, "PRODUCT_ID", BRANDS.column(0).cast(pa.int8()))
    found = query_cube_arrow(CUBE, built(brands=brands), C("BRAND") == "brand 3")
    assert found.num_rows == 2 * DAYS * WEEKS


# --- what the keys of rows say --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"x": [3, 1, 3]}, [("x", (3, 1))]),
        ({"x": ["b", "a"]}, [("x", ("b", "a"))]),
        ({"x": [datetime.date(2026, 1, 2)]}, [("x", (datetime.date(2026, 1, 2),))]),
        ({"x": [1, 1], "y": [2, 3]}, [("y", (2, 3))]),
        ({"x": [1, None]}, []),
        ({"x": [1, None], "y": [2, 2]}, [("y", (2,))]),
        ({"x": [1.0, -0.0]}, []),
        ({"x": [True, False]}, []),
        ({"x": []}, []),
    ],
)
def test_few_keys_are_a_condition(keys, expected):
    found = BuildSide(pa.table(keys), tuple(keys)).runtime_filter
    assert [(c.column, tuple(c.value)) for c in found] == expected
    assert all(c.op == "in" for c in found)


def test_many_keys_are_none(monkeypatch):
    monkeypatch.setattr(join, "_MOST_VALUES", 3)
    assert BuildSide(pa.table({"x": range(4)}), ("x",)).runtime_filter == ()
    assert [c.column for c in BuildSide(pa.table({"x": range(4), "y": [0] * 4}), ("x", "y")).runtime_filter] == ["y"]
    monkeypatch.setattr(join, "_MOST_ROWS", 3)
    assert BuildSide(pa.table({"x": [1] * 4}), ("x",)).runtime_filter == ()


def test_a_condition_without_any_row_reads_no_file_of_the_seed():
    store = CountingStore(built())
    assert query_cube_arrow(CUBE, store, (C("STOCK") == 7) & (C("STOCK") > 8)).num_rows == 0
    read = {call.key.partition("/table/WEEK")[0] for call in store.calls if "/table/WEEK" in call.key}
    assert read == {"cube++stock"}

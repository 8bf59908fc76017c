"""The demonstration in its small size builds exactly the cube that DuckDB computes from the same
source.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from kartothek_cube import C, collect_stats, iter_cube, open_cube, open_store, query_cube_arrow
from kartothek_cube.api.dataset import read_table_arrow

pytestmark = [pytest.mark.spark, pytest.mark.slow]

EXAMPLES = Path(__file__).parents[3] / "examples"

DATASETS = ["sales", "products", "stores", "promotions", "coupons", "traffic", "response"]

PARTITIONS = {"sales": 6, "products": 1, "stores": 2, "promotions": 3, "coupons": 13, "traffic": 6, "response": 1}

# Everything that the seven datasets have in common, as DuckDB joins it.
JOINED = """
    select * from sales
        left join (select * from products) using (PRODUCT_ID)
        left join (select * exclude (STORE_GROUP) from stores) using (STORE_ID)
        left join (select * exclude (PERIOD, STORE_GROUP) from promotions) using (PRODUCT_ID, STORE_ID, WEEK)
        left join (select * exclude (PERIOD) from coupons) using (PRODUCT_ID, WEEK)
        left join (select * exclude (PERIOD, STORE_GROUP) from traffic) using (STORE_ID, WEEK)
        left join (select * from response) using (PRODUCT_ID)
"""

FIGURES = {
    "cells of the first delivery": "select count(*) from first_delivery",
    "their sales": "select round(sum(SALES_VALUE), 2) from first_delivery",
    "cells": "select count(*) from sales",
    "columns": "select 40",
    "sales": "select round(sum(SALES_VALUE), 2) from sales",
    "units": "select sum(UNITS) from sales",
    "cells with a coupon": "select count(*) from sales semi join coupons using (PRODUCT_ID, WEEK)",
    "cells with an elasticity": "select count(ELASTICITY) from sales join response using (PRODUCT_ID)",
    "cells with a category": "select count(CATEGORY) from sales join products using (PRODUCT_ID)",
    "cells on display": (
        "select count(*) from sales join promotions using (PRODUCT_ID, STORE_ID, WEEK) where DISPLAY <> '0'"
    ),
    "departments": "select count(distinct DEPARTMENT) from job",
    "cells with a department": "select count(DEPARTMENT) from job",
    "cells of GROCERY": "select count(*) from job where DEPARTMENT = 'GROCERY'",
    "cells of CNTRL/STORE SUP": "select count(*) from job where DEPARTMENT = 'CNTRL/STORE SUP'",
    "cells of TOYS": "select count(*) from job where DEPARTMENT = 'TOYS'",
    "elastic products": "select count(*) from response where RESPONSE_CLASS = 'elastic'",
    "inelastic products": "select count(*) from response where RESPONSE_CLASS = 'inelastic'",
    "flat products": "select count(*) from response where RESPONSE_CLASS = 'flat'",
    "unknown products": "select count(*) from response where RESPONSE_CLASS = 'unknown'",
    "median uplift, elastic": "select round(median(PROMO_UPLIFT), 2) from response where RESPONSE_CLASS = 'elastic'",
}


@pytest.fixture(scope="module")
def expected_figures():
    spec = importlib.util.spec_from_file_location("grocery_figures", EXAMPLES / "grocery_figures.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.EXPECTED[3]


@pytest.fixture(scope="module")
def cube(demo):
    return open_cube("grocery", demo.store)


def assert_same_rows(connection: duckdb.DuckDBPyConnection, found: pa.Table, query: str) -> None:
    """Rows in any order, columns by name, types as DuckDB has them."""
    connection.register("found", found)
    columns = ", ".join(sorted(found.column_names))
    types = [
        dict(row[:2] for row in connection.execute(f"describe select {columns} from ({q})").fetchall())
        for q in ("select * from found", query)
    ]
    assert types[0] == types[1]
    assert len(connection.execute(f"describe {query}").fetchall()) == found.num_columns
    surplus = connection.execute(
        f"select {columns} from found except all select {columns} from ({query}) limit 5"
    ).fetchall()
    missing = connection.execute(
        f"select {columns} from ({query}) except all select {columns} from found limit 5"
    ).fetchall()
    assert (surplus, missing) == ([], [])


@pytest.mark.parametrize("dataset", DATASETS)
def test_a_dataset_has_exactly_the_rows_that_duckdb_computes(demo, reference, dataset):
    assert_same_rows(reference, read_table_arrow(f"grocery++{dataset}", demo.store), f"select * from {dataset}")


def test_a_query_without_arguments_joins_everything(demo, cube, reference):
    assert_same_rows(reference, query_cube_arrow(cube, demo.store), JOINED)


@pytest.mark.parametrize(
    ("conditions", "where"),
    [
        (C("DISPLAY") != "0", "DISPLAY <> '0'"),
        (
            (C("DEPARTMENT") == "MEAT") & (C("MAILER") != "0") & (C("STORE_CLASS") == "C"),
            "DEPARTMENT = 'MEAT' and MAILER <> '0' and STORE_CLASS = 'C'",
        ),
        ((C("PERIOD") == 3) & (C("PRICE") >= 20.0), "PERIOD = 3 and PRICE >= 20"),
        (C("RESPONSE_CLASS") == "elastic", "RESPONSE_CLASS = 'elastic'"),
    ],
)
def test_a_conditional_query_answers_as_duckdb_does(demo, cube, reference, conditions, where):
    assert_same_rows(
        reference, query_cube_arrow(cube, demo.store, conditions), f"select * from ({JOINED}) where {where}"
    )


def test_departments_are_groups_with_their_cells(demo, cube, reference):
    found = {
        key["DEPARTMENT"]: table.num_rows
        for key, table in iter_cube(cube, demo.store, partition_by="DEPARTMENT", payload_columns=["UNITS"])
    }
    assert found == dict(reference.execute("select DEPARTMENT, count(*) from job group by all").fetchall())


def test_every_physical_partition_is_one_file(demo, cube):
    stats = collect_stats(cube, demo.store)
    assert {name: (s["partitions"], s["files"]) for name, s in stats.items()} == {
        name: (n, n) for name, n in PARTITIONS.items()
    }


def test_index_columns_of_the_cube_are_indexed(demo):
    store = open_store(demo.store)
    keys = [entry.key for entry in store.list("grocery++", recursive=True).entries if "/indices/" in entry.key]
    columns = {key.split("/indices/")[1].split("/")[0] for key in keys}
    assert columns == {
        "PRODUCT_ID",
        "STORE_ID",
        "WEEK",
        "DEPARTMENT",
        "BRAND",
        "MAILER",
        "CAMPAIGN_TYPE",
        "STORE_CLASS",
        "RESPONSE_CLASS",
    }


def test_the_figures_by_which_the_demonstration_judges_itself_are_those_of_duckdb(reference, expected_figures):
    assert {name: reference.execute(query).fetchall()[0][0] for name, query in FIGURES.items()} == expected_figures


def test_the_output_tells_the_story_and_nothing_else(demo):
    steps = [line.split()[1] for line in demo.printed.splitlines() if line[:2].strip().isdigit() and line[2:4] == "  "]
    assert steps == ["Start", "Build", "Extend", "Plan", "Ask", "Update", "Compute", "Report", "SQL", "Look", "Check"]
    assert demo.printed.rstrip().endswith("All 20 figures are as they should be.")
    assert demo.errors == ""


def test_the_chart_is_saved_and_nothing_is_left_beside_it(demo):
    assert demo.chart.read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in demo.folder.iterdir()) == ["chart.png", "store"]


def test_a_store_that_has_the_cube_is_refused_before_anything_starts(demo):
    again = demo.again()
    assert again.returncode == 1
    assert "There is a cube 'grocery'" in again.stderr

"""The command `merge`: which files and keys it takes, what it shows, and what it leaves alone."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kartothek_cube import query_cube_arrow
from kartothek_cube.api.dataset import read_table_arrow, store_dataframes_as_dataset
from tests.support.cli_cubes import CUBE, contents

ORDERS = pa.table(
    {
        "k": [1, 2, 3],
        "p": ["a", "a", "b"],
        "v1": [1.0, 2.0, 3.0],
        "v2": ["01", "02", None],
        "v3": [dt.date(2024, 1, 1)] * 3,
    }
)


@pytest.fixture
def orders(folder):
    """A dataset that belongs to no cube, and a file with rows for it."""
    store_dataframes_as_dataset(folder / "store", "orders", [ORDERS], partition_on="p")
    rows = ORDERS.slice(1).set_column(2, "v1", pa.array([20.0, 30.0])).set_column(0, "k", pa.array([2, 4]))
    pq.write_table(rows, "rows.parquet")
    return folder / "store"


def values(store, column="v1"):
    rows = read_table_arrow("orders", store)
    return dict(sorted(zip(rows["k"].to_pylist(), rows[column].to_pylist(), strict=True)))


DRY = """\
dataset  matched  updated  inserted  files rewritten  files untouched  to rewrite
orders         1        1         1                1                1  {:>10}
"""


def test_a_merge_updates_and_inserts_by_key(run, orders):
    ran = run("orders", "merge", "rows.parquet", "--on", "k", "--yes")
    assert (ran.code, ran.err) == (0, "")
    table, done = ran.out.splitlines()[:2], ran.out.splitlines()[-1]
    assert table[0] == ("dataset  matched  updated  inserted  files rewritten  files added  files untouched  written")
    assert done.startswith("orders: 1 row updated, 1 row inserted, commit ")
    assert values(orders) == {1: 1.0, 2: 20.0, 3: 3.0, 4: 30.0}


def test_a_dry_run_says_what_would_be_done(run, orders):
    before = contents(str(orders))
    out = run("orders", "merge", "rows.parquet", "--on", "k", "--dry-run").out
    assert out == DRY.format(out.split("  ")[-1].strip())
    found = run("orders", "merge", "rows.parquet", "--on", "k", "--dry-run", "--format", "json").json
    assert found["dry_run"] is True
    assert {name: found["datasets"]["orders"][name] for name in ("updated", "inserted", "commit")} == {
        "updated": 1,
        "inserted": 1,
        "commit": None,
    }
    assert contents(str(orders)) == before


def test_without_a_terminal_an_answer_is_needed(run, orders):
    before = contents(str(orders))
    ran = run("orders", "merge", "rows.parquet", "--on", "k")
    assert (ran.code, ran.out) == (2, "")
    assert "Without a terminal, give --yes, or --dry-run to see what would be done." in ran.err
    assert contents(str(orders)) == before


@pytest.mark.usefixtures("at_a_terminal")
def test_on_a_terminal_it_shows_what_would_be_done_and_asks(run, orders):
    before = contents(str(orders))
    call = ["orders", "merge", "rows.parquet", "--on", "k"]
    ran = run(*call, typed="n\n")
    assert ran.code == 1
    assert ran.out == DRY.format(ran.out.split("  ")[-1].strip())
    assert "Change dataset orders (1 row updated, 1 row inserted)? [y/N]" in ran.err
    assert contents(str(orders)) == before
    lines = run(*call, typed="y\n").out.splitlines()
    assert lines[:2] == ran.out.splitlines()
    assert len(lines) == 3
    assert lines[2].startswith("orders: 1 row updated, 1 row inserted, commit ")
    assert values(orders)[4] == 30.0


@pytest.mark.usefixtures("at_a_terminal")
def test_json_on_a_terminal_is_one_document(run, orders):
    found = run("orders", "merge", "rows.parquet", "--on", "k", "--format", "json", typed="y\n").json
    assert (found["dry_run"], found["datasets"]["orders"]["inserted"]) == (False, 1)


@pytest.mark.usefixtures("at_a_terminal")
def test_nothing_is_asked_where_there_is_nothing_to_do(run, orders):
    call = ["orders", "merge", "rows.parquet", "--on", "k", "--when-matched", "ignore", "--when-not-matched", "ignore"]
    ran = run(*call)
    assert (ran.code, ran.out, ran.err) == (0, "No row changes: there is nothing to do.\n", "")


def test_several_files_of_both_kinds_are_one_merge(run, orders):
    (orders.parent / "more.csv").write_text('k,p,v1,v2,v3\n5,b,5.5,"01",2024-02-03\n6,b,,,2024-02-03\n7,b,1,"",\n')
    ran = run("orders", "merge", "rows.parquet", "more.csv", "--on", "k", "--yes", "--format", "json")
    assert ran.json["datasets"]["orders"]["inserted"] == 4
    assert values(orders)[5] == 5.5
    assert values(orders)[6] is None
    texts = values(orders, "v2")
    assert (texts[5], texts[6], texts[7]) == ("01", None, "")
    assert values(orders, "v3")[5] == dt.date(2024, 2, 3)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--when-matched", "ignore"], {1: 1.0, 2: 2.0, 3: 3.0, 4: 30.0}),
        (["--when-matched", "delete", "--when-not-matched", "ignore"], {1: 1.0, 3: 3.0}),
        (["--when-not-matched-by-source", "delete"], {2: 20.0, 4: 30.0}),
        (["--when-not-matched", "ignore"], {1: 1.0, 2: 20.0, 3: 3.0}),
    ],
    ids=["ignore matched", "delete matched", "delete others", "ignore new"],
)
def test_options_are_those_of_the_function(run, orders, options, expected):
    assert run("orders", "merge", "rows.parquet", "--on", "k", "--yes", *options).code == 0
    assert values(orders) == expected


def test_the_keys_of_a_dataset_of_a_cube_are_what_addresses_its_cells(run, folder):
    rows = pa.table({"x": [0, 9], "p": [0, 0], "q": ["a", "a"], "v2": ["new", "other"]})
    pq.write_table(rows, "rows.parquet")
    assert run("my_cube++enrich", "merge", "rows.parquet", "--yes").code == 0
    assert query_cube_arrow(CUBE, folder / "store")["v2"].to_pylist()[0] == "new"
    ran = run("my_cube++enrich", "merge", "rows.parquet", "--on", "x", "--yes")
    assert (ran.code, ran.out) == (2, "")
    assert "belongs to a cube, which addresses its rows by" in ran.err


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (
            ["my_cube", "merge", "rows.parquet"],
            "It is a cube: name one of its datasets, my_cube++enrich, my_cube++seed",
        ),
        (["order", "merge", "rows.parquet"], "Did you mean 'orders'?"),
        (["orders", "merge", "rows.parquet"], "Missing option '--on'"),
        (["orders", "merge", "rows.txt", "--on", "k"], "takes files that end in .parquet or .csv, not rows.txt"),
        (["orders", "merge", "nope.csv", "--on", "k"], "Could not read nope.csv: "),
        (["orders", "merge", "skv.yml.parquet", "--on", "k"], "Could not read skv.yml.parquet: "),
        (["orders", "merge", "rows.parquet", "--on", "K"], "Did you mean 'k'?"),
        (["orders", "merge", "rows.parquet", "rows.parquet", "--on", "k"], "have the key {'k': 2} twice"),
        (["orders", "merge"], "Missing argument 'FILE...'"),
    ],
)
def test_what_cannot_be_merged_is_refused(run, orders, words, error):
    (orders.parent / "skv.yml.parquet").write_text("no Parquet")
    before = contents(str(orders))
    ran = run(*words, "--yes")
    assert (ran.code, ran.out) == (2, "")
    assert error in ran.err
    assert contents(str(orders)) == before

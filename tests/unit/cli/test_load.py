"""The commands `build`, `append` and `extend`: files become cubes."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

from kartothek_cube import open_store, options, query_cube_arrow
from kartothek_cube.core.snapshots.loader import load_snapshot
from tests.support.cli_cubes import contents

SALES = pa.table(
    {
        "x": [1, 2, 3],
        "p": ["a", "a", "b"],
        "d": [dt.date(2024, 1, n) for n in (1, 2, 3)],
        "v1": [1.5, None, 3.0],
        "v2": ["01", "", "NA"],
    }
)
PRICES = pa.table({"x": [1, 2], "v3": [0.5, 1.5]})
BUILD = ("--dimension", "x", "--partition", "p")


@pytest.fixture
def files(folder):
    """The same rows as CSV, Parquet, and folders of Hive."""
    csv.write_csv(SALES, "sales.csv")
    csv.write_csv(PRICES, "prices.csv")
    pq.write_table(SALES, "sales.parquet")
    for value in ("a", "b"):
        (folder / "hive" / f"p={value}").mkdir(parents=True)
        rows = SALES.filter(pa.array([p == value for p in SALES["p"].to_pylist()])).drop_columns("p")
        pq.write_table(rows, folder / "hive" / f"p={value}" / "1.parquet")
    (folder / "hive" / "_log").mkdir()
    (folder / "hive" / "_log" / "2.parquet").write_bytes(b"no file of the data")
    return folder / "store"


def rows(store, cube="new"):
    return sorted(query_cube_arrow(cube, store).to_pylist(), key=lambda row: row["x"])


@pytest.mark.parametrize("source", ["sales.csv", "sales.parquet", "hive", "hive/*/*.parquet", "sal*.csv"])
def test_a_cube_is_built(run, files, source):
    ran = run("new", "build", source, *BUILD, "--yes")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[-1] == "seed: 2 partitions"
    assert rows(files) == sorted(SALES.to_pylist(), key=lambda row: row["x"])


def test_columns_may_be_named_together_and_apart(run, files):
    ran = run("new", "build", "sales.csv", "--dimension", "x,d", "--partition", "p", "--index", "v2", "--seed", "units")
    assert ran.out.splitlines()[-1] == "units: 2 partitions"
    snapshot = load_snapshot(open_store(files), "new++units")
    assert snapshot.document.metadata["ktk_cube_dimension_columns"] == ["x", "d"]
    assert snapshot.secondary_columns == {"d", "v2", "x"}


PLAN = """\
seed: 1 file
  column  type         is
  x       int64        dimension
  p       string       partition
  d       date32[day]  payload
  v1      double       payload
  v2      string       payload
prices: 1 file
  column  type    is
  x       int64   dimension
  v3      double  payload
"""


def test_a_dry_run_shows_types_and_writes_nothing(run, files):
    before = contents(str(files))
    call = ["new", "build", "sales.csv", "--dataset", "prices=prices.csv", *BUILD, "--dry-run"]
    assert run(*call).out == PLAN
    found = run(*call, "--format", "json").json
    assert found["dry_run"] is True
    assert found["datasets"]["prices"]["columns"][1] == {"name": "v3", "type": "double", "role": "payload"}
    assert contents(str(files)) == before


@pytest.mark.usefixtures("at_a_terminal")
def test_on_a_terminal_types_are_shown_and_it_asks(run, files):
    before = contents(str(files))
    ran = run("new", "build", "sales.csv", *BUILD, typed="n\n")
    assert "date32[day]" in ran.out
    assert "Write 1 file to cube new?" in ran.err
    assert (ran.code, contents(str(files))) == (1, before)


def test_rows_and_datasets_are_added(run, files):
    run("new", "build", "sales.csv", *BUILD)
    assert run("new", "extend", "prices", "prices.csv").out.splitlines()[-1] == "prices: 1 partition"
    # In the types of the dataset: what looks like a number stays a text, a whole number a float.
    csv.write_csv(pa.table({"x": [9], "p": ["a"], "d": [dt.date(2024, 2, 1)], "v1": [4], "v2": ["7"]}), "more.csv")
    csv.write_csv(pa.table({"x": [9], "v3": [2]}), "more_prices.csv")
    ran = run("new", "append", "more.csv", "--dataset", "prices=more_prices.csv", "--format", "json")
    assert ran.json == {"dry_run": False, "datasets": {"prices": {"partitions": 2}, "seed": {"partitions": 3}}}
    found = rows(files)
    assert found[-1] == {"x": 9, "p": "a", "d": dt.date(2024, 2, 1), "v1": 4.0, "v2": "7", "v3": 2.0}
    assert [row["v3"] for row in found] == [0.5, 1.5, None, 2.0]


def test_a_dataset_keeps_the_types_of_the_cube(run, files):
    run("new", "build", "sales.csv", *BUILD)
    csv.write_csv(pa.table({"x": [1], "p": ["7"], "v4": [1]}), "other.csv")
    assert run("new", "extend", "other", "other.csv").code == 0
    assert str(load_snapshot(open_store(files), "new++other").schema.field("p").type) == "string"


def test_files_of_one_dataset_may_have_other_widths_and_columns(run, files):
    pq.write_table(pa.table({"x": pa.array([1], pa.int32()), "p": ["a"], "v1": [1]}), "one.parquet")
    pq.write_table(pa.table({"x": pa.array([2], pa.int64()), "p": ["b"], "v2": ["b"]}), "two.parquet")
    assert run("new", "build", "one.parquet", "two.parquet", *BUILD).code == 0
    assert rows(files) == [
        {"x": 1, "p": "a", "v1": 1, "v2": None},
        {"x": 2, "p": "b", "v1": None, "v2": "b"},
    ]


def test_files_may_be_larger_than_memory(run, files):
    many = pa.table({"x": range(50_000), "p": [n % 3 for n in range(50_000)], "v1": ["text"] * 50_000})
    pq.write_table(many, "many.parquet", row_group_size=5_000)
    with options(bytes_in_flight=1_000_000):
        assert run("new", "build", "many.parquet", *BUILD).code == 0
    assert len(rows(files)) == 50_000


ERRORS = [
    (
        ["build", "sales.csv", "--dimension", "y", "--partition", "p"],
        "The files have no column y. They have x, p, d, v1, v2.",
    ),
    (["build", "nothing.csv", *BUILD], "There is no file nothing.csv."),
    (["build", "*.nothing", *BUILD], "There is no file of CSV or Parquet in *.nothing."),
    (["build", "skv.yml", *BUILD], "A file ends in .parquet or .csv, not skv.yml."),
    (["build", "broken.parquet", *BUILD], "Could not read broken.parquet: "),
    (["build", "sales.csv", "--dataset", "prices.csv", *BUILD], "'prices.csv' is not <name>=<file>."),
    (["build", "sales.csv", "clash.csv", *BUILD], "The files of dataset seed do not have the same types: "),
    (["append"], "Missing argument 'FILE...'."),
    (["append", "sales.csv"], "Could not load cube: "),
]


@pytest.mark.parametrize(("call", "message"), ERRORS)
def test_errors_name_the_file_or_the_column_and_nothing_is_written(run, files, call, message):
    (files.parent / "broken.parquet").write_bytes(b"PAR1PAR1")
    csv.write_csv(SALES.set_column(3, "v1", pa.array(["a", "b", "c"])), "clash.csv")
    before = contents(str(files))
    ran = run("new", *call)
    assert ran.code == 2
    assert message in ran.err
    assert contents(str(files)) == before


def test_values_that_do_not_fit_their_column_are_an_error_and_nothing_is_visible(run, files):
    run("new", "build", "sales.csv", *BUILD)
    before = rows(files)
    csv.write_csv(pa.table({"x": ["nine"], "p": ["a"], "d": ["2024-01-01"], "v1": [1.0], "v2": ["a"]}), "bad.csv")
    ran = run("new", "append", "bad.csv")
    assert ran.code == 2
    assert "nine" in ran.err
    assert rows(files) == before
    assert "It has" not in run("new", "append", "sales.csv", "--dataset", "other=sales.csv").out

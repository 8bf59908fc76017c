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


# --- keys and values stay what they are -----------------------------------------------------------


def build(run, table, *options):
    pq.write_table(table, "built.parquet")
    assert run("new", "build", "built.parquet", *(options or BUILD)).code == 0


def hive(folder, name, table, end="parquet"):
    (folder / name).mkdir(parents=True)
    (csv.write_csv if end == "csv" else pq.write_table)(table, folder / name / f"1.{end}")


@pytest.mark.parametrize("end", ["csv", "parquet"])
def test_texts_of_folders_are_read_in_the_types_of_the_dataset(run, files, end):
    build(run, pa.table({"x": ["a"], "p": ["01a"], "v1": [1]}))
    for name in ("h/p=01/x=007", "h/p=2/x=8"):
        hive(files.parent, name, pa.table({"v1": [2]}), end)
    assert run("new", "append", "h").code == 0
    assert [(row["p"], row["x"]) for row in rows(files)] == [("01", "007"), ("2", "8"), ("01a", "a")]
    hive(files.parent, "e/x=007", pa.table({"p": ["01"], "v2": [3]}), end)
    assert run("new", "extend", "other", "e").code == 0
    assert [row["v2"] for row in rows(files)] == [3, None, None]


def test_a_folder_that_is_no_date_is_refused(run, files):
    build(run, pa.table({"x": [1], "p": [dt.date(2024, 1, 1)], "v1": [1]}))
    hive(files.parent, "h/p=2024-01-02", pa.table({"x": [2], "v1": [2]}))
    assert run("new", "append", "h").code == 0
    hive(files.parent, "h/p=20240103", pa.table({"x": [3], "v1": [2]}))
    ran = run("new", "append", "h", "--dry-run")
    assert ran.code == 2
    assert "Column p of dataset seed is date32[day], but the folder of h/p=20240103/1.parquet is" in ran.err
    assert [row["p"].day for row in rows(files)] == [1, 2]


@pytest.mark.parametrize(("texts", "kept"), [(("01", "2"), ["01", "2"]), (("-1", "20"), [-1, 20]), (("-0",), ["-0"])])
def test_a_folder_is_a_number_only_if_nothing_is_lost(run, files, texts, kept):
    for n, text in enumerate(texts):
        hive(files.parent, f"h/p={text}", pa.table({"x": [n], "v1": [1]}), ("csv", "parquet")[n])
    assert run("new", "build", "h", *BUILD).code == 0
    assert [row["p"] for row in rows(files)] == kept


def test_a_column_in_file_and_folder_is_refused(run, files):
    hive(files.parent, "h/p=a", pa.table({"x": [1], "p": ["b"], "v1": [1]}), "csv")
    ran = run("new", "build", "h", *BUILD)
    assert (ran.code, "Column p is both in h/p=a/1.csv and in the name of its folder." in ran.err) == (2, True)


MOMENT = dt.datetime(2024, 7, 1, 10)
CHANGED = [
    (pa.array([True]), pa.array([5])),
    (pa.array([1]), pa.array(["10"])),
    (pa.array(["a"]), pa.array([1.5])),
    (pa.array([1.5]), pa.array([1], pa.decimal128(20, 18))),
    (pa.array([MOMENT], pa.timestamp("us", "Europe/Berlin")), pa.array([MOMENT], pa.timestamp("us"))),
    (pa.array([MOMENT], pa.timestamp("us")), pa.array([MOMENT], pa.timestamp("us", "Europe/Berlin"))),
]


@pytest.mark.parametrize("option", [(), ("--dry-run",)])
@pytest.mark.parametrize(("present", "given"), CHANGED)
def test_values_of_parquet_are_never_changed(run, files, present, given, option):
    build(run, pa.table({"x": [1], "p": ["a"], "v1": present}))
    before = contents(str(files))
    pq.write_table(pa.table({"x": [2], "p": ["a"], "v1": given}), "more.parquet")
    ran = run("new", "append", "more.parquet", *option)
    assert ran.code == 2
    stored = f"Column v1 of more.parquet is {given.type}, but {present.type} in dataset seed. Cast it to {present.type}"
    assert stored in ran.err
    assert contents(str(files)) == before


def test_columns_widen_within_their_family(run, files):
    build(run, pa.table({"x": [1], "p": ["a"], "v1": pa.array([0.5], pa.float32()), "v2": pa.array([1], pa.int8())}))
    categories = pa.array(["a"]).dictionary_encode()
    pq.write_table(pa.table({"x": [2], "p": categories, "v1": [0.1234567890123], "v2": [300]}), "more.parquet")
    assert run("new", "append", "more.parquet").code == 0
    assert [(row["v1"], row["v2"]) for row in rows(files)] == [(0.5, 1), (0.1234567890123, 300)]


@pytest.mark.parametrize("end", ["csv", "parquet"])
def test_a_column_without_values_takes_the_type_of_the_first(run, files, end):
    build(run, pa.table({"x": [1], "p": ["a"], "v1": pa.nulls(1)}))
    hive(files.parent, "more", pa.table({"x": [2], "p": ["a"], "v1": ["abc"]}), end)
    assert run("new", "append", "more").code == 0
    assert [row["v1"] for row in rows(files)] == [None, "abc"]


def test_every_file_of_a_folder_gives_its_columns_and_types(run, files):
    for n, value in enumerate((1, 1.5)):
        hive(files.parent, f"h/{n}", pa.table({"x": [n], "p": ["a"], "v1": [value], f"v{n + 2}": ["a"]}), "csv")
    assert run("new", "build", "h", *BUILD).code == 0
    assert [(row["v1"], row["v2"], row["v3"]) for row in rows(files)] == [(1.0, "a", None), (1.5, None, "a")]


def test_ends_of_lines_in_quotes_are_those_of_texts(run, files, monkeypatch):
    monkeypatch.setattr("kartothek_cube.cli.commands.load._BLOCK_OF_ROWS", 100)
    many = pa.table({"x": range(50), "p": ["a"] * 50, "v1": ["a\n\nb,c"] * 50})
    csv.write_csv(many, "many.csv")
    assert run("new", "build", "many.csv", *BUILD).code == 0
    assert {row["v1"] for row in rows(files)} == {"a\n\nb,c"}
    assert len(rows(files)) == 50


def test_a_dry_run_refuses_what_the_call_refuses(run, files):
    calls = [("build", "sales.csv", *BUILD), ("extend", "other", "lacking.csv"), ("extend", "seed", "prices.csv")]
    calls += [("extend", "other", "sales.csv"), ("append", "prices.csv")]
    csv.write_csv(pa.table({"p": ["a"], "v4": [1]}), "lacking.csv")
    build(run, SALES)
    before = contents(str(files))
    for call in calls:
        tried, ran = run("new", *call, "--dry-run"), run("new", *call)
        assert (tried.code, tried.err) == (ran.code, ran.err)
        assert ran.code == 2
        assert contents(str(files)) == before


@pytest.mark.parametrize(("value", "shown"), [([1], "list<"), (dt.timedelta(1), "duration[ns]")])
def test_what_csv_cannot_say_is_refused_with_a_way_out(run, files, value, shown):
    build(run, pa.table({"x": [1], "p": ["a"], "v1": [value], "v2": [1]}))
    csv.write_csv(pa.table({"x": [2], "p": ["a"], "v1": ["1"], "v2": [1]}), "more.csv")
    ran = run("new", "append", "more.csv")
    assert f"Column v1 of more.csv cannot be read as {shown}" in ran.err
    assert "Give it in Parquet." in ran.err


def test_values_that_do_not_fit_are_named_with_file_column_and_type(run, files):
    build(run, pa.table({"x": [1], "p": ["a"], "v1": [1]}))
    csv.write_csv(pa.table({"p": ["a"], "v1": ["many"], "x": [2]}), "more.csv")
    ran = run("new", "append", "more.csv")
    assert ran.code == 2
    assert "Column v1 of more.csv cannot be read as int64, its type in dataset seed: " in ran.err
    assert "'many'" in ran.err
    assert "Correct the file, or give it in Parquet." in ran.err

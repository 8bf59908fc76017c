from __future__ import annotations

from functools import partial

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from kartothek_cube import C, Cube, build_cube, query_cube_arrow, stream_cube
from kartothek_cube.cli.output import CsvSink, first_rows, group_file
from tests.support.cli_cubes import CUBE

LINES = """\
"p","q","v1","v2","x","y"
1,"a",3,"3",2,1
1,"b",4,"4",3,1
"""


def test_rows_go_to_stdout_as_csv(run):
    ran = run("my_cube", "query", "--where", "x > 1 & p == 1", "--columns", "v[12]")
    assert (ran.code, ran.out, ran.err) == (0, LINES, "")
    assert (
        run("my_cube", "query", "--where", "x > 1", "--where", "p == 1", "--columns", "v1,v2,x,p", "--output", "-").out
        == LINES
    )


def test_no_rows_have_a_header(run):
    assert run("my_cube", "query", "--where", "x > 100", "--columns", "").out == '"p","q","x","y"\n'
    found = run("my_cube", "query", "--where", "x > 100", "--columns", "", "--format", "json").json
    assert found == {
        "columns": [{"name": n, "type": "string" if n == "q" else "int64"} for n in ("p", "q", "x", "y")],
        "rows": [],
    }


def test_rows_as_json(run, folder):
    found = run("--format", "json", "my_cube", "query").json
    assert found["rows"] == stream_cube(CUBE, folder / "store").read_all().to_pylist()


@pytest.mark.parametrize("name", ["sales.parquet", "sales.csv"])
def test_rows_go_to_a_file(run, folder, name):
    ran = run("my_cube", "query", "--columns", "*", "--output", name)
    assert (ran.code, ran.out) == (0, f"4 rows in {name}\n")
    read = pq.read_table(name) if name.endswith("t") else pyarrow.csv.read_csv(name)
    assert read.num_rows == 4
    assert set(read.column_names) == set(query_cube_arrow(CUBE, folder / "store").column_names)
    assert not list(folder.glob(".*.partial"))


def test_a_parquet_file_has_the_types_of_the_cube(run, folder):
    found = run("my_cube", "query", "--where", "v1 >= 2.5", "--output", "out.parquet", "--format", "json").json
    assert found == {"rows": 2, "files": {"out.parquet": 2}}
    assert pq.read_table("out.parquet").equals(stream_cube(CUBE, folder / "store", C("v1") >= 2.5).read_all())


def test_groups_come_one_after_the_other(run):
    rows = run("my_cube", "query", "--by", "q", "--columns", "v2").out.splitlines()[1:]
    assert [row.split(",")[1] for row in rows] == ['"a"', '"a"', '"b"', '"b"']
    assert run("my_cube", "query", "--by", "q", "--columns", "v2", "--limit", "3").out.splitlines()[1:] == rows[:3]


def test_one_file_a_group(run, folder):
    ran = run("my_cube", "query", "--by", "q,p", "--output", "part_{p}_{q}.csv", "--limit", "3")
    assert ran.out.splitlines() == [f"1 row in part_{p}_{q}.csv" for q, p in ("a0", "a1", "b0")]
    assert sorted(path.name for path in folder.glob("part*")) == ["part_0_a.csv", "part_0_b.csv", "part_1_a.csv"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--where", "z == 1"], "Could not parse conditions: "),
        (["--where", "x == one"], "Could not parse conditions: "),
        (["--columns", "v9"], "Could not find column v9"),
        (["--by", "v1"], "v1"),
        (
            ["--output", "out.xlsx"],
            "--output takes a file that ends in .parquet or .csv, or - for stdout, not out.xlsx",
        ),
        (["--output", "out_{q}.csv"], "should have a place for each column of --by and no other"),
        (["--output", "out_{.csv"], "--output out_{.csv: "),
        (["--output", "out_{q:d}.csv", "--by", "q"], "--output out_{q:d}.csv: "),
        (["--as-of", "0" * 32], "0" * 32),
    ],
)
def test_what_cannot_be_asked_is_one_line(run, folder, options, message):
    ran = run("my_cube", "query", *options)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err
    assert not list(folder.glob("*out*"))


def test_csv_cannot_hold_everything(run, folder):
    build_cube(pa.table({"x": [0], "p": [0], "v": [[1, 2]]}), Cube(["x"], ["p"], "nested"), folder / "store")
    ran = run("nested", "query", "--output", "out.csv")
    assert ran.code == 2
    assert "CSV cannot hold column v of type list" in ran.err
    assert run("nested", "query", "--output", "out.parquet").code == 0


def test_an_older_state_is_asked_for_by_time_or_commit(run):
    commits = run("my_cube", "history", "seed", "--format", "json").json["commits"]
    for moment in (commits[0]["commit"], "2100-01-01"):
        assert run("my_cube", "query", "--as-of", moment, "--columns", "").out.count("\n") == 5


def test_a_failure_leaves_no_file(run, folder):
    path = next((folder / "store" / "my_cube++un" / "table").glob("*.parquet"))
    path.write_bytes(b"PAR1PAR1")
    ran = run("my_cube", "query", "--output", "out.parquet")
    assert ran.code == 2
    assert not list(folder.glob("*out*"))


@pytest.mark.parametrize("name", ["out.csv", "out.parquet"])
def test_a_file_is_replaced_at_the_end_or_not_at_all(run, folder, monkeypatch, name):
    query = partial(run, "my_cube", "query", "--columns", "v1", "--output", name)
    assert query("--limit", "1").code == 0
    assert query().out == f"4 rows in {name}\n"
    earlier = (folder / name).read_bytes()

    def failing(batches, limit):
        yield next(iter(batches))
        raise OSError("The store is gone.")

    monkeypatch.setattr("kartothek_cube.cli.output.first_rows", failing)
    ran = query()
    assert (ran.code, ran.err) == (1, "Error: The store is gone.\n")
    assert (folder / name).read_bytes() == earlier
    assert not list(folder.glob(".*.partial"))


@pytest.mark.parametrize(
    ("limit", "sizes"), [(None, [3, 3, 3]), (0, []), (2, [2]), (3, [3]), (4, [3, 1]), (100, [3, 3, 3])]
)
def test_a_limit_asks_for_no_more_than_it_needs(limit, sizes):
    asked = []

    def batches():
        for i in range(3):
            asked.append(i)
            yield pa.record_batch({"x": [i] * 3})

    assert [batch.num_rows for batch in first_rows(batches(), limit)] == sizes
    assert len(asked) == len(sizes)


@pytest.mark.parametrize("name", ["all{p:.0}.csv", "{p}{q}.csv"])
def test_no_group_takes_the_file_of_another(run, folder, name):
    build_cube(
        pa.table({"x": [0, 1], "p": ["a", "ab"], "q": ["bc", "c"]}), Cube(["x"], ["p", "q"], "groups"), folder / "store"
    )
    ran = run("groups", "query", "--by", "p" if "q" not in name else "p,q", "--output", name)
    assert ran.code == 2
    assert "several groups would be written to " in ran.err


def test_a_group_stays_in_its_folder():
    assert group_file("out/{p}/{q}.csv", {"p": "..", "q": "../.."}) == "out/%2E%2E/..%2F...csv"


@pytest.mark.parametrize(
    ("name", "message"), [("out.csv", "it is a directory."), ("no/out.csv", "there is no directory no.")]
)
def test_a_place_that_takes_no_file_is_named(run, folder, name, message):
    (folder / "out.csv").mkdir()
    ran = run("my_cube", "query", "--output", name)
    assert (ran.code, ran.err) == (1, f"Error: Could not write {name}: {message}\n")


def test_a_file_that_cannot_take_its_place_leaves_nothing(tmp_path):
    (tmp_path / "out.csv").mkdir()
    with pytest.raises(OSError, match=r"out\.csv"), CsvSink(tmp_path / "out.csv", pa.schema({"x": "int64"})):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["out.csv"]

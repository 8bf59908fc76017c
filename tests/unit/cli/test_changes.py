"""The command `changes`: what it counts, and the rows that it writes."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kartothek_cube import C, append_to_cube, open_store, query_cube_changes, remove_partitions
from kartothek_cube.core.dataset.history import history
from tests.support.cli_cubes import CUBE, SEED
from tests.support.commits import make_foreign


@pytest.fixture
def first(folder):
    """The commit that two writes came after: two cells changed, one is new, two are gone."""
    commit = history("my_cube++seed", folder / "store")["commit"].iloc[0]
    rows = pa.concat_tables([SEED.slice(0, 2), SEED.slice(0, 1)])
    rows = rows.set_column(0, "x", pa.array([0, 1, 9])).set_column(4, "v1", pa.array([7.0, 8.0, 9.0]))
    append_to_cube({"seed": rows}, CUBE, folder / "store")
    remove_partitions(CUBE, folder / "store", C("p") == 1, ktk_cube_dataset_ids=["enrich"])
    return commit


LINES = """\
dataset  inserted  updated  deleted
seed            1        2        0
enrich          0        0        2
un              0        0        0
"""


def test_changes_are_counted_by_dataset(run, first):
    ran = run("my_cube", "changes", "--since", first)
    assert (ran.code, ran.out, ran.err) == (0, LINES, "")
    assert run("my_cube", "changes", "--since", first[:6]).out == LINES, "the beginning of an id is enough"
    assert run("my_cube", "changes", "--since", first, "--format", "json").json == {
        "since": first,
        "until": None,
        "datasets": {
            "seed": {"inserted": 1, "updated": 2, "deleted": 0},
            "enrich": {"inserted": 0, "updated": 0, "deleted": 2},
            "un": {"inserted": 0, "updated": 0, "deleted": 0},
        },
    }


def test_changes_up_to_a_commit(run, folder, first):
    last = history("my_cube++seed", folder / "store")["commit"].iloc[0]
    found = run("my_cube", "changes", "--since", first, "--until", last[:8], "--format", "json").json
    assert (found["until"], found["datasets"]["enrich"]["deleted"]) == (last, 0)
    ran = run("my_cube", "changes", "--since", last, "--until", first)
    assert (ran.code, ran.out) == (2, "")
    assert "comes before" in ran.err


@pytest.mark.parametrize("length", [8, 32])
@pytest.mark.parametrize("words", [["changes", "--since"], ["query", "--as-of"], ["undo", "--commit"]], ids=" ".join)
@pytest.mark.filterwarnings("ignore::kartothek_cube.errors.ForeignWriterWarning")
def test_a_commit_before_one_of_another_library_is_told(run, folder, first, words, length):
    make_foreign(open_store(folder / "store"), "my_cube++seed")
    ours = append_to_cube({"seed": SEED.slice(0, 1)}, CUBE, folder / "store")["seed"].commit.id
    ran = run("my_cube", *words, first[:length])
    assert (ran.code, ran.out) == (2, "")
    assert f"Dataset 'my_cube++seed': before commit {ours} of 20" in ran.err
    assert "came a writer that keeps no history (kartothek, plateau)." in ran.err


def test_since_a_time(run, first):
    assert run("my_cube", "changes", "--since", "2999-01-01").out.count("0        0        0") == 3
    ran = run("my_cube", "changes", "--since", "2000-01-01")
    assert (ran.code, ran.out) == (2, "")
    assert "cannot be read as of 2000-01-01" in ran.err


@pytest.mark.parametrize("options", [[], ["--output", "x.csv"]])
def test_what_is_no_state_is_refused(run, first, options):
    ran = run("my_cube", "changes", "--since", "nope", *options)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("Error: Cube 'my_cube' has no tag 'nope': it has no tags. A time is written as")
    assert "Missing option '--since'" in run("my_cube", "changes").err


def test_rows_go_into_a_file(run, folder, first):
    ran = run("my_cube", "changes", "--since", first, "--output", "changes.parquet")
    assert (ran.code, ran.out) == (0, "9 rows in changes.parquet\n")
    rows, order = pq.read_table("changes.parquet"), [("x", "ascending"), ("_change_type", "ascending")]
    assert rows.sort_by(order).equals(query_cube_changes(CUBE, folder / "store", first).read_all().sort_by(order))
    assert rows.column("_change_type").to_pylist().count("insert") == 1


def test_rows_of_a_query_go_to_stdout(run, first):
    options = ["--since", first, "--where", "x <= 1", "--columns", "v1"]
    lines = run("my_cube", "changes", *options).out.splitlines()
    assert lines[0] == '"_change_type","p","q","v1","x","y"'
    assert sorted(lines[1:]) == [
        '"update_postimage",0,"a",7,0,0',
        '"update_postimage",0,"b",8,1,0',
        '"update_preimage",0,"a",1,0,0',
        '"update_preimage",0,"b",2,1,0',
    ]
    found = run("my_cube", "changes", *options, "--limit", "2", "--format", "json").json
    assert [row["_change_type"] for row in found["rows"]] == ["update_preimage", "update_postimage"]


@pytest.mark.parametrize(
    ("output", "code", "message"),
    [("x.json", 2, "--output takes a file"), ("no/x.csv", 1, "Could not write no/x.csv: there is no directory no")],
)
def test_rows_have_a_place(run, first, output, code, message):
    ran = run("my_cube", "changes", "--since", first, "--output", output)
    assert (ran.code, ran.out) == (code, "")
    assert ran.err.startswith(f"Error: {message}")


def test_a_report_says_what_changed(run, folder, first):
    page = run("my_cube", "report", "--output", "-", "--changed-since", first[:8]).out
    assert f'<h2>What changed</h2><p class="quiet">Since {first}.' in page
    assert "What changed" not in run("my_cube", "report", "--output", "-").out
    ran = run("my_cube", "report", "--changed-since", "nope")
    assert (ran.code, ran.out) == (2, "")
    assert "Cube 'my_cube' has no tag 'nope'" in ran.err
    assert not (folder / "my_cube.html").exists()

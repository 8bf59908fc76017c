"""The commands `delete-rows` and `forget`: what they show, ask, delete and leave."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from kartothek_cube import C, append_to_cube, delete_cells, open_store, query_cube_arrow
from kartothek_cube.cli.commands.copy import BEYOND_REACH
from kartothek_cube.core.dataset.history import history
from kartothek_cube.core.metadata.naming import document_key
from kartothek_cube.testing.stores import FaultyStore, SimulatedCrash
from tests.support.cli_cubes import CUBE, SEED, contents, keys

TABLE = """\
dataset  deleted  files removed  files untouched  to rewrite
seed           1              1                3         0 B
enrich         1              1                3         0 B
un             0              0                1         0 B
"""


def cells(folder):
    return query_cube_arrow(CUBE, folder / "store")["x"].to_pylist()


def commits(store):
    return {name: len(history(f"my_cube++{name}", store)) for name in ("seed", "enrich", "un")}


def test_delete_rows_deletes_the_cells_of_a_query(run, folder):
    ran = run("my_cube", "delete-rows", "--where", "v2 == '1'", "--yes")
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert lines[:4] == TABLE.replace("to rewrite", "written").replace("       0 B", "    0 B").splitlines()
    assert [line.partition(", commit ")[0] for line in lines[4:]] == ["seed: 1 row deleted", "enrich: 1 row deleted"]
    assert cells(folder) == [1, 2, 3]
    assert commits(folder / "store") == {"seed": 2, "enrich": 2, "un": 1}


def test_a_dry_run_says_what_would_be_done(run, folder):
    before = contents(str(folder / "store"))
    assert run("my_cube", "delete-rows", "--where", "i1 == 10", "--dry-run").out == TABLE
    found = run("my_cube", "delete-rows", "--where", "i1 == 10", "--dry-run", "--format", "json").json
    assert (found["dry_run"], found["datasets"]["seed"]["deleted"], found["datasets"]["seed"]["commit"]) == (
        True,
        1,
        None,
    )
    assert contents(str(folder / "store")) == before


@pytest.mark.usefixtures("at_a_terminal")
def test_on_a_terminal_it_shows_what_would_be_done_and_asks(run, folder):
    before = contents(str(folder / "store"))
    ran = run("my_cube", "delete-rows", "--where", "i1 == 10", typed="n\n")
    assert (ran.code, ran.out) == (1, TABLE)
    assert "Delete 2 rows of cube my_cube? [y/N]" in ran.err
    assert contents(str(folder / "store")) == before
    assert run("my_cube", "delete-rows", "--where", "i1 == 10", typed="y\n").out.startswith(TABLE + "seed: 1 row ")
    assert cells(folder) == [1, 2, 3]


@pytest.mark.parametrize("command", ["delete-rows", "forget"])
@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--where", "x == 0"], "Without a terminal, give --yes, or --dry-run to see what would be done."),
        (["--yes"], "Missing option '--where'"),
        (["--yes", "--where", "nope == 0"], "nope"),
        (["--yes", "--where", "x >= 0"], "delete_cube"),
    ],
    ids=["no answer", "no condition", "no column", "no cell left"],
)
def test_what_is_not_clear_is_refused(run, folder, command, options, error):
    before = contents(str(folder / "store"))
    ran = run("my_cube", command, *options)
    assert (ran.code, ran.out) == (2, "")
    assert error in ran.err
    assert contents(str(folder / "store")) == before


@pytest.mark.usefixtures("at_a_terminal")
def test_nothing_is_asked_where_no_row_matches(run, folder):
    before = contents(str(folder / "store"))
    ran = run("my_cube", "delete-rows", "--where", "x == 77")
    assert (ran.code, ran.out, ran.err) == (0, "No row changes: there is nothing to do.\n", "")
    assert contents(str(folder / "store")) == before


@pytest.fixture
def secret(folder):
    """A cell with a text, which was corrected once."""
    for text in ("first secret", "second secret"):
        rows = SEED.slice(0, 1).set_column(0, "x", pa.array([9]))
        append_to_cube(
            {"seed": rows, "enrich": pa.table({"x": [9], "p": [0], "q": ["a"], "v2": [text], "v3": [0]})},
            CUBE,
            folder / "store",
        )


def texts(store):
    """All names, values, statistics, documents and history entries of a store."""
    return "\n".join(f"{path} {readable(path)}" for path in store.rglob("*") if path.is_file())


def readable(path):
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pylist(), pq.read_metadata(path).to_dict()
    data = path.read_bytes()
    if path.name == "_common_metadata":
        return pq.read_schema(path)
    return zstandard.ZstdDecompressor().decompress(data, 10**7) if path.suffix == ".zst" else data


@pytest.mark.usefixtures("secret")
def test_forget_leaves_nothing(run, folder):
    assert "first secret" in texts(folder / "store")
    ran = run("my_cube", "forget", "--where", "v2 == 'second secret'", "--yes")
    assert (ran.code, ran.err) == (0, "")
    assert "secret" not in texts(folder / "store")
    assert not [key for key in keys(str(folder / "store")) if "_history" in key and "my_cube" in key]
    assert cells(folder) == [0, 1, 2, 3]
    assert "seed: 2 rows deleted, commit " in ran.out
    assert "\nRemoved: " in ran.out
    assert ran.out.endswith("\n".join(f"  - {text}" for text in BEYOND_REACH) + "\n")
    assert run("my_cube", "verify", "--deep").code == 0


@pytest.mark.usefixtures("secret")
def test_forget_says_what_it_would_do(run, folder):
    before = contents(str(folder / "store"))
    out = run("my_cube", "forget", "--where", "x == 9", "--dry-run").out
    assert " of older states and their history, and 4 files with the rows" in out
    found = run("my_cube", "forget", "--where", "x == 9", "--dry-run", "--format", "json").json
    assert (found["dry_run"], found["datasets"]["seed"]["deleted"], found["waiting"]) == (True, 2, [])
    assert found["beyond_reach"] == list(BEYOND_REACH)
    assert contents(str(folder / "store")) == before


@pytest.mark.usefixtures("secret", "at_a_terminal")
def test_forget_asks_once_and_says_what_is_lost(run, folder):
    before = contents(str(folder / "store"))
    ran = run("my_cube", "forget", "--where", "x == 9", typed="n\n")
    assert ran.code == 1
    assert ran.err.count("[y/N]") == 1
    assert "Delete 4 rows of cube my_cube, then remove all history" in ran.err
    assert "No older state can be read or restored any more" in ran.err
    assert contents(str(folder / "store")) == before
    ran = run("my_cube", "forget", "--where", "x == 9", typed="y\n")
    assert ran.out.count("files untouched") == 1
    assert "secret" not in texts(folder / "store")


@pytest.mark.usefixtures("at_a_terminal")
def test_forget_where_no_cell_matches_says_so_before_it_asks(run):
    ran = run("my_cube", "forget", "--where", "x == 77", typed="n\n")
    assert (ran.code, ran.out) == (1, "No cell matches.\n")
    assert "Remove all history" in ran.err
    assert run("my_cube", "forget", "--where", "x == 77", "--yes").out.startswith("No cell matches.\nRemoved: ")


@pytest.mark.usefixtures("secret")
def test_forget_finishes_what_was_interrupted(run, folder):
    run("my_cube", "delete-rows", "--where", "x == 9", "--yes")
    assert "secret" in texts(folder / "store")
    ran = run("my_cube", "forget", "--where", "x == 9", "--yes", "--format", "json")
    assert ran.json["datasets"]["seed"]["deleted"] == 0
    assert ran.json["removed"]
    assert "secret" not in texts(folder / "store")


@pytest.mark.usefixtures("secret", "no_pauses")
def test_forget_takes_a_stopped_write_back_and_its_files(run, folder):
    """The write has rows of the cell that no reader sees."""

    def at_the_seed(call):
        return "crash" if (call.operation, call.key) == ("put_if", document_key("my_cube++seed")) else None

    store = open_store(str(folder / "store"))
    before = query_cube_arrow(CUBE, store)
    with pytest.raises(SimulatedCrash):
        delete_cells(CUBE, FaultyStore(store, at_the_seed), C("x") == 9)
    assert query_cube_arrow(CUBE, open_store(str(folder / "store"))).equals(before)
    assert run("my_cube", "forget", "--where", "x == 9", "--yes").code == 0
    assert "secret" not in texts(folder / "store")
    assert run("my_cube", "verify", "--deep").code == 0

from __future__ import annotations

import pyarrow as pa
import pytest

from kartothek_cube import append_to_cube, build_cube, list_cubes
from tests.support.cli_cubes import CUBE, SEED, contents, keys


def test_delete_removes_the_cube_and_says_nothing(run, folder):
    ran = run("my_cube", "delete")
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    assert keys(str(folder / "store"), "my_cube") == []
    assert list_cubes(str(folder / "store")) == ["other"]


def test_delete_of_some_datasets(run, folder):  # cube 248
    assert run("my_cube", "delete", "--include", "enri??,un", "--exclude", "e*").code == 0
    assert {key.partition("/")[0].partition(".")[0] for key in keys(str(folder / "store"), "my_cube")} == {
        "my_cube++enrich",
        "my_cube++seed",
    }


@pytest.mark.parametrize(
    "options", [["--exclude", "*"], ["--dry-run"], ["--dry-run", "--include", "un", "--format", "json"]], ids=" ".join
)
def test_delete_of_nothing(run, folder, options):  # cube 250
    before = contents(str(folder / "store"))
    assert run("my_cube", "delete", *options).code == 0
    assert contents(str(folder / "store")) == before


def test_that_nothing_is_left_to_delete_is_said(run):  # cube 250
    ran = run("my_cube", "delete", "--exclude", "*")
    assert (ran.code, ran.out, ran.err) == (0, "", "No dataset is left by --include and --exclude: nothing is done.\n")


def test_a_store_that_cannot_be_written_to_is_not_asked_about(run, folder, monkeypatch):
    (folder / "skv.yml").write_text("dataset: {url: store, readonly: true}", encoding="utf-8")
    monkeypatch.setattr("kartothek_cube.cli.output._answer", pytest.fail)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    for call in (["delete"], ["rename", "new"]):
        ran = run("my_cube", *call)
        assert (ran.code, ran.out) == (2, "")
        assert " cannot be written to" in ran.err


def test_delete_says_what_it_would_delete(run, folder):
    found = run("my_cube", "delete", "--dry-run", "--include", "un", "--format", "json").json
    assert found["dry_run"] is True
    assert sorted(found["datasets"]["un"]) == keys(str(folder / "store"), "my_cube++un")
    lines = run("my_cube", "delete", "--dry-run", "--include", "un").out.splitlines()
    assert lines[0] == f"Would be deleted: un, {len(lines) - 1} files"
    assert [line.removeprefix("  - ") for line in lines[1:]] == found["datasets"]["un"]


@pytest.fixture
def garbage(folder):
    """Files of a build that was replaced."""
    before = set(keys(str(folder / "store"), "other"))
    build_cube(
        pa.table({"x": [0], "p": [0]}),
        CUBE.copy(dimension_columns=["x"], partition_columns=["p"], uuid_prefix="other"),
        folder / "store",
        overwrite=True,
    )
    return {key for key in before if key.endswith(".parquet") and "/table/p" in key}


def test_cleanup_removes_what_is_old_enough_and_says_nothing(run, folder, garbage):
    store = str(folder / "store")
    assert run("other", "cleanup").out == ""
    assert garbage <= set(keys(store))
    ran = run("other", "cleanup", "--grace", "0", "--retain", "0s")
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    assert not garbage & set(keys(store))
    assert run("my_cube", "verify").code == 0


def test_cleanup_says_what_it_would_remove(run, folder, garbage):
    before = contents(str(folder / "store"))
    waiting = run("other", "cleanup", "--dry-run", "--format", "json").json
    assert waiting["removed"] == []
    assert garbage <= {file["key"] for file in waiting["waiting"]}
    out = run("other", "cleanup", "--dry-run", "--grace", "0", "--retain", "0").out
    assert out.startswith("Would be removed: ")
    assert "history entry older than --retain" in out
    assert "options(" not in out
    assert all(key in out for key in garbage)
    assert contents(str(folder / "store")) == before
    removed = run("other", "cleanup", "--grace", "0", "--retain", "0", "--format", "json").json
    assert garbage <= {file["key"] for file in removed["removed"]}


@pytest.mark.parametrize("text", ["soon", "12", "-1d", "1w"])
def test_a_duration_has_a_unit(run, text):
    ran = run("my_cube", "cleanup", f"--grace={text}")
    assert ran.code == 2
    assert "is no duration; write 90s, 15m, 12h, 7d or 0." in ran.err


def test_compact_merges_files(run, folder):
    append_to_cube(SEED, CUBE, folder / "store")
    assert run("my_cube", "compact", "--dry-run").out.splitlines() == [
        "enrich: nothing to do",
        next(
            line
            for line in run("my_cube", "compact", "--dry-run").out.splitlines()
            if line.startswith("seed: 8 files would be merged into 4, 8 rows")
        ),
        "un: nothing to do",
    ]
    assert run("my_cube", "compact", "--exclude", "*").out == ""
    found = run("my_cube", "compact", "--where", "p == 0", "--include", "seed", "--format", "json").json
    assert (found["dry_run"], found["datasets"]["seed"]["files_before"], found["datasets"]["seed"]["files_after"]) == (
        False,
        4,
        2,
    )
    assert run("my_cube", "compact").out.splitlines()[1].startswith("seed: 4 files merged into 2, 4 rows")
    assert run("my_cube", "compact", "--where", "v1 == 0").code == 2


def test_compact_sorts_rows_across_files(run):
    found = run("my_cube", "compact", "--sort-by", "x, v1", "--include", "seed", "--format", "json").json
    assert found["datasets"]["seed"]["commit"]
    assert run("my_cube", "compact", "--sort-by", "x", "--include", "seed").out == "seed: nothing to do\n"
    assert run("my_cube", "compact", "--zorder-by", "x,v1", "--include", "seed").out.startswith("seed: 4 files merged")
    refused = run("my_cube", "compact", "--zorder-by", "x")
    assert (refused.code, "sort_by" in refused.err) == (2, True)

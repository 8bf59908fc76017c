"""Commands that look at a cube, and those that work on its history and its names."""

from __future__ import annotations

import pytest

from kartothek_cube import C, append_to_cube, build_cube, list_cubes, open_cube, plan_cube_query, query_cube_arrow
from kartothek_cube.cli.commands.history import shortened
from kartothek_cube.cli.context import Failure, resolved
from kartothek_cube.core.dataset.history import history
from kartothek_cube.core.maintenance import copy as rename
from tests.support.cli_cubes import CUBE, ENRICH, SEED, contents, keys, leave_unmade


def rows(folder, cube=CUBE):
    return query_cube_arrow(cube, folder / "store").num_rows


def test_explain_is_what_the_plan_says(run, folder):
    plan = plan_cube_query(CUBE, folder / "store", C("x") == 1, partition_by="i1", payload_columns=["v1"])
    options = ["--where", "x == 1", "--by", "i1", "--columns", "v1"]
    assert run("my_cube", "explain", *options).out == plan.explain() + "\n"
    assert run("my_cube", "explain", *options, "--format", "json").json["title"] == plan.explain().splitlines()[0]


def test_the_report_is_a_page(run, folder):
    assert run("my_cube", "report").out == "my_cube.html\n"
    assert "my_cube" in (folder / "my_cube.html").read_text(encoding="utf-8")
    assert run("my_cube", "report", "--output", "-").out.lstrip().lower().startswith("<!doctype html>")
    assert run("my_cube", "report", "--output", "page.html", "--format", "json").json == {"file": "page.html"}


def test_a_report_that_cannot_be_written_leaves_the_earlier_one(run, folder, monkeypatch):
    assert run("my_cube", "report").code == 0
    earlier = (folder / "my_cube.html").read_bytes()

    def full(path, text, encoding):
        path.write_bytes(text[:10].encode(encoding))
        raise OSError("No space is left.")

    monkeypatch.setattr("pathlib.Path.write_text", full)
    ran = run("my_cube", "report")
    assert (ran.code, ran.err) == (1, "Error: No space is left.\n")
    assert (folder / "my_cube.html").read_bytes() == earlier
    assert not list(folder.glob(".*.partial"))


def test_a_report_is_json_where_that_is_wanted(run):
    assert "my_cube" in run("my_cube", "report", "--output", "-", "--format", "json").json["html"]


@pytest.mark.parametrize(
    ("name", "message"), [("store", "it is a directory."), ("no/page.html", "there is no directory no.")]
)
def test_a_report_has_a_place(run, name, message):
    ran = run("my_cube", "report", "--output", name)
    assert (ran.code, ran.out, ran.err) == (1, "", f"Error: Could not write {name}: {message}\n")


def test_a_damaged_cube_has_a_report(run, folder):
    (folder / "store" / f"{CUBE.ktk_dataset_uuid(CUBE.seed_dataset)}.by-dataset-metadata.json").write_bytes(b"{")
    assert "document-unreadable" in run("my_cube", "report", "--output", "-").out


def test_files(run, folder):
    found = run("my_cube", "files", "--format", "json").json["datasets"]
    assert sorted(file["key"] for files in found.values() for file in files) == [
        key for key in keys(str(folder / "store"), "my_cube") if key.endswith(".parquet") and "/table/" in key
    ]
    (path,) = (folder / "store" / "my_cube++un").glob("table/*.parquet")
    assert found["un"] == [{"key": f"my_cube++un/table/{path.name}", "bytes": path.stat().st_size}]
    some = run("my_cube", "files", "--where", "p == 0 & q == a", "--exclude", "un").out.splitlines()
    assert [line.partition(":")[0] for line in some if not line.startswith(" ")] == ["enrich", "seed"]
    assert sum("/p=0/q=a/" in line for line in some) == 2
    path.unlink()
    assert "  missing" in run("my_cube", "files").out


def test_verify_says_by_its_status_whether_there_are_errors(run, folder):
    ran = run("my_cube", "verify")
    assert (ran.code, ran.out.splitlines()[1]) == (0, "Nothing was found.")
    assert run("my_cube", "verify", "--deep").out.startswith(
        "Verified cube 'my_cube' with all data: 3 datasets, 9 partitions, 9 files"
    )
    next((folder / "store" / "my_cube++un").glob("table/*.parquet")).unlink()
    ran = run("my_cube", "verify", "--format", "json")
    assert (ran.code, ran.json["ok"], ran.json["findings"][0]["check"]) == (1, False, "missing-file")


def test_verify_names_the_command_that_mends(run, folder):
    build_cube({"seed": SEED}, CUBE.copy(uuid_prefix="mended"), folder / "store")
    run("mended", "index", "seed", "v1")
    run("mended", "index", "seed", "v1")
    next((folder / "store" / "mended++seed" / "indices" / "i1").iterdir()).unlink()
    out = run("mended", "verify").out
    assert "    mend: kartothek_cube mended cleanup\n" in out
    assert "    mend: kartothek_cube mended index seed i1\n" in out
    assert "garbage_collect_dataset" in str(run("mended", "verify", "--format", "json").json)


def test_commits_are_told_apart_by_as_little_as_need_be():
    rows = [
        {"time": "2024-05-01T12:00:00.123456+00:00", "commit": f"{start}{'0' * (32 - len(start))}", "cube": None}
        for start in ("aaaaaaaaab", "aaaaaaaaac")
    ]
    assert [row["commit"] for row in shortened(rows)] == ["aaaaaaaaab", "aaaaaaaaac"]
    assert [row["time"] for row in shortened(rows)] == ["2024-05-01T12:00:00Z"] * 2
    for text, message in (
        ("aaaa", "Several commits begin with aaaa: aaaaaaaaab"),
        ("aaa", "Could not find commit aaa;"),
        ("", "Could not find commit ;"),
    ):
        with pytest.raises(Failure, match=message):
            resolved(rows, text)
    assert resolved(rows, "aaaaaaaaab") == rows[0]["commit"]


def test_a_commit_in_the_place_of_a_dataset_is_told_apart(run):
    ran = run("my_cube", "undo", "12ce536f")
    assert (ran.code, ran.err) == (2, "Error: 12ce536f is no dataset. A commit is named by --commit 12ce536f.\n")


def test_history_and_undo(run, folder):
    append_to_cube(SEED, CUBE, folder / "store")
    commits = run("my_cube", "history", "seed", "--format", "json").json["commits"]
    assert [(c["dataset"], c["added"], c["removed"], c["kept"]) for c in commits[:1]] == [("seed", 4, 0, True)]
    lines = run("my_cube", "history", "seed").out.splitlines()
    assert lines[0].split() == ["time", "dataset", "commit", "added", "removed", "cube", "kept", "tags"]
    assert len(lines) == 3
    assert commits[0]["commit"] in lines[1]

    before = contents(str(folder / "store"))
    expected = f"Would be undone: commit {commits[0]['commit']} of seed: 4 partitions go, 0 come back\n"
    assert run("my_cube", "undo", "seed", "--dry-run").out == expected
    assert run("my_cube", "undo", "--dry-run").out == expected
    assert contents(str(folder / "store")) == before
    ran = run("my_cube", "undo", "seed", "--format", "json")
    assert ran.json["undone"] == [{"dataset": "seed", "commit": commits[0]["commit"], "added": 4, "removed": 0}]
    assert len(history("my_cube++seed", folder / "store")) == 3


def append_to_two(folder):
    append_to_cube(
        {"seed": SEED.slice(0, 1), "un": SEED.slice(0, 1).select(["y"]).append_column("v4", [[9]])},
        CUBE,
        folder / "store",
    )


def test_the_history_of_a_cube_has_a_row_for_each_write(run, folder):
    append_to_two(folder)
    writes = run("my_cube", "history", "--format", "json").json["commits"]
    assert list(writes[0]) == ["time", "datasets", "commit", "added", "removed", "tags", "kept"]
    assert writes[0]["commit"] == history("my_cube++un", folder / "store")["cube"].iloc[0]
    assert (writes[0]["datasets"], writes[0]["tags"]) == (["seed", "un"], [])
    assert [writes[0][name] for name in ("added", "removed", "kept")] == [2, 0, True]
    lines = run("my_cube", "history").out.splitlines()
    assert lines[0].split() == ["time", "datasets", "commit", "added", "removed", "tags", "kept"]
    assert lines[1].split()[1:] == ["seed,", "un", writes[0]["commit"], "2", "0", "yes"]
    assert len(lines) == 1 + len(writes)


@pytest.mark.parametrize("named", [False, True])
def test_a_write_to_several_datasets_is_undone_in_all(run, folder, named):
    append_to_two(folder)
    write = run("my_cube", "history", "--format", "json").json["commits"][0]["commit"]
    before = contents(str(folder / "store"))
    options = ["--commit", write[:12]] if named else []
    assert run("my_cube", "undo", "--dry-run", *options).out.count("Would be undone: ") == 2
    assert contents(str(folder / "store")) == before
    assert run("my_cube", "undo", *options).out.count("Undone: ") == 2
    writes = run("my_cube", "history", "--format", "json").json["commits"]
    assert [write["datasets"] for write in writes[:2]] == [["seed", "un"]] * 2
    assert run("my_cube", "undo", "un", "--format", "json").json["undone"][0]["dataset"] == "un"
    assert run("my_cube", "history", "un").out.count("\n") == 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["undo"], "because it made"),
        (["undo", "nope"], "Could not find dataset nope"),
        (["undo", "--commit", "nope"], "Could not find commit nope; `history` lists those that are kept."),
        (["undo", "seed"], "made dataset 'my_cube++seed'; `delete --include seed` deletes it."),
        (["history", "nope"], "Could not find dataset nope"),
        (["rename", "my_cube"], "The cube is called my_cube already. Nothing was renamed."),
        (["rename", "seed", "--dataset", "seed"], "The dataset is called seed already. Nothing was renamed."),
        (["rename", "other"], "There is already a dataset other++seed. Nothing was renamed."),
        (["rename", "new", "--dataset", "nope"], "Could not find dataset nope"),
        (["rename", "a++b"], "a++b"),
    ],
)
def test_what_cannot_be_done_changes_nothing(run, folder, arguments, message):
    before = contents(str(folder / "store"))
    ran = run("my_cube", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err
    assert contents(str(folder / "store")) == before


def test_a_cube_gets_another_name(run, folder):
    expected = query_cube_arrow(CUBE, folder / "store")
    names = {f"my_cube++{name}": f"new++{name}" for name in ("enrich", "un", "seed")}
    assert run("my_cube", "rename", "new", "--dry-run", "--format", "json").json == {"dry_run": True, "renamed": names}
    assert run("my_cube", "rename", "new").out.splitlines() == [
        f"Renamed: {old} to {new}" for old, new in names.items()
    ]
    assert list_cubes(folder / "store") == ["new", "other"]
    assert query_cube_arrow(open_cube("new", folder / "store"), folder / "store").equals(expected)


def test_a_dataset_gets_another_name(run, folder):
    assert run("my_cube", "rename", "cells", "--dataset", "seed").code == 0
    cube = open_cube("my_cube", folder / "store")
    assert cube.seed_dataset == "cells"
    assert rows(folder, cube) == 4


@pytest.mark.parametrize("name", ["enrich", "seed"])
def test_an_interrupted_rename_goes_on(run, folder, monkeypatch, name):
    before = query_cube_arrow(CUBE, folder / "store")
    delete = rename.delete_whole_dataset

    def interrupted(store, uuid):
        if uuid == f"my_cube++{name}":
            raise KeyboardInterrupt
        delete(store, uuid)

    monkeypatch.setattr(rename, "delete_whole_dataset", interrupted)
    assert run("my_cube", "rename", "new").code == 1
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    assert run("my_cube", "rename", "new").code == 0
    assert query_cube_arrow(open_cube("new", folder / "store"), folder / "store").equals(before)
    assert keys(str(folder / "store"), "my_cube") == []


def test_a_rename_does_not_mix_two_cubes(run, folder):
    build_cube({"main": SEED}, CUBE.copy(uuid_prefix="taken", seed_dataset="main"), folder / "store")
    before = contents(str(folder / "store"))
    ran = run("my_cube", "rename", "taken")
    assert (ran.code, ran.err) == (
        2,
        "Error: There is already a cube taken with the seed dataset taken++main. Nothing was renamed.\n",
    )
    assert contents(str(folder / "store")) == before


def test_a_name_of_what_nobody_sees_is_free(run, folder):
    leave_unmade(str(folder / "store"), "unmade")
    ran = run("my_cube", "rename", "unmade", "--dry-run")
    assert (ran.code, ran.err) == (0, "")


def test_what_made_a_dataset_is_not_undone_in_others_either(run, folder):
    made = build_cube({"seed": SEED, "one": ENRICH}, CUBE.copy(uuid_prefix="fresh"), folder / "store")
    commit = history("fresh++seed", folder / "store")["cube"].iloc[0]
    before = contents(str(folder / "store"))
    assert set(made) == {"seed", "one"}
    for option in ("--dry-run", "--yes"):
        ran = run("fresh", "undo", "--commit", commit, option)
        assert (ran.code, ran.out) == (2, "")
        assert "because it made one, seed. `delete --include` deletes datasets." in ran.err
    assert contents(str(folder / "store")) == before

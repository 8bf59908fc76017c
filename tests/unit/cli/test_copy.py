from __future__ import annotations

import pyarrow as pa
import pytest

from kartothek_cube import build_cube, options, query_cube_arrow
from kartothek_cube.core.stores.contract import Capabilities
from kartothek_cube.core.stores.local import LocalStore
from tests.support.cli_cubes import CUBE, ENRICH, SEED, UN, contents, keys

COPIED = "Copy datasets enrich,seed,un to target store...\n"


def data(store):
    return {key for key in keys(str(store)) if "/table/" in key and key.endswith(".parquet")}


def old_cube(folder):
    """Another state of the cube in the target."""
    old = pa.table({"x": [7], "y": [7], "p": [7], "q": ["z"], "i1": [7]})
    build_cube({"seed": old, "gone": pa.table({"x": [7], "p": [7], "q": ["z"], "v9": [7]})}, CUBE, folder / "two")
    return data(folder / "two")


def test_copy(run, folder):
    ran = run("my_cube", "copy", "--tgt_store", "two")
    assert (ran.code, ran.out, ran.err) == (0, COPIED, "")
    assert query_cube_arrow(CUBE, folder / "two").equals(query_cube_arrow(CUBE, folder / "store"))


def test_copy_to_a_url_as_json(run, folder):
    found = run("my_cube", "copy", "--tgt_url", str(folder / "two"), "--exclude", "un", "--format", "json").json
    assert found == {"dry_run": False, "deleted": [], "copied": ["enrich", "seed"]}
    assert {key.partition("/")[0] for key in data(folder / "two")} == {"my_cube++enrich", "my_cube++seed"}


@pytest.mark.parametrize("options", [[], ["--overwrite"], ["--overwrite", "--no-cleanup"]], ids=" ".join)
@pytest.mark.parametrize("target", [["--tgt_store", "dataset"], ["--tgt_url", "store"]], ids=" ".join)
def test_a_store_is_not_copied_onto_itself(run, folder, options, target):  # cube 251
    before = contents(str(folder / "store"))
    ran = run("my_cube", "copy", *target, *options)
    assert (ran.code, ran.out) == (2, "")
    assert "Error: Source and target store must be different." in ran.err
    assert contents(str(folder / "store")) == before


@pytest.mark.parametrize(
    ("target", "end"), [([], "."), (["--tgt_store", "two", "--tgt_url", "two"], ", not both.")], ids=["none", "both"]
)
def test_there_is_one_target(run, target, end):
    ran = run("my_cube", "copy", *target)
    assert ran.code == 2
    assert f"Give --tgt_store or --tgt_url{end}\n" in ran.err


def test_an_unknown_target_is_named(run):
    assert (
        run("my_cube", "copy", "--tgt_store", "nope").err
        == "Error: Could not find store nope in skv.yml, which has dataset, two.\n"
    )
    assert run("my_cube", "copy", "--tgt_store", "twoo").err.endswith(" which has dataset, two. Did you mean 'two'?\n")


def test_overwriting_leaves_the_source_and_nothing_else_of_its_datasets(run, folder):  # cube 252
    run("my_cube", "copy", "--tgt_store", "two")
    build_cube(
        {"seed": SEED, "enrich": ENRICH, "un": UN}, CUBE, folder / "two", partition_on={"un": []}, overwrite=True
    )
    ran = run("my_cube", "copy", "--tgt_store", "two", "--overwrite")
    assert (ran.code, ran.out) == (0, f"Deleting existing datasets enrich,seed,un from target store...\n{COPIED}")
    copied = {key for key in data(folder / "store") if key.startswith("my_cube")}
    assert copied == {key for key in data(folder / "two") if key in copied}
    assert query_cube_arrow(CUBE, folder / "two").equals(query_cube_arrow(CUBE, folder / "store"))


def test_without_cleanup_old_files_stay(run, folder):  # cube 252
    old = old_cube(folder)
    ran = run("my_cube", "copy", "--tgt_store", "two", "--overwrite", "--no-cleanup", "--exclude", "un")
    assert (ran.code, ran.out) == (
        0,
        "Skip cleanup, leave old existing cube.\nCopy datasets enrich,seed to target store...\n",
    )
    assert old < data(folder / "two")


def test_only_the_selected_datasets_are_deleted(run, folder):  # cube 252
    old_cube(folder)
    ran = run("my_cube", "copy", "--tgt_store", "two", "--overwrite", "--include", "seed")
    assert ran.out == "Deleting existing datasets seed from target store...\nCopy datasets seed to target store...\n"
    assert any("++gone/" in key for key in data(folder / "two"))


def test_overwriting_nothing_needs_no_cleanup(run):
    assert run("my_cube", "copy", "--tgt_store", "two", "--overwrite").out == COPIED


def test_without_overwrite_an_existing_cube_stays(run, folder):  # cube 253
    old_cube(folder)
    before = contents(str(folder / "two"))
    ran = run("my_cube", "copy", "--tgt_store", "two")
    assert (ran.code, ran.out) == (2, COPIED)
    assert (
        ran.err == 'Error: Failed to copy cube: Dataset "my_cube++seed" exists in target store '
        "but overwrite was set to False; --overwrite replaces it\n"
    )
    assert contents(str(folder / "two")) == before


def test_a_copy_that_cannot_work_deletes_nothing(run, folder):
    old = pa.table({"x": [7], "p": [7], "v1": [7.0]})
    build_cube(
        {"seed": old, "gone": pa.table({"x": [7], "p": [7], "v2": ["7"]})},
        CUBE.copy(dimension_columns=["x"], partition_columns=["p"], index_columns=[]),
        folder / "two",
    )
    before = contents(str(folder / "two"))
    ran = run("my_cube", "copy", "--tgt_store", "two", "--overwrite", "--include", "enrich,seed")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("Error: Failed to copy cube: ")
    assert contents(str(folder / "two")) == before


def test_nothing_selected_copies_nothing(run, folder):  # cube 250
    ran = run("my_cube", "copy", "--tgt_store", "two", "--exclude", "*")
    assert (ran.code, ran.out, ran.err) == (0, "", "No dataset is left by --include and --exclude: nothing is done.\n")
    assert keys(str(folder / "two")) == []


def test_a_dry_run_copies_nothing(run, folder):
    old_cube(folder)
    before = contents(str(folder / "two"))
    ran = run("my_cube", "copy", "--tgt_store", "two", "--overwrite", "--dry-run", "--include", "seed")
    assert ran.out == "Deleting existing datasets seed from target store...\nCopy datasets seed to target store...\n"
    assert contents(str(folder / "two")) == before


@pytest.mark.parametrize("options", [[], ["--dry-run"], ["--no-cleanup"]], ids=" ".join)
def test_a_link_to_the_store_is_the_store(run, folder, options):
    (folder / "link").symlink_to(folder / "store")
    before = contents(str(folder / "store"))
    ran = run("my_cube", "copy", "--tgt_url", "link", "--overwrite", *options)
    assert (ran.code, ran.out) == (2, "")
    assert "Error: Source and target store must be different." in ran.err
    assert contents(str(folder / "store")) == before


def test_one_place_with_two_names_is_found_out_by_trying(run, folder, monkeypatch):
    monkeypatch.setattr("kartothek_cube.cli.commands.copy._is_same_directory", lambda *_: False)
    (folder / "link").symlink_to(folder / "store")
    before = contents(str(folder / "store"))
    ran = run("my_cube", "copy", "--tgt_url", "link", "--overwrite")
    assert (ran.code, ran.out) == (2, "")
    assert "Error: Source and target store must be different." in ran.err
    assert contents(str(folder / "store")) == before


def test_a_source_that_has_lost_files_replaces_nothing(run, folder):
    run("my_cube", "copy", "--tgt_store", "two")
    lost = min(key for key in data(folder / "store") if key.startswith("my_cube++seed"))
    (folder / "store" / lost).unlink()
    before = contents(str(folder / "two"))
    ran = run("my_cube", "copy", "--tgt_store", "two", "--overwrite")
    assert (ran.code, ran.out) == (2, "")
    assert (
        ran.err == f"Error: Failed to copy cube: the source store lacks 1 file of dataset seed, first {lost}. "
        "Nothing was changed.\n"
    )
    assert contents(str(folder / "two")) == before


def test_a_target_that_cannot_commit_is_not_emptied(run, folder):
    run("my_cube", "copy", "--tgt_store", "two")
    before = contents(str(folder / "two"))
    with options(require_atomic=True), pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            LocalStore,
            "capabilities",
            property(
                lambda _: Capabilities(atomic_put=True, conditional_put=False, modification_times=True, shared=True)
            ),
        )
        ran = run("my_cube", "copy", "--tgt_store", "two", "--overwrite")
    assert (ran.code, ran.out) == (2, "")
    assert contents(str(folder / "two")) == before

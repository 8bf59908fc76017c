from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from kartothek_cube.api.cube import MigrationReport, Remark, Verdict
from kartothek_cube.cli.commands.maintain import lines
from tests.support.cli_cubes import contents, leave_unmade

ARCHIVE = Path(__file__).parents[2] / "golden" / "kartothek-5.3.tar.xz"
CASES = ("cube_refusals", "cube_late_index", "cube_types_index", "ds_msgpack", "ds_unicode", "reference_bugs")


@pytest.fixture(scope="module")
def golden(tmp_path_factory):
    """Stores as kartothek wrote them."""
    folder = tmp_path_factory.mktemp("golden")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(
            folder, [m for m in archive if m.name.startswith(tuple(f"{case}/store" for case in CASES))], filter="data"
        )
    return folder


@pytest.fixture
def check(run, golden):
    def check(case, *options):
        url = str(golden / case / "store")
        before = contents(url)
        found = run("--url", url, "check-migration", "--format", "json", *options)
        assert contents(url) == before
        return found.code, {(v["kind"], v["name"]): v for v in found.json["verdicts"]}

    return check


def checks(verdict, weight):
    return {remark["check"] for remark in verdict["remarks"] if remark["weight"] == weight}


def test_what_reads_equally_is_said_so(check):
    code, found = check("ds_unicode")
    assert code == 0
    assert [verdict["outcome"] for verdict in found.values()] == ["equal"]


def test_differences_name_the_page_that_tells_of_them(check):
    code, found = check("reference_bugs")
    assert code == 0
    told = {
        remark["check"]: remark["text"]
        for verdict in found.values()
        for remark in verdict["remarks"]
        if remark["weight"] == "difference"
    }
    assert {"boolean-partition", "slash-in-value", "bytes-partition", "several-files"} <= told.keys()
    assert [name for name, text in told.items() if 'docs, page "' not in text] == ["members"]
    texts = [remark["text"] for verdict in found.values() for remark in verdict["remarks"]]
    assert any("--deep tells." in text for text in texts)
    assert not any("deep=True" in text for text in texts)


def test_notes_are_no_differences(check):
    _, found = check("ds_msgpack")
    (verdict,) = found.values()
    assert checks(verdict, "note") == {"msgpack"}
    assert checks(verdict, "difference") == {"date-column"}


@pytest.mark.parametrize("options", [(), ("--deep",)], ids=["shallow", "deep"])
def test_narrow_types_are_found_in_the_files(check, options):
    _, found = check("cube_types_index", *options)
    columns = {
        r["column"] for v in found.values() for r in v["remarks"] if r["check"] in ("narrow-type", "narrower-column")
    }
    assert {"j_int16", "j_float32"} <= columns


def test_what_cannot_be_read_has_a_reason(check):
    code, found = check("cube_late_index")
    assert code == 1
    assert found["cube", "late"]["outcome"] == "unreadable"
    assert found["cube", "late"]["remarks"][-1]["text"].startswith(
        "No dataset says that it is the seed: kartothek's build_dataset_indices drops"
    )
    code, found = check("cube_refusals")
    assert code == 1
    assert {verdict["outcome"] for (kind, _), verdict in found.items() if kind == "dataset"} <= {"equal", "different"}
    assert sum(verdict["outcome"] == "unreadable" for verdict in found.values()) >= 5


def test_a_cube_that_has_lost_its_seed_is_mended_as_the_page_for_movers_says(run, golden, tmp_path):
    import shutil

    from kartothek_cube import open_cube, query_cube
    from kartothek_cube.api.dataset import update_dataset_from_dataframes

    url = str(shutil.copytree(golden / "cube_late_index" / "store", tmp_path / "late"))
    metadata = {"ktk_cube_is_seed": True, "ktk_cube_dimension_columns": ["x"], "ktk_cube_partition_columns": ["p"]}
    update_dataset_from_dataframes([], url, "late++seed", metadata=metadata)
    assert "cube late: reads equally" in run("--url", url, "check-migration").out.splitlines()
    assert query_cube(open_cube("late", url), url)[0].columns.tolist() == ["p", "s", "v", "x"]


def test_a_cube_reads_as_its_datasets_do(check):
    _, found = check("cube_types_index")
    (remark,) = found["cube", "types_index"]["remarks"]
    assert (found["cube", "types_index"]["outcome"], remark["check"], remark["text"]) == (
        "different",
        "members",
        "What is said of its datasets holds for the cube: other, seed.",
    )


def test_a_line_names_all_columns_of_which_it_is_true(run, golden):
    printed = run("--url", str(golden / "reference_bugs" / "store"), "check-migration").out.splitlines()
    assert any(line.startswith("  ≠ index-coverage [v]: ") and "--deep tells." in line for line in printed)
    assert printed[-2] == "≠ another answer than in kartothek, · good to know, ✗ cannot be read. Nothing was changed."
    printed = run("--url", str(golden / "cube_types_index" / "store"), "check-migration").out.splitlines()
    assert sum("Stored as int16. kartothek gives that back, this library int64" in line for line in printed) == 2


def test_what_is_said_of_several_columns_is_one_line():
    remarks = (
        Remark("narrow-type", "Stored as int8.", "i1"),
        Remark("null-column", "Null.", "v1"),
        Remark("narrow-type", "Stored as int8.", "v2"),
        Remark("msgpack", "Packed.", weight="note"),
    )
    said = list(lines(MigrationReport((Verdict("uuid", "dataset", "different", remarks),))))
    assert said[1:4] == [
        "  ≠ narrow-type [i1, v2]: Stored as int8.",
        "  ≠ null-column [v1]: Null.",
        "  · msgpack: Packed.",
    ]


def test_damaged_datasets(run, folder):
    (folder / "store" / "other++seed.by-dataset-metadata.json").write_text("{", encoding="utf-8")
    ran = run("check-migration")
    assert ran.code == 1
    printed = ran.out.splitlines()
    assert "dataset my_cube++seed: reads equally" in printed
    assert "dataset other++seed: cannot be read" in printed
    assert "cube other: cannot be read" in printed
    assert printed[-1] == "4 read equally, 0 differently, 2 not at all."
    assert run("my_cube", "check-migration").out.splitlines()[-1] == "4 read equally, 0 differently, 0 not at all."


def test_a_cube_that_nobody_sees_is_left_out(run, folder):
    before = run("check-migration").out
    leave_unmade(str(folder / "store"), "unmade")
    assert run("check-migration").out == before
    assert run("unmade", "check-migration").err.startswith("Error: Could not load cube: Could not find seed dataset")


def test_single_datasets_and_an_empty_store(run, folder):
    import pandas as pd

    from kartothek_cube.api.dataset import store_dataframes_as_dataset

    store_dataframes_as_dataset(str(folder / "two"), "single", [pd.DataFrame({"x": [1]})])
    assert (
        run("--store", "two", "check-migration").out
        == "dataset single: reads equally\n1 read equally, 0 differently, 0 not at all.\n"
    )
    assert run("--url", "nothing", "check-migration").out == "0 read equally, 0 differently, 0 not at all.\n"

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from tests.cli.cubes import contents

ARCHIVE = Path(__file__).parents[1] / "golden" / "kartothek-5.3.tar.xz"
CASES = ("cube_refusals", "cube_late_index", "cube_types_index", "ds_msgpack", "ds_unicode", "reference_bugs")


@pytest.fixture(scope="module")
def golden(tmp_path_factory):
    """Stores as kartothek wrote them."""
    folder = tmp_path_factory.mktemp("golden")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, [m for m in archive if m.name.startswith(tuple(f"{case}/store" for case in CASES))], filter="data")
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
    told = {remark["check"]: remark["text"] for verdict in found.values() for remark in verdict["remarks"] if remark["weight"] == "difference"}
    assert {"boolean-partition", "slash-in-value", "bytes-partition", "several-files"} <= told.keys()
    assert all('docs, page "' in text for text in told.values())


def test_notes_are_no_differences(check):
    _, found = check("ds_msgpack")
    (verdict,) = found.values()
    assert checks(verdict, "note") == {"msgpack"}
    assert checks(verdict, "difference") == {"date-column"}


@pytest.mark.parametrize("options", [(), ("--deep",)], ids=["shallow", "deep"])
def test_narrow_types_are_found_in_the_files(check, options):
    _, found = check("cube_types_index", *options)
    columns = {r["column"] for v in found.values() for r in v["remarks"] if r["check"] in ("narrow-type", "narrower-column")}
    assert {"j_int16", "j_float32"} <= columns


def test_what_cannot_be_read_has_a_reason(check):
    code, found = check("cube_late_index")
    assert code == 1
    assert found["cube", "late"]["outcome"] == "unreadable"
    assert found["cube", "late"]["remarks"][-1]["text"] == 'Could not find seed dataset for cube "late".'
    code, found = check("cube_refusals")
    assert code == 1
    assert {verdict["outcome"] for (kind, _), verdict in found.items() if kind == "dataset"} <= {"equal", "different"}
    assert sum(verdict["outcome"] == "unreadable" for verdict in found.values()) >= 5


def test_damaged_datasets(run, folder):
    (folder / "store" / "other++seed.by-dataset-metadata.json").write_text("{", encoding="utf-8")
    ran = run("check-migration")
    assert ran.code == 1
    lines = ran.out.splitlines()
    assert "dataset my_cube++seed: reads equally" in lines
    assert "dataset other++seed: cannot be read" in lines
    assert "cube other: cannot be read" in lines
    assert lines[-1] == "4 read equally, 0 differently, 2 not at all."
    assert run("my_cube", "check-migration").out.splitlines()[-1] == "4 read equally, 0 differently, 0 not at all."


def test_single_datasets_and_an_empty_store(run, folder):
    import pandas as pd

    from kartothek_cube.api.dataset import store_dataframes_as_dataset

    store_dataframes_as_dataset(str(folder / "two"), "single", [pd.DataFrame({"x": [1]})])
    assert run("--store", "two", "check-migration").out == "dataset single: reads equally\n1 read equally, 0 differently, 0 not at all.\n"
    assert run("--url", "nothing", "check-migration").out == "0 read equally, 0 differently, 0 not at all.\n"

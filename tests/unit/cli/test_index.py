from __future__ import annotations

import pytest

from kartothek_cube.cube.verbs.describe import discover_cube
from tests.support.cli_cubes import contents


def indexed(folder, dataset):
    return set(discover_cube("my_cube", folder / "store")[1][dataset].snapshot.secondary_columns)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nope", "v2"], "Could not find dataset nope, known datasets are enrich, seed, un"),
        (["enrich", "nope"], "Could not find column nope, known columns are p, q, v2, v3, x"),
        (["enrich", "v2,x?"], "Could not find column x?, known columns are p, q, v2, v3, x"),
        (["enrich", "v2,p"], "Column p of dataset enrich is a partition key: it is indexed by the paths of the files."),
    ],
)
def test_what_cannot_be_indexed_is_named(run, folder, arguments, message):  # cube 254
    before = contents(str(folder / "store"))
    ran = run("my_cube", "index", *arguments)
    assert (ran.code, ran.out, ran.err) == (2, "", f"Error: {message}\n")
    assert contents(str(folder / "store")) == before


def test_an_index_is_added_and_metadata_stays(run, folder):  # cube 254
    metadata = discover_cube("my_cube", folder / "store")[1]["enrich"].metadata
    ran = run("my_cube", "index", "enrich", "v2")
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    assert indexed(folder, "enrich") == {"v2"}
    assert discover_cube("my_cube", folder / "store")[1]["enrich"].metadata == metadata
    assert "  - v2: string" in run("my_cube", "info").out


def test_a_glob_passes_over_partition_keys(run, folder):  # cube 254
    assert run("my_cube", "index", "seed", "*", "--format", "json").json == {
        "dataset": "seed",
        "columns": ["i1", "v1", "x", "y"],
    }
    assert indexed(folder, "seed") == {"i1", "v1", "x", "y"}
    assert run("my_cube", "index", "seed", "[p-q]").code == 0
    assert run("my_cube", "verify").code == 0

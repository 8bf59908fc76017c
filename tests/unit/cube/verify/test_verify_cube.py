from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pyarrow as pa
import pytest

from kartothek_cube import C, Cube, open_store, options
from kartothek_cube.api.cube import (
    append_to_cube,
    build_cube,
    build_cube_index,
    extend_cube,
    remove_partitions,
    update_cube,
    verify_cube,
)
from kartothek_cube.api.dataset import store_dataframes_as_dataset, verify_dataset
from kartothek_cube.core.metadata.commit_log import COMMITS_KEY, fingerprint
from kartothek_cube.core.metadata.document import from_mapping
from kartothek_cube.core.metadata.naming import JSON_SUFFIX, MSGPACK_SUFFIX, document_key, schema_key
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.cube.members import list_cube_prefixes
from kartothek_cube.errors import DatasetNotFound, InvalidInput, InvalidType
from tests.support.cubes import CUBE, SEED, build_two, files, with_column
from tests.support.damage import edit_file

GOLDEN = Path(__file__).parents[3] / "golden" / "kartothek-5.3.tar.xz"
# What the golden cubes have that kartothek, too, refuses to read as a cube.
REFUSED = {
    ("cube_late_index", "late"): {"cube-seed"},
    ("cube_refusals", "nodim"): {"cube-dimensions"},
    ("cube_refusals", "overlap"): {"cube-payload"},
    ("cube_refusals", "tables"): {"cube-tables"},
    ("cube_refusals", "types"): {"cube-types"},
    ("cube_refusals", "unpart"): {"cube-partition-keys"},
}
ALIGNED = pa.table({"x": [0, 1], "y": ["a", "a"], "p": [0, 1], "v3": [1, 2]})


@pytest.fixture
def store():
    return MemoryStore()


def found(store, cube=CUBE, *, deep=False):
    """Severity, check and dataset of each finding."""
    return [(f.severity, f.check, f.dataset.removeprefix("cube++")) for f in verify_cube(cube, store, deep).findings]


def edit(store, change, dataset="seed"):
    """Change the document of a dataset as its last writer would have written it."""
    key = document_key(f"cube++{dataset}")
    content = json.loads(store.get(key))
    change(content)
    chain = json.loads(content["metadata"][COMMITS_KEY])
    chain[-1][2] = fingerprint(from_mapping(content["partitions"], ""))
    store.put(key, json.dumps(content | {"metadata": content["metadata"] | {COMMITS_KEY: json.dumps(chain)}}).encode())


# --- healthy ones ---------------------------------------------------------------------------------


def aligned(store):
    build_cube({"seed": SEED, "e": ALIGNED}, CUBE, store)


def by_all_verbs(store):
    aligned(store)
    extend_cube({"f": pa.table({"x": [1], "v4": [5]})}, CUBE, store, partition_on={"f": []})
    append_to_cube({"seed": pa.table({"x": [5], "y": ["a"], "p": [2], "i1": [20], "v1": [1.5]})}, CUBE, store)
    update_cube({"e": ALIGNED.slice(1)}, CUBE, store, remove_conditions=C("p") == 1, ktk_cube_dataset_ids=["e"])
    remove_partitions(CUBE, store, C("p") == 2, ktk_cube_dataset_ids=["seed"])
    build_cube_index(CUBE, store, ["v3"], ["e"])


def with_foreign_members(store):
    """A dataset of the dataset verbs, in msgpack, is a member of the cube."""
    build_cube(SEED, CUBE, store)
    store_dataframes_as_dataset(
        store, "cube++g", [pa.table({"x": [0, 1], "v5": [1, 2]})], metadata_storage_format="msgpack"
    )


HEALTHY = {
    "seed only": lambda store: build_cube(SEED, CUBE, store),
    "aligned": aligned,
    "all verbs": by_all_verbs,
    "foreign members": with_foreign_members,
}


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("name", HEALTHY)
@pytest.mark.parametrize("cube", [CUBE, "cube"])
def test_a_healthy_cube_is_clean(store, name, cube, deep):
    HEALTHY[name](store)
    report = verify_cube(cube, store, deep)
    assert report.clean, report
    remarks = {
        "msgpack",
        "garbage",
        "kept-for-snapshots",
        "several-files",
        "overridden-cells",
        "index-coverage",
        "null-in-index-column",
        "lacking-column",
    }
    assert {f.check for f in report.findings} <= remarks


def test_a_plain_cube_has_no_finding_at_all(store):
    aligned(store)
    report = verify_cube(CUBE, store, deep=True)
    assert report.findings == ()
    assert (report.counts.datasets, report.counts.partitions, report.counts.files, report.counts.rows) == (2, 4, 4, 6)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("golden")
    with tarfile.open(GOLDEN) as archive:
        archive.extractall(folder, filter="data")
    return folder


def cases():
    with tarfile.open(GOLDEN) as archive:
        return sorted(name.split("/")[0] for name in archive.getnames() if name.endswith("/case.json"))


@pytest.mark.parametrize("case", cases())
def test_nothing_that_kartothek_wrote_is_taken_for_damage(corpus, case):
    store = open_store(str(corpus / case / "store"))
    keys = store.list("").keys
    uuids = sorted(
        {key.removesuffix(suffix) for key in keys for suffix in (JSON_SUFFIX, MSGPACK_SUFFIX) if key.endswith(suffix)}
    )
    assert uuids
    for uuid in uuids:
        report = verify_dataset(uuid, store, deep=True)
        assert report.clean, report
    for prefix in list_cube_prefixes(store):
        report = verify_cube(prefix, store, deep=True)
        assert {f.check for f in report.errors} == REFUSED.get((case, prefix), set()), report
        assert report.warnings == ()


# --- arguments ------------------------------------------------------------------------------------


def test_a_cube_without_a_dataset_is_an_error(store):
    for cube in (CUBE, "cube"):
        with pytest.raises(DatasetNotFound, match="cube"):
            verify_cube(cube, store)


def test_wrong_arguments_are_errors(store):
    build_cube(SEED, CUBE, store)
    for prefix in ("", "a b", "cube++seed", "../cube"):
        with pytest.raises(InvalidInput):
            verify_cube(prefix, store)
    with pytest.raises(InvalidType):
        verify_cube(7, store)
    with pytest.raises(InvalidType, match="deep"):
        verify_cube(CUBE, store, "yes")


# --- datasets -------------------------------------------------------------------------------------


def test_findings_of_the_datasets_are_in_the_report(store):
    aligned(store)
    store.delete(files(store, "e")[0])
    assert found(store, deep=True) == [("error", "missing-file", "e")]


def test_a_dataset_that_cannot_be_read_is_found(store):
    aligned(store)
    store.put(document_key("cube++e"), b"{")
    assert found(store, deep=True) == [("error", "document-unreadable", "e")]


def test_a_seed_that_cannot_be_read_is_found(store):
    aligned(store)
    store.put(document_key("cube++seed"), b"{")
    assert found(store) == [("error", "cube-seed", "cube"), ("error", "document-unreadable", "seed")]


def test_the_datasets_of_another_cube_are_not_looked_at(store):
    build_cube(SEED, CUBE, store)
    build_cube(SEED, CUBE.copy(uuid_prefix="cube+"), store)
    store.put(document_key("cube+++seed"), b"{")
    assert found(store) == []


# --- the datasets together ------------------------------------------------------------------------


def test_a_cube_without_a_seed_is_found(store):
    build_cube(SEED, CUBE, store)
    edit(store, lambda d: d["metadata"].update(ktk_cube_is_seed=False))
    assert found(store) == [("error", "cube-seed", "seed")]
    assert found(store, "cube") == [("error", "cube-seed", "cube")]


def test_two_seeds_are_found(store):
    aligned(store)
    edit(store, lambda d: d["metadata"].update(ktk_cube_is_seed=True), "e")
    assert found(store) == [("error", "cube-seed", "e")]
    assert found(store, "cube", deep=True) == [("error", "cube-seed", "cube")]


def test_a_seed_without_metadata_is_a_warning_where_the_cube_is_given(store):
    build_cube(SEED, CUBE, store)
    edit(store, lambda d: d["metadata"].pop("ktk_cube_is_seed"))
    assert found(store) == [("warning", "cube-metadata", "seed")]


@pytest.mark.parametrize(("dataset", "severity"), [("seed", "error"), ("e", "warning")])
def test_metadata_that_describe_another_cube_are_found(store, dataset, severity):
    aligned(store)
    edit(store, lambda d: d["metadata"].update(ktk_cube_dimension_columns=["x"]), dataset)
    assert found(store) == [(severity, "cube-metadata", dataset)]


def member(store, **columns):
    store_dataframes_as_dataset(store, "cube++g", [pa.table(columns)])


def test_columns_in_two_datasets_are_found(store):
    build_cube(SEED, CUBE, store)
    member(store, x=[0, 1], v1=[1.5, 2.5])
    assert found(store, deep=True) == [("error", "cube-payload", "cube")]


def test_shared_columns_of_other_types_are_found(store):
    build_cube(SEED, CUBE, store)
    member(store, x=["0", "1"], v5=[1, 2])
    assert found(store) == [("error", "cube-types", "cube")]


def test_a_dataset_without_dimensions_is_found(store):
    build_cube(SEED, CUBE, store)
    member(store, v5=[1, 2])
    assert found(store, deep=True)[0] == ("error", "cube-dimensions", "g")


def test_partition_columns_that_are_not_partitioned_on_are_found(store):
    build_cube(SEED, CUBE, store)
    member(store, x=[1], p=[1], v5=[1])
    assert found(store) == [("error", "cube-partition-keys", "g")]


def test_several_tables_are_found(store):
    build_cube(SEED, CUBE, store)
    store_dataframes_as_dataset(store, "cube++g", [{"data": {"core": pa.table({"x": [1], "v5": [1]})}}])
    assert found(store, deep=True) == [("error", "cube-tables", "cube")]


def test_missing_indices_are_found_and_mended_as_it_says(store):
    build_cube(SEED, CUBE, store)
    edit(store, lambda d: d["indices"].pop("y"))
    (finding,) = [f for f in verify_cube(CUBE, store).findings if f.severity == "error"]
    assert (finding.check, finding.dataset) == ("cube-indices", "cube++seed")
    eval(finding.mend, {"build_cube_index": build_cube_index, "cube": CUBE, "store": store})
    assert verify_cube(CUBE, store, deep=True).clean


def test_every_fault_is_found_and_not_only_the_first(store):
    build_cube(SEED, CUBE, store)
    edit(store, lambda d: [d["indices"].pop("y"), d["indices"].pop("i1")])
    member(store, x=["0", "1"], v1=[1.5, 2.5])
    assert {check for severity, check, _ in found(store) if severity == "error"} == {
        "cube-payload",
        "cube-types",
        "cube-indices",
    }


def test_hidden_columns_are_remarked(store):
    build_cube(SEED, CUBE, store)
    member(store, x=[0, 1], __v=[1, 2])
    assert found(store) == [("info", "hidden-column", "g")]


# --- rows -----------------------------------------------------------------------------------------


def without_indices(store):
    """A cube whose seed has no index and no statistics, so that its files can be changed."""
    cube = Cube(["x", "y"], ["p"], "cube", suppress_index_on=["x", "y"])
    build_cube(SEED.select(["x", "y", "p", "v1"]), cube, store, options=options(statistics=False))
    return cube


def test_a_null_in_a_dimension_is_found(store):
    cube = without_indices(store)
    edit_file(store, files(store)[0], lambda t: t.set_column(t.column_names.index("y"), "y", pa.array(["a", None])))
    assert found(store, cube, deep=True) == [("warning", "null-dimension", "seed")]


def test_a_cell_that_occurs_twice_in_a_file_is_found(store):
    cube = without_indices(store)
    edit_file(store, files(store)[0], lambda t: pa.concat_tables([t.slice(0, 1), t]))
    (finding,) = verify_cube(cube, store, deep=True).findings
    assert (finding.severity, finding.check, finding.key) == ("error", "duplicate-cells", files(store)[0])
    assert "{'x': 0, 'y': 'a'}" in finding.message


def test_a_cell_that_occurs_twice_in_an_unsorted_file_is_found(store):
    cube = without_indices(store)
    edit_file(store, files(store)[0], lambda t: pa.concat_tables([t, t.slice(0, 1)]))
    assert found(store, cube, deep=True) == [("error", "duplicate-cells", "seed"), ("info", "unsorted-file", "seed")]


def test_a_file_that_is_not_sorted_is_remarked(store):
    cube = without_indices(store)
    edit_file(store, files(store)[0], lambda t: t.take([1, 0]))
    assert found(store, cube, deep=True) == [("info", "unsorted-file", "seed")]


def test_cells_that_newer_files_override_are_counted(store):
    build_cube(SEED, CUBE, store)
    append_to_cube({"seed": SEED.slice(0, 3)}, CUBE, store)
    report = verify_cube(CUBE, store, deep=True)
    assert report.clean
    assert [(f.check, f.count) for f in report.findings if "cells" in f.check] == [("overridden-cells", 3)]
    assert report.of("several-files")[0].count == 2


def test_cells_that_the_seed_lacks_are_counted(store):
    build_two(store)
    report = verify_cube(CUBE, store, deep=True)
    assert [(f.check, f.dataset, f.count) for f in report.findings] == [("unseen-cells", "cube++e", 1)]


def test_cells_in_another_partition_than_the_seed_are_counted(store):
    build_cube({"seed": SEED, "e": with_column(ALIGNED, "p", [1, 1])}, CUBE, store)
    report = verify_cube(CUBE, store, deep=True)
    assert [(f.check, f.dataset, f.count) for f in report.findings] == [("unseen-cells", "cube++e", 1)]


def test_an_enrichment_may_have_further_partition_columns(store):
    build_cube({"seed": SEED, "e": ALIGNED}, CUBE, store, partition_on={"e": ["p", "x"]})
    assert found(store, deep=True) == []


def test_an_unreadable_file_is_said_once(store):
    build_two(store)
    store.put(files(store)[0], b"nonsense")
    assert [check for _, check, _ in found(store, deep=True)].count("file-unreadable") == 1


def test_pieces_may_be_small(store):
    n = 30_000
    big = pa.table(
        {
            "x": range(n),
            "y": ["a"] * n,
            "p": [i % 2 for i in range(n)],
            "i1": [i % 5 for i in range(n)],
            "v1": [0.5] * n,
        }
    )
    build_cube({"seed": big, "e": big.select(["x", "p"]).append_column("v3", pa.array(range(n)))}, CUBE, store)
    report = verify_cube(CUBE, store, True, options=options(bytes_in_flight=1))
    assert (report.findings, report.counts.rows) == ((), 2 * n)


# --- commits of several datasets ------------------------------------------------------------------


def name_cube_commit(store, dataset, write, datasets):
    """Let the last commit of a dataset be a part of a write to several."""

    def change(content):
        chain = json.loads(content["metadata"][COMMITS_KEY])
        chain[-1] = [*(chain[-1] + [None, None])[:3], "2024-05-01T10:30:00+00:00", [write, datasets]]
        content["metadata"][COMMITS_KEY] = json.dumps(chain)

    edit(store, change, dataset)


def test_a_write_that_all_participants_have_is_right(store):
    aligned(store)
    for dataset in ("seed", "e"):
        name_cube_commit(store, dataset, "w", ["cube++e", "cube++seed"])
    assert found(store) == []


def test_a_write_that_stopped_halfway_is_found(store):
    aligned(store)
    name_cube_commit(store, "seed", "before", [])
    name_cube_commit(store, "e", "w", ["cube++e", "cube++seed"])
    assert found(store) == [("warning", "cube-commit", "e")]


def test_a_write_to_a_dataset_that_is_gone_is_right(store):
    aligned(store)
    name_cube_commit(store, "seed", "w", ["cube++gone", "cube++seed"])
    name_cube_commit(store, "e", "w", ["cube++gone", "cube++seed"])
    assert found(store) == []


def test_a_missing_schema_file_of_a_member_is_found(store):
    aligned(store)
    store.delete(schema_key("cube++e"))
    assert found(store) == [("warning", "schema-file-missing", "e")]

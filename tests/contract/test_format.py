"""The page about the format is enough: a reader and a writer that were made from it agree with this
library.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from kartothek_cube.api.cube import (
    C,
    Cube,
    append_to_cube,
    build_cube,
    extend_cube,
    query_cube_arrow,
    remove_partitions,
)
from kartothek_cube.api.dataset import (
    compact_dataset,
    create_empty_dataset_header,
    read_table_arrow,
    store_dataframes_as_dataset,
    update_dataset_from_dataframes,
    verify_dataset,
    write_single_partition,
)
from kartothek_cube.api.discover import discover_cube
from kartothek_cube.api.serialization import CsvSerializer
from tests.support import by_the_page as reader
from tests.support import write_by_the_page as writer
from tests.support.all_types import ALL_TYPES, IN_CSV, INDEXED, PARTITION_VALUES, SPELLINGS

ARCHIVE = Path(__file__).parents[1] / "golden" / "kartothek-5.3.tar.xz"
# Of the cubes those whose datasets have something of their own.
GOLDEN = ("ds_", "cube_float_partition", "cube_late_index", "cube_types_", "cube_unicode")


def assert_equal_rows(rows, ours):
    assert rows.column_names == ours.column_names
    for name in rows.column_names:
        assert repr(rows[name].to_pylist()) == repr(ours[name].to_pylist()), name


def assert_read_alike(folder, uuid, table="table"):
    """The page's reader gives what this library gives, in the same order, and each index leads to
    exactly the rows of a value.
    """
    rows = reader.read_table(folder, uuid, table)
    assert_equal_rows(rows, read_table_arrow(uuid, f"hfs://{folder}", table=table))
    for column in {*reader.read_document(folder, uuid).get("indices", {})} & {*rows.column_names}:
        for value in rows[column].drop_null().unique().to_pylist()[:3]:
            wanted = rows.filter(pc.equal(rows[column], pa.scalar(value, rows[column].type)))
            assert_equal_rows(reader.rows_where(folder, uuid, column, value, table), wanted)
    return len(rows)


def document_of(folder, uuid="u"):
    return reader.read_document(folder, uuid)


@pytest.fixture
def url(tmp_path):
    return f"hfs://{tmp_path}"


# What kartothek wrote


@pytest.fixture(scope="module")
def golden(tmp_path_factory):
    folder = tmp_path_factory.mktemp("golden")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, [member for member in archive if "/store" in member.name], filter="data")
    return folder


def test_golden_datasets(golden):
    read = 0
    for store in sorted(path for path in golden.glob("*/store") if path.parent.name.startswith(GOLDEN)):
        for uuid in reader.list_datasets(store):
            for table in {table for files in reader.partitions_of(store, uuid).values() for table in files}:
                assert_read_alike(store, uuid, table)
                read += 1
    assert read == 114


def test_golden_cubes(golden):
    found = 0
    for store in sorted(
        path for path in golden.glob("cube_*/store") if path.parent.name not in {"cube_refusals", "cube_late_index"}
    ):  # no seed there
        for prefix in {uuid.partition("++")[0] for uuid in reader.list_datasets(store) if "++" in uuid}:
            seed, members = reader.read_cube(store, prefix)
            cube, datasets = discover_cube(prefix, f"hfs://{store}")
            assert (seed, {*members}) == (f"{prefix}++{cube.seed_dataset}", {*datasets})
            assert tuple(members[cube.seed_dataset]["ktk_cube_dimension_columns"]) == cube.dimension_columns
            assert tuple(members[cube.seed_dataset]["ktk_cube_partition_columns"]) == cube.partition_columns
            found += 1
    assert found == 61


@pytest.mark.parametrize(
    "case", ["cube_empty", "cube_from_datasets", "cube_join_pl", "cube_updates", "cube_types_dimension"]
)
def test_golden_cells(golden, case):
    store = golden / case / "store"
    for prefix in {uuid.partition("++")[0] for uuid in reader.list_datasets(store) if "++" in uuid}:
        cube, _ = discover_cube(prefix, f"hfs://{store}")
        assert cells_of(reader.read_cells(store, prefix)) == cells_of(
            query_cube_arrow(cube, f"hfs://{store}").to_pylist()
        )


def cells_of(rows):
    return sorted(repr(sorted(row.items())) for row in rows)


# What this library writes


@pytest.mark.parametrize("encoding", ["json", "msgpack"])
def test_all_types(tmp_path, url, encoding):
    rows = pa.table({**dict(zip(ALL_TYPES.column_names, ALL_TYPES.columns, strict=True)), **SPELLINGS})
    indices = [*INDEXED, *SPELLINGS.keys() - {"dur_us", "list_large"}]
    store_dataframes_as_dataset(url, "u", [rows], secondary_indices=indices, metadata_storage_format=encoding)
    assert reader.list_datasets(tmp_path) == ["u"]
    assert not {finding.check for finding in verify_dataset("u", url).findings} & {
        "schema-spelling",
        "schema-without-pandas",
    }
    assert assert_read_alike(tmp_path, "u") == 3


@pytest.mark.parametrize("compress", [True, False])
def test_csv(tmp_path, url, compress):
    store_dataframes_as_dataset(url, "u", [ALL_TYPES.select(IN_CSV)], df_serializer=CsvSerializer(compress=compress))
    assert assert_read_alike(tmp_path, "u") == 3


@pytest.mark.parametrize("name", PARTITION_VALUES)
def test_partition_values(tmp_path, url, name):
    rows = pa.table({"p": PARTITION_VALUES[name], "ä =": ["a/b", "%"][: len(PARTITION_VALUES[name])], "v1": range(2)})
    store_dataframes_as_dataset(url, "u", [rows], partition_on=["p", "ä ="])
    assert assert_read_alike(tmp_path, "u") == 2
    writer.write_dataset(tmp_path, "w", rows, ["p", "ä ="], [])
    assert_read_alike(tmp_path, "w")
    assert {label.rpartition("/")[0] for label in document_of(tmp_path)["partitions"]} == {
        label.rpartition("/")[0] for label in document_of(tmp_path, "w")["partitions"]
    }


def test_an_empty_dataset(tmp_path, url):
    store_dataframes_as_dataset(url, "u", [ALL_TYPES.slice(0, 0)], partition_on=["i64"], secondary_indices=["s"])
    assert assert_read_alike(tmp_path, "u") == 0
    assert document_of(tmp_path)["partitions"] == {}


def deliveries(url):
    """A dataset with a commit of each kind, one at a time."""
    rows = pa.table({"p": ["a", "a", "b"], "x": [1, 2, 3], "i1": [1, None, 2], "v1": ["u", "", None]})
    yield store_dataframes_as_dataset(url, "u", [rows], partition_on=["p"], secondary_indices=["i1"], metadata={"k": 1})
    yield update_dataset_from_dataframes([rows], url, "u", metadata={"k": 2})
    yield update_dataset_from_dataframes([rows.slice(2)], url, "u", delete_scope=[{"p": "b"}])
    yield compact_dataset("u", url)
    yield update_dataset_from_dataframes(None, url, "u", delete_scope=[{"p": "a"}])


def test_every_commit_is_read_and_its_history_leads_back(tmp_path, url):
    before = None
    for _ in deliveries(url):
        assert_read_alike(tmp_path, "u")
        after = document_of(tmp_path)
        (entry,) = (
            entry
            for entry in history(tmp_path)
            if entry["commit"] == json.loads(after["metadata"]["kartothek_cube.commits"])[-1][0]
        )
        if before is not None:
            assert reader.document_before(after, entry) == before
        left_out = ("kartothek_cube.commits", "kartothek_cube.statistics")
        before = after | {"metadata": {k: v for k, v in after["metadata"].items() if k not in left_out}}
    assert len(history(tmp_path)) == 5


def history(folder):
    return [json.loads(reader.unzstd(path.read_bytes())) for path in folder.glob("u/_history/*.json.zst")]


def test_a_header_and_files_that_no_document_names(tmp_path, url):
    rows = pa.table({"p": ["a", "b"], "v1": [1, 2]})
    create_empty_dataset_header(url, "u", {"table": rows.schema}, partition_on=["p"])
    write_single_partition(url, "u", rows)
    assert "partitions" not in document_of(tmp_path)
    assert assert_read_alike(tmp_path, "u") == 2


def test_a_label_that_looks_like_a_partition(tmp_path, url):
    store_dataframes_as_dataset(url, "u", [{"label": "x=1/y", "data": {"table": pa.table({"x": [2]})}}])
    assert assert_read_alike(tmp_path, "u") == 1
    assert reader.read_table(tmp_path, "u")["x"].to_pylist() == [2]


def test_an_old_document(tmp_path, url):
    rows = pa.table({"p": [1, 2, 2], "i1": [5, 6, 5], "v1": ["u", "", None]})
    writer.write_dataset(tmp_path, "u", rows, ["p"], ["i1"])
    document = document_of(tmp_path)
    labels = list(document["partitions"])
    old = {
        "dataset_metadata_version": 4,
        "dataset_uuid": "u",
        "indices": {"i1": {"5": labels, "6": labels[1:]}},
        "future": {},
    }
    writer.write_document(tmp_path, "u", old | {"partitions": document["partitions"]})
    assert assert_read_alike(tmp_path, "u") == 3
    update_dataset_from_dataframes([rows], url, "u")
    assert assert_read_alike(tmp_path, "u") == 6
    assert document_of(tmp_path).keys() == {*document, "indices"}  # nobody keeps what he does not know


CUBE = Cube(["x"], ["p"], "c", index_columns=["i1"])
CELLS = {
    "seed": pa.table({"x": [1, 2, 3], "p": ["a", "a", "ü/"], "v1": ["u", None, "w"]}),
    "more": pa.table({"x": [3, 1], "p": ["ü/", "a"], "i1": [7, 8]}),
}


def test_a_cube_with_enrichments(tmp_path, url):
    build_cube({"seed": CELLS["seed"]}, CUBE, url)
    extend_cube({"more": CELLS["more"]}, CUBE, url)
    append_to_cube({"seed": CELLS["seed"].slice(0, 1)}, CUBE, url)
    remove_partitions(CUBE, url, C("p") == "a", ["more"])
    seed, members = reader.read_cube(tmp_path, "c")
    assert seed == "c++seed"
    assert {*members} == {*CELLS}
    assert [assert_read_alike(tmp_path, f"c++{name}") for name in sorted(members)] == [1, 4]
    append_to_cube({"seed": CELLS["seed"].set_column(2, "v1", pa.array(["new"] * 3))}, CUBE, url)
    assert cells_of(reader.read_cells(tmp_path, "c")) == cells_of(query_cube_arrow(CUBE, url).to_pylist())
    assert {cell["v1"] for cell in reader.read_cells(tmp_path, "c")} == {"new"}


def test_how_files_are_written(tmp_path, url):
    many = pa.table({"x": range(10_001), "p": [1] * 10_001, "v1": range(10_001)})
    build_cube({"seed": many, "more": many.slice(0, 10).rename_columns(["x", "p", "v2"])}, CUBE, url)
    files = {
        path.relative_to(tmp_path).parts[0]: pq.ParquetFile(path) for path in tmp_path.glob("*/table/p=1/*.parquet")
    }
    assert {name: chunk_of(file).compression for name, file in files.items()} == {
        "c++seed": "ZSTD",
        "c++more": "SNAPPY",
    }
    for file in files.values():
        assert file.metadata.format_version == "2.6"
        assert chunk_of(file).statistics.has_min_max
        assert file.schema_arrow.metadata is None
    index = pq.ParquetFile(tmp_path / document_of(tmp_path, "c++seed")["indices"]["x"])
    assert index.read()["x"].to_pylist() == many["x"].to_pylist()
    assert [index.metadata.row_group(i).num_rows for i in range(index.num_row_groups)] == [10_000, 1]
    assert chunk_of(index).compression == "ZSTD"


def chunk_of(file):
    return file.metadata.row_group(0).column(0)


# What the page's writer writes


def test_the_same_as_this_library(tmp_path, url):
    """What other libraries compare is the same in both: members and their order, fields, entries of
    pandas' metadata.
    """
    rows = ALL_TYPES.append_column("p", [["a", "b", "a"]])
    store_dataframes_as_dataset(url, "u", [rows], partition_on=["p"], secondary_indices=INDEXED)
    writer.write_dataset(tmp_path, "w", rows, ["p"], INDEXED)
    ours, theirs = document_of(tmp_path), document_of(tmp_path, "w")
    assert list(ours) == list(theirs)
    files = [
        {"schema": f"{uuid}/table/_common_metadata"} | document_of(tmp_path, uuid)["indices"] for uuid in ("u", "w")
    ]
    for name in files[0]:
        schema, other = (pq.read_schema(tmp_path / keys[name]) for keys in files)
        assert str(schema.remove_metadata()) == str(other.remove_metadata())
    pandas = [json.loads(pq.read_schema(tmp_path / keys["schema"]).metadata[b"pandas"]) for keys in files]
    assert pandas[0]["columns"] == pandas[1]["columns"]
    assert pandas[0].keys() == pandas[1].keys()


@pytest.mark.parametrize("packed", [False, True])
def test_this_library_reads_and_updates(tmp_path, url, packed):
    writer.write_dataset(tmp_path, "u", ALL_TYPES, [], INDEXED, packed=packed, a=1)
    assert_equal_rows(ALL_TYPES.select(sorted(ALL_TYPES.column_names)), read_table_arrow("u", url))
    writer.append_rows(tmp_path, "u", ALL_TYPES)
    update_dataset_from_dataframes([ALL_TYPES], url, "u", metadata={"b": 2})
    assert assert_read_alike(tmp_path, "u") == 9
    writer.append_rows(tmp_path, "u", ALL_TYPES)
    assert assert_read_alike(tmp_path, "u") == 12
    assert [finding for finding in verify_dataset("u", url).findings if finding.severity == "error"] == []
    assert {"a", "b", "creation_time", "kartothek_cube.commits"} <= {*document_of(tmp_path)["metadata"]}


def test_this_library_queries_a_cube_of_the_pages_writer(tmp_path, url):
    writer.write_cube(tmp_path, "c", CELLS, "seed", ["x"], ["p"])
    cube, _ = discover_cube("c", url)
    assert cube == CUBE.copy(index_columns=[])
    assert query_cube_arrow(cube, url, C("x") > 1).select(["x", "p", "v1", "i1"]).to_pylist() == [
        {"x": 2, "p": "a", "v1": None, "i1": None},
        {"x": 3, "p": "ü/", "v1": "w", "i1": 7},
    ]

"""Building a cube: what is stored, and what is refused before anything is."""

from __future__ import annotations

import datetime
import json
from threading import Event

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kartothek_cube import options
from kartothek_cube.api.cube import Cube, append_to_cube, build_cube, query_cube, query_cube_arrow
from kartothek_cube.core.io.formats import ParquetFormat
from kartothek_cube.core.metadata.snapshot import parse_common_metadata
from kartothek_cube.core.stores.contract import ReadOnlyView
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.cube.write import stage as staging
from kartothek_cube.errors import (
    AlreadyExists,
    AtomicityRequired,
    CorruptDocument,
    InvalidInput,
    InvalidType,
    MultiTableCommitAborted,
    ReadOnlyStore,
    Unsupported,
)
from tests.support.cubes import (
    CUBE,
    ENRICH,
    SEED,
    answers,
    build_two,
    contents,
    files,
    index_of,
    refused,
    snapshot,
    stored_rows,
    table,
    with_column,
)

CUBE_KEYS = {
    "ktk_cube_dimension_columns",
    "ktk_cube_is_seed",
    "ktk_cube_partition_columns",
    "ktk_cube_suppress_index_on",
}


@pytest.fixture
def store():
    return MemoryStore()


# --- what is stored -------------------------------------------------------------------------------


def test_a_bare_frame_is_the_seed(store):  # cube 44
    assert set(build_cube(SEED, CUBE, store)) == {"seed"}
    assert {key.split("/")[0].split(".")[0] for key in contents(store)} == {"cube++seed"}


def test_the_seed_gets_indices_on_its_dimensions_and_partition_indices(store):  # cube 45, 46
    build_cube({"seed": SEED, "e": ENRICH}, CUBE, store, partition_on={"e": []})
    assert snapshot(store).secondary_columns == {"x", "y", "i1"}
    assert snapshot(store).indexed_columns == {"x", "y", "i1", "p"}
    assert snapshot(store, "e").indexed_columns == {"i2"}
    zero, one = snapshot(store).partitions.labels.to_pylist()
    assert (zero.split("/")[0], one.split("/")[0]) == ("p=0", "p=1")
    assert index_of(store, "x") == {0: {zero}, 1: {one}}
    assert index_of(store, "i1") == {10: {zero, one}, 20: {zero, one}}


def test_a_suppressed_dimension_has_no_index(store):  # cube 48
    build_cube(SEED, CUBE.copy(suppress_index_on=["x"]), store)
    assert snapshot(store).secondary_columns == {"y", "i1"}
    assert snapshot(store).document.metadata["ktk_cube_suppress_index_on"] == ["x"]


def test_index_columns_that_nobody_has_are_passed_over(store):  # cube 47
    build_cube(SEED, CUBE.copy(index_columns=["i1", "nowhere"]), store)
    assert snapshot(store).secondary_columns == {"x", "y", "i1"}


def test_frames_dicts_and_lists_of_the_caller_are_left_alone(store):  # cube 49
    frame, metadata, partition_on = SEED.to_pandas(), {"seed": {"a": [1]}}, {"e": []}
    data = [{"seed": frame, "e": ENRICH.to_pandas()}, None]
    copies = frame.copy(), json.dumps(metadata), dict(partition_on), [dict(data[0]), None]
    build_cube(data, CUBE, store, metadata=metadata, partition_on=partition_on)
    pd.testing.assert_frame_equal(frame, copies[0])
    assert json.dumps(metadata) == copies[1]
    assert partition_on == copies[2]
    assert data[0].keys() == copies[3][0].keys()


def test_files_are_sorted_by_the_dimensions_in_the_order_of_the_cube(store):  # cube 50
    build_cube(SEED, CUBE.copy(dimension_columns=["y", "x"]), store)
    rows = [stored_rows(store, key).select(["y", "x"]).to_pydict() for key in files(store)]
    assert rows == [{"y": ["a", "b"], "x": [0, 0]}, {"y": ["a", "b"], "x": [1, 1]}]


def test_files_lack_the_partition_columns_and_keep_the_order_of_the_others(store):
    build_cube(SEED.select(["v1", "p", "y", "i1", "x"]), CUBE, store)
    assert [stored_rows(store, key).column_names for key in files(store)] == [["v1", "y", "i1", "x"]] * 2
    assert snapshot(store).schema.names == ["p", "i1", "v1", "x", "y"]


def test_names_in_bytes_become_text(store):  # cube 51
    frame = SEED.to_pandas()
    frame.columns = [c.encode() for c in frame.columns]
    build_cube(frame, CUBE, store)
    assert stored_rows(store, files(store)[0]).column_names == ["x", "y", "i1", "v1"]


def test_a_column_of_nan_comes_back(store):  # cube 52
    build_cube(pd.DataFrame({"x": [0, 1], "y": "a", "p": 0, "v1": np.nan}), CUBE, store)
    (frame,) = query_cube(CUBE, store)
    assert frame["v1"].isna().all()
    assert frame["v1"].dtype == "float64"


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(lambda: SEED, id="table"),
        pytest.param(lambda: SEED.combine_chunks().to_batches()[0], id="batch"),
        pytest.param(SEED.to_reader, id="reader"),
        pytest.param(SEED.to_pandas, id="frame"),
        pytest.param(lambda: Streamed(SEED), id="c stream"),
        pytest.param(lambda: {"seed": SEED}, id="dict"),
        pytest.param(lambda: [SEED[:1], SEED[1:]], id="list"),
        pytest.param(lambda: (SEED[i : i + 1] for i in range(4)), id="generator"),
        pytest.param(lambda: (batch for batch in SEED.to_batches(max_chunksize=2)), id="generator of batches"),
        pytest.param(lambda: [{"seed": SEED[:3]}, None, SEED.to_pandas()[3:], {"seed": None}], id="mixed"),
        pytest.param(lambda: [SEED[:2], SEED[:0].to_pandas(), SEED[2:]], id="with an empty frame"),
        pytest.param(
            lambda: [SEED, pd.DataFrame({c: [] for c in SEED.column_names})], id="with an untyped empty frame"
        ),
    ],
)
def test_every_form_of_data_gives_the_same_cube(store, data):  # cube 67, 68, 70, 72
    build_cube(data(), CUBE, store)
    assert len(files(store)) == 2
    assert (
        answers(store)
        == SEED.select(sorted(SEED.column_names)).sort_by([("x", "ascending"), ("y", "ascending")]).to_pylist()
    )


class Streamed:
    """What Polars and DuckDB give: no class of pyarrow, but a stream."""

    def __init__(self, data):
        self._data = data

    def __arrow_c_stream__(self, requested_schema=None):
        return self._data.__arrow_c_stream__(requested_schema)


def test_seed_and_enrichment_may_come_in_different_elements(store):  # cube 68, 69
    build_cube(
        [{"seed": SEED[:2]}, {"e": ENRICH[:1]}, {"e": ENRICH[1:], "seed": SEED[2:]}],
        CUBE,
        store,
        partition_on={"e": []},
    )
    assert [row["v2"] for row in answers(store)] == [None, None, 10, 10]


def test_blocks_of_one_dataset_are_widened_to_a_common_type(store):
    build_cube([with_column(SEED[:2], "v1", pa.array([1, 2])), SEED[2:]], CUBE, store)
    assert snapshot(store).schema.field("v1").type == pa.float64()


def test_the_same_cell_may_stand_in_two_partitions(store):  # cube 65
    build_cube(table(x=[0, 0], y=["a", "a"], p=[0, 1], v1=[1, 2]), CUBE, store)
    assert [(row["p"], row["v1"]) for row in answers(store)] == [(0, 1), (1, 2)]


def test_a_dimension_may_repeat_where_another_differs(store):  # cube 64
    build_cube(table(x=[0, 0], y=["a", "b"], p=[0, 0]), CUBE, store)
    assert len(answers(store)) == 2


def test_a_projected_enrichment_may_repeat_a_dimension_across_partitions(store):  # cube 66
    build_cube({"seed": SEED, "e": table(y=["a", "a"], p=[0, 1], v2=[1, 2])}, CUBE, store)
    assert {(row["p"], row["y"]): row["v2"] for row in answers(store)} == {
        (0, "a"): 1,
        (0, "b"): None,
        (1, "a"): 2,
        (1, "b"): None,
    }


def test_an_enrichment_without_partitions_is_one_file(store):  # cube 90
    build_cube({"seed": SEED, "e": table(x=[1, 0], v2=[1, 2])}, CUBE, store, partition_on={"e": []})
    assert len(files(store, "e")) == 1
    assert files(store, "e")[0].count("/") == 2
    assert snapshot(store, "e").indexed_columns == set()


@pytest.mark.parametrize("keys", [["p", "x"], ["x", "p"], ["i2"], ["v2", "p"], ("x",), (c for c in ["p", "i2"])])
def test_an_enrichment_may_be_partitioned_by_anything(store, keys):  # cube 91, 92
    keys = list(keys)
    data = table(
        x=[0, 1], y=["a", "b"], i2=["u", "w"], v2=[1, 2], v3=[1.5, 2.5], **({"p": [0, 1]} if "p" in keys else {})
    )
    build_cube({"seed": SEED, "e": data}, CUBE, store, partition_on={"e": keys})
    assert snapshot(store, "e").partition_keys == tuple(keys)
    assert snapshot(store, "e").secondary_columns == ({"i2"} - set(keys))
    assert [(row["x"], row["y"], row["i2"], row["v2"]) for row in answers(store) if row["v3"]] == [
        (0, "a", "u", 1),
        (1, "b", "w", 2),
    ]


def test_row_groups_are_those_of_the_serializer(store):  # cube 95
    data = table(x=list(range(5)), y=["a"] * 5, p=[0] * 5)
    build_cube(data, CUBE, store, df_serializer=ParquetFormat(compression="SNAPPY", chunk_size=2))
    small = pq.ParquetFile(pa.BufferReader(store.get(files(store)[0]))).metadata
    default_store = MemoryStore()
    build_cube(data, CUBE, default_store)
    default = pq.ParquetFile(pa.BufferReader(default_store.get(files(default_store)[0]))).metadata
    assert (small.num_row_groups, small.row_group(0).column(0).compression) == (3, "SNAPPY")
    assert default.num_row_groups == 1


@pytest.mark.parametrize(("rows", "codec"), [(10, "SNAPPY"), (10_000, "ZSTD")])
def test_only_files_that_are_not_small_are_written_with_zstd(store, rows, codec):
    build_cube(
        table(x=range(rows), y=range(rows), p=[0] * rows, v1=range(rows)), Cube(["x", "y"], ["p"], "cube"), store
    )
    (key,) = files(store)
    assert pq.read_metadata(pa.BufferReader(store.get(key))).row_group(0).column(0).compression == codec


def test_metadata_has_what_the_user_gave_and_what_the_cube_needs(store):  # cube 85
    result = build_cube(
        {"seed": SEED, "e": ENRICH}, CUBE, store, metadata={"seed": {"a": {"b": [1, None]}}}, partition_on={"e": []}
    )
    seed, enrich = result["seed"].metadata, result["e"].metadata
    assert seed.keys() == {"a", "creation_time", *CUBE_KEYS}
    assert enrich.keys() == {"creation_time", *CUBE_KEYS}
    assert seed["a"] == {"b": [1, None]}
    assert (seed["ktk_cube_is_seed"], enrich["ktk_cube_is_seed"]) == (True, False)
    assert seed["ktk_cube_dimension_columns"] == ["x", "y"]
    assert enrich["ktk_cube_partition_columns"] == ["p"]
    assert datetime.datetime.fromisoformat(seed["creation_time"]).tzinfo is None


def test_cube_entries_of_the_user_are_overridden_but_not_the_creation_time(store):  # cube 86
    given = {"ktk_cube_is_seed": False, "ktk_cube_dimension_columns": ["z"], "creation_time": "2020-01-01T00:00:00"}
    found = build_cube(SEED, CUBE, store, metadata={"seed": given})["seed"].metadata
    assert (found["ktk_cube_is_seed"], found["ktk_cube_dimension_columns"], found["creation_time"]) == (
        True,
        ["x", "y"],
        "2020-01-01T00:00:00",
    )


def test_the_schema_file_has_normalised_types(store):
    data = table(
        x=pa.array([0], pa.int8()),
        y=["a"],
        p=pa.array([0], pa.int16()),
        v1=pa.array([1.5], pa.float32()),
        v2=pa.array([[1]], pa.list_(pa.uint8())),
    )
    build_cube(data, CUBE, store)
    schema = parse_common_metadata(store.get("cube++seed/table/_common_metadata"), "")
    assert {f.name: str(f.type) for f in schema} == {
        "p": "int64",
        "v1": "double",
        "v2": "list<item: uint64>",
        "x": "int64",
        "y": "string",
    }
    assert schema.names == ["p", "v1", "v2", "x", "y"]
    assert stored_rows(store, files(store)[0]).schema.field("x").type == pa.int8()


# --- overwriting ----------------------------------------------------------------------------------


def test_an_existing_cube_is_not_overwritten(store):  # cube 78
    build_two(store)
    with refused(store, AlreadyExists, "seed", "overwrite=True"):
        build_cube({"seed": SEED, "e": ENRICH}, CUBE, store, partition_on={"e": []})


def test_overwriting_keeps_nothing_of_the_former_state(store):  # cube 79
    build_two(store)
    build_cube(
        {"seed": SEED[:1], "e": ENRICH[1:]},
        CUBE,
        store,
        metadata={"seed": {"b": 1}},
        overwrite=True,
        partition_on={"e": []},
    )
    assert len(files(store)) == 1
    assert index_of(store, "i1") == {20: set(snapshot(store).partitions.labels.to_pylist())}
    assert answers(store) == [{"i1": 20, "i2": "one", "p": 1, "v1": 3.5, "v2": 10, "x": 1, "y": "b"}]


def test_overwriting_may_change_dimensions_partitions_and_types(store):
    build_cube(SEED, CUBE, store, metadata={"seed": {"a": 1}})
    other = Cube(["i1"], ["x"], "cube")
    build_cube(table(i1=["u"], x=[1.5], v9=[True]), other, store, overwrite=True)
    assert query_cube_arrow(other, store).to_pylist() == [{"i1": "u", "v9": True, "x": 1.5}]
    assert "a" not in snapshot(store).document.metadata


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_partial_overwrite_is_refused(store, overwrite):  # cube 80
    build_two(store)
    with refused(store, InvalidInput, "partial overwrite", "e"):
        build_cube(SEED, CUBE, store, overwrite=overwrite)


@pytest.mark.parametrize("overwrite", [False, True])
def test_an_enrichment_left_without_a_seed_counts_as_existing(store, overwrite):  # cube 81
    build_two(store)
    for key in [key for key in contents(store) if key.startswith("cube++seed")]:
        store.delete(key)
    with refused(store, InvalidInput, "partial overwrite", "e"):
        build_cube(SEED, CUBE, store, overwrite=overwrite)


def test_a_failed_overwrite_leaves_partitions_indices_types_and_metadata(store):  # cube 82
    build_two(store)
    before = answers(store)
    bad = {"seed": with_column(SEED, "v2", [1, 2, 3, 4]), "e": ENRICH}
    with refused(store, MultiTableCommitAborted, "v2"):
        build_cube(bad, CUBE, store, overwrite=True, partition_on={"e": []})
    assert answers(store) == before


def test_a_cube_that_is_not_valid_can_be_overwritten(store):
    build_two(store)
    demanding = CUBE.copy(index_columns=["v2"])
    with pytest.raises(InvalidInput, match="missing"):
        query_cube(demanding, store)
    build_cube({"seed": SEED, "e": ENRICH}, demanding, store, overwrite=True, partition_on={"e": []})
    assert len(query_cube(demanding, store)[0]) == 4


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_dataset_that_cannot_be_read_is_not_half_overwritten(store, overwrite):
    build_two(store)
    key = "cube++seed.by-dataset-metadata.json"
    document = json.loads(store.get(key))
    store.put(key, json.dumps({**document, "metadata": {}}).encode())
    store.delete("cube++seed/table/_common_metadata")
    with refused(store, AlreadyExists, "seed"):
        build_cube({"seed": SEED, "e": ENRICH}, CUBE, store, overwrite=overwrite, partition_on={"e": []})


def test_cubes_with_similar_prefixes_do_not_meet(store):
    for prefix in ("cube", "cube2", "cub", "cube+", "cube_x"):
        build_cube(SEED, CUBE.copy(uuid_prefix=prefix), store)
    assert all(
        len(answers(store, CUBE.copy(uuid_prefix=prefix))) == 4
        for prefix in ("cube", "cube2", "cub", "cube+", "cube_x")
    )


# --- what is refused ------------------------------------------------------------------------------


def test_nulls_are_counted_in_all_columns_at_once_with_what_helps():
    holed = with_column(SEED, "x", [1.0, float("nan"), None, 0.0])
    for column in ("p", "i1"):
        holed = with_column(holed, column, [None, 1, 2, 3])
    with pytest.raises(InvalidInput) as caught:
        build_cube(holed, CUBE, MemoryStore())
    assert str(caught.value) == (
        'Found NULL-values in partition column "p" of dataset "seed" (1 of 4 rows), '
        'dimension column "x" (2 of 4 rows), index column "i1" (1 of 4 rows). '
        "Drop these rows, as pandas' df.dropna(subset=['p', 'x', 'i1']) does, or fill them."
    )


def test_a_column_with_two_roles_is_named_once():
    holed = table(x=[1, None], i2=["a", None], v2=[1, 2])
    with pytest.raises(
        InvalidInput, match=r'partition column "i2" of .* rows\), partition column "x" \(1 of 2 rows\)\. Drop'
    ):
        build_cube({"seed": SEED, "e": holed}, CUBE, MemoryStore(), partition_on={"e": ["i2", "x"]})


WRONG_FRAMES = {
    "no dimension column y": (SEED.drop_columns(["y"]), InvalidInput, ["seed", "y"]),
    "no dimension column": (SEED.drop_columns(["y", "x"]), InvalidInput, ["seed", "x, y"]),
    "no partition column": (SEED.drop_columns(["p"]), InvalidInput, ["seed", "p"]),
    "null in a dimension": (
        with_column(SEED, "x", [1, None, 1, 0]),
        InvalidInput,
        ["NULL", "dimension", '"x"', "seed"],
    ),
    "null in a partition column": (
        with_column(SEED, "p", [1, None, 1, 0]),
        InvalidInput,
        ["NULL", "partition", '"p"', "seed"],
    ),
    "null in an index column": (
        with_column(SEED, "i1", [1, None, 1, 0]),
        InvalidInput,
        ["NULL", "index", '"i1"', "seed"],
    ),
    "NaN in a dimension": (
        with_column(SEED, "x", [1.0, float("nan"), 1.0, 0.0]),
        InvalidInput,
        ["NULL", "dimension", '"x"', "seed"],
    ),
    "only nulls in a partition column": (
        with_column(SEED, "p", pa.nulls(4)),
        InvalidInput,
        ["NULL", "partition", '"p"', "seed"],
    ),
    "duplicate cell": (pa.concat_tables([SEED, SEED[1:2]]), InvalidInput, ["seed", "x", "'a'", "0"]),
    "integer column name": (pd.DataFrame({"x": [1], "y": ["a"], "p": [0], 7: [1]}), InvalidType, ["seed", "7"]),
    "sparse column": (
        SEED.to_pandas().assign(v1=pd.arrays.SparseArray([0.0, 0, 0, 1])),
        InvalidType,
        ["seed", "parse"],
    ),
    "series": (pd.Series([1, 2]), InvalidType, ["Series"]),
    "series in a list": ([pd.Series([1, 2])], InvalidType, ["Series", "seed"]),
    "number in a dict": ({"seed": 1}, InvalidType, ["int", "seed"]),
    "text": ("seed", InvalidType, ["seed"]),
    "nothing": (None, InvalidType, ["None"]),
    "only None": ([None], InvalidInput, ["seed"]),
    "no datasets": ([], InvalidInput, ["seed", "missing", "data for no dataset"]),
    "empty dict": ({}, InvalidInput, ["seed", "missing", "data for no dataset"]),
    "no seed": (
        {"e": ENRICH, "a": ENRICH},
        InvalidInput,
        ["seed", "missing", "data for a, e", "Cube(seed_dataset=...)"],
    ),
    "duplicate column name": (
        pd.DataFrame([[1, "a", 0, 1]], columns=["x", "y", "p", "x"]),
        InvalidInput,
        ["seed", "x, y, p, x"],
    ),
    "duplicate column name in a table": (
        pa.table([[1], ["a"], [0], [1]], names=["x", "y", "p", "x"]),
        InvalidInput,
        ["seed", "x, y, p, x"],
    ),
    "different columns in two blocks": ([SEED, SEED.drop_columns(["v1"])], InvalidInput, ["seed"]),
    "incompatible types in two blocks": ([SEED, with_column(SEED, "v1", list("abcd"))], InvalidInput, ["seed"]),
    "dimension of mixed types": (pd.DataFrame({"x": [1, "a"], "y": "a", "p": 0}), TypeError, ["seed", "x"]),
    "dimension of lists": (with_column(SEED, "x", [[1], [2], [3], [4]]), InvalidType, ["seed", "x"]),
    "partition value too long for a key": (
        with_column(SEED, "p", ["a", "b", "c", "d" * 300]),
        InvalidInput,
        ["seed", "p", "dddd"],
    ),
    "a number": (5, InvalidType, ["5"]),
    "dimension of decimals": (
        with_column(SEED, "x", SEED["x"].cast(pa.decimal128(19))),
        NotImplementedError,
        ["seed", "x"],
    ),
    "timestamp finer than microseconds": (
        with_column(SEED, "v1", pa.array([1, 2, 3, 4], pa.timestamp("ns"))),
        InvalidInput,
        ["seed", "v1"],
    ),
    "month intervals": (
        with_column(SEED, "v1", pa.array([(1, 2, 3)] * 4, pa.month_day_nano_interval())),
        Unsupported,
        ["seed", "v1"],
    ),
    "partition column of zoned timestamps": (
        with_column(SEED, "p", pa.array([1, 2, 3, 4], pa.timestamp("us", "UTC"))),
        Unsupported,
        ["seed", "p"],
    ),
    "partition column of lists": (with_column(SEED, "p", [[1]] * 4), Unsupported, ["seed", "p"]),
    "partition column of bytes that are no text": (with_column(SEED, "p", [b"\xff"] * 4), Unsupported, ["seed", "p"]),
}


@pytest.mark.parametrize("name", WRONG_FRAMES)
def test_a_wrong_frame_is_refused_before_anything_is_written(
    store, name
):  # cube 53, 54, 55, 56, 57, 58, 60, 61, 62, 73, 96, 97
    data, error, words = WRONG_FRAMES[name]
    with refused(store, error, *words):
        build_cube(data, CUBE, store)


WRONG_ENRICHMENTS = {
    "no dimension column": (table(z=[1], p=[0]), {}, InvalidInput, ["e", "x, y"]),
    "duplicate cell by its own dimensions": (table(x=[1, 1], v2=[1, 2]), {"e": []}, InvalidInput, ['"e"', "x"]),
    "duplicate cell, differing only in an extra key": (
        table(x=[1, 1], k=[1, 2], v2=[1, 2]),
        {"e": ["k"]},
        InvalidInput,
        ['"e"', "x", "k"],
    ),
    "partition column, not partitioned": (table(x=[1], p=[0], v2=[1]), {"e": []}, InvalidInput, ["e", "p"]),
    "key that it lacks": (table(x=[1], v2=[1]), {"e": ["k"]}, InvalidInput, ["e", "k"]),
    "key twice": (table(x=[1], k=[1], v2=[1]), {"e": ["k", "k"]}, InvalidInput, ["e", "k, k"]),
    "nothing left outside the keys": (table(x=[1], k=[1]), {"e": ["k", "x"]}, InvalidInput, ["e", "x"]),
    "null in a key": (table(x=[1, 2], k=[1, None], v2=[1, 2]), {"e": ["k"]}, InvalidInput, ["e", "partition", '"k"']),
    "null in an index column": (table(x=[1, 2], i2=["a", None]), {"e": []}, InvalidInput, ["e", "index", '"i2"']),
    "float dimension": (table(x=[1.0], v2=[1]), {"e": []}, MultiTableCommitAborted, ["x", "seed", "e"]),
    "text partition column": (table(x=[1], p=["0"], v2=[1]), {}, MultiTableCommitAborted, ["p", "seed", "e"]),
    "payload of the seed": (table(x=[1], v1=[1.0], v2=[1]), {"e": []}, MultiTableCommitAborted, ["v1", "seed", "e"]),
    "payload of the seed as key": (
        table(x=[1], v1=[1.0], v2=[1]),
        {"e": ["v1"]},
        MultiTableCommitAborted,
        ["v1", "seed", "e"],
    ),
    "empty": (table(x=[1], v2=[1])[:0], {"e": []}, MultiTableCommitAborted, ["empty", "e"]),
    "empty, partitioned": (table(x=[1], p=[0], v2=[1])[:0], {}, MultiTableCommitAborted, ["empty", "e"]),
    "None": (None, {}, InvalidInput, ["e"]),
    "dimension of lists": (table(x=[[1]], v2=[1]), {"e": []}, InvalidType, ["x", "e"]),
    "partition is a key": (table(x=[1], partition=[1], v2=[1]), {"e": ["partition"]}, InvalidInput, ["partition", "e"]),
}


@pytest.mark.parametrize("name", WRONG_ENRICHMENTS)
def test_a_wrong_enrichment_is_refused_before_anything_is_written(
    store, name
):  # cube 59, 61, 63, 73, 74, 75, 76, 77, 88, 89, 93, 94, 97, 99
    data, partition_on, error, words = WRONG_ENRICHMENTS[name]
    with refused(store, error, *words):
        build_cube({"seed": SEED, "e": data}, CUBE, store, partition_on=partition_on)


@pytest.mark.parametrize("name", ["a b", "", "a++b", "ä", "a/b"])
def test_an_invalid_dataset_id_is_refused_before_anything_is_written(store, name):  # cube 98
    with refused(store, InvalidInput, name):
        build_cube({"seed": SEED, name: ENRICH}, CUBE, store, partition_on={name: []})


@pytest.mark.parametrize("role", ["dimension_columns", "partition_columns", "index_columns"])
def test_no_column_with_a_role_may_be_called_partition(store, role):  # cube 99
    old = {"dimension_columns": "y", "partition_columns": "p", "index_columns": "i1"}[role]
    data = SEED.rename_columns(["partition" if c == old else c for c in SEED.column_names])
    columns = tuple("partition" if c == old else c for c in getattr(CUBE, role))
    with refused(store, InvalidInput, "partition", "seed"):
        build_cube(data, CUBE.copy(**{role: columns}), store)


def test_an_empty_seed_aborts(store):  # cube 71
    with refused(store, MultiTableCommitAborted, "empty", "seed"):
        build_cube(SEED[:0], CUBE, store)


def test_the_reason_of_an_abort_is_its_cause(store):  # cube 71
    with pytest.raises(MultiTableCommitAborted) as caught:
        build_cube(SEED[:0], CUBE, store)
    assert isinstance(caught.value.__cause__, ValueError)
    assert "Cannot write empty datasets: seed" in str(caught.value.__cause__)


def test_payload_in_two_enrichments_aborts(store):  # cube 76
    with refused(store, MultiTableCommitAborted, "v2", "a, b"):
        build_cube(
            {"seed": SEED, "a": table(x=[1], v2=[1]), "b": table(x=[1], v2=[1])},
            CUBE,
            store,
            partition_on={"a": [], "b": []},
        )


@pytest.mark.parametrize(
    ("metadata", "error", "words"),
    [
        (["seed"], InvalidType, ["list"]),
        ("seed", InvalidType, ["str"]),
        ({"seed": 1}, InvalidType, ["seed", "int"]),
        ({"seed": None}, InvalidType, ["seed"]),
        ({"seed": {}, "u": {}, "t": {}}, InvalidInput, ["t, u"]),
        ({"seed": {"a": object()}}, TypeError, ["seed", "a"]),
        ({"seed": {"a": {1, 2}}}, TypeError, ["seed", "a"]),
    ],
)
def test_wrong_metadata_is_refused_before_anything_is_written(store, metadata, error, words):  # cube 84
    with refused(store, error, *words):
        build_cube(SEED, CUBE, store, metadata=metadata)


@pytest.mark.parametrize(
    ("partition_on", "error", "words"),
    [
        ({"seed": []}, InvalidInput, ["seed", "p"]),
        ({"seed": ["p", "x"]}, InvalidInput, ["seed", "p"]),
        ({"seed": ["p", "p"]}, InvalidInput, ["seed", "p, p"]),
        (["p"], InvalidType, ["list"]),
        ({"seed": 5}, InvalidType, ["seed", "5"]),
        ({"seed": None}, InvalidType, ["seed", "None"]),
    ],
)
def test_wrong_partition_on_is_refused_before_anything_is_written(store, partition_on, error, words):  # cube 87, 88
    with refused(store, error, *words):
        build_cube(SEED, CUBE, store, partition_on=partition_on)


def test_the_seed_is_partitioned_in_the_order_of_the_cube(store):  # cube 87
    cube = Cube(["x"], ["p", "q"], "cube")
    data = table(x=[0], p=[0], q=[0], v1=[1])
    with refused(store, InvalidInput, "seed", "p, q"):
        build_cube(data, cube, store, partition_on={"seed": ["q", "p"]})
    build_cube(data, cube, store, partition_on={"seed": ["p", "q"], "not there": ["k"]})
    assert snapshot(store).partition_keys == ("p", "q")


def test_a_read_only_store_stays_as_it_is(store):
    with refused(store, ReadOnlyStore, "cannot be written"):
        build_cube(SEED, CUBE, ReadOnlyView(store))


def test_a_store_without_conditional_put_is_refused_first(store):
    class Weak(ReadOnlyView):
        @property
        def capabilities(self):
            from dataclasses import replace

            return replace(self.inner.capabilities, conditional_put=False)

        def around(self, operation, key, action):
            return action()

    with refused(store, AtomicityRequired, "require_atomic"):
        build_cube(SEED, CUBE, Weak(store))


def test_the_message_of_duplicate_cells_says_what_differs(store):  # cube 62
    data = pa.concat_tables([SEED, with_column(SEED[1:2], "v1", [9.0])])
    with pytest.raises(InvalidInput, match=r"'v1': \(0\.5, 9\.0\)") as caught:
        build_cube(data, CUBE, store)
    assert "i1" not in str(caught.value)
    assert "'p': 0, 'x': 0, 'y': 'a'" in str(caught.value)


def test_of_several_wrong_datasets_the_first_is_told_of_whichever_is_found_first(store, monkeypatch):
    found, real = Event(), staging.prepare_parts

    def prepare(write, *others):
        assert write.id == "e" or found.wait(10)  # the seed only when the other one has failed
        try:
            return real(write, *others)
        finally:
            found.set()

    monkeypatch.setattr(staging, "prepare_parts", prepare)
    data = {"seed": pa.concat_tables([SEED, SEED]), "e": pa.concat_tables([ENRICH, ENRICH])}
    with options(threads=2), refused(store, InvalidInput, '"seed"'):
        build_cube(data, CUBE, store, partition_on={"e": []})


def test_datasets_that_are_checked_at_a_time_stay_within_the_bytes_in_flight(store, monkeypatch):
    weights = []
    monkeypatch.setattr(
        staging, "map_in_threads", lambda func, items, weight: weights.extend(map(weight, items)) or map(func, items)
    )
    build_two(store)
    assert weights == [2 * SEED.nbytes, 2 * ENRICH.nbytes]


def test_a_build_can_follow_its_own_refusal(store):
    with pytest.raises(InvalidInput):
        build_cube(SEED.drop_columns(["p"]), CUBE, store)
    build_cube(SEED, CUBE, store)
    append_to_cube(SEED, CUBE, store)
    assert len(answers(store)) == 4


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"partition_on": {"seed": ["x"]}, "metadata": {"u": {}}}, InvalidInput, "partition-on"),
        ({"metadata": {"u": {}}}, InvalidInput, "u"),
        ({"data": {"e": ENRICH}, "partition_on": {"e": ["k", "k"]}}, InvalidInput, "k, k"),
    ],
    ids=str,
)
def test_arguments_are_looked_at_before_the_store(store, arguments, error, words):
    store.put("cube++broken.by-dataset-metadata.json", b"{")
    with refused(store, error, words):
        build_cube(**{"data": SEED, "cube": CUBE, "store": store} | arguments)
    with refused(store, CorruptDocument, "broken"):
        build_cube(SEED.drop_columns(["x"]), CUBE, store)


def test_a_missing_seed_comes_before_a_partial_overwrite_and_that_before_the_frames(store):
    build_two(store)
    with refused(store, InvalidInput, "missing"):
        build_cube({"f": table(z=[1])}, CUBE, store)
    with refused(store, InvalidInput, "partial overwrite"):
        build_cube(SEED.drop_columns(["x"]), CUBE, store)
    with refused(store, InvalidInput, "Missing dimension columns"):
        build_cube({"seed": SEED.drop_columns(["x"]), "e": ENRICH}, CUBE, store, partition_on={"e": []})

from __future__ import annotations

import datetime as dt
import hashlib
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kartothek_cube import open_store
from kartothek_cube.api.serialization import ParquetSerializer
from kartothek_cube.core.arrow.difference import row_hashes, total_hash
from kartothek_cube.core.dataset.maintain import collect_dataset_metadata, hash_dataset
from kartothek_cube.core.dataset.write import store_dataframes_as_dataset
from kartothek_cube.core.kartothek.dataset_metadata import DatasetFactory
from kartothek_cube.core.snapshots.loader import load_snapshot
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import DatasetNotFound, InvalidInput, InvalidType, KeyNotFound, UnknownColumn, Unsupported
from kartothek_cube.testing.stores import CountingStore

UUID = "uuid"
ROWS = pd.DataFrame({"x": [1, 2, 3, 4], "p": ["a", "a", "b", "b"], "i1": [7, 7, 8, 9], "v1": [0.5, None, -0.0, 2.5]})
NAMES = [
    *("partition_label", "row_group_id", "row_group_compressed_size", "row_group_uncompressed_size"),
    *("number_rows_total", "number_row_groups", "serialized_size", "number_rows_per_row_group"),
]


@pytest.fixture
def store():
    return MemoryStore()


def build(store, *data, uuid=UUID, **more):
    frames = list(data) or [ROWS]
    return store_dataframes_as_dataset(
        store, uuid, frames, **{"partition_on": ["p"], "secondary_indices": ["i1"], "overwrite": True, **more}
    )


def labels(store):
    return load_snapshot(store, UUID).partitions.labels.to_pylist()


# --- footers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["memory", "local"])
def test_every_row_group_has_a_row_of_true_figures(tmp_path, kind):
    store = MemoryStore() if kind == "memory" else open_store(tmp_path)
    rows = pd.DataFrame({"x": np.arange(1000) // 10, "p": ["a"] * 900 + ["b"] * 100})
    build(store, rows, secondary_indices=None, df_serializer=ParquetSerializer(chunk_size=400, compression="ZSTD"))
    frame = collect_dataset_metadata(store, UUID)
    assert list(frame.columns) == NAMES
    assert frame["partition_label"].tolist() == [labels(store)[0]] * 3 + [labels(store)[1]]
    assert frame["row_group_id"].tolist() == [0, 1, 2, 0]
    assert frame["number_rows_per_row_group"].tolist() == [400, 400, 100, 100]
    assert frame["number_rows_total"].tolist() == [900, 900, 900, 100]
    assert frame["number_row_groups"].tolist() == [3, 3, 3, 1]
    keys = load_snapshot(store, UUID).files.to_pylist()
    assert frame["serialized_size"].tolist() == [len(store.get(keys[0]))] * 3 + [len(store.get(keys[1]))]
    groups = [pq.read_metadata(pa.BufferReader(store.get(key))).row_group(0) for key in keys]
    assert frame["row_group_uncompressed_size"].tolist()[::3] == [g.column(0).total_uncompressed_size for g in groups]
    assert frame["row_group_compressed_size"].tolist()[::3] == [g.column(0).total_compressed_size for g in groups]
    assert (frame["row_group_compressed_size"] < frame["row_group_uncompressed_size"]).all()


@pytest.mark.parametrize("predicates", [None, [[("p", "==", "z")]]])
def test_the_types_are_the_same_without_files(store, predicates):
    build(store, ROWS[:0] if predicates is None else ROWS)
    frame = collect_dataset_metadata(store, UUID, predicates=predicates)
    assert len(frame) == 0
    assert list(frame.columns) == NAMES
    assert [str(kind) for kind in frame.dtypes] == ["object"] + ["int64"] * 7
    build(store)
    assert [str(kind) for kind in collect_dataset_metadata(store, UUID).dtypes] == ["object"] + ["int64"] * 7


@pytest.mark.parametrize(
    ("predicates", "found"),
    [
        ([[("p", "==", "b")]], ["p=b"]),
        ([[("i1", "<", 8)]], ["p=a"]),
        ([[("x", "==", 1)]], ["p=a"]),
        ([[("x", "!=", 9)]], ["p=a", "p=b"]),
    ],
)
def test_predicates_choose_files_by_partition_values_indices_and_statistics(store, predicates, found):
    build(store)
    frame = collect_dataset_metadata(store, UUID, predicates=predicates)
    assert [label.partition("/")[0] for label in frame["partition_label"]] == found


def test_a_sample_can_be_repeated(store):  # L16
    build(store, pd.DataFrame({"x": range(20), "p": range(20), "i1": range(20)}))
    found = [
        collect_dataset_metadata(store, UUID, frac=0.3, random_state=seed)["partition_label"].tolist()
        for seed in (1, 1, 2)
    ]
    assert found[0] == found[1] != found[2]
    assert [len(f) for f in found] == [6, 6, 6]
    assert found[0] == [label for label in labels(store) if label in found[0]]
    assert len(collect_dataset_metadata(store, UUID, frac=1e-9)) == 1
    assert collect_dataset_metadata(store, UUID)["partition_label"].tolist() == labels(store)


@pytest.mark.parametrize("frac", [0, 0.0, -0.1, 1.1, float("nan"), None, "1", True])
def test_shares_outside_of_their_range_are_refused(store, frac):  # L16
    build(store)
    with pytest.raises(InvalidInput, match="`frac`"):
        collect_dataset_metadata(store, UUID, frac=frac)


def test_only_footers_are_read(store):
    build(store, pd.DataFrame({"x": np.random.default_rng(0).random(100_000), "p": "a", "i1": 1}))
    counting = CountingStore(store)
    collect_dataset_metadata(counting, UUID)
    assert counting.counts["ranges"] == 0
    assert counting.counts["list"] == 0


@pytest.mark.parametrize("table", [None, ["table"], {"table": 1}])
def test_what_is_no_name_of_a_table_is_refused(store, table):
    build(store)
    with pytest.raises(KeyNotFound, match="has no table"):
        collect_dataset_metadata(store, UUID, table)
    with pytest.raises(KeyNotFound, match="has no table"):
        hash_dataset(store, UUID, table=table)


def test_what_is_missing_or_no_parquet_is_named(store):
    with pytest.raises(DatasetNotFound):
        collect_dataset_metadata(store, UUID)
    build(store)
    with pytest.raises(KeyNotFound, match="nope"):
        collect_dataset_metadata(store, UUID, "nope")
    with pytest.raises(InvalidInput, match="factory"):
        collect_dataset_metadata(store)
    key = load_snapshot(store, UUID).files[0].as_py()
    store.delete(key)
    with pytest.raises(KeyNotFound, match=key):
        collect_dataset_metadata(store, UUID)


def test_csv_has_no_row_groups(store):
    from kartothek_cube.api.serialization import CsvSerializer

    build(store, df_serializer=CsvSerializer())
    with pytest.raises(Unsupported, match="no row groups"):
        collect_dataset_metadata(store, UUID)


# --- hashes of rows -------------------------------------------------------------------------------


def hash_of(column, kind=None):
    return int(total_hash(row_hashes(pa.table({"x": pa.array(column, type=kind)}), ["x"])))


def plain_hash(values):
    """The same in Python's integers, for a column x of integers or text."""

    def mixed(value):
        value = (value + 0x9E3779B97F4A7C15) % 2**64
        value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        value = (value ^ (value >> 27)) * 0x94D049BB133111EB % 2**64
        return value ^ (value >> 31)

    def text(value):
        return int.from_bytes(hashlib.blake2b(value.encode(), digest_size=8).digest(), "little")

    def cell(value):
        return null if value is None else mixed(text(value) if isinstance(value, str) else value % 2**64)

    null = int.from_bytes(b"kartatln", "big")
    return sum(mixed(null ^ mixed((cell(value) + text("x")) % 2**64)) for value in values) % 2**64


@pytest.mark.parametrize(
    ("values", "expected"), [([1, -2, 3], 9747017137558159748), (["a", None, "ä"], 5109560048070204042)]
)
def test_hashes_are_stable(values, expected):
    assert hash_of(values) == expected == plain_hash(values)


@pytest.mark.parametrize(
    ("values", "kinds"),
    [
        ([1, None, 3], [pa.int8(), pa.int64()]),
        ([1, None, 3], [pa.uint8(), pa.uint64()]),
        ([0.5, None, 2.0], [pa.float32(), pa.float64()]),
        (["a", None, "b"], [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())]),
        ([b"a", None], [pa.binary(), pa.large_binary()]),
        ([[1, None], [], None], [pa.list_(pa.int8()), pa.large_list(pa.int64())]),
        ([Decimal("1.5"), None], [pa.decimal128(5, 2), pa.decimal128(30, 10)]),
        ([dt.date(2024, 1, 1), None], [pa.date32(), pa.date64()]),
        ([dt.datetime(2024, 1, 1), None], [pa.timestamp("s"), pa.timestamp("ns")]),
        (
            [dt.datetime(2024, 1, 1, tzinfo=dt.UTC), None],
            [pa.timestamp("us", "UTC"), pa.timestamp("us", "Europe/Berlin")],
        ),
        ([dt.time(1, 2), None], [pa.time32("s"), pa.time64("ns")]),
        ([dt.timedelta(seconds=5), None], [pa.duration("s"), pa.duration("ns")]),
        (
            [{"a": 1, "b": "x"}, None],
            [pa.struct([("a", pa.int8()), ("b", pa.string())]), pa.struct([("b", pa.string()), ("a", pa.int64())])],
        ),
        ([None, None], [pa.null(), pa.int64(), pa.string(), pa.float64(), pa.list_(pa.int64())]),
    ],
)
def test_widths_and_encodings_do_not_count(values, kinds):
    if pa.types.is_decimal(kinds[0]):
        hashes = {hash_of(values, kind) for kind in kinds}
    elif kinds[0] == pa.timestamp("us", "UTC"):
        hashes = {
            int(total_hash(row_hashes(pa.table({"x": pa.array(values, type=kinds[0]).cast(kind)}), ["x"])))
            for kind in kinds
        }
    else:
        hashes = {hash_of(values, kind) for kind in kinds}
    assert len(hashes) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([1, 2], [2, 1, 1]),
        ([1, 1], [2, 2]),
        ([None, 1], [0, 1]),
        ([""], [None]),
        (["ab", "c"], ["a", "bc"]),
        ([[1, 2]], [[2, 1]]),
        ([[]], [[None]]),
        ([[[1], [2]]], [[[1, 2]]]),
        ([[1], [2]], [[1, 2]]),
        ([0.1], [0.2]),
        ([{"a": 1, "b": 2}], [{"a": 2, "b": 1}]),
        ([Decimal("1.50")], [Decimal("1.51")]),
        ([True], [False]),
    ],
)
def test_other_values_have_other_hashes(one, other):
    assert hash_of(one) != hash_of(other)


def test_nan_is_null_and_zero_has_no_sign():
    assert hash_of([float("nan"), -0.0]) == hash_of([None, 0.0], pa.float64())


def test_a_slice_hashes_as_its_own_rows():
    table = pa.table(
        {"x": [[1], [2, 3], None, []], "y": ["a", None, "b", "c"], "z": [{"a": 1}, None, {"a": 3}, {"a": 4}]}
    )
    whole = row_hashes(table, table.column_names)
    assert row_hashes(table.slice(1, 2), table.column_names).tolist() == whole[1:3].tolist()
    assert row_hashes(pa.concat_tables([table.slice(2), table.slice(0, 2)]), table.column_names).tolist() == [
        *whole[2:],
        *whole[:2],
    ]


def test_names_of_columns_count_and_their_order_does_not():
    table = pa.table({"x": [1, 2], "y": [2, 1]})
    assert row_hashes(table, ["x", "y"]).tolist() == row_hashes(table, ["y", "x"]).tolist()
    assert row_hashes(table, ["x", "y"]).tolist() != row_hashes(table.rename_columns(["y", "x"]), ["x", "y"]).tolist()


values = st.lists(st.tuples(st.integers(-3, 3), st.sampled_from(["a", "b", None])), max_size=8)


@given(values, values)
def test_bags_of_rows_have_equal_hashes_if_they_are_equal(one, other):
    def hashed(rows):
        table = pa.table(
            {"x": pa.array([r[0] for r in rows], pa.int64()), "y": pa.array([r[1] for r in rows], pa.string())}
        )
        return int(total_hash(row_hashes(table, ["x", "y"])))

    assert (hashed(one) == hashed(other)) == (sorted(one, key=str) == sorted(other, key=str))


# --- hashes of datasets ---------------------------------------------------------------------------


def test_each_partition_has_a_hash(store):
    build(store)
    found = hash_dataset(store, UUID)
    assert found.dtype == np.uint64
    assert list(found.index) == labels(store)
    assert found.nunique() == 2
    assert found.equals(hash_dataset(factory=DatasetFactory(UUID, lambda: store)))


def test_the_layout_does_not_count(store):
    build(store, ROWS[::-1], uuid="one", partition_on=None, df_serializer=ParquetSerializer("GZIP"))
    build(store, ROWS[:1], ROWS[1:3], ROWS[3:], uuid="other", partition_on=["i1"], secondary_indices=None)
    for keys in ("p", ["p"], ["i1", "p"], ("v1",), "x"):
        one, other = (hash_dataset(store, uuid, group_key=keys) for uuid in ("one", "other"))
        assert one.equals(other)
        assert one.index.equals(other.index)
    total = {uuid: int(hash_dataset(store, uuid).sum()) % 2**64 for uuid in ("one", "other")}
    assert total["one"] == total["other"] == int(hash_dataset(store, "one", group_key="p").sum()) % 2**64


def test_groups_are_sorted_and_nulls_are_one(store):
    build(
        store,
        pd.DataFrame({"x": [1, 2, 3, 4], "p": ["b", "b", "a", "a"], "v1": [None, 1.0, -0.0, float("nan")]}),
        secondary_indices=None,
    )
    found = hash_dataset(store, UUID, group_key="v1")
    assert found.index.name == "v1"
    assert found.index.isna().tolist() == [False, False, True]
    assert found.index[:2].tolist() == [0.0, 1.0]
    two = hash_dataset(store, UUID, group_key=["p", "v1"])
    assert two.index.names == ["p", "v1"]
    assert two.index.get_level_values("p").tolist() == ["a", "a", "b", "b"]


def test_only_the_subset_counts(store):
    build(store)
    build(store, ROWS.assign(v1=0.0), uuid="other")
    for subset in ("x", ["x", "i1"], ["i1", "x"]):
        assert hash_dataset(store, UUID, subset=subset).tolist() == hash_dataset(store, "other", subset=subset).tolist()
    assert hash_dataset(store, UUID).tolist() != hash_dataset(store, "other").tolist()
    groups = [hash_dataset(store, uuid, subset=["x"], group_key="v1") for uuid in (UUID, "other")]
    assert [len(g) for g in groups] == [4, 1]


@pytest.mark.parametrize("index", [None, ["i1"]])
def test_only_rows_that_satisfy_the_predicates_count(store, index):
    build(store, secondary_indices=index)
    build(store, ROWS[2:3], uuid="other")
    found = hash_dataset(store, UUID, predicates=[[("i1", "==", 8)]])
    assert [label.partition("/")[0] for label in found.index] == ["p=b"]
    assert found.tolist() == hash_dataset(store, "other").tolist()
    assert len(hash_dataset(store, UUID, predicates=[[("x", ">", 100)]])) == 0
    assert hash_dataset(store, UUID, predicates=[[("x", ">", 100)]], group_key=["p", "x"]).dtype == np.uint64


def test_a_partition_without_rows_hashes_to_nothing(store):
    build(store, ROWS[:0], partition_on=None, secondary_indices=None)
    assert hash_dataset(store, UUID).tolist() == [0]


def test_arguments_are_checked(store):
    build(store, ROWS.assign(v2=[[1]] * 4))
    for arguments in ({"subset": ["nope"]}, {"group_key": ["nope"]}, {"subset": ["x"], "group_key": "nope"}):
        with pytest.raises(UnknownColumn, match="nope"):
            hash_dataset(store, UUID, **arguments)
    for arguments in (
        {"group_key": []},
        {"group_key": {"x"}},
        {"group_key": "v2"},
        {"group_key": ["x", "x"]},
        {"subset": {"x"}},
    ):
        with pytest.raises(InvalidInput):
            hash_dataset(store, UUID, **arguments)
    with pytest.raises(InvalidType):
        hash_dataset(store, UUID, predicates=[[("x", "==", "a")]])
    with pytest.raises(KeyNotFound, match="nope"):
        hash_dataset(store, UUID, table="nope")
    assert len(hash_dataset(store, UUID)) == 2

"""`compact_dataset(sort_by=..., zorder_by=...)`: the same rows, in an order that finds them."""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from itertools import chain, pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kartothek_cube import options
from kartothek_cube.api.dataset import (
    compact_dataset,
    delete_rows,
    store_dataframes_as_dataset,
    update_dataset_from_dataframes,
    verify_dataset,
)
from kartothek_cube.api.serialization import CsvSerializer, ParquetSerializer
from kartothek_cube.core.io.parquet import open_file
from kartothek_cube.core.io.reader import UNKNOWN, Clustering, ClusterMark, mark_of, sort_range
from kartothek_cube.core.maintenance.compaction_plan import Layout, cluster_groups, cut_rows, piece_count
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import InvalidInput, InvalidRequest, InvalidType, UnknownColumn, Unsupported
from tests.support.datasets import UUID, contents, index, index_of_files, read, refused, snapshot
from tests.support.random_tables import KINDS


@pytest.fixture
def store():
    return MemoryStore()


def add(store, data, **more):
    update_dataset_from_dataframes([data if isinstance(data, pa.Table) else pa.table(data)], store, UUID, **more)


def data_files(store):
    return snapshot(store).files.to_pylist()


def parquet(store, key):
    return pq.ParquetFile(pa.BufferReader(store.get(key)))


def column_of(store, key, name="x"):
    return parquet(store, key).read().column(name).to_pylist()


def sort_key(value):
    """Sorts NaN behind all numbers, and null behind NaN."""
    if value is None:
        return (2,)
    return (1,) if isinstance(value, float) and math.isnan(value) else (0, value)


def groups_with(store, column, low, high):
    """The number of row groups in which the column may have a value of this range."""
    count = 0
    for key in data_files(store):
        metadata = parquet(store, key).metadata
        place = metadata.schema.names.index(column)
        stats = [metadata.row_group(g).column(place).statistics for g in range(metadata.num_row_groups)]
        count += sum(s.min <= high and s.max >= low for s in stats)
    return count


def shuffled(rows, seed=0):
    numbers = np.random.default_rng(seed).permutation(rows)
    return pa.table({"x": numbers, "y": np.random.default_rng(seed + 1).permutation(rows), "v1": np.arange(rows)})


# --- sorted rows ----------------------------------------------------------------------------------


def test_a_partition_without_files_has_no_bounds():
    assert Layout.of(0, [], Clustering(("x",))).range == UNKNOWN


def test_rows_of_a_partition_are_sorted_across_its_files(store):
    for seed in range(3):
        add(store, shuffled(40, seed).append_column("p", pa.array([1, 2] * 20)), partition_on=["p"])
    before = Counter(map(str, read(store).to_pylist()))
    report = compact_dataset(UUID, store, target_rows=16, sort_by="x")
    assert (report.files_before, report.files_after, report.rows_after) == (6, 8, 120)
    assert Counter(map(str, read(store).to_pylist())) == before
    for folder in ("p=1", "p=2"):
        files = [column_of(store, key) for key in data_files(store) if folder in key]
        rows = list(chain.from_iterable(files))
        assert rows == sorted(rows)
        assert all(8 <= len(values) <= 16 for values in files)
        assert all(one[-1] < other[0] for one, other in pairwise(files))
    assert verify_dataset(UUID, store, deep=True).clean


def test_the_footer_says_so_and_a_second_run_does_nothing(store):
    add(store, shuffled(100))
    compact_dataset(UUID, store, target_rows=30, sort_by=["x", "y"])
    for key in data_files(store):
        (column, more) = parquet(store, key).metadata.row_group(0).sorting_columns
        assert parquet(store, key).schema.names[column.column_index] == "x"
        assert parquet(store, key).schema.names[more.column_index] == "y"
        assert (column.descending, column.nulls_first) == (False, False)
    before = contents(store)
    for columns in (["x", "y"], ["x"]):  # sorted by both is sorted by the first one
        assert compact_dataset(UUID, store, target_rows=30, sort_by=columns).commit is None
    assert contents(store) == before
    assert compact_dataset(UUID, store, target_rows=30, sort_by="y").files_before == 4


def test_equal_rows_keep_their_order(store):
    add(store, {"x": [2, 1, 2], "v1": [1, 2, 3]})
    add(store, {"x": [1, 2, 1], "v1": [4, 5, 6]})
    compact_dataset(UUID, store, sort_by="x")
    assert read(store).column("v1").to_pylist() == [2, 4, 6, 1, 3, 5]


def test_a_large_file_that_is_not_sorted_is_rewritten_and_one_that_is_stays(store):
    add(store, shuffled(50))
    assert compact_dataset(UUID, store, target_rows=50).commit is None
    assert compact_dataset(UUID, store, target_rows=50, sort_by="x").files_before == 1
    assert read(store).column("x").to_pylist() == list(range(50))


def test_only_files_whose_ranges_overlap_are_sorted_anew(store):
    add(store, {"x": list(range(100))})
    compact_dataset(UUID, store, target_rows=25, sort_by="x")
    files = data_files(store)
    add(store, {"x": [30, 31, 32]})
    add(store, {"x": [200, 201]})
    report = compact_dataset(UUID, store, target_rows=25, sort_by="x")
    # The second file with its new rows; and the last file, which is small.
    assert (report.files_before, report.rows_before) == (3, 30)
    assert set(data_files(store)) & set(files) == {files[0], *files[2:]}
    assert compact_dataset(UUID, store, target_rows=25, sort_by="x").commit is None


def test_small_neighbours_in_the_order_of_ranges_become_one_file(store):
    for day in (5, 1, 3, 2, 4):
        add(store, {"x": [10 * day, 10 * day + 1]})
    report = compact_dataset(UUID, store, target_rows=6, sort_by="x")
    assert (report.files_before, report.files_after) == (5, 2)
    assert [column_of(store, key) for key in data_files(store)] == [[10, 11, 20, 21, 30, 31], [40, 41, 50, 51]]


def test_files_are_cut_between_unequal_values_where_there_is_room(store):
    add(store, {"x": [1] * 9 + [2] * 9 + [3] * 9})
    compact_dataset(UUID, store, target_rows=10, sort_by="x")
    assert [set(column_of(store, key)) for key in data_files(store)] == [{1}, {2}, {3}]
    assert compact_dataset(UUID, store, target_rows=10, sort_by="x").commit is None


def test_rows_of_one_value_take_several_files_if_they_have_to(store):
    add(store, {"x": [1] * 35})
    compact_dataset(UUID, store, target_rows=10, sort_by="x")
    assert [len(column_of(store, key)) for key in data_files(store)] == [8, 9, 9, 9]
    assert compact_dataset(UUID, store, target_rows=10, sort_by="x").commit is None


def test_files_whose_rows_were_deleted_are_sorted_anew(store):
    add(store, shuffled(100))
    compact_dataset(UUID, store, target_rows=25, sort_by="x")
    delete_rows(UUID, store, [[("x", "==", 30)]])
    assert compact_dataset(UUID, store, target_rows=25, sort_by="x").files_before == 1
    assert read(store).column("x").to_pylist().count(30) == 0


def test_row_groups_are_small_enough_to_be_passed_over(store):
    add(store, shuffled(300_000))
    compact_dataset(UUID, store, sort_by="x")
    (key,) = data_files(store)
    assert parquet(store, key).metadata.num_row_groups == 3
    assert groups_with(store, "x", 1000, 2000) == 1


def test_indices_follow_the_rows(store):
    for seed in range(3):
        add(store, shuffled(30, seed), secondary_indices=["y"])
    compact_dataset(UUID, store, target_rows=20, sort_by="x")
    assert index(store, "y") == index_of_files(store, "y")


def test_files_of_csv_become_parquet(store):
    add(store, {"x": [3, 1]}, df_serializer=CsvSerializer())
    add(store, {"x": [2, 0]}, df_serializer=CsvSerializer())
    compact_dataset(UUID, store, sort_by="x")
    (key,) = data_files(store)
    assert column_of(store, key) == [0, 1, 2, 3]
    assert compact_dataset(UUID, store, sort_by="x").commit is None


def test_codec_and_row_groups_of_a_serializer_hold(store):
    add(store, shuffled(100), df_serializer=ParquetSerializer("ZSTD"))
    compact_dataset(UUID, store, sort_by="x")
    metadata = parquet(store, data_files(store)[0]).metadata
    assert metadata.row_group(0).column(0).compression == "ZSTD"
    compact_dataset(UUID, store, sort_by="y", df_serializer=ParquetSerializer("GZIP", chunk_size=10))
    metadata = parquet(store, data_files(store)[0]).metadata
    assert (metadata.num_row_groups, metadata.row_group(0).column(0).compression) == (10, "GZIP")


def test_nested_payload_is_carried_along(store):
    add(store, {"s": [[1], None, [2, 3]], "x": [3, 1, 2]})
    compact_dataset(UUID, store, sort_by="x")
    assert read(store).to_pydict() == {"s": [None, [2, 3], [1]], "x": [1, 2, 3]}
    assert compact_dataset(UUID, store, sort_by="x").commit is None


def test_rows_beyond_memory_wait_on_disk(store):
    for seed in range(4):
        add(store, shuffled(5000, seed).append_column("s", pa.array([f"{seed}-{n:0100d}" for n in range(5000)])))
    before = sorted(map(str, read(store).to_pylist()))
    with options(bytes_in_flight=2**20, threads=2):
        compact_dataset(UUID, store, target_rows=3000, sort_by=["x", "v1"])
    assert sorted(map(str, read(store).to_pylist())) == before
    rows = [column for key in data_files(store) for column in parquet(store, key).read(["x", "v1"]).to_pylist()]
    assert rows == sorted(rows, key=lambda row: (row["x"], row["v1"]))
    assert len(data_files(store)) == 7


# --- Z-order --------------------------------------------------------------------------------------


def test_a_range_of_either_column_finds_few_row_groups(store):
    day = dt.date(2024, 1, 1)
    numbers = shuffled(4096)
    rows = numbers.set_column(1, "y", pa.array([day + dt.timedelta(days=n) for n in numbers["y"].to_pylist()]))
    store_dataframes_as_dataset(store, UUID, [rows], df_serializer=ParquetSerializer(chunk_size=64))
    days = day + dt.timedelta(days=100), day + dt.timedelta(days=140)
    assert groups_with(store, "x", 100, 140) > 30
    assert groups_with(store, "y", *days) > 30
    before = Counter(map(str, read(store).to_pylist()))
    compact_dataset(UUID, store, zorder_by=["x", "y"], df_serializer=ParquetSerializer(chunk_size=64))
    # 64 row groups are about a square of 8 times 8.
    assert groups_with(store, "x", 100, 140) <= 12
    assert groups_with(store, "y", *days) <= 12
    assert Counter(map(str, read(store).to_pylist())) == before
    assert compact_dataset(UUID, store, zorder_by=["x", "y"]).commit is None


def test_all_files_of_a_partition_are_put_in_order_when_one_is_new(store):
    add(store, shuffled(100))
    assert compact_dataset(UUID, store, target_rows=30, zorder_by=["x", "y"]).files_after == 4
    assert compact_dataset(UUID, store, target_rows=30, zorder_by=["x", "y"]).commit is None
    add(store, shuffled(10))
    assert compact_dataset(UUID, store, target_rows=30, zorder_by=["x", "y"]).files_before == 5
    assert compact_dataset(UUID, store, target_rows=30, zorder_by=["x", "y"]).commit is None
    assert compact_dataset(UUID, store, target_rows=30, zorder_by=["y", "x"]).files_before == 4
    assert compact_dataset(UUID, store, target_rows=30, sort_by=["y", "x"]).files_before == 4
    # Files that are small now, though in order.
    assert compact_dataset(UUID, store, target_rows=200, sort_by=["y", "x"]).files_after == 1


# --- what is said and refused ---------------------------------------------------------------------


def test_a_plan_says_what_it_does(store):
    add(store, shuffled(40))
    before = contents(store)
    report = compact_dataset(UUID, store, target_rows=20, dry_run=True, sort_by=["x", "y"])
    assert repr(report) == "CompactionReport('uuid': would be 1 files → 2 in 1 physical partition, 40 rows)"
    assert "order of rows: sorted by x, y" in report.explain()
    assert ["not", "clustered", "1", "1"] in [line.split()[:4] for line in report.explain().splitlines()]
    assert report.plan.clustering == Clustering(("x", "y"))
    assert contents(store) == before


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"sort_by": "x", "zorder_by": ["x", "y"]}, InvalidInput, "not both"),
        ({"sort_by": ["x", "x"]}, InvalidInput, "twice"),
        ({"sort_by": 5}, InvalidType, "sort_by"),
        ({"zorder_by": ["x"]}, InvalidInput, "sort_by"),
        ({"zorder_by": [f"c{n}" for n in range(9)]}, InvalidInput, "at most 8"),
        ({"sort_by": "z"}, UnknownColumn, "'z'"),
        ({"sort_by": ["x", "p"]}, InvalidRequest, "partitioned by"),
        ({"zorder_by": ["x", "s"]}, Unsupported, "list<"),
        ({"sort_by": "x", "df_serializer": CsvSerializer()}, InvalidRequest, "df_serializer"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_written(store, arguments, error, words):
    add(store, {"x": [1], "y": [1], "p": [1], "s": [[1]]}, partition_on=["p"])
    with refused(store, error, match=words):
        compact_dataset(UUID, store, **arguments)


def test_a_dataset_of_several_tables_is_refused(store):
    both = {"label": "one", "data": [("a", pa.table({"x": [1]}).to_pandas()), ("b", pa.table({"x": [1]}).to_pandas())]}
    store_dataframes_as_dataset(store, UUID, [both])
    with refused(store, Unsupported, match="tables"):
        compact_dataset(UUID, store, sort_by="x")


# --- the mark and the ranges of files -------------------------------------------------------------


def test_a_mark_that_was_copied_to_other_rows_says_nothing(store):
    add(store, {"x": [1, 2, 3]})
    compact_dataset(UUID, store, sort_by="x")
    (key,) = data_files(store)
    table = parquet(store, key).read()
    with open_file(store, key, UUID) as source:
        assert mark_of(source).serves(Clustering(("x",)))
    sink = pa.BufferOutputStream()
    pq.write_table(pa.concat_tables([table, table]), sink)  # metadata and all
    store.put(key, sink.getvalue())
    with open_file(store, key, UUID) as source:
        assert mark_of(source) is None


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"rows": 1}', b'{"rows": 1, "sort_by": "x"}', b"\xff"])
def test_a_mark_that_is_damaged_is_none(store, text):
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"x": [1]}).replace_schema_metadata({b"kartothek_cube.clustering": text}), sink)
    store.put("uuid/table/f.parquet", sink.getvalue())
    with open_file(store, "uuid/table/f.parquet", UUID) as source:
        assert mark_of(source) is None


@pytest.mark.parametrize("kind", KINDS)
def test_ranges_contain_all_values_in_the_order_of_sorts(store, kind):
    values = pa.array(KINDS[kind].values, KINDS[kind].type).to_pylist()
    for n, column in enumerate([values, values[:1], [*values, None], [None, None], []]):
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({"x": pa.array(column, KINDS[kind].type)}), sink, row_group_size=2)
        store.put(f"uuid/table/{n}.parquet", sink.getvalue())
        with open_file(store, f"uuid/table/{n}.parquet", UUID) as source:
            low, high = sort_range(source, "x")
            assert sort_range(source, "y") == ((2,), (2,))
        keys = list(map(sort_key, column))
        assert all(low <= key <= high for key in keys)
        if n == 0 and kind not in ("float64", "float32"):
            assert (low, high) == (min(keys), max(keys))


def test_files_of_other_types_overlap():
    day, moment = dt.date(2024, 1, 1), dt.datetime(2024, 1, 1)
    layouts = [Layout(9, 1, ((0, value), (0, value)), f"{value}") for value in (day, moment)]
    assert cluster_groups(layouts, 10) == [[0, 1]]
    assert cluster_groups([Layout(9, 1, UNKNOWN, "a"), Layout(9, 1, UNKNOWN, "a")], 10) == []


@given(st.lists(st.integers(0, 9), max_size=60), st.integers(1, 20))
def test_files_have_half_of_the_target_or_more(values, target):
    pieces = piece_count(len(values), target)
    order, ends = cut_rows(pa.table({"x": pa.array(values, pa.int64())}), Clustering(("x",)), pieces, target)
    assert [values[i] for i in order] == sorted(values)
    sizes = [end - begin for begin, end in pairwise(ends)]
    assert len(sizes) == pieces
    assert sum(sizes) == len(values)
    assert max(sizes) <= target
    assert pieces == 1 or 2 * min(sizes) >= target


def test_a_mark_serves_what_it_begins_with():
    mark = ClusterMark(Clustering(("x", "y")), "id", 3)
    assert mark.serves(Clustering(("x",)))
    assert not mark.serves(Clustering(("y",)))
    assert not mark.serves(Clustering(("x", "y"), is_zorder=True))


# --- random datasets ------------------------------------------------------------------------------


@st.composite
def histories(draw):
    """Deliveries of random rows, each with what is asked of the compaction after it."""
    kinds = draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=2, max_size=2))
    schema = pa.schema({"p": pa.int64(), "x": KINDS[kinds[0]].type, "y": KINDS[kinds[1]].type, "v1": pa.int64()})
    row = st.tuples(
        st.integers(0, 1), *(st.none() | st.sampled_from(KINDS[kind].values) for kind in kinds), st.integers(0, 99)
    )
    parts = draw(st.lists(st.lists(row, max_size=12), min_size=1, max_size=5))
    tables = [pa.Table.from_pylist([dict(zip(schema.names, r, strict=True)) for r in part], schema) for part in parts]
    asked = st.sampled_from([{"sort_by": ["x"]}, {"sort_by": ["y", "x"]}, {"zorder_by": ["x", "y"]}, {}])
    return [(table, draw(asked), draw(st.integers(1, 12))) for table in tables]


@pytest.mark.slow
@given(histories(), st.sampled_from([[], ["p"]]))
def test_whatever_is_clustered_has_the_same_rows_in_order(history, keys):
    store, rows = MemoryStore(), Counter()
    for table, asked, target in history:
        add(store, table, partition_on=keys)
        rows.update(map(str, table.to_pylist()))
        compact_dataset(UUID, store, target_rows=target, **asked)
        assert Counter(str({name: row[name] for name in table.column_names}) for row in read(store).to_pylist()) == rows
        if asked:
            assert compact_dataset(UUID, store, target_rows=target, **asked).commit is None
        if "sort_by" in asked:
            _check_order(store, asked["sort_by"])


def _check_order(store, columns):
    files = {}
    for key in data_files(store):
        table = parquet(store, key).read()
        found = [tuple(sort_key(row[c]) for c in columns) for row in table.select(columns).to_pylist()]
        assert found == sorted(found)
        files.setdefault(key.rpartition("/")[0], []).append([key[0] for key in found])
    for found in files.values():
        assert all(one[-1] <= other[0] for one, other in pairwise(sorted(filter(None, found))))


def test_nan_of_a_later_file_goes_before_the_nulls_that_are_there(store):
    for values, target in (([None, None, 0.1], 1), ([math.nan], 3)):
        add(store, pa.table({"x": pa.array(values, pa.float32())}))
        compact_dataset(UUID, store, target_rows=target, sort_by="x")
        _check_order(store, ["x"])


@pytest.mark.parametrize(("last", "rewritten"), [(2000.0, 1), (math.nan, 2)])
def test_sorted_numbers_without_nan_overlap_nothing(store, last, rewritten):
    """NaN of a file is greater than all that comes after."""
    values = np.arange(1000.0)
    values[-1] = last
    add(store, {"x": values})
    compact_dataset(UUID, store, sort_by=["x"], target_rows=100)
    kept = set(data_files(store))
    add(store, {"x": np.arange(5000.0, 5100.0)})
    added = set(data_files(store)) - kept
    compact_dataset(UUID, store, sort_by=["x"], target_rows=100)
    assert len((kept | added) - set(data_files(store))) == rewritten


@pytest.mark.parametrize("argument", ["sort_by", "zorder_by"])
def test_a_column_of_nulls_is_an_order(store, argument):
    for x in (2, 1):
        add(store, pa.table({"v1": pa.nulls(2), "x": [x, x + 2]}))
    compact_dataset(UUID, store, **{argument: ["v1", "x"]})
    assert sorted(read(store)["x"].to_pylist()) == [1, 2, 3, 4]

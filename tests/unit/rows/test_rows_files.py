"""Which files the verbs of rows open and write, what the new ones look like, and what is said."""

from __future__ import annotations

import json
import os
from io import BytesIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from kartothek_cube import options
from kartothek_cube.api.cube import Cube, append_to_cube, build_cube, query_cube_arrow, verify_cube
from kartothek_cube.api.dataset import (
    delete_rows,
    merge_dataset,
    store_dataframes_as_dataset,
    update_dataset_from_dataframes,
    update_rows,
)
from kartothek_cube.api.serialization import CsvSerializer, ParquetSerializer
from kartothek_cube.core.dataset.rows import RowsReport
from kartothek_cube.core.metadata.naming import SINGLE_TABLE
from kartothek_cube.core.stores.contract import WRITES
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import InvalidInput
from tests.caches import forget
from tests.support.datasets import UUID, contents, file_of, index, index_of_files, labels, read, rows, snapshot
from tests.support.reads import MeasuredStore, is_data
from tests.support.rows import SOURCE, VERBS, WHERE, files, store_rows


@pytest.fixture
def store():
    store = MemoryStore()
    store_rows(store)
    return store


def measured(store):
    forget(store)
    return MeasuredStore(store)


def by_first(store):
    """Keys of data files by the first x that they hold."""
    return {found[0]["x"]: key for key, found in files(store).items()}


# --- what is reported -----------------------------------------------------------------------------

# Of the files with x = 0-1 (a), 2-3 (b), 4-5 (a), 6-7 (b) the second and third have rows 2 to 4.
REPORTS = {
    "delete": {"matched": 3, "deleted": 3, "files_rewritten": 1, "files_removed": 1, "files_untouched": 2},
    "update": {"matched": 3, "updated": 3, "files_rewritten": 2, "files_untouched": 2},
    "move": {"matched": 3, "updated": 3, "files_rewritten": 1, "files_removed": 1, "files_added": 1},
    "function": {"matched": 3, "updated": 3, "files_rewritten": 2, "files_untouched": 2},
    "merge": {"matched": 1, "updated": 1, "inserted": 1, "files_rewritten": 1, "files_added": 1, "files_untouched": 3},
}
REPORTS["move"]["files_untouched"] = 2
NUMBERS = [name for name in RowsReport.__slots__ if name not in ("dataset", "bytes", "commit", "dry_run", "files")]


def numbers(report):
    return {name: n for name in NUMBERS if (n := getattr(report, name))}


@pytest.mark.parametrize("verb", VERBS)
def test_the_report_counts_rows_and_files(store, verb):
    before = files(store)
    report = VERBS[verb](store)
    after = files(store)
    assert numbers(report) == REPORTS[verb]
    assert report.dataset == UUID
    assert not report.dry_run
    assert report.commit == snapshot(store).chain[-1].id
    assert set(report.files) == set(before) - set(after)
    assert report.bytes == sum(len(store.get(key)) for key in set(after) - set(before))


@pytest.mark.parametrize("verb", VERBS)
def test_a_dry_run_reports_the_same_rows_and_writes_nothing(store, verb):
    before, counting = contents(store), MeasuredStore(store)
    report = VERBS[verb](counting, dry_run=True)
    assert counting.touched(*WRITES) == []
    assert contents(store) == before
    assert report.dry_run
    assert report.commit is None
    real = VERBS[verb](store)
    kept = ["matched", "deleted", "updated", "inserted", "files_untouched", "files"]
    assert [getattr(report, name) for name in kept] == [getattr(real, name) for name in kept]
    # Whether other rows than the moved ones stay is not known before.
    assert report.files_rewritten + report.files_removed == real.files_rewritten + real.files_removed
    rewritten = real.files_rewritten + (verb == "move")
    assert report.files_rewritten == rewritten
    stay = {key for key in report.files if verb != "delete" or (len(pq_rows(before[key])) > 1 and key in left(before))}
    assert report.bytes == sum(len(before[key]) for key in stay)


def pq_rows(data):
    return pq.read_table(BytesIO(data))["x"].to_pylist()


def left(before):
    """Files that have rows besides those with x from 2 to 4."""
    data = {key: value for key, value in before.items() if is_data(key)}
    return {key for key, value in data.items() if set(pq_rows(value)) - {2, 3, 4}}


@pytest.mark.parametrize("verb", ["delete", "update", "function"])
def test_nothing_that_matches_is_nothing_to_do(store, verb):
    before = contents(store)
    where = [[("x", ">", 100)]]
    calls = {
        "delete": lambda: delete_rows(UUID, store, where),
        "update": lambda: update_rows(UUID, store, where, {"v1": 0.0}),
        "function": lambda: update_rows(UUID, store, where, lambda rows: 1 / 0),
    }
    report = calls[verb]()
    assert (report.commit, report.bytes, report.files) == (None, 0, ())
    assert numbers(report) == {"files_untouched": 4}
    assert contents(store) == before
    assert "nothing to do" in repr(report)


def test_a_merge_that_changes_nothing_writes_nothing(store):
    before = contents(store)
    for more in (
        {"when_matched": "ignore", "when_not_matched": "ignore"},
        {"when_matched": "ignore", "when_not_matched": "ignore", "dry_run": True},
    ):
        report = merge_dataset(SOURCE, store, UUID, "x", **more)
        assert (report.matched, report.commit, report.files_untouched) == (1, None, 4)
    only_keys = merge_dataset(SOURCE.select(["x"])[:1], store, UUID, "x", when_not_matched="ignore")
    assert (only_keys.matched, only_keys.updated, only_keys.commit) == (1, 0, None)
    assert contents(store) == before


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("dry_run", [False, True])
def test_a_report_explains_itself(store, verb, dry_run):
    report = VERBS[verb](store, dry_run=dry_run)
    text, html, found = report.explain(), report.explain("html"), json.loads(report.explain("json"))
    steps = {step["unit"]: {row["name"]: row["after"] for row in step["rows"]} for step in found["steps"]}
    assert steps["rows"] == {name: getattr(report, name) for name in ("matched", "deleted", "updated", "inserted")}
    assert steps["files"]["added"] == report.files_added
    for shown in (text, html, repr(report)):
        assert UUID in shown
        assert ("a dry run" if dry_run else report.commit) in shown
    assert report._repr_html_() == html
    with pytest.raises(InvalidInput, match="format"):
        report.explain("pdf")


def test_a_report_in_words(store):
    assert repr(VERBS["delete"](store, dry_run=True)) == (
        "RowsReport('uuid': 3 rows matched, 3 deleted; 1 file rewritten, 1 file removed, 2 untouched; a dry run)"
    )


# --- which files are opened and written -----------------------------------------------------------


def test_only_files_that_an_index_names_are_opened(store):
    cold, expected = measured(store), {by_first(store)[2]}
    delete_rows(UUID, cold, [[("i1", "==", "0b"), ("x", "==", 3)]])
    assert set(cold.files()) == expected


def test_only_files_of_the_partition_are_opened(store):
    cold, expected = measured(store), {by_first(store)[0], by_first(store)[4]}
    update_rows(UUID, cold, [[("p", "==", "a"), ("v1", "!=", 1.25)]], {"v1": 0.0})
    assert set(cold.files()) == expected


@pytest.mark.parametrize("dry_run", [False, True])
def test_only_files_with_matches_are_written(store, dry_run):
    keys, cold = by_first(store), measured(store)
    update_rows(UUID, cold, [[("v1", "==", 1.25)]], {"v1": 0.0}, dry_run=dry_run)
    written = [key for key in cold.touched(*WRITES) if is_data(key)]
    assert len(written) == (0 if dry_run else 1)
    assert set(keys.values()) - set(by_first(store).values()) == (set() if dry_run else {keys[4]})


def test_a_merge_looks_its_keys_up_in_indices_and_partitions_first(store):
    source = pa.table({"i1": ["0b", "7z"], "p": ["b", "a"], "v1": [1.0, 2.0]})
    keys, cold = by_first(store), measured(store)
    report = merge_dataset(source, cold, UUID, ["i1", "p"])
    assert set(cold.files()) == {keys[2]}
    assert (report.matched, report.inserted) == (2, 1)


@pytest.mark.parametrize(
    ("search", "opened"),
    [
        (lambda s: delete_rows(UUID, s, [[("x", ">=", 3), ("x", "<", 5)]]), [2, 4]),
        (lambda s: update_rows(UUID, s, [[("v1", "==", 1.75)]], {"v1": 0.0}), [6]),
        (
            lambda s: merge_dataset(pa.table({"x": [1, 7, 9], "p": ["a", "b", "a"], "v1": [1.0] * 3}), s, UUID, "x"),
            [0, 6],
        ),
        (lambda s: merge_dataset(pa.table({"x": [-1, 8], "p": ["a"] * 2, "v1": [1.0] * 2}), s, UUID, "x"), []),
        (lambda s: merge_dataset(pa.table({"v1": [0.5, 1.1], "p": ["b"] * 2}), s, UUID, ["v1", "p"]), [2]),
    ],
)
def test_files_whose_statistics_exclude_the_rows_are_not_opened(search, opened):
    found = {}
    for statistics in (True, False):
        store = MemoryStore()
        with options(statistics=statistics):
            store_rows(store, secondary_indices=[])
        firsts, cold = {key: first for first, key in by_first(store).items()}, measured(store)
        report = search(cold)
        found[statistics] = [firsts[key] for key in cold.files() if key in firsts]
        found[f"result {statistics}"] = (report.matched, report.inserted, read(store))
    assert sorted({*found[True]}) == opened
    assert {*found[False]} > {*found[True]}
    assert found["result True"] == found["result False"]


def test_a_merge_whose_partitions_are_new_opens_no_file_and_no_index(store):
    source = pa.table({"i1": ["0b"], "p": ["new"], "v1": [1.0]})
    cold = measured(store)
    report = merge_dataset(source, cold, UUID, ["i1", "p"], dry_run=True)
    assert (report.matched, report.inserted) == (0, 1)
    assert cold.files() == []
    assert [key for key in cold.touched() if "/indices/" in key] == []


LARGE = pa.table({"x": range(4_000), "v1": [os.urandom(500) for _ in range(4_000)]})
SIZE = LARGE.nbytes


def large(rows=LARGE, **serializer):
    """A dataset of one file, of which the request for its tail covers a small part."""
    store = MemoryStore()
    store_dataframes_as_dataset(store, UUID, [rows], df_serializer=ParquetSerializer(**serializer))
    return measured(store)


@pytest.mark.parametrize(
    "search",
    [
        lambda s: delete_rows(UUID, s, [[("x", "==", 17)]], dry_run=True),
        lambda s: update_rows(UUID, s, [[("x", "<=", 0)]], {"x": 1}, dry_run=True),
        lambda s: merge_dataset(LARGE.slice(17, 1), s, UUID, "x", dry_run=True),
        lambda s: merge_dataset(LARGE.slice(17, 1), s, UUID, ["x", "v1"], dry_run=True),
    ],
)
def test_a_search_reads_only_row_groups_that_may_match(only_fast, search):
    cold = large(chunk_size=100)
    assert search(cold).matched == 1
    assert cold.data_bytes() < SIZE / 4


@pytest.mark.parametrize(
    "search",
    [
        lambda s: update_rows(UUID, s, [[("x", ">=", 2_000)]], {"v1": b""}, dry_run=True),
        lambda s: merge_dataset(LARGE.slice(2_000), s, UUID, "x", dry_run=True),
    ],
)
def test_a_search_by_one_column_reads_no_other(only_fast, search):
    cold = large()
    assert search(cold).matched == 2_000
    assert cold.data_bytes() < SIZE / 4


def test_a_file_of_which_no_row_stays_is_not_read_whole(only_fast):
    cold = large()
    assert delete_rows(UUID, cold, [[("x", ">=", 0)]]).files_removed == 1
    assert cold.data_bytes() < SIZE / 4
    assert labels(cold) == []


# --- what the new files look like -----------------------------------------------------------------


@pytest.mark.parametrize("verb", VERBS)
def test_rows_and_files_keep_their_places(store, verb):
    before = [found["x"] for rows_of in files(store).values() for found in rows_of]
    VERBS[verb](store)
    after = [found["x"] for rows_of in files(store).values() for found in rows_of]
    gone = {"delete": {2, 3, 4}, "move": {2, 3, 4}}.get(verb, set())
    added = {"move": [2, 3, 4], "merge": [9]}.get(verb, [])
    assert after == [x for x in before if x not in gone] + added
    assert read(store)["x"].to_pylist() == after
    assert [label.rpartition("/")[0] for label in labels(store)][: len(after)] == [
        f"p={found[0]['p']}" for found in grouped(store)
    ]


def grouped(store):
    """The rows of each file as a read shows them."""
    found, start = read(store).to_pylist(), 0
    for rows_of in files(store).values():
        yield found[start : start + len(rows_of)]
        start += len(rows_of)


@pytest.mark.parametrize("verb", VERBS)
def test_indices_are_those_of_the_files(store, verb):
    VERBS[verb](store)
    assert index(store, "i1") == index_of_files(store, "i1")


def test_an_update_of_an_indexed_column_changes_the_index(store):
    update_rows(UUID, store, WHERE, {"i1": "new"})
    assert index(store, "i1") == index_of_files(store, "i1")
    assert [len(index(store, "i1").get(value, ())) for value in ("new", "0b", "1a")] == [2, 0, 1]


@pytest.mark.parametrize("verb", ["delete", "update", "function", "merge"])
@pytest.mark.parametrize("codec", ["SNAPPY", "ZSTD", "GZIP", "NONE"])
def test_codec_and_row_groups_are_those_of_the_old_file(codec, verb):
    store = MemoryStore()
    store_dataframes_as_dataset(
        store,
        UUID,
        [pa.table({"x": range(10), "p": ["b"] * 10, "v1": [0.5] * 10})],
        partition_on="p",
        df_serializer=ParquetSerializer(codec, 4),
    )
    (old,) = files(store)
    VERBS[verb](store)
    new = next(key for key in files(store) if "p=b" in key)
    assert new != old
    metadata = pq.read_metadata(BytesIO(store.get(new)))
    assert metadata.row_group(0).column(0).compression == {"NONE": "UNCOMPRESSED"}.get(codec, codec)
    groups = [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)]
    # The merge moves a row to another partition.
    assert groups == {"delete": [4, 3], "merge": [4, 4, 1]}.get(verb, [4, 4, 2])
    assert all(metadata.row_group(0).column(n).is_stats_set for n in range(2))


def test_pages_have_checksums(store):
    update_rows(UUID, store, [[("x", "==", 4)]], {"v1": 7.0})
    key = by_first(store)[4]
    data = bytearray(store.get(key))
    column = pq.read_metadata(BytesIO(data)).row_group(0).column(0)
    start = column.dictionary_page_offset or column.data_page_offset
    data[start + column.total_compressed_size - 1] ^= 0xFF
    with pytest.raises(OSError, match=r"CRC|checksum"):
        pq.read_table(BytesIO(data), columns=[column.path_in_schema], page_checksum_verification=True)


@pytest.mark.parametrize("compress", [False, True])
def test_rows_of_csv_files(compress):
    store = MemoryStore()
    store_rows(store, df_serializer=CsvSerializer(compress=compress))
    suffix = ".csv.gz" if compress else ".csv"
    report = merge_dataset(SOURCE, store, UUID, "x")
    assert (report.updated, report.inserted) == (1, 1)
    assert update_rows(UUID, store, [[("x", "==", 0)]], {"v1": None}).updated == 1
    assert delete_rows(UUID, store, [[("x", ">=", 5), ("x", "<", 9)]]).deleted == 3
    assert rows(store, "x", "v1") == [(0, None), (1, 0.25), (2, 0.5), (3, 30.0), (4, 1.0), (9, 90.0)]
    keys = list(snapshot(store).partitions.files[SINGLE_TABLE].to_pylist())
    assert [key.endswith(suffix) for key in keys] == [True, True, True, False]


def test_columns_that_were_added_later(store):
    later = pa.table({"x": [20], "p": ["a"], "i1": ["z"], "v1": [0.5], "w": [5]})
    update_dataset_from_dataframes([later], store, UUID, add_columns=True)
    assert update_rows(UUID, store, [[("x", "in", [0, 20])]], {"w": 7}).updated == 2
    source = pa.table({"x": [1, 20], "w": [8, 9]})
    assert merge_dataset(source, store, UUID, "x", when_not_matched="ignore").updated == 2
    assert delete_rows(UUID, store, [[("w", "==", None), ("x", ">", 4)]]).deleted == 3
    assert rows(store, "x", "w") == [(0, 7), (1, 8), (2, None), (20, 9), (3, None), (4, None)]
    # All columns are written, so that a file has those of the dataset.
    assert file_of(store, labels(store)[0]).column_names == ["i1", "v1", "w", "x"]


def test_types_that_have_widened_since():
    store = MemoryStore()
    store_dataframes_as_dataset(store, UUID, [pa.table({"x": pa.array([1, 2], pa.int32()), "v1": pa.nulls(2)})])
    update_dataset_from_dataframes([pa.table({"x": [3], "v1": ["c"]})], store, UUID)
    assert update_rows(UUID, store, [[("x", ">=", 2)]], {"v1": "z"}).updated == 2
    assert merge_dataset(pa.table({"x": [1], "v1": ["y"]}), store, UUID, "x").updated == 1
    assert rows(store, "x", "v1") == [(1, "y"), (2, "z"), (3, "z")]


def test_a_column_that_is_null_throughout_takes_the_type_of_the_first_value():
    store = MemoryStore()
    store_dataframes_as_dataset(store, UUID, [pa.table({"x": [1, 2], "v1": pa.nulls(2), "v2": pa.nulls(2)})])
    update_rows(UUID, store, [[("x", "==", 1)]], {"v1": 5})
    merge_dataset(pa.table({"v2": ["a"], "x": [3]}), store, UUID, "v2")
    assert rows(store, "x", "v1", "v2") == [(1, 5, None), (2, None, None), (3, None, "a")]


def test_a_table_of_another_name():
    store = MemoryStore()
    store_dataframes_as_dataset(store, UUID, [{"facts": pa.table({"x": [1, 2], "v1": [1.0, 2.0]})}])
    delete_rows(UUID, store, [[("x", "==", 1)]])
    merge_dataset(pa.table({"x": [2, 5], "v1": [7.0, 8.0]}), store, UUID, "x")
    update_rows(UUID, store, [[("x", "==", 5)]], {"v1": 9.0})
    assert rows(store, "x", "v1", table="facts") == [(2, 7.0), (5, 9.0)]


def test_a_dataset_without_rows_is_still_one():
    store = MemoryStore()
    store_rows(store)
    assert delete_rows(UUID, store, [[("x", ">=", 0)]]).files_removed == 4
    assert rows(store) == []
    assert delete_rows(UUID, store, [[("x", ">=", 0)]]).commit is None
    assert merge_dataset(SOURCE, store, UUID, "x", when_not_matched_by_source="delete").inserted == 2
    assert rows(store, "x") == [(3,), (9,)]


# --- datasets of a cube ---------------------------------------------------------------------------

CUBE = Cube(["x", "y"], ["p"], "cube", index_columns=["i1"])
CELLS = pa.table(
    {"x": [3, 0, 2, 1], "y": ["a", "b", "a", "b"], "p": [0, 0, 0, 0], "i1": [5, 6, 5, 6], "v1": [3.0, 0.0, 2.0, 1.0]}
)
SEED = "cube++seed"


@pytest.fixture
def cube():
    store = MemoryStore()
    build_cube(CELLS, CUBE, store)
    append_to_cube(pa.table({"x": [1], "y": ["b"], "p": [0], "i1": [6], "v1": [-1.0]}), CUBE, store)
    return store


def cells(store):
    return {row["x"]: row["v1"] for row in query_cube_arrow(CUBE, store).to_pylist()}


def orders(store):
    """The values of x in each file."""
    keys = snapshot(store, SEED).partitions.files[SINGLE_TABLE].to_pylist()
    return [pq.read_table(BytesIO(store.get(key)))["x"].to_pylist() for key in keys]


def test_files_of_a_cube_stay_sorted_and_override_each_other_as_before(cube):
    assert orders(cube) == [[0, 1, 2, 3], [1]]
    delete_rows(SEED, cube, [[("x", "==", 2)]])
    assert orders(cube) == [[0, 1, 3], [1]]
    # The older file is written anew, yet the newer row of the cell wins.
    update_rows(SEED, cube, [[("x", "<", 5)]], raised)
    assert cells(cube) == {0: 10.0, 1: 9.0, 3: 13.0}
    assert not verify_cube(CUBE, cube, deep=True).warnings


def raised(rows):
    return rows.set_column(rows.column_names.index("v1"), "v1", pc.add(rows["v1"], 10.0))


def test_a_merge_by_the_cells_of_a_cube(cube):
    source = pa.table({"x": [9, 0, 8], "y": ["b"] * 3, "p": [0] * 3, "i1": [7] * 3, "v1": [9.0, 5.0, 8.0]})
    report = merge_dataset(source, cube, SEED, ["p", "y", "x"])
    assert (report.updated, report.inserted, report.files_rewritten) == (1, 2, 1)
    assert orders(cube) == [[0, 1, 2, 3], [1], [8, 9]]
    assert cells(cube) == {0: 5.0, 1: -1.0, 2: 2.0, 3: 3.0, 8: 8.0, 9: 9.0}
    assert not verify_cube(CUBE, cube, deep=True).warnings

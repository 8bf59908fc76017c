"""`scan_cube` and `scan_dataset`: what a lazy frame has, and of which state."""

from __future__ import annotations

import datetime as dt
import re
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec

import polars as pl
import pyarrow as pa
import pytest
from polars.testing import assert_frame_equal

from kartothek_cube import C, Cube, options, query_cube_arrow, scan_cube, scan_dataset
from kartothek_cube.api.cube import append_to_cube, build_cube, extend_cube, remove_partitions
from kartothek_cube.api.dataset import (
    delete_dataset,
    history,
    read_table_arrow,
    store_dataframes_as_dataset,
)
from kartothek_cube.api.discover import discover_cube
from kartothek_cube.api.serialization import CsvSerializer
from kartothek_cube.core.runtime import options as options_module
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.engines import tables
from kartothek_cube.errors import DatasetNotFound, InvalidInput, InvalidType, KartothekCubeError, KeyNotFound
from tests.support.all_types import ALL_TYPES, IN_CSV, ODD_ZONES, SPELLINGS, nested_moments
from tests.support.cubes import CUBE, SEED, build_two, with_column
from tests.support.reads import MeasuredStore

KEY = Cube(["x"], ["p"], "types")
# Older releases of Polars raise an error of their own, with the text of ours.
GONE = KeyNotFound if find_spec("polars.lazyframe.resolver") else pl.exceptions.ComputeError
NEW_CELL = with_column(SEED.slice(0, 1), "x", [5])


@pytest.fixture
def store():
    store = MemoryStore()
    build_two(store)
    return store


def all_types():
    data = ALL_TYPES
    for name, values in SPELLINGS.items():
        data = with_column(data, name, values)
    return with_column(with_column(data, "x", [0, 1, 2]), "p", [0, 1, 1])


def as_polars(table):
    return pl.from_arrow(table)


def assert_rows_equal(frame, table):
    """The rows in any order; columns and types exactly."""
    assert_frame_equal(frame, as_polars(table), check_row_order=False)


# --- columns, types, rows -------------------------------------------------------------------------


def test_a_cube_has_the_rows_and_types_of_a_query():
    store = MemoryStore()
    build_cube(all_types(), KEY, store)
    expected = query_cube_arrow(KEY, store)
    frame = scan_cube(KEY, store)
    assert frame.collect_schema() == as_polars(expected).schema
    assert_rows_equal(frame.collect(), expected)


def test_a_dataset_has_the_rows_and_types_of_a_read():
    store = MemoryStore()
    store_dataframes_as_dataset(store, "uuid", [all_types()], partition_on="p", secondary_indices=["i64"])
    expected = read_table_arrow("uuid", store)
    frame = scan_dataset("uuid", store)
    assert frame.collect_schema() == as_polars(expected).schema
    assert_rows_equal(frame.collect(), expected)


@pytest.mark.parametrize("column", all_types().column_names)
def test_each_type_alone(column):
    store = MemoryStore()
    build_cube(all_types(), KEY, store)
    frame = scan_cube(KEY, store).select(column).collect()
    assert_rows_equal(frame, query_cube_arrow(KEY, store).select([column]))


@pytest.mark.parametrize("zone", ODD_ZONES)
def test_moments_in_a_zone_that_polars_lacks_are_in_utc(zone, tmp_path):
    data, in_utc = (pa.table({"x": [0, 1, 2], "p": [0, 1, 1], **nested_moments(z)}) for z in (zone, "UTC"))
    for store in (MemoryStore(), f"hfs://{tmp_path}"):
        build_cube(data, KEY, store)
        for frame in (scan_cube(KEY, store), scan_dataset("types++seed", store)):
            expected = in_utc.select(frame.collect_schema().names())
            for engine in ("in-memory", "streaming"):
                assert_frame_equal(frame.collect(engine=engine), as_polars(expected), check_row_order=False)
            assert_frame_equal(frame.select("plain").head(9).collect(), as_polars(expected.select(["plain"])))


@pytest.mark.parametrize("zone", ["+05:30", "Nowhere/City"])
@pytest.mark.parametrize("indexed", [None, ["plain"]], ids=["unindexed", "indexed"])
def test_filters_on_moments_in_a_zone_that_polars_lacks(zone, indexed):
    store, moment = MemoryStore(), dt.datetime(1970, 1, 2, 0, 0, 0, 1, tzinfo=dt.UTC)
    data = pa.table({"x": [0, 1, 2], "p": [0, 1, 1], **nested_moments(zone)})
    store_dataframes_as_dataset(store, "uuid", [data], partition_on="p", secondary_indices=indexed)
    plain = pl.col("plain")
    for condition, expected in [
        (plain == moment, [0]),
        (plain.is_in([moment]), [0]),
        (plain < moment, [2]),
        (plain.is_null(), [1]),
        (pl.col("listed").is_null(), [1]),
    ]:
        assert scan_dataset("uuid", store).filter(condition).collect()["x"].to_list() == expected


def test_no_rows_have_the_same_types():
    store = MemoryStore()
    build_cube(all_types(), KEY, store)
    for p in (0, 1):
        remove_partitions(KEY, store, conditions=C("p") == p)
    expected = query_cube_arrow(KEY, store)
    assert expected.num_rows == 0
    assert_frame_equal(scan_cube(KEY, store).collect(), as_polars(expected))
    dataset = scan_dataset("types++seed", store)
    assert_frame_equal(dataset.collect(), as_polars(read_table_arrow("types++seed", store)))
    assert dataset.select(pl.len()).collect().item() == 0


def test_a_filter_that_no_row_satisfies_leaves_the_types(store):
    frame = scan_cube(CUBE, store).filter(pl.col("p") == 99)
    assert_frame_equal(frame.collect(), as_polars(query_cube_arrow(CUBE, store)).clear())


def test_no_columns_have_a_number_of_rows(store):
    assert scan_cube(CUBE, store).select([]).collect().shape[1] == 0
    assert scan_cube(CUBE, store).select(pl.len()).collect().item() == 4
    assert scan_cube(CUBE, store).filter(pl.col("v1") > 1).select(pl.len()).collect().item() == 2
    assert scan_dataset("cube++e", store).select(pl.len()).collect().item() == 2


def test_a_csv_dataset():
    store = MemoryStore()
    data = ALL_TYPES.select(IN_CSV)
    store_dataframes_as_dataset(store, "uuid", [data], df_serializer=CsvSerializer())
    expected = read_table_arrow("uuid", store)
    assert_rows_equal(scan_dataset("uuid", store).collect(), expected)
    some = scan_dataset("uuid", store).filter(pl.col("u16") == 65535).select("s").collect()
    assert some["s"].to_list() == ["Köln / 50% ; =\"'\n"]


def test_one_of_several_tables():
    store = MemoryStore()
    store_dataframes_as_dataset(
        store, "uuid", [{"sales": pa.table({"x": [1, 2]}), "stock": pa.table({"x": [7], "v1": ["a"]})}]
    )
    assert scan_dataset("uuid", store, table="sales").collect()["x"].to_list() == [1, 2]
    assert scan_dataset("uuid", store, table="stock").collect().to_dicts() == [{"v1": "a", "x": 7}]


def test_a_cube_is_named_by_its_prefix(store):
    assert_frame_equal(scan_cube("cube", store).collect(), scan_cube(CUBE, store).collect(), check_row_order=False)


def test_some_datasets(store):
    frame = scan_cube(CUBE, store, datasets=["seed"])
    assert frame.collect_schema().names() == ["i1", "p", "v1", "x", "y"]
    assert_rows_equal(frame.collect(), query_cube_arrow(CUBE, store, datasets=["seed"]))
    by_prefix = scan_cube("cube", store, datasets="seed")
    assert_rows_equal(by_prefix.collect(), query_cube_arrow(CUBE, store, datasets=["seed"]))


def test_datasets_that_were_discovered_keep_their_state(store):
    datasets = discover_cube("cube", store)[1]
    append_to_cube(NEW_CELL, CUBE, store)
    for cube in (CUBE, "cube"):
        assert scan_cube(cube, store, datasets=datasets).collect().height == 4


@pytest.mark.parametrize("dimensions", ["x", ["x"]])
def test_fewer_dimensions_have_each_cell_once(store, dimensions):
    frame = scan_cube(CUBE, store, dimension_columns=dimensions)
    # `v1` and `i1` depend on `y`.
    assert frame.collect_schema().names() == ["i2", "p", "v2", "x"]
    cells = frame.select("x", "p", "v2").sort("x").collect()
    assert cells.rows() == [(0, 0, None), (1, 1, 10)]
    assert frame.select(pl.len()).collect().item() == 2
    assert frame.filter(pl.col("v2") == 10).select("x").collect()["x"].to_list() == [1]


def test_all_dimensions_in_another_order(store):
    frame = scan_cube(CUBE, store, dimension_columns=["y", "x"])
    assert_rows_equal(frame.collect(), query_cube_arrow(CUBE, store))


# --- laziness -------------------------------------------------------------------------------------


def test_nothing_but_documents_is_read_before_collect(store):
    measured = MeasuredStore(store)
    frame = scan_cube("cube", measured)
    frame.filter(pl.col("v1") > 0).select("v2").collect_schema()
    scan_dataset("cube++seed", measured).filter(pl.col("v1") > 0).collect_schema()
    assert measured.files() == []
    assert {key for key in measured.bytes if measured.bytes[key]} == {
        "cube++seed.by-dataset-metadata.json",
        "cube++e.by-dataset-metadata.json",
    }


def test_explain_reads_no_data(store):
    measured = MeasuredStore(store)
    scan_cube("cube", measured).filter(pl.col("i1") == 10).explain()
    assert measured.files() == []


def test_a_frame_is_collected_several_times(store):
    frame = scan_cube(CUBE, store)
    first = frame.collect()
    assert_frame_equal(frame.collect(), first)
    assert frame.filter(pl.col("x") == 1).collect().height == 2
    assert frame.filter(pl.col("x") == 0).select("v1").collect().height == 2
    assert_frame_equal(frame.collect(), first)


def test_a_frame_joins_itself(store):
    frame = scan_cube(CUBE, store)
    joined = frame.filter(pl.col("x") == 0).join(frame, on=["x", "y"], suffix="_right").collect()
    assert sorted(joined.select("v1", "v1_right").rows()) == [(0.5, 0.5), (1.5, 1.5)]
    both = pl.concat([frame.filter(pl.col("p") == 0), frame.filter(pl.col("p") == 1)]).collect()
    assert_rows_equal(both, query_cube_arrow(CUBE, store))


def test_one_frame_in_many_threads(store):
    frame = scan_cube(CUBE, store)

    def collect(x):
        return frame.filter(pl.col("x") == x % 2).select("x", "y").collect().sort("y").rows()

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(collect, range(40)))
    assert found == [[(x % 2, "a"), (x % 2, "b")] for x in range(40)]


def test_options_of_the_call_hold_when_it_is_collected(store, monkeypatch):
    seen = set()
    real = options_module.Options.thread_count.fget
    monkeypatch.setattr(
        options_module.Options, "thread_count", property(lambda self: seen.add(self.threads) or real(self))
    )
    frame = scan_cube(CUBE, store, options=options(threads=3))
    seen.clear()
    with options(threads=5):
        frame.collect()
    assert seen == {3}


# --- the state of the call ------------------------------------------------------------------------


def test_an_append_does_not_show(store):
    cube, dataset = scan_cube(CUBE, store), scan_dataset("cube++seed", store)
    append_to_cube(NEW_CELL, CUBE, store)
    assert cube.select(pl.len()).collect().item() == 4
    assert 5 not in cube.collect()["x"].to_list()
    assert 5 not in dataset.collect()["x"].to_list()
    assert scan_cube(CUBE, store).select(pl.len()).collect().item() == 5


def test_a_new_dataset_does_not_show(store):
    frame = scan_cube(CUBE, store)
    extend_cube({"late": pa.table({"x": [0], "v3": [1]})}, CUBE, store, partition_on={"late": []})
    assert "v3" not in frame.collect().columns
    assert "v3" in scan_cube(CUBE, store).collect().columns


def test_a_removed_partition_stays(store):
    frame = scan_cube(CUBE, store)
    remove_partitions(CUBE, store, C("p") == 0, ["seed"])
    assert frame.collect().height == 4
    assert scan_cube(CUBE, store).collect().height == 2


@pytest.fixture
def versions():
    """A store with two states of a cube, the commits of the seed, and a moment between them."""
    store = MemoryStore()
    build_cube(SEED, CUBE, store)
    between = dt.datetime.now(dt.UTC)
    append_to_cube(NEW_CELL, CUBE, store)
    return store, history("cube++seed", store)["commit"].to_list(), between


def test_as_of_a_commit(versions):
    store, (_, first), _ = versions
    assert scan_cube(CUBE, store, as_of=first).select(pl.len()).collect().item() == 4
    assert scan_cube("cube", store, as_of=first).select(pl.len()).collect().item() == 4
    assert scan_dataset("cube++seed", store, as_of=first).select(pl.len()).collect().item() == 4
    assert scan_cube("cube", store).select(pl.len()).collect().item() == 5


@pytest.mark.parametrize("form", [lambda moment: moment, dt.datetime.isoformat], ids=["moment", "text"])
def test_as_of_a_moment(versions, form):
    store, _, between = versions
    assert 5 not in scan_cube(CUBE, store, as_of=form(between)).collect()["x"].to_list()
    assert 5 not in scan_dataset("cube++seed", store, as_of=form(between)).collect()["x"].to_list()


# --- errors ---------------------------------------------------------------------------------------


def test_an_unknown_cube_has_the_names_that_are_meant(store):
    with pytest.raises(InvalidInput, match=r"no cube 'cub' .*It has: cube\. Did you mean 'cube'\?"):
        scan_cube("cub", store)
    with pytest.raises(KartothekCubeError, match="cub"):
        scan_cube(Cube(["x"], ["p"], "cub"), store)


def test_an_unknown_dataset_has_the_names_that_are_meant(store):
    with pytest.raises(DatasetNotFound, match=r"cube\+\+e, cube\+\+seed\. Did you mean 'cube\+\+seed'\?"):
        scan_dataset("cube++sed", store)


def test_an_unknown_table(store):
    with pytest.raises(KeyNotFound, match="stock"):
        scan_dataset("cube++seed", store, table="stock")


@pytest.mark.parametrize("scan", [scan_cube, scan_dataset])
@pytest.mark.parametrize(("as_of", "error"), [(7, InvalidType), ("nothing", InvalidInput)])
def test_an_invalid_as_of(store, scan, as_of, error):
    name = "cube" if scan is scan_cube else "cube++seed"
    with pytest.raises(error, match=str(as_of)):
        scan(name, store, as_of=as_of)


@pytest.mark.parametrize("cube", [CUBE, "cube"], ids=["cube", "prefix"])
def test_unknown_dimensions(store, cube):
    with pytest.raises(InvalidInput, match="z"):
        scan_cube(cube, store, dimension_columns=["x", "z"])
    with pytest.raises(InvalidInput, match="v1"):
        scan_cube(cube, store, dimension_columns="v1")


@pytest.mark.parametrize("cube", [CUBE, "cube"], ids=["cube", "prefix"])
def test_unknown_datasets(store, cube):
    with pytest.raises(InvalidInput, match="late"):
        scan_cube(cube, store, datasets=["seed", "late"])


def test_a_wrong_option_is_refused_at_the_call(store):
    with pytest.raises(InvalidInput, match="threads"):
        scan_cube(CUBE, store, options=options(threads=0))


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
@pytest.mark.parametrize("columns", [["v1"], []], ids=["rows", "count"])
def test_a_file_that_is_gone(store, engine, columns):
    cube, dataset = scan_cube(CUBE, store), scan_dataset("cube++seed", store)
    (key, *_) = [key for key in store.keys("cube++seed/table") if key.endswith(".parquet")]
    store.delete(key)
    for frame in (cube, dataset):
        with pytest.raises(GONE, match=re.escape(key)) as caught:
            frame.select(columns or pl.len()).collect(engine=engine)
        assert "plan it again" in str(caught.value)


def test_an_index_that_is_gone(store):
    frame = scan_cube(CUBE, MeasuredStore(store)).filter(pl.col("i1") == 10)
    (key,) = store.keys("cube++seed/indices/i1")
    store.delete(key)
    with pytest.raises(GONE, match=re.escape(key)):
        frame.collect()


def test_a_dataset_that_is_gone(store):
    frame = scan_dataset("cube++e", store)
    delete_dataset("cube++e", store)
    with pytest.raises(GONE, match=r"cube\+\+e/table"):
        frame.collect()


def test_large_tables_are_not_copied_and_small_ones_are_merged():
    small, large = pa.table({"x": range(1_000)}), pa.table({"x": pa.array(range(2**18), pa.int64())})
    given = [small, large, small, small, large, pa.concat_tables([small] * 200)]
    found = list(tables._merged(table for table in given))
    assert pa.concat_tables(found).equals(pa.concat_tables(given))
    assert [len(table) for table in found] == [1_000, 2**18, 2_000, 2**18, 200_000]
    places = [[chunk.buffers()[1].address for chunk in table.column("x").chunks] for table in (large, *found[1:4:2])]
    assert places == places[:1] * 3

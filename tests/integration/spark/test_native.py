"""native=True: the files of our plan by Spark's own reader, with the rows and types of ours."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kartothek_cube import C, Cube, append_to_cube, build_cube
from kartothek_cube.api.dataset import store_dataframes_as_dataset, update_dataset_from_dataframes
from kartothek_cube.errors import InvalidInput, InvalidType, Unsupported
from kartothek_cube.spark import query_cube_spark, read_dataset_as_spark

N = None
MOMENTS = [dt.datetime(2024, 3, 10, 2, 30, 0, 1), dt.datetime(1, 1, 1), dt.datetime(1582, 10, 10), N]
ROWS = pa.table(
    {
        "p": ["a", "b c", "100%", "a"],
        "q": pa.array([-1, 2, 3, 4], pa.int16()),
        "x": [1, 2, 3, N],
        "i8": pa.array([1, -128, 127, N], pa.int8()),
        "f": [1.5, float("nan"), -0.0, N],
        "f32": pa.array([0.1, float("nan"), 0.0, N], pa.float32()),
        "s": ["ä", "", "z", N],
        "b": [b"a", b"\xff", b"", N],
        "flag": [True, False, True, N],
        "d": pa.array([m and m.date() for m in MOMENTS], pa.date32()),
        "t": pa.array(MOMENTS, pa.timestamp("us")),
        "tz": pa.array(MOMENTS, pa.timestamp("us", "UTC")),
        "m": pa.array([Decimal("1.50"), Decimal("-0.01"), Decimal(0), N], pa.decimal128(10, 2)),
        "a.b": [1, 2, 3, 4],
        "sp ace`": [1, 2, 3, 4],
    }
)
READS = {
    "everything": N,
    "partitions": [[("p", "in", ["a", "100%"]), ("q", ">", -1)]],
    "one column and a null": [[("f", "==", N)], [("x", "!=", 1), ("s", "==", "z")]],
    "no null": [[("f", "!=", N), ("x", "not in", [2, N])]],
    "distinct": [[("s", "is distinct from", "ä")]],
    "NaN is no number": [[("f", ">", -5.0)], [("f32", ">=", 0.1)]],
    "and not less": [[("f", "<", 5.0)], [("f32", "<=", 0.1)]],
    "zeros": [[("f", "==", 0.0)], [("f32", "==", -0.0)]],
    "zeros below": [[("f", "<=", -0.0)]],
    "zeros in a set": [[("f32", "in", [*map(float, range(20)), N])]],
    "not zero": [[("f", "!=", 0.0)]],
    "between values": [[("f32", "<", 0.1)], [("t", "<", np.datetime64("2024-03-10T02:30:00.000001500"))]],
    "out of range": [[("i8", "<", 1000)], [("i8", "==", 1000)]],
    "always": [[("i8", ">", -1000)]],
    "moments": [[("t", ">", dt.datetime(2024, 3, 10, 2, 30))], [("tz", "==", MOMENTS[1].replace(tzinfo=dt.UTC))]],
    "moment in": [[("t", "in", MOMENTS[:2])], [("d", "<=", dt.date(1582, 10, 10))]],
    "others": [[("m", ">=", Decimal("-0.015"))], [("b", "==", b"\xff")], [("flag", "!=", True)]],
    "names": [[("a.b", ">", 1), ("sp ace`", "<", 4)]],
    "nothing": [[("p", "==", "none")]],
    "no rows": [[("x", ">", 77)]],
}


def rows_of(frame):
    return sorted(map(str, frame.toArrow().to_pylist()))


def assert_same(read, **given):
    """Equal rows, columns and types; the native frame."""
    found, expected = read(native=True, **given), read(**given)
    assert found.schema == expected.schema
    assert rows_of(found) == rows_of(expected)
    return found


def plan_of(frame):
    """The physical plan, as `explain` shows it."""
    return frame._jdf.queryExecution().executedPlan().toString()


@pytest.fixture
def reader(store_url):
    """A function that reads the dataset `one`."""
    return lambda **given: read_dataset_as_spark("one", store_url, **given)


@pytest.fixture
def stored(store_url):
    """A dataset of one file in each partition, its files in Parquet's own types."""
    store_dataframes_as_dataset(store_url, "one", [ROWS], partition_on=["p", "q"])
    return store_url


def test_rows_and_types_are_those_of_our_reader(spark, stored, reader):
    spark.conf.set("spark.sql.parquet.datetimeRebaseModeInRead", "LEGACY")
    try:
        for predicates in READS.values():
            assert_same(reader, predicates=predicates)
    finally:
        spark.conf.unset("spark.sql.parquet.datetimeRebaseModeInRead")


def test_columns_in_order_and_without_those_of_predicates(spark, stored, reader):
    found = assert_same(reader, columns=["q", "a.b", "p"], predicates=[[("x", "<", 3)]])
    assert found.columns == ["q", "a.b", "p"]
    assert_same(reader, columns=["x"])


def test_spark_prunes_columns_files_and_row_groups(spark, stored, reader):
    from pyspark.sql import functions as F

    frame = reader(native=True, predicates=[[("x", ">", 0)]])
    text = plan_of(frame.where("q = 2").groupBy("p").agg(F.sum("x")))
    assert text.startswith("AdaptiveSparkPlan")
    assert "FileScan parquet [x#" in text
    assert "ReadSchema: struct<x:bigint>" in text
    assert "GreaterThan(x,0)" in text
    assert "(q#" in text.partition("PartitionFilters: [")[2].partition("]")[0]
    assert "Python" not in text
    assert "Arrow" not in text
    assert len(reader(native=True, predicates=[[("q", ">", 2)]]).inputFiles()) == 2


NAN_FILTERS = ["v1 > 1", "v1 >= 2", "v1 = double('NaN')", "v1 <> 0.5", "NOT (v1 <= 1)", "v1 IN (double('NaN'), 7)"]


def rewrite_with_statistics(store_url):
    """As other writers, and this library before, write floats."""
    for path in Path(store_url.removeprefix("hfs://")).rglob("*.parquet"):
        rows = pq.read_table(path, partitioning=None)
        if "v1" not in rows.column_names:  # an index
            continue
        pq.write_table(rows, path, row_group_size=2)
        assert pq.read_metadata(path).row_group(0).column(rows.column_names.index("v1")).is_stats_set


@pytest.mark.parametrize("is_older", [False, True])
def test_spark_loses_no_rows_with_nan_nor_negative_zeros(spark, store_url, reader, is_older):
    values = [0.5, float("nan"), N, 1.5, float("nan"), 0.25, -0.0, -0.0]
    rows = pa.table({"x": range(8), "v1": values, "v2": pa.array(values, pa.float32())})
    store_dataframes_as_dataset(store_url, "one", [rows])
    if is_older:
        rewrite_with_statistics(store_url)
    found, expected = reader(native=True), reader()
    for condition in [*NAN_FILTERS, "v1 = 0.0", "v1 IN (0.0, 7)", "v1 < 0.1"]:
        for text in (condition, condition.replace("v1", "v2")):
            assert rows_of(found.where(text)) == rows_of(expected.where(text)), text


def test_sparks_own_reader_alone_finds_rows_with_nan_in_our_files(spark, store_url):
    rows = pa.table({"x": range(5), "v1": [0.5, float("nan"), N, 0.75, float("nan")]})
    store_dataframes_as_dataset(store_url, "one", [rows])
    frame = spark.read.parquet(*map(str, Path(store_url.removeprefix("hfs://")).rglob("*.parquet")))
    for condition in NAN_FILTERS:
        assert {row.x for row in frame.where(condition).collect()} >= {1, 4}, condition


def test_many_files_are_found_without_a_job_of_spark(spark, store_url, reader):
    from concurrent.futures import ThreadPoolExecutor

    store_dataframes_as_dataset(store_url, "one", [pa.table({"p": range(40), "x": range(40)})], partition_on=["p"])
    setting, tracker = "spark.sql.sources.parallelPartitionDiscovery.threshold", spark.sparkContext.statusTracker()
    before = spark.conf.get(setting), set(tracker.getJobIdsForGroup())
    with ThreadPoolExecutor(2) as pool:
        frames = list(pool.map(lambda _: reader(native=True), range(4)))
    assert (spark.conf.get(setting), set(tracker.getJobIdsForGroup())) == before
    assert [frame.count() for frame in frames] == [40] * 4


def test_every_action_sees_the_dataset_as_it_was(spark, stored, reader):
    frame = reader(native=True, columns=["x"])
    update_dataset_from_dataframes([ROWS.slice(1, 2)], stored, "one", partition_on=["p", "q"])
    assert (frame.count(), reader(native=True).count()) == (4, 6)


SPECIAL = ["München", "ä/ö", "a=b", "[x]*{y,z}?", "é#?\\", "__HIVE_DEFAULT_PARTITION__", "plain", "None", "1.0"]


@pytest.mark.parametrize(
    ("values", "data_type"),
    [
        (SPECIAL, pa.string()),
        ([0.1, 1e-7, float(2**60)], pa.float64()),
        ([True, False], pa.bool_()),
        ([dt.date(2024, 1, 1), dt.date(1582, 10, 10)], pa.date32()),
        (MOMENTS[:2], pa.timestamp("us")),
        ([2**63, 1], pa.uint64()),
        ([200, 1], pa.uint8()),
        (list(range(40)), pa.int64()),
    ],
)
def test_partition_values_are_exact(spark, store_url, reader, values, data_type):
    rows = pa.table({"p": pa.array(values, data_type), "x": range(len(values))})
    store_dataframes_as_dataset(store_url, "one", [rows], partition_on=["p"])
    assert_same(reader)
    one = assert_same(reader, columns=["x"], predicates=[[("p", "==", values[0])]])
    assert one.collect() == [(0,)]


def test_two_keys_one_of_which_spark_would_misread(spark, store_url, reader):
    rows = pa.table({"p": ["Köln", "Bonn"] * 20, "q": [n // 2 for n in range(40)], "x": range(40)})
    store_dataframes_as_dataset(store_url, "one", [rows], partition_on=["p", "q"])
    found = assert_same(reader, predicates=[[("q", "<", 9)]])
    assert plan_of(found).count("FileScan") == 2


OLD_DAYS = [(1582, 10, 3), (1582, 10, 4), (1582, 10, 10), (1582, 10, 15), (1, 1, 1), (999, 3, 1)]
OLD_MOMENTS = pa.array([dt.datetime(*day, 3, 4, 5, 6) for day in OLD_DAYS], pa.timestamp("us"))


def test_old_days_are_found_in_the_calendar_of_our_reader(spark, store_url, reader):
    rows = pa.table({"d": OLD_MOMENTS.cast(pa.date32(), safe=False), "tz": OLD_MOMENTS.cast(pa.timestamp("us", "UTC"))})
    store_dataframes_as_dataset(store_url, "one", [rows.slice(n, 1) for n in range(len(rows))])
    for column in rows.column_names:
        for n in (0, 2, 4, 5):
            given = rows[column][n].as_py()
            found = {
                op: reader(native=True, columns=[column], predicates=[[(column, op, value)]]).toArrow()
                for op, value in [("==", given), ("in", [given]), (">", given), ("not in", [given])]
            }
            above = sum(value > given for value in rows[column].to_pylist())
            assert [table.num_rows for table in found.values()] == [1, 1, above, len(OLD_DAYS) - 1]
    plan = plan_of(reader(native=True, predicates=[[("d", "<", dt.date(999, 3, 1))]]))
    assert "LessThan(d,0999-03-01)" in plan


def test_moments_beyond_the_years_of_python(spark, store_url, reader):
    store_dataframes_as_dataset(store_url, "one", [pa.table({"t": OLD_MOMENTS, "x": range(len(OLD_MOMENTS))})])
    for year, count in (("12024", len(OLD_MOMENTS)), ("-0005", 0)):
        predicates = [[("t", "<", np.datetime64(f"{year}-01-01"))]]
        assert reader(native=True, predicates=predicates, columns=["x"]).count() == count


def test_zeros_in_a_set_beside_other_values(spark, store_url, reader):
    columns = {"f": pa.array([-0.0, 0.0, 1.0]), "f32": pa.array([-0.0, 0.0, 1.0], pa.float32())}
    whole, same = pa.table(columns), pa.table({c: pa.concat_arrays([a[:1], a[:1]]) for c, a in columns.items()})
    store_dataframes_as_dataset(store_url, "one", [whole, same, whole.slice(1, 1)])
    for column in columns:
        for values, count in (([0.0], 5), ([-0.0, 1.0], 6), ([1.0], 1)):
            assert reader(native=True, predicates=[[(column, "in", values)]]).count() == count
            assert reader(native=True, predicates=[[(column, "not in", values)]]).count() == 6 - count


@pytest.mark.parametrize("op", ["==", "!=", "<", ">=", "is distinct from"])
def test_a_column_without_a_type_has_no_value_to_compare(spark, store_url, reader, op):
    store_dataframes_as_dataset(store_url, "one", [pa.table({"x": [1, 2], "n": pa.nulls(2)})])
    assert_same(reader, predicates=[[("n", op, 3)]])
    assert_same(reader, predicates=[[("n", "not in" if "!" in op else "in", [3, N])]])


def test_values_that_would_need_too_many_scans_are_refused(spark, store_url, reader):
    rows = pa.table({"p": [f"ä{n}" for n in range(33)], "x": range(33)})
    store_dataframes_as_dataset(store_url, "one", [rows], partition_on=["p"])
    with pytest.raises(Unsupported, match=r"33 scans .* p='ä.*native=False"):
        reader(native=True)


def test_columns_that_older_files_lack_or_have_no_type_for(spark, store_url, reader):
    def update(**columns):
        given = pa.table({"p": [len(columns)], **columns})
        update_dataset_from_dataframes([given], store_url, "one", partition_on=["p"], add_columns=True)

    update(x=pa.array([1], pa.int8()))
    update(x=[2**40], s=["a"])
    update(x=pa.nulls(1), s=pa.nulls(1), t=pa.nulls(1))
    update(x=[4], s=["b"], t=[MOMENTS[0]], n=pa.nulls(1))
    assert_same(reader)
    assert_same(reader, columns=["s", "n"], predicates=[[("s", "==", N)], [("x", ">", 3), ("n", "==", N)]])


def replaced(store_url, table, **settings):
    """Put other rows into the only file of the dataset `one`, behind its back."""
    [path] = (Path(store_url.removeprefix("hfs://")) / "one" / "table").rglob("*.parquet")
    pq.write_table(table, path, **settings)


@pytest.mark.parametrize(
    ("given", "stored", "settings"),
    [
        (pa.array([1], pa.uint32()), N, {}),
        (pa.array([1.0], pa.float16()), N, {}),
        (pa.array([dt.time(1)]), N, {}),
        (pa.array([dt.timedelta(1)]), N, {}),
        (pa.array([[1]]), N, {}),
        (pa.array([{"a": 1}]), N, {}),
        (pa.array([MOMENTS[0]], pa.timestamp("us")), pa.array([MOMENTS[0]], pa.timestamp("ns")), {"version": "2.6"}),
        (pa.array([MOMENTS[0]], pa.timestamp("us")), N, {"use_deprecated_int96_timestamps": True}),
        (pa.array([MOMENTS[0]], pa.timestamp("us")), pa.array([MOMENTS[0]], pa.timestamp("us", "UTC")), {}),
        (pa.array([Decimal("1.50")], pa.decimal128(9, 2)), pa.array([Decimal("1.5")], pa.decimal128(9, 1)), {}),
        (pa.array([1], pa.int64()), pa.array([1], pa.uint32()), {}),
        (pa.array([1], pa.int32()), pa.array([1], pa.int64()), {}),
        (pa.array(["a"]), pa.array([["a"]]), {}),
    ],
)
def test_other_types_are_refused(spark, store_url, reader, given, stored, settings):
    store_dataframes_as_dataset(store_url, "one", [pa.table({"x": [1], "v1": given})])
    replaced(store_url, pa.table({"x": [1], "v1": given if stored is N else stored}), **settings)
    with pytest.raises(Unsupported, match=r"Column 'v1' of .*native=False"):
        reader(native=True)
    assert reader(native=True, columns=["x"]).collect() == [(1,)]


def test_a_codec_that_spark_lacks_is_refused(spark, store_url, reader):
    given = pa.table({"x": [1, 2], "y": [1, 2]})
    store_dataframes_as_dataset(store_url, "one", [given])
    replaced(store_url, given, compression={"x": "BROTLI", "y": "ZSTD"}, row_group_size=1)
    with pytest.raises(Unsupported, match=r"BROTLI.*'one/.*native=False"):
        reader(native=True)
    assert reader(native=True, columns=["y"]).count() == 2


def test_texts_of_a_dictionary_and_whatever_else_spark_reads_as_we_do(spark, store_url, reader):
    given = pa.table({"s": ["a", "b", N], "m": pa.array([Decimal("1.5")] * 3, pa.decimal128(9, 1)), "f": [-0.0] * 3})
    store_dataframes_as_dataset(store_url, "one", [given])
    coded = given.set_column(0, "s", given["s"].dictionary_encode())
    replaced(store_url, coded, store_decimal_as_integer=True, row_group_size=1)
    assert_same(reader)
    assert reader(native=True, predicates=[[("f", "==", 0.0), ("s", "!=", "a")]]).count() == 2
    assert reader(native=True, predicates=[[("f", "in", [0.0])], [("f", "<", -0.0)]]).count() == 3


def test_names_that_spark_takes_for_one_are_refused(spark, store_url, reader):
    store_dataframes_as_dataset(store_url, "one", [pa.table({"x": [1], "X": [2], "y": [3]})])
    with pytest.raises(Unsupported, match="'x' and 'X' of dataset 'one' for one"):
        reader(native=True, columns=["x"])
    assert reader(native=True, columns=["y"]).collect() == [(3,)]
    replaced(store_url, pa.table({"y": [3], "Y": [4]}))
    with pytest.raises(Unsupported, match="'y' and 'Y' of the file 'one/"):
        reader(native=True, columns=["y"])


def test_stores_and_files_out_of_sparks_reach_are_refused(spark, tmp_path, store_url):
    from kartothek_cube.api.serialization import CsvSerializer

    rows = pd.DataFrame({"x": [1]})
    store_dataframes_as_dataset(store_url, "csv", [rows], df_serializer=CsvSerializer())
    with pytest.raises(Unsupported, match=r"csv.*needs Parquet files"):
        read_dataset_as_spark("csv", store_url, native=True)
    braces = f"hfs://{tmp_path}/a%7Bb%7D"
    store_dataframes_as_dataset(braces, "one", [rows])
    with pytest.raises(Unsupported, match=r"paths without any of"):
        read_dataset_as_spark("one", braces, native=True)
    for name in ("_hidden", ".hidden"):
        store_dataframes_as_dataset(store_url, name.strip("."), [{"label": name, "data": [("table", rows)]}])
        with pytest.raises(Unsupported, match="hidden"):
            read_dataset_as_spark(name.strip("."), store_url, native=True)
    spaced = f"hfs://{tmp_path}/ä%20b%25"
    store_dataframes_as_dataset(spaced, "one", [rows])
    assert read_dataset_as_spark("one", f"{spaced}?readonly=true", native=True).collect() == [(1,)]


@pytest.mark.parametrize(
    ("given", "error", "match"),
    [
        ({"native": "yes"}, InvalidType, "native"),
        ({"dispatch_by": "p"}, InvalidInput, "dispatch_by='p' and native=True"),
        ({"blocksize": 3}, InvalidInput, "blocksize=3"),
        ({"parallelism": 3}, InvalidInput, "parallelism=3"),
    ],
)
def test_contradictions_are_refused(spark, stored, reader, given, error, match):
    with pytest.raises(error, match=match):
        reader(**{"native": True, **given})


def test_the_data_source_names_the_function(spark, stored):
    from kartothek_cube.spark import register

    register(spark)
    source = spark.read.format("kartothek_cube").options(store=stored, dataset="one", native="true")
    with pytest.raises(Exception, match="read_dataset_as_spark or query_cube_spark with native=True"):
        source.load()


# --- cubes ----------------------------------------------------------------------------------------


@pytest.fixture
def query(built, cube):
    """A function that queries the seed of the cube."""
    return lambda conditions=None, **given: query_cube_spark(cube, built, conditions, ["seed"], **given)


def test_a_query_of_one_dataset(spark, query, cube, built):
    for conditions in (None, C("p") == 2, (C("i1") == 1) & (C("v1") > 13.0), C("p") > 77):
        assert_same(lambda c=conditions, **given: query(c, **given))
    found = assert_same(query, payload_columns=["v1"])
    assert "FileScan parquet" in plan_of(found)
    assert_same(lambda **given: query_cube_spark(cube, built, payload_columns=["v1"], **given))


def test_a_join_is_refused_with_its_datasets(spark, cube, built):
    for given in ({}, {"conditions": C("v2") == "a", "payload_columns": ["v1"]}):
        with pytest.raises(Unsupported, match=r"does not join.*'seed' and 'e'"):
            query_cube_spark(cube, built, native=True, **given)
    with pytest.raises(Unsupported, match=r"\['y'\] only one row"):
        query_cube_spark(cube, built, None, ["seed"], ["x"], payload_columns=[], native=True)


def test_files_that_may_override_each_other_are_refused(spark, query, cube, built, seed):
    above = seed.set_column(0, "x", pa.array(np.array(seed["x"]) + 100))
    append_to_cube(above, cube, built)
    assert query(native=True).count() == 2 * seed.num_rows
    assert_same(query)
    append_to_cube(seed.slice(3, 1), cube, built)
    with pytest.raises(Unsupported, match=r"1 partitions of cube 'cube' have several files .* compact_cube"):
        query(native=True)
    other = C("p") == 3
    assert_same(lambda **given: query(other, **given))


def test_without_statistics_several_files_of_a_partition_are_refused(spark, store_url):
    from kartothek_cube import options

    cube = Cube(["x"], ["p"], "bare")
    with options(statistics=False):
        build_cube(pa.table({"x": [1, 2], "p": [0, 1], "v1": [1, 2]}), cube, store_url)
        append_to_cube(pa.table({"x": [2], "p": [0], "v1": [3]}), cube, store_url)
    with pytest.raises(Unsupported, match="1 partitions"):
        query_cube_spark(cube, store_url, native=True)


@pytest.mark.parametrize("is_older", [False, True])
def test_a_query_loses_no_rows_with_nan(spark, store_url, is_older):
    cube = Cube(["x"], ["p"], "numbers")
    build_cube(pa.table({"x": [1, 2, 3], "p": [0, 0, 0], "v1": [0.5, float("nan"), N]}), cube, store_url)
    if is_older:
        rewrite_with_statistics(store_url)
    found, expected = (query_cube_spark(cube, store_url, native=native, spark=spark) for native in (True, False))
    for condition in NAN_FILTERS:
        assert rows_of(found.where(condition)) == rows_of(expected.where(condition)), condition


@pytest.mark.parametrize("given", [{"partition_by": "i1"}, {"changed_since": "x"}, {"blocksize": 1}])
def test_contradictions_of_a_query_are_refused(spark, query, given):
    with pytest.raises(InvalidInput, match=f"{next(iter(given))}.* and native=True exclude"):
        query(native=True, **given)

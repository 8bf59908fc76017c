"""Datasets from Spark data frames: the rows of the eager verbs, one staging, one commit, the files
as asked for.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kartothek_cube import options
from kartothek_cube.api.dataset import (
    DatasetFactory,
    DatasetLayout,
    month,
    read_table,
    set_layout,
    store_dataframes_as_dataset,
    update_dataset_from_dataframes,
    year,
)
from kartothek_cube.api.serialization import ParquetSerializer
from kartothek_cube.core.io.csv import CsvFormat
from kartothek_cube.errors import (
    AlreadyExists,
    CommitConflict,
    InvalidInput,
    InvalidRequest,
    InvalidType,
    UnknownColumn,
    Unsupported,
)
from kartothek_cube.spark import store_dataset_from_spark, update_dataset_from_spark

DDL = "p bigint, i1 bigint, x bigint, v1 double, t string"


@pytest.fixture
def rows() -> pa.Table:
    return pa.table(
        {
            "p": [n % 3 for n in range(60)],
            "i1": [n % 5 for n in range(60)],
            "x": range(60),
            "v1": [n / 2 for n in range(60)],
            "t": ["ä"] * 60,
        }
    )


@pytest.fixture
def frame(spark, rows):
    """The rows as a Spark data frame of three partitions, behind a shuffle of its own."""
    return spark.createDataFrame(rows, DDL).repartition(3)


@pytest.fixture
def untouched(spark, rows):
    """A data frame that fails when somebody runs it."""

    def failing(batches):
        raise AssertionError("a task ran")
        yield from batches

    return spark.createDataFrame(rows, DDL).mapInArrow(failing, DDL)


@pytest.fixture
def staged(store_url):
    """A function: the data files that lie in the store, named by a document or not."""
    root = Path(store_url.removeprefix("hfs://"))
    return lambda: sorted(
        str(path.relative_to(root))
        for path in root.rglob("*.parquet")
        if "indices" not in str(path) and "/" in str(path.relative_to(root))
    )


def named(dataset):
    return sorted(key for partition in dataset.partitions.values() for key in partition["files"].values())


def content(dataset, store):
    return sorted(read_table(dataset, store).fillna({"v1": -1.0, "t": ""}).itertuples(index=False, name=None))


@pytest.mark.parametrize(
    "layout",
    [{}, {"shuffle": True}, {"shuffle": True, "num_buckets": 2, "bucket_by": "i1", "sort_partitions_by": ["x"]}],
    ids=str,
)
def test_what_is_stored_and_updated_is_what_the_eager_verbs_store(
    spark, frame, rows, store_url, tmp_path, staged, layout
):  # L03
    eager = tmp_path / "eager"
    store_dataframes_as_dataset(eager, "d", [rows], metadata={"a": 1}, partition_on=["p"], secondary_indices=["i1"])
    stored = store_dataset_from_spark(
        frame, store_url, "d", secondary_indices=["i1"], metadata={"a": 1}, partition_on=["p"], **layout
    )
    assert staged() == named(stored)
    assert stored.table_meta["table"].internal().equals(DatasetFactory("d", eager).table_meta["table"].internal())
    more, rest = (
        pa.Table.from_pylist([{"p": 7, "i1": 1, "x": 99, "v1": None, "t": None}], rows.schema),
        ([{"p": 1}], {"b": 2}),
    )
    update_dataset_from_dataframes([more], eager, "d", *rest)
    updated = update_dataset_from_spark(
        spark.createDataFrame(more, DDL), store_url, "d", delete_scope=rest[0], metadata=rest[1], **layout
    )
    assert len(staged()) == len(stored.partitions) + 1
    assert {"a": 1, "b": 2}.items() <= updated.metadata.items()
    assert content("d", store_url) == content("d", eager)
    assert set(read_table("d", store_url, predicates=[[("i1", "==", 2)]])["x"]) == {
        x for x in range(60) if x % 5 == 2 and x % 3 != 1
    }


# L04 L07
def test_a_shuffle_makes_one_file_for_each_value_and_bucket_and_an_indexed_value_lies_in_one_of_them(
    frame, store_url, store, staged
):
    dataset = store_dataset_from_spark(
        frame, store_url, "d", "table", ["i1"], True, None, 3, ["v1", "x"], partition_on=["p"], bucket_by=["i1"]
    )
    found = [(key.split("/")[2], pq.read_table(pa.BufferReader(store.get(key)))) for key in staged()]
    values = [(p, value) for p, file in found for value in set(file.column("i1").to_pylist())]
    assert sorted(values) == [(f"p={p}", i) for p in range(3) for i in range(5)]
    assert 1 < max([p for p, _ in found].count(p) for p in ("p=0", "p=1", "p=2")) <= 3
    assert all(file.column("x").to_pylist() == sorted(file.column("x").to_pylist()) for _, file in found)
    index = dataset.load_all_indices(store_url).indices["i1"]
    assert all(len(index.eval_operator("==", i)) == 3 for i in range(5))


def test_all_columns_are_hashed_by_default_and_without_partitions_there_is_a_file_for_each_bucket(
    frame, store_url, staged
):
    store_dataset_from_spark(frame, store_url, "d", shuffle=True, num_buckets=2)
    assert len(staged()) == 2
    assert len(content("d", store_url)) == 60


def test_the_ratio_divides_the_number_of_tasks(frame, store_url, staged):
    store_dataset_from_spark(frame, store_url, "d", repartition_ratio=2, parallelism=1)
    assert len(staged()) == 2


def test_rows_that_do_not_fit_into_memory_come_in_several_files_or_as_a_stream(spark, frame, store_url, staged, store):
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "16")
    try:
        store_dataset_from_spark(
            frame.coalesce(1), store_url, "d", sort_partitions_by="x", options=options(bytes_in_flight=1024)
        )
        with options(bytes_in_flight=1024):
            update_dataset_from_spark(frame, store_url, "d", shuffle=True, sort_partitions_by="x")
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    files = [pq.read_table(pa.BufferReader(store.get(key))).column("x").to_pylist() for key in staged()]
    assert sorted(map(len, files)) == [12, 16, 16, 16, 60]
    assert all(x == sorted(x) for x in files)


def test_without_a_data_frame_partitions_go_and_metadata_change(spark, rows, store_url):  # L02
    store_dataframes_as_dataset(store_url, "d", [rows], partition_on=["p"])
    factory = DatasetFactory("d", store_url)
    assert len(factory.partitions) == 3
    merged = update_dataset_from_spark(
        None, factory=factory, delete_scope=[{"p": 0}], metadata_merger=lambda dicts: {"n": len(dicts)}
    )
    assert (len(merged.partitions), merged.metadata["n"], len(factory.partitions)) == (2, 1, 2)


def test_the_scope_is_applied_to_what_is_there_when_the_rows_are_published(spark, rows, store_url):  # L01
    store_dataframes_as_dataset(store_url, "d", [rows], partition_on=["p"])

    def meanwhile():
        update_dataset_from_dataframes([rows.slice(0, 1)], store_url, "d")
        return {}

    newer = spark.createDataFrame([(0, 0, 0, 0.0, "newer")], DDL)
    with pytest.raises(CommitConflict):
        update_dataset_from_spark(newer, store_url, "d", delete_scope=[{"p": 0}], metadata=meanwhile)
    update_dataset_from_spark(newer, store_url, "d", delete_scope=[{"p": 0}], metadata=meanwhile, on_conflict="reapply")
    assert read_table("d", store_url, predicates=[[("p", "==", 0)]])["t"].tolist() == ["newer"]


def test_a_numbered_write_that_is_there_runs_nothing(spark, rows, frame, untouched, store_url):
    first = store_dataset_from_spark(frame, store_url, "d", txn=("job", 3))
    again = store_dataset_from_spark(untouched, store_url, "d", txn=("job", 3))
    older = update_dataset_from_spark(untouched, store_url, "d", txn=("job", 2))
    assert named(first) == named(again) == named(older)
    update_dataset_from_spark(None, store_url, "d", txn=("job", 4), metadata={"a": 1})
    assert update_dataset_from_spark(untouched, store_url, "d", txn=("job", 4)).metadata["a"] == 1


def test_rows_of_no_type_take_the_type_of_the_dataset_and_columns_may_come_in_any_order(spark, rows, store_url):
    store_dataframes_as_dataset(store_url, "d", [rows], partition_on=["p"])
    update_dataset_from_spark(spark.sql("SELECT NULL AS v1, 100L AS x, 'new' AS t, 5L AS p, 1L AS i1"), store_url, "d")
    found = read_table("d", store_url, predicates=[[("x", "==", 100)]])
    assert found.to_dict("records")[0] | {"v1": None} == {"p": 5, "i1": 1, "x": 100, "v1": None, "t": "new"}


def test_new_columns_are_added_on_request(spark, rows, store_url):
    store_dataframes_as_dataset(store_url, "d", [rows.select(["p", "x"])], partition_on=["p"])
    wider = spark.sql("SELECT 5L AS p, 100L AS x, 'new' AS v2")
    with pytest.raises(InvalidInput, match="add_columns=True"):
        update_dataset_from_spark(wider, store_url, "d")
    update_dataset_from_spark(wider, store_url, "d", add_columns=True)
    assert read_table("d", store_url)["v2"].dropna().tolist() == ["new"]


@pytest.mark.parametrize("shuffle", [False, True])
def test_nulls_in_a_partition_column_are_refused_by_name(frame, store_url, shuffle):  # L08
    holed = frame.selectExpr("nullif(p, 1) AS p", "x")
    with pytest.raises(InvalidInput, match=r"nulls in the partition columns \['p'\] of dataset 'd'"):
        store_dataset_from_spark(holed, store_url, "d", shuffle=shuffle, partition_on=["p"])


def test_a_data_frame_without_rows(spark, frame, rows, store_url):  # L03
    empty = frame.where("x < 0")
    with pytest.raises(InvalidInput, match="Cannot store empty datasets: the data frame for 'd' has no rows"):
        store_dataset_from_spark(empty, store_url, "d", partition_on=["p"], shuffle=True)
    dataset = store_dataset_from_spark(empty, store_url, "d", secondary_indices=["i1"])
    assert (len(dataset.partitions), len(read_table("d", store_url))) == (1, 0)
    store_dataframes_as_dataset(store_url, "e", [rows], partition_on=["p"])
    assert len(update_dataset_from_spark(empty, store_url, "e", delete_scope=[{"p": 0}]).partitions) == 2


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"table": None}, InvalidType, "`table` is not optional"),
        ({"table": "_x"}, InvalidInput, "no name for a table"),
        ({"partition_on": ["nope"]}, InvalidInput, r"Partition column\(s\) missing: nope"),
        ({"partition_on": ["i1", "i1"]}, InvalidInput, "twice"),
        ({"partition_on": ["v2"]}, Unsupported, "'v2'"),
        ({"partition_on": ["p"], "secondary_indices": ["p"]}, InvalidRequest, "partition columns"),
        ({"secondary_indices": ["nope"]}, InvalidRequest, "`nope`"),
        ({"secondary_indices": ["v2"]}, Unsupported, "v2"),
        ({"sort_partitions_by": "nope"}, UnknownColumn, "nope"),
        ({"sort_partitions_by": "v2"}, Unsupported, "v2"),
        ({"df_serializer": CsvFormat()}, Unsupported, "v2"),
        ({"df_serializer": "parquet"}, InvalidType, "df_serializer"),
        ({"shuffle": True, "num_buckets": None}, ValueError, "must not be None when shuffling data"),
        ({"shuffle": True, "num_buckets": True}, InvalidInput, "num_buckets=True"),
        ({"shuffle": "yes"}, InvalidType, "shuffle"),
        ({"shuffle": True, "num_buckets": 2, "bucket_by": ["nope"]}, KeyError, "nope"),
        ({"shuffle": True, "num_buckets": 2, "bucket_by": 5}, InvalidType, "bucket_by"),
        ({"shuffle": True, "num_buckets": 2}, TypeError, "'v2' of dataset 'd' is list.*bucket_by"),
        ({"repartition_ratio": 0}, InvalidInput, "repartition_ratio=0"),
        ({"repartition_ratio": "2"}, InvalidType, "repartition_ratio"),
        ({"metadata": {"a": object()}}, (InvalidInput, InvalidType), "JSON"),
        ({"metadata_merger": 5}, InvalidType, "metadata_merger"),
        ({"on_conflict": "ignore"}, InvalidInput, "on_conflict"),
        ({"txn": 5}, InvalidType, "txn"),
        ({"parallelism": 0}, InvalidInput, "parallelism=0"),
        ({"timestamps": "local"}, InvalidInput, "timestamps='local'"),
        ({"store": "hmemory://"}, InvalidType, "memory of this process"),
        ({"store": None}, InvalidType, "store"),
        ({"dataset_uuid": "ä"}, InvalidInput, "ä"),
        ({"df": None}, InvalidType, "Expected a Spark data frame"),
        ({"df": 5}, InvalidType, "Expected a Spark data frame"),
    ],
)
def test_wrong_arguments_are_refused_before_the_first_task(
    untouched, store_url, staged, arguments, error, text
):  # L05 L06
    call = {"df": untouched.selectExpr("*", "array(x) AS v2"), "store": store_url, "dataset_uuid": "d", **arguments}
    with pytest.raises(error, match=text):
        store_dataset_from_spark(**call)
    assert staged() == []


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"table": "other"}, TypeError, "Unexpected table in dataset 'd'"),
        ({"table": None}, TypeError, "`table` is not optional"),
        ({"partition_on": ["i1"]}, InvalidInput, "Incompatible set of partition keys"),
        ({"secondary_indices": ["x"]}, InvalidInput, "Incorrect indices"),
        ({"delete_scope": [{"v1": 1.0}]}, InvalidRequest, "v1"),
        ({"delete_scope": [{}]}, InvalidInput, "empty dict"),
        ({"dataset_uuid": None}, TypeError, "dataset_uuid"),
        ({"dataset_uuid": "new", "df": None}, ValueError, "Cannot store empty datasets"),
    ],
)
def test_what_does_not_fit_the_dataset_is_refused_before_the_first_task(
    untouched, rows, store_url, staged, arguments, error, text
):  # L11
    store_dataframes_as_dataset(store_url, "d", [rows], partition_on=["p"])
    before = staged()
    with pytest.raises(error, match=text):
        update_dataset_from_spark(**{"df": untouched, "store": store_url, "dataset_uuid": "d", **arguments})
    with pytest.raises(InvalidInput, match="Schema violation"):
        update_dataset_from_spark(untouched.withColumn("v1", untouched["t"]), store_url, "d")
    with pytest.raises(AlreadyExists):
        store_dataset_from_spark(untouched, store_url, "d")
    assert staged() == before


def test_what_is_overwritten_is_replaced_and_keeps_its_encoding(frame, rows, store_url):
    store_dataframes_as_dataset(
        store_url, "d", [rows], metadata={"a": 1}, partition_on=["i1"], metadata_storage_format="msgpack"
    )
    replaced = store_dataset_from_spark(
        frame.where("p = 0"), store_url, "d", partition_on=["p"], shuffle=True, overwrite=True
    )
    assert (len(replaced.partitions), replaced.partition_keys, "a" in replaced.metadata) == (1, ["p"], False)
    assert len(read_table("d", store_url)) == 20


def test_a_dataset_of_several_tables_is_refused(untouched, rows, store_url):
    store_dataframes_as_dataset(store_url, "d", [{"a": rows, "b": rows}])
    with pytest.raises(TypeError, match=r"Expected single table dataset: 'd' has the tables \['a', 'b'\]"):
        update_dataset_from_spark(untouched, store_url, "d", "a")


def test_equal_values_of_whatever_width_have_the_same_bucket(spark):
    from kartothek_cube.spark.stage import bucket_column

    alike = {
        "a whole number": ["7Y", "7S", "7", "7L"],
        "a number below zero": ["-1Y", "-1L"],
        "a fraction": ["CAST(0.5 AS float)", "CAST(0.5 AS double)"],
        "zero": ["CAST(0 AS double)", "-CAST(0 AS double)", "CAST('-0.0' AS float)"],
        "no number": ["CAST('NaN' AS float)", "CAST('NaN' AS double)"],
        "a decimal": ["CAST(1.5 AS decimal(4, 1))", "CAST(1.5 AS decimal(38, 9))"],
        "a day": ["DATE'2024-01-01'", "TIMESTAMP_NTZ'2024-01-01 00:00:00'"],
        "text": ["'ä'", "CAST('ä' AS varchar(5))"],
        "no value": ["CAST(NULL AS int)", "CAST(NULL AS bigint)"],
        "other": ["true", "X'00'", "TIME'10:00:00'", "TIMESTAMP'2024-01-01 00:00:00'"],
    }
    cells = {f"{kind} {i}": text for kind, texts in alike.items() for i, text in enumerate(texts)}
    frame = spark.sql("SELECT " + ", ".join(f"{text} AS `{name}`" for name, text in cells.items()))
    found = (
        frame.select(*(bucket_column({f"`{f.name}`": f.dataType}, 2**40).alias(f.name) for f in frame.schema.fields))
        .first()
        .asDict()
    )
    for kind, texts in list(alike.items())[:-1]:
        assert len({found[f"{kind} {i}"] for i in range(len(texts))}) == 1, kind
    assert all(0 <= bucket < 2**40 for bucket in found.values())
    assert len(set(found.values())) == len(alike) - 1 + 4


def test_text_with_a_collation_is_told_apart_as_in_a_file(spark, store_url, staged):
    frame = spark.sql("SELECT IF(id % 2 = 0, 'a', 'A') COLLATE UTF8_LCASE AS p, id AS x FROM range(0, 20, 1, 2)")
    store_dataset_from_spark(frame, store_url, "d", shuffle=True, sort_partitions_by="x", partition_on=["p"])
    assert [key.split("/")[2] for key in staged()] == ["p=A", "p=a"]


def test_later_writes_obey_the_layout_on_record(frame, store_url, staged, store):
    created = store_dataset_from_spark(
        frame,
        store_url,
        "d",
        partition_on="p",
        shuffle=True,
        num_buckets=2,
        bucket_by="i1",
        sort_partitions_by="x",
        df_serializer=ParquetSerializer("ZSTD"),
    )
    assert created.layout == DatasetLayout(("x",), ("i1",), 2, None, "ZSTD")
    assert len(staged()) == 6
    update_dataset_from_spark(frame, store_url, "d", shuffle=True)
    assert len(staged()) == 12
    for key in staged():
        file = pq.ParquetFile(pa.BufferReader(store.get(key)))
        assert file.metadata.row_group(0).column(0).compression == "ZSTD"
        assert file.read().column("x").to_pylist() == sorted(file.read().column("x").to_pylist())
    set_layout("d", store_url, num_buckets=0, target_file_bytes=300)
    update_dataset_from_spark(frame, store_url, "d", shuffle=True)
    assert len(staged()) > 15  # one file for each partition, cut
    assert len(content("d", store_url)) == 180


def test_an_overwrite_without_the_hashed_column_of_the_record(frame, store_url, staged):
    buckets = {"shuffle": True, "num_buckets": 2, "bucket_by": "i1"}
    store_dataset_from_spark(frame, store_url, "d", partition_on="p", **buckets)
    fewer = frame.drop("i1")
    replaced = store_dataset_from_spark(fewer, store_url, "d", partition_on="p", shuffle=True, overwrite=True)
    assert (len(replaced.partitions), replaced.layout) == (3, DatasetLayout())
    with pytest.raises(UnknownColumn, match="i1"):
        store_dataset_from_spark(fewer, store_url, "d", partition_on="p", overwrite=True, **buckets)


def test_a_large_partition_without_the_column_of_the_order_on_record(spark, store_url):
    frame = spark.range(0, 20_000, 1, 1).selectExpr("id % 2 AS p", "id AS x", "id * 2 AS v1")
    store_dataset_from_spark(frame, store_url, "d", partition_on="p", sort_partitions_by="v1")
    with options(bytes_in_flight=100_000):
        replaced = store_dataset_from_spark(
            frame.drop("v1"), store_url, "d", partition_on="p", shuffle=True, overwrite=True
        )
    assert (replaced.layout, read_table("d", store_url)["x"].nunique()) == (DatasetLayout(), 20_000)


def test_partition_columns_follow_from_dates(spark, store_url):
    frame = spark.sql("SELECT id AS x, date_add(DATE'2024-05-30', CAST(id AS INT)) AS t FROM range(4)")
    store_dataset_from_spark(frame, store_url, "d", partition_on=[year("t"), month("t")], shuffle=True)
    update_dataset_from_spark(frame.limit(1), store_url, "d", partition_on=[year("t"), month("t")])
    rows = read_table("d", store_url)
    assert sorted(zip(rows["x"], rows["t_month"].astype(str), rows["t_year"], strict=True)) == [
        (0, "2024-05-01", 2024),
        (0, "2024-05-01", 2024),
        (1, "2024-05-01", 2024),
        (2, "2024-06-01", 2024),
        (3, "2024-06-01", 2024),
    ]
    with pytest.raises(Unsupported, match="Cast it to date"):
        update_dataset_from_spark(frame.selectExpr("x", "string(t) AS t"), store_url, "d", partition_on=[month("t")])

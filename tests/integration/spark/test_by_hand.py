"""Plain functions of this library inside functions of Spark, which need nothing of Spark."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa
import pytest

from kartothek_cube import C, load_group, plan_cube_query, query_cube, query_cube_arrow
from kartothek_cube.api.dataset import read_table
from tests.support.store_log import Log, LoggedStore

pytestmark = pytest.mark.usefixtures("pickled_by_value")


def test_map_partitions_load_groups_and_plan(spark, cube, built):
    groups = list(plan_cube_query(cube, built, partition_by="i1").groups)

    def totals(groups):
        for group in groups:
            again = plan_cube_query(cube, built, C("i1") == group.key["i1"], partition_by="i1").groups
            yield group.key["i1"], load_group(group, built).num_rows, [load_group(g, built).num_rows for g in again]

    rows = [sum(r["i1"] == i for r in query_cube_arrow(cube, built).to_pylist()) for i in range(3)]
    assert spark.sparkContext.parallelize(groups, 3).mapPartitions(totals).collect() == [
        (i, n, [n]) for i, n in enumerate(rows)
    ]


def test_map_in_arrow_load_groups_and_tables(spark, cube, built):
    groups = list(plan_cube_query(cube, built).groups)

    def counts(batches):
        for batch in batches:
            found = [load_group(groups[i], built).num_rows for i in batch.column(0).to_pylist()]
            yield pa.record_batch({"n": found, "rows": [len(read_table("cube++e", built))] * len(found)})

    assert [tuple(r) for r in spark.range(0, 4, 1, 2).mapInArrow(counts, "n bigint, rows bigint").collect()] == [
        (50, 4)
    ] * 4


def test_a_grouped_frame_and_a_pandas_function_query(spark, cube, built):
    from pyspark.sql import functions as F

    def compared(key: tuple, frame: pd.DataFrame) -> pd.DataFrame:
        found = query_cube(cube, built, C("p") == int(key[0]), payload_columns=["v1"])[0]
        return pd.DataFrame({"p": [key[0]], "rows": [len(found)], "asked": [len(frame)]})

    @F.pandas_udf("bigint")
    def rows_of(p: pd.Series) -> pd.Series:
        return p.map(lambda value: len(query_cube(cube, built, C("p") == int(value))[0]))

    asked = spark.range(0, 6, 1, 2).selectExpr("id % 2 AS p")
    grouped = asked.groupBy("p").applyInPandas(compared, "p bigint, rows bigint, asked bigint")
    assert sorted(tuple(r) for r in grouped.withColumn("again", rows_of("p")).collect()) == [
        (0, 50, 3, 50),
        (1, 50, 3, 50),
    ]


def test_a_batch_of_a_stream_is_compared_with_the_cube(spark, cube, built, tmp_path):
    import pyarrow.parquet as pq

    (tmp_path / "arrived").mkdir()
    pq.write_table(pa.table({"x": [1, 2, 77]}), tmp_path / "arrived" / "1.parquet")
    known = []

    def compare(batch, number):
        cells = set(query_cube_arrow(cube, built).column("x").to_pylist())
        known.append((number, sorted(row.x for row in batch.collect() if row.x in cells)))

    stream = spark.readStream.schema("x bigint").parquet(str(tmp_path / "arrived")).writeStream.foreachBatch(compare)
    stream.option("checkpointLocation", str(tmp_path / "seen")).trigger(availableNow=True).start().awaitTermination()
    assert known == [(0, [1, 2])]


def test_a_worker_reads_an_unchanged_document_once(spark, cube, built, tmp_path):
    store, log = LoggedStore(built, tmp_path / "log"), Log(tmp_path / "log")

    def queried(batches):
        for batch in batches:
            found = query_cube_arrow(cube, store, C("p") == 1, datasets=["seed", "e"])
            yield pa.record_batch({"n": [found.num_rows] * batch.num_rows})

    # More tasks than there can be workers, so that some worker has two.
    assert [row.n for row in spark.range(0, 12, 1, 12).mapInArrow(queried, "n bigint").collect()] == [50] * 12
    document, reads, looks = "cube++seed.by-dataset-metadata.json", {}, {}
    for worker, operation, key in log.lines():
        if key == document:
            counts = looks if operation == "changed" else reads
            counts[worker] = counts.get(worker, 0) + 1
    assert set(reads.values()) == {1}
    assert sum(looks.values()) == 12 - len(reads) > 0

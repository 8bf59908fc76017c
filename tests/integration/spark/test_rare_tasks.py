"""Lines of the checklist of cubes about distributed work that no other test is about."""

from __future__ import annotations

import numpy as np
import pytest

from kartothek_cube import query_cube_arrow
from kartothek_cube.errors import InvalidInput, InvalidType
from kartothek_cube.spark import build_cube_from_spark, map_cube_groups, query_cube_spark

pytestmark = pytest.mark.usefixtures("pickled_by_value")


@pytest.mark.parametrize(("blocksize", "error"), [("1", InvalidType), (1.5, InvalidType), ([1], InvalidType), (0, InvalidInput), (-1, InvalidInput)])
def test_a_wrong_blocksize_is_refused_when_the_query_is_made(spark, cube, built, blocksize, error):  # cube 239
    with pytest.raises(error, match="blocksize="):
        query_cube_spark(cube, built, blocksize=blocksize)
    with pytest.raises(error, match="blocksize="):
        map_cube_groups(lambda key, table: None, "n bigint", cube, built, partition_by="i1", blocksize=blocksize)


def test_a_blocksize_may_be_any_kind_of_whole_number(spark, cube, built):  # cube 239
    assert query_cube_spark(cube, built, blocksize=np.int8(2)).count() == query_cube_arrow(cube, built).num_rows


@pytest.mark.parametrize("layout", [{}, {"shuffle": True}, {"shuffle": True, "num_buckets": 2}], ids=str)
def test_what_makes_the_rows_runs_once_for_each_block(cube, frame, store_url, tmp_path, layout):  # cube 241
    log = str(tmp_path / "log")

    def counted(batches):
        for batch in batches:
            with open(log, "a") as lines:  # noqa: PTH123 -- a worker has nothing imported
                lines.write(f"{batch.num_rows}\n")
            yield batch

    build_cube_from_spark(frame.mapInArrow(counted, frame.schema), cube, store_url, **layout)
    with open(log) as lines:  # noqa: PTH123
        assert sum(map(int, lines)) == 200


def test_a_write_of_two_datasets_is_one_job_with_a_task_for_each_block(cube, spark, store_url):  # cube 242
    context = spark.sparkContext
    context.setJobGroup("a write of two", "")
    seed = spark.range(0, 10, 1, 3).selectExpr("id AS x", "id AS y", "id % 2 AS p", "id AS i1")
    enrichment = spark.range(0, 10, 1, 2).selectExpr("id AS x", "id * 2 AS v3")
    try:
        build_cube_from_spark({"seed": seed, "e": enrichment}, cube, store_url, partition_on={"e": []})
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)
    tracker = context.statusTracker()
    stages = [tracker.getStageInfo(stage) for job in tracker.getJobIdsForGroup("a write of two") for stage in tracker.getJobInfo(job).stageIds]
    assert (len(tracker.getJobIdsForGroup("a write of two")), [stage.numTasks for stage in stages]) == (1, [5])

"""Many groups: planned at once, run in one job of few tasks, without rows on the driver.

``make many-groups`` runs them with a hundred thousand.
"""

from __future__ import annotations

import os
import pickle
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import Observation
from pyspark.sql import functions as F

from kartothek_cube import Cube, build_cube, open_store, plan_cube_query
from kartothek_cube.core.metadata.naming import new_id
from kartothek_cube.core.write.stage import Receipt
from kartothek_cube.cube.members import load_cube
from kartothek_cube.cube.write.commit import commit_cube_write
from kartothek_cube.cube.write.plan import plan_append
from kartothek_cube.spark import map_cube_groups, query_cube_spark
from kartothek_cube.spark.tasks import pack, task_count
from tests.support.store_log import Log, LoggedStore

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("pickled_by_value")]

N = int(os.environ.get("KARTOTHEK_CUBE_GROUPS", "20000"))
NAMES = 30_000


def jobs_and_tasks(spark, action):
    context, group = spark.sparkContext, new_id()
    context.setJobGroup(group, "")
    try:
        result = action()
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)
        context.setLocalProperty("spark.job.description", None)
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    stages = [tracker.getStageInfo(stage) for job in jobs for stage in job.stageIds]
    return result, len(jobs), sum(stage.numCompletedTasks for stage in stages)


def many_files(cube, url):
    """Partitions whose files are few files under as many names, each with an id of its own."""
    build_cube(pa.table({"x": [0], "p": [0], "v1": [1.0]}), cube, url)
    store, root = open_store(url), Path(url.removeprefix("hfs://"))
    snapshots = load_cube(cube, store)
    snapshot = snapshots["seed"]
    label, key = snapshot.partitions.labels[0].as_py(), snapshot.files[0].as_py()
    schema = next(iter(snapshot.schemas.values()))
    receipts = []
    original = root / key
    for p in range(1, N):
        own_label = label.replace("p=0", f"p={p}")
        own_key = f"{key.rpartition('/')[0].replace('p=0', f'p={p}')}/{new_id()}.parquet"
        (root / own_key).parent.mkdir()
        # File systems limit the names of one file.
        if p % NAMES:
            os.link(original, root / own_key)
        else:
            original = Path(shutil.copy(original, root / own_key))
        receipts.append(Receipt(snapshot.uuid, own_label, own_key, {"p": p}, 1, 1, schema, {}))
    commit_cube_write(store, plan_append(cube, {"seed": schema}, snapshots), {"seed": receipts})


def check_plan(cube, url):
    """The plan is small on its way to the executors, and no message is larger than its part."""
    slices = plan_cube_query(cube, url).slices
    chunks = pack(slices, task_count(len(slices), 2))
    assert sum(map(len, chunks)) < 64 * N
    assert max(map(len, chunks)) < 2 * sum(map(len, chunks)) / len(chunks)
    assert len(pickle.dumps(slices)) < 256 * N


def test_many_files_run_in_one_job_of_few_tasks(spark, tmp_path):
    cube, url = Cube(["x"], ["p"], "cube", suppress_index_on=["x"]), f"hfs://{tmp_path / 'store'}"
    many_files(cube, url)
    check_plan(cube, url)
    store, log = LoggedStore(url, tmp_path / "log"), Log(tmp_path / "log")
    seen = Observation()
    frame = query_cube_spark(cube, store).observe(
        seen, F.count(F.lit(1)).alias("rows"), F.sum("p").alias("p"), F.sum("v1").alias("v1")
    )
    _, jobs, tasks = jobs_and_tasks(spark, frame.write.format("noop").mode("overwrite").save)
    assert seen.get == {"rows": N, "p": N * (N - 1) // 2, "v1": float(N)}
    assert (jobs, tasks) == (1, 8)
    assert all(counts == {"tail": 1} for counts in log.by_file("cube++seed/table/").values())
    assert len(log.by_file("cube++seed/table/")) == N
    # No row passes the driver: it opens no data file.
    assert not [key for process, _, key in log.lines() if int(process) == os.getpid() and "/table/p=" in key]


def test_many_groups_of_one_file(spark, tmp_path):
    cube, url = Cube(["x"], ["p"], "cube", index_columns=["i1"]), f"hfs://{tmp_path / 'store'}"
    build_cube(pa.table({"x": np.arange(2 * N), "p": np.zeros(2 * N, int), "i1": np.arange(2 * N) % N}), cube, url)
    assert len(plan_cube_query(cube, url, partition_by="i1").groups) == N
    frame = (
        map_cube_groups(lambda key, table: pa.table({"n": [table.num_rows]}), "n long", cube, url, partition_by="i1")
        .groupBy("n")
        .count()
    )
    rows, _, tasks = jobs_and_tasks(spark, frame.collect)
    assert [tuple(row) for row in rows] == [(2, N)]
    assert tasks < 30

"""Every surviving file or group lies in exactly one task and pruned ones in none; a file passes
three stages before a row of it is decoded.
"""

from __future__ import annotations

from types import SimpleNamespace
from unittest.mock import Mock

import pyarrow as pa
import pytest

from kartothek_cube import C, Cube, append_to_cube, build_cube, extend_cube, open_store, options, plan_cube_query
from kartothek_cube.api.dataset import store_dataframes_as_dataset
from kartothek_cube.core.snapshots.loader import load_snapshot
from kartothek_cube.cube.members import load_members
from kartothek_cube.spark import map_cube_groups, query_cube_spark, tasks
from kartothek_cube.spark.tasks import (
    CLOSURE_BYTES,
    known_sizes,
    pack,
    sampled_bytes,
    sizes_of_groups,
    task_count,
    unpack,
)
from tests.support.store_log import Log, LoggedStore

pytestmark = pytest.mark.usefixtures("pickled_by_value")

# A file is read with its last 128 KiB at once; larger ones show whether their column chunks were
# asked for.
ROWS = 24_000
ONE = {"tail": 1}
WHOLE = {"tail": 1, "ranges": 1}


@pytest.fixture
def large(tmp_path):
    """Four files of more than 128 KiB: partition p, index i1, and v1 whose values lie in disjoint
    ranges by p. Names of files by p, a logged store, its log.
    """
    import numpy as np

    cube = Cube(["x"], ["p"], "cube", index_columns=["i1"])
    p, x = np.repeat(np.arange(4), ROWS), np.tile(np.arange(ROWS), 4)
    noise = np.random.default_rng(0).random(4 * ROWS)
    rows, url = pa.table({"x": x, "p": p, "i1": p // 2, "v1": p + noise}), f"hfs://{tmp_path / 'large'}"
    # Statistics of the dataset would leave no file to statistics of row groups.
    build_cube(rows, cube, url, options=options(statistics=False))
    keys = sorted(key for group in plan_cube_query(cube, url).groups for key in group.file_keys())
    return cube, keys, LoggedStore(url, tmp_path / "log"), Log(tmp_path / "log")


def placed(key, table):
    """Tells in which task a group was."""
    from pyspark import TaskContext

    return pa.table({"p": [key["p"]], "task": [TaskContext.get().partitionId()]})


def test_three_stages(spark, large):
    cube, keys, store, log = large

    def touched(condition):
        log.clear()
        frame = query_cube_spark(cube, store, condition, payload_columns=["v1"])
        assert log.by_file("cube++seed/table/") == {}  # planning opens no data file
        rows = frame.selectExpr("count(*)", "count(DISTINCT p)", "min(v1)").first()
        return tuple(rows[:2]), log.by_file("cube++seed/table/")

    # partition value, index: the file of no other value is asked for
    assert touched(C("p") == 2) == ((ROWS, 1), {keys[2]: WHOLE})
    assert touched(C("i1") == 1) == ((2 * ROWS, 2), {keys[2]: WHOLE, keys[3]: WHOLE})
    # statistics: the footer is read, and no column chunk
    assert touched((C("i1") == 1) & (C("v1") >= 3.0)) == ((ROWS, 1), {keys[2]: ONE, keys[3]: WHOLE})
    # rows: the file is read, its rows are filtered
    (rows, partitions), files = touched((C("p") == 1) & (C("v1") >= 1.5))
    assert (0 < rows < ROWS, partitions, files) == (True, 1, {keys[1]: WHOLE})


def test_surviving_groups_lie_in_one_task_and_pruned_ones_in_none(spark, large):
    cube, keys, store, log = large
    frame = map_cube_groups(placed, "p long, task int", cube, store, C("i1") == 0, partition_by="p", blocksize=1)
    log.clear()
    assert sorted(map(tuple, frame.collect())) == [(0, 0), (1, 1)]
    assert log.by_file("cube++seed/table/") == {keys[0]: WHOLE, keys[1]: WHOLE}


def test_an_unpartitioned_dataset_is_read_once_in_a_task(spark, large):
    cube, _, store, log = large
    extend_cube({"e": pa.table({"x": [1], "v2": [1.0]})}, cube, store, partition_on={"e": []})
    log.clear()
    frame = query_cube_spark(cube, store, payload_columns=["v2"], blocksize=2)
    assert frame.where("v2 = 1").count() == 4
    assert sorted(c["tail"] for c in log.by_file("cube++e/table/").values()) == [2]  # two tasks, each once


def tasks_of(spark, frame):
    """The number of tasks of each stage of an action on the frame, from Spark."""
    context = spark.sparkContext
    context.setJobGroup("tasks of a frame", "")
    try:
        frame.write.format("noop").mode("overwrite").save()
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)
        context.setLocalProperty("spark.job.description", None)
    tracker = context.statusTracker()
    numbers = [tracker.getJobInfo(job).stageIds for job in tracker.getJobIdsForGroup("tasks of a frame")]
    return [tracker.getStageInfo(stage).numTasks for stages in numbers for stage in stages]


def test_spark_runs_as_many_tasks_as_there_are_packs(spark, cube, built):
    assert tasks_of(spark, query_cube_spark(cube, built, blocksize=3)) == [2]


@pytest.mark.parametrize(
    ("items", "cores", "per_task", "count"),
    [
        (0, 2, None, 0),
        (3, 2, None, 3),
        (8, 2, None, 8),
        (10_000, 2, None, 8),
        (10_000, 100, None, 400),
        (10, 2, 3, 4),
        (9, 2, 3, 3),
        (5, 1, 100, 1),
    ],
)
def test_number_of_tasks(items, cores, per_task, count):
    assert task_count(items, cores, per_task) == count


@pytest.mark.parametrize(
    ("items", "mebibytes", "count"),
    [(6, 0, 2), (1, 0, 1), (0, 0, 0), (64, 127, 2), (64, 128, 4), (64, 200, 6), (64, 10_000, 8), (3, 10_000, 3)],
)
def test_what_reads_little_goes_into_few_tasks(items, mebibytes, count):
    assert task_count(items, 2, None, mebibytes * 2**20) == count
    assert task_count(items, 2, 1, mebibytes * 2**20) == items


def test_a_few_files_say_how_much_all_of_them_read(tmp_path):
    store = open_store(tmp_path)
    for i in range(100):
        store.put(f"file{i}", bytes(1000))
    keys = [f"file{i}" for i in range(100)]
    assert sampled_bytes(store, keys, lambda key: (key, key)) == 200_000
    assert sampled_bytes(store, [], lambda key: (key,)) is None
    assert sampled_bytes(store, [*keys[:1], "absent"], lambda key: (key,)) is None
    assert sampled_bytes(open_store("hmemory://"), ["absent"], lambda key: (key,)) is None


@pytest.mark.parametrize("period", [2, 4, 16])
def test_files_that_are_large_in_a_period_are_counted(tmp_path, period):
    store = open_store(tmp_path)
    store.put("small", b"")
    store.put("large", bytes(1000))
    keys = (["small"] * (period - 1) + ["large"]) * (160 // period)
    assert 0 < sampled_bytes(store, keys, lambda key: (key,)) < 3 * sum(1000 for key in keys if key == "large")


@pytest.mark.parametrize(("n", "n_tasks"), [(0, 0), (1, 1), (7, 3), (10, 10), (1000, 8)])
def test_packs_are_even_and_in_order_and_have_every_item_once(n, n_tasks):
    chunks = [unpack(chunk) for chunk in pack(range(n), n_tasks)]
    assert [item for chunk in chunks for item in chunk] == list(range(n))
    assert len(chunks) == n_tasks
    assert max(map(len, chunks), default=0) - min(map(len, chunks), default=0) <= 1


@pytest.mark.parametrize(
    ("sizes", "n_tasks", "expected"),
    [
        ([1] * 6, 3, [2, 2, 2]),
        ([10, 1, 1, 1, 1, 1, 1, 1, 1, 2], 2, [1, 9]),
        ([1, 1, 1, 9], 4, [3, 1]),
        ([100, 1], 8, [1, 1]),
        ([0, 0, 0, 0], 2, [2, 2]),
        ([5], 8, [1]),
        ([], 0, []),
    ],
)
def test_packs_of_known_sizes_have_about_equal_bytes(sizes, n_tasks, expected):
    chunks = [unpack(chunk) for chunk in pack(range(len(sizes)), n_tasks, sizes)]
    assert [item for chunk in chunks for item in chunk] == list(range(len(sizes)))
    assert [*map(len, chunks)] == expected


def test_statistics_know_the_sizes_of_files():
    store = open_store("hmemory://sizes")
    store_dataframes_as_dataset(store, "sales", [pa.table({"x": range(n)}) for n in (1, 1000)])
    snapshot = load_snapshot(store, "sales")
    files = {key: len(store.get(key)) for key in snapshot.files.to_pylist()}
    assert known_sizes(store, snapshot, snapshot.files) == [*files.values()]
    assert known_sizes(store, snapshot, pa.array([*files, "sales/table/foreign.parquet"])) is None


def test_statistics_know_the_sizes_of_groups():
    store, cube = open_store("hmemory://sizes of groups"), Cube(["x"], ["p"], "cube")
    parts = [pa.table({"x": range(n), "p": [n] * n, "v1": range(n)}) for n in (1, 1000, 10)]
    build_cube({"seed": pa.concat_tables(parts), "e": parts[1].rename_columns(["x", "p", "v2"])}, cube, store)
    groups, members = plan_cube_query(cube, store).groups, load_members("cube", store)
    expected = [sum(len(store.get(key)) for key in group.file_keys()) for group in groups]
    assert sizes_of_groups(store, members.values(), groups) == expected
    assert expected[0] < expected[1] < expected[2]
    with options(statistics=False):
        append_to_cube(parts[2].set_column(0, "x", pa.array(range(100, 110))), cube, store)
    members = load_members("cube", store)
    assert sizes_of_groups(store, members.values(), plan_cube_query(cube, store).groups) is None


def test_a_large_plan_travels_as_rows(spark, cube, built, seed, monkeypatch):
    monkeypatch.setattr(tasks, "CLOSURE_BYTES", 0)
    frame = query_cube_spark(cube, built, partition_by="p", blocksize=1)
    assert [row.p for row in frame.select("p").collect()] == sorted(seed.column("p").to_pylist())
    assert frame.selectExpr("spark_partition_id() AS task", "p").distinct().count() == 4
    assert CLOSURE_BYTES == 16 * 2**20


@pytest.mark.parametrize(("closure_bytes", "as_rows"), [(0, False), (96, False), (97, True)])
def test_group_keys_take_the_place_of_items_in_the_function(monkeypatch, closure_bytes, as_rows):
    sent, frame = [], Mock()
    frame.sparkSession.version = "4.3.0"
    session = SimpleNamespace(
        range=lambda *given: sent.append("range") or frame,
        createDataFrame=lambda *given: sent.append("rows") or frame,
    )
    monkeypatch.setattr(tasks, "CLOSURE_BYTES", 100)
    tasks.run_packed(session, [b"ab", b"cd"], iter, pa.schema([("x", pa.int64())]), closure_bytes=closure_bytes)
    assert sent == ["rows" if as_rows else "range"]

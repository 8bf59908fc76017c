"""Cubes in Spark, against Spark alone on the same files and rows, in one session."""

from __future__ import annotations

import argparse
import math
import os
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pairs import PROC, Cost, Row, Taken, at_most, beside, faster, header, peaks, show, turns, within
from spark_data import CUBE, STAGED, STAGED_WEEKS, Reference, build_reference, empty_plan, empty_store, rows_to_stage

from kartothek_cube import C, count_cube, open_store, options, plan_cube_query, run_plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS, STAGED_ROWS, PARTITION_ROWS, GROUPS = 4_800_000, 2_000_000, 1_000_000, 10_000
IN_FLIGHT = 64 * 2**20
NARROW = ("WEEK", "PRODUCT_ID", "DAY", "FORECAST")


@dataclass(frozen=True)
class Bench:
    """What all works need."""

    spark: SparkSession
    folder: Path
    cores: int
    rounds: int
    rows: int
    numbers: Iterator[int] = field(default_factory=count)

    def fresh(self) -> Path:
        """A new folder."""
        return self.folder / f"written-{next(self.numbers)}"

    def scaled(self, rows: int) -> int:
        """So many rows of the benchmark in full size."""
        return max(1000, rows * self.rows // ROWS)


def start(folder: Path, cores: int, memory: str) -> SparkSession:
    """A session as a user has it, apart from folders and silence."""
    from kartothek_cube.spark import ensure_java, register

    ensure_java()
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    from pyspark.sql import SparkSession

    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": memory,
        "spark.sql.shuffle.partitions": str(2 * cores),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
    }
    spark = (
        SparkSession.builder.master(f"local[{cores}]")
        .appName("kartothek_cube benchmark")
        .config(map=settings)
        .getOrCreate()
    )
    register(spark)
    return spark


def noop(frame: DataFrame) -> None:
    """Compute all rows and throw them away."""
    frame.write.format("noop").mode("overwrite").save()


# --- reading --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reading:
    """Both sides of each query."""

    bench: Bench
    reference: Reference

    def ours(self, conditions: Any = None, payload: Any = None) -> DataFrame:
        """A query of ours."""
        from kartothek_cube.spark import query_cube_spark

        return query_cube_spark(CUBE, self.reference.url, conditions, payload_columns=payload, spark=self.bench.spark)

    def native(self, where: str = "true", columns: tuple[str, ...] = ("*",)) -> DataFrame:
        """The same by Spark alone."""
        return self.reference.native(self.bench.spark, where, columns)

    def source(self) -> DataFrame:
        """The whole cube through the data source."""
        return (
            self.bench.spark.read.format("kartothek_cube")
            .options(store=self.reference.url, cube=CUBE.uuid_prefix)
            .load()
        )

    def ready(self) -> DataFrame:
        """As many rows from the first partition of each task, again and again.

        The time is Spark's own: nothing is read or joined.
        """
        from kartothek_cube.cube.execute.load import PartitionLoader
        from kartothek_cube.cube.query.plan import Group
        from kartothek_cube.spark.tasks import pack, run_packed, sampled_bytes, task_count
        from kartothek_cube.spark.types import to_spark, wire_schema

        url, store = self.reference.url, open_store(self.reference.url)
        plan = plan_cube_query(CUBE, store)
        wire, units = wire_schema(plan.schema, "the cube"), plan.slices

        def again(groups: list[Any]) -> Iterator[pa.RecordBatch]:
            table = PartitionLoader(open_store(url)).load(groups[0])
            for _ in groups:
                yield from to_spark(table, wire)

        tasks = task_count(len(units), self.bench.cores, None, sampled_bytes(store, units, Group.file_keys))
        return run_packed(self.bench.spark, pack(units, tasks), again, wire)

    def in_threads(self) -> int:
        """The whole cube in threads of this process, without Spark."""
        store = open_store(self.reference.url)
        with options(threads=self.bench.cores), run_plan(plan_cube_query(CUBE, store), store) as batches:
            return sum(batch.num_rows for batch in batches)

    def compare(self, works: dict[str, Callable[[], Any]]) -> Taken:
        """What each of them took."""
        return turns(works, self.bench.rounds)


def check_same(reading: Reading) -> None:
    """Both sides have the same rows."""
    facts = (
        "count(*)",
        "count(FORECAST)",
        "sum(SALES)",
        "sum(PRODUCT_ID)",
        "count_if(BRAND = 5)",
        "count_if(CAMPAIGN = 55)",
        "max(DAY)",
        "max(STORE)",
    )
    ours, native = (frame.selectExpr(*facts).collect() for frame in (reading.ours(), reading.native()))
    assert ours == native, (ours, native)


def whole(reading: Reading) -> Iterator[Row]:
    works = {
        "native": lambda: noop(reading.native()),
        "ours": lambda: noop(reading.ours()),
        "threads of the driver": reading.in_threads,
        "data source": lambda: noop(reading.source()),
        "rows that lie ready": lambda: noop(reading.ready()),
    }
    taken = dict(reading.compare(works))
    yield faster("whole cube, 12 columns", taken, "native", "ours", 4)
    yield within("whole cube, 12 columns", taken, "threads of the driver", "ours", 2)
    yield beside("whole cube, 12 columns", taken, "rows that lie ready", "ours")
    taken["query_cube_spark"] = taken["ours"]
    yield within("whole cube through the data source", taken, "query_cube_spark", "data source", 1.2)


def narrow(reading: Reading) -> Iterator[Row]:
    works = {
        "native": lambda: noop(reading.native(columns=NARROW)),
        "ours": lambda: noop(reading.ours(payload=["FORECAST"])),
    }
    yield faster("one payload column", reading.compare(works), "native", "ours", 5)


def counting(reading: Reading) -> Iterator[Row]:
    tracker = reading.bench.spark.sparkContext.statusTracker()
    before = set(tracker.getJobIdsForGroup())
    counted = count_cube(CUBE, reading.reference.url)
    assert set(tracker.getJobIdsForGroup()) == before, "counting ran a job in Spark"
    assert counted == reading.native().count()
    works = {"native": lambda: reading.native().count(), "ours": lambda: count_cube(CUBE, reading.reference.url)}
    row = faster("count, no job in Spark", reading.compare(works), "native", "ours", 1)
    yield Row(row.work, row.peer, row.theirs, row.ours, row.ratio, row.cpu, "no job", met=True)


def selective(reading: Reading) -> Iterator[Row]:
    for text, where, condition, least in [
        ("1 % of an indexed column, all files touched", "BRAND = 5", C("BRAND") == 5, 4),
        ("1 % of an indexed column, 10 % of the files", "CAMPAIGN = 55", C("CAMPAIGN") == 55, 10),
    ]:
        works = {"native": lambda w=where: noop(reading.native(w)), "ours": lambda c=condition: noop(reading.ours(c))}
        yield faster(text, reading.compare(works), "native", "ours", least)


def one_partition(reading: Reading) -> Iterator[Row]:
    one = C("WEEK") == 7
    works = {
        "native": lambda: noop(reading.native("WEEK = 7")),
        "ours": lambda: noop(reading.ours(one)),
        "first row": lambda: reading.ours(one).first(),
    }
    taken = reading.compare(works)
    tasks = _tasks(reading.bench.spark, works["ours"])
    assert tasks == 1, f"one partition took {tasks} tasks"
    yield faster("one partition of 64, one task", taken, "native", "ours", 5)
    yield at_most("one partition of 64, first row", taken["first row"], 0.3)


def own_reader(reading: Reading) -> Iterator[Row]:
    """Files of our plan, read by Spark's own reader instead of Python."""
    from pyspark.sql import functions as F

    from kartothek_cube.spark import query_cube_spark, read_dataset_as_spark

    url, spark = reading.reference.url, reading.bench.spark

    def scan(native: bool) -> None:
        noop(read_dataset_as_spark("bench++seed", url, spark=spark, native=native))

    def total(native: bool) -> list[Any]:
        cells = query_cube_spark(CUBE, url, datasets=["seed"], payload_columns=["SALES"], spark=spark, native=native)
        return cells.groupBy("WEEK").agg(F.sum("SALES")).orderBy("WEEK").collect()

    assert total(native=True) == total(native=False)
    for text, work in (("whole dataset, native=True", scan), ("sum by week, native=True", total)):
        taken = reading.compare({"native=False": lambda w=work: w(False), "native=True": lambda w=work: w(True)})
        yield faster(text, taken, "native=False", "native=True", 1)


def _tasks(spark: SparkSession, work: Callable[[], Any]) -> int:
    """How many tasks Spark ran for a piece of work."""
    context, group = spark.sparkContext, f"tasks {time.monotonic_ns()}"
    context.setJobGroup(group, group)
    try:
        work()
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)
    tracker = context.statusTracker()
    infos = [
        tracker.getStageInfo(stage)
        for job in tracker.getJobIdsForGroup(group)
        for stage in tracker.getJobInfo(job).stageIds
    ]
    return sum(info.numTasks for info in infos if info)


def many_groups(bench: Bench) -> Iterator[Row]:
    """Everything but the rows: planning, packing, the tasks, one small batch a group."""
    from kartothek_cube.spark.tasks import pack, run_packed, task_count

    store, wire = empty_store(GROUPS), pa.schema([("FILES", pa.int64())])

    def files(groups: list[Any]) -> Iterator[pa.RecordBatch]:
        for group in groups:
            yield pa.record_batch(
                [pa.array([sum(len(f.keys) for p in group.partitions for f in p.files.values())])], schema=wire
            )

    def work() -> None:
        groups = empty_plan(store).groups
        noop(run_packed(bench.spark, pack(groups, task_count(len(groups), bench.cores)), files, wire))

    tasks = _tasks(bench.spark, work)
    yield at_most(f"{GROUPS:,} groups without data, {tasks} tasks", turns({"ours": work}, bench.rounds)["ours"], 2)


# --- staging --------------------------------------------------------------------------------------


def build(bench: Bench, frame: DataFrame, *, shuffle: bool) -> None:
    """Stage and publish by us. Spark does not wait for the disk after writing, so neither do we."""
    from kartothek_cube.spark import build_cube_from_spark

    folder = bench.fresh()
    build_cube_from_spark(frame, STAGED, f"hfs://{folder.resolve()}?fsync=false", shuffle=shuffle)
    shutil.rmtree(folder)


def write(bench: Bench, frame: DataFrame) -> None:
    """Written by Spark."""
    folder = bench.fresh()
    frame.write.partitionBy("WEEK").parquet(str(folder))
    shutil.rmtree(folder)


def staging(bench: Bench) -> Iterator[Row]:
    from kartothek_cube.spark.tasks import TASKS_PER_CORE

    frame = rows_to_stage(bench.spark, bench.scaled(STAGED_ROWS), STAGED_WEEKS, bench.cores)
    arranged = frame.repartition(TASKS_PER_CORE * bench.cores, "WEEK").sortWithinPartitions("WEEK", "PRODUCT_ID", "DAY")
    shuffled = {"native": lambda: write(bench, arranged), "ours": lambda: build(bench, frame, shuffle=True)}
    yield within("staging, shuffled and sorted", turns(shuffled, bench.rounds), "native", "ours", 1.0, "CPU s")
    plain = {"native": lambda: write(bench, frame), "ours": lambda: build(bench, frame, shuffle=False)}
    yield within("staging, no shuffle", turns(plain, bench.rounds), "native", "ours", 0.8, "CPU s")


def memory(bench: Bench) -> Iterator[Row]:
    rows = bench.scaled(PARTITION_ROWS)
    once, four = (_peak(bench, n) for n in (rows, 4 * rows))
    work = f"memory of a staging task, 4 x {rows:,} rows"
    yield within(work, {"1 x": [Cost(once, math.nan)], "4 x": [Cost(four, math.nan)]}, "1 x", "4 x", 1.15, "MiB")


def _peak(bench: Bench, rows: int) -> float:
    """The peak memory of a Python worker while one partition of ``rows`` rows is staged, in MiB."""
    # Workers with another environment are other processes: what an earlier work has left in theirs
    # does not count.
    bench.spark.sparkContext.environment["KARTOTHEK_CUBE_BENCHMARK"] = str(rows)
    before = peaks().keys()
    with options(bytes_in_flight=bench.scaled(IN_FLIGHT)):
        build(bench, rows_to_stage(bench.spark, rows, 1, bench.cores), shuffle=True)
    return max(most for pid, most in peaks().items() if pid not in before) / 2**20


# --- all of it ------------------------------------------------------------------------------------


def results(bench: Bench) -> Iterator[Row]:
    reading = Reading(bench, build_reference(bench.folder, bench.rows))
    check_same(reading)
    for part in (whole, narrow, counting, selective, one_partition, own_reader):
        yield from part(reading)
    yield from many_groups(bench)
    if PROC.is_dir():
        yield from staging(bench)
        yield from memory(bench)
    else:
        print("staging: CPU seconds and memory are read from /proc, which this system does not have")


def main(arguments: argparse.Namespace) -> None:
    """Print the table."""
    rows = arguments.rows or (ROWS // 20 if arguments.small else ROWS)
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        spark = start(Path(name), arguments.cores, arguments.memory)
        print(
            f"{rows:,} rows in 64 partitions, {arguments.cores} cores, "
            f"median of {arguments.rounds} rounds, load {os.getloadavg()[0]:.1f}"
        )
        header()
        try:
            for row in results(Bench(spark, Path(name), arguments.cores, arguments.rounds, rows)):
                show(row)
        finally:
            print(f"load at the end {os.getloadavg()[0]:.1f}")
            spark.stop()


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="a twentieth of the rows, to try the script")
    parser.add_argument(
        "--rows",
        type=int,
        help=f"rows of the reference cube instead of {ROWS:,}; the rows that are staged are scaled with it",
    )
    parser.add_argument("--rounds", type=int, default=3, help="how often both sides of each work take turns")
    parser.add_argument("--cores", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--memory", default="3g", help="of the JVM")
    parser.add_argument("--folder", type=Path, help="where a temporary folder for the data is made")
    return parser.parse_args()


if __name__ == "__main__":
    main(parsed())

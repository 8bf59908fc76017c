"""New weeks stream into the grocery cube, and its sales stream out; killed, no query loses a row.

Run: ``make demo-streaming``.

A shop's weeks arrive as files. A Spark query writes each as one micro-batch, which is one commit.
The process is killed between that commit and Spark's own note that the batch is done. After the
restart Spark has to repeat the batch, as it cannot know; the cube knows, and skips the batch.

Then the sales of the cube are the source: a second query writes them to a dataset of its own, dies
the same way, and goes on after a compaction has replaced the files that it was about to read.

    python examples/streaming.py --size small            # three weeks, and a cube of four
    python examples/streaming.py --store /data/grocery   # keep the cube
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grocery_arrow
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from grocery_report import Report, say, table
from grocery_spark import start_spark

from kartothek_cube import Cube, build_cube, compact_cube, list_cubes, open_store, query_cube_arrow
from kartothek_cube.api.dataset import history, read_table_arrow

CUBE = Cube(
    uuid_prefix="grocery",
    seed_dataset="sales",
    dimension_columns=["PRODUCT_ID", "STORE_ID", "WEEK"],
    partition_columns=["PERIOD", "STORE_GROUP"],
    index_columns=["DEPARTMENT"],
)
SALES = CUBE.ktk_dataset_uuid("sales")
FEED = "sales-feed"
CELL = [*CUBE.partition_columns, *CUBE.dimension_columns]
COLUMNS = (
    "PERIOD BIGINT, STORE_GROUP STRING, PRODUCT_ID BIGINT, STORE_ID BIGINT, "
    "WEEK BIGINT, UNITS BIGINT, SALES_VALUE DOUBLE"
)

WEEKS = {"full": (40, 53), "small": (4, 7)}
"""The week up to which the cube is built, and the last one that streams in."""

FILES = {"full": 12, "small": 3}
"""The most files of the sales in one micro-batch of the second query."""

PATIENCE = 300
"""Seconds within which the query has to come to where it is killed."""


@dataclass(frozen=True)
class Places:
    """The places of a query: the store, the arriving files, Spark's checkpoint, and the signal."""

    folder: Path
    store: str
    query: str = "weeks"

    @property
    def arrivals(self) -> Path:
        """One Parquet file a week."""
        return self.folder / "arrivals"

    @property
    def checkpoint(self) -> Path:
        """Spark's notes."""
        return self.folder / f"checkpoint-{self.query}"

    @property
    def sign(self) -> Path:
        """There when the query waits to be killed."""
        return self.folder / f"committed-{self.query}"


# --- the query, in a process of its own -----------------------------------------------------------


def run_query(places: Places, size: str, wait_after: int | None) -> None:
    """Write all weeks that have arrived to the cube, or the sales of the cube to the feed.

    ``wait_after``: a batch after whose commit the query stops to be killed.
    """
    from kartothek_cube.spark import register

    spark = start_spark(places.folder)
    register(spark)
    sink = "kartothek_cube"
    if wait_after is not None:
        sink = "kartothek_cube_waiting"
        spark.dataSource.register(waiting_source(sink, str(places.sign), wait_after))
    if places.query == "weeks":
        rows = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).parquet(str(places.arrivals))
        target = {"cube": CUBE.uuid_prefix}
    else:
        sales = spark.readStream.format("kartothek_cube").options(store=places.store, dataset=SALES)
        rows = sales.option("maxFilesPerTrigger", FILES[size]).load()
        target = {"dataset": FEED, "partition_on": "WEEK"}
    query = (
        rows.writeStream.format(sink)
        .options(store=places.store, **target)
        .option("checkpointLocation", str(places.checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


def waiting_source(name: str, sign: str, wait_after: int) -> type:
    """The data source, but for one thing: after the commit of a batch it gives a sign and waits."""
    from kartothek_cube.spark.datasource.source import KartothekCubeSource

    class WaitingSource(KartothekCubeSource):
        @classmethod
        def name(cls) -> str:
            return name

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802 - Spark's name
            writer = super().streamWriter(schema, overwrite)
            commit = type(writer).commit

            class WaitingWriter(type(writer)):  # type: ignore[misc]
                def commit(self, messages: Any, batchId: int) -> None:  # noqa: N803 - Spark's name
                    commit(self, messages, batchId)
                    if batchId == wait_after:
                        Path(sign).touch()
                        time.sleep(PATIENCE)

            writer.__class__ = WaitingWriter
            return writer

    return WaitingSource


def start_query(places: Places, size: str, *more: str) -> subprocess.Popen[bytes]:
    """Start the query in its own process group, so that a kill reaches Java and the workers too."""
    asked = ["--query", places.query, "--folder", str(places.folder), "--store", places.store, "--size", size]
    return subprocess.Popen([sys.executable, __file__, *asked, *more], start_new_session=True)  # noqa: S603 - this file


@contextmanager
def ended(query: subprocess.Popen[bytes]) -> Iterator[None]:
    """Leave no process behind, whatever happens."""
    try:
        yield
    finally:
        kill(query)


def kill(query: subprocess.Popen[bytes]) -> None:
    """As a failing machine does it: at once, without a chance to clean up."""
    if query.poll() is None:
        os.killpg(query.pid, signal.SIGKILL)
        query.wait()


def run_and_kill(places: Places, size: str, batch: int) -> None:
    """Let the query commit this batch, and kill it before Spark knows."""
    query = start_query(places, size, "--wait-after", str(batch))
    deadline = time.monotonic() + PATIENCE
    with ended(query):
        while not places.sign.exists():
            if query.poll() is not None or time.monotonic() > deadline:
                sys.exit("The query has ended, or takes too long, before it could be killed.")
            time.sleep(0.05)
        kill(query)


def run_to_the_end(places: Places, size: str) -> None:
    """Let the query do what is left."""
    query = start_query(places, size)
    with ended(query):
        if query.wait(PATIENCE):
            sys.exit("The query has failed.")


# --- what arrives ---------------------------------------------------------------------------------


def arrive(sales: pa.Table, weeks: Sequence[int], places: Places) -> None:
    """One file a week, in the order of the weeks: Spark takes older files first."""
    places.arrivals.mkdir()
    for number, week in enumerate(weeks):
        file = places.arrivals / f"week-{week:02}.parquet"
        pq.write_table(sales.filter(pc.equal(sales["WEEK"], week)), file)
        os.utime(file, (time.time() - len(weeks) + number,) * 2)


# --- the story ------------------------------------------------------------------------------------


def stream_in(places: Places, size: str, report: Report) -> bool:
    """The weeks come into the cube. Returns whether each row is there once."""
    first, last = WEEKS[size]
    weeks = range(first + 1, last + 1)
    middle = len(weeks) // 2

    with report.step(
        "Build",
        f"The sales of weeks 1 to {first} and the master of products; "
        f"the weeks {weeks[0]} to {last} lie ready as files.",
    ):
        sales = grocery_arrow.sales(last).select([column.split()[0] for column in COLUMNS.split(", ")])
        products = grocery_arrow.products().select(["PRODUCT_ID", "DEPARTMENT"])
        build_cube(
            {"sales": sales.filter(pc.less_equal(sales["WEEK"], first)), "products": products},
            CUBE,
            places.store,
            partition_on={"products": []},
        )
        arrive(sales, weeks, places)
        show_state(places)

    with report.step(
        "Stream and kill",
        f"A Spark query writes week after week. Right after the commit of week {weeks[middle]} its process is killed.",
    ):
        run_and_kill(places, size, middle)
        show_state(places)
        noted, there = batches_noted(places), last_week(places)
        say(
            f"The cube has week {there}. Spark has noted {noted} of {middle + 1} batches, "
            f"the last one of week {weeks[noted - 1]}: it has to repeat week {there}.\n "
        )

    with report.step(
        "Start again",
        "The same query, from its checkpoint. "
        "It repeats the batch that it does not know to be done; the cube skips it.",
    ):
        run_to_the_end(places, size)
        show_state(places)

    with report.step("Check", "The rows as they lie in the files of the cube, against those that arrived."):
        right = check(sales, read_table_arrow(SALES, places.store)) and noted == middle and there == weeks[middle]
        answer = query_cube_arrow(CUBE, places.store, payload_columns=["UNITS", "DEPARTMENT"])
        newest = (
            answer.filter(pc.equal(answer["WEEK"], last))
            .group_by("DEPARTMENT")
            .aggregate([("UNITS", "sum")])
            .sort_by([("UNITS_sum", "descending")])
        )
        say(f"\nWeek {last}, asked from the cube:")
        table(
            ("department", "units"),
            [(str(row["DEPARTMENT"]), row["UNITS_sum"]) for row in newest.slice(0, 4).to_pylist()],
        )
    return right


def stream_out(places: Places, size: str, report: Report) -> bool:
    """The sales of the cube come into the feed. Returns whether each row is there once."""
    with report.step(
        "Stream out and kill",
        f"A second query has the sales of the cube as its source: what is there, {FILES[size]} files at a time. "
        f"It writes them to the dataset {FEED}, and dies after its second commit.",
    ):
        run_and_kill(places, size, 1)
        sales, fed = (read_table_arrow(uuid, places.store, columns=["WEEK"]).num_rows for uuid in (SALES, FEED))
        say(f"{FEED} has {fed:,} of {sales:,} rows, and Spark has noted {batches_noted(places)} of 2 batches.\n ")

    with report.step(
        "Compact, and start again",
        "Meanwhile the cube is compacted. The stream reads its other slices from the files of before.",
    ):
        compaction = compact_cube(CUBE, places.store)["sales"]
        say(f"{compaction.files_before} files of the sales became {compaction.files_after}.\n ")
        run_to_the_end(places, size)

    with report.step("Check", f"The rows in {FEED}, against those of the cube."):
        return check(read_table_arrow(SALES, places.store), read_table_arrow(FEED, places.store))


def show_state(places: Places) -> None:
    """Commits and weeks of the sales, and which batch was the last one."""
    commits = history(SALES, places.store)
    found = read_table_arrow(SALES, places.store, columns=["WEEK"])["WEEK"]
    rows = [(str(week.as_py()), int(pc.sum(pc.equal(found, week)).as_py())) for week in pc.unique(found).sort()][-5:]
    say(f"{len(commits)} {'commit' if len(commits) == 1 else 'commits'}, {len(found):,} rows. The last weeks:")
    table(("week", "rows"), rows)


def last_week(places: Places) -> int:
    """The newest week of the cube."""
    week: int = pc.max(read_table_arrow(SALES, places.store, columns=["WEEK"])["WEEK"]).as_py()
    return week


def batches_noted(places: Places) -> int:
    """How many batches Spark knows to be done."""
    return sum(file.name.isdecimal() for file in (places.checkpoint / "commits").iterdir())


def check(sales: pa.Table, found: pa.Table) -> bool:
    """Whether the files have exactly the rows that came."""
    cells = found.group_by(CELL).aggregate([([], "count_all")])
    doubled = found.num_rows - cells.num_rows
    missing = sales.num_rows - sales.join(found.select(CELL), CELL, join_type="left semi").num_rows
    surplus = cells.num_rows - (sales.num_rows - missing)
    units = [int(pc.sum(rows["UNITS"]).as_py()) for rows in (sales, found)]
    facts = [
        ("rows that came", sales.num_rows),
        ("rows in the files", found.num_rows),
        ("missing", missing),
        ("doubled", doubled),
        ("surplus", surplus),
    ]
    table(("", "rows"), facts)
    return not (missing or doubled or surplus) and units[0] == units[1]


def main() -> None:
    """Run the query or the whole story, and fail if a row is missing or doubled."""
    arguments = parse_arguments()
    if arguments.query is not None:
        places = Places(arguments.folder, arguments.store, arguments.query)
        run_query(places, arguments.size, arguments.wait_after)
        return
    with tempfile.TemporaryDirectory(prefix="grocery-", ignore_cleanup_errors=True) as folder:
        store = arguments.store or f"hfs://{folder}/store"
        if CUBE.uuid_prefix in list_cubes(open_store(store)):
            sys.exit(
                f"There is a cube {CUBE.uuid_prefix!r} in {store} already. Name another store, or remove that cube."
            )
        print(
            "Weeks of grocery sales as a stream, into a cube and out of it. "
            "Data: Complete Journey (84.51°), realistic but simulated, for research and education."
        )
        report = Report()
        right = stream_in(Places(Path(folder), store), arguments.size, report)
        right &= stream_out(Places(Path(folder), store, "feed"), arguments.size, report)
    report.summary()
    if not right:
        sys.exit("Rows are missing or doubled.")
    print("\nEvery row is there once.")


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--size", choices=sorted(WEEKS), default="full", help="how many weeks (default: full)")
    parser.add_argument("--store", help="URL or folder of the store; default: a temporary folder")
    parser.add_argument("--query", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--wait-after", type=int, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()

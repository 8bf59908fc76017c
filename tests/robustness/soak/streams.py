"""``python -m tests.robustness.soak.streams``: a process that streams one dataset into a second,
and that into a third, is killed again and again; each has every row once.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from random import Random

import pyarrow as pa

from kartothek_cube.api.dataset import compact_dataset, read_table_arrow, update_dataset_from_dataframes

CHAIN = ("sales", "feed", "copy")
ROOT = Path(__file__).parents[3]


# --- the process that streams ---------------------------------------------------------------------


def stream(url: str, folder: Path, links: int, *, to_the_end: bool) -> None:
    """Run the queries from their checkpoints; without an end, until killed."""
    from tests.support.spark_sessions import prepare, started

    prepare()
    from pyspark.sql import SparkSession

    from kartothek_cube.spark import register

    spark = started(SparkSession.builder.master("local[2]"), folder)
    register(spark)
    for source, sink in pairwise(CHAIN[: links + 1]):
        frame = (
            spark.readStream.format("kartothek_cube")
            .options(store=url, dataset=source, maxFilesPerTrigger=5)
            .schema("x bigint, p bigint")
            .load()
        )
        to = frame.writeStream.format("kartothek_cube").options(store=url, dataset=sink, partition_on="p")
        to = to.option("checkpointLocation", str(folder / f"checkpoint-{sink}"))
        query = (to.trigger(availableNow=True) if to_the_end else to).start()
        if to_the_end:
            query.awaitTermination()
        else:
            query.processAllAvailable()
            say(f"streams into {sink}")
    if not to_the_end:
        spark.streams.awaitAnyTermination()
    spark.stop()


# --- the process that kills -----------------------------------------------------------------------


class Streams:
    """Writes to the first dataset, and starts and kills the process that streams."""

    def __init__(self, folder: Path, links: int, seed: int) -> None:
        self.folder, self.links, self.url = folder, links, f"hfs://{folder / 'store'}"
        self.random = Random(seed)
        self.rows: list[int] = []
        self.append()

    def append(self) -> None:
        new = range(len(self.rows), len(self.rows) + self.random.randint(1, 4))
        self.rows += new
        rows = pa.table({"x": list(new), "p": [x % 2 for x in new]})
        update_dataset_from_dataframes([rows], self.url, CHAIN[0], partition_on=["p"])

    def write(self) -> None:
        """Some commits at random moments; compactions among them, of datasets that are read now."""
        for _ in range(self.random.randint(1, 3)):
            self.append()
            if self.random.random() < 0.3:
                compact_dataset(CHAIN[0], self.url)
            # No event to wait for: the kill is to come at any moment of a micro-batch.
            time.sleep(self.random.random())

    def start(self, *more: str) -> subprocess.Popen[str]:
        asked = ["--stream", str(self.folder), "--links", str(self.links), *more]
        command = [sys.executable, "-m", "tests.robustness.soak.streams", *asked]
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        environment = {**os.environ, "PYTHONPATH": path}
        return subprocess.Popen(
            command, cwd=ROOT, env=environment, start_new_session=True, stdout=subprocess.PIPE, text=True
        )

    def life(self) -> None:
        """Start the process, kill it in the middle of its work."""
        process = self.start()
        try:
            assert process.stdout is not None
            for _ in range(self.random.randint(0, self.links)):
                assert process.stdout.readline(), "the process has ended by itself"
            self.write()
            assert process.poll() is None, "the process has ended by itself"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()

    def check(self) -> None:
        """Let the streams come to their end; then each dataset has every row once."""
        process = self.start("--to-the-end")
        process.communicate(timeout=600)
        assert process.returncode == 0
        for dataset in CHAIN[: self.links + 1]:
            assert sorted(read_table_arrow(dataset, self.url)["x"].to_pylist()) == self.rows, dataset


def run_streams(folder: Path, kills: int, links: int, seed: int = 0) -> int:
    """The number of rows that came through; ``links`` is the number of queries."""
    streams = Streams(folder, links, seed)
    for _ in range(kills):
        streams.life()
    streams.check()
    return len(streams.rows)


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.robustness.soak.streams")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--links", type=int, default=len(CHAIN) - 1, help="the number of queries in sequence")
    parser.add_argument("--stream", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--to-the-end", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.stream is not None:
        stream(f"hfs://{asked.stream / 'store'}", asked.stream, asked.links, to_the_end=asked.to_the_end)
        return 0
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        rows = run_streams(Path(folder), asked.kills, asked.links, asked.seed)
    say(f"{rows} rows, {asked.kills} kills, seed {asked.seed}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

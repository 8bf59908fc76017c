"""Object stores: a stand-in for S3 in a process of its own, whose every request takes 20 ms."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq
from data import LONG, Place, forget, tables
from pairs import Row, beside, limited, turns
from script import Bench, run

from kartothek_cube import C, Cube, build_cube, copy_cube, open_store, plan_cube_query, query_cube_arrow
from kartothek_cube.core.stores.contract import Store

LATENCY = 0.02
BUCKET, KEY, REGION = "bench", "any", "us-east-1"
DATASETS = ("seed", "stock", "forecast")
SERVER = """
import json, sys
from tests.support.remote import RemoteStandIn
with RemoteStandIn() as remote:
    print(remote.endpoint, flush=True)
    for line in sys.stdin:
        print(json.dumps(dict(remote.counts)), flush=True)
        remote.reset()
        remote.latency = float(line)
"""


class Server:
    """The stand-in, and how it is told to wait and to count anew."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.endpoint = self._answer()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def reset(self, latency: float) -> int:
        """The number of requests since the last time; from now on each takes so long."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{latency}\n")
        self._process.stdin.flush()
        return sum(json.loads(self._answer()).values())


@contextmanager
def server() -> Iterator[Server]:
    repository = Path(__file__).parents[1]
    with subprocess.Popen(
        [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=repository
    ) as process:
        yield Server(process)
        process.stdin.close()  # type: ignore[union-attr]


def s3(endpoint: str) -> Remote:
    """The cube in the stand-in, as we read it."""
    return Remote(
        open_store(
            f"s3://{KEY}:{KEY}@{endpoint.removeprefix('http://')}/{BUCKET}?is_secure=false&force_bucket_suffix=false"
        )
    )


def minimalkv(endpoint: str) -> Remote:
    """The same through the store that minimalkv has for boto3."""
    import boto3
    from minimalkv._hstores import HBoto3Store

    client = boto3.resource(
        "s3", endpoint_url=endpoint, aws_access_key_id=KEY, aws_secret_access_key=KEY, region_name=REGION
    )
    return Remote(open_store(HBoto3Store(client.Bucket(BUCKET))))


def arrow(endpoint: str) -> pa_fs.S3FileSystem:
    return pa_fs.S3FileSystem(access_key=KEY, secret_key=KEY, endpoint_override=endpoint, scheme="http", region=REGION)


@dataclass(frozen=True)
class Remote:
    """The cube in some store."""

    store: Store

    def query(self, condition: Any) -> int:
        return query_cube_arrow(LONG, self.store, conditions=condition).num_rows

    def cold(self, condition: Any) -> int:
        """As nobody has seen the cube before."""
        forget()
        return self.query(condition)


def by_arrow(files: pa_fs.S3FileSystem, week: int, condition: pc.Expression) -> int:
    """The files of one week of all datasets. Arrow lists the files and does not even join them."""
    week_of = pads.partitioning(pa.schema([("WEEK", pa.int64())]), flavor="hive")
    paths = (f"{BUCKET}/{LONG.ktk_dataset_uuid(name)}/table" for name in DATASETS)
    found = (pads.dataset(path, filesystem=files, format="parquet", partitioning=week_of) for path in paths)
    return sum(data.to_table(filter=condition & (pc.field("WEEK") == week)).num_rows for data in found)


def read_files(files: pa_fs.S3FileSystem, paths: Sequence[str], threads: int) -> int:
    """Rows of files whose names are known, so many at a time."""

    def read(path: str) -> int:
        with files.open_input_file(path) as file:
            return int(pq.ParquetFile(file).read(use_threads=False).num_rows)

    with ThreadPoolExecutor(threads) as pool:
        return sum(pool.map(read, paths))


def results(bench: Bench) -> Iterator[Row]:
    weeks = bench.size(5000, 50)
    local = Place(LONG, bench.folder / "long")
    build_cube(tables(20 * weeks, weeks), LONG, local.store)
    week = weeks // 2
    with server() as stand_in:
        ours, other, files = s3(stand_in.endpoint), minimalkv(stand_in.endpoint), arrow(stand_in.endpoint)
        copy_cube(LONG, local.store, ours.store)
        yield from one_cell(bench, stand_in, ours, other, files, week)
        yield from many_files(bench, stand_in, ours, other, files, local, min(weeks, 200))
        yield from clustered(bench, stand_in, ours, weeks)


def one_cell(
    bench: Bench, stand_in: Server, ours: Remote, other: Remote, files: pa_fs.S3FileSystem, week: int
) -> Iterator[Row]:
    cell = (C("PRODUCT_ID") == 1) & (C("DAY") == 7 * week + 3)
    stand_in.reset(LATENCY)
    ours.cold(cell)
    needed = stand_in.reset(LATENCY)
    # Both dimension columns have an index.
    yield limited("one cell, cold", needed, 2 * len(DATASETS) + 2 + len(DATASETS), "requests")
    taken = turns(
        {
            "ours": partial(ours.cold, cell),
            "ours, warm": partial(ours.query, cell),
            "minimalkv": partial(other.cold, cell),
            "pyarrow": partial(
                by_arrow, files, week, (pc.field("PRODUCT_ID") == 1) & (pc.field("DAY") == 7 * week + 3)
            ),
        },
        bench.rounds,
    )
    yield beside("one cell, cold", taken, "minimalkv", "ours")
    yield beside("one cell, cold (pyarrow is told the partition)", taken, "pyarrow", "ours")
    yield beside("one cell, again", taken, "pyarrow", "ours, warm")


def many_files(
    bench: Bench, stand_in: Server, ours: Remote, other: Remote, files: pa_fs.S3FileSystem, local: Place, weeks: int
) -> Iterator[Row]:
    paths = [
        path.replace(str(local.root), BUCKET)
        for name in DATASETS
        for path in local.files(name)
        if int(path.rpartition("WEEK=")[2].partition("/")[0]) < weeks
    ]
    condition = C("WEEK") < weeks
    stand_in.reset(LATENCY)
    ours.query(condition)
    yield limited(f"{len(paths):,} files, warm", stand_in.reset(LATENCY), 2 * len(DATASETS) + len(paths), "requests")
    taken = turns(
        {
            "ours": partial(ours.query, condition),
            "minimalkv": partial(other.query, condition),
            "pyarrow": partial(read_files, files, paths, os.cpu_count() or 1),
            "pyarrow, 32 threads": partial(read_files, files, paths, 32),
        },
        bench.rounds,
    )
    for peer in list(taken)[1:]:
        yield beside(f"{len(paths):,} files, joined (pyarrow is told their names)", taken, peer, "ours")


def clustered(bench: Bench, stand_in: Server, ours: Remote, weeks: int) -> Iterator[Row]:
    """A hundredth of a column without index whose values ascend with the partitions."""
    cube = Cube(["PRODUCT_ID"], ["WEEK"], "clustered")
    week = np.repeat(np.arange(weeks), 20)
    rows = pa.table({"PRODUCT_ID": np.tile(np.arange(20), weeks), "WEEK": week, "INVOICE": np.arange(20 * weeks)})
    local = Place(cube, bench.folder / "clustered")
    build_cube(rows, cube, local.store)
    copy_cube(cube, local.store, ours.store)
    least = 10 * weeks
    condition = (C("INVOICE") >= least) & (C("INVOICE") < least + max(1, weeks // 5))
    forget()
    stand_in.reset(LATENCY)
    query_cube_arrow(cube, ours.store, condition)
    needed = stand_in.reset(LATENCY) - len(plan_cube_query(cube, ours.store, condition).files()["seed"])
    yield limited(f"1 % of a clustered column, {weeks:,} files, cold: besides data", needed, 10, "requests")


if __name__ == "__main__":
    run(__doc__, results)

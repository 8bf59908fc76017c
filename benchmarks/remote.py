"""Object stores: a stand-in for S3 in a process of its own, whose every request takes 20 ms."""

from __future__ import annotations

import importlib.util
import io
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq
from data import DAYS, LONG, Place, forget, tables
from pairs import Row, absent, beside, limited, turns, within
from script import Bench, run

from kartothek_cube import C, Cube, append_to_cube, build_cube, copy_cube, open_store, plan_cube_query, query_cube_arrow
from kartothek_cube.api.dataset import read_table_arrow, store_dataframes_as_dataset, update_dataset_from_dataframes
from kartothek_cube.core.stores.contract import Store, StoreView

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


# --- writes, beside tables of other formats -------------------------------------------------------


PART = "WEEK"


def options_of(endpoint: str) -> dict[str, str]:
    """The stand-in as an object store of Rust is told of it."""
    credentials = {"aws_access_key_id": KEY, "aws_secret_access_key": KEY, "aws_region": REGION}
    return {**credentials, "aws_endpoint": endpoint, "aws_allow_http": "true", "allow_http": "true"}


@dataclass(frozen=True)
class Ours:
    """A dataset in the stand-in."""

    endpoint: str
    package: ClassVar[str] = "kartothek_cube"

    def build(self, name: str, rows: pa.Table) -> None:
        store_dataframes_as_dataset(s3(self.endpoint).store, name, [rows], partition_on=PART)

    def append(self, name: str, rows: Sequence[pa.Table]) -> None:
        store = s3(self.endpoint).store
        for more in rows:
            update_dataset_from_dataframes([more], store, name)

    def read(self, name: str, week: int) -> int:
        forget()
        return read_table_arrow(name, s3(self.endpoint).store, predicates=[[(PART, "==", week)]]).num_rows


@dataclass(frozen=True)
class Delta:
    """A table of deltalake."""

    endpoint: str
    package: ClassVar[str] = "deltalake"

    @property
    def _options(self) -> dict[str, str]:
        return {**options_of(self.endpoint), "conditional_put": "etag"}

    def build(self, name: str, rows: pa.Table) -> None:
        from deltalake import write_deltalake  # nobody has to have it

        write_deltalake(f"s3://{BUCKET}/{name}", rows, partition_by=[PART], storage_options=self._options)

    def append(self, name: str, rows: Sequence[pa.Table]) -> None:
        from deltalake import DeltaTable, write_deltalake

        table = DeltaTable(f"s3://{BUCKET}/{name}", storage_options=self._options)
        for more in rows:
            write_deltalake(table, more, mode="append")

    def read(self, name: str, week: int) -> int:
        from deltalake import DeltaTable

        table = DeltaTable(f"s3://{BUCKET}/{name}", storage_options=self._options)
        return int(table.to_pyarrow_table(partitions=[(PART, "=", str(week))]).num_rows)


@dataclass(frozen=True)
class Lance:
    """A table of Lance, which has no partitions: a build is one file."""

    endpoint: str
    package: ClassVar[str] = "lance"

    @property
    def _options(self) -> dict[str, str]:
        return options_of(self.endpoint)

    def build(self, name: str, rows: pa.Table) -> None:
        import lance  # nobody has to have it

        lance.write_dataset(rows, f"s3://{BUCKET}/{name}", storage_options=self._options)

    def append(self, name: str, rows: Sequence[pa.Table]) -> None:
        import lance

        table = lance.dataset(f"s3://{BUCKET}/{name}", storage_options=self._options)
        for more in rows:
            table = lance.write_dataset(more, table, mode="append", storage_options=self._options)

    def read(self, name: str, week: int) -> int:
        import lance

        table = lance.dataset(f"s3://{BUCKET}/{name}", storage_options=self._options)
        return int(table.to_table(filter=f"{PART} = {week}").num_rows)


@dataclass(frozen=True)
class Iceberg:
    """A table of PyIceberg; its catalogue is a file of SQLite nearby, which costs no request."""

    endpoint: str
    catalogue: Path
    package: ClassVar[str] = "pyiceberg"

    def _catalog(self) -> Any:
        from pyiceberg.catalog.sql import SqlCatalog  # nobody has to have it

        credentials = {"s3.access-key-id": KEY, "s3.secret-access-key": KEY, "s3.region": REGION}
        place = {"uri": f"sqlite:///{self.catalogue}", "warehouse": f"s3://{BUCKET}/iceberg"}
        return SqlCatalog("bench", **place, **credentials, **{"s3.endpoint": self.endpoint})

    def build(self, name: str, rows: pa.Table) -> None:
        catalog = self._catalog()
        catalog.create_namespace_if_not_exists("bench")
        table = catalog.create_table(f"bench.{name}", rows.schema)
        with table.update_spec() as spec:
            spec.add_identity(PART)
        table.append(rows)

    def append(self, name: str, rows: Sequence[pa.Table]) -> None:
        table = self._catalog().load_table(f"bench.{name}")
        for more in rows:
            table.append(more)

    def read(self, name: str, week: int) -> int:
        table = self._catalog().load_table(f"bench.{name}")
        return int(table.scan(row_filter=f"{PART} == {week}").to_arrow().num_rows)


def written(first: int, parts: int) -> pa.Table:
    """100 rows for each week."""
    rng, n = np.random.default_rng(first), 100 * parts
    week = np.repeat(np.arange(first, first + parts), 100)
    return pa.table({PART: week, "PRODUCT_ID": np.arange(n), "SALES": rng.random(n)})


def far_writes(bench: Bench, stand_in: Server) -> Iterator[Row]:
    """A build, appends and a read by whoever has not seen the table, beside other formats."""
    parts, times, numbers = bench.size(200, 10), bench.size(50, 3), count()
    sides = {
        "ours": Ours(stand_in.endpoint),
        "deltalake": Delta(stand_in.endpoint),
        "Lance": Lance(stand_in.endpoint),
        "PyIceberg": Iceberg(stand_in.endpoint, bench.folder / "catalog.db"),
    }
    sides = {name: side for name, side in sides.items() if importlib.util.find_spec(side.package)}
    rows, more = written(0, parts), [written(i % parts, 1) for i in range(times)]
    works: dict[str, Callable[[Any], object]] = {
        f"build of {parts} partitions": lambda side: side.build(f"built{next(numbers)}", rows),
        "append, opened anew": lambda side: side.append("table", more[:1]),
        f"{times} appends": lambda side: side.append("table", more),
        "one partition, opened anew": lambda side: side.read("table", parts // 2),
    }
    stand_in.reset(0)
    for side in sides.values():
        side.build("table", rows)
    stand_in.reset(LATENCY)
    for work, call in works.items():
        calls = {name: partial(call, side) for name, side in sides.items()}
        # PyIceberg takes minutes, so it does so once.
        once = {name: calls.pop(name) for name in ("PyIceberg",) if name in calls}
        taken = {name: bench.rounds * costs for name, costs in turns(once, 1, warm_up=False).items()}
        taken.update(turns(calls, bench.rounds))
        for peer in ("deltalake", "Lance", "PyIceberg"):
            yield within(work, taken, peer, "ours", 1) if peer in taken else absent(work, peer, "<= 1x")


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
        yield from by_pages(bench, ours)
        yield from far_writes(bench, stand_in)


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


class Measured(StoreView):
    """Counts the bytes and the ranges that are read of data files."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.bytes, self.ranges_read, self._lock = 0, 0, Lock()

    def around(self, operation: str, key: str, action: Callable[[], Any]) -> Any:
        found = super().around(operation, key, action)
        parts = [found[0]] if operation == "tail" else found if operation == "ranges" else []
        if key.endswith(".parquet") and "/table/" in key:
            with self._lock:
                self.bytes += sum(map(len, parts))
                self.ranges_read += len(parts)
        return found


class CountedFile(io.FileIO):
    """A file that counts the bytes that are read of it."""

    count = 0

    def read(self, size: int = -1) -> bytes:
        found = super().read(size)
        self.count += len(found)
        return found


def by_pages(bench: Bench, ours: Remote) -> Iterator[Row]:
    """One product out of large files; of row groups of 32,768 rows, Arrow reads whole ones."""
    weeks, per_week = bench.size(40, 3), bench.size(500_000, 150_000)
    cube, peer, theirs = Cube(["PRODUCT_ID", "DAY"], ["WEEK"], "paged"), "pyarrow, row groups of 32,768 rows", 0
    product = per_week // DAYS // 2
    for week in range(weeks):
        rows = tables(per_week, 1, week)["seed"]
        (append_to_cube if week else build_cube)(rows, cube, ours.store)
        path = bench.folder / "grouped.parquet"
        pq.write_table(rows.drop_columns("WEEK"), path, row_group_size=32_768, compression="ZSTD")
        with CountedFile(path) as file, pq.ParquetFile(file) as source:
            position = source.schema_arrow.names.index("PRODUCT_ID")
            chunks = (source.metadata.row_group(i).column(position).statistics for i in range(source.num_row_groups))
            source.read_row_groups([i for i, chunk in enumerate(chunks) if chunk.min <= product <= chunk.max])
            theirs += file.count
    store = Measured(ours.store)
    forget()
    assert query_cube_arrow(cube, store, C("PRODUCT_ID") == product).num_rows == DAYS * weeks
    work, ratio = f"one product, {weeks} files of {per_week:,} rows, cold", store.bytes / theirs
    yield Row(work, peer, theirs / 2**20, store.bytes / 2**20, ratio, math.nan, "<= 0.5x", ratio <= 0.5, "MiB")
    yield limited(work, store.ranges_read / weeks, 5, "ranges a file")


if __name__ == "__main__":
    run(__doc__, results)

"""``python -m tests.robustness.soak.processes``: processes append to one dataset with two indices
and to one cube, on a directory and on an S3 server.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from kartothek_cube.api.cube import Cube, append_to_cube, build_cube, query_cube_arrow, verify_cube
from kartothek_cube.api.dataset import (
    garbage_collect_dataset,
    read_table_arrow,
    store_dataframes_as_dataset,
    update_dataset_from_dataframes,
    verify_dataset,
)
from kartothek_cube.core.runtime.options import options
from kartothek_cube.core.snapshots.loader import load_index, load_snapshot
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.stores.open import open_store
from tests.support.servers import s3_server

UUID = "uuid"
CUBE = Cube(["x"], ["p"], "cube", index_columns=["i1", "i2"])
KINDS = ("dataset", "cube")


@dataclass(frozen=True)
class Report:
    """Figures of one run."""

    kind: str
    commits: int
    seconds: float
    tries: list[int]
    garbage: int

    def __str__(self) -> str:
        tries = (
            f"{sum(self.tries) / len(self.tries):.2f} tries a commit, at most {max(self.tries)}, " if self.tries else ""
        )
        pace = f"{self.commits} commits in {self.seconds:.1f} s, {self.commits / self.seconds:.1f} a second"
        return f"{self.kind}: {pace}, {tries}{self.garbage} keys of garbage"


def rows_of(numbers: Sequence[int]) -> pa.Table:
    """Rows whose other columns follow from x."""
    return pa.table(
        {
            "x": numbers,
            "p": [f"p{x % 3}" for x in numbers],
            "i1": [x % 7 for x in numbers],
            "i2": [f"v{x}" for x in numbers],
            "v1": [x / 2 for x in numbers],
        }
    )


def append_to_dataset(store: Any, rows: pa.Table) -> int:
    landed = update_dataset_from_dataframes([rows], store, UUID)
    assert landed.commit is not None
    return landed.commit.tries


def append_to_the_cube(store: Any, rows: pa.Table) -> int:
    commits = [metadata.commit for metadata in append_to_cube(rows, CUBE, store).values()]
    return max(commit.tries for commit in commits if commit is not None)


APPENDS: dict[str, Callable[[Any, pa.Table], int]] = {"dataset": append_to_dataset, "cube": append_to_the_cube}


def work(kind: str, url: str, numbers: range, retries: int | None, ready: Any, start: Any, answers: Any) -> None:
    """One process: an append for each number."""
    store = open_store(url)
    ready.release()
    start.wait()
    tries: list[int] = []
    error = None
    more = {} if retries is None else {"commit_retries": retries}
    try:
        with options(**more):  # type: ignore[arg-type]
            tries.extend(APPENDS[kind](store, rows_of([n])) for n in numbers)
    except Exception as failure:
        error = f"{type(failure).__name__}: {failure}"
    answers.put((tries, error))


def make(kind: str, store: Store) -> None:
    rows = rows_of([0])
    if kind == "cube":
        build_cube(rows, CUBE, store)
    else:
        store_dataframes_as_dataset(store, UUID, [rows], partition_on=["p"], secondary_indices=["i1", "i2"])


def run(kind: str, url: str, processes: int, appends: int, retries: int | None = None) -> Report:
    """Append from all processes at once, and check that everything is there."""
    store = open_store(url)
    make(kind, store)
    context = multiprocessing.get_context("spawn")
    ready, start, answers = context.Semaphore(0), context.Event(), context.Queue()
    parts = [range(1 + i * appends, 1 + (i + 1) * appends) for i in range(processes)]
    children = [context.Process(target=work, args=(kind, url, part, retries, ready, start, answers)) for part in parts]
    for child in children:
        child.start()
    for _ in children:
        assert ready.acquire(timeout=120)
    begun = time.monotonic()
    start.set()
    heard = [answers.get() for _ in children]
    seconds = time.monotonic() - begun
    for child in children:
        child.join()
    errors = [error for _, error in heard if error]
    assert not errors, f"{len(errors)} of {processes} processes failed: {errors[0]}"
    garbage = check(kind, store, 1 + processes * appends)
    tries = [n for part, _ in heard for n in part if n]
    return Report(kind, processes * appends, seconds, tries, garbage)


def check(kind: str, store: Store, number: int) -> int:
    """Every row and every index entry is there; the number of keys that are garbage."""
    uuid = UUID if kind == "dataset" else CUBE.ktk_dataset_uuid("seed")
    wanted = rows_of(range(number)).select(["x", "p", "i1", "i2", "v1"])
    found = read_table_arrow(uuid, store, columns=["x", "p", "i1", "i2", "v1"]).sort_by("x").select(wanted.column_names)
    assert found.to_pydict() == wanted.to_pydict()
    snapshot = load_snapshot(store, uuid)
    for column in ("i1", "i2"):
        index, _ = load_index(store, snapshot, column)
        assert len(index) == number, (
            f"the index on {column} has {len(index)} entries for {number} rows in files of their own"
        )
    if kind == "cube":
        assert query_cube_arrow(CUBE, store).num_rows == number
        assert verify_cube(CUBE, store, deep=True).clean
    else:
        assert verify_dataset(uuid, store, deep=True).clean
    return len(garbage_collect_dataset(uuid, store, dry_run=True).waiting)


@contextmanager
def s3_urls() -> Iterator[Callable[[], str]]:
    """URLs of new buckets on a server of their own."""
    with tempfile.TemporaryDirectory() as folder, s3_server(Path(folder)) as server:
        host = server.endpoint.removeprefix("http://")
        yield lambda: f"hs3://access:secret@{host}/{server.new_bucket()}?is_secure=false&force_bucket_suffix=false"


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.robustness.soak.processes")
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--appends", type=int, default=200)
    parser.add_argument("--retries", type=int, help="commit_retries; default: that of the library")
    parser.add_argument("--stores", nargs="*", choices=("local", "s3"), default=["local", "s3"])
    parser.add_argument("--kinds", nargs="*", choices=KINDS, default=KINDS)
    asked = parser.parse_args()
    if "local" in asked.stores:
        for kind in asked.kinds:
            with tempfile.TemporaryDirectory() as folder:
                say(f"local {run(kind, f'hfs://{folder}', asked.processes, asked.appends, asked.retries)}")
    if "s3" in asked.stores:
        with s3_urls() as new_url:
            for kind in asked.kinds:
                say(f"s3 {run(kind, new_url(), asked.processes, asked.appends, asked.retries)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

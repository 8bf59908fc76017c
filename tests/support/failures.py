"""Stores whose tasks die, and `FailureTests`, the tests of any session that retries tasks."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from kartothek_cube import open_store, options
from kartothek_cube.api.cube import C, build_cube, cleanup_cube, collect_stats, query_cube_arrow, verify_cube
from kartothek_cube.api.dataset import (
    garbage_collect_dataset,
    read_table_arrow,
    store_dataframes_as_dataset,
    verify_dataset,
)
from kartothek_cube.core.stores.contract import StoreView
from kartothek_cube.testing.driver import (
    CUBE,
    PARTITION_ON,
    TOTALS,
    data_files,
    enrichment,
    ordered,
    rows_in,
    seed,
    total,
)

PUTS = ("put", "put_file")
GETS = ("get", "tail", "ranges")
EXECUTOR = "CoarseGrainedExecutorBackend"


class Mortal(StoreView):
    """A store that fails after a task has written, or read from, a data file."""

    def __init__(self, url, happens, operations=PUTS):
        super().__init__(open_store(url))
        self._happens, self._operations = happens, operations

    def around(self, operation, key, action):
        result = action()
        if operation in self._operations and key.endswith(".parquet"):
            self._happens()
        return result

    def local_path(self, key):
        """Nowhere: reads are calls of the store."""


def once(marker, action):
    """Call the function in the first process that comes here, and never again."""
    with suppress(FileExistsError):
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
        action()


def fail():
    raise ConnectionError("a failure of the first attempt")


def kill_worker():
    os.kill(os.getpid(), signal.SIGKILL)


def process(pid):
    """The parent of a process and its command line."""
    folder = Path(f"/proc/{pid}")
    if folder.exists():
        return int((folder / "stat").read_text().rpartition(")")[2].split()[1]), (folder / "cmdline").read_text()
    parent, command = subprocess.check_output(["ps", "-o", "ppid=,args=", "-p", str(pid)], text=True).split(maxsplit=1)
    return int(parent), command


def kill_executor(note):
    """Kill the executor's process, the grandparent of the Python worker, and leave a note of it.

    No other process is killed.
    """
    pid = os.getpid()
    while pid > 1:
        parent, command = process(pid)
        if EXECUTOR in command:
            note.write_text(str(pid))
            os.kill(pid, signal.SIGKILL)
        pid = parent


def named(written):
    """The keys of the data files in a dataset's document."""
    return {key for partition in written.partitions.values() for key in partition["files"].values()}


def check_leftovers(store, known, collect):
    """Data files without a dataset exist, and collecting garbage removes exactly these."""
    leftovers = sorted(set(data_files(store)) - known)
    assert leftovers
    with options(grace=timedelta(0)):
        assert sorted(key for key in collect().keys if key.endswith(".parquet") and "/indices/" not in key) == leftovers
    assert sorted(known) == data_files(store)


class FailureTests:
    """Every row is there once, whatever happens to a task, and garbage collection finds leftovers.

    A subclass provides the fixture ``driver``.
    """

    @pytest.fixture
    def store(self, tmp_path):
        return f"hfs://{tmp_path / 'store'}"

    @pytest.fixture
    def mortal(self, store, tmp_path):
        """Return a maker of stores that fail in one task, after the task has written a file."""
        happened = tmp_path / "happened"
        yield lambda action, operations=PUTS: Mortal(store, partial(once, happened, action), operations)
        assert happened.exists()

    def check_build(self, driver, store, mortal):
        written = driver.build_cube({"seed": seed()}, CUBE, mortal)
        assert rows_in(store) == ordered(seed())
        assert collect_stats(CUBE, store)["seed"]["rows"] == seed().num_rows
        check_leftovers(store, named(written["seed"]), partial(cleanup_cube, CUBE, store))
        assert verify_cube(CUBE, store, deep=True).clean
        assert rows_in(store) == ordered(seed())

    def check_query(self, driver, store, mortal):
        build_cube({"seed": seed(range(8)), "e": enrichment()}, CUBE, store, partition_on=PARTITION_ON)
        right = ordered(query_cube_arrow(CUBE, store))
        assert ordered(driver.query_cube(CUBE, mortal)) == right
        assert ordered(driver.query_cube(CUBE, store)) == right

    def test_a_build_with_a_task_that_failed(self, driver, store, mortal):
        self.check_build(driver, store, mortal(fail))

    def test_a_build_with_a_worker_that_was_killed(self, driver, store, mortal):
        self.check_build(driver, store, mortal(kill_worker))

    def test_an_update_with_a_worker_that_was_killed(self, driver, store, mortal):
        before = named(build_cube(seed(), CUBE, store)["seed"])
        written = driver.update_cube({"seed": seed((0,), add=9.0)}, CUBE, mortal(kill_worker), C("p") == 0)
        assert rows_in(store) == ordered([*seed((0,), add=9.0).to_pylist(), *seed((1,)).to_pylist()])
        assert collect_stats(CUBE, store)["seed"]["rows"] == seed().num_rows
        check_leftovers(store, named(written["seed"]) | before, partial(cleanup_cube, CUBE, store))
        assert verify_cube(CUBE, store, deep=True).clean

    def test_a_dataset_with_a_worker_that_was_killed(self, driver, store, mortal):
        written = driver.store_dataset(
            seed(), mortal(kill_worker), "sales", partition_on=["p"], secondary_indices=["i1"]
        )
        assert ordered(read_table_arrow("sales", store)) == ordered(seed())
        check_leftovers(store, named(written), partial(garbage_collect_dataset, "sales", store))
        assert verify_dataset("sales", store, deep=True).clean

    def test_a_query_with_a_worker_that_was_killed(self, driver, store, mortal):
        self.check_query(driver, store, mortal(kill_worker, GETS))

    def test_a_merge_with_a_worker_that_was_killed(self, driver, store, mortal):
        store_dataframes_as_dataset(store, "sales", [seed()], partition_on=["p"], secondary_indices=["i1"])
        source = pa.concat_tables([seed((0,), add=9.0), seed((2,))])
        # The worker dies when it has written rows of the source: a file that is not garbage later.
        report = driver.merge_dataset(source, mortal(kill_worker), "sales", ["x", "y", "p"])
        assert (report.updated, report.inserted) == (8, 8)
        assert ordered(read_table_arrow("sales", store)) == ordered([*source.to_pylist(), *seed((1,)).to_pylist()])
        assert not [key for key in data_files(store) if "/p=" not in key]
        assert verify_dataset("sales", store, deep=True).clean


class ExecutorFailureTests(FailureTests):
    """The same where an executor is a process, whose death takes its shuffle files along."""

    @pytest.fixture
    def killed(self, tmp_path):
        """An action that kills the executor of its task; it is dead at the end of the test."""
        note = tmp_path / "killed"
        yield partial(kill_executor, note)
        with pytest.raises(ProcessLookupError):
            os.kill(int(note.read_text()), 0)

    def test_a_build_with_an_executor_that_was_killed(self, driver, store, mortal, killed):
        self.check_build(driver, store, mortal(killed))

    def test_a_query_with_an_executor_that_was_killed(self, driver, store, mortal, killed):
        self.check_query(driver, store, mortal(killed, GETS))

    def test_a_shuffled_query_with_an_executor_that_was_killed(self, driver, store, mortal, killed):
        """Shuffle files that the executor had die with it."""
        build_cube(seed(range(8)), CUBE, store)
        totals = {"func": total, "schema": TOTALS, "cube": CUBE, "partition_by": "x"}
        right = ordered(driver.map_groups(store=store, **totals))
        assert ordered(driver.map_groups(store=mortal(killed, GETS), **totals)) == right
        assert len(right) == len(set(seed()["x"].to_pylist()))

"""What is done to the process of a task: its connection to Spark, its garbage, and its temporary
files.
"""

from __future__ import annotations

import gc
import io
import os
import socket
import tempfile
from contextlib import suppress

import pytest

from kartothek_cube.spark import tasks as python_worker
from kartothek_cube.spark.tasks import as_task, send_at_once, spilling_beside_spark, tuned_worker


def test_only_what_is_left_after_the_first_task_of_a_worker_stays_in_it(monkeypatch):
    def task():
        with tuned_worker():
            yield gc.get_freeze_count()

    assert list(task()) == [0]
    assert python_worker._freeze not in gc.callbacks  # here is no worker
    monkeypatch.setattr(python_worker, "_is_worker", lambda: True)
    try:
        assert [*task(), *task()] == [0, 0]
        assert gc.callbacks.count(python_worker._freeze) == 1
        gc.collect(0)
        assert gc.get_freeze_count() == 0
        gc.collect()
        assert gc.get_freeze_count() > 0
        (frozen,) = task()
        assert frozen > 0  # not as many: what is frozen may be freed
        assert python_worker._freeze not in gc.callbacks
    finally:
        gc.unfreeze()


def test_workers_are_tuned_between_two_tasks(spark):
    def frozen(batches):
        import gc

        import pyarrow as pa

        for _ in batches:
            yield pa.record_batch({"n": [gc.get_freeze_count()]})

    work = as_task(frozen)
    counts = [spark.range(0, 1, 1, 1).mapInArrow(work, "n long").collect()[0].n for _ in range(3)]
    assert counts[-1] > 0


@pytest.fixture
def connected():
    """Both ends of a connection of this process."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as here:
        there, _ = server.accept()
        with there:
            yield here, there


def waits(connection):
    return not connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def as_spark_runs_it(task, outfile):
    """Call a function below a frame that looks like the one in which PySpark runs tasks."""
    names = {"task": task}
    exec(compile("def main(infile, outfile):\n    return task()", "/opt/spark/pyspark/worker.py", "exec"), names)
    return names["main"](None, outfile)


def test_nothing_waits_in_the_connection_to_spark_and_no_file_stays_open(connected):
    here, there = connected
    with os.fdopen(os.dup(here.fileno()), "wb") as outfile:
        free = os.dup(0)
        os.close(free)
        assert waits(here)
        as_spark_runs_it(send_at_once, outfile)
        assert not waits(here)
        again = os.dup(0)
        os.close(again)
    assert again == free
    here.sendall(b"still open")
    assert there.recv(10) == b"still open"


def test_connections_of_the_user_are_left_alone(connected):
    here, of_user = connected
    as_spark_runs_it(send_at_once, here.makefile("wb"))
    assert (waits(here), waits(of_user)) == (False, True)
    send_at_once()  # which is in no task
    assert waits(of_user)


def test_without_quick_confirmations_messages_are_sent_at_once_all_the_same(connected, monkeypatch):
    monkeypatch.delattr(socket, "TCP_QUICKACK", raising=False)
    as_spark_runs_it(send_at_once, connected[0].makefile("wb"))
    assert not waits(connected[0])


def test_what_is_no_tcp_connection_does_no_harm(tmp_path):
    ours, theirs = socket.socketpair()
    with ours, theirs, (tmp_path / "file").open("wb") as file, socket.socket(type=socket.SOCK_DGRAM) as datagrams:
        for outfile in (ours.makefile("wb"), file, io.BytesIO(), datagrams.makefile("wb"), None):
            as_spark_runs_it(send_at_once, outfile)
    as_spark_runs_it(send_at_once, file)  # which is closed


@pytest.mark.parametrize(
    ("environment", "beside"),
    [
        ({"SPARK_LOCAL_DIRS": "{0}"}, True),
        ({"SPARK_LOCAL_DIRS": "{0}/gone,{0}"}, True),
        ({"SPARK_LOCAL_DIRS": "{0}/gone"}, False),
        ({"SPARK_LOCAL_DIRS": "{0}", "TMPDIR": "/somewhere"}, False),
        ({}, False),
    ],
)
def test_temporary_files_are_where_spark_has_its_own_unless_there_is_a_place_for_all(
    tmp_path, monkeypatch, environment, beside
):
    for name in ("TMPDIR", "TEMP", "TMP", "SPARK_LOCAL_DIRS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value.format(tmp_path))
    before = tempfile.gettempdir()
    with suppress(ZeroDivisionError), spilling_beside_spark():
        assert tempfile.gettempdir() == (str(tmp_path) if beside else before)
        raise ZeroDivisionError
    assert tempfile.gettempdir() == before


def test_tasks_know_where_spark_has_its_files(spark):
    def place(batches):
        import os
        import tempfile
        from unittest.mock import patch

        import pyarrow as pa

        for _ in batches:
            with patch.dict(os.environ, TMPDIR="", TEMP="", TMP=""), spilling_beside_spark():
                yield pa.record_batch({"place": [tempfile.gettempdir()], "disks": [os.environ["SPARK_LOCAL_DIRS"]]})

    (row,) = spark.range(0, 1, 1, 1).mapInArrow(place, "place string, disks string").collect()
    assert row.place in row.disks.split(",")


@pytest.fixture
def in_worker(monkeypatch):
    monkeypatch.setattr(python_worker, "_is_worker", lambda: True)
    monkeypatch.setattr(gc, "callbacks", [])


def tuned():
    with tuned_worker():
        pass


def test_nothing_is_changed_where_no_worker_is(connected, monkeypatch):
    monkeypatch.setattr(gc, "callbacks", [])
    as_spark_runs_it(tuned, connected[0].makefile("wb"))
    assert (waits(connected[0]), gc.callbacks) == (True, [])


@pytest.mark.parametrize(("value", "is_tuned"), [("0", False), ("1", True), (None, True)])
def test_a_variable_of_the_environment_leaves_workers_alone(connected, monkeypatch, in_worker, value, is_tuned):
    monkeypatch.delenv("KARTOTHEK_CUBE_TUNE_WORKERS", raising=False)
    if value is not None:
        monkeypatch.setenv("KARTOTHEK_CUBE_TUNE_WORKERS", value)
    as_spark_runs_it(tuned, connected[0].makefile("wb"))
    assert (not waits(connected[0]), bool(gc.callbacks)) == (is_tuned, is_tuned)


def looking(batches):
    """Whether messages of the connection to Spark wait, and how much the garbage collector passes
    over.
    """
    import gc
    import os
    import socket

    import pyarrow as pa

    # Before a row is asked for, as rows are what would wait.
    with socket.socket(fileno=os.dup(python_worker._connection_to_spark())) as connection:
        is_unix = connection.family == socket.AF_UNIX
        at_once = is_unix or connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
    for _ in batches:
        yield pa.record_batch({"is_unix": [is_unix], "at_once": [at_once], "frozen": [gc.get_freeze_count()]})


WORKER = "is_unix boolean, at_once boolean, frozen long"


def test_a_task_does_not_wait_in_its_connection_to_spark(spark):
    rows = spark.range(0, 2, 1, 2).mapInArrow(as_task(looking), WORKER).collect()
    assert [row.at_once for row in rows] == [True, True]


def test_the_environment_of_executors_switches_it_off(spark, monkeypatch):
    # What `spark.executorEnv` fills when a session is made.
    monkeypatch.setitem(spark.sparkContext.environment, "KARTOTHEK_CUBE_TUNE_WORKERS", "0")
    for _ in range(2):
        (row,) = spark.range(0, 1, 1, 1).mapInArrow(as_task(looking), WORKER).collect()
        assert (row.at_once, row.frozen) == (row.is_unix, 0)

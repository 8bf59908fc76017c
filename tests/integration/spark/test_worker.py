"""What is done to the process of a task: its connection to Spark, its garbage, and its temporary files."""

from __future__ import annotations

import gc
import os
import socket
import tempfile
from contextlib import suppress

import pytest

from kartothek_cube.spark import worker
from kartothek_cube.spark.tasks import as_task
from kartothek_cube.spark.worker import send_at_once, spilling_beside_spark, worker_settled


def test_only_what_is_left_after_the_first_task_of_a_worker_stays_in_it(monkeypatch):
    def task():
        with worker_settled():
            yield gc.get_freeze_count()

    assert list(task()) == [0]
    assert worker._freeze not in gc.callbacks  # here is no worker
    monkeypatch.setattr(worker, "_is_worker", lambda: True)
    try:
        assert [*task(), *task()] == [0, 0]
        assert gc.callbacks.count(worker._freeze) == 1
        gc.collect(0)
        assert gc.get_freeze_count() == 0
        gc.collect()
        assert gc.get_freeze_count() > 0
        (frozen,) = task()
        assert frozen > 0  # not as many: what is frozen may be freed
        assert worker._freeze not in gc.callbacks
    finally:
        gc.unfreeze()


def test_workers_are_settled_between_two_tasks(spark):
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


def test_nothing_waits_in_connections_and_no_file_stays_open(connected, monkeypatch, tmp_path):
    monkeypatch.setattr(worker, "_NUMBERS", 1 + max(end.fileno() for end in connected))
    with (tmp_path / "file").open("wb"), socket.socketpair()[0], socket.socket(type=socket.SOCK_DGRAM):
        free = os.dup(0)
        os.close(free)
        assert all(map(waits, connected))
        send_at_once()
        assert not any(map(waits, connected))
        again = os.dup(0)
        os.close(again)
    assert again == free
    connected[0].sendall(b"still open")
    assert connected[1].recv(10) == b"still open"


@pytest.mark.parametrize("system", ["Linux", "another one"])
def test_a_connection_that_is_closed_meanwhile_does_no_harm(connected, monkeypatch, system):
    gone, dup = connected[0].fileno(), os.dup
    monkeypatch.setattr(worker, "_NUMBERS", 1 + max(end.fileno() for end in connected))
    monkeypatch.setattr(os, "dup", lambda number: dup(number if number != gone else -1))
    if system != "Linux":
        monkeypatch.delattr(socket, "TCP_QUICKACK", raising=False)
    send_at_once()
    assert list(map(waits, connected)) == [True, False]


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
def test_temporary_files_are_where_spark_has_its_own_unless_there_is_a_place_for_all(tmp_path, monkeypatch, environment, beside):
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


def test_connections_are_left_alone_where_no_worker_is(connected, monkeypatch):
    monkeypatch.setattr(worker, "_NUMBERS", 1 + max(end.fileno() for end in connected))
    with worker_settled():
        assert all(map(waits, connected))
    monkeypatch.setattr(worker, "_is_worker", lambda: True)
    monkeypatch.setattr(worker, "_freeze", None)
    monkeypatch.setattr(gc, "callbacks", [])
    with worker_settled():
        assert not any(map(waits, connected))


def test_a_task_does_not_wait_in_its_connection_to_spark(spark):
    def waiting(batches):
        import os
        import socket

        import pyarrow as pa

        found = []
        for number in filter(worker._is_socket, range(worker._NUMBERS)):  # before a row is asked for, as rows are what would wait
            with socket.socket(fileno=os.dup(number)) as connection:
                found.append(connection.family == socket.AF_UNIX or connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0)
        for _ in batches:
            yield pa.record_batch({"at_once": [bool(found) and all(found)]})

    assert [row.at_once for row in spark.range(0, 2, 1, 2).mapInArrow(as_task(waiting), "at_once boolean").collect()] == [True, True]

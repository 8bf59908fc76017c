"""What is done to the process of a task: its connection to Spark, and its garbage."""

from __future__ import annotations

import gc
import os
import socket

import pytest

from kartothek_cube.spark import worker
from kartothek_cube.spark.tasks import as_task
from kartothek_cube.spark.worker import send_at_once, worker_settled


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
        assert list(task()) == [gc.get_freeze_count()]
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

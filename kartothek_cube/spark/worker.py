"""The process in which tasks of Spark run one after the other: its connection to Spark, its garbage, and its temporary files."""

from __future__ import annotations

import gc
import os
import socket
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress

__all__ = ["send_at_once", "spilling_beside_spark", "worker_settled"]

# Spark connects a worker before anything of the user opens a file, so that the connection has one of the first numbers.
_NUMBERS = 16


@contextmanager
def worker_settled() -> Iterator[None]:
    """Around a task: nothing waits in the worker's connection, and what the first task of a worker has imported is not looked through after each other one.

    Spark's workers collect garbage between tasks, which takes 40 ms for the modules of Arrow, pandas and this library. What is left of the first of these
    collections stays: the function of that task, and all that the user gave it, is gone by then.
    """
    if not _is_worker():
        yield
        return
    send_at_once()
    yield
    if gc.get_freeze_count() == 0 and _freeze not in gc.callbacks:
        gc.callbacks.append(_freeze)


def _freeze(phase: str, info: dict[str, int]) -> None:
    """What `gc` calls; once, after the next collection of everything."""
    if phase == "stop" and info["generation"] == 2:
        gc.callbacks.remove(_freeze)
        gc.freeze()


def _is_worker() -> bool:
    from pyspark import TaskContext

    return TaskContext.get() is not None


def send_at_once() -> None:
    """Let small messages not wait in the connections of this process.

    Spark sends a worker first the task's function and then its rows. If these are few, the system keeps them until the worker's side has confirmed the
    function; and that waits 40 ms for something to send back with it. So a task confirms what has come before it asks for rows, and sends its end at once.
    """
    for number in filter(_is_socket, range(_NUMBERS)):
        # Sockets of others may be closed meanwhile, or know no such options.
        with suppress(OSError), socket.socket(fileno=os.dup(number)) as connection:
            if connection.family in (socket.AF_INET, socket.AF_INET6) and connection.type == socket.SOCK_STREAM:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if hasattr(socket, "TCP_QUICKACK"):  # Linux
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)


def _is_socket(number: int) -> bool:
    try:
        return stat.S_ISSOCK(os.fstat(number).st_mode)
    except OSError:
        return False


@contextmanager
def spilling_beside_spark() -> Iterator[None]:
    """Around work that makes temporary files: they are where Spark has its own, unless the environment names a place for all that are temporary.

    Spark's disks are meant for large files, and what a killed task leaves there goes with the application.
    """
    before = tempfile.tempdir
    tempfile.tempdir = _disk_of_spark() or before
    try:
        yield
    finally:
        tempfile.tempdir = before


def _disk_of_spark() -> str | None:
    if any(map(os.environ.get, ("TMPDIR", "TEMP", "TMP"))):
        return None
    disks = [disk for disk in os.environ.get("SPARK_LOCAL_DIRS", "").split(",") if os.access(disk, os.W_OK | os.X_OK)]
    return disks[os.getpid() % len(disks)] if disks else None

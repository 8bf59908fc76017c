"""Spark's Python worker: its connection to the JVM, garbage collection, and temporary files."""

from __future__ import annotations

import gc
import os
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

__all__ = ["send_at_once", "spilling_beside_spark", "tuned_worker"]

# 0 leaves socket and garbage collector alone. An environment variable, not an option of a call: a
# worker serves all tasks of a session, also those that the data source plans outside of any call.
_SWITCH = "KARTOTHEK_CUBE_TUNE_WORKERS"


@contextmanager
def tuned_worker() -> Iterator[None]:
    """Around a task: send messages to the JVM at once, and shorten later garbage collections."""
    if not _is_worker() or os.environ.get(_SWITCH) == "0":
        yield
        return
    send_at_once()
    yield
    # Spark's workers collect garbage between tasks, which takes 40 ms with the modules of Arrow,
    # pandas and this library. What survives the first of these collections is frozen: only modules,
    # since the task's function and the user's data are gone by then.
    if gc.get_freeze_count() == 0 and _freeze not in gc.callbacks:
        gc.callbacks.append(_freeze)


def _freeze(phase: str, info: dict[str, int]) -> None:
    """A callback of `gc`: freezes once, after the next full collection."""
    if phase == "stop" and info["generation"] == 2:
        gc.callbacks.remove(_freeze)
        gc.freeze()


def _is_worker() -> bool:
    from pyspark import TaskContext

    return TaskContext.get() is not None


def send_at_once() -> None:
    """Switch off Nagle's algorithm and delayed acknowledgement on the connection to the JVM.

    Spark sends a worker first the task's function and then its rows. A few rows stay in the JVM's
    send buffer until the worker has acknowledged the function, and a delayed acknowledgement waits
    40 ms for data to travel with. With these two options the worker acknowledges at once.
    """
    number = _connection_to_spark()
    if number is None:
        return
    # Unix sockets have no such options.
    with suppress(OSError), socket.socket(fileno=os.dup(number)) as connection:
        if connection.family in (socket.AF_INET, socket.AF_INET6) and connection.type == socket.SOCK_STREAM:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if hasattr(socket, "TCP_QUICKACK"):  # Linux
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)


def _connection_to_spark() -> int | None:
    """The descriptor of the connection on which PySpark answers this task, or None."""
    # PySpark passes the connection to no task, but `main` of its worker, which runs all tasks, has
    # the argument `outfile`. Any other way to find a socket could hit one of the user's.
    frame: FrameType | None = sys._getframe()  # noqa: SLF001
    while frame is not None:
        file = frame.f_code.co_filename.replace(os.sep, "/")
        if frame.f_code.co_name == "main" and file.endswith("pyspark/worker.py"):
            break
        frame = frame.f_back
    with suppress(AttributeError, OSError, ValueError):
        return int(frame.f_locals["outfile"].fileno()) if frame is not None and "outfile" in frame.f_locals else None
    return None


@contextmanager
def spilling_beside_spark() -> Iterator[None]:
    """Put temporary files into Spark's local directories, unless the environment names another.

    Spark's disks are meant for large files, and Spark removes the files of killed tasks with the
    application.
    """
    before = tempfile.tempdir
    if not any(map(os.environ.get, ("TMPDIR", "TEMP", "TMP"))):
        disks = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")
        writable = [disk for disk in disks if os.access(disk, os.W_OK | os.X_OK)]
        # Workers spread over the disks.
        tempfile.tempdir = writable[os.getpid() % len(writable)] if writable else before
    try:
        yield
    finally:
        tempfile.tempdir = before

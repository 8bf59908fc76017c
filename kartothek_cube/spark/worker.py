"""The Python worker of Spark: its connection to the JVM, its garbage collector, and its temporary files."""

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

# Set to 0, it leaves socket and garbage collector alone. An environment variable and no option of a call: a worker serves
# all tasks of a session, also those that were planned where no option holds, as by the data source.
_SWITCH = "KARTOTHEK_CUBE_TUNE_WORKERS"


@contextmanager
def tuned_worker() -> Iterator[None]:
    """Around a task: its messages to the JVM are sent at once, and garbage collections after it are short.

    Spark's workers collect garbage between tasks, which takes 40 ms with the modules of Arrow, pandas and this library.
    What the first of these collections leaves is exempt from later ones. The function of that task, and all that the user
    gave it, is gone by then.
    """
    if not _is_worker() or os.environ.get(_SWITCH) == "0":
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
    """Let small messages of this task to the JVM not wait for each other.

    Spark sends a worker first the task's function and then its rows. If these are few, the system keeps them until the
    worker's side has confirmed the function; and that waits 40 ms for something to send back with it. So a task confirms
    what has come before it asks for rows, and sends its end at once.
    """
    number = _connection_to_spark()
    if number is None:
        return
    # A Unix socket knows no such options.
    with suppress(OSError), socket.socket(fileno=os.dup(number)) as connection:
        if connection.family in (socket.AF_INET, socket.AF_INET6) and connection.type == socket.SOCK_STREAM:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if hasattr(socket, "TCP_QUICKACK"):  # Linux
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)


def _connection_to_spark() -> int | None:
    """The descriptor of the connection on which PySpark answers this task; None where it cannot be found.

    PySpark gives it to no task, but it is the argument ``outfile`` of the function that runs all of them. Any other way to
    find a socket could hit one of the user's.
    """
    frame: FrameType | None = sys._getframe()  # noqa: SLF001
    while frame is not None and not _runs_tasks(frame.f_code.co_name, frame.f_code.co_filename):
        frame = frame.f_back
    with suppress(AttributeError, OSError, ValueError):
        return int(frame.f_locals["outfile"].fileno()) if frame is not None and "outfile" in frame.f_locals else None
    return None


def _runs_tasks(function: str, file: str) -> bool:
    return function == "main" and file.replace(os.sep, "/").endswith("pyspark/worker.py")


@contextmanager
def spilling_beside_spark() -> Iterator[None]:
    """Around work that makes temporary files: they go to Spark's local directories, unless the environment names another.

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

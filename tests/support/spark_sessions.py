"""The suite's Spark: its environment, and the settings of its sessions."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

SPARK_CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.log.level": "ERROR",
    # Neither UTC nor the zone of most machines, to find every slip of a time zone.
    "spark.sql.session.timeZone": "America/New_York",
}


def prepare() -> None:
    """Set the environment of Spark's processes; call this before PySpark is imported."""
    from kartothek_cube.spark.java import ensure_java

    ensure_java()
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    # Functions of tests are pickled by name: workers find the modules from any working directory.
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")])
    )
    # 15 % faster for many small jobs
    os.environ["JDK_JAVA_OPTIONS"] = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


def started(builder: Any, folder: Path, **settings: str) -> Any:
    """The session with the settings of the suite; Spark's own files go below a folder."""
    for key, value in {
        **SPARK_CONF,
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        **settings,
    }.items():
        builder = builder.config(key, value)
    return builder.appName("kartothek_cube tests").getOrCreate()

"""Fixtures of the whole suite: a store in a temporary directory, one Spark session and one server of each kind a run; settings of Hypothesis."""

from __future__ import annotations

import importlib.util
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

import kartothek_cube
from kartothek_cube.testing import servers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

# `ci` gives the same examples in every run; `fuzz` looks for new ones: HYPOTHESIS_PROFILE=fuzz
hypothesis.settings.register_profile("ci", derandomize=True, deadline=None, database=None)
hypothesis.settings.register_profile("fuzz", deadline=None, max_examples=2000, print_blob=True)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# The quick environment has no PySpark.
collect_ignore_glob = [] if importlib.util.find_spec("pyspark") else ["spark/*"]

MARKER_OF_FIXTURE = {
    "spark": "spark",
    "run_kartothek": "interop",
    "run_plateau": "interop",
    "s3_process": "servers",
    "azure_process": "servers",
    "gcs_process": "servers",
}

SPARK_CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.log.level": "ERROR",
    # Neither UTC nor the zone of most machines: finds every slip of a time zone.
    "spark.sql.session.timeZone": "America/New_York",
}


def pytest_configure(config: pytest.Config) -> None:
    """Make the markers known that only fixtures of this file give."""
    config.addinivalue_line("markers", "servers: talks to the server of an object store that runs as a process of its own (given by its fixture)")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give every test the markers of the fixtures that it uses, so that `-m "not spark"` forgets none."""
    for item in items:
        for fixture in getattr(item, "fixturenames", ()):
            if fixture in MARKER_OF_FIXTURE:
                item.add_marker(MARKER_OF_FIXTURE[fixture])
        if item.get_closest_marker("interop"):
            # What these tests are about: both libraries write by turns.
            item.add_marker(pytest.mark.filterwarnings("ignore::kartothek_cube.errors.ForeignWriterWarning"))


@pytest.fixture
def store_url(tmp_path: Path) -> str:
    """URL of an empty directory store."""
    return f"hfs://{tmp_path / 'store'}"


@pytest.fixture
def store(store_url: str) -> Any:
    """An empty directory store."""
    return kartothek_cube.open_store(store_url)


def _running(server: Any, *arguments: Path) -> Iterator[Any]:
    """A server for the rest of the run, one for each process of pytest."""
    from kartothek_cube.errors import Unsupported

    with ExitStack() as stack:
        try:
            process = stack.enter_context(server(*arguments))
        except Unsupported as missing:
            pytest.skip(str(missing))
        yield process


@pytest.fixture(scope="session")
def s3_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The S3 server of moto."""
    yield from _running(servers.s3_server, tmp_path_factory.mktemp("s3"))


@pytest.fixture(scope="session")
def azure_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Azurite, as `make system-deps` installs it."""
    yield from _running(servers.azure_server, tmp_path_factory.mktemp("azure"), Path(__file__).parents[1] / ".node")


@pytest.fixture(scope="session")
def gcs_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The stand-in for GCS."""
    yield from _running(servers.gcs_server, tmp_path_factory.mktemp("gcs"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session of the run: two cores, failed tasks are tried up to four times."""
    from kartothek_cube.testing.java import ensure_java

    ensure_java()
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    # Functions of the tests are pickled by name: workers find them wherever they were started.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH")]))
    # 15 % faster for many small jobs
    os.environ["JDK_JAVA_OPTIONS"] = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
    from pyspark.sql import SparkSession

    folder = tmp_path_factory.mktemp("spark")
    builder = SparkSession.builder.master("local[2,4]").appName("kartothek_cube tests")
    for key, value in {**SPARK_CONF, "spark.sql.warehouse.dir": str(folder / "warehouse"), "spark.local.dir": str(folder / "local")}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    yield session
    session.stop()

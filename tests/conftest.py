"""Fixtures of the whole suite: a store in a temporary directory, one Spark session and one server
of each kind a run; settings of Hypothesis.
"""

from __future__ import annotations

import importlib.util
import os
from collections import Counter
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest
from _pytest.fixtures import reorder_items

import kartothek_cube
from kartothek_cube.core.runtime.options import uses_fast_paths

# Before they are imported: a failure shows the values.
pytest.register_assert_rewrite("tests.support")

from tests.support import servers  # noqa: E402
from tests.support.spark_sessions import prepare, started  # noqa: E402
from tests.support.thoroughness import EXHAUSTIVE, is_exhaustive  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

# `ci` gives the same examples in every run, `short` the first of them, `exhaustive` more;
# `fuzz` looks for new ones: HYPOTHESIS_PROFILE=fuzz
hypothesis.settings.register_profile("ci", derandomize=True, deadline=None, database=None, max_examples=15)
hypothesis.settings.register_profile("exhaustive", derandomize=True, deadline=None, database=None, max_examples=100)
hypothesis.settings.register_profile("short", derandomize=True, deadline=None, database=None, max_examples=10)
hypothesis.settings.register_profile("fuzz", deadline=None, max_examples=2000, print_blob=True)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# The quick environment has no PySpark.
collect_ignore_glob = [] if importlib.util.find_spec("pyspark") else ["unit/spark/*", "integration/spark/*"]
# Dagster, Kedro and Airflow are in an environment of their own, whose target calls these tests.
collect_ignore_glob.append("integration/orchestration/*")

MARKER_OF_FIXTURE = {
    "spark": "spark",
    "run_kartothek": "interop",
    "run_plateau": "interop",
    "s3_process": "servers",
    "azure_process": "servers",
    "gcs_process": "servers",
}


# Tests that share something dear, a session or servers or an environment or the built
# documentation: one process of a parallel run gets them all, and these groups begin first.
TOGETHER = {
    "spark": (
        "tests/integration/spark/",
        "tests/integration/examples/",
        "tests/docs/test_examples_run.py",
        "tests/robustness/hostile/test_store_misuse.py",
    ),
    "interop": ("tests/integration/interop/",),
    "docs": ("tests/docs/",),
    "wheel": ("tests/integration/test_wheel.py",),
    "servers": ("tests/integration/servers/", "tests/robustness/soak/"),
}

# Every behaviour once more, in another session of Spark: `make test` runs the first of each four.
SESSIONS = "tests/integration/spark/sessions/"

# A file of these takes seconds.
QUICK = ("tests/unit/", "tests/golden/")


def pytest_addoption(parser: pytest.Parser) -> None:
    """The short form of the suite, and the long one."""
    parser.addoption(
        "--exhaustive",
        action="store_true",
        help="also the tests and cases that only `make test-exhaustive` runs",
    )
    parser.addoption(
        "--thin",
        type=int,
        default=1,
        metavar="N",
        help="of the cases of a parametrised test run the first and every Nth after it",
    )
    parser.addoption(
        "--far",
        action="store_true",
        help="stores in memory say that they wait for a server, so that files are sent in threads and calls go at once",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Make the markers known that only fixtures of this file give, and say how thorough to be."""
    if config.getoption("--exhaustive"):
        os.environ[EXHAUSTIVE] = "1"
    if config.getoption("--far"):
        from kartothek_cube.core.stores.local import MemoryStore

        MemoryStore.is_remote = True
    config.addinivalue_line(
        "markers",
        "servers: talks to the server of an object store that runs as a process of its own (given by its fixture)",
    )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """How tests are handed to the processes of a parallel run: by groups, then by files of quick
    tests, in the end each when a process is free.
    """
    from xdist.scheduler import LoadScopeScheduling

    config.option.loadscopereorder = False

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _share_of(nodeid)[1]

    return Scheduling(config, log)


def _share_of(nodeid: str) -> tuple[int, str]:
    """Which tests run in the same process, and how early."""
    for place, (group, places) in enumerate(TOGETHER.items()):
        if nodeid.startswith(places):
            return place, group
    is_quick = nodeid.startswith(QUICK)
    return len(TOGETHER) + (not is_quick), nodeid.partition("::")[0] if is_quick else nodeid


@pytest.hookimpl(tryfirst=True, wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """Give every test the markers of the fixtures that it uses, so that `-m "not spark"` forgets
    none.
    """
    for item in items:
        for fixture in getattr(item, "fixturenames", ()):
            if fixture in MARKER_OF_FIXTURE:
                item.add_marker(MARKER_OF_FIXTURE[fixture])
        if item.get_closest_marker("interop"):
            # What these tests are about: both libraries write by turns.
            item.add_marker(pytest.mark.filterwarnings("ignore::kartothek_cube.errors.ForeignWriterWarning"))
    _thin(config, items)
    yield
    # A random order sets fixtures with parameters up again and again, those of whole modules too.
    items[:] = reorder_items(items)
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: _share_of(item.nodeid)[0])


def _thin(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is exhaustive, and cases of parametrised tests; of each at least one stays."""
    thin, is_exhaustive = config.getoption("--thin"), config.getoption("--exhaustive")
    seen: Counter[str] = Counter()
    kept, left_out = [], []
    for item in items:
        name, every = item.nodeid.partition("[")[0], item.get_closest_marker("every")
        step = thin if is_exhaustive or every is None else max(thin, every.args[0])
        if item.nodeid.startswith(SESSIONS) and not is_exhaustive:
            name, step = SESSIONS, 4
        is_left_out = seen[name] % step or (item.get_closest_marker("exhaustive") and not is_exhaustive)
        (left_out if is_left_out else kept).append(item)
        seen[name] += 1
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = kept


@pytest.fixture
def store_url(tmp_path: Path) -> str:
    """URL of an empty directory store."""
    return f"hfs://{tmp_path / 'store'}"


@pytest.fixture
def store(store_url: str) -> Any:
    """An empty directory store."""
    return kartothek_cube.open_store(store_url)


@pytest.fixture(scope="module", autouse=True)
def one_thread(request: pytest.FixtureRequest) -> Iterator[None]:
    """Unit tests are about one rule each: starting threads is a third of their time.

    All other tests, and those that say how many threads they want, have threads.
    """
    name = request.node.nodeid
    if is_exhaustive() or not name.startswith((*QUICK, "tests/property/")) or name.startswith("tests/unit/runtime/"):
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kartothek_cube.core.runtime.options._THREADS", 1)
        yield


@pytest.fixture(scope="module", params=["fast", "plain"] if uses_fast_paths() else ["plain"])
def fast_paths(request: pytest.FixtureRequest) -> Iterator[None]:
    """With the fast paths, then without: for the tests of modules that have both ways."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kartothek_cube.core.runtime.options._IS_ON", request.param == "fast")
        yield


@pytest.fixture
def only_fast() -> None:
    """Skip a test of how the fast paths read, not of what they return."""
    if not uses_fast_paths():
        pytest.skip("the fast paths are off")


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits for another writer looks again at once, and its time is over: for tests in
    which that writer has crashed.
    """
    from kartothek_cube.core.commit import cube_writes
    from kartothek_cube.core.runtime import executor

    hours = count(0, 3600)
    for module in (executor, cube_writes):
        monkeypatch.setattr(
            module, "time", SimpleNamespace(sleep=lambda seconds: None, monotonic=lambda: float(next(hours)))
        )


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
    prepare()
    from pyspark.sql import SparkSession

    session = started(SparkSession.builder.master("local[2,4]"), tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()

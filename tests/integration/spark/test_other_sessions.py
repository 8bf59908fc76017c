"""The sessions that need a process of their own: Spark Connect, and executors in processes of their
own.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kartothek_cube.testing.drivers import behaviours
from tests.support.failures import ExecutorFailureTests
from tests.support.thoroughness import is_exhaustive

SESSIONS = Path(__file__).parent / "sessions"
FAILURES = [name for name in dir(ExecutorFailureTests) if name.startswith("test_")]
JOBS = 7  # tests of JobBehaviour
NATIVE = 1  # of Spark's own reader
CONNECT = ["grpc", "grpc_status", "google.rpc", "zstandard"]

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def lacking(modules):
    """Those of these modules that are not installed."""
    try:
        return [name for name in modules if importlib.util.find_spec(name) is None]
    except ModuleNotFoundError as error:
        return [error.name]


def installed(package):
    """Names of all files of a package, without what Python itself leaves there."""
    folder = Path(importlib.util.find_spec(package).origin).parent
    return {path for path in folder.rglob("*") if "__pycache__" not in path.parts}


def run(name, tmp_path):
    """Run a file of tests in a process of its own and return how many passed; the report if it is
    not just that.
    """
    options = [
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "-o",
        "faulthandler_timeout=300",
        f"--basetemp={tmp_path / 'tests'}",
    ]
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "SPARK_", "PYSPARK_"))
    }
    command = [sys.executable, "-m", "pytest", *options, str(SESSIONS / name)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=SESSIONS.parents[3], env=environment, timeout=900
    )
    passed = re.fullmatch(r"(\d+) passed(?:, \d+ deselected)? in .*", done.stdout.rstrip().splitlines()[-1])
    return int(passed[1]) if passed and done.returncode == 0 else done.stdout[-20_000:] + done.stderr[-3_000:]


@pytest.mark.skipif(
    bool(lacking(CONNECT)),
    reason=f"Spark Connect needs {', '.join(lacking(CONNECT))}, which the extra pyspark[connect] brings",
)
def test_behaviours_on_spark_connect(tmp_path):
    expected = range(len(behaviours()) + JOBS + NATIVE)
    assert run("connect_driver.py", tmp_path) == len(expected if is_exhaustive() else expected[::4])


@pytest.mark.exhaustive
def test_every_behaviour_and_every_failure_with_executors_of_their_own(tmp_path):
    before = installed("pyspark")
    assert run("local_cluster_driver.py", tmp_path) == len(behaviours()) + len(FAILURES)
    assert installed("pyspark") == before

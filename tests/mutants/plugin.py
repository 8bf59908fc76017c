"""A plugin of pytest: which test ran how long, and with which result."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    folder = os.environ.get("KARTOTHEK_CUBE_TIMES")
    if folder and "PYTEST_XDIST_WORKER" not in os.environ:
        with (Path(folder) / "times.jsonl").open("a") as file:
            file.write(json.dumps([report.nodeid, report.when, report.duration, report.outcome]) + "\n")

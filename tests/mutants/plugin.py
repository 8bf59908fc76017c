"""A plugin of pytest: how long each test took, and that its mutants are its own."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    folder = os.environ.get("KARTOTHEK_CUBE_TIMES")
    if folder and "PYTEST_XDIST_WORKER" not in os.environ:
        with (Path(folder) / "times.jsonl").open("a") as file:
            file.write(json.dumps([report.nodeid, report.when, report.duration, report.outcome]) + "\n")


def _forget_mutants() -> None:
    switch = sys.modules.get("kartothek_cube._is_mutant")
    if switch:
        switch._seen.clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Iterator[None]:
    _forget_mutants()
    yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    _forget_mutants()
    yield

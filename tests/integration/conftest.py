"""Fixtures that run scripts with the real kartothek and plateau."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.interop.environments import KARTOTHEK, PLATEAU, Library, Runner, find_or_create

if TYPE_CHECKING:
    from pathlib import Path


def runner(library: Library, folder: Path) -> Runner:
    """A runner, or a skipped test."""
    program = find_or_create(library)
    if program is None:
        pytest.skip(f"{library.name} needs Python 3.11, which this machine does not have")
    return Runner(library, program, folder)


@pytest.fixture(scope="session")
def run_kartothek(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    """``run_kartothek(script, *args)``: what a script says that runs with kartothek 5.3."""
    return runner(KARTOTHEK, tmp_path_factory.mktemp("kartothek"))


@pytest.fixture(scope="session")
def run_plateau(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    """``run_plateau(script, *args)``: what a script says that runs with plateau 4.6."""
    return runner(PLATEAU, tmp_path_factory.mktemp("plateau"))

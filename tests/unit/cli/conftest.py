"""A directory with two stores, one of which has two cubes, and the command on them."""

from __future__ import annotations

import inspect
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("click")

from click.testing import CliRunner, Result

from kartothek_cube.cli import cli
from tests.support.cli_cubes import write_cubes

if TYPE_CHECKING:
    from collections.abc import Callable

YAML = """\
dataset:
  type: hfs
  path: {folder}/store
two:
  type: hfs
  path: {folder}/two
"""

# Before 8.2 the runner mixed what goes to stderr into stdout unless it was told not to.
RUNNER = CliRunner(mix_stderr=False) if "mix_stderr" in inspect.signature(CliRunner).parameters else CliRunner()


@dataclass(frozen=True)
class Ran:
    """What a run of the command came to."""

    result: Result

    @property
    def code(self) -> int:
        return self.result.exit_code

    @property
    def out(self) -> str:
        return self.result.stdout

    @property
    def err(self) -> str:
        return self.result.stderr

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store as it is copied for each test."""
    folder = tmp_path_factory.mktemp("cubes") / "store"
    write_cubes(str(folder))
    return folder


@pytest.fixture
def folder(tmp_path: Path, template: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory: `skv.yml`, the stores `dataset` (in `store`) and `two`, the latter
    empty.
    """
    shutil.copytree(template, tmp_path / "store")
    (tmp_path / "two").mkdir()
    (tmp_path / "skv.yml").write_text(YAML.format(folder=tmp_path), encoding="utf-8")
    for name in ("KARTOTHEK_CUBE_URL", "KARTOTHEK_CUBE_STORE", "KARTOTHEK_CUBE_SKV", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(folder: Path) -> Callable[..., Ran]:
    """The command with these arguments; text that is typed as `typed`."""

    def run(*arguments: str, typed: str | None = None) -> Ran:
        return Ran(RUNNER.invoke(cli, list(arguments), input=typed))

    return run


@pytest.fixture
def at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Questions are asked, and `typed` answers them."""
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda self: self.name == "<stdin>")

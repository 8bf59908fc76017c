"""The streaming demonstration in its small size: killed twice, every row is there once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kartothek_cube.api.dataset import history, read_table_arrow

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.exhaustive]

EXAMPLE = Path(__file__).parents[3] / "examples" / "streaming.py"


def test_a_killed_stream_has_every_row_once(tmp_path):
    store = f"hfs://{tmp_path}/store"
    done = subprocess.run(
        [sys.executable, EXAMPLE, "--size", "small", "--store", store], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Every row is there once." in done.stdout
    assert "it has to repeat week 6" in done.stdout
    cells = read_table_arrow("grocery++sales", store, columns=["PRODUCT_ID", "STORE_ID", "WEEK"])
    assert cells.group_by(cells.column_names).aggregate([]).num_rows == cells.num_rows
    assert set(cells["WEEK"].to_pylist()) == set(range(1, 8))
    # Of a build, three weeks, and a compaction.
    assert len(history("grocery++sales", store)) == 5
    assert "Spark has noted 1 of 2 batches" in done.stdout
    fed = read_table_arrow("sales-feed", store, columns=cells.column_names)
    assert fed.num_rows == cells.num_rows
    assert fed.group_by(cells.column_names).aggregate([]).num_rows == cells.num_rows

"""A process that streams from dataset to dataset is killed at any moment: the short form of
``python -m tests.robustness.soak.streams``.
"""

from __future__ import annotations

import os

import pytest

from tests.robustness.soak.streams import run_streams

KILLS = int(os.environ.get("KARTOTHEK_CUBE_STREAM_KILLS", "3"))
SHORT = 3


@pytest.mark.slow
@pytest.mark.spark
def test_every_row_comes_through_killed_streams_once(tmp_path):
    assert run_streams(tmp_path, KILLS, links=1 if KILLS <= SHORT else 2, seed=KILLS) >= KILLS

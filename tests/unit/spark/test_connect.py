"""Spark Connect: nothing that it lacks is used. Every behaviour is tested on it by `tests/integration/spark/test_other_sessions.py`."""

from __future__ import annotations

import re

import pytest

from tests.support.source import MODULES


@pytest.mark.parametrize("name", [name for name in MODULES if name.startswith("kartothek_cube.spark")])
def test_nothing_is_used_that_connect_lacks(name):
    lines = [line for line in MODULES[name].text.splitlines() if re.search(r"\.rdd\b|_jvm|_jdf|_jsc|\bsparkContext\b|\bbroadcast\b|parallelize", line)]
    # The one function that gives it to those that have asked what kind of session it is, the text that says so, and the tracker behind it.
    allowed = 3 if name == "kartothek_cube.spark.session" else 0
    assert len(lines) <= allowed, lines

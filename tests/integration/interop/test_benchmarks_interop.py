"""The benchmarks measure kartothek, too, where it is installed; nothing is timed here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.benchmarks import rows_of

if TYPE_CHECKING:
    from tests.integration.interop.environments import Runner

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]


def test_kartothek_takes_its_turns(run_kartothek: Runner, tmp_path):
    pytest.importorskip("polars")
    rows = [row for row in rows_of("writing", tmp_path, run_kartothek.program) if row["peer"] == "kartothek 5.3"]
    assert rows
    assert None not in {row["met"] for row in rows}

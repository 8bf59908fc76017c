"""The page and the demonstration of Sail, in the environment that has it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.doc_blocks import blocks_in, executed

REPOSITORY = Path(__file__).parents[3]
PAGE = REPOSITORY / "docs" / "spark-without-java.md"


def test_every_block_of_the_page_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "__main__"}
    text = PAGE.read_text(encoding="utf-8")
    assert executed(text, str(PAGE), namespace) == len(list(blocks_in(text))) > 1
    namespace["spark"].stop()
    namespace["server"].stop()


def test_the_demonstration_has_the_figures_that_it_has_on_spark(tmp_path):
    script = REPOSITORY / "examples" / "grocery.py"
    options = ["--size", "small", "--engine", "sail", "--chart", str(tmp_path / "chart.png")]
    done = subprocess.run([sys.executable, script, *options], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.rstrip().endswith("All 20 figures are as they should be.")
    assert done.stderr == ""

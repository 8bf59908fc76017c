"""The page and the demonstration of Sail, in the environment that has it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.doc_blocks import blocks_in

REPOSITORY = Path(__file__).parents[3]
PAGE = REPOSITORY / "docs" / "spark-without-java.md"


def run(*command, directory):
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False, cwd=directory)


def test_every_block_of_the_page_runs(tmp_path):
    # In a process of its own: `getOrCreate` of the page would return the session of the tests.
    blocks = list(blocks_in(PAGE.read_text(encoding="utf-8")))
    assert len(blocks) > 1
    script = tmp_path / "page.py"
    script.write_text("\n".join(block.code for block in blocks), encoding="utf-8")
    done = run(script, directory=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_demonstration_has_the_figures_that_it_has_on_spark(tmp_path):
    script = REPOSITORY / "examples" / "grocery.py"
    options = ["--size", "small", "--engine", "sail", "--chart", str(tmp_path / "chart.png")]
    done = run(script, *options, directory=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.rstrip().endswith("All 20 figures are as they should be.")
    assert done.stderr == ""

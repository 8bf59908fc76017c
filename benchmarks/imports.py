"""Starting: what importing costs, each time in a new interpreter."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from pairs import Row, Taken, beside, turns, within
from script import Bench, run

CLICK = "import click; click.command()(lambda: None)(['--help'])"


def interpreter(*arguments: str) -> Callable[[], object]:
    return partial(subprocess.run, [sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)


def results(bench: Bench) -> Iterator[Row]:
    works = {
        "nothing imported": interpreter("-c", ""),
        "import pyarrow": interpreter("-c", "import pyarrow"),
        "package": interpreter("-c", "import kartothek_cube"),
        "verb": interpreter("-c", "from kartothek_cube import query_cube_arrow"),
        "a bare command of click": interpreter("-c", CLICK),
        "command": interpreter("-m", "kartothek_cube.cli", "--help"),
    }
    for row in _rows(turns(works, bench.size(5 * bench.rounds, 1))):
        yield replace(row, cpu=math.nan)  # of processes that have ended, nobody knows


def _rows(taken: Taken) -> Iterator[Row]:
    yield within("import kartothek_cube", taken, "import pyarrow", "package", 1.05)
    yield beside("import kartothek_cube", taken, "nothing imported", "package")
    yield beside("from kartothek_cube import query_cube_arrow", taken, "import pyarrow", "verb")
    yield within("kartothek_cube --help", taken, "a bare command of click", "command", 2)


if __name__ == "__main__":
    run(__doc__, results)

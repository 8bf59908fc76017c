"""Starting: what importing and a first read cost, each time in a new interpreter."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
from formats import SEED, Delta, Ours, is_installed
from pairs import Row, Taken, absent, beside, turns, within
from script import Bench, run

CLICK = "import click; click.command()(lambda: None)(['--help'])"
ARROW = "import numpy, pyarrow, pyarrow.compute, pyarrow.parquet"
READ_OURS = """
from kartothek_cube.api.dataset import read_table_arrow
print(read_table_arrow({dataset!r}, {root!r}, predicates=[[("DAY", "==", {day})]]).num_rows)
"""
READ_DELTA = """
from deltalake import DeltaTable
print(DeltaTable({root!r}).to_pyarrow_table(filters=[("DAY", "=", {day})]).num_rows)
"""
# What pip installs is compiled, and so is what an interpreter has once imported: both sides are.
COMPILED = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def interpreter(*arguments: str, prints: str = "") -> Callable[[], object]:
    """A new interpreter. It has to end well; if it ``prints`` a text, that is enough."""

    def work() -> None:
        # Processes of deltalake sometimes abort at their end, when their work is done.
        done = subprocess.run(
            [sys.executable, *arguments], check=not prints, env=COMPILED, stdout=subprocess.PIPE, text=True
        )
        assert done.stdout.strip() == prints or not prints, (arguments, done.stdout)

    return work


def results(bench: Bench) -> Iterator[Row]:
    for row in (*imports(bench), *first_read(bench)):
        yield replace(row, cpu=math.nan)  # of processes that have ended, nobody knows


def imports(bench: Bench) -> Iterator[Row]:
    yield from _rows(
        turns(
            {
                "nothing imported": interpreter("-c", ""),
                "import pyarrow": interpreter("-c", "import pyarrow"),
                "pyarrow, its compute and parquet": interpreter("-c", ARROW),
                "package": interpreter("-c", "import kartothek_cube"),
                "verb": interpreter("-c", "from kartothek_cube import query_cube_arrow"),
                "dataset": interpreter("-c", "from kartothek_cube.api.dataset import read_table_arrow"),
                "a bare command of click": interpreter("-c", CLICK),
                "command": interpreter("-m", "kartothek_cube.cli", "--help"),
            },
            bench.size(5 * bench.rounds, 1),
        )
    )


def _rows(taken: Taken) -> Iterator[Row]:
    yield within("import kartothek_cube", taken, "import pyarrow", "package", 1.05)
    yield beside("import kartothek_cube", taken, "nothing imported", "package")
    yield beside("from kartothek_cube import query_cube_arrow", taken, "import pyarrow", "verb")
    read = "from kartothek_cube.api.dataset import read_table_arrow"
    yield within(read, taken, "pyarrow, its compute and parquet", "dataset", 1.2)
    yield within("kartothek_cube --help", taken, "a bare command of click", "command", 2)


def first_read(bench: Bench) -> Iterator[Row]:
    """One partition of many, of which the interpreter has seen nothing."""
    days = bench.size(2000, 20)
    work, day = f"{days:,} partitions: import and read one", days // 3
    rows = pa.table({"DAY": np.repeat(np.arange(days), 100), "CELL": np.tile(np.arange(100), days)})
    ours, delta = Ours(bench.folder / "ours"), Delta(bench.folder / "deltalake")
    ours.build(rows)
    if not is_installed(Delta):
        yield absent(work, "deltalake", "<= 0.9x")
        return
    delta.build(rows)
    read = partial(interpreter, prints="100")
    works = {
        "deltalake": read("-c", READ_DELTA.format(root=str(delta.root), day=day)),
        "ours": read("-c", READ_OURS.format(dataset=SEED, root=str(ours.root), day=day)),
    }
    yield within(work, turns(works, bench.size(5 * bench.rounds, 1)), "deltalake", "ours", 0.9)


if __name__ == "__main__":
    run(__doc__, results)

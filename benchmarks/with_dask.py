"""Reading and writing in dask, beside plateau."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

from pairs import Row, absent, faster, turns
from pipe import Kartothek
from script import Bench, run

HERE = Path(__file__).parent
PLATEAU = "plateau 4.6"
WORKS = {
    "dask: the sum of two columns": ("read", {"columns": ["V1", "V2"]}),
    "dask: all rows": ("read", {"columns": None}),
    "dask: an update with a shuffle": ("update", {"shuffle": True}),
    "dask: a cube query, to plateau a merge of two datasets": ("query", {}),
}


def results(bench: Bench) -> Iterator[Row]:
    """Each work in turns, on the same rows, in threads."""
    python = os.environ.get("PLATEAU_PYTHON") or str(HERE.parent / ".venv-plateau" / "bin" / "python")
    if not Path(python).exists():
        yield from (absent(work, PLATEAU, ">= 1x") for work in WORKS)
        return
    rows, partitions = bench.size(2_000_000, 20_000), bench.size(40, 4)
    with (
        closing(Kartothek(sys.executable, "dask_side.py", "ours")) as ours,
        closing(Kartothek(python, "dask_side.py", "plateau")) as theirs,
    ):
        for side, name in ((ours, "ours"), (theirs, "plateau")):
            side("prepare", root=str(bench.folder / name), rows=rows, partitions=partitions)
        theirs("join")
        for work, (verb, arguments) in WORKS.items():
            if verb != "update":
                assert abs(ours(verb, **arguments) / theirs(verb, **arguments) - 1) < 1e-9
            sides = {PLATEAU: partial(theirs, verb, **arguments), "ours": partial(ours, verb, **arguments)}
            yield faster(work, turns(sides, bench.rounds), PLATEAU, "ours", 1)


if __name__ == "__main__":
    run(__doc__, results)

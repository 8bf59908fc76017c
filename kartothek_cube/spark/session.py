"""The Spark session: finding it, and what differs between a classic and a Connect session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kartothek_cube.errors import InvalidInput

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["cores", "find_session", "is_connect", "session_of"]


def find_session(given: SparkSession | None) -> SparkSession:
    """The given session, else the active one.

    Raises
    ------
    InvalidInput
        If there is none.
    """
    from pyspark.sql import SparkSession

    session = given or SparkSession.getActiveSession()
    if session is None:
        raise InvalidInput("There is no active Spark session in this thread; make one with SparkSession.builder.getOrCreate(), or give it as spark=.")
    return session


def session_of(frame: DataFrame) -> SparkSession:
    """The session to which a data frame belongs."""
    return frame.sparkSession


def is_connect(session: Any) -> bool:
    """Whether this is a Spark Connect session, which has no ``sparkContext``."""
    return type(session).__module__.startswith("pyspark.sql.connect")


def cores(session: SparkSession, given: int | None) -> int:
    """How many tasks run at once: as given, else what the cluster says; Connect does not show it, so there it is the number of shuffle partitions."""
    if given is not None:
        if given < 1:
            raise InvalidInput(f"parallelism={given!r} is no positive number of tasks.")
        return given
    if is_connect(session):
        return int(str(session.conf.get("spark.sql.shuffle.partitions")))
    return int(session.sparkContext.defaultParallelism)

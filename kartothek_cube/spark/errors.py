"""Errors on their way out of a task: our types do not cross from an executor to the driver, a line of text does."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager

from kartothek_cube.errors import KartothekCubeError

__all__ = ["decode_error", "driver_errors", "encode_error", "error_in", "task_errors"]

_MARK = "kartothek_cube error: "
_LONGEST = 4_000
_LINE = re.compile(re.escape(_MARK) + r"(\{.*\})")


class TaskFailed(RuntimeError):
    """An error of this library in a task; its text carries kind and message."""


def encode_error(error: KartothekCubeError, longest: int | None = None) -> str:
    """Kind and message in one line; of a message that takes more than about ``longest`` characters the middle is left out."""
    text, line = str(error), json.dumps({"kind": error.kind, "message": str(error)})
    if longest is None or len(line) <= longest:
        return line
    kept = longest * len(text) // len(line) // 2
    return json.dumps({"kind": error.kind, "message": f"{text[:kept]} … ({len(text) - 2 * kept:,} characters) … {text[-kept:]}"})


def decode_error(text: str) -> KartothekCubeError:
    """The error that `encode_error` made a line of."""
    values = json.loads(text)
    return _kinds(KartothekCubeError).get(values["kind"], KartothekCubeError)(values["message"])


def _kinds(base: type[KartothekCubeError]) -> dict[str, type[KartothekCubeError]]:
    """The class that stands for each kind; one that inherits its kind comes back as the class it has it from."""
    kinds = {base.kind: base} if "kind" in vars(base) else {}
    for child in base.__subclasses__():
        kinds |= _kinds(child)
    return kinds


def error_in(text: str) -> KartothekCubeError | None:
    """The error of this library that a message of Spark quotes, unless it has cut it off."""
    found = _LINE.search(text)
    try:
        return decode_error(found[1]) if found else None
    except ValueError:
        return None


@contextmanager
def task_errors() -> Iterator[None]:
    """In a task: errors of this library leave as text that the driver understands."""
    try:
        yield
    except KartothekCubeError as error:
        # The message once, the frames of where it came from: what is much longer than this does not arrive through Spark Connect.
        raise TaskFailed(_MARK + encode_error(error, _LONGEST)).with_traceback(error.__traceback__) from None


@contextmanager
def driver_errors() -> Iterator[None]:
    """Around an action on the driver: errors of this library that happened in a task are raised as their own type.

    The verbs that act when they are called do so themselves. Around your own action on a data frame of `query_cube_spark` or `map_cube_groups` it is your
    choice. What Spark said is not printed, since it would bury the message; it is the ``__context__`` of the error.

    Examples
    --------
    >>> from kartothek_cube.spark import driver_errors
    >>> with driver_errors():
    ...     spark.range(3).count()
    3
    """
    try:
        yield
    except KartothekCubeError:
        raise
    except Exception as error:
        own = error_in(str(error))
        if own is None:
            raise
        raise own from None

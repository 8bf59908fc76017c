"""Checks in a forked child."""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Callable

__all__ = ["exit_code_in_fork"]


def exit_code_in_fork(check: Callable[[], bool]) -> int:
    """The exit code of a forked child: 0 if the check holds there; one that hangs is killed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads are the point here
        child = os.fork()
    if child == 0:
        signal.alarm(5)
        # Without this, an exception would let the child go on with the tests of its parent.
        try:
            code = 0 if check() else 1
        except BaseException:
            code = 2
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

"""The switch for the code in the ``_fast`` folders, which relies on internals of Arrow."""

from __future__ import annotations

import os

__all__ = ["uses_fast_paths"]

# Read once, at import: a call must not read one file the fast way and the next one the plain way.
_IS_ON = os.environ.get("KARTOTHEK_CUBE_FAST") != "0"


def uses_fast_paths() -> bool:
    """Whether this process takes the fast paths.

    ``KARTOTHEK_CUBE_FAST=0`` in its environment turns all of them off. Results are the same.
    """
    return _IS_ON

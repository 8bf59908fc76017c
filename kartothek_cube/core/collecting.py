"""Whether the garbage collector is at work in this thread: what it ends must not wait, as the code that it interrupts may hold any lock."""

from __future__ import annotations

import gc
from threading import get_ident

__all__ = ["is_collecting", "notice_collections"]

_THREADS: set[int] = set()


def notice_collections() -> None:
    """Let `is_collecting` know of all collections from here on."""
    if _note not in gc.callbacks:
        gc.callbacks.append(_note)


def is_collecting() -> bool:
    """Whether what runs here was begun by the garbage collector."""
    return get_ident() in _THREADS


def _note(phase: str, _info: dict[str, int]) -> None:
    """What `gc` calls before and after each collection."""
    (_THREADS.add if phase == "start" else _THREADS.discard)(get_ident())

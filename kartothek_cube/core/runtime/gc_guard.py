"""Detects that we run inside a garbage collection, where blocking could deadlock."""

from __future__ import annotations

import gc
from threading import get_ident

__all__ = ["is_collecting", "watch_collections"]

_THREADS: set[int] = set()


def watch_collections() -> None:
    """Let `is_collecting` see all collections from here on."""
    if _on_collection not in gc.callbacks:
        gc.callbacks.append(_on_collection)


def is_collecting() -> bool:
    """Whether the code here runs inside a collection; the interrupted code may hold any lock."""
    return get_ident() in _THREADS


def _on_collection(phase: str, _info: dict[str, int]) -> None:
    (_THREADS.add if phase == "start" else _THREADS.discard)(get_ident())

"""Does a server respect the condition of a put? Some look-alikes of S3 ignore the condition and overwrite."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Any

__all__ = ["ConditionFailed", "is_known_to_ignore_conditions", "supports_conditional_put"]

_FOUND: dict[Hashable, bool] = {}
_LOCKS: dict[Hashable, threading.Lock] = {}
_ROUNDS = 3


class ConditionFailed(Exception):
    """The server refused a conditional put."""


def is_known_to_ignore_conditions(place: Hashable) -> bool:
    """Whether the server of a place was found to ignore conditions."""
    return _FOUND.get(place) is False


def supports_conditional_put(place: Hashable, put_if: Callable[[str, bytes, Any], Any], delete: Callable[[str], object]) -> bool:
    """Find out with an object of our own, once per process and place, whether a server refuses outdated puts.

    Parameters
    ----------
    place : Hashable
        The bucket or container.
    put_if : Callable
        Puts an object (key, data) on the condition that it has a version, or with None that it does not exist. Returns the
        new version, empty if the server has none; raises `ConditionFailed` if the server refuses.
    delete : Callable
        Deletes the object of a key.
    """
    # One lock per place, so that a server that does not answer blocks no other. `setdefault` is atomic.
    with _LOCKS.setdefault(place, threading.Lock()):
        if place not in _FOUND:
            # If the answer to a put gets lost, its repetition is refused. This says nothing, so the round is repeated.
            rounds = (_try_round(put_if, delete) for _ in range(_ROUNDS))
            _FOUND[place] = next((verdict for verdict in rounds if verdict is not None), False)
        return _FOUND[place]


def _try_round(put_if: Callable[[str, bytes, Any], Any], delete: Callable[[str], object]) -> bool | None:
    """Create, create again, update, and update the outdated version; None if a valid put was refused."""
    key = f"kartothek_cube-conditions-{secrets.token_hex(8)}"

    def put(data: bytes, version: Any) -> Any:
        try:
            return put_if(key, data, version)
        except ConditionFailed:
            return None

    try:
        # Contents differ, since an ETag of S3 is a hash of the content.
        created = put(b"1", None)
        if created is None:
            return None
        if not created or put(b"2", None) is not None:
            return False
        updated = put(b"3", created)
        return None if updated is None else put(b"4", created) is None
    finally:
        with suppress(Exception):
            delete(key)

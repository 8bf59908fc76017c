"""Probe whether a server respects conditional puts: some look-alikes of S3 ignore the condition."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Any

__all__ = ["ConditionFailed", "is_known_to_ignore_conditions", "supports_conditional_put"]

_SUPPORTED: dict[Hashable, bool] = {}
_LOCKS: dict[Hashable, threading.Lock] = {}
_ROUNDS = 3


class ConditionFailed(Exception):
    """The server refused a conditional put."""


def is_known_to_ignore_conditions(place: Hashable) -> bool:
    """Whether a probe of this place has shown that its server ignores conditions."""
    return _SUPPORTED.get(place) is False


def supports_conditional_put(
    place: Hashable, put_if: Callable[[str, bytes, Any], Any], delete: Callable[[str], object]
) -> bool:
    """Probe with a temporary object, once per process and place, whether outdated puts are refused.

    Parameters
    ----------
    place : Hashable
        The bucket or container.
    put_if : Callable
        Called with key, data and a version that the object must have, or None if it must not exist.
        Returns the new version, empty if the server has none; raises `ConditionFailed` if refused.
    delete : Callable
        Deletes the object of a key.
    """
    # One lock per place: a server that does not answer blocks no other. `setdefault` is atomic.
    with _LOCKS.setdefault(place, threading.Lock()):
        if place not in _SUPPORTED:
            # A client repeats a put whose answer was lost, and the repetition is refused although
            # the put was valid. Such a round proves nothing, so there are three.
            rounds = (_try_round(put_if, delete) for _ in range(_ROUNDS))
            _SUPPORTED[place] = next((verdict for verdict in rounds if verdict is not None), False)
        return _SUPPORTED[place]


def _try_round(put_if: Callable[[str, bytes, Any], Any], delete: Callable[[str], object]) -> bool | None:
    """Create twice, update, update the outdated version; None if a valid put was refused."""
    key = f"kartothek_cube-conditions-{secrets.token_hex(8)}"

    def put(data: bytes, version: Any) -> Any:
        try:
            return put_if(key, data, version)
        except ConditionFailed:
            return None

    try:
        # Contents differ, because an ETag of S3 is a hash of the content.
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

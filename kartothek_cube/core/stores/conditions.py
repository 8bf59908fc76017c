"""Does a server heed the conditions of a put? Some S3 look-alikes ignore them and overwrite."""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections.abc import Hashable, Mapping
from typing import Any

from kartothek_cube.core.stores.failures import has_status

__all__ = ["heeds_conditions", "is_known_to_ignore", "token_of"]

_FOUND: dict[Hashable, bool] = {}
_LOCKS: dict[Hashable, threading.Lock] = {}
_ROUNDS = 3


def token_of(meta: Mapping[str, Any]) -> dict[str, str]:
    """Return what obstore takes as the expected version, from what it says of an object."""
    return {name: meta[name] for name in ("e_tag", "version") if meta.get(name)}


def is_known_to_ignore(place: Hashable) -> bool:
    """Whether a bucket was found to ignore conditions."""
    return _FOUND.get(place) is False


def heeds_conditions(place: Hashable, client: object) -> bool:
    """Try, once per process and bucket, with an object of our own: create, create again, update, update what is outdated."""
    # One lock per place: a server that does not answer holds up nobody else. `setdefault` is one step.
    with _LOCKS.setdefault(place, threading.Lock()):
        if place not in _FOUND:
            _FOUND[place] = _try(client)
        return _FOUND[place]


def _try(client: object) -> bool:
    # A first answer that was lost comes back as a refusal, which says nothing about the server: that round is repeated.
    return next((verdict for verdict in (_round(client) for _ in range(_ROUNDS)) if verdict is not None), False)


def _round(client: Any) -> bool | None:
    key = f"kartothek_cube-conditions-{secrets.token_hex(8)}"
    try:
        return _verdict(client, key)
    finally:
        with contextlib.suppress(Exception):
            client.delete(key)


def _verdict(client: object, key: str) -> bool | None:
    """Whether outdated puts are refused; None if a valid one was."""
    # Contents differ, since an S3 version is a hash of the content.
    created = _put(client, key, b"1", "create")
    if created is None:
        return None
    if not created or _put(client, key, b"2", "create") is not None:
        return False
    updated = _put(client, key, b"3", created)
    return None if updated is None else _put(client, key, b"4", created) is None


def _put(client: Any, key: str, data: bytes, mode: str | dict[str, str]) -> dict[str, str] | None:
    """The version after a put on condition, empty if the server gives none; None if it was refused."""
    from obstore import exceptions

    try:
        return token_of(client.put(key, data, mode=mode, use_multipart=False))
    except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
        return None
    except exceptions.BaseError as error:
        if has_status(error, 501):  # the server says that it does not know conditions
            return {} if mode == "create" else None
        raise

"""A cache of what was used last, within a bound: for what this process keeps of stores."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock
from typing import Any, Generic, TypeVar
from weakref import WeakSet

__all__ = ["LruCache"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class LruCache(Generic[K, V]):
    """The values that were put or asked for last. Safe for threads, and in a forked process.

    Parameters
    ----------
    bound : int
        The largest sum of the sizes of all values, e.g. in bytes. Without sizes, their number.

    Examples
    --------
    >>> cache = LruCache[str, str](bound=2)
    >>> for name in ("DE", "FR", "IT"):
    ...     cache.put(name, name.lower())
    >>> cache.get("DE"), cache.get("IT")
    (None, 'it')
    """

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._size = 0
        self._lock = Lock()
        _CACHES.add(self)

    def get(self, key: K) -> V | None:
        """The value of a key, if it is still there."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return entry[0]

    def put(self, key: K, value: V, size: int = 1) -> None:
        """Keep a value in the place of the former one, unless it alone exceeds the bound."""
        with self._lock:
            self._remove(key)
            if size > self._bound:
                return
            self._entries[key] = value, size
            self._size += size
            while self._size > self._bound:
                self._remove(next(iter(self._entries)))

    def _remove(self, key: K) -> None:
        _, size = self._entries.pop(key, (None, 0))
        self._size -= size

    def clear(self) -> None:
        """Drop all values."""
        with self._lock:
            self._entries.clear()
            self._size = 0

    def renew_lock(self) -> None:
        """Make the cache usable in a forked child, which lacks the thread that held the lock."""
        was_held, self._lock = self._lock.locked(), Lock()
        # That thread may have made one half of a change.
        if was_held:
            self.clear()


_CACHES: WeakSet[LruCache[Any, Any]] = WeakSet()


def _renew_locks() -> None:
    for cache in _CACHES:
        cache.renew_lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_locks)

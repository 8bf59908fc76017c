"""What this process remembers of stores, for tests that want it read anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kartothek_cube.core.delta import publication
from kartothek_cube.core.snapshots import statistics
from kartothek_cube.core.snapshots.loader import _cache

if TYPE_CHECKING:
    from kartothek_cube.core.stores.contract import Store


def forget(store: Store) -> None:
    """Drop the snapshots of a store from the cache, all statistics, all logs of Delta tables."""
    publication._cache.clear()
    statistics._cache.clear()
    statistics._lost.clear()
    with _cache._lock:
        for key in [key for key in _cache._entries if key[0] == store.identity]:
            _cache._remove(key)

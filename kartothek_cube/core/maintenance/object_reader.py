"""An object of a store as a binary file."""

from __future__ import annotations

import io
from typing import Any

from kartothek_cube.core.stores.contract import Store

__all__ = ["ObjectReader"]


class ObjectReader(io.RawIOBase):
    """An object of a store as a binary file that is read block by block."""

    def __init__(self, store: Store, key: str) -> None:
        super().__init__()
        self._store, self._key, self._position = store, key, 0
        self.size = store.tail(key, 0)[1]

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        stop = min(self._position + len(buffer), self.size)
        if stop == self._position:
            return 0
        (data,) = self._store.ranges(self._key, [(self._position, stop)])
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)

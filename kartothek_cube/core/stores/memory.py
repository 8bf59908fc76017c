"""A store in memory, for tests and trials; stores of one name share their objects."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Hashable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NoReturn
from urllib.parse import quote

from kartothek_cube.core.stores.contract import (
    Capabilities,
    Data,
    Entry,
    Listing,
    Store,
    Version,
    check_key,
    check_prefix,
    select,
)
from kartothek_cube.errors import InvalidType

__all__ = ["MemoryStore"]


@dataclass(frozen=True, slots=True)
class _Object:
    data: bytes
    version: int
    modified: datetime


@dataclass(frozen=True, slots=True)
class _Space:
    objects: dict[str, _Object] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    versions: itertools.count[int] = field(default_factory=lambda: itertools.count(1))


_SPACES: dict[str, _Space] = {}
_UNNAMED = itertools.count(1)


class MemoryStore(Store):
    """Objects in this process's memory.

    Parameters
    ----------
    name : str | None
        Stores of the same name show the same objects, as ``hmemory://name`` does. Without a name,
        the store is new and empty.

    Examples
    --------
    >>> MemoryStore("sales").put("uuid/table/COUNTRY_CODE=DE/1.parquet", b"PAR1")
    >>> MemoryStore("sales").contains("uuid/table/COUNTRY_CODE=DE/1.parquet")
    True
    """

    def __init__(self, name: str | None = None) -> None:
        self._name = name
        self._identity = ("memory", name if name is not None else next(_UNNAMED))
        # `setdefault` is atomic: two threads that open the same name get the same space.
        self._space = _Space() if name is None else _SPACES.setdefault(name, _Space())

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(atomic_put=True, conditional_put=True, modification_times=True, shared=False)

    @property
    def name(self) -> str:
        return "hmemory://" + quote(self._name or "")

    @property
    def identity(self) -> Hashable:
        return self._identity

    def __reduce__(self) -> NoReturn:
        raise InvalidType(
            f"The memory store {self.name} cannot be pickled: another process has another memory. "
            "Use a directory or another shared store; "
            "a URL like hmemory://name finds the same objects only inside one process."
        )

    def get_versioned(self, key: str) -> tuple[bytes, Version]:
        try:
            stored = self._space.objects[check_key(key)]
        except KeyError:
            raise self.missing(key) from None
        return stored.data, stored.version

    def put(self, key: str, data: Data) -> None:
        check_key(key)
        with self._space.lock:
            self._set(key, data)

    def put_if(self, key: str, data: Data, version: Version | None) -> Version:
        check_key(key)
        with self._space.lock:
            current = self._space.objects.get(key)
            if (current.version if current else None) != version:
                raise self.mismatch(key, version)
            return self._set(key, data)

    def _set(self, key: str, data: Data) -> Version:
        version = next(self._space.versions)
        self._space.objects[key] = _Object(bytes(data), version, datetime.now(UTC))
        return version

    def delete(self, key: str) -> None:
        check_key(key)
        with self._space.lock:
            self._space.objects.pop(key, None)

    def list(self, prefix: str = "", recursive: bool = False) -> Listing:
        check_prefix(prefix)
        with self._space.lock:
            objects = dict(self._space.objects)
        entries = (Entry(key, len(stored.data), stored.modified) for key, stored in objects.items())
        return select(entries, prefix, recursive)

"""Wrappers of another store: delegation, a read-only view, and counted calls."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

from kartothek_cube.core.runtime.telemetry import current_operation
from kartothek_cube.core.stores.contract import (
    Buffer,
    Buffers,
    Capabilities,
    Data,
    Entries,
    Listing,
    Objects,
    Source,
    Span,
    Store,
    Version,
    check_key,
)
from kartothek_cube.errors import ReadOnlyStore

__all__ = ["WRITES", "InstrumentedStore", "ReadOnlyView", "StoreView"]

R = TypeVar("R")

WRITES = frozenset({"put", "put_file", "put_if", "copy", "delete"})


class StoreView(Store):
    """Delegates to another store. Every operation calls `around`, which a subclass may override."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner

    def around(self, operation: str, key: str, action: Callable[[], R]) -> R:
        """Run one operation, named as its method, on a key or prefix."""
        return action()

    @property
    def capabilities(self) -> Capabilities:
        return self.inner.capabilities

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def identity(self) -> Hashable:
        return self.inner.identity

    @property
    def is_remote(self) -> bool:
        return self.inner.is_remote

    @property
    def way_to_commit(self) -> str:
        return self.inner.way_to_commit

    def get(self, key: str) -> bytes:
        return self.around("get", key, lambda: self.inner.get(key))

    def get_versioned(self, key: str) -> tuple[bytes, Version]:
        return self.around("get_versioned", key, lambda: self.inner.get_versioned(key))

    def changed(self, key: str, version: Version) -> bool:
        return self.around("changed", key, lambda: self.inner.changed(key, version))

    def tail(self, key: str, n: int) -> tuple[Buffer, int]:
        return self.around("tail", key, lambda: self.inner.tail(key, n))

    def ranges(self, key: str, spans: Sequence[Span]) -> Buffers:
        return self.around("ranges", key, lambda: self.inner.ranges(key, spans))

    def contains(self, key: str) -> bool:
        return self.around("contains", key, lambda: self.inner.contains(key))

    def local_path(self, key: str) -> str | None:
        return self.around("local_path", key, lambda: self.inner.local_path(key))

    def put(self, key: str, data: Data) -> None:
        self.around("put", key, lambda: self.inner.put(key, data))

    def put_file(self, key: str, source: Source) -> None:
        self.around("put_file", key, lambda: self.inner.put_file(key, source))

    def put_if(self, key: str, data: Data, version: Version | None) -> Version:
        return self.around("put_if", key, lambda: self.inner.put_if(key, data, version))

    def copy(self, source: str, target: str) -> None:
        self.around("copy", target, lambda: self.inner.copy(source, target))

    def delete(self, key: str) -> None:
        self.around("delete", key, lambda: self.inner.delete(key))

    def list(self, prefix: str = "", recursive: bool = False) -> Listing:
        return self.around("list", prefix, lambda: self.inner.list(prefix, recursive=recursive))

    def leftovers(self, prefix: str, before: datetime, *, remove: bool = False) -> Entries:
        operation = "delete" if remove else "leftovers"
        return self.around(operation, prefix, lambda: self.inner.leftovers(prefix, before, remove=remove))


class ReadOnlyView(StoreView):
    """A read-only view of another store.

    Examples
    --------
    >>> from kartothek_cube.core.stores.memory import MemoryStore
    >>> ReadOnlyView(MemoryStore("sales")).capabilities.writable
    False
    """

    @property
    def capabilities(self) -> Capabilities:
        return replace(self.inner.capabilities, writable=False)

    def around(self, operation: str, key: str, action: Callable[[], R]) -> R:
        if operation in WRITES:
            check_key(key)
            raise ReadOnlyStore(f"Store {self.name} was opened for reading only; {operation} of {key!r} is refused.")
        return super().around(operation, key, action)


class InstrumentedStore(StoreView):
    """Counts the calls of another store for the current operation.

    Verbs wrap the store that they open, so that store classes know nothing of operations and logs.
    A call counts once, whatever other methods of the store it uses.
    """

    def around(self, operation: str, key: str, action: Callable[[], R]) -> R:
        current = current_operation()
        return action() if current is None else current.store_call(operation, key, action)

    def put_many(self, objects: Objects) -> None:
        # Each object is a call, and the last one has the time of all.
        for key, _ in objects[:-1]:
            self.around("put", key, lambda: None)
        for key, _ in objects[-1:]:
            self.around("put", key, lambda: self.inner.put_many(objects))

    def copy(self, source: str, target: str) -> None:
        self.around("copy", source, lambda: self.inner.copy(source, target))

    def leftovers(self, prefix: str, before: datetime, *, remove: bool = False) -> Entries:
        # The default has nothing to list, so it is not a call.
        if type(self.inner).leftovers is Store.leftovers:
            return self.inner.leftovers(prefix, before, remove=remove)
        return self.around("leftovers", prefix, lambda: self.inner.leftovers(prefix, before, remove=remove))

    def __repr__(self) -> str:
        return repr(self.inner)

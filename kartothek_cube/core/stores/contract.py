"""The store contract: a flat space of keys and bytes, with one conditional write.

In order:

- the contract
- wrappers: delegation, a read-only view, counted calls
- a probe for conditional puts, which some look-alikes of S3 ignore
"""

from __future__ import annotations

import os
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, replace
from datetime import datetime
from io import BytesIO
from pathlib import Path
from typing import IO, Any, BinaryIO, NoReturn, TypeAlias, TypeVar

from msgspec import Struct

from kartothek_cube.core.runtime.executor import map_in_threads
from kartothek_cube.core.runtime.options import current_options
from kartothek_cube.core.runtime.telemetry import current_operation
from kartothek_cube.errors import (
    AtomicityRequired,
    InvalidInput,
    InvalidType,
    KartothekCubeError,
    KeyNotFound,
    ReadOnlyStore,
)

Version: TypeAlias = Hashable
"""The version of the content of one key: opaque, picklable, equal for equal content."""

Buffer: TypeAlias = bytes | memoryview
Data: TypeAlias = bytes | bytearray | memoryview
Source: TypeAlias = str | os.PathLike[str] | BinaryIO
Span: TypeAlias = tuple[int, int]
Objects: TypeAlias = Sequence[tuple[str, Data]]

# The extended key space of simplekv, without the backslash, which Azure stores under another name.
_CHARACTERS = re.compile(r"""[`!"#$%&'()+,\-./<=>?@\[\]^_{}~0-9a-zA-Z ]+""")
_LONGEST_SEGMENT = 255


class VersionMismatch(KartothekCubeError):
    """A conditional put was refused: the key has another version, exists already, or is gone."""

    kind = "version_mismatch"


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The guarantees of a store.

    Attributes
    ----------
    atomic_put : bool
        A reader sees the old object or the new one, never a part.
    conditional_put : bool
        ``put_if`` is atomic among all writers that use it.
    modification_times : bool
        A listing has the time of writing of each object.
    shared : bool
        Another process that opens the same store sees the same objects.
    writable : bool
        Writing is allowed.
    """

    atomic_put: bool
    conditional_put: bool
    modification_times: bool
    shared: bool
    writable: bool = True


class Entry(Struct, frozen=True):
    """One listed object; size in bytes and time of writing (UTC), if the store knows them."""

    key: str
    size: int | None = None
    modified: datetime | None = None


class Listing(Struct, frozen=True):
    """Objects below a prefix and, unless recursive, prefixes up to the next ``/``; both sorted."""

    entries: list[Entry]
    prefixes: list[str]

    @property
    def keys(self) -> list[str]:
        """The keys of the entries."""
        return [entry.key for entry in self.entries]


# `Store.list` hides the builtin inside the class body.
Buffers: TypeAlias = list[Buffer]
Entries: TypeAlias = list[Entry]
Keys: TypeAlias = list[str]


def check_key(key: str) -> str:
    """Raise for a key that some store cannot hold, or holds under another name.

    Raises
    ------
    InvalidInput
        If the key is empty; has a leading, trailing or double slash, a segment ``.`` or ``..``, a
        segment of more than 255 bytes or a character outside the key space of simplekv; or ends in
        ``~``, which marks temporary files.

    Examples
    --------
    >>> check_key("sales++seed/table/COUNTRY_CODE=DE/1.parquet")
    'sales++seed/table/COUNTRY_CODE=DE/1.parquet'
    """
    if not isinstance(key, str):
        raise InvalidType(f"A key is a str, not {type(key).__name__}: {key!r}")
    if not _CHARACTERS.fullmatch(key):
        _refuse(key, "letters, digits, space and `!\"#$%&'()+,-./<=>?@[]^_{}~ are allowed, and at least one of them")
    for segment in key.split("/"):
        if segment in ("", ".", ".."):
            _refuse(key, "it must not start or end with '/', nor have an empty, '.' or '..' segment")
        if len(segment) > _LONGEST_SEGMENT:
            _refuse(key, f"a segment has at most {_LONGEST_SEGMENT} bytes, one has {len(segment)}")
    if key.endswith("~"):
        _refuse(key, "a final '~' marks temporary files")
    return key


def _refuse(key: str, reason: str) -> NoReturn:
    raise InvalidInput(f"Invalid key {key!r}: {reason}.")


def check_prefix(prefix: str) -> str:
    """Raise for a listing prefix whose folders are outside of the store.

    The last segment may be any beginning of a name.
    """
    if not isinstance(prefix, str):
        raise InvalidType(f"A prefix is a str, not {type(prefix).__name__}: {prefix!r}")
    if any(segment in ("", ".", "..") for segment in prefix.split("/")[:-1]):
        raise InvalidInput(
            f"Invalid prefix {prefix!r}: it must not start with '/', nor have an empty, '.' or '..' segment."
        )
    return prefix


def check_spans(spans: Sequence[Span]) -> Sequence[Span]:
    """Raise for negative positions: no store counts from the end."""
    negative = [span for span in spans if span[0] < 0 or span[1] < 0]
    if negative:
        raise InvalidInput(f"Invalid spans {negative}: start and stop of a span are not negative.")
    return spans


def select(entries: Iterable[Entry], prefix: str, recursive: bool) -> Listing:
    """Make a listing from all entries of a store."""
    selected: list[Entry] = []
    prefixes: set[str] = set()
    for entry in entries:
        if not entry.key.startswith(prefix):
            continue
        head, slash, _ = entry.key[len(prefix) :].partition("/")
        if slash and not recursive:
            prefixes.add(prefix + head + slash)
        else:
            selected.append(entry)
    return Listing(sorted(selected, key=lambda entry: entry.key), sorted(prefixes))


class Store(ABC):
    """A flat space of keys and bytes.

    Every operation checks its key with `check_key`. A missing key raises `KeyNotFound`; writing to
    a store that is not writable raises `ReadOnlyStore`. Two stores are equal if they show the same
    objects. Stores are thread-safe.

    An implementation defines `capabilities`, `name`, `identity`, `get_versioned`, `put`, `put_if`,
    `delete` and `list`; all other methods have defaults.
    """

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities:
        """The guarantees of this store."""

    @property
    @abstractmethod
    def name(self) -> str:
        """A printable URL without credentials."""

    @property
    @abstractmethod
    def identity(self) -> Hashable:
        """Equal for stores of the same objects, e.g. ``("local", root)``."""

    @property
    def is_remote(self) -> bool:
        """Whether operations wait for a server, so that many threads pay off on few cores."""
        return False

    @property
    def way_to_commit(self) -> str:
        """How to reach the same objects so that commits are safe: a sentence, or empty."""
        return ""

    @abstractmethod
    def get_versioned(self, key: str) -> tuple[bytes, Version]:
        """Return the object and the version that `put_if` and `changed` take."""

    @abstractmethod
    def put(self, key: str, data: Data) -> None:
        """Write an object, or replace it."""

    @abstractmethod
    def put_if(self, key: str, data: Data, version: Version | None) -> Version:
        """Write an object with this version, or a new one for ``None``; return the new version.

        Raises
        ------
        VersionMismatch
            If the condition does not hold. A remote store may raise it although its first,
            unanswered attempt succeeded: check for your own data first.
        """

    @abstractmethod
    def delete(self, key: str) -> None:
        """Remove an object; a missing one is no error."""

    @abstractmethod
    def list(self, prefix: str = "", recursive: bool = False) -> Listing:
        """List what starts with the prefix, a string, up to the next ``/`` or to the end."""

    def get(self, key: str) -> bytes:
        """Return the object."""
        return self.get_versioned(key)[0]

    def changed(self, key: str, version: Version) -> bool:
        """Whether the key has another version now, or none. As cheap as the store allows."""
        try:
            return self.get_versioned(key)[1] != version
        except KeyNotFound:
            return True

    def tail(self, key: str, n: int) -> tuple[Buffer, int]:
        """Return the last ``n`` bytes (all, if there are fewer) and the size of the object."""
        data = self.get(key)
        # A copy, since a view would keep all of the object in memory.
        return data[max(0, len(data) - n) :], len(data)

    def ranges(self, key: str, spans: Sequence[Span]) -> Buffers:
        """Return the bytes of each span ``(start, stop)``, cut at the end of the object.

        Raises
        ------
        InvalidInput
            If a span starts or stops below 0.
        """
        data = memoryview(self.get(key))
        return [data[start:stop] for start, stop in check_spans(spans)]

    def put_many(self, objects: Objects) -> None:
        """Write several objects as `put` does; after an error, any of them may be there."""
        for key, data in objects:
            self.put(key, data)

    def flush(self, leaving: int = 0) -> None:
        """Wait until all that was put is there, but for so many bytes. Only views put later."""
        return

    def probe(self) -> None:
        """Find out now, as the first `put_if` would, whether the server keeps conditions."""
        return

    def delete_many(self, keys: Sequence[str]) -> None:
        """Remove several objects as `delete` does; after an error, any of them may be gone."""
        for _ in map_in_threads(self.delete, keys, store=self):
            pass

    def put_file(self, key: str, source: Source) -> None:
        """Write an object from a file's path or a binary stream. The source is left in place."""
        buffer = BytesIO()
        copy_source(source, buffer)
        self.put(key, buffer.getbuffer())

    def copy(self, source: str, target: str) -> None:
        """Write the object of one key under another one."""
        self.put(target, self.get(source))

    def copier(self, other: Store) -> Callable[[str, str], None] | None:
        """Return what copies objects into another store without passing through this process.

        It is called as `copy`. None: there is no such way.
        """
        return self.copy if self == other else None

    def contains(self, key: str) -> bool:
        """Whether the key holds an object."""
        try:
            self.tail(key, 0)
        except KeyNotFound:
            return False
        return True

    def local_path(self, key: str) -> str | None:
        """Return the path of the object, if it is a local file that Arrow can open.

        Its existence is not checked.
        """
        check_key(key)
        return None

    def leftovers(self, prefix: str, before: datetime, *, remove: bool = False) -> Entries:
        """List, and remove, the hidden temporary files of writers that died before this time."""
        check_prefix(prefix)
        return []

    # --- method names of simplekv, for code written for kartothek ---------------------------------

    def iter_keys(self, prefix: str = "") -> Iterator[str]:
        """Iterate over all keys that start with the prefix, sorted."""
        return iter(self.list(prefix, recursive=True).keys)

    def keys(self, prefix: str = "") -> Keys:
        """Return all keys that start with the prefix, sorted."""
        return self.list(prefix, recursive=True).keys

    def __contains__(self, key: str) -> bool:
        return self.contains(key)

    def open(self, key: str) -> BinaryIO:
        """Return the object as a seekable binary file in memory; `ranges` reads parts of it."""
        return BytesIO(self.get(key))

    def missing(self, key: str) -> KeyNotFound:
        """Return the error for a missing key."""
        return KeyNotFound(f"Key {key!r} is not in store {self.name}.")

    def mismatch(self, key: str, version: Version | None) -> VersionMismatch:
        """Return the error for a conditional put that was refused."""
        reason = "exists already" if version is None else "was changed or removed since it was read"
        return VersionMismatch(f"Key {key!r} of store {self.name} {reason}.")

    def __eq__(self, other: object) -> bool:
        return self.identity == other.identity if isinstance(other, Store) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.identity)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


def copy_source(source: Source, target: IO[bytes]) -> None:
    """Copy a file, given by its path or as a binary stream, to a binary stream."""
    import shutil

    if isinstance(source, str | os.PathLike):
        with Path(source).open("rb") as file:
            shutil.copyfileobj(file, target, 1 << 20)
    else:
        shutil.copyfileobj(source, target, 1 << 20)


def check_store_can_commit(store: Store) -> None:
    """Refuse a store that is read-only or cannot compare and swap."""
    if not store.capabilities.writable:
        raise ReadOnlyStore(f"The store {store.name} cannot be written to.")
    if not store.capabilities.conditional_put and current_options().require_atomic:
        parts = (
            f"The store {store.name} cannot put a document on condition, so two writers could overwrite each other.",
            store.way_to_commit,
            "If there is certainly one writer, say options(require_atomic=False).",
        )
        raise AtomicityRequired(" ".join(filter(None, parts)))


# --- wrappers -------------------------------------------------------------------------------------


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

    def flush(self, leaving: int = 0) -> None:
        self.inner.flush(leaving)

    def probe(self) -> None:
        self.inner.probe()

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
    >>> from kartothek_cube.core.stores.local import MemoryStore
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

    def delete_many(self, keys: Sequence[str]) -> None:
        # Each key is a call, and the first one has the time of all. After an error it alone counts.
        for key in keys[:1]:
            self.around("delete", key, lambda: self.inner.delete_many(keys))
        for key in keys[1:]:
            self.around("delete", key, lambda: None)

    def copy(self, source: str, target: str) -> None:
        self.around("copy", source, lambda: self.inner.copy(source, target))

    def copier(self, other: Store) -> Callable[[str, str], None] | None:
        inner = self.inner.copier(other.inner if isinstance(other, InstrumentedStore) else other)
        if inner is None:
            return None
        return lambda source, target: self.around("copy", source, lambda: inner(source, target))

    def leftovers(self, prefix: str, before: datetime, *, remove: bool = False) -> Entries:
        # The default has nothing to list, so it is not a call.
        if type(self.inner).leftovers is Store.leftovers:
            return self.inner.leftovers(prefix, before, remove=remove)
        return self.around("leftovers", prefix, lambda: self.inner.leftovers(prefix, before, remove=remove))

    def __repr__(self) -> str:
        return repr(self.inner)


# --- a probe for conditional puts -----------------------------------------------------------------


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
    keys = list[str]()
    try:
        # One lock per place: a server that does not answer blocks no other. `setdefault` is atomic.
        with _LOCKS.setdefault(place, threading.Lock()):
            if place not in _SUPPORTED:
                # A client repeats a put whose answer was lost, and the repetition is refused
                # although the put was valid. Such a round proves nothing, so there are three.
                rounds = (_try_round(put_if, keys) for _ in range(_ROUNDS))
                _SUPPORTED[place] = next((verdict for verdict in rounds if verdict is not None), False)
            return _SUPPORTED[place]
    finally:  # whoever waits for the verdict does not wait for this
        for key in keys:
            with suppress(Exception):
                delete(key)


def _try_round(put_if: Callable[[str, bytes, Any], Any], keys: list[str]) -> bool | None:
    """Create, create again beside an update, update the outdated version.

    None if a valid put was refused. The key is added to ``keys``.
    """
    import secrets  # loads much, and readers need none

    key = f"kartothek_cube-conditions-{secrets.token_hex(8)}"
    keys.append(key)

    def put(data: bytes, version: Any) -> Any:
        try:
            return put_if(key, data, version)
        except ConditionFailed:
            return None

    # Contents differ, because an ETag of S3 is a hash of the content.
    created = put(b"1", None)
    if not created:
        return None if created is None else False
    with ThreadPoolExecutor(1) as pool:
        again = pool.submit(copy_context().run, put, b"2", None)
        updated = put(b"3", created)
        if again.result() is not None:
            return False
    return None if updated is None else put(b"4", created) is None

"""File systems of fsspec and pyarrow as stores; local ones become a `LocalStore`."""

from __future__ import annotations

import contextlib
import hashlib
import pickle
import re
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias
from urllib.parse import quote
from uuid import uuid4

from kartothek_cube.core.runtime.options import current_options
from kartothek_cube.core.stores.contract import (
    Buffer,
    Buffers,
    Capabilities,
    Data,
    Entry,
    Listing,
    ReadOnlyView,
    Span,
    Store,
    Version,
    check_key,
    check_prefix,
    check_spans,
    select,
)
from kartothek_cube.core.stores.local import LocalStore, check_no_settings, digest
from kartothek_cube.errors import (
    AtomicityRequired,
    InvalidInput,
    InvalidType,
    KeyNotFound,
    ReadOnlyStore,
)

# The URL schemes of this library that open the same objects, and can commit.
_BUCKETS = {"s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs", "az": "az", "abfs": "az", "abfss": "az"}
_LIBRARIES = ("fsspec.", "pyarrow.")
_IN_MEMORY = frozenset({"memory", "mock"})
_READ_ONLY = frozenset({"data", "gist", "git", "github", "http", "https", "libarchive", "reference", "tar"})
_TIMED = frozenset({*_BUCKETS, *_IN_MEMORY, "hdfs", "sftp"})
_TIMES = ("mtime", "LastModified", "last_modified", "updated", "modified", "created")
_LOCKS: dict[Hashable, threading.RLock] = {}
# Places of memories that are not shared, by the id of the file system.
_MEMORIES: dict[int, tuple[weakref.ReferenceType[object], str]] = {}
_MEMORY_LOCK = threading.Lock()

Found: TypeAlias = tuple[str, Entry | None]
"""A path, and what a listing says of it; None for a folder."""


def is_file_system(x: object) -> bool:
    """Whether an object is a file system of fsspec or pyarrow. Neither is imported."""
    return not isinstance(x, type) and (_is_a(x, "AbstractFileSystem") or _is_a(x, "FileSystem"))


def _is_a(x: object, name: str) -> bool:
    """Whether a class of this name, of fsspec or pyarrow, is one of the object's."""
    return any(c.__name__ == name and c.__module__.startswith(_LIBRARIES) for c in type(x).__mro__)


def open_file_system(fs: Any, path: str, settings: Mapping[str, Any]) -> Store:
    """Return a folder of a file system as a `Store`."""
    given = fs
    if "\0" in path or ".." in path.split("/"):
        raise InvalidInput(f"path={path!r} is no folder of a file system; one looks like 'bucket/prefix'.")
    while True:
        # A cache would show the documents of old commits.
        if _is_a(fs, "CachingFileSystem") or _is_a(fs, "ArrowFSWrapper"):
            fs, path = fs.fs, fs._strip_protocol(path)  # noqa: SLF001 - the method that each implementation overrides
        elif _is_a(fs, "DirFileSystem"):
            fs, path = fs.fs, f"{fs.path.rstrip('/')}/{path.lstrip('/')}"
        elif _is_a(fs, "SubTreeFileSystem"):
            fs, path = fs.base_fs, f"{fs.base_path.rstrip('/')}/{path.lstrip('/')}"
        elif _is_a(fs, "PyFileSystem") and hasattr(fs.handler, "fs"):
            fs = fs.handler.fs
        else:
            break
    files: Files = FsspecFiles(fs) if _is_a(fs, "AbstractFileSystem") else ArrowFiles(fs)
    # A subclass may keep its files elsewhere.
    is_local = type(fs).__name__ == "LocalFileSystem" and type(fs).__module__.startswith(_LIBRARIES)
    if not path.strip("/") and (files.protocol in _BUCKETS or is_local):
        raise InvalidInput(
            f"{type(given).__name__} needs the folder that is the store, e.g. "
            f"open_store(fs, path={'/data/cubes' if is_local else 'bucket/prefix'!r})."
        )
    if is_local:
        return LocalStore(files.normalized(path), **settings)
    check_no_settings(settings, type(given).__name__)
    store = FileSystemStore(files, files.normalized(path).rstrip("/"))
    return store if files.writable else ReadOnlyView(store)


class Files(ABC):
    """What a store needs of a file system.

    Paths are full. Missing files and folders are the errors of Python, as `FileNotFoundError`.
    """

    library = ""

    def __init__(self, fs: Any, protocol: str) -> None:
        self.fs, self.protocol = fs, protocol
        self.is_shared_memory = protocol == "memory" and getattr(fs, "global_store", True)
        self.place: Hashable = protocol if self.is_shared_memory else _place_of(fs, protocol)
        self.writable = protocol not in _READ_ONLY and (protocol != "zip" or getattr(fs, "mode", "r") != "r")

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.fs,))

    def normalized(self, path: str) -> str:
        """Return a path as the file system writes it in listings."""
        return path

    @abstractmethod
    def locked(self) -> contextlib.AbstractContextManager[object]:
        """Return the lock that guards each operation."""

    @abstractmethod
    def size(self, path: str) -> int:
        """Return the size of a file."""

    @abstractmethod
    def read(self, path: str) -> bytes:
        """Return the content of a file."""

    @abstractmethod
    def spans(self, path: str, spans: Sequence[Span]) -> Buffers:
        """Return parts of a file, none of which is empty or leads over its end."""

    @abstractmethod
    def write(self, path: str, data: bytes) -> None:
        """Write a file."""

    @abstractmethod
    def make_folder(self, path: str) -> None:
        """Make a folder and those above it."""

    @abstractmethod
    def remove(self, path: str) -> None:
        """Remove a file."""

    @abstractmethod
    def walk(self, folder: str, recursive: bool) -> Iterator[Found]:
        """List a folder."""


class FsspecFiles(Files):
    """A file system of fsspec."""

    library = "fsspec"

    def __init__(self, fs: Any) -> None:
        super().__init__(fs, fs.protocol if isinstance(fs.protocol, str) else fs.protocol[0])
        if getattr(fs, "asynchronous", False):
            raise InvalidInput(f"{type(fs).__name__} was made with asynchronous=True; a store calls it from threads.")
        # Memory is shared by all instances, and other clients that are not asynchronous, as of FTP,
        # serve one thread at a time.
        self._lock = None if fs.async_impl else _LOCKS.setdefault(self.place, threading.RLock())

    def normalized(self, path: str) -> str:
        return str(self.fs._strip_protocol(path))  # noqa: SLF001 - the method that each implementation overrides

    def locked(self) -> contextlib.AbstractContextManager[object]:
        return self._lock or contextlib.nullcontext()

    def size(self, path: str) -> int:
        self.fs.invalidate_cache()  # a listing that others made, perhaps before the file was written
        info = self.fs.info(path)
        if info["type"] == "directory":
            raise IsADirectoryError(path)
        return int(info["size"])

    def read(self, path: str) -> bytes:
        return bytes(self.fs.cat_file(path))

    def spans(self, path: str, spans: Sequence[Span]) -> Buffers:
        starts, stops = [start for start, _ in spans], [stop for _, stop in spans]
        # One call for all, so that the client can ask for them side by side.
        return list(self.fs.cat_ranges([path] * len(spans), starts, stops, on_error="raise")) if spans else []

    def write(self, path: str, data: bytes) -> None:
        self.fs.pipe_file(path, data)

    def make_folder(self, path: str) -> None:
        self.fs.makedirs(path, exist_ok=True)

    def remove(self, path: str) -> None:
        self.fs.rm_file(path)

    def walk(self, folder: str, recursive: bool) -> Iterator[Found]:
        self.fs.invalidate_cache()
        listed = self.fs.find(folder, detail=True).values() if recursive else self.fs.ls(folder, detail=True)
        for info in listed:
            moment = next((info[name] for name in _TIMES if info.get(name) is not None), None)
            if isinstance(moment, int | float):
                moment = datetime.fromtimestamp(moment, UTC)
            time = moment if isinstance(moment, datetime) and moment.tzinfo else None
            yield info["name"], None if info["type"] == "directory" else Entry("", info.get("size"), time)


class ArrowFiles(Files):
    """A file system of pyarrow, which is safe for threads."""

    library = "pyarrow"

    def __init__(self, fs: Any) -> None:
        super().__init__(fs, fs.type_name)

    def locked(self) -> contextlib.AbstractContextManager[object]:
        return contextlib.nullcontext()

    def size(self, path: str) -> int:
        from pyarrow.fs import FileType

        info = self.fs.get_file_info(path)
        if info.type == FileType.NotFound:
            raise FileNotFoundError(path)
        if info.type == FileType.Directory:
            raise IsADirectoryError(path)
        return int(info.size)

    def read(self, path: str) -> bytes:
        try:
            with self.fs.open_input_file(path) as file:
                return bytes(file.read())
        except OSError:
            self.size(path)  # Arrow has no error of its own for folders
            raise

    def spans(self, path: str, spans: Sequence[Span]) -> Buffers:
        with self.fs.open_input_file(path) as file:
            return [file.read_at(stop - start, start) for start, stop in spans]

    def write(self, path: str, data: bytes) -> None:
        with self.fs.open_output_stream(path, compression=None) as file:
            file.write(data)

    def make_folder(self, path: str) -> None:
        self.fs.create_dir(path, recursive=True)

    def remove(self, path: str) -> None:
        self.fs.delete_file(path)

    def walk(self, folder: str, recursive: bool) -> Iterator[Found]:
        from pyarrow.fs import FileSelector, FileType

        for info in self.fs.get_file_info(FileSelector(folder, recursive=recursive)):
            is_folder = info.type == FileType.Directory
            yield info.path, None if is_folder else Entry("", info.size, info.mtime)


def _place_of(fs: object, protocol: str) -> Hashable:
    """Equal for file systems made with the same arguments, also in another process."""
    if protocol == "memory":  # its files are not those of an equal one
        with _MEMORY_LOCK:
            known = _MEMORIES.get(id(fs))
            if known is None or known[0]() is not fs:
                known = _MEMORIES[id(fs)] = weakref.ref(fs), uuid4().hex
            return known[1]
    try:
        # The digest, because the arguments may be credentials.
        return hashlib.sha256(pickle.dumps(fs)).hexdigest()
    except Exception:  # pickling runs code of the user, which may raise anything
        return id(fs)


class FileSystemStore(Store):
    """Objects as files of a file system of fsspec or pyarrow.

    The memory of fsspec compares and swaps by a lock of the process. No other file system can:
    `put_if` raises, unless ``options(require_atomic=False)`` declares that there is one writer.

    Parameters
    ----------
    files : Files
        The file system.
    root : str
        The folder that is the store.
    """

    def __init__(self, files: Files, root: str) -> None:
        self._files, self._root = files, root
        self._commits = files.library == "fsspec" and files.protocol == "memory"
        self._identity = (files.library, files.place, root.strip("/"))

    @property
    def capabilities(self) -> Capabilities:
        protocol = self._files.protocol
        return Capabilities(
            # Arrow asks for the size of an object first, and then for so many bytes.
            atomic_put=self._commits or (self._files.library == "fsspec" and protocol in _BUCKETS),
            conditional_put=self._commits,
            modification_times=protocol in _TIMED,
            shared=protocol not in _IN_MEMORY,
        )

    @property
    def name(self) -> str:
        host = getattr(self._files.fs, "host", None)
        start = f"{host}/" if isinstance(host, str) else ""
        # A root of HTTP is a URL, perhaps with a password.
        folder = re.sub(r"^.*?://([^/]*@)?", "", self._root).strip("/")
        path = quote(folder, safe="/:+=@,~")
        return f"{self._files.library}+{self._files.protocol}://{start}{path}"

    @property
    def identity(self) -> Hashable:
        return self._identity

    @property
    def is_remote(self) -> bool:
        return self._files.protocol not in _IN_MEMORY

    @property
    def way_to_commit(self) -> str:
        scheme = _BUCKETS.get(self._files.protocol)
        return f"Open it by its URL {scheme}://{self._root.strip('/')} instead, which can." if scheme else ""

    def __reduce__(self) -> tuple[object, ...]:
        if not self.capabilities.shared:
            raise InvalidType(
                f"The memory store {self.name} cannot be pickled: another process has another memory. "
                "Use a directory or another shared store; also a URL like hmemory://name finds the same objects only "
                "inside one process."
            )
        return (FileSystemStore, (self._files, self._root))

    def get_versioned(self, key: str) -> tuple[bytes, Version]:
        with self._path(key) as path:
            data = self._files.read(path)
        return data, digest(data)

    def tail(self, key: str, n: int) -> tuple[Buffer, int]:
        with self._path(key) as path:
            size = self._files.size(path)
            start = max(0, size - n)
            return self._files.spans(path, [(start, size)])[0] if start < size else b"", size

    def ranges(self, key: str, spans: Sequence[Span]) -> Buffers:
        with self._path(key) as path:
            size = self._files.size(path) if check_spans(spans) else 0
            cut = [(start, min(stop, size)) for start, stop in spans]
            parts = iter(self._files.spans(path, [span for span in cut if span[0] < span[1]]))
            return [next(parts) if start < stop else b"" for start, stop in cut]

    def put(self, key: str, data: Data) -> None:
        with self._path(key, writes=True) as path:
            try:
                self._files.write(path, bytes(data))
            except FileNotFoundError:
                # Most file systems need no folder, and asking for it is a request more.
                self._files.make_folder(path.rpartition("/")[0])
                self._files.write(path, bytes(data))

    def put_if(self, key: str, data: Data, version: Version | None) -> Version:
        check_key(key)
        if not self._commits and current_options().require_atomic:
            raise AtomicityRequired(
                f"Store {self.name} cannot compare and swap, so a concurrent writer's change to {key!r} could be "
                f"lost. {self.way_to_commit or 'Use a store that can,'} "
                "or options(require_atomic=False) if there is one writer."
            )
        with self._files.locked():
            try:
                current = self.get_versioned(key)[1]
            except KeyNotFound:
                current = None
            if current != version:
                raise self.mismatch(key, version)
            self.put(key, data)
        return digest(data)

    def delete(self, key: str) -> None:
        with contextlib.suppress(KeyNotFound), self._path(key, writes=True) as path:
            self._files.size(path)  # some remove a folder with all that is in it
            self._files.remove(path)

    def list(self, prefix: str = "", recursive: bool = False) -> Listing:
        folder = check_prefix(prefix).rpartition("/")[0]
        inside, entries = f"{self._root.strip('/')}/".lstrip("/"), list[Entry]()
        with self._files.locked():
            found = list[Found]()
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                found.extend(
                    self._files.walk(f"{self._root}/{folder}".rstrip("/") if folder else self._root, recursive)
                )
        for path, entry in found:
            key = path.strip("/").removeprefix(inside)
            if entry is not None and not path.endswith("/"):
                entries.append(Entry(key, entry.size, entry.modified))
            elif entry is None and not recursive:
                entries.append(Entry(f"{key}/"))  # becomes a prefix
        return select(entries, prefix, recursive)

    @contextlib.contextmanager
    def _path(self, key: str, *, writes: bool = False) -> Iterator[str]:
        """Yield the path of a key under the lock, and translate errors of the file system."""
        check_key(key)
        try:
            with self._files.locked():
                yield f"{self._root}/{key}" if self._root else key
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            raise self.missing(key) from None
        except (PermissionError, NotImplementedError) as error:
            if writes:
                raise ReadOnlyStore(f"Key {key!r} of store {self.name} cannot be written: {error}") from error
            raise
        except FileExistsError as error:
            raise InvalidInput(f"Key {key!r} of store {self.name} is below a key that is an object.") from error

"""A local directory as a store, and a store in memory.

In order:

- atomic writes of single files: temporary file, fsync, rename, locks
- the directory
- memory, for tests and trials; stores of one name share their objects
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import importlib.util
import itertools
import os
import re
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, BinaryIO, Literal, NoReturn, TypeVar
from urllib.parse import quote

from msgspec import Struct

from kartothek_cube.core.stores.contract import (
    Buffer,
    Buffers,
    Capabilities,
    Data,
    Entries,
    Entry,
    Listing,
    Objects,
    Source,
    Span,
    Store,
    Version,
    check_key,
    check_prefix,
    check_spans,
    copy_source,
    select,
)
from kartothek_cube.errors import InvalidInput, InvalidType, ReadOnlyStore, Unsupported

try:
    import fcntl
except ImportError:  # Windows: the package filelock has locks
    fcntl = None  # type: ignore[assignment]


ON_WINDOWS = os.name == "nt"
HAS_FLOCK = bool(fcntl)
CAN_LOCK = HAS_FLOCK or importlib.util.find_spec("filelock") is not None
T = TypeVar("T")
Fill = Callable[[BinaryIO], object]
Content = bytes | bytearray | memoryview

# Leaves room for the suffix of temporary and lock files below the usual limit of 255 bytes.
_LONGEST_STEM = 200
# Each attempt fails if another process removes the empty folder between `mkdir` and `open`.
_ATTEMPTS = 100
# Of a hundredth of a second each. Windows neither replaces nor removes a file that somebody has
# open, and refuses to open one that is being replaced. Metadata is read in a moment.
_WAITS = 200 if ON_WINDOWS else 0
_PAUSE = 0.01
# Files of one batch that wait for the disk at a time. A disk takes many flushes as fast as one.
_WAITING = 16
# The mode of a file may let nobody write; but only POSIX flushes through a descriptor for reading.
_FOR_FLUSHING = os.O_RDONLY if hasattr(os, "O_DIRECTORY") else os.O_RDWR
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}


def digest(data: Content) -> str:
    """Return the version of a content."""
    # Inode and time cannot be the version: ext4 reuses inodes at once. Most processors have
    # instructions for SHA-256, so it is the fastest hash; a commit hashes the document three times.
    return hashlib.sha256(data).hexdigest()


class FileWriter(Struct, frozen=True):
    """Writes, swaps and removes single files.

    Attributes
    ----------
    lock : {"inode", "sidecar"}
        Whether a swap locks the file itself or a lock file beside it. The latter is for network
        file systems whose clients may see an old file for a while.
    fsync : bool
        Whether content and folder are flushed to the disk before a write returns.
    perm : int | None
        Permission bits of new files; default: those of the umask.
    """

    lock: Literal["inode", "sidecar"] = "inode"
    fsync: bool = True
    perm: int | None = None

    def replace(self, path: str, fill: Fill) -> None:
        """Write a file, or replace it."""
        # Without the lock, a swap that has compared the older content would overwrite this one.
        with self._staged(path, fill) as staged, self._locked_if_there(path):
            _patiently(path, lambda: os.replace(staged, path))
        self._sync_folder(path)

    @contextlib.contextmanager
    def batch(self) -> Iterator[Callable[[str, Content], None]]:
        """Yield a function that does what `replace` does; all files appear at the end of the block.

        They wait for the disk side by side, and for each folder once. Until all of them are safe
        there, an error leaves none. Without ``fsync`` each appears at once.
        """
        if not self.fsync:
            yield lambda path, data: self.replace(path, lambda file: file.write(data))
            return
        # Like `replace`, flushed before the rename: no power failure shows a part of a file.
        later, staged = _Unflushed(self.lock, fsync=False, perm=self.perm), dict[str, str]()
        with contextlib.ExitStack() as stack:

            def stage(path: str, data: Content) -> None:
                staged[stack.enter_context(later._staged(path, lambda file: file.write(data)))] = path  # noqa: SLF001 - of this class

            yield stage
            if not staged:
                return
            with ThreadPoolExecutor(min(len(staged), _WAITING)) as pool:
                _each(pool, _flush, list(staged))
                for temporary, path in staged.items():
                    with self._locked_if_there(path):
                        _patiently(path, partial(os.replace, temporary, path))
                    later._sync_folder(path)  # noqa: SLF001
                _each(pool, self._sync_folder, list(later.folders.values()))

    def create(self, path: str, fill: Fill) -> None:
        """Write a new file; raise `FileExistsError` if it exists."""
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, "exists", path)
        with self._staged(path, fill) as staged:
            try:
                # Unlike a rename, a link never replaces a file of a concurrent writer.
                os.link(staged, path)
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                raise Unsupported(
                    f"The file system of {path!r} has no hard links; new documents cannot be created safely on it."
                ) from error
        self._sync_folder(path)

    def swap(self, path: str, data: Content, expected: str) -> bool:
        """Replace a file if its content has the expected digest; return whether it has."""
        try:
            with self._locked(path, create=True):
                # Compare before staging: the loser of a race writes nothing.
                if digest(read(path)) != expected:
                    return False
                with self._staged(path, lambda file: file.write(data)) as staged:
                    _patiently(path, lambda: os.replace(staged, path))
                # On the file systems that need a lock file, others may not see the replacement.
                landed = self.lock == "inode" or digest(read(path)) == digest(data)
        except FileNotFoundError:
            return False
        self._sync_folder(path)
        return landed

    def remove(self, path: str, root: str) -> None:
        """Remove a file, if it exists, and the empty folders above it, below the root."""
        try:
            with self._locked_if_there(path):
                _patiently(path, lambda: os.unlink(path))
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return
        # Removing a folder that is not empty fails, so that no check races with a writer.
        folder = os.path.dirname(path)
        with contextlib.suppress(OSError):
            while len(folder) > len(root):
                os.rmdir(folder)
                folder = os.path.dirname(folder)

    @contextlib.contextmanager
    def _staged(self, path: str, fill: Fill) -> Iterator[str]:
        import secrets

        folder, name = os.path.split(path)
        staged = os.path.join(folder, f"{name[:_LONGEST_STEM]}.{secrets.token_hex(8)}~")
        try:
            with open(self._open_new(staged), "wb") as file:
                fill(file)
                file.flush()
                if self.perm is not None:
                    os.chmod(file.fileno() if os.chmod in os.supports_fd else staged, self.perm)
                if self.fsync:
                    os.fsync(file.fileno())
            yield staged
        finally:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                os.unlink(staged)

    def _open_new(self, path: str) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
        for _ in range(_ATTEMPTS):
            try:
                return os.open(path, flags, 0o666)
            except FileNotFoundError:
                self._make_folders(os.path.dirname(path))
        return os.open(path, flags, 0o666)

    def _make_folders(self, folder: str) -> None:
        # Another process may remove the empty folder between two steps; then `_open_new` retries.
        if os.path.isfile(folder):
            raise NotADirectoryError(errno.ENOTDIR, "is a file", folder)
        with contextlib.suppress(FileExistsError, FileNotFoundError):
            if not os.path.isdir(os.path.dirname(folder)):
                self._make_folders(os.path.dirname(folder))
            os.mkdir(folder)
            self._sync_folder(folder)

    def _sync_folder(self, path: str) -> None:
        if self.fsync and hasattr(os, "O_DIRECTORY"):
            with contextlib.suppress(FileNotFoundError):
                _flush(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)

    @contextlib.contextmanager
    def _locked_if_there(self, path: str) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            if CAN_LOCK:
                with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                    stack.enter_context(self._locked(path, create=False))
            yield

    @contextlib.contextmanager
    def _locked(self, path: str, *, create: bool) -> Iterator[None]:
        """Hold the exclusive lock, which the kernel releases if the process dies."""
        target, (folder, name) = path, os.path.split(path)
        if self.lock == "sidecar" or not HAS_FLOCK:
            target = os.path.join(folder, f"{name[:_LONGEST_STEM]}.lock~")
        if not HAS_FLOCK:
            from filelock import FileLock

            # Windows locks ranges of bytes against reading too, hence never the file itself.
            os.stat(path)
            with FileLock(target).acquire(poll_interval=_PAUSE):
                yield
            return
        while True:
            fd = _open_for_lock(target, create and self.lock == "sidecar")
            try:
                fcntl.flock(fd, fcntl.LOCK_EX)
                if _is_current(fd, target):
                    yield
                    return
                # The file was replaced meanwhile: the valid lock is that of the new file.
            finally:
                os.close(fd)


class _Unflushed(FileWriter, frozen=True):
    """Writes without waiting, and notes a path in each folder that has to be flushed."""

    folders: dict[str, str] = {}

    def _sync_folder(self, path: str) -> None:
        self.folders[os.path.dirname(path)] = path


def _each(pool: ThreadPoolExecutor, func: Callable[[str], object], paths: Sequence[str]) -> None:
    # A task for each thread, since handing over costs as much as the rest.
    shares = [paths[i::_WAITING] for i in range(min(len(paths), _WAITING))]
    list(pool.map(lambda share: list(map(func, share)), shares))


def _flush(path: str, flags: int = _FOR_FLUSHING) -> None:
    fd = os.open(path, flags)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _patiently(path: str, action: Callable[[], T]) -> T:
    """Do what Windows refuses while others work with the file, as soon as it allows it."""
    for _ in range(_WAITS):
        try:
            return action()
        except PermissionError as error:
            if os.path.isdir(path):  # which Windows opens and removes by other calls
                raise IsADirectoryError(errno.EISDIR, "is a folder", path) from error
            time.sleep(_PAUSE)
    return action()


def open_to_read(path: str, buffering: int = -1) -> BinaryIO:
    """Open a file, also on Windows, while it is being replaced."""
    return _patiently(path, lambda: open(path, "rb", buffering))


def read(path: str) -> bytes:
    """Read a file through one descriptor: a concurrent replacement cannot mix two contents."""
    with open_to_read(path) as file:
        return file.read()


def _open_for_lock(path: str, create: bool) -> int:
    flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
    try:
        return os.open(path, flags, 0o666)
    except PermissionError:  # the folder's owner can replace another user's file, and lock it for that
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def _is_current(fd: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False


# --- the directory --------------------------------------------------------------------------------


Stamp = tuple[int, int, int, int]

# Windows keeps these from programs, in any folder, with any suffix.
_NO_NAME_ON_WINDOWS = re.compile(
    r"""[<>"?]|[ .](?:/|$)|(?:^|/)(?:con|prn|aux|nul|com\d|lpt\d|conin\$|conout\$) *(?:\.[^/]*)?(?:/|$)""",
    re.IGNORECASE,
)
_DRIVE = re.compile(r"[A-Za-z]:")
_LEFTOVER = re.compile(r".*\.[0-9a-f]{16}~")
# Seconds. Two writes within one tick of the file system's clock can leave the same inode, size and
# times, so a stamp counts only if the file is older.
_SETTLED_AFTER = 2.0


@dataclass(frozen=True, slots=True)
class LocalVersion:
    """The digest of a file's content and, if the file was not written just before, its stamp."""

    digest: str
    stamp: Stamp | None = field(default=None, compare=False)


class LocalStore(Store):
    """Objects as files below one directory, which the first write creates.

    The directory itself may be a symbolic link. Below it, a link to a file of the store is read as
    that file, and a link that leads out of the store is refused. Files in a linked folder can be
    read, but are not listed, written or deleted: they belong to others, or have another key here.

    Parameters
    ----------
    root : str | os.PathLike
        The directory. A relative path becomes absolute at once.
    lock : {"inode", "sidecar"}
        The file that a conditional put locks: the object itself, or ``<name>.lock~`` beside it (for
        network file systems).
    fsync : bool
        Whether a write returns only after it is on the disk.
    perm : int | None
        Permission bits of new files; default: those of the umask.

    Examples
    --------
    >>> import tempfile
    >>> store = LocalStore(tempfile.mkdtemp())
    >>> version = store.put_if("sales.by-dataset-metadata.json", b"{}", None)
    >>> store.changed("sales.by-dataset-metadata.json", version)
    False
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        lock: Literal["inode", "sidecar"] = "inode",
        fsync: bool = True,
        perm: int | None = None,
    ) -> None:
        if lock not in ("inode", "sidecar"):
            raise InvalidInput(f"lock={lock!r} is unknown; it is 'inode' or 'sidecar'.")
        self.root: str = os.path.abspath(os.fspath(root))
        self._writer = FileWriter(lock, fsync, perm)
        self._settled: dict[str, LocalVersion] = {}

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(atomic_put=True, conditional_put=CAN_LOCK, modification_times=True, shared=True)

    @property
    def name(self) -> str:
        root = self.root.replace("\\", "/") if ON_WINDOWS else self.root
        return "hfs://" + quote(f"/{root}" if _DRIVE.match(root) else root, safe="/:+=@,~" if ON_WINDOWS else "/+=@,~")

    @property
    def identity(self) -> Hashable:
        return ("local", os.path.normcase(self.root))

    def __reduce__(self) -> tuple[object, ...]:
        writer = self._writer
        return partial(LocalStore, lock=writer.lock, fsync=writer.fsync, perm=writer.perm), (self.root,)

    def get(self, key: str) -> bytes:
        with self._reading(key) as path:
            return read(path)

    def get_versioned(self, key: str) -> tuple[bytes, LocalVersion]:
        now = time.time()
        with self._reading(key) as path, open_to_read(path) as file:
            # Taken before the read: a later write changes the stamp.
            status = os.fstat(file.fileno())
            data = file.read()
        # The change time counts, too: tools that copy a directory set the modification time back.
        is_settled = now - max(status.st_mtime, status.st_ctime) > _SETTLED_AFTER
        return data, LocalVersion(digest(data), _raw_stamp(status) if is_settled else None)

    def changed(self, key: str, version: Version) -> bool:
        expected = _local_version(version)
        path = self._path(key)
        try:
            stamp = _raw_stamp(os.stat(path))
        except (FileNotFoundError, NotADirectoryError):
            return True
        settled = expected if expected.stamp else self._settled.get(key)
        if settled is not None and settled == expected and settled.stamp == stamp:
            return False
        if not self.contains(key):
            return True
        _, current = self.get_versioned(key)
        # The next call compares the stamp and reads nothing.
        if current.stamp:
            self._settled[key] = current
        return current != expected

    def tail(self, key: str, n: int) -> tuple[Buffer, int]:
        with self._reading(key) as path, open_to_read(path, buffering=0) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - n))
            return file.read(), size

    def ranges(self, key: str, spans: Sequence[Span]) -> Buffers:
        with self._reading(key) as path, open_to_read(path) as file:
            size = os.fstat(file.fileno()).st_size
            buffers: Buffers = []
            for start, stop in check_spans(spans):
                file.seek(start)
                # Cut at the end, since a read makes a buffer for all bytes that it asks for.
                buffers.append(file.read(max(0, min(stop, size) - start)))
            return buffers

    def put(self, key: str, data: Data) -> None:
        with self._writing(key) as path:
            self._writer.replace(path, lambda file: file.write(data))

    def put_many(self, objects: Objects) -> None:
        if len(objects) == 1:  # nothing waits beside it
            self.put(*objects[0])
            return
        with self._writer.batch() as replace:
            for key, data in objects:
                with self._writing(key) as path:
                    replace(path, data)

    def put_file(self, key: str, source: Source) -> None:
        with self._writing(key) as path:
            self._writer.replace(path, lambda file: copy_source(source, file))

    def put_if(self, key: str, data: Data, version: Version | None) -> LocalVersion:
        if not CAN_LOCK:
            raise Unsupported(
                f"Commits to the local store {self.name} need file locks, which this platform lacks; reading works. "
                "Install the package filelock."
            )
        with self._writing(key) as path:
            self._check_inside(key, path)
            if version is None:
                try:
                    self._writer.create(path, lambda file: file.write(data))
                except FileExistsError:
                    raise self.mismatch(key, version) from None
            elif not self._writer.swap(path, data, _local_version(version).digest):
                raise self.mismatch(key, version)
        # No stamp: another writer may have replaced the file already.
        return LocalVersion(digest(data))

    def copy(self, source: str, target: str) -> None:
        with self._reading(source) as path:
            self.put_file(target, path)

    def delete(self, key: str) -> None:
        path = self._writable_path(key)
        with self._write_errors(key):
            self._writer.remove(path, self.root)

    def contains(self, key: str) -> bool:
        return os.path.isfile(self._path(key)) and not self._leads_out(self._path(key))

    def local_path(self, key: str) -> str:
        path = self._path(key)
        self._check_inside(key, path)
        return path

    def _check_inside(self, key: str, path: str) -> None:
        if self._leads_out(path):
            raise InvalidInput(f"Key {key!r} of store {self.name} is a symbolic link that leads out of the store.")

    def list(self, prefix: str = "", recursive: bool = False) -> Listing:
        entries: list[Entry] = []
        prefixes: list[str] = []
        for key, entry in self._walk(prefix, recursive):
            if entry.is_dir():
                prefixes.append(key + "/")
            elif not entry.name.endswith("~"):
                with contextlib.suppress(FileNotFoundError):
                    entries.append(_entry(key, entry))
        return Listing(sorted(entries, key=lambda entry: entry.key), sorted(prefixes))

    def leftovers(self, prefix: str, before: datetime, *, remove: bool = False) -> Entries:
        temporary: list[Entry] = []
        for key, entry in self._walk(prefix, recursive=True):
            if _LEFTOVER.fullmatch(entry.name):
                with contextlib.suppress(FileNotFoundError):
                    temporary.append(_entry(key, entry))
        old = [leftover for leftover in temporary if leftover.modified is not None and leftover.modified < before]
        if remove:
            for leftover in old:
                self._writer.remove(os.path.join(self.root, leftover.key), self.root)
        return sorted(old, key=lambda leftover: leftover.key)

    def _walk(self, prefix: str, recursive: bool) -> Iterator[tuple[str, os.DirEntry[str]]]:
        folder, slash, stem = check_prefix(prefix).rpartition("/")
        pending = [] if self._linked_folder(folder + slash) else [folder + slash]
        while pending:
            base = pending.pop()
            entries: list[os.DirEntry[str]] = []
            missing = contextlib.suppress(FileNotFoundError, NotADirectoryError)
            with missing, os.scandir(os.path.join(self.root, base)) as found:
                entries = list(found)
            for entry in entries:
                if not entry.name.startswith(stem):
                    continue
                if entry.is_dir(follow_symlinks=False) and recursive:
                    pending.append(f"{base}{entry.name}/")
                elif entry.is_dir(follow_symlinks=False) or (
                    entry.is_file() and not self._leads_out(entry.path, entry.is_symlink())
                ):
                    yield base + entry.name, entry
            stem = ""

    def _path(self, key: str) -> str:
        if check_key(key) and ON_WINDOWS and _NO_NAME_ON_WINDOWS.search(key):
            raise InvalidInput(
                f'Key {key!r} of store {self.name} is no name of a file on Windows: none has one of <>"?, '
                "ends in a dot or space, or is called as a device, as aux or con.txt."
            )
        return os.path.join(self.root, key)

    def _writable_path(self, key: str) -> str:
        """The path of an object to write or remove; no folder above it may be a symbolic link."""
        path = self._path(key)
        linked = self._linked_folder(key)
        if linked is not None:
            raise InvalidInput(
                f"Key {key!r} of store {self.name} is behind the symbolic link {linked!r}; "
                "nothing is written or deleted there."
            )
        return path

    def _linked_folder(self, key: str) -> str | None:
        """The first folder above a key, below the root, that is a symbolic link."""
        end = key.find("/")
        while end >= 0:
            if os.path.islink(os.path.join(self.root, key[:end])):
                return key[:end]
            end = key.find("/", end + 1)
        return None

    def _leads_out(self, path: str, link: bool | None = None) -> bool:
        if not (os.path.islink(path) if link is None else link):
            return False
        return not os.path.realpath(path).startswith(os.path.join(os.path.realpath(self.root), ""))

    @contextlib.contextmanager
    def _reading(self, key: str) -> Iterator[str]:
        path = self.local_path(key)
        try:
            yield path
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise self.missing(key) from None

    @contextlib.contextmanager
    def _writing(self, key: str) -> Iterator[str]:
        path = self._writable_path(key)
        with self._write_errors(key):
            if os.path.isdir(path):
                raise InvalidInput(
                    f"Key {key!r} of store {self.name} is a folder; "
                    "a local store cannot hold an object of the same name."
                )
            yield path

    @contextlib.contextmanager
    def _write_errors(self, key: str) -> Iterator[None]:
        try:
            yield
        except NotADirectoryError as error:
            raise InvalidInput(
                f"Key {key!r} of store {self.name} is below a key that is an object; a local store cannot hold both."
            ) from error
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS) and not isinstance(error, ReadOnlyStore):
                raise ReadOnlyStore(f"Key {key!r} of store {self.name} cannot be written: {error.strerror}.") from error
            raise


def _local_version(version: Version) -> LocalVersion:
    if not isinstance(version, LocalVersion):
        raise InvalidType(
            f"A version of a local store is a LocalVersion as `get_versioned` returns it, not {type(version).__name__}."
        )
    return version


def _raw_stamp(status: os.stat_result) -> Stamp:
    return (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _entry(key: str, entry: os.DirEntry[str]) -> Entry:
    status = entry.stat()
    return Entry(key, status.st_size, datetime.fromtimestamp(status.st_mtime, UTC))


def check_no_settings(settings: Mapping[str, Any], store: str) -> None:
    """Raise for settings of local stores that were given for another store."""
    if settings:
        raise InvalidInput(f"The settings {sorted(settings)} are for local stores; {store} does not take them.")


# --- memory ---------------------------------------------------------------------------------------


class _Object(Struct, frozen=True):
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

    def delete_many(self, keys: Sequence[str]) -> None:
        for key in keys:
            self.delete(key)

    def list(self, prefix: str = "", recursive: bool = False) -> Listing:
        check_prefix(prefix)
        with self._space.lock:
            objects = dict(self._space.objects)
        entries = (Entry(key, len(stored.data), stored.modified) for key, stored in objects.items())
        return select(entries, prefix, recursive)

"""Atomic writes of single local files: temporary file, fsync, rename; compare-and-swap by locks."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import importlib.util
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import BinaryIO, Literal, TypeVar

from kartothek_cube.errors import Unsupported

try:
    import fcntl
except ImportError:  # Windows: the package filelock has locks
    fcntl = None  # type: ignore[assignment]

__all__ = ["CAN_LOCK", "ON_WINDOWS", "FileWriter", "digest", "open_to_read", "read"]

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


@dataclass(frozen=True, slots=True)
class FileWriter:
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


@dataclass(frozen=True, slots=True)
class _Unflushed(FileWriter):
    """Writes without waiting, and notes a path in each folder that has to be flushed."""

    folders: dict[str, str] = field(default_factory=dict)

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

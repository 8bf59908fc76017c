"""Atomic writes of single local files: temporary file, fsync, rename; compare-and-swap by locks."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, Literal

from kartothek_cube.errors import Unsupported

try:
    import fcntl
except ImportError:  # Windows: reading works, commits are refused
    fcntl = None  # type: ignore[assignment]

__all__ = ["CAN_LOCK", "FileWriter", "digest"]

CAN_LOCK = fcntl is not None
Fill = Callable[[BinaryIO], object]

# Leaves room for the suffix of temporary and lock files below the usual limit of 255 bytes.
_LONGEST_STEM = 200
# Each attempt fails if another process removes the empty folder between `mkdir` and `open`.
_ATTEMPTS = 100
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}


def digest(data: bytes | bytearray | memoryview) -> str:
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
            os.replace(staged, path)
        self._sync_folder(path)

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

    def swap(self, path: str, data: bytes | bytearray | memoryview, expected: str) -> bool:
        """Replace a file if its content has the expected digest; return whether it has."""
        try:
            with self._locked(path, create=True):
                # Compare before staging: the loser of a race writes nothing.
                if digest(read(path)) != expected:
                    return False
                with self._staged(path, lambda file: file.write(data)) as staged:
                    os.replace(staged, path)
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
                os.unlink(path)
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
        folder, name = os.path.split(path)
        staged = os.path.join(folder, f"{name[:_LONGEST_STEM]}.{secrets.token_hex(8)}~")
        try:
            with open(self._open_new(staged), "wb") as file:
                fill(file)
                file.flush()
                if self.perm is not None:
                    os.chmod(file.fileno(), self.perm)
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
        with contextlib.suppress(FileExistsError, FileNotFoundError):
            if not os.path.isdir(os.path.dirname(folder)):
                self._make_folders(os.path.dirname(folder))
            os.mkdir(folder)
            self._sync_folder(folder)

    def _sync_folder(self, path: str) -> None:
        if not self.fsync or not hasattr(os, "O_DIRECTORY"):
            return
        with contextlib.suppress(FileNotFoundError):
            fd = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

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
        target = path
        if self.lock == "sidecar":
            folder, name = os.path.split(path)
            target = os.path.join(folder, f"{name[:_LONGEST_STEM]}.lock~")
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


def read(path: str) -> bytes:
    """Read a file through one descriptor: a concurrent replacement cannot mix two contents."""
    with open(path, "rb") as file:
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

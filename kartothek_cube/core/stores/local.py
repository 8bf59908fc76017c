"""A local directory as a store: atomic, crash-safe, with compare-and-swap."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import time
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal
from urllib.parse import quote

from kartothek_cube.core.stores.atomic import CAN_LOCK, ON_WINDOWS, FileWriter, digest, open_to_read, read
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
)
from kartothek_cube.errors import InvalidInput, InvalidType, ReadOnlyStore, Unsupported

__all__ = ["LocalStore", "LocalVersion", "check_no_settings"]

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

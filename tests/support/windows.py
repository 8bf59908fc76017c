"""What local files are like on Windows, as far as Linux can show it.

File locks come from ``filelock`` instead of ``fcntl``. A file that this process has open can be
neither replaced nor removed. Folders cannot be opened, nor files flushed that are open for reading
only. Names of devices are refused.
"""

from __future__ import annotations

import builtins
import errno
import fcntl
import os
import re
from typing import Any

from kartothek_cube.core.stores import local, urls
from kartothek_cube.core.stores import local as atomic

__all__ = ["become_windows"]

_DEVICE = re.compile(r'[<>"?]|[ .]$|^(con|prn|aux|nul|com\d|lpt\d)(\..*)?$', re.IGNORECASE)
_MISSING = frozenset({"O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "register_at_fork"})


def _refuse(path: Any, code: int = errno.EACCES) -> None:
    raise OSError(code, "refused as by Windows", str(path))


def _is_open(path: str) -> bool:
    real = os.path.realpath(path)
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}") == real:
                return True
        except FileNotFoundError:
            continue
    return False


def _check(path: Any, *, writes: bool = False) -> None:
    if isinstance(path, int):
        return
    if any(_DEVICE.search(part) for part in str(path).split("/")):
        _refuse(path, errno.EINVAL)
    if os.path.isdir(path) or (writes and _is_open(path)):
        _refuse(path)


def _open(path: Any, *args: Any, **kwargs: Any) -> Any:
    _check(path)
    try:
        return builtins.open(path, *args, **kwargs)
    except NotADirectoryError:
        return _refuse(path, errno.ENOENT)


class WindowsOs:
    """The module ``os``, with the calls of local stores as on Windows."""

    supports_fd = frozenset[Any]()

    def __getattr__(self, name: str) -> Any:
        if name in _MISSING:
            raise AttributeError(name)
        return getattr(os, name)

    def open(self, path: Any, flags: int, mode: int = 0o777) -> int:
        _check(path)
        try:
            return os.open(path, flags, mode)
        except NotADirectoryError:
            _refuse(path, errno.ENOENT)
            raise

    def replace(self, source: Any, target: Any) -> None:
        _check(source, writes=True)
        _check(target, writes=True)
        os.replace(source, target)

    def unlink(self, path: Any) -> None:
        _check(path, writes=True)
        try:
            os.unlink(path)
        except NotADirectoryError:
            _refuse(path, errno.ENOENT)

    def chmod(self, path: Any, mode: int) -> None:
        if isinstance(path, int):
            raise TypeError("chmod takes no descriptor on Windows")
        os.chmod(path, mode)

    def fsync(self, fd: int) -> None:
        if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            _refuse(fd, errno.EBADF)
        os.fsync(fd)


def become_windows(setattr_: Any = setattr) -> None:
    """Change the modules of local stores; ``monkeypatch.setattr`` takes the change back."""
    fake = WindowsOs()
    for module in (atomic, local):
        setattr_(module, "os", fake)
        setattr_(module, "open", _open, **({} if setattr_ is setattr else {"raising": False}))
        setattr_(module, "ON_WINDOWS", True)
        setattr_(module, "CAN_LOCK", True)
    setattr_(urls, "ON_WINDOWS", True)
    setattr_(atomic, "fcntl", None)
    setattr_(atomic, "HAS_FLOCK", False)
    setattr_(atomic._flush, "__defaults__", (os.O_RDWR,))  # what the module chose when it was loaded
    setattr_(atomic, "_WAITS", 500)
    setattr_(atomic, "_PAUSE", 0.002)

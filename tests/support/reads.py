"""A store that measures what is read of its files, as an object store has to be asked for it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, TypeVar

from tests.support.cubes import ColdStore

if TYPE_CHECKING:
    from collections.abc import Callable

R = TypeVar("R")

_READS = {"get", "get_versioned", "tail", "ranges", "open"}


class MeasuredStore(ColdStore):
    """Records the keys and the bytes of all reads; no file of it has a path."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.bytes: Counter[str] = Counter()

    def around(self, operation: str, key: str, action: Callable[[], R]) -> R:
        if operation == "local_path":
            return None  # type: ignore[return-value]
        result = super().around(operation, key, action)
        with self._lock:
            self.bytes[key] += _size(operation, result)
        return result

    def reset(self) -> None:
        super().reset()
        self.bytes.clear()

    def files(self) -> list[str]:
        """The data files that were read."""
        return sorted({key for key in self.touched(*_READS) if is_data(key)})

    def data_bytes(self) -> int:
        """The bytes that were read of data files."""
        return sum(size for key, size in self.bytes.items() if is_data(key))


def is_data(key: str) -> bool:
    """Whether a key is that of a data file."""
    return key.endswith((".parquet", ".csv")) and not {"indices", "_history"}.intersection(key.split("/"))


def _size(operation: str, result: Any) -> int:
    match operation:
        case "get":
            return len(result)
        case "get_versioned" | "tail":
            return len(memoryview(result[0]).cast("B"))
        case "ranges":
            return sum(len(memoryview(part).cast("B")) for part in result)
    return 0

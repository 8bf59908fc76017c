"""Column chunks that a damaged footer describes: refused without reading a byte of the file.

Arrow's accessors in Python do not catch what C++ throws for a damaged column chunk, which ends the
process. Reading does. So Arrow is made to read, from files that have no content: this relies on the
order in which it checks things.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["check_chunks", "check_first_codec"]


def check_chunks(metadata: pq.FileMetaData, size: int, groups: Sequence[int], positions: Sequence[int]) -> None:
    """Check the column chunks of some row groups at some positions; ``size`` is that of the file.

    Raises
    ------
    pyarrow.ArrowException
        If one of the chunks is damaged.
    """
    source = _Unreadable(size)
    try:
        # With `pre_buffer` Arrow computes the spans of all chunks before it reads anything.
        file = pq.ParquetFile(pa.PythonFile(source, mode="r"), metadata=metadata, pre_buffer=True)
        file.reader.read_row_groups(list(groups), column_indices=list(positions), use_threads=False)
    except (pa.ArrowException, OSError):
        if not source.is_reached:
            raise


def check_first_codec(metadata: pq.FileMetaData, size: int) -> None:
    """Check the codec of the first column chunk, which `check_chunks` has to have passed.

    Raises
    ------
    pyarrow.ArrowException
        If Arrow does not know the codec.
    """
    try:  # Arrow looks up the codec after it has read the first byte and before it parses a page
        file = pq.ParquetFile(pa.PythonFile(_Empty(size), mode="r"), metadata=metadata)
        file.reader.read_row_groups([0], column_indices=[0], use_threads=False)
    except (pa.ArrowException, OSError) as error:
        if "codec" in str(error):
            raise


class _Unreadable:
    """A file of some size that ends wherever it is read, and remembers that it was read."""

    closed = False

    def __init__(self, size: int) -> None:
        self._size, self._position, self.is_reached = size, 0, False

    def seek(self, offset: int, whence: int = 0) -> int:
        self._position = offset + (self._size if whence == 2 else 0)
        return self._position

    def tell(self) -> int:
        return self._position

    def read(self, _nbytes: int) -> bytes:
        self.is_reached = True
        return b""  # raising takes longer

    def close(self) -> None:
        self.closed = True


class _Empty(_Unreadable):
    """A file of some size that is all zeros."""

    def read(self, nbytes: int) -> bytes:
        return bytes(max(0, min(nbytes, self._size - self._position)))

"""Decompression of bytes from a store, with a limit on the result."""

from __future__ import annotations

import zstandard

__all__ = ["decompress"]

# Documents shrink by a factor of 3 to 130, including the most regular labels at the highest level.
# A result above the floor with a larger ratio is a bomb.
_FLOOR = 32 * 2**20
_RATIO = 250
_CEILING = 4 * 2**30
# No frame grows by more than a factor of 32,768, so a piece yields 128 MiB at most.
_PIECE = 4096


def decompress(data: bytes) -> bytes:
    """The content of one zstd frame.

    Memory and time are bounded by the size of the frame, whatever its header says.

    Raises
    ------
    ValueError
        If the bytes are not one whole zstd frame, or the content has more than 32 MiB and 250 times
        the size of the frame, or more than 4 GiB.

    Examples
    --------
    >>> decompress(zstandard.compress(b"sales"))
    b'sales'
    """
    limit = min(max(_FLOOR, _RATIO * len(data)), _CEILING)
    try:
        size = zstandard.frame_content_size(data)
        if size > limit:
            raise _too_large(data, limit)
        if size < 0:  # the header does not name a size
            return _piecewise(data, limit)
        return zstandard.ZstdDecompressor().decompress(data, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from error


def _piecewise(data: bytes, limit: int) -> bytes:
    frame = zstandard.ZstdDecompressor().decompressobj()
    parts: list[bytes] = []
    total = 0
    for start in range(0, len(data), _PIECE):
        if frame.eof:
            raise ValueError("the frame is followed by something else")
        parts.append(frame.decompress(data[start : start + _PIECE]))
        total += len(parts[-1])
        if total > limit:
            raise _too_large(data, limit)
    if not frame.eof or frame.unused_data:
        raise ValueError("the frame is cut off, or followed by something else")
    return b"".join(parts)


def _too_large(data: bytes, limit: int) -> ValueError:
    return ValueError(f"{len(data):,} bytes would unpack to more than {limit:,}")

"""Unpacking compressed bytes from a store, with a bound on what comes out."""

from __future__ import annotations

import zstandard

__all__ = ["decompress"]

# Documents shrink by a factor of 3 to 130, the most regular labels at the highest level included.
# What is larger than the floor and shrank more is a bomb.
_FLOOR = 32 * 2**20
_RATIO = 250
_CEILING = 4 * 2**30
# No frame unpacks to more than 32,768 times its size, so that a piece gives 128 MiB at most.
_PIECE = 4096


def decompress(data: bytes) -> bytes:
    """The content of one zstd frame.

    Memory and time are bounded by the size of the frame, whatever its header says.

    Raises
    ------
    ValueError
        If it is no zstd frame, is cut off, or is followed by something; if it holds more than 32
        MiB and 250 times its own size, or more than 4 GiB.

    Examples
    --------
    >>> unpack(zstandard.compress(b"sales"))
    b'sales'
    """
    limit = min(max(_FLOOR, _RATIO * len(data)), _CEILING)
    try:
        size = zstandard.frame_content_size(data)
        if size > limit:
            raise _too_large(data, limit)
        return (
            zstandard.ZstdDecompressor().decompress(data, allow_extra_data=False)
            if size >= 0
            else _piecewise(data, limit)
        )
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from error


def _piecewise(data: bytes, limit: int) -> bytes:
    """The content of a frame that does not say its size."""
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

"""The version-4 document as a value: parsing from bytes, rendering to bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import msgspec
import zstandard

from kartothek_cube.core.metadata.partitions import (
    PartitionColumns,
    decode_partitions,
    encoded_pieces,
    from_mapping,
    to_mapping,
)
from kartothek_cube.errors import CorruptDocument, InvalidInput, InvalidType, Unsupported

__all__ = [
    "DROPPED_KEY",
    "LAYOUT_KEY",
    "OWN_PREFIX",
    "STATE_KEYS",
    "Document",
    "check_user_metadata",
    "check_version",
    "decompress",
    "document_from_mapping",
    "parse_document",
    "render_document",
]

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


VERSION = 4

OWN_PREFIX = "kartothek_cube."
LAYOUT_KEY = f"{OWN_PREFIX}layout"
DROPPED_KEY = f"{OWN_PREFIX}dropped"
# Of the library's own entries those that describe a state: tags and copies have them, too.
STATE_KEYS = (LAYOUT_KEY, DROPPED_KEY)

# More deeply nested values can be parsed, but neither copied nor rendered again.
_DEEPEST = 100


def check_version(version: object) -> None:
    """Raise `Unsupported` for versions of the format other than 4."""
    if not isinstance(version, int) or version != VERSION:
        raise Unsupported(f"Only metadata version {VERSION} is supported, not {version!r}.")


@dataclass(frozen=True, slots=True)
class Document:
    """One metadata document.

    Attributes
    ----------
    uuid : str
        The dataset.
    metadata : Mapping[str, Any]
        The whole member, with the library's own entries under ``kartothek_cube.``.
    partition_keys : tuple of str | None
        None if the document leaves them to the paths of the files.
    indices : Mapping[str, Any]
        Column → key of its index file, or, in old documents, an embedded map value → labels.
    partitions : PartitionColumns | None
        None for an implicit dataset, whose partitions are found by listing the store.
    """

    uuid: str
    metadata: Mapping[str, Any] = field(default_factory=dict)
    partition_keys: tuple[str, ...] | None = ()
    indices: Mapping[str, Any] = field(default_factory=dict)
    partitions: PartitionColumns | None = None

    @property
    def files(self) -> set[str]:
        """Keys of the data files that it names."""
        columns = () if self.partitions is None else self.partitions.files.values()
        return {key for column in columns for key in column.drop_null().to_pylist()}

    @property
    def index_files(self) -> set[str]:
        """Keys of the index files that it names."""
        return {key for key in self.indices.values() if isinstance(key, str)}

    @property
    def user_metadata(self) -> dict[str, Any]:
        """A copy of the metadata without the library's own entries."""
        return deepcopy({k: v for k, v in self.metadata.items() if not str(k).startswith(OWN_PREFIX)})


class _Members(msgspec.Struct):
    dataset_metadata_version: Any = msgspec.UNSET
    dataset_uuid: Any = msgspec.UNSET
    indices: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None
    partitions: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    partition_keys: list[str] | msgspec.UnsetType | None = msgspec.UNSET


def parse_document(data: bytes, key: str) -> Document:
    """Parse the bytes of a document. Its ``key`` names it in errors, and the suffix its encoding.

    Raises
    ------
    CorruptDocument
        If the bytes are not a document, or a mandatory member is missing.
    Unsupported
        If the format version is not 4.
    """
    msgpack = key.endswith(".zstd")
    try:
        if msgpack:
            members = msgspec.msgpack.decode(decompress(data), type=_Members)
        else:
            members = msgspec.json.decode(data, type=_Members)
    # TypeError: older versions of msgspec raise it for a key that is a map.
    except (msgspec.DecodeError, ValueError, TypeError, RecursionError) as error:
        raise CorruptDocument(f"The document {key} cannot be parsed: {error}") from error
    # Before the partitions, which may have another form in another version.
    _check_members(members, key)
    raw = members.partitions
    if isinstance(raw, msgspec.UnsetType):
        return _document(members, None)
    return _document(members, decode_partitions(memoryview(raw), key, msgpack=msgpack))


def document_from_mapping(plain: object, context: str) -> Document:
    """The document that a map of its members describes; errors as of `parse_document`."""
    rest = dict(plain) if isinstance(plain, dict) else plain
    partitions = rest.pop("partitions", msgspec.UNSET) if isinstance(rest, dict) else msgspec.UNSET
    try:
        members = msgspec.convert(rest, _Members)
    except msgspec.ValidationError as error:
        raise CorruptDocument(f"The document {context} cannot be parsed: {error}") from error
    _check_members(members, context)
    return _document(members, None if partitions is msgspec.UNSET else from_mapping(partitions, context))


def _check_members(members: _Members, key: str) -> None:
    version = members.dataset_metadata_version
    if isinstance(version, bool) or not isinstance(version, int):
        raise CorruptDocument(f"The document {key} has no integer 'dataset_metadata_version'.")
    if version < VERSION:
        raise Unsupported(f"Minimal supported metadata version is {VERSION}. The document {key} has version {version}.")
    if version > VERSION:
        raise Unsupported(
            f"Future metadata version `{version}` encountered in {key}; this library knows version {VERSION}."
        )
    if not isinstance(members.dataset_uuid, str):
        raise CorruptDocument(f"The document {key} has no 'dataset_uuid'.")
    keys = members.partition_keys or []
    if len({*keys}) != len(keys):
        raise CorruptDocument(f"The document {key} names a partition key twice: {keys}.")
    if _is_deep([members.metadata, members.indices]):
        raise CorruptDocument(f"The metadata or indices of the document {key} are nested more than {_DEEPEST} deep.")


def _is_deep(value: object) -> bool:
    level = [value]
    for _ in range(_DEEPEST + 1):
        level = [
            inner for v in level if isinstance(v, (dict, list)) for inner in (v.values() if isinstance(v, dict) else v)
        ]
        if not level:
            return False
    return True


def _document(members: _Members, partitions: PartitionColumns | None) -> Document:
    keys = members.partition_keys
    return Document(
        uuid=members.dataset_uuid,
        metadata=members.metadata or {},
        partition_keys=None if keys is None or isinstance(keys, msgspec.UnsetType) else tuple(keys),
        indices=members.indices or {},
        partitions=partitions,
    )


def render_document(document: Document, *, msgpack: bool = False) -> bytes:
    """The bytes of a document, with members in kartothek's order."""
    if msgpack:
        return zstandard.compress(msgspec.msgpack.encode(_members(document, with_partitions=True)))
    text = json.dumps(_members(document, with_partitions=False)).encode()
    if document.partitions is None:
        return text
    # The partitions, which have an encoder of their own, come before the keys or the last brace.
    name = b', "partition_keys": ' if document.partition_keys is not None else b"}"
    before, after = text.rsplit(name, 1)
    return b"".join((before, b', "partitions": ', *encoded_pieces(document.partitions), name, after))


def _members(document: Document, *, with_partitions: bool) -> dict[str, Any]:
    members: dict[str, Any] = {"dataset_metadata_version": VERSION, "dataset_uuid": document.uuid}
    if document.indices:
        members["indices"] = dict(document.indices)
    members["metadata"] = dict(document.metadata)
    if with_partitions and document.partitions is not None:
        members["partitions"] = to_mapping(document.partitions)
    if document.partition_keys is not None:
        members["partition_keys"] = list(document.partition_keys)
    return members


def check_user_metadata(metadata: object, context: str) -> dict[str, Any]:
    """User metadata as JSON returns it, after checks: JSON can hold it, and no name is reserved."""
    if not isinstance(metadata, dict):
        raise InvalidType(f"The metadata of {context} should be a dict but is {type(metadata).__name__}.")
    reserved = sorted(str(k) for k in metadata if str(k).startswith(OWN_PREFIX))
    if reserved:
        raise InvalidInput(
            f"The metadata of {context} uses names that the library keeps for itself: {', '.join(reserved)}."
        )
    try:
        plain: dict[str, Any] = json.loads(json.dumps(metadata, allow_nan=False))
    except TypeError as error:
        raise InvalidType(f"The metadata of {context} cannot be written as JSON: {error}.") from None
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"The metadata of {context} cannot be written as JSON: {error}.") from None
    if _is_deep([plain]):
        raise InvalidInput(f"The metadata of {context} are nested more than {_DEEPEST} deep.")
    return plain

"""The version-4 document as a value: parsing from bytes, rendering to bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import msgspec
import zstandard

from kartothek_cube.core.metadata.partitions import PartitionColumns, decode_partitions, encoded_pieces, from_mapping, to_mapping
from kartothek_cube.core.unpack import unpack
from kartothek_cube.errors import CorruptDocument, InvalidInput, InvalidType, Unsupported

__all__ = ["OWN_PREFIX", "Document", "check_user_metadata", "document_from_mapping", "parse_document", "render_document"]

VERSION = 4
OWN_PREFIX = "kartothek_cube."
# What is nested deeper could be parsed, but neither copied nor rendered again.
_DEEPEST = 100


@dataclass(frozen=True, slots=True)
class Document:
    """One metadata document.

    ``partitions`` is None for an implicit dataset, whose partitions are found by listing the store; ``indices`` maps a
    column to the key of its index file, or, in old documents, to an embedded map value → labels; ``partition_keys`` is None
    where the document leaves them to the paths of the files. ``metadata`` is the
    whole member, with the entries that the library keeps for itself under ``kartothek_cube.``.
    """

    uuid: str
    metadata: Mapping[str, Any] = field(default_factory=dict)
    partition_keys: tuple[str, ...] | None = ()
    indices: Mapping[str, Any] = field(default_factory=dict)
    partitions: PartitionColumns | None = None

    @property
    def user_metadata(self) -> dict[str, Any]:
        """What users see: a copy of the metadata without the library's own entries."""
        return deepcopy({k: v for k, v in self.metadata.items() if not str(k).startswith(OWN_PREFIX)})


class _Members(msgspec.Struct):
    dataset_metadata_version: Any = msgspec.UNSET
    dataset_uuid: Any = msgspec.UNSET
    indices: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None
    partitions: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    partition_keys: list[str] | msgspec.UnsetType | None = msgspec.UNSET


def parse_document(data: bytes, key: str) -> Document:
    """Parse the bytes of a document; ``key`` says in errors which one, and by its suffix in which encoding it is.

    Raises
    ------
    CorruptDocument
        If it is no document at all, or lacks a mandatory member.
    Unsupported
        If its format version is not 4.
    """
    return _parse_msgpack(data, key) if key.endswith(".zstd") else _parse_json(data, key)


def _parse_json(data: bytes, key: str) -> Document:
    try:
        members = msgspec.json.decode(data, type=_Members)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptDocument(f"The document {key} cannot be parsed: {error}") from error
    return _checked(members, key, msgpack=False)


def _parse_msgpack(data: bytes, key: str) -> Document:
    try:
        members = msgspec.msgpack.decode(unpack(data), type=_Members)
    # TypeError: older versions of msgspec say so of a key that is a map.
    except (msgspec.DecodeError, ValueError, TypeError, RecursionError) as error:
        raise CorruptDocument(f"The document {key} cannot be parsed: {error}") from error
    return _checked(members, key, msgpack=True)


def _checked(members: _Members, key: str, *, msgpack: bool) -> Document:
    _check_members(members, key)
    raw = members.partitions
    return _document(members, None if isinstance(raw, msgspec.UnsetType) else decode_partitions(memoryview(raw), key, msgpack=msgpack))


def document_from_mapping(plain: object, where: str) -> Document:
    """The document that a map of its members describes; errors as of `parse_document`."""
    rest = dict(plain) if isinstance(plain, dict) else plain
    partitions = rest.pop("partitions", msgspec.UNSET) if isinstance(rest, dict) else msgspec.UNSET
    try:
        members = msgspec.convert(rest, _Members)
    except msgspec.ValidationError as error:
        raise CorruptDocument(f"The document {where} cannot be parsed: {error}") from error
    _check_members(members, where)
    return _document(members, None if partitions is msgspec.UNSET else from_mapping(partitions, where))


def _check_members(members: _Members, key: str) -> None:
    """Before the partitions are looked at: those of another version may look different."""
    _check_version(members.dataset_metadata_version, key)
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
        level = [inner for v in level if isinstance(v, (dict, list)) for inner in (v.values() if isinstance(v, dict) else v)]
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


def _check_version(version: object, key: str) -> None:
    if isinstance(version, bool) or not isinstance(version, int):
        raise CorruptDocument(f"The document {key} has no integer 'dataset_metadata_version'.")
    if version < VERSION:
        raise Unsupported(f"Minimal supported metadata version is {VERSION}. The document {key} has version {version}.")
    if version > VERSION:
        raise Unsupported(f"Future metadata version `{version}` encountered in {key}; this library knows version {VERSION}.")


def render_document(document: Document, *, msgpack: bool = False) -> bytes:
    """The bytes of a document, members in the order in which kartothek writes them."""
    if msgpack:
        return zstandard.compress(msgspec.msgpack.encode(_members(document, with_partitions=True)))
    text = json.dumps(_members(document, with_partitions=False)).encode()
    if document.partitions is None:
        return text
    before, after = text.rsplit(b', "partition_keys": ', 1) if document.partition_keys is not None else (text[:-1], None)
    rest = b"}" if after is None else b', "partition_keys": ' + after
    return b"".join((before, b', "partitions": ', *encoded_pieces(document.partitions), rest))


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


def check_user_metadata(metadata: object, where: str) -> dict[str, Any]:
    """User metadata as it will come back from JSON; refuses what JSON cannot hold and the library's own names."""
    if not isinstance(metadata, dict):
        raise InvalidType(f"The metadata of {where} should be a dict but is {type(metadata).__name__}.")
    reserved = sorted(str(k) for k in metadata if str(k).startswith(OWN_PREFIX))
    if reserved:
        raise InvalidInput(f"The metadata of {where} uses names that the library keeps for itself: {', '.join(reserved)}.")
    try:
        plain: dict[str, Any] = json.loads(json.dumps(metadata, allow_nan=False))
    except TypeError as error:
        raise InvalidType(f"The metadata of {where} cannot be written as JSON: {error}.") from None
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"The metadata of {where} cannot be written as JSON: {error}.") from None
    if _is_deep([plain]):
        raise InvalidInput(f"The metadata of {where} are nested more than {_DEEPEST} deep.")
    return plain

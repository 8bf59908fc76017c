"""The compare-and-swap of a metadata document: one conditional put, and what became of it."""

from __future__ import annotations

import warnings
from collections.abc import Hashable
from contextlib import suppress
from dataclasses import dataclass

from kartothek_cube.core.change import Change
from kartothek_cube.core.metadata.chain import LENGTH, Commit, chain_of
from kartothek_cube.core.metadata.document import Document, parse_document, render_document
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.naming import document_key
from kartothek_cube.core.rebase import refuse
from kartothek_cube.core.store import Store, VersionMismatch
from kartothek_cube.errors import CommitOutcomeUnknown, CorruptDocument, KeyNotFound, Unsupported

__all__ = ["Superseded", "own_key", "swap"]

_SAME_PUT_TRIES = 3


class Superseded(Exception):
    """The document moved on without this commit, which is certainly not visible."""


@dataclass(frozen=True, slots=True)
class _Put:
    """One conditional put. ``parent`` is the commit that it builds on."""

    change: Change
    key: str
    data: bytes
    version: Hashable
    parent: str | None


def own_key(change: Change, base: Snapshot | None) -> str:
    """Key of the document: a new one has the encoding that was asked for, one that exists keeps its own."""
    return document_key(change.uuid, msgpack=change.msgpack) if base is None else base.key


def swap(store: Store, change: Change, base: Snapshot | None, document: Document) -> Hashable:
    """Put the document if it is still the one of ``base``; its new version, or None if others have committed onto it since.

    ``change`` is the last one that the document has.

    Raises
    ------
    Superseded
        If somebody else came first.
    CommitOutcomeUnknown
        If the store does not say whether the document was written and cannot be asked.
    """
    twin = _stale_twin(store, change, base)
    key = own_key(change, base)
    parent = None if base is None or base.has_foreign_commit else base.chain[-1].id
    data = render_document(document, msgpack=key.endswith(".zstd"))
    token = _put_until_known(store, _Put(change, key, data, None if base is None else base.token, parent))
    if base is None:
        _withdraw_before(store, change, key)
    elif key != document_key(change.uuid):
        _check_not_shadowed(store, change)
    _drop_msgpack(store, change.uuid, twin)
    return token


def _stale_twin(store: Store, change: Change, base: Snapshot | None) -> Hashable:
    """Version of the msgpack document that an old library left beside the JSON one that is about to be written; None if there is none.

    Beside a new document it is no stale one: somebody has created the same dataset since.
    """
    key, json_key, msgpack_key = own_key(change, base), document_key(change.uuid), document_key(change.uuid, msgpack=True)
    if key != json_key:
        return None
    if base is None:
        if store.contains(msgpack_key):
            refuse(change, base, None, f"{msgpack_key!r} was created")
        return None
    try:
        return store.get_versioned(msgpack_key)[1]
    except KeyNotFound:
        return None


def _drop_msgpack(store: Store, uuid: str, twin: Hashable) -> None:
    """Unless it is another one than before the commit: somebody may have changed the dataset's encoding since."""
    key = document_key(uuid, msgpack=True)
    with suppress(Exception):  # the commit has landed; the next one looks again
        if twin is None or store.changed(key, twin):
            return
        store.delete(key)
        warnings.warn(f"Dataset {uuid!r} had two documents. {document_key(uuid)!r} counts; {key!r} was removed.", stacklevel=2)


def _withdraw_before(store: Store, change: Change, key: str) -> None:
    """Of two creators who write documents of different encodings, whoever sees the other's gives up; so at most one has created the dataset."""
    other = document_key(change.uuid, msgpack=key == document_key(change.uuid))
    try:
        found = store.contains(other)
        if found:
            store.delete(key)
    except Exception as error:
        raise CommitOutcomeUnknown(
            f"Dataset {change.uuid!r}: {key!r} was written by {change.describe()}, but whether {other!r} was created at the same time cannot be asked now "
            f"({error!r}). Look which of them are there before writing again."
        ) from error
    if found:
        refuse(change, None, None, f"{other!r} was created at the same time")


def _check_not_shadowed(store: Store, change: Change) -> None:
    """kartothek updates a msgpack document by a JSON one beside it, which counts from then on: a commit beneath it is seen by nobody."""
    key = document_key(change.uuid)
    try:
        shadow = _chain_in(store.get(key), key)
    except KeyNotFound:
        return
    except Exception as error:
        raise CommitOutcomeUnknown(
            f"Dataset {change.uuid!r}: {change.describe()} was written to {document_key(change.uuid, msgpack=True)!r}, but whether {key!r} was put beside it "
            f"cannot be asked now ({error!r}). Look whether it is there before writing again."
        ) from error
    if change.commit not in [c.id for c in shadow]:
        raise Superseded(key)


def _put_until_known(store: Store, put: _Put) -> Hashable:
    """Put on condition, and the version that our document has; None if others have committed onto it since.

    An answer that is an error says little: the document itself says whether our commit is in it.
    """
    failure: Exception = CommitOutcomeUnknown(put.key)
    for _ in range(_SAME_PUT_TRIES):
        try:
            return store.put_if(put.key, put.data, put.version)
        except Exception as error:
            failure = error
        found, token = _look(store, put, failure)
        if put.change.commit in [c.id for c in found]:
            return token if found[-1].id == put.change.commit else None
        if token != put.version:
            _check_known(put, found, failure)
            raise Superseded(put.key) from failure
        # The document is still the one that we started from: the same put again, of which at most one can win.
        if not isinstance(failure, (OSError, VersionMismatch)):
            break
    if isinstance(failure, VersionMismatch):
        raise Superseded(put.key) from failure
    raise failure


def _check_known(put: _Put, found: tuple[Commit, ...], failure: Exception) -> None:
    """Our commit may have landed and have left the chain since, if the one that it built on has left it too."""
    if not found or put.parent in [c.id for c in found]:
        return
    # A chain gets lost at its length, and where one of ours comes after a foreign writer; that is no doubt where the store has said no.
    is_cut = len(found) == LENGTH and found[0].parent is not None
    if is_cut or (put.parent is not None and not isinstance(failure, VersionMismatch)):
        raise CommitOutcomeUnknown(
            f"Dataset {put.change.uuid!r}: the store answered {failure!r} to {put.change.describe()}, and so much has followed that {put.key!r} does not say "
            "any more what became of it. Look whether its partitions are there before writing again."
        ) from failure


def _look(store: Store, put: _Put, failure: Exception) -> tuple[tuple[Commit, ...], Hashable]:
    try:
        data, token = store.get_versioned(put.key)
    except KeyNotFound:
        return (), None
    except Exception as error:
        raise CommitOutcomeUnknown(
            f"Dataset {put.change.uuid!r}: the store {store.name} answered {failure!r} to {put.change.describe()} and cannot be read now ({error!r}). "
            f"Look at {put.key!r} for the commit id before writing again."
        ) from failure
    return _chain_in(data, put.key), token


def _chain_in(data: bytes, key: str) -> tuple[Commit, ...]:
    try:
        return chain_of(parse_document(data, key).metadata)
    except (CorruptDocument, Unsupported):
        return ()

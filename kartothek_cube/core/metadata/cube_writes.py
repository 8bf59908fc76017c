"""Records of writes to several datasets of a cube: the mark of a dataset, the ledger of the seed.

Pure. The page `docs/design/007-cube-writes.md` has the protocol.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum
from typing import Any

from kartothek_cube.core.metadata.commit_log import COMMITS_KEY, chain_of, encode_chain
from kartothek_cube.core.metadata.document import Document
from kartothek_cube.core.metadata.partitions import empty_partitions

__all__ = [
    "LEDGER_KEY",
    "MARK_KEY",
    "CubeMark",
    "CubePart",
    "Fate",
    "Ledger",
    "fate_of",
    "ledger_of",
    "mark_of",
    "pending_mark",
    "records_after",
    "removal_of",
    "settled",
    "taken_back",
    "to_be_removed",
    "vacancy",
    "with_ledger",
    "without_last_commit",
]

MARK_KEY = "kartothek_cube.cube_write"
LEDGER_KEY = "kartothek_cube.cube_writes"
# The write that was taken back last: a delayed put of that write must not find the same content.
_TAKEN_BACK_KEY = "kartothek_cube.taken_back"
# When somebody began to remove a document that no reader sees.
_REMOVAL_KEY = "kartothek_cube.removal"


@dataclass(frozen=True, slots=True)
class CubeMark:
    """The last write to several datasets that a dataset took part in.

    Attributes
    ----------
    write : str
        The write.
    coordinator : str
        Uuid of the dataset whose ledger decides whether the write has committed.
    before : str | None
        The write to several datasets before, None for the first one.
    commit : str
        The commit of the dataset.
    is_pending : bool
        Whether the ledger has to be asked.
    creates : bool
        Whether the write makes the coordinator.
    had_ledger : bool
        Whether the coordinator had a ledger when the write began.
    known : str | None
        The last write with this dataset that the ledger had then. An older version of this library
        removes the mark of before, or the ledger.
    is_new : bool
        Whether the write makes the dataset.
    """

    write: str
    coordinator: str
    before: str | None
    commit: str
    is_pending: bool = True
    creates: bool = False
    had_ledger: bool = False
    known: str | None = None
    is_new: bool = False


@dataclass(frozen=True, slots=True)
class Ledger:
    """What the coordinator knows of the writes to several datasets of its cube.

    Attributes
    ----------
    last : Mapping[str, str]
        Uuid of a dataset → the last write with this dataset that has committed.
    aborted : Mapping[str, tuple of str]
        Writes that will never commit, and their datasets.
    epoch : str
        New with each abort: a write that began before one cannot commit after it, and no delayed
        put finds the content of before.
    is_vacant : bool
        Whether the document is there for the ledger only: the dataset does not exist.
    """

    last: Mapping[str, str] = field(default_factory=dict)
    aborted: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    epoch: str = ""
    is_vacant: bool = False


@dataclass(frozen=True, slots=True)
class CubePart:
    """The part that one dataset has in a write to several.

    Attributes
    ----------
    coordinator : str
        Uuid of the coordinator.
    others : tuple of str
        Uuids of the other datasets.
    creates : bool
        As in `CubeMark`.
    ledger : Ledger | None
        The ledger when the write began.
    befores : Mapping[str, tuple]
        In the part of the coordinator: uuid of another dataset → what the ledger may still name as
        its last write.
    """

    coordinator: str
    others: tuple[str, ...]
    creates: bool = False
    ledger: Ledger | None = None
    befores: Mapping[str, tuple[str | None, ...]] = field(default_factory=dict)


class Fate(Enum):
    """What has become of a write that is pending in a dataset."""

    COMMITTED = "committed"
    PENDING = "pending"
    ABORTED = "aborted"
    UNKNOWN = "unknown"  # a writer that keeps no records has removed the ledger


def mark_of(metadata: Mapping[str, Any]) -> CubeMark | None:
    """The mark in the metadata of a document; None if there is none, or none that can be read."""
    try:
        return CubeMark(**json.loads(metadata[MARK_KEY]))
    except (LookupError, TypeError, ValueError, RecursionError):
        return None


def pending_mark(document: Document) -> CubeMark | None:
    """The mark of a write whose fate the ledger knows, None if the document is what it says."""
    mark = mark_of(document.metadata)
    return mark if mark is not None and mark.is_pending else None


def ledger_of(metadata: Mapping[str, Any]) -> Ledger | None:
    """The ledger in the metadata of a document; None if there is none, or none that can be read."""
    try:
        stored = json.loads(metadata[LEDGER_KEY])
        aborted = {str(write): tuple(map(str, uuids)) for write, uuids in stored["aborted"].items()}
        return Ledger(dict(stored["last"]), aborted, str(stored["epoch"]), bool(stored.get("vacant", False)))
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError):
        return None


def fate_of(mark: CubeMark, uuid: str, coordinator: Document | None) -> Fate:
    """What has become of a pending write to a dataset.

    ``coordinator`` is its document, as it was read after that of the dataset.
    """
    if coordinator is None:
        return Fate.PENDING if mark.creates else Fate.UNKNOWN
    # An older version of this library drops the ledger, but keeps the chain.
    if mark.write in [commit.cube.id for commit in chain_of(coordinator.metadata) if commit.cube is not None]:
        return Fate.COMMITTED
    ledger = ledger_of(coordinator.metadata)
    if ledger is None:
        return Fate.UNKNOWN if mark.had_ledger else Fate.PENDING
    last = ledger.last.get(uuid)
    if last == mark.write:
        return Fate.COMMITTED
    if mark.write in ledger.aborted:
        return Fate.ABORTED
    return Fate.PENDING if last in (mark.before, mark.known) or ledger.is_vacant else Fate.UNKNOWN


def records_after(
    part: CubePart | None, uuid: str, write: str | None, commit: str, before: Mapping[str, Any], *, is_new: bool = False
) -> dict[str, str]:
    """The records of a document after a commit; ``before`` are the metadata before.

    ``before`` are those of the state that readers see: a pending mark there has committed.
    ``is_new`` says that there was no dataset.
    """
    records = {}
    if (mark := mark_of(before)) is not None:
        records[MARK_KEY] = _encoded(replace(mark, is_pending=False))
    if (ledger := ledger_of(before)) is not None:
        records[LEDGER_KEY] = _encoded_ledger(replace(ledger, is_vacant=False))
    if part is None or write is None:
        return records
    if uuid == part.coordinator:
        known = ledger or Ledger()
        records[LEDGER_KEY] = _encoded_ledger(
            replace(known, last={**known.last, **dict.fromkeys(part.others, write)}, is_vacant=False)
        )
    else:
        last = None if mark is None else mark.write
        named = None if part.ledger is None else part.ledger.last.get(uuid)
        had_ledger = part.ledger is not None
        new = CubeMark(write, part.coordinator, last, commit, True, part.creates, had_ledger, named, is_new)
        records[MARK_KEY] = _encoded(new)
    return records


def settled(document: Document) -> Document:
    """A document whose pending write has committed, as it is once nobody has to ask the ledger."""
    mark = mark_of(document.metadata)
    assert mark is not None
    return replace(document, metadata={**document.metadata, MARK_KEY: _encoded(replace(mark, is_pending=False))})


def with_ledger(document: Document, ledger: Ledger) -> Document:
    """A document with another ledger."""
    return replace(document, metadata={**document.metadata, LEDGER_KEY: _encoded_ledger(ledger)})


def vacancy(uuid: str, ledger: Ledger) -> Document:
    """The document of a coordinator that does not exist."""
    return with_ledger(Document(uuid, {}, (), {}, empty_partitions()), replace(ledger, is_vacant=True))


def without_last_commit(before: Document, after: Document) -> Document:
    """The document before a commit as it was, with the chain that the one after it has."""
    chain = chain_of(after.metadata)[:-1]
    return replace(before, metadata={**before.metadata, COMMITS_KEY: encode_chain(chain)}) if chain else before


def taken_back(before: Document, write: str) -> Document:
    """The document to put in place of one with a write that will never commit."""
    return replace(before, metadata={**before.metadata, _TAKEN_BACK_KEY: write})


def to_be_removed(document: Document, now: datetime) -> Document:
    """The document to put in place of one that nobody sees, before it is removed."""
    return replace(document, metadata={**document.metadata, _REMOVAL_KEY: now.isoformat()})


def removal_of(document: Document) -> datetime | None:
    """When somebody began to remove a document, None if nobody did."""
    try:
        return datetime.fromisoformat(document.metadata[_REMOVAL_KEY])
    except (LookupError, TypeError, ValueError):
        return None


def _encoded(mark: CubeMark) -> str:
    return json.dumps({name: getattr(mark, name) for name in CubeMark.__slots__})


def _encoded_ledger(ledger: Ledger) -> str:
    aborted = {write: list(uuids) for write, uuids in ledger.aborted.items()}
    stored: dict[str, Any] = {"last": dict(ledger.last), "aborted": aborted, "epoch": ledger.epoch}
    return json.dumps({**stored, "vacant": True} if ledger.is_vacant else stored)

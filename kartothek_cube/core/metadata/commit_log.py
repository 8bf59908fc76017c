"""The commit log of a document, and other records of writes. Pure.

In order:

- a chain of ids, with fingerprints that reveal foreign writers
- writes to several datasets: the mark of a dataset, the ledger of the seed; `docs/design/007-cube-
  writes.md` has the protocol
- numbered writes of applications: a repeated number is skipped
"""

from __future__ import annotations

import hashlib
import json
import operator
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from enum import Enum
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field
from msgspec.structs import replace

from kartothek_cube.core.metadata.document import Document, PartitionColumns, empty_partitions, parse_document
from kartothek_cube.errors import CorruptDocument, InvalidInput, InvalidType, Unsupported

COMMITS_KEY = "kartothek_cube.commits"
SCHEMA_KEY = "kartothek_cube.schema"
# Set while the encoding of the document is being changed or the dataset renamed: no commit may
# follow.
MOVING_KEY = "kartothek_cube.moving"
LENGTH = 32
# Of fewer texts a list of Python is hashed sooner than Arrow has joined them.
_MANY = 500


class CubeCommit(Struct, frozen=True):
    """A write to several datasets of a cube: its id, and the uuids of these datasets."""

    id: str
    datasets: tuple[str, ...]


class Commit(Struct, frozen=True):
    """One entry of the chain.

    Attributes
    ----------
    id : str
        The commit.
    parent : str | None
        The commit before; None for the first one, and for the first one after a foreign writer.
    fingerprint : str
        `fingerprint` of the partitions after the commit.
    time : datetime | None
        The time of the commit in UTC, by the writer's clock.
    cube : CubeCommit | None
        The write to a cube that the commit is a part of.
    """

    id: str
    parent: str | None
    fingerprint: str
    time: datetime | None = None
    cube: CubeCommit | None = None


def fingerprint(partitions: PartitionColumns | None) -> str:
    """Hash of labels and file keys in their order; it does not depend on how JSON spells them."""
    if partitions is None:
        return _digest([])
    if partitions.known_fingerprint is None:
        # A document without partitions cannot name their tables.
        files = sorted(partitions.files.items()) if len(partitions) else []
        object.__setattr__(partitions, "known_fingerprint", _digest([("", partitions.labels), *files]))
    assert partitions.known_fingerprint is not None
    return partitions.known_fingerprint


def _digest(columns: Iterable[tuple[str, pa.Array]]) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for name, column in columns:
        digest.update(name.encode() + b"\0")
        if len(column) < _MANY:
            few = column.cast(pa.binary()).to_pylist()
            digest.update(b"\0".join(b"\x01" if text is None else text for text in few))
            continue
        # All texts as one, joined by Arrow: no Python object per label.
        texts = column.cast(pa.large_string()).fill_null("\x01")
        whole = pa.LargeListArray.from_arrays(pa.array([0, len(texts)], type=pa.int64()), texts)
        joined = pc.binary_join(whole, pa.scalar("\x00", pa.large_string()))
        digest.update(memoryview(joined[0].as_buffer()))
    return digest.hexdigest()


def chain_of(metadata: Mapping[str, Any]) -> tuple[Commit, ...]:
    """The chain in the metadata of a document, oldest first; empty if missing or unreadable."""
    try:
        return _chain_in(metadata[COMMITS_KEY])
    except (LookupError, TypeError, ValueError, OverflowError, RecursionError):
        return ()


def stored_chain(data: bytes, key: str) -> tuple[Commit, ...]:
    """The chain in the bytes of a document, oldest first; empty if missing or unreadable."""
    try:
        return chain_of(parse_document(data, key).metadata)
    except (CorruptDocument, Unsupported):
        return ()


@lru_cache(maxsize=256)
def _chain_in(text: str) -> tuple[Commit, ...]:
    # A commit asks for the chains of two documents, seven times.
    return tuple(_decoded(*entry) for entry in json.loads(text))


def _decoded(
    commit: object, parent: object, mark: object, time: str | None = None, cube: tuple[str, list[str]] | None = None
) -> Commit:
    moment = None if time is None else datetime.fromisoformat(time).astimezone(UTC)
    write = None if cube is None else CubeCommit(str(cube[0]), tuple(cube[1]))
    return Commit(str(commit), None if parent is None else str(parent), str(mark), moment, write)


def is_foreign(metadata: Mapping[str, Any], partitions: PartitionColumns | None) -> bool:
    """Whether the last writer does not know commit ids, as kartothek and plateau do not."""
    chain = chain_of(metadata)
    return not chain or chain[-1].fingerprint != fingerprint(partitions)


def extend_chain(chain: tuple[Commit, ...], commit: Commit, *, foreign: bool) -> str:
    """The chain with one more commit, as it is stored; its parent is set here."""
    # After a foreign writer a new chain begins: the commits before are not its ancestors.
    kept = () if foreign else chain[-(LENGTH - 1) :]
    return encode_chain((*kept, replace(commit, parent=kept[-1].id if kept else None)))


def encode_chain(chain: Iterable[Commit]) -> str:
    """The chain as it is stored; the reverse of `chain_of`."""
    entries = []
    for each in chain:
        time = None if each.time is None else each.time.isoformat()
        cube = None if each.cube is None else [each.cube.id, list(each.cube.datasets)]
        entry: list[Any] = [each.id, each.parent, each.fingerprint, time, cube]
        # Entries end with their last known member, since older ones have no time and no cube.
        while entry[-1] is None:
            entry.pop()
        entries.append(entry)
    return json.dumps(entries)


# --- writes to several datasets -------------------------------------------------------------------


MARK_KEY = "kartothek_cube.cube_write"
LEDGER_KEY = "kartothek_cube.cube_writes"
# The write that was taken back last: a delayed put of that write must not find the same content.
_TAKEN_BACK_KEY = "kartothek_cube.taken_back"
# When somebody began to remove a document that no reader sees.
_REMOVAL_KEY = "kartothek_cube.removal"


class CubeMark(Struct, frozen=True):
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


class Ledger(Struct, frozen=True):
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


class CubePart(Struct, frozen=True):
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
    """The document that rolls back an aborted write."""
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
    return json.dumps({name: getattr(mark, name) for name in CubeMark.__struct_fields__})


def _encoded_ledger(ledger: Ledger) -> str:
    aborted = {write: list(uuids) for write, uuids in ledger.aborted.items()}
    stored: dict[str, Any] = {"last": dict(ledger.last), "aborted": aborted, "epoch": ledger.epoch}
    return json.dumps({**stored, "vacant": True} if ledger.is_vacant else stored)


# --- numbered writes of applications --------------------------------------------------------------


TXN_KEY = "kartothek_cube.txn"
_LIMIT = 2**63 - 1


class Txn(Struct, frozen=True):
    """One write of an application that numbers its writes.

    Attributes
    ----------
    application : str
        The application that numbers its writes, e.g. the id of a streaming query.
    number : int
        0 to 2**63 - 1. A dataset takes each application's numbers in ascending order, and each at
        most once; some may be left out.
    """

    application: str
    number: int


def parse_txn(value: object) -> Txn | None:
    """The argument ``txn`` of a writing verb: None, or a pair ``(application id, number)``.

    Raises
    ------
    InvalidType
        If it is something else, or the application is no text or the number no integer.
    InvalidInput
        If the application is empty or the number is negative or above 2**63 - 1.

    Examples
    --------
    >>> parse_txn(("weekly sales", 18))
    Txn(application='weekly sales', number=18)
    """
    if value is None or isinstance(value, Txn):
        return value
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise InvalidType(f'txn is a pair (application id, number), e.g. ("weekly sales", 18), not {value!r:.200}.')
    application, number = value
    if not isinstance(application, str) or isinstance(number, bool) or not hasattr(number, "__index__"):
        raise InvalidType(f'txn is a text and an integer, e.g. ("weekly sales", 18), not {value!r:.200}.')
    if not application:
        raise InvalidInput(
            "txn has an empty application id. Give each application, e.g. each streaming query, an id of its own."
        )
    number = operator.index(number)
    if not 0 <= number <= _LIMIT:
        raise InvalidInput(f"The number of txn is 0 to 2**63 - 1, not {number}; application {application!r}.")
    return Txn(application, number)


def last_number(metadata: Mapping[str, Any], application: str) -> int | None:
    """The number of an application's last write in the metadata of a document; None: no write.

    Raises
    ------
    CorruptDocument
        If the numbers are damaged: then it is unknown which writes were applied.

    Examples
    --------
    >>> last_number({"kartothek_cube.txn": '{"weekly sales": 18}'}, "weekly sales")
    18
    """
    return _numbers(metadata).get(application)


def is_applied(txn: Txn | None, metadata: Mapping[str, Any]) -> bool:
    """Whether a write was applied already: its number is not above the last one."""
    last = None if txn is None else last_number(metadata, txn.application)
    return txn is not None and last is not None and txn.number <= last


def with_txn(txn: Txn | None, metadata: Mapping[str, Any]) -> dict[str, str]:
    """The entry of a document about numbered writes after one more; ``metadata`` is that before."""
    if txn is not None:
        return {TXN_KEY: json.dumps({**_numbers(metadata), txn.application: txn.number})}
    return {TXN_KEY: metadata[TXN_KEY]} if TXN_KEY in metadata else {}


def _numbers(metadata: Mapping[str, Any]) -> dict[str, int]:
    text = metadata.get(TXN_KEY, "{}")
    try:
        numbers = json.loads(text)
        if isinstance(numbers, dict) and all(type(n) is int for n in numbers.values()):
            return numbers
    except (TypeError, ValueError, RecursionError):
        pass
    raise CorruptDocument(
        f"The metadata {TXN_KEY!r} should be a JSON map application id → last number, but are {text!r:.200}. "
        "Nothing was written."
    )

"""Marks: when a garbage collection first saw a file, for stores that keep no modification times."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import msgspec

from kartothek_cube.core.metadata.naming import new_id
from kartothek_cube.core.runtime.executor import map_in_threads
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.errors import KeyNotFound

__all__ = [
    "MARKS_FOLDER",
    "FirstSeen",
    "FirstSeenPlan",
    "is_mark_key",
    "marked_since",
    "plan_marks",
    "read_marks",
    "write_marks",
]

MARKS_FOLDER = "_gc"
_MARK = re.compile(rf"[^/]+/{MARKS_FOLDER}/[^/]+\.json")


@dataclass(frozen=True, slots=True)
class FirstSeen:
    """A mark: at ``time`` (UTC, clock of the collecting process) no document named these keys.

    ``key`` is the key of the mark itself.
    """

    key: str
    time: datetime
    keys: frozenset[str]


@dataclass(frozen=True, slots=True)
class FirstSeenPlan:
    """Marks to write, new or rewritten, and keys of marks to delete."""

    written: tuple[FirstSeen, ...]
    dropped: tuple[str, ...]


def is_mark_key(key: str) -> bool:
    """Whether a key is that of a mark of some dataset."""
    return _MARK.fullmatch(key) is not None


def _by_age(marks: Iterable[FirstSeen], now: datetime) -> list[FirstSeen]:
    # A mark from the future comes from a wrong clock: it proves no age.
    return sorted((m for m in marks if m.time <= now), key=lambda m: (m.time, m.key))


def marked_since(marks: Iterable[FirstSeen], now: datetime) -> dict[str, datetime]:
    """The time of the oldest mark of each key."""
    return {key: mark.time for mark in reversed(_by_age(marks, now)) for key in mark.keys}


def plan_marks(
    marks: Sequence[FirstSeen], pending: AbstractSet[str], now: datetime, is_ours: Callable[[str], bool], home: str
) -> FirstSeenPlan:
    """Plan which marks to write and to delete.

    A key has one mark, the oldest, and only while it is pending: garbage of unknown age that stays.
    A key that is about to be removed, or is named again, loses its mark, so that a later file of
    the same key does not inherit the age.

    Parameters
    ----------
    marks : sequence of FirstSeen
        The marks in the store.
    pending : set of str
        Keys that need a mark.
    now : datetime
        Time of new marks.
    is_ours : Callable
        Whether this collection examined a key; marks of other keys stay.
    home : str
        Uuid of the dataset that keeps the marks of keys outside of any folder.
    """
    seen: set[str] = set()
    live: dict[str, frozenset[str]] = {}
    for mark in _by_age(marks, now):
        live[mark.key] = frozenset(k for k in mark.keys if not is_ours(k) or (k in pending and k not in seen))
        seen |= live[mark.key]
    # One new mark for each dataset, so that it is deleted together with the dataset.
    owners: dict[str, list[str]] = {}
    for key in pending - seen:
        owner, slash, _ = key.partition("/")
        owners.setdefault(owner if slash else home, []).append(key)
    created = [
        FirstSeen(f"{owner}/{MARKS_FOLDER}/{new_id()}.json", now, frozenset(keys))
        for owner, keys in sorted(owners.items())
    ]
    rewritten = [replace(m, keys=live[m.key]) for m in marks if live.get(m.key) and live[m.key] != m.keys]
    return FirstSeenPlan((*rewritten, *created), tuple(m.key for m in marks if not live.get(m.key)))


# --- in the store ---------------------------------------------------------------------------------


class _Mark(msgspec.Struct):
    time: datetime
    keys: list[str]


def read_marks(store: Store, keys: Iterable[str]) -> list[FirstSeen]:
    """Read the marks among these keys in parallel; an unreadable mark marks nothing."""

    def read(key: str) -> FirstSeen | None:
        try:
            mark = msgspec.json.decode(store.get(key), type=_Mark)
            return FirstSeen(key, mark.time.astimezone(UTC), frozenset(mark.keys))
        except KeyNotFound:
            return None  # deleted since the listing
        except (msgspec.DecodeError, ValueError, OverflowError, RecursionError):
            # Without keys the plan deletes it.
            return FirstSeen(key, datetime.max.replace(tzinfo=UTC), frozenset())

    marks = map_in_threads(read, [key for key in keys if is_mark_key(key)])
    return [mark for mark in marks if mark is not None]


def write_marks(store: Store, plan: FirstSeenPlan) -> None:
    """Carry out the plan: one call for each mark."""

    def put(mark: FirstSeen) -> None:
        store.put(mark.key, msgspec.json.encode(_Mark(mark.time, sorted(mark.keys))))

    list(map_in_threads(put, plan.written))
    list(map_in_threads(store.delete, plan.dropped))

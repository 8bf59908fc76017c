"""Marks: for stores that do not know when an object was written, what earlier collections of garbage have seen, and when."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import msgspec

from kartothek_cube.core.naming import fresh_id
from kartothek_cube.core.parallel import map_in_threads
from kartothek_cube.core.store import Store
from kartothek_cube.errors import KeyNotFound

__all__ = ["MARKS_FOLDER", "FirstSeen", "MarkPlan", "is_mark_key", "marked_since", "plan_marks", "read_marks", "write_marks"]

MARKS_FOLDER = "_gc"
_MARK = re.compile(rf"[^/]+/{MARKS_FOLDER}/[^/]+\.json")


@dataclass(frozen=True, slots=True)
class FirstSeen:
    """At this time (UTC, by the clock of who collected garbage) nobody named these keys. ``key`` is where the mark itself lies."""

    key: str
    time: datetime
    keys: frozenset[str]


@dataclass(frozen=True, slots=True)
class MarkPlan:
    """Marks to be written, as new ones or in place of themselves, and keys of those to be removed."""

    written: tuple[FirstSeen, ...]
    dropped: tuple[str, ...]


def is_mark_key(key: str) -> bool:
    """Whether a key is that of a mark of some dataset."""
    return _MARK.fullmatch(key) is not None


def _in_order(marks: Iterable[FirstSeen], now: datetime) -> list[FirstSeen]:
    # One that lies in the future, of a clock that is wrong, says nothing.
    return sorted((m for m in marks if m.time <= now), key=lambda m: (m.time, m.key))


def marked_since(marks: Iterable[FirstSeen], now: datetime) -> dict[str, datetime]:
    """Since when each key is marked."""
    return {key: mark.time for mark in reversed(_in_order(marks, now)) for key in mark.keys}


def plan_marks(marks: Sequence[FirstSeen], pending: AbstractSet[str], now: datetime, is_ours: Callable[[str], bool], home: str) -> MarkPlan:
    """The marks that there should be.

    A key has one mark, the oldest, and only while it is pending: garbage of unknown age that stays. One that is about to be removed, or that
    somebody names again, loses its mark, so that a later file of the same key is not taken for an old one.

    Parameters
    ----------
    marks : sequence of FirstSeen
        Those that are there.
    pending : set of str
        Keys that need a mark.
    now : datetime
        For new marks.
    is_ours : Callable
        Whether this collection looked at a key; what marks say of others stays.
    home : str
        Uuid of the dataset that keeps the marks of keys outside of any folder.
    """
    seen: set[str] = set()
    live: dict[str, frozenset[str]] = {}
    for mark in _in_order(marks, now):
        live[mark.key] = frozenset(k for k in mark.keys if not is_ours(k) or (k in pending and k not in seen))
        seen |= live[mark.key]
    rewritten = [replace(m, keys=live[m.key]) for m in marks if live.get(m.key) and live[m.key] != m.keys]
    dropped = tuple(m.key for m in marks if not live.get(m.key))
    return MarkPlan((*rewritten, *_new_marks(pending - seen, now, home)), dropped)


def _new_marks(keys: AbstractSet[str], now: datetime, home: str) -> list[FirstSeen]:
    """One for each dataset."""
    owners: dict[str, list[str]] = {}
    for key in keys:
        owner, slash, _ = key.partition("/")
        owners.setdefault(owner if slash else home, []).append(key)
    return [FirstSeen(f"{owner}/{MARKS_FOLDER}/{fresh_id()}.json", now, frozenset(group)) for owner, group in sorted(owners.items())]


# --- in the store -----------------------------------------------------------------------------------------------------


class _Mark(msgspec.Struct):
    time: datetime
    keys: list[str]


def read_marks(store: Store, keys: Iterable[str]) -> list[FirstSeen]:
    """The marks among these keys, read in parallel; one that cannot be read marks nothing."""
    found = map_in_threads(lambda key: _read(store, key), [key for key in keys if is_mark_key(key)])
    return [mark for mark in found if mark is not None]


def _read(store: Store, key: str) -> FirstSeen | None:
    try:
        plain = msgspec.json.decode(store.get(key), type=_Mark)
        return FirstSeen(key, plain.time.astimezone(UTC), frozenset(plain.keys))
    except KeyNotFound:
        return None
    except (msgspec.DecodeError, ValueError, OverflowError, RecursionError):
        return FirstSeen(key, datetime.max.replace(tzinfo=UTC), frozenset())


def write_marks(store: Store, plan: MarkPlan) -> None:
    """Carry the plan out: one call for each mark."""
    list(map_in_threads(lambda mark: store.put(mark.key, msgspec.json.encode(_Mark(mark.time, sorted(mark.keys)))), plan.written))
    list(map_in_threads(store.delete, plan.dropped))

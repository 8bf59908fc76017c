"""Which files are garbage and old enough to go: ages, what history protects, and the order in which they go. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from kartothek_cube.core.maintenance.garbage_history import HistoryInfo, is_entry_key
from kartothek_cube.core.maintenance.garbage_marks import is_mark_key
from kartothek_cube.core.maintenance.garbage_report import DAMAGED_HISTORY, HISTORY, INDEX, KEPT, SCHEMA, UNNAMED, GarbageFile
from kartothek_cube.core.naming import INDEX_SUFFIX, SCHEMA_FILE
from kartothek_cube.core.store import Entry

__all__ = ["GarbagePlan", "RetentionPolicy", "judge"]


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """How old is old: ``now`` is UTC, by the clock of this machine; ``grace`` and ``retain`` as in the options."""

    now: datetime
    grace: timedelta
    retain: timedelta

    def before(self, age: timedelta) -> datetime:
        """The moment since when a file has this age."""
        try:
            return self.now - age
        except OverflowError:
            return datetime.min.replace(tzinfo=UTC)

    @property
    def longest(self) -> timedelta:
        """How long history entries are kept."""
        return max(self.retain, self.grace)

    def is_old(self, moment: datetime | None, age: timedelta) -> bool:
        """Whether a file of this moment has this age; an unknown moment is not old, and one in the future neither."""
        return not age or (moment is not None and moment <= self.before(age))

    def keeps(self, past: HistoryInfo) -> bool:
        """Whether a history entry is kept: it can be read, and is younger than the longer of the two periods."""
        return past.readable and not self.is_old(past.moment, self.longest)

    def protected(self, past: Iterable[HistoryInfo]) -> set[str]:
        """Keys that kept history entries name; superseded index files only for the time of grace."""
        kept = [p for p in past if self.keeps(p)]
        recent = [p for p in kept if not self.is_old(p.moment, self.grace)]
        return {key for p in kept for key in p.files} | {key for p in recent for key in p.index_files}


@dataclass(frozen=True, slots=True)
class GarbagePlan:
    """What may go and what waits. ``pending`` are those of the waiting keys whose age only a mark can tell."""

    old: Sequence[GarbageFile]
    waiting: Sequence[GarbageFile]
    pending: frozenset[str]

    def phases(self) -> list[list[str]]:
        """Keys that go together: history entries, then the files that they named, then schema files, by which the folders of old tables are known."""
        phases: list[list[str]] = [[], [], []]
        for file in self.old:
            phases[0 if is_entry_key(file.key) else 2 if _is_schema(file.key) else 1].append(file.key)
        return phases


def judge(found: Iterable[Entry], past: Mapping[str, HistoryInfo], marked: Mapping[str, datetime], policy: RetentionPolicy) -> GarbagePlan:
    """What becomes of each object that no document names.

    Parameters
    ----------
    found : iterable of Entry
        Objects that no current document names; also history entries, and marks, of which nothing is said.
    past : Mapping[str, HistoryInfo]
        History entries by key, also of keys that are not among ``found``.
    marked : Mapping[str, datetime]
        Since when keys are marked.
    policy : RetentionPolicy
        How old is old.
    """
    protected = policy.protected(past.values())
    old: list[GarbageFile] = []
    waiting: list[GarbageFile] = []
    for entry in found:
        moment = marked.get(entry.key) if entry.modified is None else entry.modified
        why = KEPT if entry.key in protected else _why(entry.key, past, policy)
        if why is not None:
            goes = why == HISTORY or (why != KEPT and policy.is_old(moment, policy.longest if why == DAMAGED_HISTORY else policy.grace))
            file = GarbageFile(entry.key, entry.size, entry.modified, why, None if moment is None else policy.now - moment)
            (old if goes else waiting).append(file)
    old, held = _without_busy_schemas(old, waiting)
    waiting += held
    return GarbagePlan(old, waiting, frozenset(f.key for f in waiting if f.modified is None and f.why != KEPT))


def _why(key: str, past: Mapping[str, HistoryInfo], policy: RetentionPolicy) -> str | None:
    """Why a key is garbage; None if it is not, or has gone already."""
    if is_mark_key(key):
        return None
    if not is_entry_key(key):
        return INDEX if key.endswith(INDEX_SUFFIX) else SCHEMA if _is_schema(key) else UNNAMED
    if key not in past or policy.keeps(past[key]):
        return None
    return HISTORY if past[key].readable else DAMAGED_HISTORY


def _is_schema(key: str) -> bool:
    return key.endswith(f"/{SCHEMA_FILE}") and key.count("/") == 2


def _without_busy_schemas(old: list[GarbageFile], waiting: Sequence[GarbageFile]) -> tuple[list[GarbageFile], list[GarbageFile]]:
    """A table that a dataset has no more is known by its schema file, which stays as long as any file of the table."""
    schemas = {f.key.removesuffix(SCHEMA_FILE): f for f in old if _is_schema(f.key)}
    if not schemas:
        return old, []
    busy = {folder for f in waiting if (folder := "/".join([*f.key.split("/")[:2], ""])) in schemas}
    held = {schemas[folder].key for folder in busy}
    return [f for f in old if f.key not in held], [replace(f) for f in old if f.key in held]

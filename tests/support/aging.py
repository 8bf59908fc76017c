"""A settable clock, and a store that takes the age of its objects from the clock."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from kartothek_cube.core.commit import change as apply
from kartothek_cube.core.commit import commit, cube_writes
from kartothek_cube.core.commit import commit as staged_files
from kartothek_cube.core.maintenance import garbage
from kartothek_cube.core.snapshots import time_travel as tagging
from kartothek_cube.core.stores.contract import WRITES, Listing, StoreView
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.core.write import stage
from kartothek_cube.core.write import stage as receipt
from kartothek_cube.cube.write import commit as cube_commit

START = datetime(2024, 5, 1, tzinfo=UTC)


class Clock:
    """The time of modules whose `datetime` is `type`."""

    def __init__(self):
        clock = self
        self.time = START

        class AnyMoment(type):
            def __instancecheck__(cls, value):
                return isinstance(value, datetime)

        class Moment(datetime, metaclass=AnyMoment):
            @classmethod
            def now(cls, _zone):
                return clock.time

        self.type = Moment

    def advance(self, **time):
        self.time += timedelta(**time)


def use_clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(garbage, "_now", lambda: clock.time)
    for module in (apply, commit, cube_commit, cube_writes, receipt, stage, staged_files, tagging):
        monkeypatch.setattr(module, "datetime", clock.type)
    return clock


class AgedStore(StoreView):
    """Modification times come from the clock; ``dated=False`` leaves them out."""

    def __init__(self, clock, *, dated=True, inner=None):
        super().__init__(MemoryStore() if inner is None else inner)
        self.clock, self.dated, self.times = clock, dated, {}

    @property
    def capabilities(self):
        return dataclasses.replace(self.inner.capabilities, modification_times=self.dated)

    def around(self, operation, key, action):
        result = action()
        if operation in WRITES:
            self.times[key] = self.clock.time
        return result

    def list(self, prefix="", recursive=False):
        listing = super().list(prefix, recursive)
        return Listing(
            [replace(e, modified=self.times[e.key] if self.dated else None) for e in listing.entries], listing.prefixes
        )

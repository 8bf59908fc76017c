"""The datasets of a cube as they were after a commit or at a moment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from kartothek_cube.core.history import AsOf, BeforeCreation, PastState, is_wanted, snapshot_at, states
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.parallel import map_in_threads
from kartothek_cube.core.store import Store
from kartothek_cube.errors import InvalidInput

__all__ = ["members_at"]


def members_at(uuid_prefix: str, store: Store, newest: Mapping[str, Snapshot], as_of: AsOf) -> dict[str, Snapshot]:
    """Older snapshots of the datasets of a cube by id; a dataset that did not exist then is left out.

    The id of a write to the cube takes each dataset that it wrote to as it left it. The id of a commit to one dataset takes this one. All others are taken
    as of the time of that commit, of several the last one.

    Raises
    ------
    InvalidInput
        If the history of a dataset does not reach back so far, none has such a commit, or none existed then.
    """
    if isinstance(as_of, datetime):
        existing = _existing(store, newest, dict.fromkeys(newest, as_of))
        if newest and not existing:
            names, then = ", ".join(sorted(newest)), as_of.isoformat(timespec="seconds")
            text = f"Cube {uuid_prefix!r} cannot be read as of {then}: of its datasets {names} none existed then."
            raise InvalidInput(f"{text} `history` lists the commits of a dataset.")
        return existing
    found = _found(store, newest, as_of)
    times = [state.time for state in found.values() if state.time is not None]
    if not found or (not times and len(found) < len(newest)):
        raise InvalidInput(
            f"Cube {uuid_prefix!r} cannot be read as of commit {as_of!r}: none of the datasets {', '.join(sorted(newest))} has it in the history that is kept. "
            "`history` lists the commits of a dataset."
        )
    return _existing(store, newest, {name: as_of if name in found else max(times) for name in newest})


def _existing(store: Store, newest: Mapping[str, Snapshot], wanted: Mapping[str, AsOf]) -> dict[str, Snapshot]:
    def load(name: str) -> Snapshot | None:
        try:
            return snapshot_at(store, newest[name], wanted[name])
        except BeforeCreation:
            return None

    return {name: found for name, found in zip(newest, map_in_threads(load, list(newest), store=store), strict=True) if found is not None}


def _found(store: Store, newest: Mapping[str, Snapshot], commit: str) -> dict[str, PastState]:
    """The datasets that have a commit. Those whose chain is too short to tell are searched, if none of the others knows who took part."""
    named = {name: state for name, snapshot in newest.items() if (state := _in_chain(snapshot, commit)) is not None}
    parts = {uuid for state in named.values() if state.cube is not None and state.cube.id == commit for uuid in state.cube.datasets}
    rest = [name for name, snapshot in newest.items() if name not in named and (not named or snapshot.uuid in parts)]
    return named | _searched(store, newest, rest, commit)


def _in_chain(snapshot: Snapshot, commit: str) -> PastState | None:
    of_chain = [c for c in snapshot.chain if is_wanted(c.id, c.time, c.cube, commit)]
    if not of_chain or snapshot.has_foreign_commit:
        return None
    return PastState(of_chain[-1].id, of_chain[-1].parent, of_chain[-1].time, of_chain[-1].cube, snapshot.document, None)


def _searched(store: Store, newest: Mapping[str, Snapshot], names: Iterable[str], commit: str) -> dict[str, PastState]:
    def search(name: str) -> PastState | None:
        return next((s for s in states(store, newest[name]) if is_wanted(s.commit, s.time, s.cube, commit)), None)

    names = list(names)
    return {name: state for name, state in zip(names, map_in_threads(search, names, store=store), strict=True) if state is not None}

"""Random writes and undos of a cube: an undo gives the state without the write, and every row of
`cube_history` is the state of then.

``HYPOTHESIS_PROFILE=fuzz`` makes it long.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import event, given, note
from hypothesis import strategies as st

from kartothek_cube.api.cube import (
    C,
    Cube,
    append_to_cube,
    build_cube,
    cube_history,
    query_cube_arrow,
    remove_partitions,
    undo_cube,
    verify_cube,
)
from kartothek_cube.api.dataset import undo
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import CommitConflict, InvalidRequest, MultiTableCommitAborted

pytestmark = [pytest.mark.slow, pytest.mark.hypothesis]

CUBE = Cube(["x"], ["p"], "cube")
NAMES = ("seed", "e", "f")
VALUES = {"seed": "v1", "e": "v2", "f": "v3"}
PARTITIONS = (0, 1, 2)

# The file that a write adds to one partition, with the keys of its rows.
Piece = tuple[int, tuple[int, ...]]


@dataclass
class Naive:
    """What each dataset has, and what each write did to it."""

    store: MemoryStore = field(default_factory=MemoryStore)
    pieces: dict[str, set[Piece]] = field(default_factory=lambda: {name: set() for name in NAMES})
    writes: dict[str, dict[str, tuple[set[Piece], set[Piece]]]] = field(default_factory=dict)
    states: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)
    keys: Any = field(default_factory=count)

    def data(self, name: str, partition: int, rows: int, taken: dict[int, list[int]]) -> Piece:
        """Rows of new cells; enrichments have theirs for the first cells of the same write."""
        cells = taken.setdefault(partition, [])
        while len(cells) < rows:
            cells.append(next(self.keys))
        return partition, tuple(cells[:rows])

    def rows(self) -> list[tuple[Any, ...]]:
        """The result of the query of all columns."""
        found = {name: {(p, x) for p, cells in pieces for x in cells} for name, pieces in self.pieces.items()}
        return sorted(
            (x, p, x, *(x if (p, x) in found[name] else None for name in ("e", "f"))) for p, x in found["seed"]
        )

    def note_write(self, done: dict[str, tuple[set[Piece], set[Piece]]]) -> None:
        newest = cube_history(CUBE, self.store)["commit"][0]
        assert newest not in self.writes
        for name, (added, removed) in done.items():
            self.pieces[name] = self.pieces[name] - removed | added
        self.writes[newest], self.states[newest] = done, self.rows()
        note(f"{newest}: {done}")

    def undone(self, write: str) -> dict[str, tuple[set[Piece], set[Piece]]] | None:
        """What an undo does; None for a conflict."""
        done = {name: (removed, added) for name, (added, removed) in self.writes[write].items() if added | removed}
        fits = all(gone <= self.pieces[name] and not back & self.pieces[name] for name, (back, gone) in done.items())
        return done if fits else None


def table(name: str, pieces: set[Piece]) -> pa.Table:
    rows = [(x, p) for p, cells in sorted(pieces) for x in cells]
    return pa.table({"x": [x for x, _ in rows], "p": [p for _, p in rows], VALUES[name]: [x for x, _ in rows]})


def queried(store: MemoryStore, as_of: str | None = None) -> list[tuple[Any, ...]]:
    found = query_cube_arrow(CUBE, store, as_of=as_of, payload_columns=list(VALUES.values()))
    columns = [found[c].to_pylist() for c in ("x", "p", *VALUES.values())]
    return sorted(zip(*columns, strict=True))


def added(draw: st.DrawFn, naive: Naive, names: list[str]) -> dict[str, tuple[set[Piece], set[Piece]]]:
    partitions = draw(st.lists(st.sampled_from(PARTITIONS), min_size=1, unique=True))
    taken: dict[int, list[int]] = {}
    return {name: ({naive.data(name, p, draw(st.integers(1, 2)), taken) for p in partitions}, set()) for name in names}


def some(draw: st.DrawFn) -> list[str]:
    return sorted(draw(st.sets(st.sampled_from(NAMES), min_size=1)), key=NAMES.index)


def append(draw: st.DrawFn, naive: Naive) -> None:
    done = added(draw, naive, some(draw))
    append_to_cube({name: table(name, new) for name, (new, _) in done.items()}, CUBE, naive.store)
    naive.note_write(done)


def remove(draw: st.DrawFn, naive: Naive) -> None:
    names, partition = some(draw), draw(st.sampled_from(PARTITIONS))
    gone = {name: {piece for piece in naive.pieces[name] if piece[0] == partition} for name in names}
    before = len(cube_history(CUBE, naive.store))
    try:
        remove_partitions(CUBE, naive.store, C("p") == partition, names)
    except MultiTableCommitAborted:
        return
    if len(cube_history(CUBE, naive.store)) > before:
        naive.note_write({name: (set(), pieces) for name, pieces in gone.items()})


def take_back(draw: st.DrawFn, naive: Naive) -> None:
    write = draw(st.sampled_from([None, *naive.writes]))
    known = write or cube_history(CUBE, naive.store)["commit"][0]
    expected = naive.undone(known)
    if known == next(iter(naive.writes)):
        with pytest.raises(InvalidRequest, match="because it made"):
            undo_cube(CUBE, naive.store, write)
        return
    if expected is None:
        event("conflict")
        before = {key: naive.store.get(key) for key in naive.store.list(recursive=True).keys}
        with pytest.raises(CommitConflict, match="no dataset was changed"):
            undo_cube(CUBE, naive.store, write)
        assert {key: naive.store.get(key) for key in naive.store.list(recursive=True).keys} == before
        return
    event("undone")
    without = {name: pieces - expected.get(name, (set(), set()))[1] for name, pieces in naive.pieces.items()}
    undone = undo_cube(CUBE, naive.store, write)
    assert set(undone) == (set(expected) or set(naive.writes[known]))
    naive.note_write({name: expected.get(name, (set(), set())) for name in undone})
    assert all(without[name] <= pieces for name, pieces in naive.pieces.items())


def take_back_in_one(draw: st.DrawFn, naive: Naive) -> None:
    """`undo` of one dataset, which may split a write."""
    write = draw(st.sampled_from([*naive.writes][1:] or [""]))
    done = naive.undone(write) if write else None
    if done:
        name = draw(st.sampled_from(sorted(done)))
        undo(CUBE.ktk_dataset_uuid(name), naive.store, write)
        naive.note_write({name: done[name]})


STEPS = [append, append, remove, take_back, take_back, take_back, take_back_in_one]


@given(st.data())
def test_an_undo_gives_the_state_without_the_write(data):
    draw, naive = data.draw, Naive()
    done = added(draw, naive, list(NAMES))
    build_cube({name: table(name, new) for name, (new, _) in done.items()}, CUBE, naive.store)
    naive.note_write(done)
    for step in draw(st.lists(st.sampled_from(STEPS), min_size=3, max_size=8)):
        step(draw, naive)
        assert queried(naive.store) == naive.rows()
    found = cube_history(CUBE, naive.store)
    assert found["commit"].tolist() == [*naive.writes][::-1]
    assert found["kept"].all()
    for row in found.to_dict("records"):
        changes = naive.writes[row["commit"]]
        changed = sorted(name for name, (new, old) in changes.items() if new | old) or sorted(changes)
        assert row["datasets"] == changed
        assert row["added"] == sum(len(new) for new, _ in changes.values())
        assert row["removed"] == sum(len(old) for _, old in changes.values())
        assert queried(naive.store, row["commit"]) == naive.states[row["commit"]]
    assert verify_cube(CUBE, naive.store).ok

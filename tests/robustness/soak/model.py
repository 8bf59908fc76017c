"""The expected contents of a dataset after each commit, in the order of the documents' commits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from kartothek_cube.core.commit.change import Change
from kartothek_cube.core.metadata.snapshot import Snapshot

Row: TypeAlias = tuple[int, str, int, str]
"""x (unique), p, i1, i2."""


@dataclass(frozen=True)
class State:
    """Partitions in their order, and user metadata."""

    partitions: Mapping[str, tuple[Row, ...]] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def rows(self) -> list[Row]:
        return sorted(row for rows in self.partitions.values() for row in rows)

    def where(self, holds: Callable[[Row], bool]) -> list[Row]:
        return [row for row in self.rows if holds(row)]


NAMES = ("x", "p", "i1", "i2")


def in_scope(rows: tuple[Row, ...], scope: Mapping[str, Any]) -> bool:
    """Whether a partition contains all of these values."""
    return all(any(row[NAMES.index(column)] == value for row in rows) for column, value in scope.items())


@dataclass
class Order:
    """A write as the test asked for it; what the library made of it is noted when it stands in
    line.
    """

    kind: str
    rows: tuple[Row, ...] = ()
    scopes: tuple[Mapping[str, Any], ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    change: Change | None = None
    base: Snapshot | None = None
    target: str | None = None
    outcome: str = "open"
    # What becomes of a row of the dataset: None where it is deleted.
    edit: Callable[[Row], Row | None] | None = None

    def labelled(self) -> dict[str, tuple[Row, ...]]:
        """The new partitions: one for each value of p."""
        assert self.change is not None
        labels = {r.label: r.values["p"] for r in self.change.receipts}
        return {label: tuple(row for row in self.rows if row[1] == p) for label, p in labels.items()}


def applied(order: Order, state: State, base: State | None, states: Mapping[str, State]) -> State:
    """The state after a write; fails where it contradicts what came between it and its base."""
    change = order.change
    assert change is not None
    careful = change.on_conflict == "raise"
    if order.kind == "compact":
        return _compacted(order, state)
    if order.edit is not None:
        return _edited(order, order.edit, state, base)
    new = order.labelled()
    if order.kind == "overwrite":
        if careful and base is not None:
            assert state.rows == base.rows, "an overwrite removed rows that its writer had not seen"
        return State(new, dict(order.metadata))
    if order.kind == "undo":
        return _undone(order, state, states)
    gone = {label for label, rows in state.partitions.items() if any(in_scope(rows, s) for s in order.scopes)}
    if careful and base is not None:
        then = {label for label, rows in base.partitions.items() if any(in_scope(rows, s) for s in order.scopes)}
        assert gone == then, f"the scope held {sorted(gone)} and not {sorted(then)}, which its writer had seen"
        for label in new:
            assert state.partitions.get(label) == base.partitions.get(label), f"{label} was replaced unseen"
    kept = {label: rows for label, rows in state.partitions.items() if label not in gone and label not in new}
    return State({**kept, **new}, {**state.metadata, **order.metadata})


def _undone(order: Order, state: State, states: Mapping[str, State]) -> State:
    """What the commit added goes, what it removed comes back; metadata go back where nobody has
    changed them since.
    """
    change = order.change
    assert change is not None
    ids = list(states)
    before, after = states[ids[ids.index(str(order.target)) - 1]], states[str(order.target)]
    added = [label for label, rows in after.partitions.items() if before.partitions.get(label) != rows]
    back = {label: rows for label, rows in before.partitions.items() if after.partitions.get(label) != rows}
    assert all(state.partitions.get(label) == after.partitions[label] for label in added), (
        "an undo removed what somebody has replaced"
    )
    assert not (set(back) - set(added)) & set(state.partitions), "an undo brought back a label that is used again"
    at = {label: i for i, label in enumerate(state.partitions)}
    kept = [(at[label], label, rows) for label, rows in state.partitions.items() if label not in added]
    new = [
        (at.get(change.places[label], len(at)) if change.places[label] else -1, label, back[label])
        for label in change.labels
    ]
    assert {label for _, label, _ in new} == set(back)
    metadata = dict(state.metadata)
    for name in {*before.metadata, *after.metadata}:
        if before.metadata.get(name) != after.metadata.get(name) == state.metadata.get(name):
            metadata.pop(name, None)
            metadata.update({name: before.metadata[name]} if name in before.metadata else {})
    return State({label: rows for _, label, rows in sorted([*kept, *new], key=lambda item: item[0])}, metadata)


def _compacted(order: Order, state: State) -> State:
    change = order.change
    assert change is not None
    inputs: dict[str, list[str]] = {}
    removed = change.removed.to_pylist()
    assert set(removed) <= set(state.partitions), "a compaction merged what was not there any more"
    # Inputs of one merge have one partition value and come in the order of their merge; the last
    # one names the place.
    ends = {change.places[label]: label for label in change.labels}
    group: list[str] = []
    for label in removed:
        group.append(label)
        if label in ends:
            inputs[ends[label]] = group
            group = []
    assert not group
    partitions: dict[str, tuple[Row, ...]] = {}
    for label, rows in state.partitions.items():
        if label in ends:
            merged = ends[label]
            partitions[merged] = tuple(row for part in inputs[merged] for row in state.partitions[part])
        elif label not in removed:
            partitions[label] = rows
    return replace(state, partitions=partitions)


def _edited(order: Order, edit: Callable[[Row], Row | None], state: State, base: State | None) -> State:
    """Files that had rows to change are replaced in place, then come moved rows, then those whose
    key the writer had not seen.
    """
    change = order.change
    assert change is not None
    assert base is not None
    removed = set(change.removed.to_pylist())
    assert removed <= set(state.partitions), "rows of a file were changed that was not there any more"
    assert removed >= {label for label, rows in base.partitions.items() if any(edit(row) != row for row in rows)}
    replacing = {old: new for new, old in change.places.items()}
    partitions: dict[str, tuple[Row, ...]] = {}
    moved: list[Row] = []
    for label, rows in state.partitions.items():
        after = [(row, edit(row)) for row in rows]
        kept = tuple(new for row, new in after if new is not None and new[1] == row[1])
        if label not in removed:
            partitions[label] = rows
        elif kept:
            partitions[replacing[label]] = kept
        moved += [new for row, new in after if label in removed and new is not None and new[1] != row[1]]
    seen = {row[0] for row in base.rows}
    inserted = [row for row in order.rows if row[0] not in seen]
    added = [receipt for receipt in change.receipts if receipt.label not in change.places]
    values = [{row[1] for row in block} for block in (moved, inserted)]
    assert [receipt.values["p"] for receipt in added] == [p for block in values for p in sorted(block)]
    for i, receipt in enumerate(added):
        block = moved if i < len(values[0]) else inserted
        partitions[receipt.label] = tuple(row for row in block if row[1] == receipt.values["p"])
    return replace(state, partitions=partitions)

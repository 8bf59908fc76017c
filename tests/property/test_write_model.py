"""Random writes against a naive model: a dict label → rows."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from kartothek_cube.core.dataset.maintain import build_dataset_indices
from kartothek_cube.core.dataset.write import (
    commit_dataset,
    store_dataframes_as_dataset,
    update_dataset_from_dataframes,
    write_single_partition,
)
from kartothek_cube.core.metadata.naming import label_of
from kartothek_cube.core.stores.local import MemoryStore
from tests.support.datasets import UUID, index, labels, read, snapshot

SCHEMA = pa.schema({"p": pa.int64(), "q": pa.string(), "i1": pa.int64(), "i2": pa.string(), "x": pa.int64()})
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "p": st.integers(0, 2),
            "q": st.sampled_from(["", "a/b", "ä=%"]),
            "i1": st.none() | st.integers(0, 3),
            "i2": st.none() | st.sampled_from(["", "u", "v/"]),
            "x": st.integers(-(2**63), 2**63 - 1),
        }
    ),
    max_size=5,
)
SCOPES = st.lists(
    st.dictionaries(st.sampled_from(["p", "q", "i1", "i2"]), st.integers(0, 3), min_size=1, max_size=2).map(
        lambda scope: {c: v if c in ("p", "i1") else ["", "a/b", "u", "v/"][v] for c, v in scope.items()}
    ),
    max_size=2,
)
STEP = st.fixed_dictionaries(
    {
        "verb": st.sampled_from(["update", "commit"]),
        "elements": st.lists(
            st.tuples(st.none() | st.sampled_from(["one", "two 2"]), ROWS),
            max_size=3,
            unique_by=lambda e: e[0] or object(),
        ),
        "scope": SCOPES,
    }
)


@dataclass
class Model:
    """Rows by label; the indices are what the rows say."""

    partition_on: tuple[str, ...]
    partitions: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def delete(self, scope: list[dict[str, Any]]) -> None:
        def selected(rows: list[dict[str, Any]]) -> bool:
            return any(all(any(row[c] == v for row in rows) for c, v in wanted.items()) for wanted in scope)

        self.partitions = {label: rows for label, rows in self.partitions.items() if not selected(rows)}

    def add(self, label: str, rows: list[dict[str, Any]]) -> None:
        parts: dict[str, list[dict[str, Any]]] = {} if self.partition_on else {label: []}
        for row in rows:
            parts.setdefault(label_of([(c, str(row[c])) for c in self.partition_on], label), []).append(row)
        for name, part in parts.items():
            self.partitions.pop(name, None)
            self.partitions[name] = part

    def index(self, column: str) -> dict[Any, set[str]]:
        found: dict[Any, set[str]] = {}
        for label, row in ((label, row) for label, rows in self.partitions.items() for row in rows):
            if row[column] is not None:
                found.setdefault(row[column], set()).add(label)
        return found

    def rows(self) -> Counter[tuple[Any, ...]]:
        return Counter(tuple(row[c] for c in SCHEMA.names) for rows in self.partitions.values() for row in rows)


def prepared(elements, numbers):
    """Elements with labels, so that the model knows them, in order."""
    named = [(label or f"random-{next(numbers)}", rows) for label, rows in elements]
    return named, [{"label": label, "data": {"table": pa.Table.from_pylist(rows, SCHEMA)}} for label, rows in named]


def check(store, model, indexed):
    assert sorted(labels(store)) == sorted(model.partitions)
    table = read(store, columns=SCHEMA.names)
    assert table.schema.equals(SCHEMA)
    assert Counter(zip(*table.to_pydict().values(), strict=True)) == model.rows()
    for column in indexed:
        assert index(store, column) == model.index(column)


def apply(store, step, elements, scope):
    if step["verb"] == "update":
        update_dataset_from_dataframes(elements, store, UUID, delete_scope=scope)
    else:
        staged = [write_single_partition(store, UUID, element) for element in elements]
        commit_dataset(store, UUID, staged, delete_scope=scope, metadata={"n": 1})


@given(
    first=st.lists(ROWS, min_size=1, max_size=3),
    steps=st.lists(STEP, max_size=4),
    partition_on=st.permutations(["p", "q"]).flatmap(lambda keys: st.integers(0, 2).map(lambda n: tuple(keys[:n]))),
    indexed=st.sets(st.sampled_from(["i1", "i2"])).map(sorted),
    late=st.booleans(),
)
def test_a_dataset_is_what_was_written(first, steps, partition_on, indexed, late):
    store, model, numbers = MemoryStore(), Model(partition_on), itertools.count()
    named, elements = prepared([(None, rows) for rows in first], numbers)
    store_dataframes_as_dataset(store, UUID, elements, partition_on=partition_on, secondary_indices=indexed)
    for label, rows in named:
        model.add(label, rows)
    check(store, model, indexed)
    for step in steps:
        scope = [wanted for wanted in step["scope"] if set(wanted) <= {*partition_on, *indexed}]
        named, elements = prepared(step["elements"], numbers)
        apply(store, step, elements, scope)
        model.delete(scope)
        for label, rows in named:
            model.add(label, rows)
        check(store, model, indexed)
    if late:
        build_dataset_indices(store, UUID, ["i1", "i2"])
        check(store, model, ["i1", "i2"])
    assert snapshot(store).partition_keys == partition_on

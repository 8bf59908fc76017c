"""What changed in a dataset between two states: which files are read, what is refused."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from kartothek_cube.api.dataset import (
    read_dataset_changes,
    store_dataframes_as_dataset,
    update_dataset_from_dataframes,
)
from kartothek_cube.core.snapshots.loader import load_snapshot
from kartothek_cube.core.stores.memory import MemoryStore
from tests.support.changes import rows_of

UUID = "uuid"


@pytest.fixture
def store():
    return MemoryStore()


def table(*rows: tuple[int, str, Any], names: str = "xpv") -> pa.Table:
    return pa.table({name: [row[i] for row in rows] for i, name in enumerate(names)})


def last(store: Any, uuid: str = UUID) -> str:
    return str(load_snapshot(store, uuid).chain[-1].id)


def create(store: Any, *tables: pa.Table, **more: Any) -> str:
    store_dataframes_as_dataset(store, UUID, list(tables), **{"partition_on": ["p"], **more})
    return last(store)


def append(store: Any, *tables: pa.Table, **more: Any) -> str:
    update_dataset_from_dataframes(list(tables), store, UUID, **more)
    return last(store)


def changes(store: Any, *arguments: Any, **more: Any) -> Counter[Any]:
    return Counter(rows_of(read_dataset_changes(UUID, store, *arguments, **more).read_all()))


# --- rows -----------------------------------------------------------------------------------------


def test_predicates_on_partition_columns_hold_where_many_small_files_are_read(store):
    """Also those that only a part of the rows of a file satisfies."""
    rows = [(x, p, x) for p in "abcdefghijklmnopqrstuvwxy" for x in range(3)]
    first = create(store, table((0, "z", 0)))
    append(store, table(*rows))
    for predicates, holds in [
        ([[("p", "==", None)], [("x", "==", 1)]], lambda x, p: x == 1),
        ([[("p", "==", "y")], [("x", "==", 1)]], lambda x, p: p == "y" or x == 1),
        ([[("p", "!=", "a"), ("x", "!=", 0)]], lambda x, p: p != "a" and x != 0),
        ([[("p", "not in", ["a", "y"])], [("x", "==", 2)]], lambda x, p: p not in "ay" or x == 2),
    ]:
        found = changes(store, first, columns=["x", "p"], predicates=predicates)
        assert found == Counter(("insert", x, p) for x, p, _ in rows if holds(x, p))

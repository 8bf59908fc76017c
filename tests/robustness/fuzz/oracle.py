"""What must hold for every damaged store: an error of ours or an answer, the store as it was, no
row that is made up.
"""

from __future__ import annotations

import operator
import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kartothek_cube.core.dataset.read import read_table, read_table_arrow
from kartothek_cube.core.maintenance.copy import find_deletion
from kartothek_cube.core.maintenance.garbage import is_bookkeeping, unnamed_entries
from kartothek_cube.core.snapshots.loader import load_snapshot, with_indices
from kartothek_cube.core.stores.local import LocalStore, MemoryStore
from kartothek_cube.errors import KartothekCubeError
from tests.caches import forget
from tests.robustness.fuzz import seeds

if TYPE_CHECKING:
    from collections.abc import Callable

    from kartothek_cube.core.stores.contract import Store
    from tests.robustness.fuzz.mutators import Case

PREDICATES = (
    None,
    [[("i1", "==", 1)]],
    [[("i1", ">", 0), ("t", "!=", "text 5")]],
    [[("t", "in", ["text 1", "text 9"])]],
    [[("p", "==", 1)]],
    [[("x", "<=", 5)], [("v1", ">", 4.0)]],
)


def open_case(objects: dict[str, bytes], folder: Path | None) -> Store:
    """The damaged store, in memory or in an empty folder."""
    if folder is None:
        store = MemoryStore()
        for key, data in objects.items():
            store.put(key, data)
        return store
    for key, data in objects.items():
        path = folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return LocalStore(folder, fsync=False)


def check(case: Case, store: Store, rng: random.Random) -> str:
    """Ask one thing of the store; what came of it, or an `AssertionError`.

    An exception that is not ours goes through.
    """
    verb, text = rng.choice(VERBS), "an answer"
    forget(store)  # another store was in the same folder
    try:
        outcome = verb(case, store, rng)
    except KartothekCubeError as error:
        outcome, text = error.kind, str(error)
    assert text.strip(), "an error without a text"
    assert len(text) < 100_000, f"an error of {len(text)} characters"
    found = {key: store.get(key) for key in store.list("", recursive=True).keys}
    assert found == case.objects, "the store was changed"
    return outcome


def _rows_of(table: pa.Table) -> Counter[str]:
    return Counter(map(repr, table.to_pylist()))


def _read(case: Case, store: Store, rng: random.Random) -> str:
    predicates = rng.choice(PREDICATES)
    found = read_table_arrow(seeds.UUID, store, predicates=predicates)
    if case.subset or case.exact:
        true = _rows_of(_matching(predicates))
        surplus = _rows_of(found) - true
        assert not surplus, f"rows that are not there for {predicates}: {surplus}"
        assert not case.exact or _rows_of(found) == true, f"rows are missing for {predicates}"
    return "answer"


def _matching(predicates: Any) -> pa.Table:
    tests: dict[str, Callable[[Any, Any], bool]] = {
        "==": operator.eq, "!=": operator.ne, ">": operator.gt, "<=": operator.le, "in": lambda a, b: a in b,
    }  # fmt: skip

    def holds(row: dict[str, Any]) -> bool:
        return predicates is None or any(
            all(row[c] is not None and tests[op](row[c], value) for c, op, value in group) for group in predicates
        )

    return pa.Table.from_pylist([row for row in seeds.rows().to_pylist() if holds(row)], schema=seeds.SCHEMA)


def _read_pandas(_case: Case, store: Store, rng: random.Random) -> str:
    read_table(seeds.UUID, store, predicates=rng.choice(PREDICATES), columns=rng.choice((None, ["x", "t"], ["p"])))
    return "answer"


def _indices(_case: Case, store: Store, _rng: random.Random) -> str:
    snapshot = load_snapshot(store, seeds.UUID)
    with_indices(store, snapshot, sorted(snapshot.document.indices))
    return "answer"


def _plans(_case: Case, store: Store, _rng: random.Random) -> str:
    """Neither a deletion nor a collection of garbage takes what belongs to another dataset."""
    deletion = find_deletion(store, seeds.UUID)
    taken = {key for phase in deletion.phases() for key in phase}
    entries = store.list(f"{seeds.UUID}/", recursive=True).entries
    unnamed = unnamed_entries(load_snapshot(store, seeds.UUID), entries)
    taken |= {entry.key for entry in unnamed if not is_bookkeeping(entry.key)}
    assert not any(key.startswith(seeds.OTHER) for key in taken), f"it would remove {taken}"
    for key in taken:
        store.contains(key)
    return "answer"


VERBS = (_read, _read, _read, _read_pandas, _indices, _plans)

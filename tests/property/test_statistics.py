"""The answer with statistics is the one without, for every way by which statistics come."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from kartothek_cube import options
from kartothek_cube.core.dataset.maintain import build_statistics
from kartothek_cube.core.dataset.read import plan_table_scan, read_table_arrow
from kartothek_cube.core.stores.local import MemoryStore
from tests.property.test_predicate_properties import cases
from tests.support.commits import UUID, write

# Texts that differ only behind the place where bounds are cut, or right before it.
LONG = ["k" * 32, "k" * 33, "k" * 32 + "a", "k" * 31, "k" * 31 + "l", "k" * 31 + "\U0010ffff" * 2, "ä" * 40, ""]


def files_of(case, sizes):
    position = 0
    for size in sizes:
        yield case.table.slice(position, size)
        position += size
    yield case.table.slice(position)


def written(case, sizes, statistics):
    store = MemoryStore()
    with options(statistics=statistics):
        for part in files_of(case, sizes):
            if part.num_rows:
                write(store, part, serializer={"chunk_size": 2})
    return store


@given(cases(), st.lists(st.integers(1, 3), max_size=5), st.sampled_from([True, ["v1"], "footers", "some"]))
def test_with_is_without(case, sizes, kind):
    store = written(case, sizes, kind not in ("footers", "some") and kind)
    if kind == "footers":
        build_statistics(UUID, store)
    elif kind == "some":
        build_statistics(UUID, store, ["i1"])
    found = read_table_arrow(UUID, store, columns=["x"], predicates=case.asked).column("x").to_pylist()
    assert sorted(found) == [x for x, match in enumerate(case.matches()) if match]


@given(st.lists(st.sampled_from(LONG), min_size=1, max_size=6), st.sampled_from(LONG), st.booleans())
def test_cut_texts_lose_no_row(texts, constant, footers):
    store = MemoryStore()
    with options(statistics=not footers):
        for x, text in enumerate(texts):
            write(store, pa.table({"x": [x], "v1": [text]}))
    if footers:
        build_statistics(UUID, store)
    for op, holds in (("==", str.__eq__), ("<=", str.__le__), (">", str.__gt__), ("!=", str.__ne__)):
        asked = [[("v1", op, constant)]]
        found = read_table_arrow(UUID, store, columns=["x"], predicates=asked).column("x").to_pylist()
        assert sorted(found) == [x for x, text in enumerate(texts) if holds(text, constant)]


@given(st.lists(st.integers(0, 20), min_size=4, max_size=12), st.integers(-1, 21), st.booleans())
def test_a_file_is_planned_if_its_bounds_hold_the_value_and_only_then(values, constant, footers):
    store = MemoryStore()
    pairs = list(zip(values[::2], values[1::2], strict=False))
    with options(statistics=not footers):
        for pair in pairs:
            write(store, pa.table({"x": pair}))
    if footers:
        assert build_statistics(UUID, store) == len(pairs)
    plan = plan_table_scan(UUID, store, predicates=[[("x", "==", constant)]])
    assert len(plan.files()) == sum(min(pair) <= constant <= max(pair) for pair in pairs)

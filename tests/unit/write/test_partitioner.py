"""Cutting rows into physical partitions."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kartothek_cube.core.write import prepare as partitioner
from kartothek_cube.core.write.prepare import split_rows

KEYS = {
    "numbers": (st.integers(-3, 3), pa.int64()),
    "texts": (st.sampled_from(["", "a", "b", "a b", "ä"]), pa.string()),
    "floats": (st.sampled_from([-0.0, 0.0, 1.5]), pa.float64()),
    "truths": (st.booleans(), pa.bool_()),
}


def naive(table, on):
    """Rows by their values, one after the other."""
    found = {}
    for row in table.to_pylist():
        found.setdefault(tuple(row[c] for c in on), []).append({c: v for c, v in row.items() if c not in on})
    return [(key, found[key]) for key in sorted(found)]


@st.composite
def tables(draw):
    kinds = draw(st.lists(st.sampled_from(sorted(KEYS)), min_size=1, max_size=2))
    rows = draw(st.lists(st.tuples(*(KEYS[kind][0] for kind in kinds)), max_size=12))
    rows = sorted(rows) if draw(st.booleans()) else rows
    names = ["p", "q"][: len(kinds)]
    table = pa.table(
        {
            n: pa.array([row[i] for row in rows], KEYS[kind][1])
            for i, (n, kind) in enumerate(zip(names, kinds, strict=True))
        }
        | {"v1": range(len(rows))}
    )
    cut = draw(st.integers(0, len(rows)))
    return pa.concat_tables([table.slice(0, cut), table.slice(cut)]), names


@given(tables())
def test_every_partition_has_its_rows_in_their_order(drawn):
    table, on = drawn
    parts = split_rows(table, on, "base", "uuid")
    assert [(tuple(part.values.values()), part.table.to_pylist()) for part in parts] == naive(table, on)


def test_values_beyond_what_is_counted_are_sorted_too():
    values = [70_000, -5, 70_000, 3, -5]
    parts = split_rows(pa.table({"p": values, "v1": range(5)}), ["p"], "base", "uuid")
    assert [(part.values["p"], part.table.column("v1").to_pylist()) for part in parts] == [
        (-5, [1, 4]),
        (3, [3]),
        (70_000, [0, 2]),
    ]


@pytest.mark.parametrize("values", [[1, 1, 2], ["a", "a", "b"]])
def test_rows_that_are_grouped_already_are_not_copied(values):
    table = pa.table({"p": values, "v1": [1, 2, 3]})
    parts = split_rows(table, ["p"], "base", "uuid")
    assert {part.table.column("v1").chunk(0).buffers()[1].address for part in parts} == {
        table.column("v1").chunk(0).buffers()[1].address
    }


def test_keys_are_packed_once_a_run_of_rows(monkeypatch):
    packed = []
    monkeypatch.setattr(
        partitioner,
        "pack_one",
        lambda table, columns, real=partitioner.pack_one: (packed.append(table.num_rows), real(table, columns))[1],
    )
    split_rows(pa.table({"p": [2] * 50 + [1] * 50, "v1": range(100)}), ["p"], "base", "uuid")
    assert packed == [2]

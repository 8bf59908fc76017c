"""Alignment finds the pairs of partitions that a look at every pair finds."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kartothek_cube.cube.query import partitions as align_module
from kartothek_cube.cube.query.partitions import _compact, align, start

VALUES = {"p": st.integers(0, 3), "q": st.sampled_from(["a", "b", "c"]), "i1": st.sampled_from([0.0, -0.0, 1.5, None])}
SCHEMA = pa.schema({"p": pa.int64(), "q": pa.string(), "i1": pa.float64()})


@st.composite
def partitions(draw):
    """Those of one dataset, which are different and in the order of their keys."""
    names = draw(st.sampled_from([["p"], ["q"], ["p", "q"], ["q", "p"], ["p", "i1"], ["i1"]]))
    rows = draw(st.lists(st.fixed_dictionaries({name: VALUES[name] for name in names}), max_size=12))
    table = pa.Table.from_pylist(rows, schema=pa.schema([SCHEMA.field(name) for name in names]))
    return _compact(np.arange(len(rows)), table, len(rows), len(rows), {})


def pairs(left, right, *, inner):
    """Of each pair the left partition, the right one or -1, and its keys."""
    lefts, rights = left.keys.to_pylist(), right.keys.to_pylist()
    for i, one in enumerate(lefts):
        found = [j for j, other in enumerate(rights) if all(one[c] == other[c] for c in one.keys() & other.keys())]
        for j in found or ([] if inner else [-1]):
            other = rights[j] if j >= 0 else dict.fromkeys(right.keys.column_names)
            yield i, j, {**other, **one}


@given(partitions(), partitions() | st.none(), st.booleans(), st.sampled_from([0, 64]))
def test_partitions_meet_as_if_each_were_compared_with_each(left, right, inner, few):
    right = right or left
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(align_module, "_FEW", few)
        found = align(start("seed", left), "e", right, inner=inner)
    expected = list(pairs(left, right, inner=inner))
    assert (
        list(zip(found.parts["seed"].tolist(), found.parts["e"].tolist(), found.keys.to_pylist(), strict=True))
        == expected
    )

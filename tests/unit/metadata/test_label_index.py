from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kartothek_cube.core.metadata.document import from_mapping
from kartothek_cube.core.metadata.index import positions_among

texts = st.text("ab/", max_size=12) | st.text("ab/", min_size=8, max_size=20)


@given(st.lists(texts, unique=True, max_size=8), st.lists(texts, max_size=5), st.integers(0, 3))
def test_names_are_found_as_by_comparing(labels, names, skipped):
    everything, wanted = (
        pa.array(labels, type=pa.string())[skipped:],
        pa.array([*names, *labels[:2]], type=pa.string())[min(skipped, 1) :],
    )
    expected = [
        everything.to_pylist().index(name) if name in everything.to_pylist() else -1 for name in wanted.to_pylist()
    ]
    assert positions_among(wanted, everything).tolist() == expected


@pytest.mark.parametrize("names", [[7], [7, None], [], range(100), [5, 5, 99]])
def test_few_names_and_many(names):
    partitions = from_mapping({f"P={i}/{i:032x}": {"files": {}} for i in range(100)}, "w")
    wanted = pa.array(["nothing" if i is None else f"P={i}/{i:032x}" for i in names], type=pa.string())
    assert partitions.positions(wanted).tolist() == [-1 if i is None else i for i in names]

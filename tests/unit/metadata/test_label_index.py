from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kartothek_cube.core.metadata import index as label_index
from kartothek_cube.core.metadata.document import from_mapping
from kartothek_cube.core.metadata.index import are_distinct, label_order, positions_among

pytestmark = pytest.mark.usefixtures("fast_paths")

texts = st.text("ab/", max_size=12) | st.text("ab/", min_size=8, max_size=20)


@given(st.lists(texts, max_size=8))
def test_labels_are_distinct_if_none_occurs_twice(labels):
    assert are_distinct(pa.array(labels, type=pa.string())) == (len({*labels}) == len(labels))


@given(st.lists(texts, unique=True, max_size=8), st.lists(texts, max_size=5), st.integers(0, 3))
def test_names_are_found_by_their_hashes_as_by_comparing(labels, names, skipped):
    everything, wanted = (
        pa.array(labels, type=pa.string())[skipped:],
        pa.array([*names, *labels[:2]], type=pa.string())[min(skipped, 1) :],
    )
    order = label_order(everything) if len(everything) else None
    expected = [
        everything.to_pylist().index(name) if name in everything.to_pylist() else -1 for name in wanted.to_pylist()
    ]
    assert positions_among(wanted, everything, order).tolist() == expected


def test_a_few_names_are_searched_and_the_order_is_made_once(monkeypatch):
    made = []
    monkeypatch.setattr(
        "kartothek_cube.core.metadata.document.label_order",
        lambda labels: made.append(1) or label_index.label_order(labels),
    )
    partitions = from_mapping({f"P={i}/{i:032x}": {"files": {}} for i in range(100)}, "w")
    for _ in range(2):
        assert partitions.positions(pa.array([f"P=7/{7:032x}", "nothing at all"])).tolist() == [7, -1]
    assert made == [1]
    assert partitions.positions(partitions.labels).tolist() == list(range(100))
    assert made == [1]

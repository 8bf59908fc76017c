"""A secondary index through commits and files, against a dict of value → labels."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kartothek_cube.core.expressions.predicates import Clause
from kartothek_cube.core.io import parquet_rows
from kartothek_cube.core.metadata import index as index_module
from kartothek_cube.core.metadata import index as label_lists
from kartothek_cube.core.metadata.index import (
    SecondaryIndex,
    build_index,
    distinct_pairs,
    drop_labels,
    grouped,
    index_labels,
    keep_labels,
    merge_indices,
)
from kartothek_cube.core.snapshots import loader as index_file
from kartothek_cube.core.snapshots.loader import index_bytes, read_index
from kartothek_cube.core.stores.local import MemoryStore

KEY = "uuid/indices/x/1.parquet"
LABELS = [f"p=1/{c}" for c in "abcdef"]
VALUES = {
    pa.int64(): st.integers(-3, 4) | st.sampled_from([-(2**63), 2**63 - 1]),
    pa.uint64(): st.integers(0, 6) | st.just(2**64 - 1),
    pa.float64(): st.sampled_from([0.0, -0.0, 1.5, -1e300, float("inf"), float("-inf")]),
    pa.bool_(): st.booleans(),
    pa.string(): st.sampled_from(["", "a", "ab", "b", "ä", "\U0001f600", "\uffff"]),
    pa.binary(): st.sampled_from([b"", b"\xff", b"a", b"\x00"]),
    pa.date32(): st.dates(),
    pa.timestamp("us"): st.datetimes(dt.datetime(1, 1, 1), dt.datetime(9999, 1, 1)),
}
kinds = st.sampled_from(list(VALUES))


@pytest.fixture(params=["as for many pairs", "as for few"], autouse=True, scope="module")
def sizes(request):
    """With the ways of large indices, and with those of small ones."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "as for many pairs":
            patch.setattr(label_lists, "_FEW", 0)
            patch.setattr(index_module, "_MERGED", 0)
            patch.setattr(index_module, "MANY", 0)
            patch.setattr(parquet_rows, "_MANY_TEXTS", 0)
            patch.setattr(parquet_rows, "_STREAMED_ROWS", 2)
            patch.setattr(index_file, "_MANY_VALUES", 2)
        yield


class Model:
    """The labels of each value, in the order in which they came."""

    def __init__(self):
        self.lists = {}

    def add(self, values, label):
        for value in values:
            self.lists.setdefault(value, []).append(label)

    def drop(self, labels):
        left = {value: [label for label in found if label not in labels] for value, found in self.lists.items()}
        self.lists = {value: found for value, found in left.items() if found}

    @property
    def rows(self):
        return [(value, self.lists[value]) for value in sorted(self.lists)]


def rows_of(index):
    whole = grouped(index)
    return list(zip(whole.keys.to_pylist(), whole.lists.to_pylist(), strict=True))


def read(index, clauses=()):
    """Through a file with row groups of three values; and whether it was read as a whole."""
    store = MemoryStore()
    store.put(KEY, index_bytes(index, group_rows=3))
    return read_index(store, KEY, "uuid", "x", index.type, clauses)


@st.composite
def histories(draw):
    """The type of the values, and commits: labels that are removed, labels that are added with
    their values.
    """
    kind = draw(kinds)
    values = st.lists(VALUES[kind], unique=True, max_size=6)
    commit = st.tuples(st.sets(st.sampled_from(LABELS)), st.dictionaries(st.sampled_from(LABELS), values, max_size=3))
    return kind, draw(st.lists(commit, min_size=1, max_size=5))


def followed(kind, commits):
    """The index and the model after each commit."""
    index, model = build_index("x", kind, []), Model()
    for removed, added in commits:
        gone = {*removed, *added}  # what is added replaces a partition of the same label
        model.drop(gone)
        for label, values in added.items():
            model.add(values, label)
        fresh = build_index("x", kind, [(pa.array(values, type=kind), label) for label, values in added.items()])
        index = grouped(merge_indices([drop_labels(index, pa.array(sorted(gone), type=pa.string())), fresh]))
        yield index, model


@given(histories())
def test_commits_add_remove_and_replace_labels(history):
    for index, model in followed(*history):
        assert rows_of(index) == model.rows
        assert index.keys.null_count == 0
        assert len(index) == sum(len(labels) for _, labels in model.rows)
        pairs = [(value, label) for value, labels in model.rows for label in labels]
        assert list(zip(index.values.to_pylist(), index.labels.to_pylist(), strict=True)) == pairs
        assert index_labels(index).to_pylist() == sorted({label for _, label in pairs})
        distinct = distinct_pairs(index)
        assert list(zip(distinct.values.to_pylist(), distinct.labels.to_pylist(), strict=True)) == sorted(pairs)


@given(histories(), st.sets(st.sampled_from(LABELS)))
def test_files_and_other_states_have_the_same_pairs(history, kept):
    *_, (index, model) = followed(*history)
    back, whole = read(index)
    assert (rows_of(back), whole) == (model.rows, True)
    table = pq.read_table(pa.BufferReader(index_bytes(index, group_rows=3)))
    assert table.schema == pa.schema([("x", history[0]), ("partition", pa.list_(pa.string()))])
    assert table.to_pydict() == {"x": [v for v, _ in model.rows], "partition": [labels for _, labels in model.rows]}
    part = keep_labels(back, pa.array(sorted(kept), type=pa.string()))
    model.drop({*LABELS} - kept)
    assert rows_of(part) == model.rows


@given(histories(), st.data())
def test_a_part_of_a_file_has_the_matching_pairs(history, data):
    *_, (index, model) = followed(*history)
    op, bound = data.draw(st.sampled_from(["==", ">=", "<"])), data.draw(VALUES[history[0]])
    clauses = [Clause("x", op, bound)]
    matches = {"==": bound.__eq__, ">=": lambda v: v >= bound, "<": lambda v: v < bound}[op]
    expected = [(value, labels) for value, labels in model.rows if matches(value)]
    back, _ = read(index, clauses)
    assert rows_of(index.select(clauses)) == rows_of(back.select(clauses)) == expected


@given(histories(), st.data())
def test_pairs_are_filtered_one_by_one(history, data):
    *_, (index, _) = followed(*history)
    mask = data.draw(st.lists(st.booleans(), min_size=len(index), max_size=len(index)))
    pairs = zip(index.values.to_pylist(), index.labels.to_pylist(), strict=True)
    left = index.filter(np.array(mask, dtype=bool))
    assert [*zip(left.values.to_pylist(), left.labels.to_pylist(), strict=True)] == [
        pair for pair, kept in zip(pairs, mask, strict=True) if kept
    ]
    known = index.positions(pa.array(LABELS[::-1]))
    assert known.tolist() == [LABELS[::-1].index(label) for label in index.labels.to_pylist()]


def test_moments_that_python_does_not_have_are_put_in_their_places():
    moments = pa.array([-(2**62), 0, 2**62]).cast(pa.timestamp("us"))
    new = pa.array([2**61, -(2**61), 2**62]).cast(pa.timestamp("us"))
    index = grouped(
        merge_indices([build_index("x", new.type, [(v, name)]) for v, name in ((moments, "a"), (new, "b"))])
    )
    assert index.keys.cast(pa.int64()).to_pylist() == [-(2**62), -(2**61), 0, 2**61, 2**62]
    assert index.lists.to_pylist() == [["a"], ["b"], ["a"], ["b"], ["a", "b"]]


def test_an_index_without_pairs_is_written_and_read():
    empty = build_index("x", pa.string(), [])
    assert isinstance(read(empty)[0], SecondaryIndex)
    assert (len(read(empty)[0]), read(empty)[0].type) == (0, pa.string())

"""Lists of labels, against Python's lists."""

from __future__ import annotations

import pickle
from itertools import chain, pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kartothek_cube.core.metadata import index as label_lists
from kartothek_cube.core.metadata.index import (
    SecondaryIndex,
    build_index,
    compacted,
    concat_lists,
    drop_labels,
    grouped,
    interned,
    joined,
    labels_of,
    merge_indices,
    number_of_labels,
    packed,
    without_labels,
)

NAMES = ["a", "b", "c", "d"]
labels = st.lists(st.sampled_from(NAMES), min_size=1, max_size=5)
ones = st.sampled_from(NAMES).map(lambda label: [label])
columns = st.lists(labels, min_size=1, max_size=12) | st.lists(ones, min_size=1, max_size=12)


@pytest.fixture(params=["found", "hashes of one value", "few"], autouse=True, scope="module")
def searched(request):
    """How equal lists are found: by their hashes, where these do not help, and not at all."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(label_lists, "_FEW", 1000 if request.param == "few" else 0)
        patch.setattr(label_lists, "_BLOCK", 7)
        label_lists._first_powers.cache_clear()
        if request.param == "hashes of one value":
            patch.setattr(label_lists, "_hashes", lambda _, offsets: np.zeros(len(offsets) - 1, dtype=np.uint64))
        yield request.param
    label_lists._first_powers.cache_clear()


def column(rows, names=NAMES):
    """Interned, after a list that is sliced off."""
    items = pa.array([names.index(label) for row in [["a"], *rows] for label in row], type=pa.int32())
    offsets = pa.array(np.cumsum([0, 1, *map(len, rows)]), type=pa.int32())
    whole = pa.ListArray.from_arrays(offsets, pa.DictionaryArray.from_arrays(items, pa.array(names)))
    return interned(whole[1:])


@given(columns)
def test_equal_lists_are_one(searched, rows):
    found = column(rows)
    assert found.to_pylist() == rows
    if searched == "found":
        assert len(found.dictionary) == len({tuple(row) for row in rows})


@given(columns, st.data())
def test_rows_have_their_labels(rows, data):
    found = column(rows)
    low, high = sorted(data.draw(st.tuples(*[st.integers(0, len(rows))] * 2)))
    part, expected = found.slice(low, high - low), rows[low:high]
    assert labels_of(part).to_pylist() == [label for row in expected for label in row]
    assert number_of_labels(part).tolist() == [len(row) for row in expected]
    small = packed(part)
    assert small.to_pylist() == expected
    assert len(small.dictionary) <= len(expected)
    assert set(small.dictionary.flatten().dictionary.to_pylist()) == {label for row in expected for label in row}


@given(st.lists(columns, min_size=1, max_size=3))
def test_columns_with_other_codes_are_concatenated(searched, parts):
    whole = concat_lists([column(rows, NAMES[i:] + NAMES[:i]) for i, rows in enumerate(parts)])
    expected = [row for rows in parts for row in rows]
    assert whole.to_pylist() == compacted(whole).to_pylist() == expected
    if searched == "found":
        assert len(compacted(whole).dictionary) == len({tuple(row) for row in expected})


@given(columns, st.data())
def test_runs_of_rows_are_joined(rows, data):
    starts = np.array(sorted({0, *data.draw(st.lists(st.integers(0, len(rows) - 1)))}))
    bounds = [*starts.tolist(), len(rows)]
    expected = [list(chain.from_iterable(rows[a:b])) for a, b in pairwise(bounds)]
    assert joined(column(rows), starts).to_pylist() == expected


@pytest.mark.parametrize("replaced", [False, True])
def test_a_stream_of_commits_leaves_little_that_no_value_has(replaced):
    index = build_index("x", pa.int64(), [(pa.array([1, 2, 3]), "0")])
    for i in range(1, 100):
        added = build_index("x", pa.int64(), [(pa.array([2]), str(i))])
        index = drop_labels(index, pa.array([str(i - 1)])) if replaced else index
        index = grouped(merge_indices([index, added]))
        kept = index.lists.dictionary.flatten()
        assert len(kept) <= 2 * len(index) + 1
        assert len(kept.dictionary) <= (2 if replaced else i + 1)
    assert index.keys.to_pylist() == ([2] if replaced else [1, 2, 3])
    assert len(index) == (1 if replaced else 102)


@given(columns, st.sets(st.sampled_from(NAMES)))
def test_labels_are_dropped(searched, rows, gone):
    expected = [[label for label in row if label not in gone] or None for row in rows]
    left = without_labels(column(rows), np.array([name in gone for name in NAMES]))
    assert left.to_pylist() == expected
    if searched == "found":
        assert len(left.dictionary) == len({tuple(row) for row in expected if row})


def test_orders_are_told_apart(searched):
    rows = [["a", "b"], ["b", "a"]] * 10
    assert len(column(rows).dictionary) == {"found": 2, "few": 20, "hashes of one value": 11}[searched]


@given(columns)
def test_an_index_is_pickled_without_what_it_does_not_need(rows):
    index = SecondaryIndex("x", pa.array(range(len(rows))), column(rows)).take(np.array([len(rows) - 1]))
    back = pickle.loads(pickle.dumps(index))
    assert (back.keys.to_pylist(), back.lists.to_pylist()) == ([len(rows) - 1], rows[-1:])
    assert len(back.lists.dictionary) == 1

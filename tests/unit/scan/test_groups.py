from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kartothek_cube.core.expressions.predicates import parse_predicates
from kartothek_cube.core.metadata.index import build_index
from kartothek_cube.core.scan.execute import check_group_columns, group_partitions, partition_by_partition
from kartothek_cube.core.scan.plan import conjunction_masks, needed_indices
from kartothek_cube.core.snapshots.loader import with_indices
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import InvalidRequest
from tests.support.commits import write

ROWS = {"p": [2, 2, 1, 1, 3], "i1": ["b", "a", "a", None, None], "i2": [1, 2, 1, 2, 2], "x": [1, 2, 3, 4, 5]}


@pytest.fixture(scope="module")
def snapshot():
    store = MemoryStore()
    return with_indices(store, write(store, ROWS, on=["p"], index=["i1", "i2"], label="f"), ["i1", "i2"])


def planned(snapshot, by, predicates=None):
    parsed = parse_predicates(predicates)
    indices = {c: snapshot.indices[c] for c in needed_indices(snapshot, parsed, set(by) & snapshot.secondary_columns)}
    masks, _ = conjunction_masks(snapshot, parsed, indices, np.ones(len(snapshot.partitions), dtype=bool))
    return group_partitions(snapshot, by, masks, parsed, indices)


def shown(snapshot, by, predicates=None):
    groups = planned(snapshot, by, predicates)
    values = snapshot.values.column("p").to_pylist()
    return [(tuple(groups.key(i).values()), [values[j] for j in groups.partitions(i)]) for i in range(len(groups))]


@pytest.mark.parametrize(
    ("by", "predicates", "expected"),
    [
        (["p"], None, [((1,), [1]), ((2,), [2]), ((3,), [3])]),  # G01
        (["i1"], None, [(("a",), [1, 2]), (("b",), [2])]),  # G06, G07
        (["p", "i1"], None, [((1, "a"), [1]), ((2, "a"), [2]), ((2, "b"), [2])]),  # G08
        (["i1", "p"], None, [(("a", 1), [1]), (("a", 2), [2]), (("b", 2), [2])]),  # G09
        (["i1", "i2"], None, [(("a", 1), [1, 2]), (("a", 2), [1, 2]), (("b", 1), [2]), (("b", 2), [2])]),
        ([], None, [((), [1, 2, 3])]),  # G03
        ([], [[("p", "==", 9)]], [((), [])]),  # G04
        (["p"], [[("p", "==", 9)]], []),  # G11
        (["i1"], [[("i1", "==", "c")]], []),  # G11
        (["i1"], [[("i1", "==", "a")]], [(("a",), [1, 2])]),  # G10
        (["i1"], [[("p", "==", 2), ("i1", "!=", "b")]], [(("a",), [2])]),
        (
            ["i1"],
            [[("p", "==", 1), ("i1", "==", "a")], [("p", "==", 2), ("i1", "==", "b")]],
            [(("a",), [1]), (("b",), [2])],
        ),
        (["i1"], [[("i2", "==", 2)]], [(("a",), [1, 2]), (("b",), [2])]),
        (["i1"], [[("i1", "==", None)]], []),
        # Nulls in a column that is only in the predicates lose nothing.
        (["p"], [[("i1", "==", None)]], [((1,), [1]), ((2,), [2]), ((3,), [3])]),
        (["p"], [[("i1", "==", "a")], [("p", "==", 3)]], [((1,), [1]), ((2,), [2]), ((3,), [3])]),
    ],
    ids=range(16),
)
def test_groups(snapshot, by, predicates, expected):
    assert [(key, sorted(partitions)) for key, partitions in shown(snapshot, by, predicates)] == expected


def test_partitions_alone_follow_the_document():
    groups = partition_by_partition(np.array([True, False, True]))
    assert [groups.partitions(i).tolist() for i in range(len(groups))] == [[0], [2]]
    assert groups.key(0) == {}
    assert groups.amplification() == 1


def test_a_partition_is_in_as_many_groups_as_it_has_values(snapshot):
    assert planned(snapshot, ["i1"]).amplification() == 1.5
    assert planned(snapshot, ["p"]).amplification() == 1
    assert planned(snapshot, ["i1"], [[("i1", "==", "b")]]).amplification() == 1
    assert planned(snapshot, ["p"], [[("p", "==", 9)]]).amplification() == 0


def test_an_index_that_names_a_label_twice_gives_it_once(snapshot):
    label = snapshot.partitions.labels[0].as_py()
    twice = snapshot.with_indices(
        {
            "i1": build_index(
                "i1", pa.string(), [(pa.array(["a"]), label), (pa.array(["a"]), label), (pa.array(["z"]), "gone")]
            )
        }
    )
    assert [len(partitions) for _, partitions in shown(twice, ["i1"])] == [1]


# G05
@pytest.mark.parametrize("columns", [["x"], ["i1", "x"], ["unknown"]])
def test_columns_without_index_are_refused(snapshot, columns):
    with pytest.raises(InvalidRequest, match=r"Dispatch columns must be indexed\. Dataset 'uuid' has no index on"):
        check_group_columns(columns, snapshot)


def test_a_column_that_is_named_twice_counts_once(snapshot):
    assert check_group_columns(["i1", "p", "i1"], snapshot) == ("i1", "p")


ROW = st.tuples(st.integers(0, 2), st.sampled_from(["a", "b", None]), st.sampled_from([1, 2, None]))


@settings(deadline=None)
@given(st.lists(ROW, min_size=1, max_size=12), st.permutations(["p", "i1", "i2"]), st.integers(0, 3))
def test_groups_are_the_combinations_that_rows_may_have(rows, order, size):
    by = order[:size]
    store = MemoryStore()
    columns = dict(zip(["p", "i1", "i2"], zip(*rows, strict=True), strict=True))
    table = pa.table(
        {
            "p": pa.array(columns["p"]),
            "i1": pa.array(columns["i1"], pa.string()),
            "i2": pa.array(columns["i2"], pa.int64()),
        }
    )
    found = with_indices(store, write(store, table, on=["p"], index=["i1", "i2"]), ["i1", "i2"])
    groups = planned(found, by)
    keys = [tuple(groups.key(i).values()) for i in range(len(groups))]
    existing = {tuple(row[["p", "i1", "i2"].index(c)] for c in by) for row in rows}
    assert keys == sorted(set(keys))
    # A group is planned for every combination without null; some may turn out to be without rows.
    assert {key for key in existing if None not in key} <= set(keys)
    for i, key in enumerate(keys):
        values = dict(zip(by, key, strict=True))
        held = {found.values.column("p")[j].as_py() for j in groups.partitions(i)}
        assert {p for p, i1, i2 in rows if all({"p": p, "i1": i1, "i2": i2}[c] == v for c, v in values.items())} <= held

"""Planning that searches in sorted values finds what planning that looks at every value finds."""

from __future__ import annotations

from contextlib import contextmanager
from functools import cache

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kartothek_cube import C, Conjunction, Cube, append_to_cube, build_cube, plan_cube_query
from kartothek_cube.core.metadata import snapshot as snapshot_module
from kartothek_cube.core.snapshots.loader import load_snapshot
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.cube.query import partitions as align
from tests.caches import forget

CUBE = Cube(["x"], ["p", "q"], "searched", index_columns=["i1", "i2"])
LIMITS = {
    "kartothek_cube.core.metadata.snapshot.MANY": 0,
    "kartothek_cube.core.metadata.index.MANY": 0,
    "kartothek_cube.core.metadata.index._COST": 0,
    "kartothek_cube.cube.query.partitions._FEW": 0,
    "kartothek_cube.cube.query.planning._FEW": 0,
}


@cache
def store():
    made = MemoryStore()
    rows = range(24)
    p, q = [x % 6 for x in rows], ["abc"[x % 3] for x in rows]
    frames = {
        "seed": pa.table({"x": list(rows), "p": p, "q": q, "i1": [x % 5 for x in rows]}),
        "e": pa.table({"x": list(rows)[4:], "p": p[4:], "i2": [x % 4 for x in rows][4:]}),
        "f": pa.table({"x": [1, 2], "v1": [1, 2]}),
        "g": pa.table({"x": list(rows)[:9], "q": q[:9], "k": [x % 2 for x in rows][:9], "v2": list(rows)[:9]}),
    }
    build_cube(frames, CUBE, made, partition_on={"e": ["p"], "f": [], "g": ["q", "k"]})
    append_to_cube({"seed": frames["seed"].slice(3, 5), "e": frames["e"].slice(2, 6)}, CUBE, made)
    return made


def described(conditions, by):
    plan = plan_cube_query(CUBE, store(), Conjunction(conditions), partition_by=by)
    return (
        plan.explain("json"),
        [(g.key, g.partitions) for g in plan.groups],
        [(g.key, g.partitions) for g in plan.slices],
    )


@contextmanager
def searching():
    with pytest.MonkeyPatch.context() as patch:
        for name, limit in LIMITS.items():
            patch.setattr(name, limit)
        yield


numbers = st.tuples(
    st.sampled_from(["p", "i1", "i2", "x", "k", "v1"]),
    st.sampled_from(["==", "!=", "<", "<=", ">", ">=", "in"]),
    st.integers(-1, 8),
)
texts = st.tuples(st.just("q"), st.sampled_from(["==", "!=", "<=", ">", "in"]), st.sampled_from(["a", "b", "bb", "c"]))


def condition(column, op, value):
    return (
        C(column).isin([value, value, type(value)(3)])
        if op == "in"
        else Conjunction.from_string(f"{column} {op} {value}", TYPES).conditions[0]
    )


TYPES = {"q": pa.string(), **dict.fromkeys(["p", "i1", "i2", "x", "k", "v1"], pa.int64())}


@given(st.lists(numbers | texts, max_size=3), st.sampled_from([None, ["i1"], ["i2", "q"], ["p"], ["k"]]))
def test_a_search_plans_what_a_look_at_every_value_plans(parts, by):
    conditions = [condition(*part) for part in parts]
    plain = described(conditions, by)
    forget(store())
    with searching():
        assert described(conditions, by) == plain
        assert described(conditions, by) == plain


@pytest.fixture
def looked(monkeypatch):
    """The rows that are looked at one by one, and "all" for values that are compared where they
    could be searched.
    """
    found = []
    monkeypatch.setattr(snapshot_module, "matching_all", lambda *_: found.append("all"))
    monkeypatch.setattr(
        align,
        "pack",
        lambda tables, columns, pack=align.pack: found.append([t.num_rows for t in tables]) or pack(tables, columns),
    )
    return found


def test_a_few_partitions_are_searched_and_not_looked_for_in_every_label(looked):
    with searching():
        plan = plan_cube_query(CUBE, store(), C("q") == "b", payload_columns=["i1", "i2"])
    assert plan.file_counts() == {"seed": 4, "e": 4}
    assert looked == [[2, 4]]


def test_datasets_that_have_the_same_partitions_are_not_searched_at_all(looked):
    with searching():
        plan = plan_cube_query(CUBE, store(), C("p") == 3, payload_columns=["i1", "i2"])
    assert plan.file_counts() == {"seed": 2, "e": 2}
    assert looked == []


def test_a_plan_of_everything_is_no_copy_of_what_is_known():
    made, snapshot = store(), load_snapshot(store(), "searched++seed")
    everything, some = plan_cube_query(CUBE, made), plan_cube_query(CUBE, made, C("p") >= 3)
    assert everything.file_columns["seed"] is snapshot.files
    assert everything.value_columns["seed"] is snapshot.values
    assert some.file_columns["seed"].to_pylist() == [
        f for f in snapshot.files.to_pylist() if f.split("/p=")[1][0] in "345"
    ]


def test_what_is_sorted_once_is_kept_with_the_snapshot(monkeypatch):
    forget(store())
    made, ascending = [], snapshot_module._ascending
    monkeypatch.setattr(snapshot_module, "_ascending", lambda values: made.append(1) or ascending(values))
    with searching():
        for value in (1, 2, 3):
            plan_cube_query(CUBE, store(), C("p") == value, payload_columns=["i1"])
    assert made == [1]

"""Small partitions that are joined together have the rows that each of them has alone."""

from __future__ import annotations

import threading

import numpy as np
import pyarrow as pa
import pytest

from kartothek_cube import options
from kartothek_cube.api.cube import C, Cube, append_to_cube, build_cube, plan_cube_query, query_cube_arrow, stream_cube
from kartothek_cube.core.stores.open import open_store
from kartothek_cube.cube.execute.load import PartitionLoader
from kartothek_cube.cube.execute.run import BatchLoader, load_ahead, whole_table
from tests.support.cubes import table

CUBE = Cube(["x", "y"], ["p", "q"], "cube", index_columns=["i1"])
ROWS = 60


def rows(seed, *dimensions, n=ROWS, **payload):
    """Random cells, each once, of 3 x 2 partitions."""
    rng = np.random.default_rng(seed)
    cells = rng.permutation(6 * 5 * 6)[:n]
    own = {"x": cells % 5, "y": cells // 5 % 6, "p": cells // 30 % 3, "q": pa.array([f"q{k}" for k in cells // 90])}
    return table(**{c: own[c] for c in dimensions}, **{c: make(rng, n) for c, make in payload.items()})


def some(values):
    return lambda rng, n: pa.array([values[k] for k in rng.integers(0, len(values), n)])


@pytest.fixture(scope="module")
def store():
    store = open_store("hmemory://")
    seed = rows(1, "x", "y", "p", "q", i1=some([1, 2, 3]), v1=some([None, 0.5, -0.0]), v2=some([None, "a", ""]))
    same = table(**{c: seed.column(c) for c in "xypq"}, v3=list(range(ROWS)))
    part = rows(2, "x", "y", "p", "q", v4=some([[1], [None], None]))
    data = {
        "seed": seed,
        "same": same,
        "part": part,
        "products": table(x=[0, 1, 3], v5=["zero", None, "three"]),
        "days": table(y=[0, 1, 5, 2, 0], p=[0, 0, 0, 1, 1], v6=[1, 2, 1, 1, 3]),
    }
    build_cube(data, CUBE, store, partition_on={"products": [], "days": ["p"]})
    append_to_cube(
        {
            "seed": rows(4, "x", "y", "p", "q", i1=some([4]), v1=some([9.5]), v2=some(["new"])),
            "part": rows(5, "x", "y", "p", "q", v4=some([[7]])),
        },
        CUBE,
        store,
    )
    return store


QUERIES = [
    {},
    {"conditions": C("i1") == 2},
    {"conditions": (C("v1") > 1.0) & (C("p") != 1)},
    {"conditions": C("i1") == 99},
    {"dimension_columns": ["x"], "payload_columns": ["v5"]},
    {"payload_columns": []},
    {"datasets": ["seed", "days"]},
]


def plan_of(store, arguments):
    return plan_cube_query(CUBE, store, **arguments)


@pytest.mark.parametrize("arguments", QUERIES, ids=str)
@pytest.mark.parametrize("size", [2, 64])
def test_each_has_the_rows_that_it_has_alone(store, arguments, size):
    plan = plan_of(store, arguments)
    groups = list(plan.slices)
    for begin in range(0, len(groups), size):
        some_groups = groups[begin : begin + size]
        found = load_ahead(BatchLoader(PartitionLoader(store), plan.context, single=False), some_groups)
        for one, group in zip(found, some_groups, strict=True):
            one.validate(full=True)
            expected = PartitionLoader(store).load(group)
            assert one.schema.equals(expected.schema)
            assert one.to_pylist() == expected.to_pylist()


@pytest.mark.parametrize("arguments", QUERIES, ids=str)
def test_the_whole_does_not_depend_on_them(store, arguments, monkeypatch):
    plan = plan_of(store, arguments)
    streamed = pa.concat_tables(
        [plan.schema.empty_table(), *(PartitionLoader(store).load(group) for group in plan.slices)]
    )
    with options(threads=1):
        together = whole_table(plan, store)
        assert stream_cube(CUBE, store, **arguments).read_all().to_pylist() == streamed.to_pylist()
        monkeypatch.setattr(BatchLoader, "limit", lambda self: 1)
        assert together.to_pylist() == whole_table(plan, store).to_pylist()


def test_a_dataset_may_have_no_files_in_any_of_them():
    store = open_store("hmemory://")
    seed = table(x=[1, 2, 3], y=[0] * 3, p=[0, 1, 2], q=["a"] * 3, i1=[1] * 3)
    build_cube({"seed": seed, "e": table(x=[1], y=[0], p=[0], q=["a"], v1=[7])}, CUBE, store)
    plan = plan_of(store, {})
    some_groups = list(plan.slices)[1:]
    found = list(load_ahead(BatchLoader(PartitionLoader(store), plan.context, single=False), some_groups))
    assert [one.to_pylist() for one in found] == [
        PartitionLoader(store).load(group).to_pylist() for group in some_groups
    ]
    assert [row["v1"] for one in found for row in one.to_pylist()] == [None, None]


def test_partition_columns_may_have_any_order():
    store, cube = open_store("hmemory://"), Cube(["x"], ["q", "p"], "cube")
    rows = [{"p": p, "q": q, "x": x} for x, (p, q) in enumerate([(0, "a"), (1, "a"), (0, "b"), (1, "b")] * 2)]
    build_cube(pa.Table.from_pylist(rows), cube, store)
    with options(threads=1):  # one partition alone, then the others together; their rows alternate
        assert query_cube_arrow(cube, store).to_pylist() == rows


def test_small_partitions_are_joined_together(store, monkeypatch):
    plan = plan_of(store, {"datasets": ["seed", "same", "part"]})
    alone, join = [], PartitionLoader.join
    monkeypatch.setattr(PartitionLoader, "join", lambda self, group: alone.append(group) or join(self, group))
    with options(threads=1):
        stream_cube(CUBE, store, datasets=["seed", "same", "part"]).read_all()
    assert 0 < len(alone) < len(plan.slices) / 2


@pytest.fixture
def alone(monkeypatch):
    """The groups that are loaded alone."""
    found, join = [], PartitionLoader.join
    monkeypatch.setattr(PartitionLoader, "join", lambda self, group: found.append(group) or join(self, group))
    return found


def small_batches(store, plan, monkeypatch):
    """A batch loader that has seen a small partition."""
    batches = BatchLoader(PartitionLoader(store), plan.context, single=False)
    monkeypatch.setattr(batches, "_largest", 1)
    return batches


def test_partitions_are_joined_together_as_far_as_they_share_files(store, alone, monkeypatch):
    plan = plan_of(store, {"datasets": ["seed", "days"]})  # `days` has a file for all partitions of a p
    groups = list(plan.slices)
    found = list(small_batches(store, plan, monkeypatch).join(groups))
    assert not alone
    assert [(len(batch.groups), len(batch.parts)) for batch in found] == [(2, 1)] * 3
    expected = [PartitionLoader(store).load(group).to_pylist() for group in groups]
    assert [one.to_pylist() for batch in found for one in batch.tables()] == expected


def test_small_partitions_of_which_no_neighbours_share_files_are_loaded_before_they_are_asked_for(alone, monkeypatch):
    store = open_store("hmemory://")
    seed = table(x=[0] * 4, y=[0] * 4, p=[0, 0, 1, 1], q=["a", "b", "a", "b"], i1=[1] * 4)
    build_cube({"seed": seed, "e": table(x=[0, 0], q=["a", "b"], v1=[1, 2])}, CUBE, store, partition_on={"e": ["q"]})
    plan = plan_of(store, {})
    found = load_ahead(small_batches(store, plan, monkeypatch), list(plan.slices))
    assert alone == list(plan.slices)
    assert [row["v1"] for one in found for row in one.to_pylist()] == [1, 2, 1, 2]


PARTLY = [{"conditions": C("v6") == 1}, {"conditions": C("i1") == 2}]


@pytest.mark.parametrize("arguments", PARTLY, ids=["restricted", "filtered"])
def test_partitions_of_which_not_all_is_needed_are_loaded_alone(store, arguments):
    plan = plan_of(store, arguments)
    batches = BatchLoader(PartitionLoader(store), plan.context, single=False)
    list(batches.join(list(plan.slices)[:1]))
    assert batches.limit() == 1


# --- filtered partitions --------------------------------------------------------------------------

MANY = 10_000
FILTERED = [
    {"conditions": C("x") == 3},
    {"conditions": (C("x") > 1) & (C("y") != 2)},
    {"conditions": C("v1") == 0.5},
    {"conditions": C("v2").isin(["a", ""]), "payload_columns": ["v4"]},
    {"conditions": C("v5") == "zero"},
    {"conditions": (C("v5") == "zero") & (C("y") < 3)},
    {"conditions": (C("v5") == "zero") & (C("v1") == 0.5), "datasets": ["seed", "products", "days"]},
    {"conditions": C("v6") == 1},
    {"conditions": C("v5") == "none"},
    {"conditions": C("x") == 99},
    {"conditions": C("v1") == 0.25},
    {"conditions": C("x") == 1, "dimension_columns": ["x"], "payload_columns": ["v5"]},
]


@pytest.fixture(scope="module")
def once():
    """As `store`, each partition in one file."""
    store = open_store("hmemory://")
    seed = rows(1, "x", "y", "p", "q", i1=some([1, 2, 3]), v1=some([None, 0.5, -0.0]), v2=some([None, "a", ""]))
    data = {
        "seed": seed,
        "part": rows(2, "x", "y", "p", "q", v4=some([[1], [None], None])),
        "products": table(x=[0, 1, 3], v5=["zero", None, "three"]),
        "days": table(y=[0, 1, 5, 2, 0], p=[0, 0, 0, 1, 1], v6=[1, 2, 1, 1, 3]),
    }
    build_cube(data, CUBE, store, partition_on={"products": [], "days": ["p"]})
    return store


@pytest.mark.parametrize("which", ["once", "store"])
@pytest.mark.parametrize("arguments", FILTERED, ids=str)
def test_filtered_partitions_have_together_the_rows_that_each_has_alone(request, which, arguments):
    store = request.getfixturevalue(which)
    plan, loader = plan_of(store, arguments), PartitionLoader(store)
    batches = BatchLoader(loader, plan.context, single=False, partitions=MANY)
    groups = list(plan.slices)
    found = [one for batch in batches.join(groups) for one in batch.tables()] if groups else []
    expected = [PartitionLoader(store).load(group) for group in groups]
    assert [one.to_pylist() for one in found] == [one.to_pylist() for one in expected]
    assert all(one.schema.equals(plan.schema) for one in found)


def test_partitions_without_a_row_are_no_reason_to_take_the_next_one_alone(once):
    plan = plan_of(once, {"conditions": C("v1") == 0.25})
    batches = BatchLoader(PartitionLoader(once), plan.context, single=False, partitions=MANY)
    assert batches.limit() == 1
    list(batches.join(list(plan.slices)[:1]))
    assert batches.limit() > 1


@pytest.mark.parametrize(
    ("arguments", "is_alone"),
    [
        ({"conditions": C("x") == 3}, False),
        ({"conditions": C("v5") == "zero", "datasets": ["seed", "products"]}, False),
        # What `part` finds in a partition tells which rows of the seed are of use there.
        ({"conditions": C("v7") == 1, "datasets": ["seed", "other"]}, True),
    ],
    ids=["dimension", "shared", "unshared"],
)
def test_filtered_partitions_are_joined_together_where_nothing_is_read_twice(alone, arguments, is_alone):
    store = open_store("hmemory://")
    cells = {"x": [0, 3, 1, 3], "y": [0] * 4, "p": [0, 0, 1, 1], "q": ["a", "b", "a", "b"]}
    products = table(x=[0, 1, 3], v5=["zero", "one", "three"])
    data = {"seed": table(**cells, i1=[1] * 4), "other": table(**cells, v7=[1] * 4), "products": products}
    build_cube(data, CUBE, store, partition_on={"products": []})
    plan = plan_of(store, arguments)
    batches = BatchLoader(PartitionLoader(store), plan.context, single=False, partitions=MANY)
    list(batches.join(list(plan.slices)))
    assert bool(alone) == is_alone


def test_a_condition_on_payload_is_about_the_newest_row(alone):
    store = open_store("hmemory://")
    seed = table(x=[0, 0], y=[0, 0], p=[0, 1], q=["a", "a"], i1=[1, 1], v1=[5, 5])
    build_cube(seed, CUBE, store)
    append_to_cube(table(x=[0], y=[0], p=[0], q=["a"], i1=[1], v1=[6]), CUBE, store)
    plan = plan_of(store, {"conditions": C("v1") == 5})
    batches = BatchLoader(PartitionLoader(store), plan.context, single=False, partitions=MANY)
    found = [row for batch in batches.join(list(plan.slices)) for one in batch.tables() for row in one.to_pylist()]
    assert [(row["p"], row["v1"]) for row in found] == [(1, 5)]
    assert alone


@pytest.mark.parametrize(("threads", "most"), [(1, 32), (2, 25), (5, 10), (20, 2), (50, 1)])
def test_there_are_batches_for_every_thread_as_filtering_may_take_long(once, threads, most):
    plan = plan_of(once, {"conditions": C("x") == 3})
    with options(threads=threads):
        batches = BatchLoader(PartitionLoader(once), plan.context, single=False, partitions=100)
    list(batches.join(list(plan.slices)[:1]))
    assert batches.limit() == most


def test_the_whole_of_filtered_partitions_is_what_they_are_alone(monkeypatch):
    store, cube = open_store("hmemory://"), Cube(["x"], ["p"], "many")
    n = 400
    build_cube(table(x=list(range(n)), p=[i % 40 for i in range(n)], v1=[i % 7 for i in range(n)]), cube, store)
    for conditions in (C("x") < 90, C("v1") == 3, (C("v1") != 3) & (C("x") >= 200)):
        with options(threads=1):
            together = query_cube_arrow(cube, store, conditions)
            streamed = stream_cube(cube, store, conditions).read_all()
            with monkeypatch.context() as patch:
                patch.setattr(BatchLoader, "limit", lambda self: 1)
                alone = query_cube_arrow(cube, store, conditions)
        assert together.to_pylist() == alone.to_pylist()
        assert sorted(streamed.to_pylist(), key=lambda row: row["x"]) == alone.to_pylist()
        assert len(alone)


@pytest.mark.parametrize(("at_once", "is_alone"), [(64, True), (63, False)])
def test_where_little_is_decoded_no_thread_is_started(monkeypatch, at_once, is_alone):
    store, cube = open_store("hmemory://"), Cube(["x"], ["p"], "many")
    build_cube(table(x=list(range(40)), p=list(range(40)), v1=list(range(40))), cube, store)
    started, start = [], threading.Thread.start
    monkeypatch.setattr(PartitionLoader, "parts_at_once", lambda *_: at_once)
    monkeypatch.setattr(threading.Thread, "start", lambda thread: started.append(thread) or start(thread))
    with options(threads=2):
        assert query_cube_arrow(cube, store, C("v1") >= 20).num_rows == 20
    assert (not started) == is_alone


def test_large_partitions_are_loaded_alone(store):
    plan = plan_of(store, {})
    with options(bytes_in_flight=100):
        batches = BatchLoader(PartitionLoader(store), plan.context, single=False)
    list(batches.join(list(plan.slices)[:1]))
    assert batches.limit() == 1


def test_partitions_that_are_larger_than_those_before_are_loaded_one_after_the_other(store, monkeypatch):
    plan = plan_of(store, {})
    groups, loader, loaded, join = list(plan.slices), PartitionLoader(store), [], PartitionLoader.join
    batches = BatchLoader(loader, plan.context, single=False)
    monkeypatch.setattr(batches, "_room", 10)
    monkeypatch.setattr(PartitionLoader, "join", lambda self, group: loaded.append(group) or join(self, group))
    found = load_ahead(batches, groups)
    assert loaded == groups[:1]
    next(found), next(found)
    assert loaded == groups[:2]
    assert [one.to_pylist() for one in found] == [
        PartitionLoader(store).load(group).to_pylist() for group in groups[2:]
    ]
    assert batches.limit() == 1


def test_progress_counts_partitions(store):
    events = []
    with options(progress=lambda event: events.append((event.phase, event.unit, event.done, event.total))):
        query_cube_arrow(CUBE, store, datasets=["seed", "days"])
    n = len(plan_of(store, {"datasets": ["seed", "days"]}).slices)
    assert events == [("read", "partitions", i, n) for i in range(n + 1)]

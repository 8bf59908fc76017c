"""`compact_cube(sort_by=..., zorder_by=...)`: rows in another order, the same answers."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kartothek_cube.api.cube import (
    C,
    Cube,
    append_to_cube,
    build_cube,
    compact_cube,
    count_cube,
    delete_cells,
    extend_cube,
    iter_cube,
    query_cube_arrow,
    stream_cube,
    verify_cube,
)
from kartothek_cube.api.dataset import compact_dataset
from kartothek_cube.core.runtime.options import options
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import InvalidInput, UnknownColumn
from kartothek_cube.testing.strategies import cubes_with_data, queries
from tests.support.cube_model import answer, arguments_of, check_frames, check_refused, written
from tests.support.cubes import CUBE, answers, files, index_of, refused, snapshot, stored_rows, table

ROWS = 60


def rows(n=0, count=ROWS):
    """Cells of both partitions, whose payload has another order than the dimensions."""
    return table(
        x=list(range(count)),
        y=["a"] * count,
        p=[i % 2 for i in range(count)],
        i1=[i % 7 for i in range(count)],
        v1=[float((i * 37 + n) % count) for i in range(count)],
    )


@pytest.fixture
def store():
    store = MemoryStore()
    build_cube(rows(), CUBE, store)
    payload = table(x=list(range(ROWS)), p=[i % 2 for i in range(ROWS)], v2=[-i for i in range(ROWS)])
    extend_cube({"e": payload}, CUBE, store, partition_on={"e": ["p"]})
    append_to_cube(rows(5, 20), CUBE, store)  # corrections
    append_to_cube(table(x=[100, 101], y=["a", "b"], p=[0, 1], i1=[1, 1], v1=[3.0, 4.0]), CUBE, store)
    return store


def asked(store):
    conditions = [None, C("v1") < 9.0, C("x") == 3, C("i1") == 4, C("v2") < -50, (C("v1") >= 30.0) & (C("p") == 1)]
    groups = [(key, found.to_pylist()) for key, found in iter_cube(CUBE, store, partition_by="i1")]
    streamed = pa.Table.from_batches(stream_cube(CUBE, store)).to_pylist()
    return [answers(store, conditions=c) for c in conditions], groups, streamed, count_cube(CUBE, store)


@pytest.mark.parametrize("order", [{"sort_by": "v1"}, {"sort_by": ["i1", "v1"]}, {"zorder_by": ["v1", "i1"]}])
@pytest.mark.parametrize("target", [8, 1000])
def test_every_query_answers_as_before(store, order, target):
    before = asked(store)
    reports = compact_cube(CUBE, store, target, **order)
    assert reports["seed"].commit
    assert asked(store) == before
    assert sum(stored_rows(store, key).num_rows for key in files(store)) == ROWS + 2
    assert verify_cube(CUBE, store, deep=True).clean
    assert {i: r.commit for i, r in compact_cube(CUBE, store, target, **order).items()} == {"seed": None, "e": None}
    for column in ("x", "i1"):
        expected = {}
        labels = snapshot(store).partitions.labels.to_pylist()
        for label, key in zip(labels, files(store), strict=True):
            for value in set(stored_rows(store, key).column(column).to_pylist()):
                expected.setdefault(value, set()).add(label)
        assert index_of(store, column) == expected


def test_files_are_sorted_by_payload_and_hold_each_cell_once(store):
    compact_cube(CUBE, store, 8, sort_by="v1")
    for folder in ("p=0", "p=1"):
        found = [stored_rows(store, key).column("v1").to_pylist() for key in files(store) if f"/{folder}/" in key]
        values = [value for of_file in found for value in of_file]
        assert len(found) > 3
        assert values == sorted(values)
    # Datasets without the column are compacted as ever.
    assert len(files(store, "e")) == 2


def test_later_writes_override_rows_of_clustered_files(store):
    compact_cube(CUBE, store, 8, sort_by="v1")
    append_to_cube(rows(11, 10), CUBE, store)
    delete_cells(CUBE, store, C("x") == 1)
    before = asked(store)
    assert [row["v1"] for row in answers(store) if row["x"] < 10] == [
        value for x, value in enumerate(rows(11, 10).column("v1").to_pylist()) if x != 1
    ]
    compact_cube(CUBE, store, 8, sort_by="v1")
    assert asked(store) == before
    compact_cube(CUBE, store, 1000)
    assert asked(store) == before


def test_a_file_between_two_others_keeps_overriding():
    # By their ranges of v1 the first and the last file belong together, but not the one between.
    store = MemoryStore()
    for n, (x, v1) in enumerate([([1, 2], [1.0, 9.0]), ([1], [100.0]), ([3], [5.0])]):
        data = table(x=x, y=["a"] * len(x), p=[0] * len(x), i1=x, v1=v1)
        (append_to_cube if n else build_cube)(data, CUBE, store)
    before = answers(store)
    compact_cube(CUBE, store, 2, sort_by="v1")
    assert answers(store) == before


def test_rows_that_wait_on_disk_are_the_newest_ones(store):
    before = asked(store)
    with options(bytes_in_flight=4096, threads=1):
        compact_cube(CUBE, store, 8, sort_by="v1")
    assert asked(store) == before
    assert compact_cube(CUBE, store, 8, sort_by="v1")["seed"].commit is None


def test_a_dataset_of_a_cube_may_be_clustered_alone(store):
    before = asked(store)
    assert compact_dataset("cube++seed", store, 8, sort_by="v1").commit
    assert asked(store) == before


def test_wrong_columns_are_refused_before_anything_is_written(store):
    with refused(store, UnknownColumn, "no dataset", "z"):
        compact_cube(CUBE, store, sort_by="z")
    with refused(store, UnknownColumn, "no dataset", "p"):
        compact_cube(CUBE, store, sort_by="p")
    with refused(store, UnknownColumn, "cube++e", "v1"):
        compact_cube(CUBE, store, ktk_cube_dataset_ids=["seed", "e"], sort_by="v1")
    with refused(store, InvalidInput, "not both"):
        compact_cube(CUBE, store, sort_by="v1", zorder_by=["v1", "i1"])


def test_a_cube_of_float_dimensions_with_unknown_ranges():
    store, cube = MemoryStore(), Cube("x", ["p"], "cube")
    build_cube(table(x=[0.5, 1.5, 2.5, 3.5], p=[0] * 4, v1=[4, 3, 2, 1]), cube, store)
    append_to_cube(table(x=[1.5], p=[0], v1=[9]), cube, store)
    before = query_cube_arrow(cube, store)
    (report,) = compact_cube(cube, store, 2, sort_by="v1").values()
    assert (report.files_before, report.files_after, report.rows_after) == (2, 2, 4)
    assert query_cube_arrow(cube, store).equals(before)


@pytest.mark.slow
@given(st.data())
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_a_clustered_cube_answers_as_the_model_does(data):
    case = data.draw(cubes_with_data())
    store, model = written(case), case.model()
    questions = data.draw(st.lists(queries(case), min_size=1, max_size=4))
    for name in case.cube.dimension_columns, case.cube.dimension_columns[::-1], ("payload",):
        target = data.draw(st.integers(1, 24))
        columns = [*name]
        if name == ("payload",):
            schema = snapshot(store, case.cube.seed_dataset, case.cube.uuid_prefix).schema
            keys = snapshot(store, case.cube.seed_dataset, case.cube.uuid_prefix).partition_keys
            columns = data.draw(st.lists(st.sampled_from(sorted({*schema.names} - {*keys})), min_size=1, unique=True))
        order = {"zorder_by": columns} if len(columns) in (2, 3) and data.draw(st.booleans()) else {"sort_by": columns}
        compact_cube(case.cube, store, target, **order)
        for query in questions:
            expected = answer(model, arguments_of(query))
            if expected is None:
                check_refused(case, query, store)
            else:
                check_frames(case, arguments_of(query), store, expected)

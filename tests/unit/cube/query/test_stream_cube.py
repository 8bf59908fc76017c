"""`stream_cube`, `run_plan` and `count_cube`: the rows of `query_cube_arrow` piece by piece, and
how many there are.
"""

from __future__ import annotations

import gc
import itertools
import threading

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kartothek_cube import options
from kartothek_cube.api.cube import (
    C,
    Cube,
    append_to_cube,
    build_cube,
    count_cube,
    extend_cube,
    iter_cube,
    plan_cube_query,
    query_cube_arrow,
    remove_partitions,
    run_plan,
    stream_cube,
)
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import InvalidInput, InvalidType, KeyNotFound
from kartothek_cube.testing.strategies import cubes_with_data, queries
from tests.support.cube_model import answer, arguments_of, assert_same_groups, assert_same_rows, in_order, written
from tests.support.cubes import CUBE, ColdStore, build_two, contents, table

MANY = Cube(["x", "y"], ["p"], "many", index_columns=["i1"])


@pytest.fixture
def store():
    store = MemoryStore()
    build_two(store)
    return store


@pytest.fixture
def many():
    """Ten partitions of ten rows."""
    store = MemoryStore()
    build_cube({"seed": many_rows(100), "e": table(x=[1, 2], v2=[1.0, 2.0])}, MANY, store, partition_on={"e": []})
    return store


def many_rows(n):
    return table(
        x=list(range(n)),
        y=["a"] * n,
        p=[x % 10 for x in range(n)],
        i1=[x // 10 for x in range(n)],
        v1=[x / 2 for x in range(n)],
    )


def data_keys(store, *operations):
    """Data files that were touched."""
    return {key for key in store.touched(*operations) if "/table/" in key and key.endswith(".parquet")}


# --- the rows -------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 3])
def test_the_rows_come_in_partition_order(many, threads):
    with options(threads=threads, bytes_in_flight=1000):
        found = stream_cube(MANY, many).read_all()
    whole = query_cube_arrow(MANY, many)
    assert found.schema.equals(whole.schema)
    assert found.column("p").to_pylist() == sorted(found.column("p").to_pylist())
    assert found.sort_by([("x", "ascending"), ("y", "ascending"), ("p", "ascending")]) == whole
    assert [batch["x"] for batch in found.to_pylist()] == [
        row["x"] for _, rows in iter_cube(MANY, many) for row in rows.to_pylist()
    ]


def test_no_rows_have_a_schema(store):
    reader = stream_cube(CUBE, store, C("v1") > 100.0)
    assert reader.schema.equals(query_cube_arrow(CUBE, store).schema)
    assert reader.read_all().num_rows == 0


@given(st.data())
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_rows_groups_and_numbers_are_those_of_the_model(data):
    case = data.draw(cubes_with_data())
    store, model = written(case), case.model()
    query = data.draw(queries(case))
    arguments = arguments_of(query)
    expected = answer(model, arguments)
    if expected is not None:
        rows = run_plan(plan_cube_query(case.cube, store, **arguments), store).read_all().to_pylist()
        if query.partition_by:
            groups = [list(g) for _, g in itertools.groupby(rows, key=lambda row: [row[c] for c in query.partition_by])]
            assert_same_groups(expected, groups)
        else:
            assert_same_rows(list(itertools.chain(*expected)), in_order(rows, case, query))
    del arguments["partition_by"]
    whole = answer(model, arguments)
    if whole is not None:
        rows = stream_cube(case.cube, store, **arguments).read_all().to_pylist()
        assert_same_rows(list(itertools.chain(*whole)), in_order(rows, case, query))
    arguments["payload_columns"] = []
    cells = answer(model, arguments)
    del arguments["payload_columns"]
    if cells is None:
        with pytest.raises(InvalidInput):
            count_cube(case.cube, store, **arguments)
    else:
        assert count_cube(case.cube, store, **arguments) == sum(map(len, cells))


def test_the_state_is_that_of_the_call(store):
    reader = stream_cube(CUBE, store)
    plan = plan_cube_query(CUBE, store)
    before = query_cube_arrow(CUBE, store).num_rows
    remove_partitions(CUBE, store, C("p") == 0, ["seed"])
    assert reader.read_all().num_rows == before
    assert run_plan(plan, store).read_all().num_rows == before


# --- limits and memory ----------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [0, 1, 9, 10, 11, 99, 100, 1000])
def test_a_limit_gives_the_first_rows(many, limit):
    whole = stream_cube(MANY, many).read_all()
    assert stream_cube(MANY, many, limit=limit).read_all() == whole.slice(0, limit)


@pytest.mark.parametrize(("limit", "partitions"), [(0, 0), (1, 1), (10, 1), (11, 2), (100, 10)])
def test_what_is_behind_the_limit_is_not_read(many, limit, partitions):
    counting = ColdStore(many)
    stream_cube(MANY, counting, payload_columns=["v1"], limit=limit, options=options(threads=1)).read_all()
    assert len(data_keys(counting)) == partitions


@pytest.mark.parametrize(
    ("limit", "error"), [(-1, InvalidInput), ("1", InvalidType), (True, InvalidType), (1.0, InvalidType)]
)
def test_a_limit_is_a_number_of_rows(many, limit, error):
    with pytest.raises(error, match="limit"):
        stream_cube(MANY, many, limit=limit)


def test_arguments_are_checked_by_the_call_and_no_data_are_read(many):
    counting = ColdStore(many)
    with pytest.raises(ValueError, match="zz"):
        stream_cube(MANY, counting, payload_columns="zz")
    reader = stream_cube(MANY, counting, options=options(threads=1))
    assert data_keys(counting) == set()
    reader.read_next_batch()
    assert len(data_keys(counting)) == 2


def test_partitions_are_loaded_as_far_ahead_as_there_is_memory(many):
    counting = ColdStore(many)
    reader = stream_cube(MANY, counting, payload_columns=["v1"], options=options(threads=4, bytes_in_flight=1))
    reader.read_next_batch()
    assert len(data_keys(counting)) <= 2
    assert sum(batch.num_rows for batch in reader) == 90


def test_a_reader_that_is_dropped_leaves_no_threads(many):
    before = threading.active_count()
    reader = stream_cube(MANY, many, options=options(threads=3))
    reader.read_next_batch()
    del reader
    gc.collect()
    assert threading.active_count() == before


def test_a_missing_file_is_an_error_of_the_reader(many):
    reader = stream_cube(MANY, many, options=options(threads=1))
    many.delete(next(key for key in many.list(recursive=True).keys if "/p=9/" in key))
    with pytest.raises(KeyNotFound, match="p=9"):
        reader.read_all()


def test_the_groups_of_a_plan_come_one_after_the_other(many):
    plan = plan_cube_query(MANY, many, partition_by="i1")
    with options(bytes_in_flight=1000):
        batches = list(run_plan(plan, many))
    values = [set(batch.column("i1").to_pylist()) for batch in batches]
    assert all(len(value) == 1 for value in values)
    assert [next(iter(value)) for value in values] == sorted(next(iter(value)) for value in values)
    assert pa.Table.from_batches(batches) == pa.concat_tables(
        [rows for _, rows in iter_cube(MANY, many, partition_by="i1")]
    )


# --- counting -------------------------------------------------------------------------------------


class RangesStore(ColdStore):
    """Remembers how many bytes of data files were asked for, beyond their footers."""

    def __init__(self, inner):
        super().__init__(inner)
        self.bytes = 0

    def ranges(self, key, spans):
        self.bytes += sum(stop - start for start, stop in spans)
        return super().ranges(key, spans)


WIDE = Cube(["x", "y"], ["p"], "wide")
ROWS = 60_000


@pytest.fixture(scope="module")
def wide_files():
    """A cube whose payload v1 and v3 is large, so that nobody reads it by accident together with
    something else.
    """
    store, random = MemoryStore(), np.random.default_rng(1)
    payload = [f"{a:x}{b:x}" for a, b in random.integers(0, 2**62, (ROWS, 2)).tolist()]
    cells = list(range(ROWS))
    seed = table(x=cells, y=["a"] * ROWS, p=[x % 2 for x in cells], v1=payload, v2=cells)
    build_cube(seed, WIDE, store, options=options(statistics=False))
    extend_cube({"e": table(x=cells[::2], v3=payload[::2], v4=cells[::2])}, WIDE, store, partition_on={"e": []})
    return contents(store)


@pytest.fixture
def wide(wide_files):
    store = MemoryStore()
    for key, data in wide_files.items():
        store.put(key, data)
    return store


def size(store, prefix):
    return sum(len(store.get(key)) for key in store.list(prefix, recursive=True).keys)


def counted(store, **arguments):
    counting = RangesStore(store)
    number = count_cube(WIDE, counting, **arguments)
    assert number == query_cube_arrow(WIDE, store, **arguments, payload_columns=[]).num_rows
    return number, counting


@pytest.mark.parametrize(
    ("conditions", "rows", "files"),
    [(None, ROWS, 2), (C("p") == 1, ROWS // 2, 1), (C("p") > 5, 0, 0)],
    ids=["all", "a partition", "none"],
)
def test_partitions_of_one_file_are_counted_by_footers(wide, conditions, rows, files):
    number, counting = counted(wide, conditions=conditions)
    assert number == rows
    assert counting.bytes == 0
    assert len(data_keys(counting)) == files
    assert not data_keys(counting, "get", "get_versioned")


def test_conditions_on_rows_read_their_columns_and_the_cells(wide):
    number, counting = counted(wide, conditions=C("v2") < ROWS // 4)
    assert number == ROWS // 4
    assert 0 < counting.bytes < size(wide, "wide++seed/table/") / 2


def test_a_condition_on_an_enrichment_reads_no_payload_of_the_seed(wide):
    number, counting = counted(wide, conditions=C("v4") < ROWS // 4)
    assert number == ROWS // 8
    assert 0 < counting.bytes < size(wide, "wide++e/table/") / 2


def test_after_an_append_only_the_partitions_with_several_files_are_read(wide):
    append_to_cube(table(x=[1, ROWS + 1], y=["a", "a"], p=[1, 1], v1=["new", "new"], v2=[0, 0]), WIDE, wide)
    number, counting = counted(wide)
    assert number == ROWS + 1
    assert {key.split("/")[2] for key in data_keys(counting, "ranges")} == {"p=1"}
    assert counting.bytes < size(wide, "wide++seed/table/") / 4


def test_projected_cells_are_counted_once(wide):
    assert counted(wide, dimension_columns=["y"])[0] == 2
    assert counted(wide, dimension_columns=["y"], conditions=C("p") == 0)[0] == 1


def test_cubes_without_rows_have_none(store):
    remove_partitions(CUBE, store)
    assert count_cube(CUBE, store) == 0


def test_arguments_of_count_are_checked(store):
    with pytest.raises(InvalidInput, match="zz"):
        count_cube(CUBE, store, C("zz") == 1)
    with pytest.raises(InvalidInput, match="nope"):
        count_cube(CUBE, store, datasets=["seed", "nope"])
    with pytest.raises(InvalidType, match="wrong type"):
        count_cube(CUBE, store, C("x") == "a")

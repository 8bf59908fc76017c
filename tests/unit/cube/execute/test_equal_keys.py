"""Datasets whose files have the keys of the seed in the same bytes: these are decoded once, and the
rows are the same.
"""

from __future__ import annotations

from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kartothek_cube.api.cube import C, Cube, append_to_cube, build_cube, iter_cube, query_cube_arrow
from kartothek_cube.core.io.parquet import ParquetSource
from kartothek_cube.core.stores.open import open_store
from kartothek_cube.cube.execute import load as shared_key_columns
from kartothek_cube.cube.execute.run import BatchLoader
from kartothek_cube.testing.stores import CountingStore

pytestmark = pytest.mark.usefixtures("fast_paths")

CUBE = Cube(["x", "y"], ["p"], "cube", index_columns=["i1"], suppress_index_on=["x", "y"])
CELLS = {"x": [1, 1, 2, 3, 3], "y": ["a", "b", "a", "a", "b"], "p": [0, 0, 0, 1, 1]}
SEED = pa.table({**CELLS, "i1": [7, 8, 7, 8, 9], "v1": [1.5, None, 0.5, 2.5, 3.5]})
SAME = pa.table({**CELLS, "v2": [10, 20, None, 40, 50]})
PART = SAME.rename_columns(["x", "y", "p", "v3"]).take(pa.array([0, 2, 4]))


@pytest.fixture(autouse=True)
def each_alone(monkeypatch):
    monkeypatch.setattr(shared_key_columns, "_FEW_ROWS", 0)
    monkeypatch.setattr(BatchLoader, "limit", lambda self: 1)


@pytest.fixture
def decoded(monkeypatch):
    """The columns of each reading, one after the other."""
    found, inner = [], ParquetSource._decoded
    monkeypatch.setattr(
        ParquetSource,
        "_decoded",
        lambda self, file, groups, columns: found.append(set(columns)) or inner(self, file, groups, columns),
    )
    return found


def built(appended=()):
    store = open_store("hmemory://")
    products = pa.table({"x": [1, 3], "v4": ["one", "three"]})
    build_cube(
        {"seed": SEED, "same": SAME, "part": PART, "products": products}, CUBE, store, partition_on={"products": []}
    )
    if appended:
        append_to_cube({name: {"seed": SEED, "same": SAME}[name].slice(1, 1) for name in appended}, CUBE, store)
    return store


@pytest.mark.usefixtures("only_fast")
def test_keys_are_decoded_once_a_partition(decoded):
    store = built()
    found = query_cube_arrow(CUBE, store, datasets=["seed", "same"])
    assert found.column("v2").to_pylist() == [10, 20, None, 40, 50]
    assert sorted(map(sorted, decoded)) == [["i1", "v1", "x", "y"], ["i1", "v1", "x", "y"], ["v2"], ["v2"]]


@pytest.mark.usefixtures("only_fast")
def test_keys_are_decoded_once_for_groups_of_partition_columns(decoded):
    store = built()
    found = [
        rows.column("v2").to_pylist() for _, rows in iter_cube(CUBE, store, datasets=["seed", "same"], partition_by="p")
    ]
    assert found == [[10, 20, None], [40, 50]]
    assert sorted(map(sorted, decoded)) == [["i1", "v1", "x", "y"], ["i1", "v1", "x", "y"], ["v2"], ["v2"]]


def test_only_columns_of_the_same_values_are_left_out(decoded):
    query_cube_arrow(CUBE, built(), datasets=["seed", "part"])
    assert decoded.count({"v3", "x", "y"}) == 2


QUERIES = {
    "all": partial(query_cube_arrow, CUBE),
    "a condition on the seed": partial(query_cube_arrow, CUBE, conditions=C("v1") > 1.0),
    "a condition on the other": partial(query_cube_arrow, CUBE, conditions=C("v2") > 15),
    "a condition on an enrichment": partial(query_cube_arrow, CUBE, conditions=C("v4") == "one"),
    "a condition on a cell": partial(query_cube_arrow, CUBE, conditions=C("y") == "a"),
    "a projection": partial(query_cube_arrow, CUBE, dimension_columns=["x"], payload_columns=["v4"]),
    "no payload of the seed": partial(query_cube_arrow, CUBE, payload_columns=["v2"]),
    "groups": lambda store: pa.concat_tables([rows for _, rows in iter_cube(CUBE, store, partition_by="i1")]),
    "groups of a partition column": lambda store: pa.concat_tables(
        [rows for _, rows in iter_cube(CUBE, store, partition_by="p")]
    ),
    "groups of both": lambda store: pa.concat_tables(
        [rows for _, rows in iter_cube(CUBE, store, partition_by=["p", "i1"])]
    ),
}


@pytest.mark.parametrize(
    "appended",
    [(), ("seed",), ("same",), ("seed", "same")],
    ids=["one file", "two of the seed", "two of the other", "two of both"],
)
@pytest.mark.parametrize("name", QUERIES)
def test_rows_are_the_same_without_it(name, appended, monkeypatch):
    store = built(appended)
    found = QUERIES[name](store)
    monkeypatch.setattr(shared_key_columns, "_FEW_ROWS", 10**9)
    assert found.equals(QUERIES[name](store))


def test_rows_of_a_seed_that_is_not_sorted_meet_theirs(decoded):
    """As other writers may leave it."""
    store = built()
    for key in store.list(recursive=True).keys:
        if key.endswith(".parquet") and "/p=" in key:
            sink = pa.BufferOutputStream()
            own = pq.read_table(pa.BufferReader(store.get(key)))
            pq.write_table(own.take(pa.array(range(len(own))[::-1])), sink)
            store.put(key, sink.getvalue().to_pybytes())
    del decoded[:]
    assert (
        query_cube_arrow(CUBE, store, datasets=["seed", "same"])
        .drop_columns(["i1", "v1"])
        .equals(SAME.select(["p", "v2", "x", "y"]))
    )
    assert decoded.count({"v2", "x", "y"}) == 2


class Far(CountingStore):
    """Looks as if requests to it took time."""

    is_remote = True


def test_a_remote_store_is_asked_side_by_side(decoded):
    store = built()
    expected = query_cube_arrow(CUBE, store, datasets=["seed", "same"])
    del decoded[:]
    assert query_cube_arrow(CUBE, Far(store), datasets=["seed", "same"]).equals(expected)
    assert decoded.count({"v2", "x", "y"}) == 2

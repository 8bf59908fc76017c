"""Sources of merges: large ones, awkward ones, and datasets that change while they are read."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from kartothek_cube import Cube, append_to_cube, build_cube, open_store
from kartothek_cube.api.dataset import (
    delete_rows,
    merge_dataset,
    read_table_arrow,
    store_dataframes_as_dataset,
    update_rows,
)
from kartothek_cube.core.arrow.keys import KeyIndex, take_chunked, take_rows
from kartothek_cube.core.rows.edits import MergeSource
from kartothek_cube.errors import CommitConflict, InvalidInput, InvalidType


@pytest.fixture
def store():
    return open_store("hmemory://")


def stored(store, rows, **kwargs):
    store_dataframes_as_dataset(store, "uuid", [rows], **kwargs)


def rows(store):
    return read_table_arrow("uuid", store).to_pylist()


@pytest.mark.parametrize("positions", [[], [5], [8, 0, 3, 3, 5], range(9)])
def test_rows_are_taken_chunk_by_chunk(positions):
    table = pa.table({"x": pa.chunked_array([[0, 1, 2], [], [3, 4], [5, 6, 7, 8]]), "s": [[str(i)] for i in range(9)]})
    wanted = np.array(positions, dtype=np.int64)
    assert take_chunked(table, wanted).equals(take_rows(table, wanted))


@pytest.mark.parametrize(
    ("x", "y"),
    [
        ([f"k{i}" for i in range(400)], list(range(400))),
        ([float(i) for i in range(399)] + [-0.0 - 1.0], [0] * 400),
        (
            np.random.default_rng(1).integers(-(2**62), 2**62, 400),
            np.random.default_rng(2).integers(-(2**62), 2**62, 400),
        ),
    ],
)
def test_few_rows_find_their_keys_as_many_do(x, y):
    source = MergeSource(pa.table({"x": x, "y": y}), ("x", "y"))
    for start in range(0, 390, 13):
        some = source.rows.slice(start, 7)
        others = some.set_column(1, "y", pa.array([5, *some["y"].to_pylist()[1:]], pa.int64()))
        assert not source._index.is_numeric
        assert source.positions(others).tolist() == KeyIndex(source.rows, source.on).positions(others).tolist()


def test_zero_and_minus_zero_are_one_key_among_few_rows():
    source = MergeSource(pa.table({"x": [0.0, *np.arange(1.0, 100.0)]}), ("x",))
    assert source.positions(pa.table({"x": [-0.0, 7.0, None]})).tolist() == [0, 7, -1]


@pytest.mark.parametrize("mode", ["raise", "reapply"])
def test_a_dataset_that_changes_while_the_source_is_read(store, mode):
    stored(store, pa.table({"x": [1], "v1": [1]}))

    def source():
        yield pa.table({"x": [1], "v1": [2]})
        stored(store, pa.table({"x": [1], "v1": ["text"]}), overwrite=True)

    with pytest.raises(CommitConflict, match=r"'uuid'.*while the rows to be merged were read"):
        merge_dataset(source(), store, "uuid", "x", on_conflict=mode)
    assert rows(store) == [{"v1": "text", "x": 1}]


def test_a_block_that_brings_the_type_later_is_refused_by_name(store):
    stored(store, pa.table({"x": [1], "v1": pa.nulls(1)}))
    blocks = [pa.table({"x": [1], "v1": pa.nulls(1)}), pa.table({"x": [2], "v1": [5]})]
    with pytest.raises(InvalidInput, match="Column 'v1' of dataset 'uuid'"):
        merge_dataset(iter(blocks), store, "uuid", "x")


def test_a_float_does_not_become_infinite(store):
    stored(store, pa.table({"x": [1], "v1": pa.array([1.0], pa.float32())}))
    with pytest.raises(InvalidInput, match=r"'v1'.*infinite"):
        merge_dataset(pa.table({"x": [1], "v1": [1e300]}), store, "uuid", "x")
    merge_dataset(pa.table({"x": [1], "v1": [float("inf")]}), store, "uuid", "x")
    assert rows(store) == [{"v1": float("inf"), "x": 1}]


@pytest.mark.parametrize(
    ("column", "value"),
    [("t", pd.Timestamp("2021-01-01", tz="UTC")), ("z", dt.datetime(2021, 1, 1)), ("f", True), ("x", np.True_)],
)
def test_values_that_say_something_else(store, column, value):
    moment = pa.array([0], pa.timestamp("us"))
    stored(store, pa.table({"x": [1], "f": [1.0], "t": moment, "z": moment.cast(pa.timestamp("us", "UTC"))}))
    with pytest.raises(InvalidType, match=f"'{column}' of dataset 'uuid'"):
        update_rows("uuid", store, [[("x", "==", 1)]], {column: value})


@pytest.mark.parametrize(
    ("column", "value", "after"),
    [
        ("t", pd.NaT, None),
        ("x", pd.NA, None),
        ("t", np.datetime64("2021-01-01T12:00:00.000000000"), dt.datetime(2021, 1, 1, 12)),
    ],
)
def test_values_of_pandas_and_numpy(store, column, value, after):
    stored(store, pa.table({"x": [1], "t": pa.array([0], pa.timestamp("us"))}))
    update_rows("uuid", store, [[("x", "==", 1)]], {column: value})
    assert rows(store)[0][column] == after


CUBE = Cube(["x"], ["p"], "cube")


def test_a_seed_keeps_a_cell(store):
    build_cube(
        {"seed": pa.table({"x": [1, 2], "p": [0, 1]}), "e": pa.table({"x": [1], "p": [0], "v2": [1]})}, CUBE, store
    )
    for call in (
        lambda: delete_rows("cube++seed", store, [[("x", ">=", 0)]]),
        lambda: merge_dataset(
            pa.table({"x": [5], "p": [0]}),
            store,
            "cube++seed",
            ["x", "p"],
            when_not_matched="ignore",
            when_not_matched_by_source="delete",
        ),
    ):
        with pytest.raises(InvalidInput, match=r"'cube\+\+seed' is the seed of a cube, which would have no cell left"):
            call()
    assert delete_rows("cube++e", store, [[("x", ">=", 0)]]).deleted == 1
    append_to_cube(pa.table({"x": [3], "p": [0]}), CUBE, store)

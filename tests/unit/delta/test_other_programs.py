"""What deltalake and Polars read, and that they cannot write."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

from kartothek_cube import (
    C,
    Cube,
    append_to_cube,
    build_cube,
    open_store,
    publish_cube_delta,
    publish_delta,
    query_cube_arrow,
)
from kartothek_cube.api.dataset import (
    drop_columns,
    read_table_arrow,
    store_dataframes_as_dataset,
    update_dataset_from_dataframes,
    verify_dataset,
)
from tests.caches import forget
from tests.support.all_types import ALL_TYPES
from tests.support.delta import UUID, by_deltalake, by_polars, comparable, log_keys, versions

pl = pytest.importorskip("polars", reason="not installed: polars")
deltalake = pytest.importorskip("deltalake", reason="not installed: deltalake")


@pytest.fixture
def store(tmp_path):
    return open_store(tmp_path)


def test_all_types_come_back(store, tmp_path):
    rows = ALL_TYPES.drop_columns(["u64", "t", "dur", "n"])
    store_dataframes_as_dataset(store, UUID, [rows])
    publish_delta(UUID, store)
    expected = comparable(read_table_arrow(UUID, store))
    assert comparable(by_polars(tmp_path).collect().to_arrow()) == expected
    assert comparable(by_deltalake(tmp_path)) == expected


PARTITIONS = {
    "text": [
        "a b",
        "ü/%=+&?#",
        "%41",
        "null",
        "None",
        " ",
        "'",
        "x\ny",
        ".",
        "~",
        "2024-01-01",
        "A",
        "a",
        "\U0001f600",
    ],
    "integer": [-5, 0, 2**62],
    "float": [1.5, 1e300, 1e-7, float("inf"), -float("inf"), 123456789.123],
    "truth": [True, False],
    "date": [dt.date(1, 1, 1), dt.date(1500, 3, 1), dt.date(9999, 12, 31)],
    "moment": [dt.datetime(1, 1, 1), dt.datetime(2024, 2, 29, 1, 2, 3, 4), dt.datetime(2024, 2, 29)],
}


@pytest.mark.parametrize("kind", PARTITIONS)
def test_all_partition_values_come_back(store, tmp_path, kind):
    values = PARTITIONS[kind]
    store_dataframes_as_dataset(store, UUID, [pa.table({"p": values, "x": range(len(values))})], partition_on="p")
    publish_delta(UUID, store)
    expected = comparable(read_table_arrow(UUID, store))
    assert comparable(by_polars(tmp_path).collect().to_arrow()) == expected
    assert comparable(by_deltalake(tmp_path)) == expected
    for n, value in enumerate(values):
        assert by_polars(tmp_path).filter(pl.col("p") == value).collect()["x"].to_list() == [n]
        assert by_deltalake(tmp_path, f"WHERE x = {n}")["p"].to_pylist() == [value]


def test_columns_that_came_and_went_are_as_they_are_here(store, tmp_path):
    store_dataframes_as_dataset(store, UUID, [pa.table({"x": [1], "v1": [1.0]})])
    publish_delta(UUID, store, always=True)
    update_dataset_from_dataframes([pa.table({"x": [2], "v1": [2.0], "v2": ["a"]})], store, UUID, add_columns=True)
    assert by_polars(tmp_path).sort("x").collect()["v2"].to_list() == [None, "a"]
    drop_columns(UUID, store, "v1")
    assert comparable(by_deltalake(tmp_path)) == comparable(read_table_arrow(UUID, store))
    assert by_polars(tmp_path).collect_schema().names() == ["v2", "x"]
    assert by_polars(tmp_path, version=0).collect_schema().names() == ["v1", "x"]


def test_a_join_of_the_tables_is_the_query_of_the_cube(store, tmp_path):
    cube = Cube(["x"], ["p"], "cube")
    seed = pa.table({"x": [1, 2, 3], "p": ["a", "a", "b"], "v1": [1.0, 2.0, 3.0]})
    build_cube(
        {"seed": seed, "e": pa.table({"x": [1, 3, 9], "v2": ["k", "l", "m"]})}, cube, store, partition_on={"e": []}
    )
    append_to_cube(pa.table({"x": [4], "p": ["b"], "v1": [4.0]}), cube, store)
    publish_cube_delta(cube, store)
    joined = by_polars(tmp_path, "cube++seed").join(by_polars(tmp_path, "cube++e"), on="x", how="left")
    found = joined.filter(pl.col("v1") > 1).collect().to_arrow()
    assert comparable(found) == comparable(query_cube_arrow(cube, store, C("v1") > 1))


WRITES = {
    "append": lambda t: deltalake.write_deltalake(t, pa.table({"x": [1]}), mode="append"),
    "overwrite": lambda t: deltalake.write_deltalake(t, pa.table({"x": [1]}), mode="overwrite"),
    "delete": lambda t: t.delete(),
    "update": lambda t: t.update({"x": "1"}),
    "compact": lambda t: t.optimize.compact(),
    "add columns": lambda t: t.alter.add_columns([deltalake.Field("y", "long")]),
}


@pytest.mark.parametrize("write", WRITES)
def test_other_writers_are_refused(store, tmp_path, write):
    for n in range(2):
        update_dataset_from_dataframes([pa.table({"x": [n]})], store, UUID)
    publish_delta(UUID, store)
    before = log_keys(store)
    with pytest.raises(deltalake.exceptions.DeltaError, match="kartothek_cube"):
        WRITES[write](deltalake.DeltaTable(str(tmp_path / UUID / "table")))
    assert log_keys(store) == before


def test_a_checkpoint_of_another_program_is_read(store, tmp_path):
    store_dataframes_as_dataset(store, UUID, [pa.table({"p": ["a", "b"], "x": [1, 2]})], partition_on="p")
    publish_delta(UUID, store, always=True)
    update_dataset_from_dataframes([pa.table({"p": ["a"], "x": [3]})], store, UUID, delete_scope=[{"p": "a"}])
    deltalake.DeltaTable(str(tmp_path / UUID / "table")).create_checkpoint()
    assert len(log_keys(store)) == 4
    forget(store)
    update_dataset_from_dataframes([pa.table({"p": ["c"], "x": [4]})], store, UUID)
    assert [*versions(store)] == [0, 1, 2]
    assert comparable(by_polars(tmp_path).collect().to_arrow()) == comparable(read_table_arrow(UUID, store))


def test_our_checkpoint_is_read_by_others(store, tmp_path, monkeypatch):
    monkeypatch.setattr("kartothek_cube.core.delta.publication.CHECKPOINT_EVERY", 2)
    store_dataframes_as_dataset(store, UUID, [pa.table({"p": ["a", "ü/%"], "x": [1, None]})], partition_on="p")
    publish_delta(UUID, store, always=True)
    for n in range(3):
        update_dataset_from_dataframes([pa.table({"p": ["ü/%"], "x": [n]})], store, UUID)
    for key in log_keys(store):  # as programs clean up that take the checkpoint for the beginning
        if key.endswith(("00.json", "01.json")):
            store.delete(key)
    expected = comparable(read_table_arrow(UUID, store))
    assert comparable(by_polars(tmp_path).collect().to_arrow()) == expected
    assert comparable(by_deltalake(tmp_path)) == expected
    forget(store)
    assert publish_delta(UUID, store).version == 3
    assert [f for f in verify_dataset(UUID, store).findings if f.severity != "info"] == []

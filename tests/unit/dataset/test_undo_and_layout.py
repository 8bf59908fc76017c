"""Undo where columns were dropped or a layout changed since: nothing becomes unreadable."""

from __future__ import annotations

import pyarrow as pa
import pytest

from kartothek_cube.api.dataset import (
    DatasetMetadata,
    compact_dataset,
    delete_rows,
    drop_columns,
    history,
    read_table_arrow,
    set_layout,
    store_dataframes_as_dataset,
    undo,
    update_dataset_from_dataframes,
    update_rows,
)
from kartothek_cube.core.maintenance import compaction
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import InvalidInput, UnknownColumn


@pytest.fixture
def store():
    return MemoryStore()


@pytest.fixture
def deletion(store):
    """A dataset without its column v1, and the commit that removed the file of x = 1 after that."""
    rows = [pa.table({"x": [1], "v1": [1.5]}), pa.table({"x": [2], "v1": [2.5]})]
    store_dataframes_as_dataset(store, "d", rows)
    drop_columns("d", store, "v1")
    delete_rows("d", store, [[("x", "==", 1)]])
    return history("d", store)["commit"].iloc[0]


def check_old_values_are_respected(store):
    text, number = (pa.table({"x": [3], "v1": [value]}) for value in ("t", 3.5))
    with pytest.raises(InvalidInput):
        update_dataset_from_dataframes([text], store, "d", add_columns=True)
    update_dataset_from_dataframes([number], store, "d", add_columns=True)
    rows = read_table_arrow("d", store).sort_by("x").to_pylist()
    assert rows == [{"v1": 1.5, "x": 1}, {"v1": None, "x": 2}, {"v1": 3.5, "x": 3}]


def test_a_file_that_comes_back_has_its_dropped_columns_on_record(store, deletion):
    compact_dataset("d", store, rewrite=True)
    undo("d", store, deletion)
    check_old_values_are_respected(store)


def test_a_compaction_keeps_the_record_where_a_file_comes_back_meanwhile(store, deletion, monkeypatch):
    commit_change = compaction.commit_change

    def after_an_undo(*args, **kwargs):
        monkeypatch.setattr(compaction, "commit_change", commit_change)
        undo("d", store, deletion)
        return commit_change(*args, **kwargs)

    monkeypatch.setattr(compaction, "commit_change", after_an_undo)
    compact_dataset("d", store, rewrite=True)
    check_old_values_are_respected(store)


def test_a_layout_comes_back_without_columns_that_are_gone(store):
    store_dataframes_as_dataset(store, "d", [pa.table({"x": [2, 1], "v1": [1.5, 2.5], "v2": [1, 2]})])
    set_layout("d", store, sort_by="v1", compression="ZSTD")
    set_layout("d", store, sort_by="v2")
    commit = history("d", store)["commit"].iloc[0]
    drop_columns("d", store, "v1")
    undo("d", store, commit)
    layout = DatasetMetadata.load_from_store("d", store).layout
    assert (layout.sort_by, layout.compression) == ((), "ZSTD")
    update_dataset_from_dataframes([pa.table({"x": [3], "v2": [1]})], store, "d")
    update_rows("d", store, [[("x", "==", 1)]], {"v2": 5})
    assert read_table_arrow("d", store).sort_by("x")["v2"].to_pylist() == [5, 1, 1]


def test_an_order_that_a_call_asks_for_needs_its_columns(store):
    store_dataframes_as_dataset(store, "d", [pa.table({"x": [1]})])
    with pytest.raises(UnknownColumn, match="sort_partitions_by"):
        update_dataset_from_dataframes([pa.table({"x": [1]})], store, "d", sort_partitions_by="v1")


def test_rows_without_the_column_of_the_recorded_order_are_refused_by_the_schema(store):
    store_dataframes_as_dataset(store, "d", [pa.table({"x": [1], "v1": [1.5]})])
    set_layout("d", store, sort_by="x")
    with pytest.raises(ValueError, match=r"[Ss]chema"):
        update_dataset_from_dataframes([pa.table({"v1": [3.0]})], store, "d", add_columns=True)

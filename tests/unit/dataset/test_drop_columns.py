"""Dropped columns: gone from the schema, back in their type, and gone for good by a rewrite."""

from __future__ import annotations

import pyarrow as pa
import pytest

from kartothek_cube import Cube, append_to_cube, build_cube, extend_cube, query_cube
from kartothek_cube.api.dataset import (
    build_dataset_indices,
    commit_receipts,
    compact_dataset,
    copy_dataset,
    create_empty_dataset_header,
    delete_rows,
    drop_columns,
    merge_dataset,
    plan_table_scan,
    read_table_arrow,
    set_layout,
    stage_partitions,
    store_dataframes_as_dataset,
    tag_dataset,
    undo,
    update_dataset_from_dataframes,
    update_rows,
    verify_dataset,
)
from kartothek_cube.core.metadata.naming import schema_key
from kartothek_cube.core.metadata.snapshot import parse_common_metadata
from kartothek_cube.core.snapshots.loader import load_snapshot
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.core.write.layout import dropped_columns
from kartothek_cube.errors import CommitConflict, InvalidInput, InvalidRequest, UnknownColumn

UUID = "uuid"
ROWS = pa.table({"x": [1, 2, 3], "p": [1, 1, 2], "i1": ["a", "b", "c"], "v1": [0.5, 1.5, 2.5], "v2": [7, 8, 9]})
LATER = pa.table({"x": [4], "p": [2], "i1": ["d"], "v2": [10]})


@pytest.fixture
def store():
    store = MemoryStore()
    store_dataframes_as_dataset(store, UUID, [ROWS], partition_on="p", secondary_indices="i1")
    return store


def read(store, **arguments):
    return read_table_arrow(UUID, store, **arguments).sort_by("x")


def dropped(store, uuid=UUID):
    return dropped_columns(load_snapshot(store, uuid).document.metadata, uuid)


def add(store, values, data_type=None, x=5):
    rows = LATER.set_column(0, "x", pa.array([x])).append_column("v1", pa.array(values, data_type))
    return update_dataset_from_dataframes([rows], store, UUID, add_columns=True)


def test_a_dropped_column_is_gone_from_reads_and_schema_files(store):
    before = store.list(f"{UUID}/table/", recursive=True).keys
    drop_columns(UUID, store, ["v1"])
    assert read(store).column_names == ["p", "i1", "v2", "x"]
    assert store.list(f"{UUID}/table/", recursive=True).keys == before
    key = schema_key(UUID, "table")
    assert parse_common_metadata(store.get(key), key).names == ["p", "i1", "v2", "x"]
    assert dropped(store)["table"] == pa.schema([("v1", pa.float64())])
    with pytest.raises(UnknownColumn, match="v1"):
        read_table_arrow(UUID, store, columns=["v1"])
    with pytest.raises(UnknownColumn, match="v1"):
        plan_table_scan(UUID, store, predicates=[[("v1", ">", 1.0)]])
    assert "files=1 of 2" in repr(plan_table_scan(UUID, store, predicates=[[("v2", ">", 8)]]))


def test_later_rows_come_without_it(store):
    drop_columns(UUID, store, "v1")
    with pytest.raises(InvalidInput, match=r"surplus columns \['v1'\]"):
        update_dataset_from_dataframes([ROWS], store, UUID)
    update_dataset_from_dataframes([LATER], store, UUID)
    assert read(store)["x"].to_pylist() == [1, 2, 3, 4]


def test_changes_of_rows_work_and_forget_the_values_of_their_files(store):
    drop_columns(UUID, store, "v1")
    update_rows(UUID, store, [[("x", "==", 1)]], {"v2": 0})
    delete_rows(UUID, store, [[("x", "==", 2)]])
    merge_dataset(LATER, store, UUID, on="x")
    assert read(store)["v2"].to_pylist() == [0, 9, 10]
    assert verify_dataset(UUID, store, deep=True).ok
    add(store, [1.0])
    assert read(store)["v1"].to_pylist() == [None, 2.5, None, 1.0]


def test_it_comes_back_with_its_old_values(store):
    drop_columns(UUID, store, "v1")
    update_dataset_from_dataframes([LATER], store, UUID)
    add(store, [4.5])
    assert read(store)["v1"].to_pylist() == [0.5, 1.5, 2.5, None, 4.5]
    assert dropped(store) == {}
    assert read(store, predicates=[[("v1", ">", 2.0)]])["x"].to_pylist() == [3, 5]
    assert verify_dataset(UUID, store, deep=True).ok


@pytest.mark.parametrize(("narrow", "data_type"), [([1.0], pa.float32()), ([None], pa.null())])
def test_a_narrower_type_becomes_the_old_one(store, narrow, data_type):
    drop_columns(UUID, store, "v1")
    add(store, narrow, data_type)
    assert load_snapshot(store, UUID).schema.field("v1").type == pa.float64()
    assert read(store)["v1"].to_pylist()[:3] == [0.5, 1.5, 2.5]


def test_it_does_not_come_back_in_another_type(store):
    drop_columns(UUID, store, "v1")
    files = store.list(f"{UUID}/table/", recursive=True).keys
    with pytest.raises(InvalidInput, match=r"'v1' of dataset 'uuid' was dropped as double.*rewrite=True"):
        add(store, ["text"])
    assert store.list(f"{UUID}/table/", recursive=True).keys == files
    compact_dataset(UUID, store, rewrite=True)
    assert dropped(store) == {}
    add(store, ["text"])
    assert read(store)["v1"].to_pylist() == [None, None, None, "text"]


def test_a_write_that_lost_against_the_drop_is_refused_in_another_type(store):
    base = LATER.append_column("v1", pa.array([1.0]))
    staged = stage_partitions(base, store, UUID)
    drop_columns(UUID, store, "v1")
    with pytest.raises(InvalidInput, match="surplus"):
        commit_receipts(staged, store, UUID)
    commit_receipts(staged, store, UUID, add_columns=True)
    assert read(store)["v1"].to_pylist() == [0.5, 1.5, 2.5, 1.0]


def test_a_compaction_of_some_files_keeps_the_record(store):
    drop_columns(UUID, store, "v1")
    compact_dataset(UUID, store, predicates=[[("p", "==", 1)]], rewrite=True)
    assert dropped(store) != {}
    add(store, [4.5])
    assert read(store)["v1"].to_pylist() == [None, None, 2.5, 4.5]


def test_verify_says_how_the_values_are_removed(store):
    drop_columns(UUID, store, "v1")
    findings = [f for f in verify_dataset(UUID, store, deep=True).findings if f.check == "surplus-column"]
    assert {f.mend for f in findings} == {"compact_dataset('uuid', store, rewrite=True)"}
    assert "dropped" in findings[0].message
    compact_dataset(UUID, store, rewrite=True)
    assert "surplus-column" not in [f.check for f in verify_dataset(UUID, store, deep=True).findings]


def test_undo_brings_it_back_while_it_is_the_newest(store):
    drop_columns(UUID, store, "v1")
    undo(UUID, store)
    assert (read(store)["v1"].to_pylist(), dropped(store)) == ([0.5, 1.5, 2.5], {})
    drop_columns(UUID, store, "v1")
    update_dataset_from_dataframes([LATER], store, UUID)
    with pytest.raises(InvalidRequest, match="only while it is the newest"):
        undo(UUID, store, load_snapshot(store, UUID).chain[-2].id)


def test_undo_of_a_rewrite_knows_the_dropped_column_again(store):
    drop_columns(UUID, store, "v1")
    compaction = compact_dataset(UUID, store, rewrite=True).commit
    undo(UUID, store, compaction)
    with pytest.raises(InvalidInput, match="was dropped as double"):
        add(store, ["text"])


def test_a_rewrite_is_not_undone_under_a_column_of_another_type(store):
    drop_columns(UUID, store, "v1")
    compaction = compact_dataset(UUID, store, rewrite=True).commit
    add(store, ["text"])
    with pytest.raises(CommitConflict, match="does not fit"):
        undo(UUID, store, compaction)


def test_older_states_tags_and_copies_have_it(store):
    tag_dataset(UUID, store, "full")
    drop_columns(UUID, store, "v1")
    assert read(store, as_of="full")["v1"].to_pylist() == [0.5, 1.5, 2.5]
    copy_dataset(UUID, store, "copy")
    assert dropped(store, "copy")["table"].names == ["v1"]


def test_a_dataset_that_is_replaced_has_no_record(store):
    drop_columns(UUID, store, "v1")
    rows = LATER.append_column("v1", pa.array(["text"]))
    store_dataframes_as_dataset(store, UUID, [rows], overwrite=True)
    assert dropped(store) == {}


def test_two_drops_add_up(store):
    drop_columns(UUID, store, "v1")
    drop_columns(UUID, store, "v2")
    assert dropped(store)["table"].names == ["v1", "v2"]
    add_both = pa.table({"x": [5], "p": [1], "i1": ["d"], "v2": [1]})
    update_dataset_from_dataframes([add_both], store, UUID, add_columns=True)
    assert dropped(store)["table"].names == ["v1"]


@pytest.mark.parametrize(
    ("columns", "error", "text"),
    [
        ("p", InvalidRequest, "a partition key"),
        ("i1", InvalidRequest, "secondary index"),
        ("x", InvalidRequest, "layout on record"),
        ("y", UnknownColumn, "has no column 'y'"),
        ([], InvalidInput, "name the columns"),
        (["v1", "v1"], InvalidInput, "twice"),
    ],
)
def test_columns_that_are_needed_are_refused(store, columns, error, text):
    set_layout(UUID, store, sort_by="x")
    commit = load_snapshot(store, UUID).commit
    with pytest.raises(error, match=text):
        drop_columns(UUID, store, columns)
    assert load_snapshot(store, UUID).commit == commit


def test_a_second_drop_says_that_it_was_dropped(store):
    drop_columns(UUID, store, "v1")
    with pytest.raises(UnknownColumn, match="It was dropped before"):
        drop_columns(UUID, store, "v1")


def test_files_keep_a_column(store):
    store_dataframes_as_dataset(store, "small", [pa.table({"p": [1], "v1": [1]})], partition_on="p")
    with pytest.raises(InvalidRequest, match="no column left"):
        drop_columns("small", store, "v1")


def test_an_index_that_comes_meanwhile_wins(store, monkeypatch):
    from kartothek_cube.core.dataset import maintain as module

    commit, others = module.commit_change, iter(["v1"])

    def second(*arguments):
        for column in others:
            build_dataset_indices(store, UUID, column)
        return commit(*arguments)

    monkeypatch.setattr(module, "commit_change", second)
    with pytest.raises(InvalidRequest, match="secondary index"):
        drop_columns(UUID, store, "v1")


def test_all_tables_lose_it(store):
    tables = {"a": pa.table({"x": [1], "v1": [1]}), "b": pa.table({"y": [1], "v1": [2]})}
    store_dataframes_as_dataset(store, "two", [tables])
    drop_columns("two", store, "v1")
    assert read_table_arrow("two", store, table="a").column_names == ["x"]
    assert read_table_arrow("two", store, table="b").column_names == ["y"]


def test_a_header_without_listed_partitions_stays_one(store):
    schema = pa.schema([("x", pa.int64()), ("v1", pa.int64())])
    create_empty_dataset_header(store, "header", {"table": schema})
    assert not drop_columns("header", store, "v1").explicit_partitions
    assert load_snapshot(store, "header").schema.names == ["x"]


def test_a_cube_sees_it(store):
    cube = Cube(["x"], ["p"], "cube")
    build_cube({"seed": ROWS.select(["x", "p", "v1", "v2"])}, cube, store)
    for column in ("x", "p"):
        with pytest.raises(InvalidRequest, match="cannot be dropped"):
            drop_columns("cube++seed", store, column)
    drop_columns("cube++seed", store, "v1")
    assert list(query_cube(cube, store)[0].columns) == ["p", "v2", "x"]
    append_to_cube(LATER.select(["x", "p", "v2"]), cube, store)
    # The name is free for another dataset.
    extend_cube({"prices": pa.table({"x": [1, 4], "p": [1, 2], "v1": ["r", "s"]})}, cube, store)
    (frame,) = query_cube(cube, store)
    assert frame.sort_values("x")["v1"].astype(object).where(frame["v1"].notna(), None).tolist() == [
        "r",
        None,
        None,
        "s",
    ]

"""What changed in a dataset between two states: which files are read, what is refused."""

from __future__ import annotations

import datetime as dt
import json
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kartothek_cube import options
from kartothek_cube.api.dataset import (
    build_dataset_indices,
    compact_dataset,
    garbage_collect_dataset,
    read_dataset_changes,
    store_dataframes_as_dataset,
    undo,
    update_dataset_from_dataframes,
)
from kartothek_cube.core.arrow.difference import CHANGE_TYPE
from kartothek_cube.core.metadata.naming import document_key
from kartothek_cube.core.snapshots.loader import load_snapshot
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import (
    DatasetNotFound,
    ForeignWriterWarning,
    HistoryUnavailable,
    InvalidInput,
    InvalidType,
    KeyNotFound,
    UnknownColumn,
)
from tests.caches import forget
from tests.support.changes import rows_of
from tests.support.reads import MeasuredStore

UUID = "uuid"


@pytest.fixture
def store():
    return MemoryStore()


def table(*rows: Any, names: str = "xpv") -> pa.Table:
    return pa.table({name: [row[i] for row in rows] for i, name in enumerate(names)})


def last(store: Any, uuid: str = UUID) -> str:
    forget(store)
    return str(load_snapshot(store, uuid).chain[-1].id)


def create(store: Any, *tables: pa.Table, **more: Any) -> str:
    store_dataframes_as_dataset(store, UUID, list(tables), **{"partition_on": ["p"], **more})
    return last(store)


def append(store: Any, *tables: pa.Table, **more: Any) -> str:
    update_dataset_from_dataframes(list(tables), store, UUID, **more)
    return last(store)


def changes(store: Any, *arguments: Any, **more: Any) -> Counter[Any]:
    return Counter(rows_of(read_dataset_changes(UUID, store, *arguments, **more).read_all()))


# --- rows -----------------------------------------------------------------------------------------


def test_predicates_on_partition_columns_hold_where_many_small_files_are_read(store):
    """Also those that only a part of the rows of a file satisfies."""
    rows = [(x, p, x) for p in "abcdefghijklmnopqrstuvwxy" for x in range(3)]
    first = create(store, table((0, "z", 0)))
    append(store, table(*rows))
    for predicates, holds in [
        ([[("p", "==", None)], [("x", "==", 1)]], lambda x, p: x == 1),
        ([[("p", "==", "y")], [("x", "==", 1)]], lambda x, p: p == "y" or x == 1),
        ([[("p", "!=", "a"), ("x", "!=", 0)]], lambda x, p: p != "a" and x != 0),
        ([[("p", "not in", ["a", "y"])], [("x", "==", 2)]], lambda x, p: p not in "ay" or x == 2),
    ]:
        found = changes(store, first, columns=["x", "p"], predicates=predicates)
        assert found == Counter(("insert", x, p) for x, p, _ in rows if holds(x, p))


@pytest.mark.parametrize(
    ("was", "now", "type_of_both"),
    [
        (pa.array([2**40]), pa.array([1], pa.int8()), pa.int64()),
        (pa.array([0.1]), pa.array([0.5], pa.float32()), pa.float64()),
        (pa.array([7]), pa.array([None]), pa.int64()),
        (pa.array([None]), pa.array([7]), pa.int64()),
        (pa.array([[2**40]]), pa.array([[1]], pa.list_(pa.int8())), pa.list_(pa.int64())),
    ],
)
def test_types_hold_the_values_of_both_states(store, was, now, type_of_both):
    first = create(store, pa.table({"x": [1], "v": was}), partition_on=[])
    create(store, pa.table({"x": [1], "v": now}), partition_on=[], overwrite=True)
    for on in (None, "x"):
        found = read_dataset_changes(UUID, store, first, on=on).read_all()
        assert found.schema.field("v").type == type_of_both
        assert found.column("v").to_pylist() == [*was.to_pylist(), *now.to_pylist()]
    forget(store)
    assert load_snapshot(store, UUID).schema.field("v").type == now.type


def test_a_partition_column_of_another_type_that_is_not_shown_does_not_matter(store):
    first = create(store, table((1, "a", 1), (2, "b", 2)))
    create(store, pa.table({"x": [1, 2], "p": [7, 8], "v": [1, 3]}), overwrite=True)
    assert changes(store, first, columns=["x", "v"], on="x") == {
        ("update_preimage", 2, 2): 1,
        ("update_postimage", 2, 3): 1,
    }
    with pytest.raises(InvalidInput, match=r"Column 'p' .* was string then and is int64 now.*Leave the column out"):
        changes(store, first, on="x")


def test_partition_columns_that_are_not_shown_do_not_make_rows_differ(store):
    first = create(store, table((1, "a", 1), (2, "a", 2)))
    append(store, table((1, "b", 1), (2, "a", 3)), delete_scope=[{"p": "a"}])
    update = {("update_preimage", 2, 2): 1, ("update_postimage", 2, 3): 1}
    assert changes(store, first, columns=["x", "v"], on="x") == update
    assert changes(store, first, columns=["x", "v"]) == {("delete", 2, 2): 1, ("insert", 2, 3): 1}
    assert changes(store, first, columns=["x", "p"], on="x") == {
        ("update_preimage", 1, "a"): 1,
        ("update_postimage", 1, "b"): 1,
    }


def test_columns_in_the_order_that_was_asked_for_and_none_at_all(store):
    first = create(store, table((1, "a", 1)))
    append(store, table((2, "a", 1), (3, "b", 1)))
    assert read_dataset_changes(UUID, store, first, columns=["v", "x"]).schema.names == [CHANGE_TYPE, "v", "x"]
    assert changes(store, first, columns=[]) == {("insert",): 2}
    second = last(store)
    append(store, table((4, "a", 1)), delete_scope=[{"p": "a"}])
    assert changes(store, second, columns=[]) == {("delete",): 1}
    assert changes(store, second, columns=[], on="x") == {("delete",): 2, ("insert",): 1}


def test_several_tables_and_one_that_the_older_state_lacks(store):
    first = create(store, {"a": table((1, "p", 1))})
    second = create(store, {"a": table((1, "p", 1)), "b": table((5, "p", 5))}, overwrite=True)
    update_dataset_from_dataframes([{"a": table((2, "p", 2)), "b": table((6, "p", 6))}], store, UUID)
    assert changes(store, first, columns=["x"], table="b") == {("insert", 5): 1, ("insert", 6): 1}
    assert changes(store, first, columns=["x"], table="a") == {("insert", 2): 1}
    assert changes(store, second, columns=["x"], table="b") == {("insert", 6): 1}
    with pytest.raises(KeyNotFound, match="no table 'table', only"):
        read_dataset_changes(UUID, store, second)


# --- which files are read -------------------------------------------------------------------------


@pytest.fixture
def measured(store):
    return MeasuredStore(store)


def test_one_append_to_many_files_opens_only_its_file(store, measured):
    first = create(store, table(*((i, f"{i:03}", i) for i in range(500))), secondary_indices=["x"])
    append(store, table((1000, "007", 1)))
    for on in (None, "x"):
        for predicates in (None, [[("x", ">", 5)]]):
            measured.reset()
            found = changes(measured, first, on=on, predicates=predicates)
            assert found == {("insert", "007", 1, 1000): 1}
            assert len(measured.files()) == 1


def test_a_replaced_partition_opens_its_old_and_its_new_file(store, measured):
    first = create(store, table(*((i, f"{i:03}", i) for i in range(50))))
    append(store, table((7, "007", 70)), delete_scope=[{"p": "007"}])
    assert sum(changes(measured, first, on="x").values()) == 2
    assert len(measured.files()) == 2
    assert all("p=007" in key for key in measured.files())


def test_a_compaction_opens_only_what_it_merged_and_made(store, measured):
    create(store, table(*((i, f"{i:03}", i) for i in range(30))))
    before = append(store, table((100, "007", 1)), table((101, "008", 1)))
    compact_dataset(UUID, store)
    measured.reset()
    assert not changes(measured, before)
    assert len(measured.files()) == 2 * 2 + 2
    assert all("p=007" in key or "p=008" in key for key in measured.files())


def test_pruned_files_are_not_read(store, measured):
    first = create(store, table((0, "a", 0)), secondary_indices=["x"])
    append(store, table(*((i, p, i) for i, p in enumerate("bcdef"))))
    assert changes(measured, first, predicates=[[("p", "==", "c")]]) == {("insert", "c", 1, 1): 1}
    assert len(measured.files()) == 1
    measured.reset()
    assert changes(measured, first, predicates=[[("x", "==", 4)]]) == {("insert", "f", 4, 4): 1}
    assert len(measured.files()) == 1


@pytest.mark.parametrize("back", ["same", "undone", "nothing but metadata", "an index"])
def test_nothing_is_read_where_no_file_differs(store, measured, back):
    first = create(store, table((1, "a", 1), (2, "b", 2)))
    if back == "undone":
        append(store, table((3, "a", 3)), delete_scope=[{"p": "b"}])
        undo(UUID, store)
    elif back == "nothing but metadata":
        append(store, metadata={"n": 1})
    elif back == "an index":
        build_dataset_indices(store, UUID, ["x"])
    measured.reset()
    for on in (None, "x"):
        assert not changes(measured, first, on=on)
        assert not changes(measured, last(store), on=on)
    assert not measured.files()


def test_undo_of_an_undo_is_no_change(store):
    create(store, table((1, "a", 1), (2, "b", 2)))
    first = append(store, table((3, "a", 3)), delete_scope=[{"p": "b"}])
    undo(UUID, store)
    second = last(store)
    undo(UUID, store)
    assert not changes(store, first)
    assert changes(store, second, columns=["x"]) == {("insert", 3): 1, ("delete", 2): 1}
    assert changes(store, first, second, columns=["x"]) == {("insert", 2): 1, ("delete", 3): 1}


def test_no_file_of_the_data_is_read_before_the_first_batch(store, measured):
    first = create(store, table((1, "a", 1)))
    append(store, table((2, "a", 2)))
    reader = read_dataset_changes(UUID, measured, first)
    assert not measured.files()
    reader.close()
    assert not measured.files()


# --- memory ---------------------------------------------------------------------------------------


def temporary(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The only folder for temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("on", [None, "x"])
def test_with_little_memory_rows_wait_on_disk_and_the_changes_are_the_same(store, folder, on):
    old = table(*((i, f"{i % 9}", i % 7) for i in range(2000)))
    first = create(store, old)
    create(store, table(*((i, f"{i % 9}", i % 5) for i in range(100, 2100))), overwrite=True)
    found = read_dataset_changes(UUID, store, first, on=on, options=options(bytes_in_flight=1))
    head = next(iter(found))
    assert len(temporary(folder)) == 1
    rows = Counter(rows_of(pa.Table.from_batches([head])))
    for batch in found:
        rows += Counter(rows_of(pa.Table.from_batches([batch])))
    assert not temporary(folder)
    assert rows == changes(store, first, on=on)
    assert not temporary(folder)


def test_a_reader_that_is_closed_early_leaves_no_temporary_file(store, folder):
    first = create(store, table(*((i, f"{i % 9}", i) for i in range(2000))))
    create(store, table(*((i, f"{i % 9}", -i) for i in range(2000))), overwrite=True)
    reader = read_dataset_changes(UUID, store, first, on="x", options=options(bytes_in_flight=1))
    reader.read_next_batch()
    assert temporary(folder)
    # pyarrow tells nobody that a reader is closed, only that it is gone.
    reader.close()
    del reader
    assert not temporary(folder)


def test_only_new_or_only_old_rows_wait_for_nothing(store, folder):
    """Rows of one side are never equal to others: they come as they are read."""
    first = create(store, table(*((i, f"{i % 9}", i) for i in range(2000))))
    append(store, table(*((i, f"{i % 9}", i) for i in range(2000))))
    for reader in (
        read_dataset_changes(UUID, store, first, on="x", options=options(bytes_in_flight=1)),
        read_dataset_changes(UUID, store, first, options=options(bytes_in_flight=1)),
    ):
        assert set(reader.read_next_batch().column(0).to_pylist()) == {"insert"}
        assert not temporary(folder)
        assert reader.read_all().num_rows < 2000


# --- what is refused ------------------------------------------------------------------------------


@pytest.fixture
def commits(store):
    return [create(store, table((1, "a", 1))), append(store, table((2, "b", 2))), append(store, table((3, "c", 3)))]


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"since": None}, InvalidType, "since is the id of a commit or a tag .text., or a moment .datetime., not None"),
        ({"since": 5}, InvalidType, "is the id of a commit or a tag .text., or a moment"),
        ({"until": 5}, InvalidType, "is the id of a commit or a tag .text., or a moment"),
        (
            {"since": "nobody"},
            HistoryUnavailable,
            "has no tag 'nobody'.*`history` lists",
        ),
        ({"until": "nobody"}, HistoryUnavailable, "has no tag 'nobody'"),
        ({"since": dt.datetime(2001, 1, 1)}, HistoryUnavailable, "as of 2001-01-01T00:00:00.*: it was made by commit"),
        ({"since": "2001-01-01"}, HistoryUnavailable, "as of 2001-01-01T00:00:00"),
        ({"columns": ["nowhere"]}, UnknownColumn, "nowhere"),
        ({"on": "nowhere"}, UnknownColumn, "nowhere"),
        ({"on": []}, InvalidInput, "on names no column"),
        ({"predicates": [[("nowhere", "==", 1)]]}, UnknownColumn, "nowhere"),
        ({"predicates": [[("x", "==", "text")]]}, InvalidType, "Column 'x'"),
        ({"table": "nowhere"}, KeyNotFound, "no table 'nowhere', only"),
        ({"dataset_uuid": "nowhere"}, DatasetNotFound, "nowhere"),
    ],
)
def test_bad_arguments_are_refused_by_the_call(store, commits, arguments, error, words):
    with pytest.raises(error, match=words):
        read_dataset_changes(**{"dataset_uuid": UUID, "store": store, "since": commits[0], **arguments})


def test_the_later_state_comes_last(store, commits):
    times = [commit.time for commit in load_snapshot(store, UUID).chain]
    for since, until in [(commits[1], commits[0]), (times[1], times[0]), (commits[2], times[0])]:
        with pytest.raises(InvalidInput, match=r"comes before since=.*Exchange them"):
            changes(store, since, until)
    assert not changes(store, commits[1], times[1])
    assert not changes(store, dt.datetime.now(dt.UTC) + dt.timedelta(1))


def test_the_commit_of_another_dataset_is_none_of_this_one(store, commits):
    store_dataframes_as_dataset(store, "other", [table((1, "a", 1))])
    with pytest.raises(HistoryUnavailable, match="Dataset 'uuid' cannot be read as of commit"):
        changes(store, last(store, "other"))


def test_history_that_has_gone_is_said_and_since_when_it_is_kept(store, commits):
    garbage_collect_dataset(UUID, store, options=options(grace=dt.timedelta(0), retain=dt.timedelta(0)))
    forget(store)
    with pytest.raises(HistoryUnavailable, match=f"history is kept since commit {commits[2]}"):
        changes(store, commits[0])


def test_a_foreign_commit_between_is_said_with_its_place(store, commits):
    def foreign() -> None:
        """Drop a partition as kartothek does, which knows no commits."""
        document = json.loads(store.get(document_key(UUID)))
        del document["partitions"][next(iter(document["partitions"]))]
        store.put(document_key(UUID), json.dumps(document).encode())
        forget(store)

    foreign()
    with pytest.raises(
        HistoryUnavailable, match=f"a writer that keeps no history .* came last, after commit {commits[2]}"
    ):
        changes(store, commits[0])
    with pytest.raises(HistoryUnavailable, match="a writer that keeps no history"):
        changes(store, commits[2])
    with pytest.warns(ForeignWriterWarning):
        ours = append(store, table((4, "d", 4)))
    with pytest.raises(HistoryUnavailable, match=f"before commit {ours} .* came a writer that keeps no history"):
        changes(store, commits[2])
    append(store, table((5, "d", 5)))
    assert changes(store, ours, columns=["x"]) == {("insert", 5): 1}


def test_a_column_with_the_name_of_the_kind_of_a_change_is_refused_where_it_is_shown(store):
    first = create(store, pa.table({"x": [1], CHANGE_TYPE: ["a"]}), partition_on=[])
    append(store, pa.table({"x": [2], CHANGE_TYPE: ["a"]}))
    with pytest.raises(InvalidInput, match="Dataset 'uuid' has a column '_change_type'"):
        changes(store, first)
    assert changes(store, first, columns=["x"], on=CHANGE_TYPE) == {("insert", 2): 1}


def test_a_column_of_another_type_is_refused_where_it_is_compared(store):
    first = create(store, table((1, "a", 1)))
    create(store, table((1, "a", "one")), overwrite=True)
    words = "Column 'v' of dataset 'uuid' was int64 then and is string now"
    for arguments in ({}, {"columns": ["x"], "on": "v"}, {"columns": ["x"], "predicates": [[("v", "==", "one")]]}):
        with pytest.raises(InvalidInput, match=words):
            changes(store, first, **arguments)
    assert not changes(store, first, columns=["x", "p"])

"""Groups that read other files than at an older state, the rows that differ, and what both read."""

from __future__ import annotations

import datetime as dt
import pickle
import re
import tempfile
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from kartothek_cube import options
from kartothek_cube.api.cube import (
    C,
    append_to_cube,
    build_cube,
    build_cube_index,
    cleanup_cube,
    compact_cube,
    drop_cube_index,
    extend_cube,
    iter_cube,
    load_group,
    plan_cube_query,
    query_cube,
    query_cube_arrow,
    query_cube_changes,
    remove_partitions,
    update_cube,
)
from kartothek_cube.api.dataset import undo
from kartothek_cube.api.discover import discover_datasets_unchecked
from kartothek_cube.core.arrow.difference import CHANGE_TYPE
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.cube.execute.run import shares_seed_files
from kartothek_cube.errors import HistoryUnavailable, InvalidInput, InvalidType
from tests.caches import forget
from tests.support.changes import rows_of
from tests.support.cubes import CUBE, ENRICH, SEED, build_two, snapshot, table
from tests.support.reads import MeasuredStore

NO_GRACE = options(grace=dt.timedelta(0))


@pytest.fixture
def store():
    store = MemoryStore()
    build_two(store)
    return store


@pytest.fixture
def wide():
    """Ten partitions of two cells and two brands each."""
    store = MemoryStore()
    rows = [(x, "a", p, p % 3 + x, 1.0) for p in range(10) for x in range(2)]
    build_cube(cells(*rows), CUBE, store)
    return store


def cells(*rows: Any) -> pa.Table:
    return pa.table({name: [row[i] for row in rows] for i, name in enumerate(["x", "y", "p", "i1", "v1"])})


def commits(store: Any) -> Any:
    forget(store)
    return plan_cube_query(CUBE, store).commits


def keys(store: Any, since: Any, **more: Any) -> tuple[list[Any], list[Any]]:
    """The values of the changed groups, and those of the removed ones."""
    plan = plan_cube_query(CUBE, store, **more, changed_since=since)
    return [tuple(g.key.values()) for g in plan.groups], [tuple(key.values()) for key in plan.removed_group_keys()]


def changes(store: Any, *arguments: Any, **more: Any) -> Counter[Any]:
    return Counter(rows_of(query_cube_changes(CUBE, store, *arguments, **more).read_all()))


# --- groups ---------------------------------------------------------------------------------------


def test_a_changed_a_new_and_a_vanished_partition(wide):
    since = commits(wide)
    update_cube(cells((0, "a", 3, 1, 9.0)), CUBE, wide, C("p") == 3)
    append_to_cube(cells((0, "a", 77, 1, 9.0)), CUBE, wide)
    remove_partitions(CUBE, wide, C("p") == 5)
    assert keys(wide, since) == ([(3,), (77,)], [(5,)])
    assert [(key, t.num_rows) for key, t in iter_cube(CUBE, wide, changed_since=since)] == [
        ({"p": 3}, 1),
        ({"p": 77}, 1),
    ]
    (frame,) = query_cube(CUBE, wide, changed_since=since)
    assert frame["p"].tolist() == [3, 77]
    plan = plan_cube_query(CUBE, wide, changed_since=since)
    assert [load_group(g, wide).num_rows for g in pickle.loads(pickle.dumps(plan)).groups] == [1, 1]
    assert plan.file_counts() == {"seed": 2}
    assert keys(wide, commits(wide)) == ([], [])
    assert query_cube(CUBE, wide, changed_since=commits(wide)) == []


def test_groups_by_a_payload_column_and_by_a_dimension(wide):
    since = commits(wide)
    append_to_cube(cells((0, "a", 3, 99, 9.0)), CUBE, wide)
    # The cell was in group 0 of p=3, whose file also has group 1.
    assert keys(wide, since, partition_by="i1") == ([(0,), (1,), (99,)], [])
    assert keys(wide, since, partition_by="x") == ([(0,)], [])
    remove_partitions(CUBE, wide, C("p") == 3)
    assert keys(wide, since, partition_by="i1")[1] == []
    second = commits(wide)
    append_to_cube(cells((0, "a", 55, 99, 9.0)), CUBE, wide)
    third = commits(wide)
    remove_partitions(CUBE, wide, C("p") == 55)
    assert keys(wide, third, partition_by="i1") == ([], [(99,)])
    assert keys(wide, second, partition_by="i1") == ([], [])


def test_a_changed_group_without_rows_is_yielded_empty(store):
    since = commits(store)
    append_to_cube(cells((1, "a", 1, 10, -1.0), (1, "b", 1, 20, -1.0)), CUBE, store)
    found = list(iter_cube(CUBE, store, C("v1") > 0.0, changed_since=since))
    assert [(key, rows.num_rows) for key, rows in found] == [({"p": 1}, 0)]
    assert found[0][1].schema == query_cube_arrow(CUBE, store, C("v1") > 0.0).schema
    by = list(iter_cube(CUBE, store, C("v1") > 0.0, partition_by="i1", changed_since=since))
    assert {tuple(key.values()): rows.num_rows for key, rows in by} == {(10,): 1, (20,): 1}


def test_groups_that_share_files_of_the_seed_are_yielded_empty_too(store):
    """Their rows are read once and wait for their group."""
    xs = range(12)
    since = commits(store)
    rows = [(x, "z", 0, 100 + x % 6, 1.0) for x in xs]
    append_to_cube(cells(*rows), CUBE, store)
    append_to_cube(cells(*((x, "z", 0, 106, -1.0) for x in xs if x % 6 == 2)), CUBE, store)
    arguments = {"conditions": C("v1") > 0.0, "partition_by": "i1", "changed_since": since}
    assert shares_seed_files(plan_cube_query(CUBE, store, **arguments))
    found = list(iter_cube(CUBE, store, **arguments))
    sizes = {key["i1"]: rows.num_rows for key, rows in found}
    assert sizes == {10: 1, 20: 2, 100: 2, 101: 2, 102: 0, 103: 2, 104: 2, 105: 2, 106: 0}


def test_an_enrichment_changes_the_groups_that_it_is_joined_to(wide):
    extend_cube({"e": table(x=[0, 1], p=[3, 4], v2=[1, 2])}, CUBE, wide)
    since = commits(wide)
    append_to_cube({"e": table(x=[0], p=[4], v2=[5])}, CUBE, wide)
    assert keys(wide, since) == ([(4,)], [])
    assert keys(wide, since, payload_columns=["v1"]) == ([], [])
    assert keys(wide, since, datasets="seed") == ([], [])
    append_to_cube({"e": table(x=[0], p=[888], v2=[5])}, CUBE, wide)
    assert keys(wide, since) == ([(4,)], [])


def test_a_new_dataset_changes_all_groups_that_read_it_and_none_of_a_query_without_it(wide):
    since = commits(wide)
    moment = dt.datetime.now(dt.UTC)
    extend_cube({"e": table(x=[0, 1], p=[3, 4], i2=["a", "b"], v2=[1, 2])}, CUBE, wide)
    for when in (since, moment):
        assert keys(wide, when) == ([(3,), (4,)], [])
        assert keys(wide, when, partition_by="i2") == ([("a",), ("b",)], [])
        assert keys(wide, when, conditions=C("i2") == "b") == ([(4,)], [])
        assert keys(wide, when, payload_columns=["v1"]) == ([], [])
        assert changes(wide, when, payload_columns=["v2"], conditions=C("x") == 0) == {
            ("update_preimage", 3, None, 0, "a"): 1,
            ("update_postimage", 3, 1, 0, "a"): 1,
        }


def test_a_compaction_changes_groups_but_no_rows(store):
    append_to_cube(cells((1, "a", 1, 10, 7.0)), CUBE, store)
    since = commits(store)
    compact_cube(CUBE, store)
    assert keys(store, since) == ([(1,)], [])
    assert not changes(store, since)
    undo("cube++seed", store)
    assert keys(store, since) == ([], [])


def test_explain_shows_the_step_with_groups_before_and_after(wide):
    since = commits(wide)
    append_to_cube(cells((0, "a", 3, 99, 9.0)), CUBE, wide)
    text = plan_cube_query(CUBE, wide, changed_since=since).explain()
    assert re.search(r"Changed since the commits of 1 dataset .groups.\n *before +after\n *all +10 +1\n", text), text
    plan_cube_query(CUBE, wide, changed_since=since).explain("html")
    plan_cube_query(CUBE, wide, changed_since=since).to_svg()


# --- indices of the older state -------------------------------------------------------------------


def lose_indices(store: Any) -> None:
    """Index files of older states go, their data files stay."""
    cleanup_cube(CUBE, store, options=NO_GRACE)
    forget(store)


def test_of_an_index_that_is_lost_only_removed_files_are_read(wide):
    since = commits(wide)
    update_cube(cells((0, "a", 3, 99, 9.0)), CUBE, wide, C("p") == 3)
    remove_partitions(CUBE, wide, C("p") == 5)
    expected = keys(wide, since, partition_by="i1")
    lose_indices(wide)
    measured = MeasuredStore(wide)
    assert expected == ([(0,), (1,), (2,), (3,), (99,)], [])
    assert keys(measured, since, partition_by="i1") == expected
    assert len(measured.files()) == 2
    assert {key.split("/")[2] for key in measured.files()} == {"p=3", "p=5"}
    measured.reset()
    assert keys(measured, since) == ([(3,)], [(5,)])
    assert not measured.files()


@pytest.mark.parametrize("lost", [False, True])
def test_an_index_that_was_built_since(wide, lost):
    since = commits(wide)
    build_cube_index(CUBE, wide, "v1", "seed")
    append_to_cube(cells((0, "a", 3, 0, 9.0)), CUBE, wide)
    if lost:
        lose_indices(wide)
    assert keys(wide, since, partition_by="v1") == ([(1.0,), (9.0,)], [])
    measured = MeasuredStore(wide)
    assert keys(measured, since, partition_by="v1", conditions=C("v1") > 5.0) == ([(9.0,)], [])
    assert not measured.files()


def test_an_index_that_was_dropped_since(wide):
    build_cube_index(CUBE, wide, "v1", "seed")
    since = commits(wide)
    drop_cube_index(CUBE, wide, "v1", "seed")
    append_to_cube(cells((0, "a", 3, 0, 9.0)), CUBE, wide)
    assert keys(wide, since, conditions=C("v1") > 5.0) == ([(3,)], [])
    with pytest.raises(InvalidInput, match="not indexed"):
        keys(wide, since, partition_by="v1")
    assert keys(wide, since) == ([(3,)], [])


@pytest.mark.parametrize("lost", [False, True])
def test_conditions_on_an_indexed_column_of_both_states(wide, lost):
    since = commits(wide)
    update_cube(cells((0, "a", 3, 1, 9.0)), CUBE, wide, C("p") == 3)
    update_cube(cells((0, "a", 4, 2, 9.0)), CUBE, wide, C("p") == 4)
    if lost:
        lose_indices(wide)
    measured = MeasuredStore(wide)
    found, removed = keys(measured, since, conditions=C("i1") == 1)
    assert found == [(3,)]
    # Without its index, the older state has all groups.
    assert removed == [(4,)]
    assert not measured.files()
    assert changes(wide, since, conditions=C("i1") == 1, payload_columns=["v1"]) == {
        ("delete", 3, 1.0, 1, "a"): 1,
        ("update_preimage", 4, 1.0, 0, "a"): 1,
        ("update_postimage", 3, 9.0, 0, "a"): 1,
    }


# --- rows -----------------------------------------------------------------------------------------


def test_a_cell_that_moved_is_an_update(store):
    since = commits(store)
    update_cube(cells((0, "a", 7, 10, 0.5)), CUBE, store, C("p") == 0)
    found = changes(store, since, payload_columns=["v1"])
    assert found == {
        ("update_preimage", 0, 0.5, 0, "a"): 1,
        ("update_postimage", 7, 0.5, 0, "a"): 1,
        ("delete", 0, 1.5, 0, "b"): 1,
    }


def test_a_payload_column_that_moved_to_another_dataset_is_no_change(store):
    since, moment = commits(store), dt.datetime.now(dt.UTC)
    data = {"seed": SEED.append_column("v2", pa.array([10, None, 10, None])), "e": ENRICH.drop_columns(["v2"])}
    build_cube(data, CUBE, store, overwrite=True, partition_on={"e": []})
    for when in (moment, since):
        assert not changes(store, when)
        assert keys(store, when) == ([(0,), (1,)], [])
        assert keys(store, when, partition_by="i2") == ([("one",), ("other",)], [])


def test_other_partition_keys_and_dimensions_of_an_enrichment(store):
    since = commits(store)
    extend_cube(
        {"e": table(x=[1, 1, 0], y=["a", "b", "a"], p=[1, 1, 0], i2=["one", "one", "zero"], v2=[10, 11, 0])},
        CUBE,
        store,
        overwrite=True,
    )
    assert changes(store, since, payload_columns=["v2"]) == {
        ("update_preimage", 1, 10, 1, "b"): 1,
        ("update_postimage", 1, 11, 1, "b"): 1,
        ("update_preimage", 0, None, 0, "a"): 1,
        ("update_postimage", 0, 0, 0, "a"): 1,
    }
    assert keys(store, since, partition_by="i2") == ([("one",), ("zero",)], [("other",)])
    with pytest.raises(InvalidInput, match="Cannot project dataset"):
        changes(store, since, dimension_columns=["x"])


def test_types_hold_the_values_of_both_states():
    store = MemoryStore()
    row = {"x": [1], "y": ["a"], "p": [1], "i1": [1]}
    build_cube(pa.table({**row, "v1": [2**40]}), CUBE, store)
    since = commits(store)
    build_cube(pa.table({**row, "v1": pa.nulls(1)}), CUBE, store, overwrite=True)
    found = query_cube_changes(CUBE, store, since).read_all()
    assert found.column("v1").to_pylist() == [2**40, None]
    assert keys(store, since) == ([(1,)], [])
    forget(store)
    assert snapshot(store).schema.field("v1").type == pa.null()


def test_a_column_of_another_type_is_refused_where_values_are_compared():
    store = MemoryStore()
    row = {"x": [1], "y": ["a"], "p": [1], "i1": [1]}
    build_cube(pa.table({**row, "v1": [1]}), CUBE, store)
    since = commits(store)
    build_cube(pa.table({**row, "v1": ["one"]}), CUBE, store, overwrite=True)
    words = "Column 'v1' of dataset 'cube..seed' was int64 then and is string now"
    for arguments in ({}, {"payload_columns": [], "conditions": C("v1") == "one"}):
        with pytest.raises(InvalidInput, match=words):
            changes(store, since, **arguments)
    assert not changes(store, since, payload_columns=["i1"])
    # Groups are told apart by their files.
    assert keys(store, since) == ([(1,)], [])
    with pytest.raises(InvalidInput, match=words):
        keys(store, since, conditions=C("v1") == "one")


def test_columns_come_in_the_order_of_the_query(store):
    since = commits(store)
    found = query_cube_changes(CUBE, store, since, dimension_columns=["x"], payload_columns=["v2"])
    assert found.schema.names == [CHANGE_TYPE, "p", "v2", "x"]


# --- what is read ---------------------------------------------------------------------------------


def test_partitions_without_a_changed_file_are_not_read(wide):
    since = commits(wide)
    update_cube(cells((0, "a", 3, 1, 9.0)), CUBE, wide, C("p") == 3)
    append_to_cube(cells((0, "a", 77, 1, 9.0)), CUBE, wide)
    measured = MeasuredStore(wide)
    assert [key for key, _ in iter_cube(CUBE, measured, changed_since=since)] == [{"p": 3}, {"p": 77}]
    assert {key.split("/")[2] for key in measured.files()} == {"p=3", "p=77"}
    assert len(measured.files()) == 2
    measured.reset()
    assert sum(changes(measured, since).values()) == 4
    assert len(measured.files()) == 3
    assert {key.split("/")[2] for key in measured.files()} == {"p=3", "p=77"}


def test_planning_reads_no_data_file(wide):
    since = commits(wide)
    update_cube(cells((0, "a", 3, 1, 9.0)), CUBE, wide, C("p") == 3)
    measured = MeasuredStore(wide)
    for by in (None, "i1", "x"):
        keys(measured, since, partition_by=by)
        query_cube_changes(CUBE, measured, since)
    assert not measured.files()


def test_nothing_is_read_where_no_file_differs(wide):
    since, moment = commits(wide), dt.datetime.now(dt.UTC)
    update_cube(cells((0, "a", 3, 1, 9.0)), CUBE, wide, C("p") == 3)
    undo("cube++seed", wide)
    build_cube_index(CUBE, wide, "v1", "seed")
    measured = MeasuredStore(wide)
    for when in (since, moment, commits(wide)):
        assert not changes(measured, when)
        assert keys(measured, when) == keys(measured, when, partition_by="i1") == ([], [])
        assert not list(iter_cube(CUBE, measured, changed_since=when))
    assert not measured.files()


# --- memory ---------------------------------------------------------------------------------------


def test_with_little_memory_rows_wait_on_disk_and_the_changes_are_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    store = MemoryStore()
    build_cube(cells(*((x, "a", x % 5, 1, 1.0) for x in range(500))), CUBE, store)
    since = commits(store)
    # Most cells move.
    moved = cells(*((x, "a", x % 3, 1, float(x % 2)) for x in range(100, 600)))
    build_cube(moved, CUBE, store, overwrite=True)
    reader = query_cube_changes(CUBE, store, since, options=options(bytes_in_flight=1))
    rows = Counter(rows_of(pa.Table.from_batches([reader.read_next_batch()])))
    rows += Counter(rows_of(reader.read_all()))
    assert not list(tmp_path.iterdir())
    assert rows == changes(store, since)
    kinds = Counter(row[0] for row in rows.elements())
    assert kinds["delete"] == kinds["insert"] == 100
    assert not list(tmp_path.iterdir())


def test_a_reader_that_is_dropped_early_leaves_no_temporary_file(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    store = MemoryStore()
    build_cube(cells(*((x, "a", x % 5, 1, 1.0) for x in range(500))), CUBE, store)
    since = commits(store)
    build_cube(cells(*((x, "a", x % 7, 1, 1.0) for x in range(500))), CUBE, store, overwrite=True)
    reader = query_cube_changes(CUBE, store, since, options=options(bytes_in_flight=1))
    while not list(tmp_path.iterdir()):
        reader.read_next_batch()
    reader.close()
    del reader
    assert not list(tmp_path.iterdir())


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "verb",
    [query_cube_changes, lambda cube, store, since: plan_cube_query(cube, store, changed_since=since)],
    ids=["changes", "groups"],
)
@pytest.mark.parametrize(
    ("since", "error", "words"),
    [
        (5, InvalidType, "is the id of a commit"),
        ("nobody", HistoryUnavailable, "Cube 'cube' has no tag 'nobody'"),
        ("2001-01-01", HistoryUnavailable, "cannot be read as of 2001-01-01.*none existed then"),
        (dt.datetime(2001, 1, 1), HistoryUnavailable, "cannot be read as of 2001-01-01.*none existed then"),
        ({"seed": "nobody"}, HistoryUnavailable, "Dataset 'cube..seed' has no tag 'nobody'"),
        (
            {"seed": None},
            HistoryUnavailable,
            "Dataset 'cube..seed': its last commit then was of a writer that keeps no",
        ),
    ],
)
def test_a_state_that_is_not_known_is_named(store, verb, since, error, words):
    with pytest.raises(error, match=words):
        verb(CUBE, store, since)


def test_since_is_needed(store):
    with pytest.raises(InvalidType, match="not None"):
        query_cube_changes(CUBE, store, None)


def test_the_later_state_comes_last(store):
    moments = [dt.datetime.now(dt.UTC)]
    seen = [commits(store)]
    append_to_cube(cells((5, "z", 1, 10, 7.0)), CUBE, store)
    moments.append(dt.datetime.now(dt.UTC))
    seen.append(commits(store))
    for since in (moments[1], seen[1], seen[1]["seed"]):
        with pytest.raises(InvalidInput, match=r"until=.* comes before since=.*Exchange them"):
            changes(store, since, moments[0])
        with pytest.raises(InvalidInput, match="comes before"):
            keys(store, since, as_of=moments[0])
    assert sum(changes(store, moments[0], moments[1]).values()) == 1


def test_datasets_that_are_loaded_are_refused(store):
    loaded = discover_datasets_unchecked("cube", store)
    with pytest.raises(InvalidInput, match="datasets that are loaded already: give their ids"):
        keys(store, commits(store), datasets=loaded)


def test_a_payload_column_with_the_name_of_the_kind_of_a_change_is_refused_where_it_is_shown():
    store = MemoryStore()
    rows = pa.table({"x": [1], "y": ["a"], "p": [1], "i1": [1], CHANGE_TYPE: ["a"]})
    build_cube(rows, CUBE, store)
    since = commits(store)
    with pytest.raises(InvalidInput, match="Cube 'cube' has a column '_change_type'"):
        changes(store, since)
    assert not changes(store, since, payload_columns=["i1"])
    assert keys(store, since) == ([], [])


def test_errors_of_the_query_are_those_of_any_query(store):
    since = commits(store)
    for arguments, words in [
        ({"conditions": C("nowhere") == 1}, "nowhere"),
        ({"payload_columns": ["nowhere"]}, "nowhere"),
        ({"dimension_columns": ["nowhere"]}, "nowhere"),
        ({"datasets": ["seed", "nowhere"]}, "Could not find the following requested datasets: nowhere"),
    ]:
        with pytest.raises(InvalidInput, match=words):
            changes(store, since, **arguments)
        with pytest.raises(InvalidInput, match=words):
            keys(store, since, **arguments)

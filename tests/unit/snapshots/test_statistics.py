"""Statistics in the life of a dataset: commits, merged files, undo, copies, foreign writers."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from functools import partial

import pyarrow as pa
import pytest

from kartothek_cube import (
    C,
    Cube,
    append_to_cube,
    build_cube,
    count_cube,
    describe_cube,
    options,
    plan_cube_query,
    query_cube_arrow,
)
from kartothek_cube.api import dataset as api
from kartothek_cube.core.metadata.naming import document_key, new_id
from kartothek_cube.core.metadata.statistics import reference_of, statistics_key
from kartothek_cube.core.runtime.executor import LruCache
from kartothek_cube.core.snapshots import statistics as module
from kartothek_cube.core.snapshots.loader import load_snapshot
from kartothek_cube.core.snapshots.statistics import load_statistics, statistics_of_files
from kartothek_cube.core.stores.contract import StoreView
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import CommitConflict
from kartothek_cube.testing.stores import CountingStore
from tests.support.commits import UUID, foreign_commit, write

# As `hashlib.md5` has them.
HASH = "f5bb0c8de146c67b44babbf4e6584cc0"
OLD = options(grace=timedelta(0), retain=timedelta(0))


@pytest.fixture
def store():
    return MemoryStore()


@pytest.fixture
def in_files(monkeypatch):
    """Every commit writes a statistics file."""
    monkeypatch.setattr(module, "_MOST_INSIDE", 0)


def reference(store, uuid=UUID):
    return reference_of(load_snapshot(store, uuid).document.metadata)


def names(store, uuid=UUID):
    return {stored.name: stored.files for stored in reference(store, uuid).stored}


def there(store, uuid=UUID):
    return sorted(store.list(f"{uuid}/_statistics/", recursive=True).keys)


def update(store, rows, label=None, **more):
    """Write as users do, who may choose a label."""
    element = pa.table(rows) if label is None else {"label": label, "data": {"table": pa.table(rows)}}
    api.update_dataset_from_dataframes([element], store, UUID, **more)


def known(store, uuid=UUID, column="x"):
    """The bounds of each file, None for a file without an entry."""
    snapshot = load_snapshot(store, uuid)
    found = statistics_of_files(store, snapshot, snapshot.files, [column])
    bounds = found.bounds(column, snapshot.schema.field(column).type)
    pairs = zip(bounds.minimum.to_pylist(), bounds.maximum.to_pylist(), found.sizes.to_pylist(), strict=True)
    entries = [None if size is None else (low, high) for low, high, size in pairs]
    return sorted(entries, key=lambda entry: (entry is not None, [(end is None, end) for end in entry or ()]))


def planned(store, condition, uuid=UUID, **more):
    return len(api.plan_table_scan(uuid, store, predicates=[[condition]], **more).files())


def test_commits_keep_statistics_inside_the_document(store):
    counting = CountingStore(store)
    for x in (1, 5, 9):
        write(counting, {"x": [x, x + 2]})
    assert known(store) == [(1, 3), (5, 7), (9, 11)]
    assert there(store) == []
    assert len(reference(store).recent) == 3
    assert planned(store, ("x", "==", 6)) == 1


def test_what_takes_too_much_room_goes_to_a_file(store, monkeypatch):
    write(store, {"x": [1]})
    monkeypatch.setattr(module, "_MOST_INSIDE", reference(store).size + 10)
    write(store, {"x": [2]})
    assert (list(names(store).values()), reference(store).recent) == ([2], ())
    assert there(store) == [statistics_key(UUID, name) for name in names(store)]
    write(store, {"x": [3]})
    assert (list(names(store).values()), len(reference(store).recent)) == ([2], 1)
    assert known(store) == [(1, 1), (2, 2), (3, 3)]


def test_a_new_file_takes_over_those_that_are_not_much_larger(store, in_files):
    sizes = []
    for x in range(16):
        write(store, {"x": [x]})
        sizes.append(list(names(store).values()))
    # Sums of at most twice the new entries are merged, so there are few files.
    assert sizes[:4] == [[1], [2], [3], [3, 1]]
    assert max(map(len, sizes)) <= 4
    assert all(sum(of_files) == x + 1 for x, of_files in enumerate(sizes))
    assert known(store) == [(x, x) for x in range(16)]


def test_entries_of_files_that_are_gone_are_dropped_when_files_are_merged(store, in_files):
    write(store, {"x": [1]}, label="0" * 32)
    write(store, {"x": [2]}, label="1" * 32, removed=["0" * 32])
    assert list(names(store).values()) == [2]  # an undo brings the last ones back
    write(store, {"x": [3]}, removed=["1" * 32])
    assert list(names(store).values()) == [1]
    assert known(store) == [(3, 3)]


def test_an_undo_finds_the_statistics_of_what_comes_back(store):
    write(store, {"x": [1]}, label="0" * 32)
    removal = write(store, {"x": [2]}, removed=["0" * 32]).result.id
    api.undo(UUID, store, removal)
    assert known(store) == [(1, 1)]


def test_an_older_state_has_the_statistics_of_now(store, in_files):
    first = write(store, {"x": [1]}).result.id
    second = write(store, {"x": [2]}).result.id
    write(store, {"x": [3]})
    assert planned(store, ("x", "==", 2), as_of=second) == 1
    assert planned(store, ("x", "<", 0), as_of=second) == 0
    assert "kartothek_cube.statistics" in load_snapshot(store, UUID).document.metadata
    api.undo(UUID, store, load_snapshot(store, UUID).commit)
    assert known(store) == [(1, 1), (2, 2)]
    assert planned(store, ("x", "==", 5), as_of=first) == 1  # one file is opened as fast as statistics


def test_an_undo_of_a_whole_overwrite_finds_statistics_in_files(store, in_files):
    frames = [pa.table({"x": [x]}).to_pandas() for x in range(6)]
    api.store_dataframes_as_dataset(store, "sales", frames)
    older = load_snapshot(store, "sales").commit
    api.store_dataframes_as_dataset(store, "sales", frames, overwrite=True)
    assert planned(store, ("x", "==", 3), "sales", as_of=older) == 1
    api.undo("sales", store, load_snapshot(store, "sales").commit)
    assert planned(store, ("x", "==", 3), "sales") == 1


def test_every_file_of_a_compaction_has_statistics(store):
    for n in range(4):
        write(store, {"x": list(range(n, 4000, 4))})
    api.compact_dataset(UUID, store, sort_by=["x"], target_rows=500)
    assert None not in known(store)
    assert planned(store, ("x", "==", 7)) == 1


def test_footers_that_say_too_little_are_helped_by_the_rows(store):
    with options(statistics=False):
        write(store, {"x": [1.0, float("nan"), 200.0, float("nan")]}, serializer={"chunk_size": 2})
        write(store, {"x": [float("nan"), float("nan")]})
        write(store, {"x": [1.0, 2.0]})
    assert api.build_statistics(UUID, store) == 3
    assert api.build_statistics(UUID, store, ["x"]) == 0
    assert len(known(store)) == 3
    assert planned(store, ("x", ">", 50.0)) == 1


def test_statistics_of_a_dataset_that_lists_no_partitions(store):
    with options(statistics=False):
        api.create_empty_dataset_header(store, UUID, {"table": pa.table({"x": [1]})})
        for x in (1, 2):
            api.write_single_partition(store, UUID, pa.table({"x": [x]}))
    assert api.build_statistics(UUID, store) == 2
    assert planned(store, ("x", "==", 2)) == 1


def test_a_column_of_one_table_of_several(store):
    data = {"table": pa.table({"x": [1]}).to_pandas(), "other": pa.table({"v1": [2]}).to_pandas()}
    api.store_dataframes_as_dataset(store, UUID, [{"data": list(data.items())}], options=options(statistics=False))
    assert api.build_statistics(UUID, store, ["v1"]) == 2


def test_a_rebuilt_dataset_keeps_what_is_known_for_an_undo(store):
    frames = [pa.table({"x": [1]}), pa.table({"x": [2]})]
    api.store_dataframes_as_dataset(store, "sales", [t.to_pandas() for t in frames])
    api.store_dataframes_as_dataset(store, "sales", [frames[0].to_pandas()], overwrite=True)
    api.undo("sales", store, load_snapshot(store, "sales").commit)
    assert known(store, "sales") == [(1, 1), (2, 2)]


@pytest.mark.parametrize("where", ["inside", "file"])
def test_a_copy_has_the_statistics(store, where, monkeypatch):
    if where == "file":
        monkeypatch.setattr(module, "_MOST_INSIDE", 0)
    for x in (1, 2, 3):
        write(store, {"x": [x]})
    target = MemoryStore()
    api.copy_dataset(UUID, store, "copy", target)
    assert known(target, "copy") == [(1, 1), (2, 2), (3, 3)]
    assert names(target, "copy") == names(store)
    api.rename_dataset(UUID, store, "renamed")
    assert known(store, "renamed") == [(1, 1), (2, 2), (3, 3)]
    assert there(store) == []


def test_a_copy_of_a_dataset_whose_statistics_file_is_missing_has_none(store, in_files):
    write(store, {"x": [1]})
    store.delete(there(store)[0])
    api.copy_dataset(UUID, store, "copy", store)
    assert known(store, "copy") == [None]


@pytest.mark.parametrize("harm", ["missing", "damaged", "other"])
def test_a_statistics_file_that_cannot_be_read_is_no_error(store, in_files, harm):
    for x in (1, 2):
        write(store, {"x": [x]})
    (name,) = names(store)
    key = statistics_key(UUID, name)
    content = {"damaged": store.get(key)[:-20], "other": store.get(load_snapshot(store, UUID).files[0].as_py())}
    store.delete(key) if harm == "missing" else store.put(key, content[harm])
    module._cache.clear()
    assert planned(store, ("x", "==", 1)) == 2
    assert api.read_table_arrow(UUID, store, predicates=[[("x", "==", 1)]]).num_rows == 1
    write(store, {"x": [3]})  # takes the file over, or what is left of it
    assert known(store) == [None, None, (3, 3)]


def test_files_of_a_foreign_writer_are_unknown_and_read(store):
    write(store, {"x": ["a"]})
    write(store, {"x": ["b"]})
    foreign_commit(store)
    assert planned(store, ("x", "==", "t")) == 1
    assert planned(store, ("x", "==", "a")) == 2
    assert api.read_table_arrow(UUID, store, predicates=[[("x", "==", "t")]]).num_rows == 1


@pytest.mark.parametrize("label", ["mine", HASH, new_id()], ids=["name", "hash", "random"])
def test_a_file_that_others_may_overwrite_has_no_statistics(store, label):
    """kartothek writes a label that the user gives twice to the same key."""
    update(store, {"x": [1]}, label=label)
    update(store, {"x": [2]})
    assert known(store) == [None, (2, 2)]


@pytest.mark.parametrize(("label", "built"), [("mine", 1), (HASH, 0), (new_id(), 2)], ids=["name", "hash", "random"])
def test_beside_a_hash_all_names_count_as_chosen(store, label, built):
    with options(statistics=False):
        update(store, {"x": [1]}, label=label)
        update(store, {"x": [2]})
    assert api.build_statistics(UUID, store) == built
    assert known(store).count(None) == 2 - built


@pytest.mark.parametrize(
    ("chosen", "column", "files"), [(False, "v1", 2), (["x"], "v1", 2), (["x"], "x", 1), (True, "v1", 1)]
)
def test_the_option_chooses_what_is_kept(store, chosen, column, files):
    with options(statistics=chosen):
        for value in (1, 2):
            write(store, {"x": [value], "v1": [value]})
    assert planned(store, (column, "==", 2)) == files


def test_bounds_that_a_footer_does_not_tell_are_found_once_and_stay(store):
    far = pa.array([253402300800 * 10**6, None], pa.timestamp("us"))
    rows = pa.table({"t": far, "x": [1, 2]})
    api.store_dataframes_as_dataset(store, UUID, [rows], options=options(statistics=False))
    assert [api.build_statistics(UUID, store, "t") for _ in range(2)] == [1, 0]
    assert known(store) == [(None, None)]
    assert api.build_statistics(UUID, store, ["t", "x"]) == 1
    assert known(store) == [(1, 2)]
    assert api.build_statistics(UUID, store, "t") == 0


def test_a_column_that_became_a_list_is_left_out(store):
    api.store_dataframes_as_dataset(store, UUID, [pa.table({"x": [1], "v1": [1]})])
    lists = pa.table({"x": [[1]], "v1": [2]})
    api.store_dataframes_as_dataset(store, UUID, [lists], overwrite=True, options=options(statistics=False))
    assert api.build_statistics(UUID, store) == 1
    assert known(store, column="v1") == [(2, 2)]


def test_a_column_that_is_null_in_another_table_has_statistics(store):
    tables = {"a": pa.table({"x": [1]}), "b": pa.table({"x": pa.nulls(1)})}
    api.store_dataframes_as_dataset(store, UUID, [tables], options=options(statistics=False))
    assert api.build_statistics(UUID, store, "x") == 2


def test_files_get_statistics_later(store):
    with options(statistics=False):
        for value in (1, 2, 3):
            write(store, {"x": [value], "v1": [float(value)], "v2": [[value]]}, index=["x"])
    assert "kartothek_cube.statistics" not in load_snapshot(store, UUID).document.metadata
    assert api.build_statistics(UUID, store, "x") == 3
    assert (known(store), known(store, column="v1")) == ([(1, 1), (2, 2), (3, 3)], [(None, None)] * 3)
    assert api.build_statistics(UUID, store, ["v1"]) == 3
    assert (known(store), known(store, column="v1")) == ([(1, 1), (2, 2), (3, 3)], [(1.0, 1.0), (2.0, 2.0), (3.0, 3.0)])
    assert (api.build_statistics(UUID, store, ["v1"]), api.build_statistics(UUID, store)) == (0, 0)
    assert load_snapshot(store, UUID).secondary_columns == {"x"}


@pytest.mark.parametrize(
    ("column", "error"), [("y", "has no column 'y'"), ("v2", "which has no order"), ("p", "has no column 'p'")]
)
def test_columns_that_cannot_have_bounds_are_refused(store, column, error):
    write(store, {"x": [1], "v2": [[1]], "p": [1]}, on=["p"])
    with pytest.raises(Exception, match=error):
        api.build_statistics(UUID, store, column)


def test_garbage_collection_removes_files_that_no_document_names(store, in_files):
    for x in (1, 2):
        write(store, {"x": [x]})
    assert len(there(store)) == 2
    assert [file.key for file in api.garbage_collect_dataset(UUID, store, dry_run=True).waiting if "_stat" in file.key]
    api.garbage_collect_dataset(UUID, store, options=OLD)
    assert there(store) == [statistics_key(UUID, name) for name in names(store)]
    assert known(store) == [(1, 1), (2, 2)]


@pytest.mark.parametrize("inside", [True, False])
def test_garbage_collection_forgets_files_with_their_last_state(store, monkeypatch, inside):
    if not inside:
        monkeypatch.setattr(module, "_MOST_INSIDE", 0)
    update(store, {"x": [1, 2, 7, 8], "p": [1, 1, 2, 2]}, partition_on=["p"])
    update(store, {"x": [9], "p": [2]}, delete_scope=[{"p": 2}])
    before = load_statistics(store, load_snapshot(store, UUID), ["x"])
    api.garbage_collect_dataset(UUID, store)
    assert len(load_statistics(store, load_snapshot(store, UUID), ["x"])) == len(before) == 3
    api.garbage_collect_dataset(UUID, store, options=OLD)
    assert sorted(load_statistics(store, load_snapshot(store, UUID)).rows.to_pylist()) == [1, 2]
    assert known(store) == [(1, 2), (9, 9)]
    again = api.garbage_collect_dataset(UUID, store, options=OLD)
    assert (again.removed, again.waiting) == ((), ())


def test_garbage_collection_lets_damaged_statistics_go(store, in_files):
    update(store, {"x": [1, 2, 7, 8], "p": [1, 1, 2, 2]}, partition_on=["p"])
    for x in (3, 4):
        update(store, {"x": [x] * 4, "p": [1, 2, 3, 4]})
    damaged = next(iter(names(store)))
    store.put(statistics_key(UUID, damaged), b"PAR1")
    module._cache.clear()
    update(store, {"x": [9], "p": [2]}, delete_scope=[{"p": 2}])
    api.garbage_collect_dataset(UUID, store, options=OLD)
    assert damaged not in names(store)
    assert there(store) == [statistics_key(UUID, name) for name in names(store)]
    assert not api.verify_dataset(UUID, store, deep=True).errors


def test_a_tag_keeps_the_statistics_of_its_files(store):
    for x in (1, 2):
        update(store, {"x": [x]})
    api.tag_dataset(UUID, store, "first")
    api.store_dataframes_as_dataset(store, UUID, [pa.table({"x": [5]})], overwrite=True)
    api.garbage_collect_dataset(UUID, store, options=OLD)
    assert len(load_statistics(store, load_snapshot(store, UUID))) == 3
    api.drop_dataset_tag(UUID, store, "first")
    api.garbage_collect_dataset(UUID, store, options=OLD)
    assert len(load_statistics(store, load_snapshot(store, UUID))) == 1


def test_a_deleted_dataset_leaves_nothing(store, in_files):
    write(store, {"x": [1]})
    api.delete_dataset(UUID, store)
    assert store.list("", recursive=True).keys == []


def test_another_encoding_keeps_them(store, in_files):
    for x in (1, 2):
        write(store, {"x": [x]})
    api.convert_metadata_format(UUID, store, "msgpack")
    assert known(store) == [(1, 1), (2, 2)]


def test_a_range_asks_for_the_document_one_more_object_and_the_files_that_match(store, in_files):
    cube = Cube(["x"], ["p"], "cube")
    rows = pa.table({"x": range(400), "p": [x // 2 for x in range(400)], "v1": range(400)})
    build_cube(rows, cube, store)
    module._cache.clear()
    counting = CountingStore(store)
    found = query_cube_arrow(cube, counting, (C("v1") >= 100) & (C("v1") < 104))
    assert found.column("v1").to_pylist() == [100, 101, 102, 103]
    touched = [
        key.split("/")[1]
        for key in counting.touched("get", "tail", "get_range", "get_ranges", "local_path")
        if "/" in key
    ]
    assert touched.count("_statistics") <= 2
    assert touched.count("table") <= 4
    assert "Statistics (files)" in plan_cube_query(cube, store, C("v1") == 5).explain()


def test_of_five_thousand_files_those_that_match_are_opened_and_one_more_object(store):
    cube = Cube(["x"], ["p"], "cube", suppress_index_on=["x"])
    seed = pa.table({"x": range(10_000), "p": [x // 2 for x in range(10_000)], "v1": range(10_000)})
    build_cube({"seed": seed, "e": seed.rename_columns(["x", "p", "v2"])}, cube, store)
    requests = ("get", "get_versioned", "tail", "ranges")

    def objects(read):
        module._cache.clear()
        counting = CountingStore(store)
        read(counting)
        assert sum(counting.counts[name] for name in requests) == len(counting.touched(*requests))
        return Counter(key.split("/")[1] for key in counting.touched(*requests) if "/" in key)

    condition = (C("v1") >= 100) & (C("v1") < 200)
    of_range = objects(lambda counting: query_cube_arrow(cube, counting, condition, datasets=["seed"]))
    assert of_range == {"_statistics": 1, "table": 50}
    assert objects(lambda counting: count_cube(cube, counting)) == {"_statistics": 1}
    both = objects(lambda counting: describe_cube("cube", counting))
    assert both == {"_statistics": 2}, "one request a dataset"


def test_where_the_seed_leaves_one_file_no_other_statistics_are_read(store, in_files):
    cube = Cube(["x"], ["p"], "cube", suppress_index_on=["x"])
    rows = pa.table({"x": range(10), "p": range(10), "i1": range(10)})
    build_cube({"seed": rows, "other": rows.select(["x", "p"])}, replace(cube, index_columns=["i1"]), store)
    module._cache.clear()
    counting = CountingStore(store)
    found = query_cube_arrow(cube, counting, (C("i1") == 3) & (C("x") < 5))
    assert found.column("x").to_pylist() == [3]
    assert not [key for key in counting.touched("get", "tail", "get_range", "get_ranges") if "_statistics" in key]


def test_conditions_on_payload_see_newer_rows_of_other_files(store):
    """A newer row of a cell overrides an older one that satisfies the condition."""
    cube = Cube(["x"], ["p"], "cube")
    build_cube(pa.table({"x": [1, 2], "p": [1, 1], "v1": [5, 6]}), cube, store)
    append_to_cube(pa.table({"x": [1], "p": [1], "v1": [100]}), cube, store)
    assert query_cube_arrow(cube, store, C("v1") == 5).num_rows == 0
    assert query_cube_arrow(cube, store, C("v1") == 100).num_rows == 1
    assert len(plan_cube_query(cube, store, C("v1") == 7).files()["seed"]) == 0


def test_statistics_are_read_once_for_each_process(store, in_files):
    for x in (1, 2, 3):
        write(store, {"x": [x]})
    module._cache.clear()
    counting = CountingStore(store)
    for _ in range(3):
        load_statistics(counting, load_snapshot(store, UUID), ["x"])
    assert len([key for key in counting.touched("tail", "get") if "_statistics" in key]) == len(names(store))


def test_the_largest_statistics_are_kept_too_but_alone(store, in_files, monkeypatch):
    write(store, {"x": [1]})
    (name,) = names(store)
    monkeypatch.setattr(module, "_CACHED_BYTES", 1)
    monkeypatch.setattr(module, "_cache", LruCache(1))
    counting = CountingStore(store)
    for columns, reads in [(["x"], 1), (["x"], 1), (None, 2), (["x"], 3)]:
        module._find(counting, UUID, name, columns)
        assert len(counting.touched("tail", "get")) == reads


@pytest.mark.parametrize(("others", "lands"), [(1, True), (3, False)])
def test_statistics_are_dropped_from_the_newest_document(store, others, lands):
    update(store, {"x": [1, 7], "p": [1, 2]}, partition_on=["p"])
    update(store, {"x": [9], "p": [2]}, delete_scope=[{"p": 2}])
    left = [others]

    class Busy(StoreView):
        def put_if(self, key, data, version):
            if left[0] and key == document_key(UUID):
                left[0] -= 1
                update(store, {"x": [5], "p": [5]})
            return super().put_if(key, data, version)

    at_once = options(grace=timedelta(0), retain=timedelta(0), commit_retries=2)
    collect = partial(api.garbage_collect_dataset, UUID, Busy(store), options=at_once)
    if lands:
        collect()
    else:
        with pytest.raises(CommitConflict, match=f"'{UUID}' was changed 3 times"):
            collect()
    assert len(api.read_table_arrow(UUID, store)) == 2 + others
    assert not api.verify_dataset(UUID, store, deep=True).errors

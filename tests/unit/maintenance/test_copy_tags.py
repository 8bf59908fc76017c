"""Copies take tags along, with the files of the tagged states."""

from __future__ import annotations

import datetime as dt

import pandas as pd
import pytest

from kartothek_cube import options
from kartothek_cube.api.cube import (
    C,
    append_to_cube,
    build_cube,
    cleanup_cube,
    copy_cube,
    drop_cube_tag,
    list_cube_tags,
    open_cube,
    query_cube_arrow,
    remove_partitions,
    tag_cube,
    verify_cube,
)
from kartothek_cube.api.dataset import (
    copy_dataset,
    delete_dataset,
    drop_dataset_tag,
    garbage_collect_dataset,
    list_dataset_tags,
    read_table,
    rename_dataset,
    store_dataframes_as_dataset,
    tag_dataset,
    update_dataset_from_dataframes,
    verify_dataset,
)
from kartothek_cube.core.metadata.tag import is_state_key, is_tag_object, tag_key
from kartothek_cube.core.snapshots.loader import load_snapshot
from kartothek_cube.core.snapshots.time_travel import known_tag, load_snapshot_as_of
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import AlreadyExists, HistoryUnavailable, KeyNotFound
from kartothek_cube.testing.stores import CountingStore
from tests.support.cubes import CUBE, ENRICH, SEED, table

UUID, COPY = "uuid", "copy"
SEED_UUID, E_UUID = "cube++seed", "cube++e"
NOW = options(grace=dt.timedelta(0), retain=dt.timedelta(0))


def frame(number, partition="a"):
    return pd.DataFrame({"x": [number], "p": [partition]})


def rows(store, uuid=UUID, as_of=None):
    return sorted(read_table(uuid, store, as_of=as_of)["x"])


def cells(store, as_of=None, cube=CUBE):
    return query_cube_arrow(cube, store, as_of=as_of).num_rows


@pytest.fixture
def store():
    """Three states, under the names `0`, `1` and `2`; the file of partition b is in each."""
    store = MemoryStore()
    both = pd.concat([frame(0), frame(9, "b")])
    store_dataframes_as_dataset(store, UUID, [both], partition_on=["p"], secondary_indices=["x"])
    tag_dataset(UUID, store, "0")
    for number in (1, 2):
        update_dataset_from_dataframes([frame(number)], store, UUID, delete_scope=[{"p": "a"}])
        tag_dataset(UUID, store, str(number))
    return store


@pytest.fixture
def target():
    return MemoryStore()


def check_copy(store, uuid):
    assert [rows(store, uuid, name) for name in ("0", "1", "2")] == [[0, 9], [1, 9], [2, 9]]
    assert read_table(uuid, store, predicates=[[("x", "==", 1)]], as_of="1")["x"].to_list() == [1]
    garbage_collect_dataset(uuid, store, options=NOW)
    assert [rows(store, uuid, name) for name in ("0", "1", "2")] == [[0, 9], [1, 9], [2, 9]]
    assert verify_dataset(uuid, store).clean
    data = [key for key in store.list(f"{uuid}/table/", recursive=True).keys if key.endswith(".parquet")]
    assert len(data) == 4


@pytest.mark.parametrize("history", ["kept", "gone"])
@pytest.mark.parametrize("uuid", [UUID, COPY])
def test_a_copy_has_the_tags_and_their_files_once(store, target, uuid, history):
    if history == "gone":
        garbage_collect_dataset(UUID, store, options=NOW)
    copy_dataset(UUID, store, uuid, target)
    before = list_dataset_tags(UUID, store)
    delete_dataset(UUID, store)
    check_copy(target, uuid)
    pd.testing.assert_frame_equal(list_dataset_tags(uuid, target), before)


def test_a_copy_inside_one_store(store):
    copy_dataset(UUID, store, COPY)
    for name in ("0", "1", "2"):
        drop_dataset_tag(UUID, store, name)
    garbage_collect_dataset(UUID, store, options=NOW)
    check_copy(store, COPY)


def test_a_rename_takes_the_tags(store):
    rename_dataset(UUID, store, COPY)
    assert not [key for key in store.list(recursive=True).keys if key.startswith(f"{UUID}/")]
    check_copy(store, COPY)


def test_index_files_that_are_gone_are_not_missed(store, target):
    for name in ("0", "1"):
        store.delete(load_snapshot_as_of(store, UUID, name).document.indices["x"])
    copy_dataset(UUID, store, UUID, target)
    check_copy(target, UUID)


def test_replacing_a_dataset_replaces_tags_of_the_same_name(store, target):
    copy_dataset(UUID, store, UUID, target)
    tag_dataset(UUID, target, "own")
    drop_dataset_tag(UUID, store, "0")
    tag_dataset(UUID, store, "0", as_of="2")
    for _ in range(2):
        copy_dataset(UUID, store, UUID, target, overwrite=True)
    assert [rows(target, as_of=name) for name in ("0", "1", "2", "own")] == [[2, 9], [1, 9], [2, 9], [2, 9]]
    garbage_collect_dataset(UUID, target, options=NOW)
    assert [rows(target, as_of=name) for name in ("0", "1", "2", "own")] == [[2, 9], [1, 9], [2, 9], [2, 9]]
    assert len([key for key in target.list(recursive=True).keys if is_state_key(key)]) == 4


def test_a_copy_of_a_tag_without_its_files_fails_and_is_not_there(store, target):
    first, second = (load_snapshot_as_of(store, UUID, name).document.files for name in ("0", "1"))
    (gone,) = first - second
    store.delete(gone)
    with pytest.raises(KeyNotFound, match="or one of its tags"):
        copy_dataset(UUID, store, UUID, target)
    assert UUID not in target.list().keys
    store.delete(known_tag(store, UUID, "0").state.key)
    with pytest.raises(HistoryUnavailable, match="'0' has lost its state"):
        copy_dataset(UUID, store, UUID, target)
    drop_dataset_tag(UUID, store, "0")
    copy_dataset(UUID, store, UUID, target)
    assert list_dataset_tags(UUID, target)["name"].to_list() == ["1", "2"]


def test_a_dataset_without_tags_costs_one_listing(target):
    store = MemoryStore()
    store_dataframes_as_dataset(store, UUID, [frame(0)])
    counting = CountingStore(store)
    copy_dataset(UUID, counting, UUID, target)
    assert [call.operation for call in counting.calls if "_tags" in call.key] == ["list"]


# --- cubes ----------------------------------------------------------------------------------------


@pytest.fixture
def cube_store():
    """A tag of the first state and one of the second; then a partition goes."""
    store = MemoryStore()
    build_cube({"seed": SEED, "e": ENRICH}, CUBE, store, partition_on={"e": []})
    tag_cube(CUBE, store, "first")
    append_to_cube({"seed": table(x=[5], y=["c"], p=[2], i1=[30], v1=[4.5])}, CUBE, store)
    tag_cube(CUBE, store, "second")
    tag_dataset(E_UUID, store, "alone")
    remove_partitions(CUBE, store, C("p") == 0, ["seed"])
    return store


@pytest.mark.parametrize("prefix", [None, "other"])
def test_a_copied_cube_has_its_tags(cube_store, target, prefix):
    copy_cube(CUBE, cube_store, target, renamed_cube_prefix=prefix, renamed_datasets={"e": "f", "seed": "s"})
    cube = open_cube(prefix or "cube", target)
    cleanup_cube(cube, target, options=NOW)
    assert [cells(target, name, cube) for name in ("first", "second", None)] == [4, 5, 3]
    assert query_cube_arrow(cube, target, C("v2") > 0, as_of="first").num_rows == 2
    pd.testing.assert_frame_equal(list_cube_tags(cube, target), list_cube_tags(CUBE, cube_store))
    enrichment = cube.ktk_dataset_uuid("f")
    assert list_dataset_tags(enrichment, target)["name"].to_list() == ["alone", "first", "second"]
    assert len(read_table(enrichment, target, as_of="first")) == 2
    assert verify_cube(cube, target).clean
    drop_cube_tag(cube, target, "first")
    drop_cube_tag(cube, target, "second")
    drop_dataset_tag(enrichment, target, "alone")
    assert not [key for key in target.list(recursive=True).keys if is_tag_object(key)]


def test_replacing_a_cube_replaces_its_tags(cube_store, target):
    copy_cube(CUBE, cube_store, target)
    tag_cube(CUBE, target, "own")
    copy_cube(CUBE, cube_store, target, overwrite=True)
    cleanup_cube(CUBE, target, options=NOW)
    assert [cells(target, name) for name in ("first", "second", "own", None)] == [4, 5, 3, 3]
    assert list_cube_tags(CUBE, target)["name"].to_list() == ["first", "own", "second"]


def test_a_part_of_a_cube_has_its_part_of_the_tags(cube_store, target):
    copy_cube(CUBE, cube_store, target, datasets=["seed"])
    assert list_cube_tags(CUBE, target)["name"].to_list() == ["first", "second"]
    assert cells(target, "first") == 4
    assert "v2" not in query_cube_arrow(CUBE, target, as_of="first").column_names


def test_an_enrichment_alone_has_tags_of_its_own_unless_its_cube_has_the_name(cube_store, target):
    copy_cube(CUBE, cube_store, target)
    before = {key: target.get(key) for key in target.list(recursive=True).keys}
    with pytest.raises(AlreadyExists, match=r"'first' of dataset 'cube[+][+]e' .* belongs to its cube"):
        copy_cube(CUBE, cube_store, target, datasets=["e"], overwrite=True)
    assert {key: target.get(key) for key in target.list(recursive=True).keys} == before
    copy_dataset(E_UUID, cube_store, COPY, target)
    assert len(read_table(COPY, target, as_of="first")) == 2
    drop_dataset_tag(COPY, target, "first")


def test_a_share_in_vain_is_not_copied(cube_store, target):
    cube_store.delete(tag_key(SEED_UUID, "first"))
    copy_cube(CUBE, cube_store, target)
    assert list_cube_tags(CUBE, target)["name"].to_list() == ["second"]
    assert list_dataset_tags(E_UUID, target)["name"].to_list() == ["alone", "second"]
    assert load_snapshot(target, E_UUID).uuid == E_UUID

"""Single datasets, written and updated by turns: by us and by the real plateau 4.6.

Both read the same rows after every turn.
"""

from __future__ import annotations

import datetime as dt
import shutil
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kartothek_cube.api.dataset import (
    build_dataset_indices,
    commit_dataset,
    create_empty_dataset_header,
    garbage_collect_dataset,
    read_table_arrow,
    store_dataframes_as_dataset,
    update_dataset_from_dataframes,
    write_single_partition,
)
from kartothek_cube.core.runtime.options import options
from kartothek_cube.core.snapshots.loader import load_index, load_snapshot
from kartothek_cube.core.stores.open import open_store
from tests.integration.interop.datasets import KINDS, Other, expected, numbers, plain, plain_value

TEXT = {"text", "text_view", "category"}
# It loads an index in nanoseconds, and pandas 3 gives microseconds.
NOT_UPDATED = {"timestamp"}
UPDATED = [name for name in KINDS if name not in NOT_UPDATED]


def layout(name):
    """Without indices on text, which plateau cannot update if it did not write them itself."""
    kind = KINDS[name]
    return {**kind.layout, "secondary_indices": ["i1"] if kind.index and name not in TEXT else []}


def rows(start, p):
    numbers = pa.array(range(start, start + len(p)), pa.int64())
    return pa.table(
        {
            "n": numbers,
            "p": pa.array(p, pa.int64()),
            "i1": pa.array([v * 10 for v in p], pa.int64()),
            "v1": [f"v{v}" for v in p],
        }
    )


ONE, TWO, THREE = rows(0, [1, 1, 2]), rows(10, [3]), rows(20, [2, 4])
LAYOUT = {"partition_on": ["p"], "secondary_indices": ["i1"]}
BY = ("ours", "theirs")


def read(store, uuid):
    return plain(read_table_arrow(uuid, store))


def update(store, uuid, delivery, **arguments):
    return update_dataset_from_dataframes([delivery], store, uuid, **arguments)


# --- the turns ------------------------------------------------------------------------------------


def first_turn_here(store):
    for name, kind in KINDS.items():
        store_dataframes_as_dataset(store, f"ours_{name}", [kind.rows(0)], **layout(name))
    store_dataframes_as_dataset(store, "ours_json", [ONE], metadata={"owner": "we"}, **LAYOUT)
    store_dataframes_as_dataset(store, "ours_msgpack", [ONE], metadata_storage_format="msgpack", **LAYOUT)
    store_dataframes_as_dataset(store, "ours_by_text", [ONE], secondary_indices=["v1"])
    store_dataframes_as_dataset(store, "ours_built", [ONE], metadata={"owner": "we"}, partition_on=["p"])
    build_dataset_indices(store, "ours_built", ["i1"])
    create_empty_dataset_header(
        store, "ours_header", {"table": ONE.schema}, partition_on=["p"], metadata={"owner": "we"}
    )
    write_single_partition(store, "ours_header", ONE)


def first_turn_there(other):
    for name, kind in KINDS.items():
        first, second = (other.give(f"{name} {i}", kind.rows(i, stored=True)) for i in range(2))
        plan_reading(other, name, "ours", first, 1)
        other.plan(f"ours {name} update", "update", f"ours_{name}", rows=second)
        plan_reading(other, name, "ours", first, 2)
        other.plan(f"theirs {name} store", "store", f"theirs_{name}", rows=first, **layout(name))
    one, two = other.give("one", ONE), other.give("two", TWO)
    other.give("three", THREE)
    other.plan("ours json update", "update", "ours_json", rows=two, delete_scope=[{"p": 1}], metadata={"rev": 2})
    other.plan("ours msgpack read", "read", "ours_msgpack")
    other.plan("ours msgpack update", "update", "ours_msgpack", rows=two)
    other.plan("ours by_text read", "read", "ours_by_text")
    other.plan("ours by_text ask", "ask", "ours_by_text", rows=one, column="v1")
    other.plan("ours by_text update", "update", "ours_by_text", rows=two)
    other.plan("ours built update", "update", "ours_built", rows=two)
    other.plan("ours built collect", "collect", "ours_built")
    other.plan("ours header single", "single", "ours_header", rows=two)
    other.plan("ours header commit", "commit", "ours_header", metadata={"rev": 2})
    other.plan("ours header describe", "describe", "ours_header")
    other.plan("theirs json store", "store", "theirs_json", rows=one, metadata={"owner": "they"}, **LAYOUT)
    other.plan("theirs by_text store", "store", "theirs_by_text", rows=one, secondary_indices=["v1"])
    other.plan("theirs by_text update", "update", "theirs_by_text", rows=two)
    other.plan("theirs built store", "store", "theirs_built", rows=one, partition_on=["p"], metadata={"owner": "they"})
    other.plan("theirs built build", "build", "theirs_built", column="i1")
    other.plan(
        "theirs header header", "header", "theirs_header", rows=one, partition_on=["p"], metadata={"owner": "they"}
    )
    other.plan("theirs header single", "single", "theirs_header", rows=one)


def plan_reading(other, name, whose, probe, turn):
    uuid, kind = f"{whose}_{name}", KINDS[name]
    other.plan(f"{whose} {name} read {turn}", "read", uuid)
    if kind.index and name not in TEXT:
        other.plan(f"{whose} {name} ask {turn}", "ask", uuid, rows=probe, column="i1")
    if kind.key and not name.startswith("bytes"):
        other.plan(f"{whose} {name} ask p {turn}", "ask", uuid, rows=probe, column="p")


def second_turn_here(store, seen):
    for name, kind in KINDS.items():
        for whose in BY:
            seen[f"{whose}_{name}"] = read(store, f"{whose}_{name}")
            update(store, f"{whose}_{name}", kind.rows(2))
    for name in (
        "ours_json",
        "ours_by_text",
        "ours_built",
        "ours_header",
        "theirs_json",
        "theirs_by_text",
        "theirs_built",
    ):
        seen[name] = read(store, name)
        update(store, name, THREE)
    with pytest.warns(UserWarning, match="'ours_msgpack' had two documents"):
        update(store, "ours_msgpack", THREE)
    single = write_single_partition(store, "theirs_header", TWO)
    commit_dataset(store, "theirs_header", [single], metadata={"rev": 2})
    with options(grace=dt.timedelta(0), retain=dt.timedelta(0)):
        garbage_collect_dataset("theirs_by_text", store)


def second_turn_there(other):
    for name, kind in KINDS.items():
        third = other.give(f"{name} 2", kind.rows(2, stored=True))
        for whose in BY:
            plan_reading(other, name, whose, third, 3)
            other.plan(f"{whose} {name} update 2", "update", f"{whose}_{name}", rows=third)
    for whose in BY:
        for name in ("json", "by_text", "built", "header"):
            other.plan(f"{whose} {name} read 2", "read", f"{whose}_{name}")
            other.plan(f"{whose} {name} describe 2", "describe", f"{whose}_{name}")
        for name, column in (("json", "i1"), ("by_text", "v1"), ("built", "i1")):
            other.plan(f"{whose} {name} ask 2", "ask", f"{whose}_{name}", rows="three", column=column)
    other.plan("ours msgpack read 2", "read", "ours_msgpack")


@pytest.fixture(scope="module")
def played(run_plateau, tmp_path_factory):
    """The whole game: two turns each."""
    folder = tmp_path_factory.mktemp("datasets")
    url = f"hfs://{folder / 'store'}"
    store, other, seen = open_store(url), Other("plateau", run_plateau, url, folder), {}
    first_turn_here(store)
    first_turn_there(other)
    other.go()
    second_turn_here(store, seen)
    second_turn_there(other)
    other.go()
    return SimpleNamespace(store=store, folder=folder, other=other, seen=seen)


# --- types ----------------------------------------------------------------------------------------


def as_plateau_has_them(name, rows):
    """The weaknesses that it has from kartothek: boolean partition columns read true, those of
    bytes read text.
    """
    if name == "bool":
        return [{**row, "p": True} for row in rows]
    if name.startswith("bytes"):
        return [{**row, "p": row["p"].decode()} for row in rows]
    return rows


def deliveries(name, *more):
    return [0, *(i for i in more if i != 1 or name in UPDATED)]


@pytest.mark.parametrize("name", KINDS)
def test_plateau_reads_what_we_wrote(played, name):
    assert played.other.rows(f"ours {name} read 1") == as_plateau_has_them(name, expected(name, [0]))


@pytest.mark.parametrize("name", UPDATED)
def test_plateau_updates_what_we_wrote_and_we_read_that(played, name):
    played.other.said(f"ours {name} update")
    assert played.other.rows(f"ours {name} read 2") == as_plateau_has_them(name, expected(name, [0, 1]))
    assert played.seen[f"ours_{name}"] == expected(name, [0, 1])


@pytest.mark.parametrize("name", KINDS)
def test_we_read_and_update_what_plateau_wrote_and_it_reads_that(played, name):
    assert played.seen[f"theirs_{name}"] == expected(name, [0])
    assert played.other.rows(f"theirs {name} read 3") == as_plateau_has_them(name, expected(name, [0, 2]))


@pytest.mark.parametrize("name", KINDS)
def test_plateau_reads_what_both_wrote(played, name):
    assert played.other.rows(f"ours {name} read 3") == as_plateau_has_them(name, expected(name, deliveries(name, 1, 2)))


@pytest.mark.parametrize("whose", BY)
@pytest.mark.parametrize("name", UPDATED)
def test_plateau_can_still_update_after_us(played, name, whose):
    played.other.said(f"{whose} {name} update 2")
    held = deliveries(name, *([1] if whose == "ours" else []), 2, 2)
    assert sorted(row["n"] for row in read(played.store, f"{whose}_{name}")) == sorted(
        row["n"] for row in expected(name, held)
    )


@pytest.mark.parametrize("name", NOT_UPDATED)
def test_an_index_that_plateau_cannot_update_even_if_it_is_its_own(played, name):
    for answer in (f"ours {name} update", f"ours {name} update 2", f"theirs {name} update 2"):
        assert "update an index with different types" in played.other.refused(answer)
    assert read(played.store, f"ours_{name}") == expected(name, [0, 2])


@pytest.mark.parametrize("name", [name for name in KINDS if KINDS[name].index and name not in TEXT])
def test_values_are_found_by_index_there(played, name):
    first, third = (plain_value(KINDS[name].rows(i, stored=True).column("i1")[0].as_py()) for i in (0, 2))
    assert played.other.said(f"ours {name} ask 1") == numbers(name, [0], "i1", first)
    assert played.other.said(f"ours {name} ask 3") == numbers(name, deliveries(name, 1, 2), "i1", third)
    assert played.other.said(f"theirs {name} ask 3") == numbers(name, [0, 2], "i1", third)


@pytest.mark.parametrize("name", [name for name in KINDS if KINDS[name].key and not name.startswith("bytes")])
def test_values_are_found_by_path_there(played, name):
    first, third = (KINDS[name].rows(i, stored=True).column("p")[0].as_py() for i in (0, 2))
    assert played.other.said(f"ours {name} ask p 2") == numbers(name, deliveries(name, 1), "p", first)
    assert played.other.said(f"ours {name} ask p 3") == numbers(name, deliveries(name, 1, 2), "p", third)


# --- documents and verbs --------------------------------------------------------------------------


def several(*tables):
    return [row for table in tables for row in plain(table)]


def test_delete_scope_and_metadata_go_both_ways(played):
    assert played.other.said("ours json update") == 2
    assert played.seen["ours_json"] == [row for row in several(ONE, TWO) if row["p"] != 1]
    assert played.other.rows("ours json read 2") == [row for row in several(ONE, TWO, THREE) if row["p"] != 1]
    assert played.other.said("ours json describe 2") == {
        "metadata": {"owner": "we", "rev": 2},
        "partitions": 4,
        "explicit": True,
        "indices": ["i1", "p"],
    }
    assert played.other.said("ours json ask 2") == [2, 20]
    assert played.other.rows("theirs json read 2") == several(ONE, THREE)
    assert played.other.said("theirs json describe 2")["metadata"] == {"owner": "they"}


def test_a_second_document_of_plateau_counts_and_our_next_commit_removes_the_first(played):
    assert played.other.rows("ours msgpack read") == plain(ONE)
    assert played.other.rows("ours msgpack read 2") == several(ONE, TWO, THREE)
    documents = [key for key in played.store.list("", recursive=True).keys if key.startswith("ours_msgpack.")]
    assert documents == ["ours_msgpack.by-dataset-metadata.json"]


def test_an_index_on_text_of_ours_is_used_there_but_an_update_is_given_up(played):
    assert played.other.said("ours by_text ask") == [0, 1]
    assert "large_string" in played.other.refused("ours by_text update")
    assert played.seen["ours_by_text"] == plain(ONE)
    assert played.other.rows("ours by_text read 2") == several(ONE, THREE)
    assert played.other.said("ours by_text ask 2") == [2, 20]


def test_an_index_on_text_of_theirs_is_kept_here(played):
    assert played.seen["theirs_by_text"] == several(ONE, TWO)
    assert played.other.rows("theirs by_text read 2") == several(ONE, TWO, THREE)
    assert played.other.said("theirs by_text ask 2") == [2, 20]
    index, _ = load_index(played.store, load_snapshot(played.store, "theirs_by_text"), "v1")
    assert sorted(index.values.unique().to_pylist()) == ["v1", "v2", "v3", "v4"]


@pytest.mark.parametrize("whose", BY)
def test_an_index_that_one_built_the_other_keeps(played, whose):
    held = [ONE, TWO, THREE] if whose == "ours" else [ONE, THREE]
    owner = {"ours": "we", "theirs": "they"}[whose]
    assert played.other.rows(f"{whose} built read 2") == several(*held)
    assert played.other.said(f"{whose} built describe 2") == {
        "metadata": {"owner": owner},
        "partitions": {"ours": 5, "theirs": 4}[whose],
        "explicit": True,
        "indices": ["i1", "p"],
    }
    assert played.other.said(f"{whose} built ask 2") == [2, 20]


def test_partitions_under_a_header_are_committed_by_either(played):
    assert played.other.said("ours header commit") == 3
    assert played.other.said("ours header describe") == {
        "metadata": {"owner": "we", "rev": 2},
        "partitions": 3,
        "explicit": True,
        "indices": ["p"],
    }
    assert played.seen["ours_header"] == several(ONE, TWO)
    assert played.other.rows("theirs header read 2") == several(ONE, TWO)
    assert played.other.said("theirs header describe 2") == {
        "metadata": {"owner": "they", "rev": 2},
        "partitions": 3,
        "explicit": True,
        "indices": ["p"],
    }


def test_garbage_collection_there_leaves_our_dataset_whole(played):
    assert all("/indices/i1/" in key for key in played.other.said("ours built collect"))
    assert played.seen["ours_built"] == several(ONE, TWO)


def test_our_next_commit_writes_the_schema_file_as_kartothek_has_it(played, tmp_path):
    # On a copy: other tests read what both libraries have written.
    shutil.copytree(played.folder / "store", tmp_path / "store")
    store = open_store(f"hfs://{tmp_path / 'store'}")
    before = {str(field.type) for field in schema_of(store, "theirs_text_view")}
    assert "large_string" in before
    update(store, "theirs_text_view", KINDS["text_view"].rows(2))
    assert {str(field.type) for field in schema_of(store, "theirs_text_view")} == {"int64", "string"}


def schema_of(store, uuid):
    return pq.read_schema(pa.BufferReader(store.get(f"{uuid}/table/_common_metadata")))

"""kartothek 5.3 and plateau 4.6 read and update a dataset whose rows we changed, and we change rows
of theirs.
"""

from __future__ import annotations

from types import SimpleNamespace

import pyarrow as pa
import pytest

from kartothek_cube.api.dataset import (
    build_dataset_indices,
    delete_rows,
    merge_dataset,
    read_table_arrow,
    store_dataframes_as_dataset,
    undo,
    update_rows,
    verify_dataset,
)
from kartothek_cube.core.stores.open import open_store
from tests.integration.interop.datasets import KINDS, Other, plain

pytestmark = pytest.mark.interop

# Types that both libraries update and read as they are.
NAMES = ["int64", "float64", "text", "category", "date", "decimal", "int_with_nulls", "list", "struct", "null"]
BY = ("ours", "theirs")


@pytest.fixture(scope="module", params=["kartothek", "plateau"])
def played(request, tmp_path_factory):
    """Three turns: the datasets begin, we change their rows, the other library goes on, and so do
    we.
    """
    library = request.param
    folder = tmp_path_factory.mktemp(library)
    url = f"hfs://{folder / 'store'}"
    other = Other(library, request.getfixturevalue(f"run_{library}"), url, folder)
    store, seen = open_store(url), {}
    for name in NAMES:
        given = [other.give(f"{name} {n}", KINDS[name].rows(n, stored=True)) for n in range(3)]
        store_dataframes_as_dataset(store, f"ours_{name}", [KINDS[name].rows(0)], **layout(library, name))
        other.plan(f"theirs {name} store", "store", f"theirs_{name}", rows=given[0], **layout(library, name))
    other.go()
    for name in NAMES:
        for whose in BY:
            change(store, f"{whose}_{name}", name)
            plan_looking(other, library, name, whose, 1)
            other.plan(f"{whose} {name} update", "update", f"{whose}_{name}", rows=f"{name} 2")
    other.go()
    for name in NAMES:
        for whose in BY:
            uuid = f"{whose}_{name}"
            seen[uuid, "appended"] = read(store, uuid)
            merge_dataset(KINDS[name].rows(2).slice(0, 1).drop_columns(["v1"]), store, uuid, "n")
            delete_rows(uuid, store, [[("n", ">", 20)]])
            seen[uuid, "end"] = read(store, uuid)
            seen[uuid, "errors"] = verify_dataset(uuid, store, deep=True).errors
            plan_looking(other, library, name, whose, 2)
    other.go()
    return SimpleNamespace(store=store, other=other, seen=seen, library=library)


def layout(library, name):
    """Without indices on text for plateau, which updates only those that it wrote itself."""
    kind = KINDS[name]
    has_index = kind.index and (library == "kartothek" or name not in ("text", "category"))
    return {**kind.layout, "secondary_indices": ["i1"] if has_index else []}


def change(store, uuid, name):
    """All three verbs: one row goes, one gets another value, the second delivery is merged."""
    second = KINDS[name].rows(1)
    assert delete_rows(uuid, store, [[("n", "==", 1)]]).deleted == 1
    value = KINDS[name].rows(1, stored=True)["v1"][0]
    assert update_rows(uuid, store, [[("n", "<", 1)]], {"v1": value}).updated == 1
    # The rows that are there already get the same values once more.
    assert merge_dataset(second.slice(0, 1), store, uuid, "n").inserted == 1
    report = merge_dataset(second, store, uuid, "n")
    assert (report.updated, report.inserted) == (1, second.num_rows - 1)


def plan_looking(other, library, name, whose, turn):
    other.plan(f"{whose} {name} read {turn}", "read", f"{whose}_{name}")
    if layout(library, name)["secondary_indices"]:
        probe = f"{name} 1"
        other.plan(f"{whose} {name} ask {turn}", "ask", f"{whose}_{name}", rows=probe, column="i1")


def changed(name):
    first, second = plain(KINDS[name].rows(0)), plain(KINDS[name].rows(1))
    return [{**first[0], "v1": second[0]["v1"]}, *first[2:], *second]


def ended(name):
    return [*changed(name), plain(KINDS[name].rows(2))[0]]


def read(store, uuid):
    return plain(read_table_arrow(uuid, store))


@pytest.mark.parametrize("whose", BY)
@pytest.mark.parametrize("name", NAMES)
def test_changed_rows_are_read_there(played, name, whose):
    assert played.other.rows(f"{whose} {name} read 1") == changed(name)


@pytest.mark.parametrize("whose", BY)
@pytest.mark.parametrize("name", NAMES)
def test_what_is_appended_there_is_read_and_changed_here(played, name, whose):
    played.other.said(f"{whose} {name} update")
    uuid = f"{whose}_{name}"
    assert played.seen[uuid, "appended"] == [*changed(name), *plain(KINDS[name].rows(2))]
    assert played.seen[uuid, "end"] == ended(name)
    assert not played.seen[uuid, "errors"]
    assert played.other.rows(f"{whose} {name} read 2") == ended(name)


@pytest.mark.parametrize("whose", BY)
@pytest.mark.parametrize("name", [name for name in NAMES if KINDS[name].index])
def test_changed_rows_are_found_by_index_there(played, name, whose):
    if not layout(played.library, name)["secondary_indices"]:
        pytest.skip("no index")
    value = plain(KINDS[name].rows(1))[0]["i1"]
    for turn, rows in ((1, changed(name)), (2, ended(name))):
        numbers = [row["n"] for row in rows if row["i1"] == value]
        assert numbers
        assert played.other.said(f"{whose} {name} ask {turn}") == numbers


def test_a_commit_of_theirs_and_one_of_rows_can_be_undone(played):
    uuid = "theirs_int64"
    before = read(played.store, uuid)
    build_dataset_indices(played.store, uuid, ["v1"])
    update_rows(uuid, played.store, [[("n", "==", 0)]], {"v1": 99, "p": 99})
    assert {**before[0], "v1": 99, "p": 99} in read(played.store, uuid)
    undo(uuid, played.store)
    assert read(played.store, uuid) == before
    assert pa.types.is_int64(read_table_arrow(uuid, played.store).schema.field("p").type)

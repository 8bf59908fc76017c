"""Cubes as Delta tables: overridden cells, writes to several datasets, erasure, what is shown."""

from __future__ import annotations

import sys
import warnings
from datetime import timedelta

import pyarrow as pa
import pytest

import kartothek_cube
from kartothek_cube import (
    C,
    Cube,
    append_to_cube,
    build_cube,
    cleanup_cube,
    compact_cube,
    copy_cube,
    cube_report,
    delete_cells,
    delete_cube,
    describe_cube,
    extend_cube,
    forget_cells,
    options,
    publish_cube_delta,
    publish_delta,
    rename_cube,
    undo_cube,
    unpublish_delta,
    verify_cube,
)
from kartothek_cube.core.metadata.commit_log import pending_mark
from kartothek_cube.core.snapshots.loader import load_snapshot
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import InvalidInput, InvalidRequest, PublicationWarning, Unsupported
from kartothek_cube.testing.stores import FaultyStore
from tests.caches import forget
from tests.support.delta import added, log_keys, versions
from tests.support.erasure import holders

CUBE = Cube(["x"], ["p"], "cube")
SEED = pa.table({"x": [1, 2, 3], "p": [0, 0, 1], "v1": [0.5, 1.5, 2.5]})
OTHER = pa.table({"x": [7, 8], "p": [0, 1], "v1": [3.5, 4.5]})
AGAIN = pa.table({"x": [2], "p": [0], "v1": [9.5]})
ENRICHMENT = pa.table({"x": [1, 2], "v2": ["a", "b"]})
SEED_UUID = "cube++seed"


@pytest.fixture
def store():
    store = MemoryStore()
    build_cube({"seed": SEED, "e": ENRICHMENT}, CUBE, store, partition_on={"e": []})
    return store


def is_published(store, uuid=SEED_UUID):
    found = versions(store, uuid)
    return found[max(found)] == set(load_snapshot(store, uuid).files.to_pylist())


def test_each_dataset_becomes_a_table(store):
    published = publish_cube_delta(CUBE, store)
    assert {name: (each.version, each.added) for name, each in published.items()} == {"e": (0, 1), "seed": (0, 2)}
    assert is_published(store)
    assert is_published(store, "cube++e")


def test_some_datasets_become_tables(store):
    assert [*publish_cube_delta("cube", store, datasets="e")] == ["e"]
    assert log_keys(store, SEED_UUID) == []
    with pytest.raises(InvalidInput, match="Cube 'cube' has no dataset f; it has e, seed"):
        publish_cube_delta(CUBE, store, datasets=["f"])


def test_nothing_is_written_if_one_dataset_is_refused(store):
    extend_cube({"f": pa.table({"x": [1], "v3": pa.array([1], pa.uint64())})}, CUBE, store, partition_on={"f": []})
    before = store.keys()
    with pytest.raises(Unsupported, match=r"cube\+\+f.*'v3' is uint64"):
        publish_cube_delta(CUBE, store)
    assert store.keys() == before


def test_a_write_to_several_datasets_is_published_in_each(store):
    publish_cube_delta(CUBE, store, always=True)
    append_to_cube({"seed": OTHER, "e": pa.table({"x": [7], "v2": ["c"]})}, CUBE, store)
    assert [*versions(store, SEED_UUID)] == [*versions(store, "cube++e")] == [0, 1]
    assert is_published(store)
    assert is_published(store, "cube++e")
    undo_cube(CUBE, store)
    assert is_published(store)
    assert is_published(store, "cube++e")


@pytest.mark.parametrize(
    ("verb", "is_there"),
    [
        (lambda store: publish_cube_delta(CUBE, store, always=True), False),
        (lambda store: publish_delta("cube++e", store), False),
        (lambda store: unpublish_delta("cube++e", store), True),
    ],
)
def test_a_write_that_crashed_is_taken_back_first(store, monkeypatch, verb, is_there):
    if is_there:
        publish_cube_delta(CUBE, store)
    shown = load_snapshot(store, "cube++e").files.to_pylist()
    with monkeypatch.context() as patched:
        patched.setattr("kartothek_cube.cube.write.commit.commit_coordinator", lambda *_: sys.exit())
        with pytest.raises(SystemExit):
            append_to_cube({"seed": OTHER, "e": pa.table({"x": [7], "v2": ["c"]})}, CUBE, store)
    forget(store)
    assert load_snapshot(store, "cube++e").undecided is not None
    with options(patience=timedelta(0)):
        published = verb(store)
    assert load_snapshot(store, "cube++e").undecided is None
    assert load_snapshot(store, "cube++e").files.to_pylist() == shown
    assert (published is None) == is_there
    assert log_keys(store, "cube++e") == [] if is_there else is_published(store, "cube++e")


def test_a_warning_that_is_an_error_comes_after_the_whole_write(store):
    publish_cube_delta(CUBE, store, always=True)
    broken = FaultyStore(store, lambda call: "before" if "cube++seed/table/_delta_log" in call.key else None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(PublicationWarning, match="has landed"):
            append_to_cube({"seed": OTHER, "e": pa.table({"x": [7], "v2": ["c"]})}, CUBE, broken)
    forget(store)
    assert [*versions(store, SEED_UUID)] == [0]
    assert [*versions(store, "cube++e")] == [0, 1]
    for uuid in (SEED_UUID, "cube++e"):
        snapshot = load_snapshot(store, uuid)
        assert snapshot.undecided is None
        assert pending_mark(snapshot.document) is None


def test_a_warning_names_the_line_of_the_caller(store):
    publish_cube_delta(CUBE, store, always=True)
    with pytest.warns(PublicationWarning) as caught:
        append_to_cube(AGAIN, CUBE, store)
    assert caught[0].filename == __file__


# --- overridden cells -----------------------------------------------------------------------------


@pytest.mark.parametrize("publish", [lambda s: publish_delta(SEED_UUID, s), lambda s: publish_cube_delta(CUBE, s)])
def test_overridden_cells_are_refused(store, publish):
    append_to_cube(AGAIN, CUBE, store)
    before = store.keys()
    with pytest.raises(InvalidRequest, match=r"override 1 cells of older ones, e\.g\. of the partition 'p=0'.*compact"):
        publish(store)
    assert store.keys() == before
    compact_cube(CUBE, store)
    publish(store)
    assert is_published(store)


def test_cells_of_other_files_are_no_reason_to_refuse(store):
    between = pa.table({"x": [0, 9], "p": [0, 0], "v1": [1.0, 2.0]})
    append_to_cube(between, CUBE, store)
    append_to_cube(OTHER, CUBE, store)
    publish_cube_delta(CUBE, store)
    assert is_published(store)


def test_cells_without_statistics_are_looked_at():
    store = MemoryStore()
    with options(statistics=False):
        build_cube(SEED, CUBE, store)
        append_to_cube(AGAIN, CUBE, store)
    with pytest.raises(InvalidRequest, match="override"):
        publish_delta(SEED_UUID, store)


def test_a_table_stays_at_its_last_clean_version_until_compaction(store):
    publish_cube_delta(CUBE, store, always=True)
    clean = versions(store, SEED_UUID)
    with pytest.warns(PublicationWarning, match="compact_cube"):
        append_to_cube(AGAIN, CUBE, store)
    assert versions(store, SEED_UUID) == clean
    shown = repr(describe_cube(CUBE, store))
    assert "Delta table: version 0, of commit " in shown
    assert "later ones may override cells, and wait for compact_cube; after each commit" in shown
    with pytest.warns(PublicationWarning, match="Until then the Delta table stays"):
        assert publish_delta(SEED_UUID, store, always=True).version == 0
    with pytest.raises(InvalidRequest, match="override"):
        publish_delta(SEED_UUID, store)
    with options(grace=timedelta(0), retain=timedelta(0)):
        cleanup_cube(CUBE, store)
    assert versions(store, SEED_UUID) == clean
    compact_cube(CUBE, store)
    assert is_published(store)
    assert [f.check for f in verify_cube(CUBE, store).findings if f.severity != "info"] == []


def test_with_always_there_has_to_be_a_clean_version(store):
    append_to_cube(AGAIN, CUBE, store)
    with pytest.raises(InvalidRequest, match="override"):
        publish_cube_delta(CUBE, store, always=True)
    assert log_keys(store, SEED_UUID) == log_keys(store, "cube++e") == []


# --- upkeep ---------------------------------------------------------------------------------------


def test_a_renamed_cube_is_published_a_copy_is_not(store):
    publish_cube_delta(CUBE, store, always=True)
    other = MemoryStore()
    copy_cube(CUBE, store, other)
    assert not [key for key in other.keys() if "_delta_log" in key]  # noqa: SIM118 - a store
    rename_cube(CUBE, store, "new")
    assert is_published(store, "new++seed")
    assert is_published(store, "new++e")
    assert log_keys(store, SEED_UUID) == []
    delete_cube("new", store)
    assert store.keys() == []


@pytest.mark.parametrize("always", [True, False])
def test_what_was_forgotten_is_nowhere_in_the_log(always):
    store = MemoryStore()
    cube = Cube(["x"], ["p"], "cube")
    rows = pa.table({"x": [1, 2, 3], "p": ["secret", "q", "q"], "v1": ["private", "personal", "c"]})
    build_cube(rows, cube, store)
    publish_cube_delta(cube, store, always=always)
    append_to_cube(pa.table({"x": [4], "p": ["q"], "v1": ["d"]}), cube, store)
    forget_cells(cube, store, (C("x") == 1))
    forget_cells(cube, store, (C("x") == 2))
    assert [key for text in ("secret", "private", "personal") for key in holders(store, text)] == []
    assert is_published(store)
    forget(store)
    assert len(versions(store, SEED_UUID)) == 1


def test_a_log_that_cannot_be_renewed_is_removed_from_what_is_forgotten(store):
    publish_cube_delta(CUBE, store)
    append_to_cube(AGAIN, CUBE, store)
    forget_cells(CUBE, store, C("x") == 3)
    assert log_keys(store, SEED_UUID) == []
    compact_cube(CUBE, store)
    assert publish_cube_delta(CUBE, store)["seed"].version == 0


def test_deleted_cells_are_in_older_versions_until_cleanup(store):
    publish_cube_delta(CUBE, store, always=True)
    delete_cells(CUBE, store, C("p") == 1)
    assert len(versions(store, SEED_UUID)) == 2
    with options(grace=timedelta(0), retain=timedelta(0)):
        cleanup_cube(CUBE, store)
    assert is_published(store)
    assert "p=1" not in "".join(add["path"] for n in versions(store, SEED_UUID) for add in added(store, n, SEED_UUID))


# --- what is shown --------------------------------------------------------------------------------


def test_descriptions_and_reports_say_what_is_published(store):
    assert "Delta" not in repr(describe_cube(CUBE, store))
    assert "Delta tables" not in str(cube_report(CUBE, store))
    publish_cube_delta(CUBE, store)
    described = describe_cube(CUBE, store)
    assert [d.delta for d in described.datasets] == ["version 0, the newest state"] * 2
    assert "Delta table of e:" in described._repr_html_()
    assert "Delta tables" in str(cube_report(CUBE, store))
    unpublish_delta("cube++e", store)
    assert {d.id: d.delta for d in describe_cube(CUBE, store).datasets}["e"] is None


def test_the_handle_of_a_cube_publishes(store):
    assert kartothek_cube.open(CUBE, store).publish_delta(datasets="seed", always=True)["seed"].version == 0

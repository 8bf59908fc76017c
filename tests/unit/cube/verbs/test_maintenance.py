"""Looking after a cube: cleaning up, statistics, the description."""

from __future__ import annotations

import datetime as dt
import json
import os
from pathlib import Path

import pyarrow as pa
import pytest

from kartothek_cube import options
from kartothek_cube.api.cube import (
    C,
    Cube,
    append_to_cube,
    build_cube,
    cleanup_cube,
    collect_stats,
    describe_cube,
    remove_partitions,
)
from kartothek_cube.core.stores.contract import ReadOnlyView
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.core.stores.open import open_store
from kartothek_cube.errors import CorruptDocument, InvalidInput, InvalidType
from tests.support.cubes import CUBE, ENRICH, SEED, answers, build_two, contents, table

NOW = options(grace=dt.timedelta(0), retain=dt.timedelta(0))


@pytest.fixture
def store():
    store = MemoryStore()
    build_two(store)
    return store


def rebuild(store):
    """Leave the files of the first build behind."""
    build_cube({"seed": SEED, "e": ENRICH}, CUBE, store, overwrite=True, partition_on={"e": []})


def files(keys):
    """Without history entries."""
    return [key for key in keys if "/_history/" not in key]


# --- cleanup --------------------------------------------------------------------------------------


def test_a_clean_cube_loses_nothing(store):  # cube 215
    before = set(files(contents(store)))
    assert files(cleanup_cube(CUBE, store, options=NOW).keys) == []
    assert set(contents(store)) == before


def test_files_of_an_overwritten_cube_go_and_the_answers_stay(store):  # cube 216
    first, seen = set(contents(store)), answers(store)
    rebuild(store)
    report = cleanup_cube(CUBE, store, options=NOW)
    gone = {key for key in first if key.endswith(".parquet")}
    assert set(files(report.keys)) == gone
    assert report.bytes > 0
    assert not gone & set(contents(store))
    assert answers(store) == seen
    assert cleanup_cube(CUBE, store, options=NOW).keys == []


def test_young_files_wait(store):
    rebuild(store)
    before = contents(store)
    report = cleanup_cube(CUBE, store)
    assert report.keys == []
    assert len(report.waiting) > 0
    assert contents(store) == before


def test_a_dry_run_removes_nothing_and_names_the_same_keys(store):
    rebuild(store)
    before = contents(store)
    planned = cleanup_cube(CUBE, store, dry_run=True, options=NOW)
    assert contents(store) == before
    assert "would remove" in repr(planned)
    assert cleanup_cube(CUBE, store, options=NOW).keys == planned.keys


def test_other_cubes_and_other_keys_are_left_alone(store):  # cube 217
    for prefix in ("cube+", "cubes"):
        build_cube(pa.table({"x": [1], "y": ["a"], "p": [0]}), Cube(["x", "y"], ["p"], prefix), store)
    for key in ("cube.foo", "cube/foo", "cube+++seed/table/left.parquet", "cubes++foo"):
        store.put(key, b"")
    store.put("cube++foo", b"")
    assert files(cleanup_cube(CUBE, store, options=NOW).keys) == ["cube++foo"]


def test_a_cube_with_an_unreadable_dataset_is_not_cleaned(store):
    rebuild(store)
    store.put("cube++e.by-dataset-metadata.json", b"{")
    before = contents(store)
    with pytest.raises(CorruptDocument, match=r"cube\+\+e"):
        cleanup_cube(CUBE, store, options=NOW)
    assert contents(store) == before


def test_temporary_files_of_killed_writers_go_when_they_are_old(store_url):
    store = open_store(store_url)
    build_two(store)
    left = Path(store.local_path("cube++seed.by-dataset-metadata.json") + ".0123456789abcdef~")
    left.write_bytes(b"half")
    assert cleanup_cube(CUBE, store).keys == []
    old = dt.datetime.now().timestamp() - 2 * 86400
    os.utime(left, (old, old))
    cleanup_cube(CUBE, store, dry_run=True)
    assert left.exists()
    cleanup_cube(CUBE, store)
    assert not left.exists()


# --- statistics -----------------------------------------------------------------------------------


def test_two_files_in_one_partition_are_one_partition(store):  # cube 212, 213
    append_to_cube(table(x=[1], y=["b"], p=[1], i1=[1], v1=[9.0]), CUBE, store)
    stats = collect_stats(CUBE, ReadOnlyView(store))
    sizes = {key: len(data) for key, data in contents(store).items() if key.startswith("cube++seed/table/p=")}
    assert stats["seed"] == {"blobsize": sum(sizes.values()), "files": 3, "partitions": 2, "rows": 5}
    assert {k: stats["e"][k] for k in ("files", "partitions", "rows")} == {"files": 1, "partitions": 1, "rows": 2}


def test_emptied_datasets(store):  # cube 214
    remove_partitions(CUBE, store)
    assert collect_stats(CUBE, store) == {"e": {"blobsize": 0, "files": 0, "partitions": 1, "rows": 0}}


def test_chosen_datasets_and_no_cube(store):
    assert list(collect_stats(CUBE, store, "e")) == ["e"]
    assert collect_stats(CUBE, store, ["nope"]) == {}
    assert collect_stats(CUBE.copy(uuid_prefix="nope"), store) == {}


@pytest.mark.parametrize("verb", [collect_stats, cleanup_cube])
def test_a_number_is_no_cube(verb, store):
    with pytest.raises(InvalidType, match="open_cube"):
        verb(7, store)


# --- description ----------------------------------------------------------------------------------


def test_the_description_shows_columns_keys_and_indices(store):
    found = describe_cube("cube", store)
    assert (found.seed_dataset, dict(found.dimensions), dict(found.partitions)) == (
        "seed",
        {"x": "int64", "y": "string"},
        {"p": "int64"},
    )
    seed = next(d for d in found.datasets if d.id == "seed")
    assert (seed.partition_keys, seed.files, seed.dimensions, seed.indices) == (("p",), 2, ("x", "y"), ("i1", "x", "y"))
    assert dict(seed.payload) == {"i1": "int64", "v1": "double"}
    assert not any(key.startswith("kartothek_cube.") for d in found.datasets for key in d.metadata)


def test_the_description_is_text_json_and_html(store):
    found = describe_cube("cube", store)
    assert all(word in repr(found) for word in ("'cube'", "seed", "cells by x, y", "i2 string"))
    assert [d["id"] for d in json.loads(found.to_json())["datasets"]] == ["e", "seed"]
    assert found._repr_html_().startswith('<div class="kartothek-cube">')


def test_the_html_escapes_names():
    store = MemoryStore()
    build_cube(pa.table({"x": [1], "p": [0], "<b>": [1]}), Cube(["x"], ["p"], "cube"), store)
    assert "&lt;b&gt;" in describe_cube("cube", store)._repr_html_()


def test_no_cube_to_describe(store):
    with pytest.raises(InvalidInput, match='"nope"'):
        describe_cube("nope", store)


def test_a_cleaned_cube_can_be_appended_to(store):
    rebuild(store)
    cleanup_cube(CUBE, store, options=NOW)
    append_to_cube(table(x=[5], y=["z"], p=[1], i1=[1], v1=[9.0]), CUBE, store)
    assert len(answers(store, conditions=C("x") == 5)) == 1

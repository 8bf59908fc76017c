"""Writes to several datasets that land while a reader reads one document after the other."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from kartothek_cube import options
from kartothek_cube.api.cube import append_to_cube, build_cube, describe_cube_changes, query_cube_arrow
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.testing.stores import FaultyStore
from tests.support.cubes import CUBE, SEED, ColdStore, answers, table


def rows(n):
    return {"e": table(x=[0], p=[0], i2=[str(n)], v2=[n]), "f": table(x=[0], p=[0], v3=[n])}


@pytest.fixture
def store():
    store = MemoryStore()
    build_cube({"seed": SEED, **rows(1)}, CUBE, store)
    return store


def written_between(store, dataset):
    """The store for a reader: a write lands before the reader has the document of a dataset."""
    done = []

    def write(call):
        if call.key == f"cube++{dataset}.by-dataset-metadata.json" and not done:
            done.append(call)
            append_to_cube(rows(2), CUBE, store)

    return ColdStore(FaultyStore(store, write))


def numbers(found):
    return {(row["v2"], row["v3"]) for row in found if row["x"] == 0}


LATER = timedelta(hours=1)


@pytest.mark.parametrize("as_of", [None, datetime.now(UTC) + LATER])
@pytest.mark.parametrize("dataset", ["e", "f", "seed"])
def test_a_reader_of_a_moment_sees_a_write_in_all_datasets_or_in_none(store, dataset, as_of):
    with options(threads=1):
        found = numbers(query_cube_arrow(CUBE, written_between(store, dataset), as_of=as_of).to_pylist())
    assert found in ({(1, 1)}, {(2, 2)})
    assert numbers(answers(ColdStore(store))) == {(2, 2)}


@pytest.mark.parametrize("dataset", ["e", "f", "seed"])
def test_changes_until_a_moment_have_a_write_in_all_datasets_or_in_none(store, dataset):
    first = datetime.now(UTC)
    with options(threads=1):
        changes = describe_cube_changes(CUBE, written_between(store, dataset), first, datetime.now(UTC) + LATER)
    counts = {row.pop("dataset"): row for row in changes.counts.to_pylist()}
    assert counts["e"] == counts["f"]

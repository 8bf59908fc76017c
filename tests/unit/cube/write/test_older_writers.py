"""Writers that keep no records of writes to several datasets: kartothek, and older versions."""

from __future__ import annotations

import json
import warnings

import pytest

from kartothek_cube.api.cube import append_to_cube
from kartothek_cube.core.metadata.commit_log import LEDGER_KEY, MARK_KEY
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import IncompleteCubeWarning
from kartothek_cube.testing.stores import FaultyStore, SimulatedCrash
from tests.support.cubes import CUBE, ColdStore, answers, build_two, table

pytestmark = pytest.mark.usefixtures("no_pauses")


def cells(x):
    return {"seed": table(x=[x], y=["z"], p=[0], i1=[x], v1=[0.5]), "e": table(x=[x], i2=["new"], v2=[x])}


def without_records(store, dataset):
    """A commit of an older version: it drops the records that it does not know."""
    key = f"cube++{dataset}.by-dataset-metadata.json"
    document = json.loads(store.get(key))
    for record in (MARK_KEY, LEDGER_KEY):
        document["metadata"].pop(record, None)
    store.put(key, json.dumps(document).encode())


def crash_before_the_swap_of_the_seed(call):
    return "crash" if call.operation == "put_if" and call.key == "cube++seed.by-dataset-metadata.json" else None


@pytest.mark.parametrize("dataset", ["seed", "e"])
def test_a_write_after_one_of_an_older_version_is_not_seen_before_it_commits(dataset):
    store = MemoryStore()
    build_two(store)
    append_to_cube(cells(5), CUBE, store)
    without_records(store, dataset)
    before = answers(ColdStore(store))
    with pytest.raises(SimulatedCrash):
        append_to_cube(cells(6), CUBE, ColdStore(FaultyStore(store, crash_before_the_swap_of_the_seed)))
    with warnings.catch_warnings():
        warnings.simplefilter("error", IncompleteCubeWarning)
        assert answers(ColdStore(store)) == before
        append_to_cube(cells(7), CUBE, ColdStore(store))
        assert [row["x"] for row in answers(ColdStore(store)) if row["x"] > 4] == [5, 7]

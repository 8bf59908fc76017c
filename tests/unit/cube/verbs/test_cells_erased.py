"""After `delete_cells` and a collection of garbage at once, no byte of a value is in the store."""

from __future__ import annotations

from datetime import timedelta

import pyarrow as pa
import pytest

from kartothek_cube import options
from kartothek_cube.api.cube import C, Cube, append_to_cube, build_cube, cleanup_cube, delete_cells
from kartothek_cube.api.dataset import read_table_arrow
from kartothek_cube.core.stores.local import MemoryStore
from tests.support.erasure import holders

CUBE = Cube(["x", "y"], ["p"], "cube", index_columns=["i1", "i2"])
SECRET = "Erika Mustermann"


@pytest.mark.parametrize("place", ["v1", "v2", "i1", "i2", "p", "y", "k"])
def test_no_byte_is_left(place):
    names = pa.array(["Anna", SECRET, "Zoe"])
    seed = {"x": [0, 1, 2], "y": ["a", "b", "c"], "p": ["a", "b", "a"], "i1": ["a", "b", "a"], "v1": ["a", "b", "c"]}
    extra = {"x": [0, 1, 2], "k": ["a", "b", "a"], "i2": ["a", "b", "c"], "v2": ["a", "b", "c"]}
    data = {"seed": pa.table({**seed, **({place: names} if place in seed else {})})}
    data["e"] = pa.table({**extra, **({place: names} if place in extra else {})})
    store = MemoryStore()
    build_cube(data, CUBE, store, partition_on={"e": ["k"]})
    # A newer row hides an older one with the text.
    append_to_cube({i: rows.slice(1, 1) for i, rows in data.items()}, CUBE, store)
    before = len(holders(store, SECRET))
    assert before >= 2
    delete_cells(CUBE, store, C("x") == 1)
    assert len(holders(store, SECRET)) >= before, "older states are kept until then"
    cleanup_cube(CUBE, store, options=options(grace=timedelta(0), retain=timedelta(0)))
    assert holders(store, SECRET) == []
    for dataset in ("seed", "e"):
        assert sorted(read_table_arrow(f"cube++{dataset}", store).column("x").to_pylist()) == [0, 2]

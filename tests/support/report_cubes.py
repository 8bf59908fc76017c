"""A cube that fills a report: lacking partitions, small files, garbage, a lost index, bad names."""

from __future__ import annotations

import pyarrow as pa

from kartothek_cube import C as Column
from kartothek_cube import Cube, append_to_cube, build_cube, remove_partitions
from kartothek_cube.core.stores.local import MemoryStore

EVIL = "<script>alert('1')</script>&\x01"
CUBE = Cube(["x", "y"], ["p", "q"], "cube", index_columns=["i1"])
PS = ["<script>", "b", "c & d", "e"]


def rows(ps, qs, n=3, **payload):
    """`n` rows for each partition."""
    cells = [(x, 0, p, q) for p in ps for q in qs for x in range(n)]
    columns = dict(zip(("x", "y", "p", "q"), map(list, zip(*cells, strict=True)), strict=True))
    return pa.table(
        columns | {name: [values[i % len(values)] for i in range(len(cells))] for name, values in payload.items()}
    )


def full_store():
    """The store with the cube."""
    store = MemoryStore()
    parts = {
        "seed": rows(PS, [1, 2], v1=[1.0]),
        "some": rows(PS[:2], [2], v2=["a"]).append_column(EVIL[:-1], pa.array([EVIL] * 6)),
        "once": pa.table({"x": [0, 1, 2], "i1": ["a", "b", "a"]}),
    }
    build_cube(parts, CUBE, store, metadata={"some": {"note": EVIL[:-1]}}, partition_on={"once": []})
    append_to_cube({"seed": rows(PS[1:2], [2], n=5, v1=[2.0])}, CUBE, store)
    remove_partitions(CUBE, store, Column("p") == "e", ktk_cube_dataset_ids=["seed"])
    store.put("cube++seed/table/p=b/q=1/garbage.parquet", b"nobody names it")
    return store


def many_partitions(n):
    """A cube with a dataset of `n` partitions and a dataset of half of them."""
    store, cube = MemoryStore(), Cube(["x"], ["p"], "many")
    half = n // 2
    build_cube(
        {
            "seed": pa.table({"x": range(n), "p": range(n)}),
            "half": pa.table({"x": range(half), "p": range(half), "v": range(half)}),
        },
        cube,
        store,
    )
    return cube, store

"""The cubes for tests of the command line."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pyarrow as pa

from kartothek_cube import Cube, build_cube

CUBE = Cube(["x", "y"], ["p", "q"], "my_cube", index_columns=["i1"])
OTHER = Cube(["x"], ["p"], "other")

SEED = pa.table(
    {
        "x": [0, 1, 2, 3],
        "y": [0, 0, 1, 1],
        "p": [0, 0, 1, 1],
        "q": ["a", "b", "a", "b"],
        "v1": [1.0, 2.0, 3.0, 4.0],
        "i1": [10, 11, 12, 13],
    },
)
ENRICH = pa.table(
    {"x": [0, 1, 2, 3], "p": [0, 0, 1, 1], "q": ["a", "b", "a", "b"], "v2": ["1", "2", "3", "4"], "v3": [0, 1, 2, 3]}
)
UN = pa.table({"y": [0, 1], "v4": [0, 1]})


def write_cubes(store: str) -> None:
    """Write both cubes."""
    data = {"seed": SEED, "enrich": ENRICH, "un": UN}
    build_cube(data, CUBE, store, metadata={"enrich": {"foo": {"b": [1, 2], "a": "ü"}}}, partition_on={"un": []})
    build_cube(SEED.select(["x", "p", "v1"]), OTHER, store)


def leave_unmade(store: str, prefix: str) -> None:
    """Leave what a build of a cube leaves that died before the swap of the seed."""
    from kartothek_cube import open_store
    from kartothek_cube.testing.stores import FaultyStore, SimulatedCrash

    def die(call: Any) -> str | None:
        return "crash" if (call.operation, call.key) == ("put_if", f"{prefix}++seed.by-dataset-metadata.json") else None

    with suppress(SimulatedCrash):
        build_cube({"seed": SEED, "enrich": ENRICH}, CUBE.copy(uuid_prefix=prefix), FaultyStore(open_store(store), die))
    assert f"{prefix}++enrich.by-dataset-metadata.json" in keys(store)


def keys(store: str, start: str = "") -> list[str]:
    """The keys of a store."""
    from kartothek_cube import open_store

    return sorted(open_store(store).list(start, recursive=True).keys)


def contents(store: str) -> dict[str, bytes]:
    """The keys of a store with their bytes."""
    from kartothek_cube import open_store

    opened = open_store(store)
    return {key: bytes(opened.get(key)) for key in keys(store)}

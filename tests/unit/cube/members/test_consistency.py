"""Which datasets make a valid cube; the message names the dataset, the column and what is wrong."""

from __future__ import annotations

import pyarrow as pa
import pytest
from msgspec.structs import replace

from kartothek_cube.cube.consistent_read import DatasetInfo, check_infos
from kartothek_cube.cube.cube import Cube
from kartothek_cube.errors import InvalidInput

CUBE = Cube(["x", "y"], ["p", "q"], "cube", index_columns=["i1", "i2"], suppress_index_on=["y"])
SEED = DatasetInfo(
    "seed",
    pa.schema({"x": pa.int64(), "y": pa.string(), "p": pa.int64(), "q": pa.int64(), "i1": pa.int8(), "v1": pa.null()}),
    ("p", "q"),
    frozenset({"x", "i1"}),
)
E = DatasetInfo(
    "e", pa.schema({"x": pa.int8(), "p": pa.int64(), "i2": pa.string(), "v2": pa.int64()}), ("p",), frozenset({"i2"})
)


def check(**infos):
    check_infos({"seed": SEED, "e": E} | infos, CUBE)


def without(info, column):
    return replace(info, schema=pa.schema([f for f in info.schema if f.name != column]))


def having(info, column, kind=None):
    return replace(
        info, schema=pa.schema([*(f for f in info.schema if f.name != column), pa.field(column, kind or pa.int64())])
    )


ACCEPTED = {
    "as it is": {},
    "extra indices": {
        "e": replace(E, secondary=frozenset({"i2", "x", "v2"})),
        "seed": replace(SEED, secondary=frozenset({"x", "y", "i1", "v1"})),
    },
    "extra key": {"e": replace(having(E, "k"), partition_keys=("p", "k"))},
    "dimension as key": {"e": replace(E, partition_keys=("x", "p"))},
    "no key": {"e": replace(without(E, "p"), partition_keys=())},
    "index column as key": {"e": replace(E, partition_keys=("p", "i2"), secondary=frozenset())},
    "extra key of the seed": {"seed": replace(having(SEED, "k"), partition_keys=("p", "q", "k"))},
    "no index column": {"e": replace(without(E, "i2"), secondary=frozenset())},
    "null type": {"e": having(E, "x", pa.null())},
    "hidden columns in two datasets": {
        "e": having(having(E, "__a"), "KLEE_TS"),
        "seed": having(having(SEED, "__a"), "KLEE_TS"),
    },
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_valid_cubes(name):  # cube 225, 229, 230
    check(**ACCEPTED[name])


REFUSED = {
    "other table": ({"e": replace(E, tables=("table", "core"))}, ["e", "table", "core"]),
    "no table": (
        {"e": replace(E, tables=("core",)), "seed": replace(SEED, tables=("a", "b"))},
        ["e (core), seed (a, b)"],
    ),
    "shared payload": ({"e": having(E, "v1")}, ["v1: e, seed"]),
    "shared payload as key": ({"e": replace(having(E, "v1"), partition_keys=("p", "v1"))}, ["v1: e, seed"]),
    "other type of a dimension": (
        {"e": having(E, "x", pa.float64())},
        ['"x"', '"e"', '"seed"', "double", "int64", 'astype("int64")'],
    ),
    "sign of a dimension": ({"e": having(E, "x", pa.uint64())}, ['"x"', "uint64"]),
    "zone of a dimension": (
        {"seed": having(SEED, "x", pa.timestamp("us")), "e": having(E, "x", pa.timestamp("us", "UTC"))},
        ['"x"', "UTC"],
    ),
    "other type of a key": ({"e": having(E, "p", pa.string())}, ['"p"']),
    "seed without a key": ({"seed": replace(without(SEED, "q"), partition_keys=("p",))}, ["seed", "partition", "q"]),
    "partition column that is no key": ({"e": having(E, "q")}, ["e", "q"]),
    "partition column of the seed that is no key": ({"seed": replace(SEED, partition_keys=("q",))}, ["seed", "p"]),
    "seed without a dimension": ({"seed": without(SEED, "y")}, ["seed", "dimension", "y"]),
    "enrichment without dimensions": ({"e": without(E, "x")}, ['"e"', "x, y"]),
    "no index on a dimension": (
        {"seed": replace(SEED, secondary=frozenset({"i1"}))},
        ["ExplicitSecondaryIndex", '"x"', '"seed"'],
    ),
    "no index on an index column": (
        {"e": replace(E, secondary=frozenset())},
        ["ExplicitSecondaryIndex or PartitionIndex", '"i2"', '"e"'],
    ),
    "secondary index on a key": ({"e": replace(E, secondary=frozenset({"i2", "p"}))}, ['"p"', '"e"', "PartitionIndex"]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_invalid_cubes(name):  # cube 224, 226, 227, 228
    infos, words = REFUSED[name]
    with pytest.raises(InvalidInput) as caught:
        check(**infos)
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_the_seed_is_missed_first():
    with pytest.raises(InvalidInput, match=r"seed.*missing"):
        check_infos({"e": replace(E, tables=("core",))}, CUBE)
    with pytest.raises(InvalidInput, match=r"seed.*missing"):
        check_infos({}, CUBE)


def test_every_shared_payload_column_is_named():
    with pytest.raises(InvalidInput) as caught:
        check(e=having(having(E, "v1"), "v3"), f=having(having(replace(E, id="f"), "v2"), "v3"))
    assert [line for line in str(caught.value).splitlines() if line.startswith(" - ")] == [
        " - i2: e, f",
        " - v1: e, seed",
        " - v2: e, f",
        " - v3: e, f",
    ]

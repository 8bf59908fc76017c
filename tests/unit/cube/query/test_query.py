"""What a query answers: conditions, partition_by, projection, joins, the newest row of a cell,
types, and errors.
"""

from __future__ import annotations

import datetime
import decimal
import itertools

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from kartothek_cube.api.cube import (
    C,
    Conjunction,
    Cube,
    append_to_cube,
    build_cube,
    extend_cube,
    iter_cube,
    plan_cube_query,
    query_cube,
    query_cube_arrow,
    remove_partitions,
)
from kartothek_cube.core.stores.contract import ReadOnlyView
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import InvalidInput, InvalidType, KeyNotFound
from tests.support.cubes import answers, contents, files, refused, snapshot, table, with_column

CUBE = Cube(["x", "y"], ["p"], "cube", index_columns=["i1", "i2"])
SEED = [
    {
        "x": x,
        "y": y,
        "p": x // 2,
        "i1": 10 * (x % 2),
        "v1": None if (x, y) == (1, "b") else x / 2,
        "s1": [None, "m", "n"][(x + len(y) * ord(y)) % 3],
    }
    for x, y in itertools.product(range(4), "ab")
]
E = [
    {"x": 1, "i2": "u", "v2": 1},
    {"x": 2, "i2": "w", "v2": 2},
    {"x": 3, "i2": "u", "v2": 3},
    {"x": 9, "i2": "z", "v2": 9},
]
F = [
    {"x": 0, "y": "a", "p": 0, "v3": 5, "b3": True},
    {"x": 2, "y": "b", "p": 1, "v3": 6, "b3": False},
    {"x": 3, "y": "c", "p": 1, "v3": 7, "b3": True},
]
PAYLOAD = {"e": ["i2", "v2"], "f": ["v3", "b3"]}
SEED_SCHEMA = pa.schema(
    {"x": pa.int64(), "y": pa.string(), "p": pa.int64(), "i1": pa.int64(), "v1": pa.float64(), "s1": pa.string()}
)
F_SCHEMA = pa.schema({"x": pa.int64(), "y": pa.string(), "p": pa.int64(), "v3": pa.int8(), "b3": pa.bool_()})


@pytest.fixture
def store():
    store = MemoryStore()
    build_cube(pa.Table.from_pylist(SEED, SEED_SCHEMA), CUBE, store)
    extend_cube(
        {"e": pa.Table.from_pylist(E), "f": pa.Table.from_pylist(F, F_SCHEMA)}, CUBE, store, partition_on={"e": []}
    )
    return store


def full_rows():
    by_x, by_cell = {row["x"]: row for row in E}, {(row["x"], row["y"]): row for row in F}
    nothing = dict.fromkeys(("i2", "v2", "v3", "b3"))
    rows = [{**nothing, **row, **by_x.get(row["x"], {}), **by_cell.get((row["x"], row["y"]), {})} for row in SEED]
    return [dict(sorted(row.items())) for row in rows]


FULL = full_rows()


# --- the whole cube -------------------------------------------------------------------------------


def test_a_round_trip_gives_the_cells_of_the_seed_with_what_the_others_know(store):  # cube 156
    assert answers(store) == FULL


def test_a_frame_has_sorted_columns_and_counts_its_rows(store):  # cube 156
    (frame,) = query_cube(CUBE, store)
    assert list(frame.columns) == sorted(FULL[0])
    assert list(frame.index) == list(range(8))
    assert [frame["x"].tolist(), frame["y"].tolist()] == [[0, 0, 1, 1, 2, 2, 3, 3], list("abababab")]


def test_missing_cells_turn_integers_to_floats_and_booleans_to_objects(store):  # cube 176
    (frame,) = query_cube(CUBE, store)
    assert {c: frame[c].dtype.kind for c in ("x", "p", "i1", "v1", "v2", "v3", "b3")} == {
        "x": "i",
        "p": "i",
        "i1": "i",
        "v1": "f",
        "v2": "f",
        "v3": "f",
        "b3": "O",
    }
    assert frame["v3"].isna().sum() == 6


def test_nothing_is_written_by_queries(store):  # cube 157
    before = contents(store)
    readonly = ReadOnlyView(store)
    assert len(query_cube(CUBE, readonly, C("v2") > 1, partition_by="i2")) == 2
    assert len(list(iter_cube(CUBE, readonly))) == 2
    assert plan_cube_query(CUBE, readonly).file_counts() == {"seed": 2, "e": 1, "f": 2}
    assert contents(store) == before


def test_cells_that_only_an_enrichment_has_never_appear(store):  # cube 177
    assert {row["x"] for row in answers(store)} == {0, 1, 2, 3}
    assert ("c" in {row["y"] for row in answers(store)}) is False


@pytest.mark.parametrize(
    "payload", [None, [], "v1", ["v1", "v1"], {"v2", "v3"}, ["x", "p"], ("i2",), (c for c in ["v1", "i2"])]
)
def test_payload_columns_choose_columns(store, payload):  # cube 161, 190
    payload = list(payload) if payload is not None and not isinstance(payload, str) else payload
    wanted = (
        FULL[0].keys() if payload is None else {"x", "y", "p", *([payload] if isinstance(payload, str) else payload)}
    )
    assert answers(store, payload_columns=payload) == [{k: v for k, v in row.items() if k in wanted} for row in FULL]


# --- conditions -----------------------------------------------------------------------------------

CONDITIONS = [
    (C("x") == 2, lambda r: r["x"] == 2),
    (C("x") > 0, lambda r: r["x"] > 0),
    (C("y") != "a", lambda r: r["y"] != "a"),
    (C("p") == 1, lambda r: r["p"] == 1),
    (C("p") != 1, lambda r: r["p"] != 1),
    (C("i1") == 10, lambda r: r["i1"] == 10),
    (C("i1").isin([0, 77]), lambda r: r["i1"] == 0),
    (C("v1") == 1.5, lambda r: r["v1"] == 1.5),
    (C("v1") < 1.0, lambda r: r["v1"] is not None and r["v1"] < 1.0),
    (C("v1").in_interval(0.5, 1.5), lambda r: r["v1"] is not None and 0.5 <= r["v1"] < 1.5),
    # A stored null is unequal to every value, as in kartothek.
    (C("v1") != 1.5, lambda r: r["v1"] != 1.5),
    (C("s1") != "m", lambda r: r["s1"] != "m"),
    (C("s1") == "m", lambda r: r["s1"] == "m"),
    (C("s1") > "m", lambda r: r["s1"] is not None and r["s1"] > "m"),
    (C("s1").isin(["m", "n"]), lambda r: r["s1"] is not None),
    (C("i2") == "u", lambda r: r["i2"] == "u"),
    (C("i2") != "u", lambda r: r["i2"] not in (None, "u")),
    (C("i2") == b"u", lambda r: r["i2"] == "u"),
    (C("v2") >= 2, lambda r: r["v2"] is not None and r["v2"] >= 2),
    (C("v3") != 6, lambda r: r["v3"] not in (None, 6)),
    (C("b3").isin([False]), lambda r: r["b3"] is False),
    ((C("i2") == "u") & (C("v1") > 0.0) & (C("p") == 1), lambda r: r["i2"] == "u" and r["p"] == 1 and r["v1"] > 0),
    ((C("v2") > 0) & (C("v3") > 0), lambda r: r["v2"] is not None and r["v3"] is not None),
    ([C("x") >= 1, C("x") <= 2], lambda r: 1 <= r["x"] <= 2),
    (Conjunction([]), lambda r: True),
    ([], lambda r: True),
    (C("nowhere").in_interval(None, None), lambda r: True),
    (C("x") == 2**70, lambda r: False),
    (C("x") < 2**70, lambda r: True),
    (C("x").isin([]), lambda r: False),
    ((C("x") > 2) & (C("x") < 1), lambda r: False),
    (C("x").in_interval(3, 1), lambda r: False),
    (C("i2") == "nothing", lambda r: False),
    (C("i2") == "z", lambda r: False),
]


@pytest.mark.parametrize(("condition", "holds"), CONDITIONS, ids=[str(condition) for condition, _ in CONDITIONS])
@pytest.mark.parametrize("payload", [None, ["v1"]])
def test_conditions_filter_the_wide_table(store, condition, holds, payload):  # cube 158, 159, 160, 162, 175, 191
    wanted = {"x", "y", "p", "v1"} if payload else FULL[0].keys()
    expected = [{k: v for k, v in row.items() if k in wanted} for row in FULL if holds(row)]
    assert answers(store, conditions=condition, payload_columns=payload) == expected
    assert len(query_cube(CUBE, store, condition, payload_columns=payload)) == bool(expected)


def test_an_equality_on_a_column_of_nulls_matches_nothing(store):  # cube 175
    extend_cube({"g": with_column(table(x=[0, 1]), "v4", pa.nulls(2))}, CUBE, store, partition_on={"g": []})
    assert query_cube(CUBE, store, C("v4") == 1.5) == []
    assert query_cube(CUBE, store, C("v4") == "text") == []
    assert query_cube(CUBE, store, C("v4").isin(["text"])) == []


def test_a_hundred_index_conditions_select_one_row():  # cube 185
    names = [f"i{n}" for n in range(100)]
    cube = Cube(["x"], ["p"], "wide", index_columns=names)
    data = {
        "x": list(range(50)),
        "p": [x % 5 for x in range(50)],
        **{name: [int(x >= n % 50) for x in range(50)] for n, name in enumerate(names)},
    }
    store = MemoryStore()
    build_cube(pa.table(data), cube, store)
    assert [row["x"] for row in answers(store, cube, conditions=[C(name) == 1 for name in names])] == [49]


LITERALS = {
    "int": 1,
    "uint": np.uint8(1),
    "float": 1.0,
    "bool": True,
    "str": "1",
    "date": datetime.date(2024, 1, 1),
    "timestamp": datetime.datetime(2024, 1, 1),
}
TYPES = {
    "int": pa.int64(),
    "uint": pa.uint64(),
    "float": pa.float64(),
    "bool": pa.bool_(),
    "str": pa.string(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
}
PLAIN = {"int": 1, "uint": 1, **{k: LITERALS[k] for k in ("float", "bool", "str", "date", "timestamp")}}


@pytest.mark.parametrize("role", ["dimension", "partition", "index", "payload"])
@pytest.mark.parametrize("kind", TYPES)
def test_literals_of_another_type_are_refused(role, kind):  # cube 174
    cube = Cube(
        ["d"] if role == "dimension" else ["x"],
        ["c" if role == "partition" else "p"],
        "t",
        index_columns=["c"] if role == "index" else [],
    )
    column = "d" if role == "dimension" else "c"
    data = {"x": [0], "p": [0], column: pa.array([PLAIN[kind]], TYPES[kind])}
    store = MemoryStore()
    build_cube(pa.table(data), cube, store)
    families = [{"int", "uint", "float"}, {"bool"}, {"str"}, {"date", "timestamp"}]
    fine = next(family for family in families if kind in family)
    for other, value in LITERALS.items():
        if other in fine:
            # A date is its midnight.
            same = pd.Timestamp(value) == pd.Timestamp(PLAIN[kind]) if "date" in fine else value == PLAIN[kind]
            assert len(answers(store, cube, conditions=C(column) == value)) == same
            assert len(answers(store, cube, conditions=C(column).isin([PLAIN[kind], value]))) == 1
        else:
            with refused(store, InvalidType, column, "seed"):
                query_cube(cube, store, C(column) == value)
            with refused(store, InvalidType, column):
                query_cube(cube, store, C(column).isin([PLAIN[kind], value]))


@pytest.mark.parametrize("value", [datetime.date(2024, 1, 2), "2024-01-02"])
@pytest.mark.parametrize("role", ["dimension", "partition", "index", "payload"])
def test_dates_are_compared_wherever_they_stand(value, role):
    days = pa.array([datetime.date(2024, 1, d) for d in (1, 2, 3)])
    cube = Cube(
        ["d"] if role == "dimension" else ["x"],
        ["d" if role == "partition" else "p"],
        "t",
        index_columns=["d"] if role == "index" else [],
    )
    store = MemoryStore()
    build_cube(pa.table({"x": [0, 1, 2], "p": [0, 0, 1], "d": days}), cube, store)
    assert [row["x"] for row in answers(store, cube, conditions=C("d") >= value)] == [1, 2]
    if role != "payload":
        keys = [key["d"] for key, _ in iter_cube(cube, store, C("d") != value, partition_by="d")]
        assert keys == [datetime.date(2024, 1, 1), datetime.date(2024, 1, 3)]


# --- partition_by ---------------------------------------------------------------------------------


def grouped(store, by, **arguments):
    frames = query_cube(CUBE, store, partition_by=by, **arguments)
    return [(tuple(frame[c].iloc[0] for c in by), list(zip(frame["x"], frame["y"], strict=True))) for frame in frames]


@pytest.mark.parametrize(
    "by",
    [["x"], ["y"], ["p"], ["i1"], ["i2"], ["p", "i1"], ["i1", "p"], ["y", "i2"], ["x", "y", "p", "i1", "i2"]],
    ids=str,
)
@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ([], lambda r: True),
        (C("v1") > 0.4, lambda r: (r["v1"] or 0) > 0.4),
        (C("v2") > 1, lambda r: (r["v2"] or 0) > 1),
    ],
    ids=["all", "v1", "v2"],
)
def test_partition_by_gives_one_sorted_frame_per_combination(store, by, condition, holds):  # cube 163, 164, 192
    expected = {}
    for row in FULL:
        if holds(row) and all(row[c] is not None for c in by):
            expected.setdefault(tuple(row[c] for c in by), []).append((row["x"], row["y"]))
    found = grouped(store, by, conditions=condition)
    assert found == sorted(expected.items())
    assert [
        len(set(zip(*(frame[c] for c in by), strict=True)))
        for frame in query_cube(CUBE, store, condition, partition_by=by)
    ] == [1] * len(found)


def test_every_frame_of_a_group_counts_its_rows(store):
    assert all(list(frame.index) == list(range(len(frame))) for frame in query_cube(CUBE, store, partition_by="i2"))


def test_frames_without_missing_values_keep_integers(store):  # cube 164, 165
    assert all(frame["v2"].dtype == "int64" for frame in query_cube(CUBE, store, partition_by="i2"))


@pytest.mark.parametrize("by", [None, [], ()])
def test_no_partition_by_is_one_frame(store, by):  # cube 189
    assert len(query_cube(CUBE, store, partition_by=by)) == 1


def test_a_key_of_an_enrichment_can_be_partitioned_by(store):
    extend_cube({"g": table(x=[0, 1, 2], k=["u", "w", "u"], v4=[1, 2, 3])}, CUBE, store, partition_on={"g": ["k"]})
    assert grouped(store, ["k"]) == [(("u",), [(0, "a"), (0, "b"), (2, "a"), (2, "b")]), (("w",), [(1, "a"), (1, "b")])]


def test_a_dimension_that_an_enrichment_has_indexed_too_does_not_leak_rows(store):
    extend_cube({"zzz": table(x=[0, 1, 2], v4=[1, 2, 3])}, CUBE, store, partition_on={"zzz": ["x"]})
    assert grouped(store, ["x"]) == [((x,), [(x, "a"), (x, "b")]) for x in range(4)]
    assert [frame["v4"].isna().all() for frame in query_cube(CUBE, store, partition_by="x")] == [
        False,
        False,
        False,
        True,
    ]


INDEXED = [
    pa.int8(),
    pa.uint8(),
    pa.uint64(),
    pa.float32(),
    pa.float64(),
    pa.bool_(),
    pa.string(),
    pa.binary(),
    pa.date32(),
    pa.timestamp("us"),
]


@pytest.mark.parametrize("kind", INDEXED, ids=str)
@pytest.mark.parametrize("role", ["dimension", "index", "partition"])
def test_partition_by_a_column_of_every_indexed_type(kind, role):
    cube = Cube(
        ["c"] if role == "dimension" else ["x"],
        ["c" if role == "partition" else "p"],
        "t",
        index_columns=["c"] if role == "index" else [],
    )
    values = {"b": [False, True], "s": ["", "b/ä%"], "y": [b"", b"b"]}.get(
        {"bool": "b", "string": "s", "binary": "y"}.get(str(kind), ""), [0, 1]
    )
    store = MemoryStore()
    build_cube(pa.table({"x": [0, 1], "p": [0, 0], "c": pa.array(values, kind)}), cube, store)
    for condition in (None, C("x") >= 0):
        assert [table.column("x").to_pylist() for _, table in iter_cube(cube, store, condition, partition_by="c")] == [
            [0],
            [1],
        ]
        assert [frame["x"].tolist() for frame in query_cube(cube, store, condition, partition_by="c")] == [[0], [1]]
    assert [key["c"] for key, _ in iter_cube(cube, store, partition_by="c")] == pa.array(values, kind).to_pylist()


# --- dimensions -----------------------------------------------------------------------------------


def test_the_order_of_dimensions_is_the_order_of_rows(store):  # cube 166
    rows = answers(store, dimension_columns=["y", "x"])
    assert [(row["y"], row["x"]) for row in rows] == [(y, x) for y in "ab" for x in range(4)]
    assert list(rows[0]) == sorted(FULL[0])


@pytest.mark.parametrize(
    ("dims", "expected"), [("x", [(0, 0), (1, 0), (2, 1), (3, 1)]), (["y"], [("a", 0), ("a", 1), ("b", 0), ("b", 1)])]
)
def test_a_projection_has_each_combination_once(store, dims, expected):  # cube 167
    rows = answers(store, dimension_columns=dims, payload_columns=[])
    name = dims if isinstance(dims, str) else dims[0]
    assert [(row[name], row["p"]) for row in rows] == expected
    assert list(rows[0]) == sorted([name, "p"])


def test_a_projection_keeps_payload_of_fewer_dimensions(store):  # cube 168
    assert [(row["x"], row["v2"]) for row in answers(store, dimension_columns="x", payload_columns="v2")] == [
        (0, None),
        (1, 1),
        (2, 2),
        (3, 3),
    ]
    assert [
        row["x"] for row in answers(store, dimension_columns="x", payload_columns="v2", conditions=C("i2") == "u")
    ] == [1, 3]


def test_a_condition_on_a_dropped_dimension_comes_before_the_projection(store):
    assert [
        row["x"]
        for row in answers(store, dimension_columns="x", payload_columns=[], conditions=(C("y") == "b") & (C("x") > 1))
    ] == [2, 3]
    assert answers(store, dimension_columns="x", payload_columns=[], conditions=C("y") == "z") == []


@pytest.mark.parametrize(
    "arguments",
    [
        {"payload_columns": ["v1", "s1"]},
        {},
        {"payload_columns": ["v2"], "conditions": C("v1") > 0.0},
        {"payload_columns": [], "partition_by": "i1"},
        {"payload_columns": ["v3"]},
    ],
)
def test_a_projection_refuses_payload_of_more_dimensions(store, arguments):  # cube 169
    with refused(store, InvalidInput, "Cannot project dataset", "[x, y] to [x]"):
        query_cube(CUBE, store, dimension_columns="x", **arguments)


def test_a_dropped_dimension_is_no_payload(store):
    with refused(store, InvalidInput, "y", "dimension_columns"):
        query_cube(CUBE, store, dimension_columns="x", payload_columns=["y"])


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"dimension_columns": ["x", "zz", "aa"]}, InvalidInput, ["dimension", "aa, zz"]),
        ({"dimension_columns": ["p"]}, InvalidInput, ["dimension", "p"]),
        ({"dimension_columns": []}, InvalidInput, ["empty"]),
        ({"dimension_columns": {"x", "y"}}, InvalidType, ["order"]),
        ({"dimension_columns": ["x", "x"]}, InvalidInput, ["duplicates", "x, x"]),
        ({"partition_by": ["zz", "aa"]}, InvalidInput, ["partition-by", "missing", "aa, zz"]),
        ({"partition_by": ["v1", "v2"]}, InvalidInput, ["partition-by", "not indexed", "v1, v2"]),
        ({"partition_by": ["v1", "zz"]}, InvalidInput, ["partition-by", "missing", "zz"]),
        ({"partition_by": {"x"}}, InvalidType, ["order"]),
        ({"partition_by": ["x", "x"]}, InvalidInput, ["duplicates"]),
        ({"conditions": (C("zz") == 1) & (C("aa") == 1)}, InvalidInput, ["condition", "aa, zz"]),
        ({"payload_columns": ["zz", "aa", "x"]}, InvalidInput, ["payload", "aa, zz"]),
        ({"datasets": ["seed", "u", "t"]}, InvalidInput, ["t, u"]),
        ({"datasets": ["e"]}, InvalidInput, ["seed"]),
        ({"datasets": []}, InvalidInput, ["seed"]),
        ({"datasets": {}}, InvalidInput, ["seed"]),
        ({"datasets": [1]}, InvalidType, ["1"]),
        ({"datasets": {"seed": 1}}, InvalidType, ["seed", "int"]),
        ({"datasets": ["seed"], "payload_columns": ["v2"]}, InvalidInput, ["v2"]),
        ({"datasets": ["seed"], "conditions": C("v2") == 1}, InvalidInput, ["v2"]),
    ],
)
def test_wrong_arguments_are_refused_by_every_query_verb(
    store, arguments, error, words
):  # cube 170, 171, 172, 173, 186, 190
    for verb in (query_cube, iter_cube, plan_cube_query):
        with refused(store, error, *words):
            verb(CUBE, store, **arguments)


def test_a_suppressed_dimension_cannot_be_partitioned_by(store):
    cube = CUBE.copy(uuid_prefix="other", suppress_index_on=["x"])
    build_cube(pa.Table.from_pylist(SEED, SEED_SCHEMA), cube, store)
    with refused(store, InvalidInput, "not indexed", "x"):
        query_cube(cube, store, partition_by="x")
    extend_cube({"g": table(x=[0], v4=[1])}, cube, store, partition_on={"g": ["x"]})
    with refused(store, InvalidInput, "not indexed", "x"):
        query_cube(cube, store, partition_by="x")


def test_a_cube_that_does_not_exist(store):
    with refused(store, InvalidInput, "seed", "missing"):
        query_cube(CUBE.copy(uuid_prefix="nothing"), store)


# --- datasets -------------------------------------------------------------------------------------


def test_a_filter_hides_columns_of_other_datasets(store):
    assert set(answers(store, datasets=["seed", "e"])[0]) == {"x", "y", "p", "i1", "v1", "s1", "i2", "v2"}
    assert set(answers(store, datasets="seed")[0]) == {"x", "y", "p", "i1", "v1", "s1"}


def test_datasets_may_be_given_as_they_came_from_the_build(store):
    cube = CUBE.copy(uuid_prefix="other")
    given = build_cube(pa.Table.from_pylist(SEED, SEED_SCHEMA), cube, store)
    append_to_cube(pa.Table.from_pylist([{**SEED[0], "v1": 99.0}], SEED_SCHEMA), cube, store)
    assert answers(store, cube, datasets=given)[0]["v1"] == 0.0
    assert answers(store, cube)[0]["v1"] == 99.0


def test_a_broken_dataset_breaks_only_queries_that_see_it(store):  # cube 187
    document = store.get("cube++f.by-dataset-metadata.json")
    store.put("cube++foreign.by-dataset-metadata.json", document)
    store.put("cube++wrong.by-dataset-metadata.json", b"{")
    for name in (None, ["seed", "foreign"], ["seed", "wrong"]):
        with pytest.raises(ValueError):
            query_cube(CUBE, store, datasets=name)
    assert len(answers(store, datasets=["seed", "e", "f"])) == 8


def test_the_order_of_columns_in_the_cube_object_counts(store):
    cube = CUBE.copy(dimension_columns=["y", "x"])
    assert [(row["y"], row["x"]) for row in answers(store, cube)] == [(y, x) for y in "ab" for x in range(4)]


def test_hidden_columns_are_stored_and_invisible():  # cube 188
    store, cube = MemoryStore(), Cube(["x"], ["p"], "cube")
    build_cube(pa.table({"x": [0], "p": [0], "__hidden": [1], "KLEE_TS": [2], "v1": [3]}), cube, store)
    extend_cube({"e": pa.table({"x": [0], "__hidden": [1], "v2": [3]})}, cube, store, partition_on={"e": []})
    assert answers(store, cube) == [{"p": 0, "v1": 3, "v2": 3, "x": 0}]
    with refused(store, InvalidInput, "__hidden"):
        query_cube(cube, store, payload_columns=["__hidden"])


# --- other partitionings --------------------------------------------------------------------------


def other_partitionings():
    cells = [(x, p, q) for x in range(3) for p in range(2) for q in range(2)]
    seed = pa.table({c: [cell[i] for cell in cells] for i, c in enumerate("xpq")} | {"v1": list(range(12))})
    return Cube(["x"], ["p", "q"], "cube"), seed


@pytest.mark.parametrize(
    ("keys", "data", "expected"),
    [
        ([], table(x=[0, 1], v2=[10, 11]), lambda x, p, q: {0: 10, 1: 11}.get(x)),
        (["p"], table(x=[0, 1], p=[0, 1], v2=[10, 11]), lambda x, p, q: {(0, 0): 10, (1, 1): 11}.get((x, p))),
        (
            ["q", "p"],
            table(x=[0, 1], p=[0, 1], q=[1, 0], v2=[10, 11]),
            lambda x, p, q: {(0, 0, 1): 10, (1, 1, 0): 11}.get((x, p, q)),
        ),
        (["k"], table(x=[0, 1], k=["u", "w"], v2=[10, 11]), lambda x, p, q: {0: 10, 1: 11}.get(x)),
        (
            ["q", "k"],
            table(x=[0, 1], q=[0, 1], k=["u", "w"], v2=[10, 11]),
            lambda x, p, q: {(0, 0): 10, (1, 1): 11}.get((x, q)),
        ),
        (["x"], table(x=[0, 1], v2=[10, 11]), lambda x, p, q: {0: 10, 1: 11}.get(x)),
    ],
    ids=["none", "p", "q,p", "k", "q,k", "x"],
)
def test_datasets_of_every_partitioning_are_joined_and_overlaid(keys, data, expected):  # cube 182
    cube, seed = other_partitionings()
    store = MemoryStore()
    build_cube({"seed": seed, "e": data}, cube, store, partition_on={"e": keys})
    assert [row["v2"] for row in answers(store, cube)] == [
        expected(row["x"], row["p"], row["q"]) for row in answers(store, cube)
    ]
    before = [row["v2"] for row in answers(store, cube)]
    append_to_cube({"e": with_column(data[:1], "v2", [99])}, cube, store)
    assert [row["v2"] for row in answers(store, cube)] == [99 if v == 10 else v for v in before]
    matched = [row["v2"] for row in answers(store, cube, conditions=C("v2") > 0)]
    assert matched == [99 if v == 10 else v for v in before if v is not None]


def test_an_enrichment_partitioned_like_the_cube_is_joined_inside_its_partition():
    cube, seed = other_partitionings()
    store = MemoryStore()
    build_cube({"seed": seed, "e": table(x=[0], p=[7], q=[0], v2=[1])}, cube, store)
    assert {row["v2"] for row in answers(store, cube)} == {None}


def test_equal_cells_of_two_partitions_stay():  # cube 194
    cube, seed = other_partitionings()
    store = MemoryStore()
    build_cube(seed, cube, store)
    assert [row["v1"] for row in answers(store, cube, conditions=C("x") == 1)] == [4, 5, 6, 7]
    assert len(answers(store, cube, dimension_columns="x", payload_columns=[])) == 12


def test_an_enrichment_of_dimensions_alone_takes_no_part(store):
    extend_cube({"g": table(x=[0], y=["a"])}, CUBE, store, partition_on={"g": []})
    assert answers(store) == FULL
    assert "g" not in plan_cube_query(CUBE, store).file_counts()


# --- the newest row of a cell ---------------------------------------------------------------------

OLD = table(x=[0, 1], y=["a", "a"], p=[0, 0], i1=[1, 1], v1=[1.0, 1.0])
NEW = table(x=[0], y=["a"], p=[0], i1=[2], v1=[2.0])


@pytest.fixture
def overlaid():
    store = MemoryStore()
    build_cube(OLD, CUBE, store)
    append_to_cube(NEW, CUBE, store)
    return store


@pytest.mark.parametrize(
    ("condition", "cells"),
    [
        (C("i1") == 1, [1]),
        (C("i1") == 2, [0]),
        (C("i1") != 2, [1]),
        (C("v1") == 1.0, [1]),
        (C("v1") == 2.0, [0]),
        (C("v1") < 2.0, [1]),
        (C("v1") != 1.0, [0]),
        ((C("x") == 0) & (C("v1") == 1.0), []),
        ((C("x") == 0) & (C("i1") == 1), []),
        ((C("x") == 0) & (C("i1") == 2), [0]),
        ((C("p") == 0) & (C("i1") == 1), [1]),
    ],
    ids=str,
)
def test_an_overridden_row_does_not_come_back(overlaid, condition, cells):
    assert [row["x"] for row in answers(overlaid, conditions=condition)] == cells
    assert [x for _, rows in iter_cube(CUBE, overlaid, condition) for x in rows.column("x").to_pylist()] == cells


@pytest.mark.parametrize("condition", [None, C("v1") > 0.0, C("i1") > 0])
def test_partition_by_puts_each_cell_into_the_group_of_its_newest_row(overlaid, condition):
    assert [
        (key["i1"], rows.column("x").to_pylist())
        for key, rows in iter_cube(CUBE, overlaid, condition, partition_by="i1")
    ] == [(1, [1]), (2, [0])]
    assert [frame["x"].tolist() for frame in query_cube(CUBE, overlaid, condition, partition_by="i1")] == [[1], [0]]


def test_a_newer_null_hides_the_older_value(overlaid):
    append_to_cube(with_column(NEW, "v1", pa.nulls(1)), CUBE, overlaid)
    assert answers(overlaid, conditions=C("v1") == 1.0)[0]["x"] == 1
    assert [row["x"] for row in answers(overlaid, conditions=C("v1") > 0.0)] == [1]


@pytest.mark.parametrize("key", ["k", "y"])
def test_the_newest_row_of_an_enrichment_with_a_key_of_its_own_wins(overlaid, key):
    # `k` is payload, so that the same cell may move to another file; `y` is a dimension, so that it
    # cannot.
    old = table(x=[0, 1], y=["a", "a"], k=[1, 1], v4=[1, 1])
    new = table(x=[0], y=["a"], k=[2], v4=[2])
    extend_cube({"g": old}, CUBE, overlaid, partition_on={"g": [key]})
    append_to_cube({"g": new}, CUBE, overlaid)
    assert [(row["x"], row["k"], row["v4"]) for row in answers(overlaid)] == [(0, 2, 2), (1, 1, 1)]
    assert [row["x"] for row in answers(overlaid, conditions=C("k") == 1)] == [1]
    assert [row["x"] for row in answers(overlaid, conditions=C("v4") == 1)] == [1]
    if key == "k":
        assert [(k["k"], rows.column("x").to_pylist()) for k, rows in iter_cube(CUBE, overlaid, partition_by="k")] == [
            (1, [1]),
            (2, [0]),
        ]


# --- files ----------------------------------------------------------------------------------------


def test_a_missing_file_matters_only_where_it_is_read(store):  # cube 195
    zero, _ = files(store)
    store.delete(zero)
    assert [row["x"] for row in answers(store, conditions=C("p") == 1)] == [2, 2, 3, 3]
    assert [row["x"] for row in answers(store, conditions=C("x") >= 2)] == [2, 2, 3, 3]
    with pytest.raises(KeyNotFound) as caught:
        query_cube(CUBE, store)
    assert zero in str(caught.value)
    assert "cube++seed" in str(caught.value)


def test_a_missing_index_file_matters_only_where_it_is_asked(store, monkeypatch):
    from kartothek_cube.core.runtime.executor import LruCache
    from kartothek_cube.core.snapshots import loader

    monkeypatch.setattr(loader, "_cache", LruCache(1))
    store.delete(snapshot(store).document.indices["i1"])
    assert answers(store) == FULL
    assert len(answers(store, conditions=C("x") == 0)) == 2
    with pytest.raises(KeyNotFound, match="i1"):
        query_cube(CUBE, store, C("i1") == 10)


def test_several_files_of_a_partition_are_merged(store):  # cube 179
    append_to_cube(pa.Table.from_pylist([{**SEED[0], "x": 17}], SEED_SCHEMA), CUBE, store)
    assert [row["x"] for row in answers(store, conditions=C("y") == "a")] == [0, 1, 2, 3, 17]


def test_a_removed_and_written_again_partition_answers_for_its_cells_only(store):  # cube 181
    remove_partitions(CUBE, store, C("p") == 1, ["f"])
    append_to_cube(
        {"f": pa.Table.from_pylist([{"x": 3, "y": "a", "p": 1, "v3": 1, "b3": None}], F_SCHEMA)}, CUBE, store
    )
    assert [(row["x"], row["y"], row["v3"]) for row in answers(store) if row["v3"] is not None] == [
        (0, "a", 5),
        (3, "a", 1),
    ]


# --- types ----------------------------------------------------------------------------------------

STORED = {
    **{
        str(kind): (kind, [1, 2, 3])
        for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
    },
    "int64 extremes": (pa.int64(), [-(2**63), 0, 2**63 - 1]),
    "uint64 extremes": (pa.uint64(), [0, 1, 2**64 - 1]),
    "float": (pa.float32(), [-0.5, 1.5, 2.5]),
    "double": (pa.float64(), [-0.1, 1e300, float("inf")]),
    "bool": (pa.bool_(), [False, True]),
    "string": (pa.string(), ["", "a/b", "ä %=&?", "ß" * 20]),
    "binary": (pa.binary(), [b"", b"a/b", b"z"]),
    "date": (pa.date32(), [datetime.date(1969, 12, 31), datetime.date(2024, 2, 29)]),
    "timestamp": (
        pa.timestamp("us"),
        [datetime.datetime(1969, 12, 31, 23, 59, 59, 999999), datetime.datetime(2024, 2, 29)],
    ),
    "timestamp[ns] in whole microseconds": (pa.timestamp("ns"), [datetime.datetime(2024, 2, 29, 1, 2, 3, 4)]),
}
PAYLOAD_ONLY = {
    "zoned timestamp": (pa.timestamp("us", "UTC"), [datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC), None]),
    "decimal": (pa.decimal128(10, 2), [decimal.Decimal("1.25"), None]),
    "time": (pa.time64("us"), [datetime.time(1, 2, 3, 4), None]),
    "duration": (pa.duration("us"), [datetime.timedelta(1, 2, 3), None]),
    "list": (pa.list_(pa.int8()), [[1, 2], None, []]),
    "list of texts": (pa.list_(pa.string()), [["a", None], None]),
    "struct": (pa.struct({"a": pa.int8()}), [{"a": 1}, None]),
    "null": (pa.null(), [None, None]),
    "category": (pa.dictionary(pa.int8(), pa.string()), ["a", None, "a"]),
    "large text": (pa.large_string(), ["a", None]),
}
NORMAL = {
    "string": pa.string(),
    "dictionary<values=string, indices=int8, ordered=0>": pa.string(),
    "large_string": pa.string(),
}


@pytest.mark.parametrize("role", ["dimension", "partition", "index", "payload"])
@pytest.mark.parametrize("name", STORED)
def test_a_type_makes_the_round_trip_in_every_role(name, role):  # cube 178
    kind, values = STORED[name]
    cube = Cube(
        ["c"] if role == "dimension" else ["x"],
        ["c" if role == "partition" else "p"],
        "t",
        index_columns=["c"] if role == "index" else [],
    )
    data = pa.table({"x": list(range(len(values))), "p": [0] * len(values), "c": pa.array(values, kind)})
    store = MemoryStore()
    build_cube(data, cube, store)
    result = query_cube_arrow(cube, store)
    assert dict(zip(result.column("x").to_pylist(), result.column("c").to_pylist(), strict=True)) == dict(
        enumerate(data.column("c").to_pylist())
    )
    wide = (
        {"i": pa.int64(), "u": pa.uint64(), "f": pa.float64()}.get(str(kind)[0], kind) if role == "partition" else kind
    )
    assert result.schema.field("c").type == (pa.timestamp("us") if pa.types.is_timestamp(kind) else wide)
    for x, value in enumerate(pa.array(values, kind).to_pylist()):
        assert [row["x"] for row in answers(store, cube, conditions=C("c") == value)] == [x]


@pytest.mark.parametrize("name", PAYLOAD_ONLY)
def test_a_payload_type_makes_the_round_trip(name):
    kind, values = PAYLOAD_ONLY[name]
    cube, store = Cube(["x"], ["p"], "t"), MemoryStore()
    data = pa.array(values, kind)
    build_cube(pa.table({"x": list(range(len(values) + 1)), "p": [0] * (len(values) + 1)}), cube, store)
    extend_cube({"e": pa.table({"x": list(range(len(values))), "c": data})}, cube, store, partition_on={"e": []})
    append_to_cube({"e": pa.table({"x": [0], "c": data[:1]})}, cube, store)
    result = query_cube_arrow(cube, store)
    assert result.column("c").to_pylist() == [*data.to_pylist(), None]
    assert result.schema.field("c").type == {
        "category": pa.string(),
        "large text": pa.string(),
        "duration": pa.duration("ns"),
    }.get(name, kind)
    assert len(query_cube(cube, store)[0]) == len(values) + 1


def test_nullable_pandas_types_make_the_round_trip():
    frame = pd.DataFrame({"x": [0, 1], "p": 0})
    frame["a"], frame["b"] = pd.array([1, None], "Int64"), pd.array([True, None], "boolean")
    frame["c"], frame["d"] = pd.array(["a", None], "string"), pd.Categorical(["u", None])
    cube, store = Cube(["x"], ["p"], "t"), MemoryStore()
    build_cube(frame, cube, store)
    assert [answers(store, cube)[0][c] for c in "abcd"] == [1, True, "a", "u"]
    assert [answers(store, cube)[1][c] for c in "abcd"] == [None] * 4

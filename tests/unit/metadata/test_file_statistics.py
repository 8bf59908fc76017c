"""Statistics as values: measuring, cutting, joining, what may match, what a document names."""

from __future__ import annotations

import base64
import datetime as dt
import pickle
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
import zstandard

from kartothek_cube.core.arrow.bounds import columns_with_bounds, joined_bounds, measure_bounds
from kartothek_cube.core.expressions.predicates import parse_predicates
from kartothek_cube.core.metadata.statistics import (
    FileStatistics,
    StatisticsOfFile,
    StatisticsReference,
    StoredStatistics,
    concat_statistics,
    file_names,
    make_statistics,
    reference_of,
)

UUID = "sales"
NAN = float("nan")


def key(number, folder=""):
    return f"{UUID}/table/{folder}{number:032x}.parquet"


def statistics_of(*tables, columns=True):
    measured = measure_bounds(tables, columns)
    return make_statistics(measured, UUID, [key(i) for i in range(len(tables))], [100 + i for i in range(len(tables))])


def bounds(statistics, column):
    (found,) = (
        n.removeprefix("lower/")
        for n in statistics.table.column_names
        if n.startswith("lower/") and n.endswith(f"/{column}")
    )
    lower, upper = (statistics.table.column(f"{side}/{found}").to_pylist() for side in ("lower", "upper"))
    return list(zip(lower, upper, statistics.nulls(column).to_pylist(), strict=True))


VALUES = {
    "integers": (pa.array([3, None, 1], pa.int16()), (1, 3, 1)),
    "integers without nulls": (pa.array([2, 3, 1], pa.uint64()), (1, 3, 0)),
    "floats without NaN": (pa.array([2.5, -3.5, 1.0], pa.float32()), (-3.5, 2.5, 0)),
    "days": (pa.array([dt.date(2026, 1, 2), dt.date(2026, 1, 1)]), (dt.date(2026, 1, 1), dt.date(2026, 1, 2), 0)),
    "floats": (pa.array([3.5, NAN, -0.0, None]), (0.0, 3.5, 2)),
    "only NaN": (pa.array([NAN, NAN], pa.float32()), (None, None, 2)),
    "only nulls": (pa.nulls(3, pa.int64()), (None, None, 3)),
    "decimals": (pa.array([Decimal("1.20"), Decimal("-3.00")]), (Decimal("-3.00"), Decimal("1.20"), 0)),
    "booleans": (pa.array([True, False]), (False, True, 0)),
    "dates": (pa.array([dt.date(2026, 1, 2), None]), (dt.date(2026, 1, 2), dt.date(2026, 1, 2), 1)),
    "zones": (
        pa.array([1, 2], pa.timestamp("us", tz="Europe/Berlin")),
        (*pa.array([1, 2], pa.timestamp("us", tz="Europe/Berlin")).to_pylist(), 0),
    ),
    "texts": (pa.array(["b", "ä", None, "a"]), ("a", "ä", 1)),
    "dictionaries": (pa.array(["c", "b", "a", None]).dictionary_encode()[:2], ("b", "c", 0)),
}


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("name", sorted(VALUES))
def test_bounds_are_the_least_and_the_greatest_value_and_the_number_of_nulls(name, together):
    values, wanted = VALUES[name]
    table, other = pa.table({"v1": values}), pa.table({"v1": values[:1]})
    found = statistics_of(table, other, table[:0]) if together else statistics_of(table)
    assert bounds(found, "v1")[0] == wanted
    assert found.rows[0].as_py() == len(values)
    if together:
        assert bounds(found, "v1")[1:] == [*bounds(statistics_of(other), "v1"), (None, None, 0)]


@pytest.mark.parametrize("name", sorted(VALUES))
def test_pieces_of_a_stream_have_the_bounds_of_the_whole(name):
    table = pa.table({"v1": VALUES[name][0]})
    pieces = [measure_bounds([table[i : i + 1]], True) for i in range(table.num_rows)]
    assert joined_bounds(pieces).equals(measure_bounds([table], True))


@pytest.mark.parametrize("tables", [1, 3])
def test_the_earliest_moment_is_a_bound(tables):
    moments = pa.table({"v1": pa.array([0, -(2**63)], pa.timestamp("us"))})
    lower = measure_bounds([moments] * tables, True).column("lower/v1")
    assert lower.cast(pa.int64()).to_pylist() == [-(2**63)] * tables


def test_a_piece_of_long_texts_leaves_the_whole_without_bounds():
    pieces = [pa.table({"v1": ["a"]}), pa.table({"v1": ["b" * 10_000]}), pa.table({"v1": [None]})]
    joined = joined_bounds([measure_bounds([p.cast(pa.schema({"v1": pa.string()}))], True) for p in pieces])
    assert joined.column("lower/v1").to_pylist() == [None]
    assert joined.column("nulls/v1").to_pylist() == [1]


def test_nested_columns_bytes_and_durations_have_none():
    table = pa.table({"a": [[1]], "b": [b"x"], "c": pa.array([1], pa.duration("ns")), "d": [{"e": 1}], "v1": [1]})
    assert statistics_of(table).columns == ["v1"]


def test_the_option_chooses_columns():
    table = pa.table({"v1": [1], "v2": [2]})
    assert statistics_of(table, columns=["v2", "v3"]).columns == ["v2"]
    assert statistics_of(table, table, columns=["v2"]).columns == ["v2"]


@pytest.mark.parametrize(
    ("text", "upper"),
    [
        ("k" * 33, "k" * 31 + "l"),
        ("k" * 31 + "\U0010ffff" * 2, "k" * 30 + "l"),
        ("k" * 31 + "\ud7ff" + "z", "k" * 31 + "\ue000"),
        ("\U0010ffff" * 40, None),
    ],
)
def test_a_long_text_is_cut_to_bounds_that_hold(text, upper):
    found = statistics_of(pa.table({"v1": [text]}))
    assert bounds(found, "v1") == [(text[:32], upper, 0)]
    assert found.is_exact("v1").tolist() == [False]
    if upper is not None:
        assert text[:32].encode() <= text.encode() <= upper.encode()
    for op in ("==", "<=", ">=", "in"):
        value = [text] if op == "in" else text
        assert found.matching(parse_predicates([[("v1", op, value)]]), pa.schema({"v1": pa.string()})).all()


def matching(statistics, *clauses, data_type=None):
    return statistics.matching(parse_predicates([list(clauses)]), pa.schema({"v1": data_type or pa.int64()})).tolist()


def test_files_that_cannot_match_are_left_out():
    some = statistics_of(
        pa.table({"v1": [1, 5]}), pa.table({"v1": [7, None]}), pa.table({"v1": pa.nulls(2, pa.int64())})
    )
    assert matching(some, ("v1", ">", 5)) == [False, True, False]
    assert matching(some, ("v1", "==", None)) == [False, True, True]
    assert matching(some, ("v1", "!=", 7)) == [True, True, True]
    assert matching(some, ("v1", "!=", None), ("v1", "<", 6)) == [True, False, False]


def test_nan_is_null():
    some = statistics_of(pa.table({"v1": [1.0, NAN]}), pa.table({"v1": [NAN]}))
    assert matching(some, ("v1", "==", NAN), data_type=pa.float64()) == [True, True]
    assert matching(some, ("v1", ">=", 1.0), data_type=pa.float64()) == [True, False]


def test_unknown_files_and_columns_may_match():
    some = statistics_of(pa.table({"v1": [1]}))
    names = file_names(pa.array([key(0), key(7), None]), UUID)
    assert matching(some.of_files(names), ("v1", "==", 2)) == [False, True, True]
    assert matching(some, ("v2", "==", 2)) == [True]


def test_bounds_of_another_type_are_unknown():
    some = statistics_of(pa.table({"v1": ["a"]}))
    assert matching(some, ("v1", "==", 2)) == [True]


def test_only_random_names_are_known():
    one = f"{1:032x}"
    named = [f"table/{one}", f"table/p=a%2Fb/{one}", f"table/{one}-12", f"table/mine-{one}"]
    keys = [f"{UUID}/{name}.parquet" for name in (*named, "table/mine", f"table/x{one}", f"table/{one}-a")]
    assert file_names(pa.array(keys), UUID).to_pylist() == [*named, None, None, None]


def test_the_first_of_several_rows_of_a_file_counts():
    old, new = (make_statistics(measure_bounds([pa.table({"v1": [v]})], True), UUID, [key(0)], [1]) for v in (1, 2))
    both = concat_statistics([new, old])
    assert bounds(both.of_files(file_names(pa.array([key(0)]), UUID)), "v1") == [(2, 2, 0)]


@pytest.mark.parametrize(
    "columns",
    [
        [pa.array([300], pa.int64()), pa.array([2], pa.int8()), pa.array(["008"]), pa.array([True]), pa.array([0.7])],
        [pa.array([0.7]), pa.array([0.5], pa.float32()), pa.array([16777217.0])],
        [pa.array([2**64 - 1], pa.uint64()), pa.array([-1]), pa.array([1], pa.uint8())],
        [
            pa.array([1], pa.timestamp("us")),
            pa.array([1], pa.timestamp("us", tz="Asia/Tokyo")),
            pa.array(["1970-01-01"]),
        ],
        [pa.array([Decimal("1.23")]), pa.array([Decimal("1.2")]), pa.array([1])],
    ],
)
def test_a_column_whose_type_changes_loses_no_bound(columns):
    """Whatever comes together and in which order, each file has the bounds of its own rows."""
    for order in (columns, columns[::-1]):
        tables = [pa.table({"v1": values}) for values in order]
        alone = [make_statistics(measure_bounds([t], True), UUID, [key(i)], [1]) for i, t in enumerate(tables)]
        together = concat_statistics([concat_statistics(alone[:2]), *alone[2:]])
        for i, values in enumerate(order):
            found = together.bounds("v1", values.type)
            assert found.minimum[i].as_py() == found.maximum[i].as_py() == values[0].as_py()
            value = values[0].as_py()
            asked = parse_predicates([[("v1", "==", value)]])
            assert together.matching(asked, pa.schema({"v1": values.type}))[i]


def test_a_decimal_that_was_widened_has_the_bounds_of_before():
    narrow = statistics_of(pa.table({"v1": pa.array([Decimal("1.2")])}))
    wide = narrow.bounds("v1", pa.decimal128(20, 4))
    assert wide.minimum.to_pylist() == [Decimal("1.2000")]


def test_pieces_without_bounds_leave_the_whole_without():
    known = pa.table({"rows": [2], "lower/v1": [1.0], "upper/v1": [2.0], "nulls/v1": pa.nulls(1, pa.int64())})
    unknown = pa.table({"rows": [2], "lower/v1": pa.nulls(1, pa.float64()), "upper/v1": pa.nulls(1, pa.float64())})
    unknown = unknown.append_column("nulls/v1", pa.nulls(1, pa.int64()))
    assert joined_bounds([known, unknown]).column("lower/v1").to_pylist() == [None]


def test_wide_tables_have_bounds_of_some_columns():
    schema = pa.schema([(f"v{i}", pa.int64()) for i in range(100)])
    assert columns_with_bounds(schema)[:2] == ["v0", "v1"]
    assert len(columns_with_bounds(schema, True, ["v99"])) == 64
    assert columns_with_bounds(schema, True, ["v99"])[0] == "v99"
    assert len(columns_with_bounds(schema, schema.names)) == 100


def test_texts_that_are_no_utf8_have_no_bounds():
    offsets = pa.py_buffer(np.array([0, 40], np.int32))
    broken = pa.Array.from_buffers(pa.string(), 1, [None, offsets, pa.py_buffer(b"\xff" * 40)])
    found = statistics_of(pa.table({"v1": broken, "x": [1]}))
    assert bounds(found, "x") == [(1, 1, 0)]
    assert matching(found, ("v1", "==", "a"), data_type=pa.string()) == [True]


def test_many_statistics_of_two_kinds_are_gathered():
    some = [statistics_of(pa.table({"v1" if i % 2 else "v2": [i]})) for i in range(6)]
    found = concat_statistics(some)
    assert found.bounds("v1", pa.int64()).minimum.to_pylist() == [None, 1, None, 3, None, 5]
    assert found.nulls("v2").to_pylist() == [0, None, 0, None, 0, None]


def test_only_one_row_travels_in_a_pickle():
    many = statistics_of(*[pa.table({"v1": [i]}) for i in range(50)])
    one = pickle.loads(pickle.dumps(StatisticsOfFile(many, 7)))
    assert len(one.source) == 1
    assert bounds(StatisticsOfFile.together([one, None]), "v1") == [(7, 7, 0)]


def test_files_of_one_write_are_gathered_once():
    many = statistics_of(*[pa.table({"v1": [i]}) for i in range(5)])
    some = [StatisticsOfFile(many, i) for i in (3, 1)]
    assert bounds(StatisticsOfFile.together(some), "v1") == [(3, 3, 0), (1, 1, 0)]
    assert len(StatisticsOfFile.together([])) == 0


def test_a_reference_is_read_as_it_was_rendered():
    reference = StatisticsReference((StoredStatistics("a" * 32, 5),)).with_recent(statistics_of(pa.table({"v1": [1]})))
    read = reference_of({"kartothek_cube.statistics": reference.render()})
    assert read == reference
    assert [bounds(each, "v1") for each in read.recent_statistics()] == [[(1, 1, 0)]]


WRONG = ["", "[]", '{"stored": 1}', '{"stored": [[1]], "recent": []}', '{"stored": [["a", Infinity]], "recent": []}']


@pytest.mark.parametrize("entry", [None, 5, *WRONG, "[" * 10_000])
def test_an_entry_that_cannot_be_read_names_nothing(entry):
    assert reference_of({"kartothek_cube.statistics": entry}) == StatisticsReference()


@pytest.mark.parametrize("text", ["", "?", "AAAA", "ä"])
def test_damaged_statistics_inside_a_document_are_left_out(text):
    good = StatisticsReference().with_recent(statistics_of(pa.table({"v1": [1]}))).recent[0]
    other = StatisticsReference().with_recent(FileStatistics(pa.table({"file": [1], "rows": [1]}))).recent[0]
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, statistics_of(pa.table({"v1": [1]})).table.schema):
        pass
    short = base64.b64encode(zstandard.compress(stream.getvalue().to_pybytes()[:-60])).decode()
    found = StatisticsReference((), (text, good, good[:40], other, short)).recent_statistics()
    assert [isinstance(each, FileStatistics) for each in found] == [True]

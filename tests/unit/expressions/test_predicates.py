from __future__ import annotations

import copy
import datetime as dt
import pickle
from decimal import Decimal
from itertools import product
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from kartothek_cube.core.expressions.literals import WrongOperand
from kartothek_cube.core.expressions.predicates import (
    OPERATORS,
    Clause,
    accepts_null,
    clause_on_scalar,
    columns_of,
    constants_of,
    denied,
    is_null,
    matching_all,
    parse_predicates,
    resolve_constants,
)
from kartothek_cube.core.io.formats import ParquetFormat
from kartothek_cube.core.io.reader import FileRequest, read_rows
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import InvalidInput, InvalidType, Unsupported

X, Y, P = Clause("x", "==", 1), Clause("y", "<", "b"), Clause("p", "!=", 2)


def test_form():
    assert parse_predicates(None) is None
    assert parse_predicates([[("x", "==", 1), ("y", "<", "b")], [("p", "!=", 2)]]) == ((X, Y), (P,))
    assert parse_predicates(([("x", "==", 1)],)) == ((X,),)


@pytest.mark.parametrize(
    ("predicates", "error", "text"),
    [
        ([], InvalidInput, "Empty predicates"),  # H01
        ([[]], InvalidInput, "Conjunction 0 is empty"),  # H01
        ([("x", "==", 1)], InvalidInput, "Conjunction 0 should be a list of 3-tuples"),  # H02
        ([[("x", "==", 1)], ()], InvalidInput, "Conjunction 1 should be a list"),
        ([[["x", "==", 1]]], InvalidInput, "Clause 0 in conjunction 0 should be a 3-tuple"),  # H03
        ([[("x", "==")]], InvalidInput, "should be a 3-tuple"),
        ([[("x", "~", 1)]], Unsupported, "'~' on column 'x'"),
        ([[("x", "NOT IN", [1])]], Unsupported, "use one of ==, .*, in, not in, is distinct from"),
        ([[("x", "<", None)]], InvalidInput, "Only operators supporting null values are '==', '!=', 'in'"),  # H29
        ([[("x", ">=", float("nan"))]], InvalidInput, "Only operators supporting null values"),
        (
            [[("x", "==", b"a\0")]],
            Unsupported,
            "Null-terminated binary strings are not supported as predicate values",
        ),  # H28
        ([[("x", "in", [b"a", b"b\0"])]], Unsupported, "Null-terminated"),  # H28
        ([[("x", "not in", {b"b\0"})]], Unsupported, "Null-terminated"),
        (5, InvalidType, "list of lists"),
        (iter([[("x", "==", 1)]]), InvalidType, "list of lists"),
        ("x == 1", InvalidInput, "Conjunction 0 should be a list"),
    ],
)
def test_wrong_form_is_refused_with_its_place(predicates, error, text):
    with pytest.raises(error, match=text):
        parse_predicates(predicates)


def test_a_column_as_bytes_is_its_text():
    assert parse_predicates([[("gr\u00f6\u00dfe".encode(), "==", 1)]]) == ((Clause("gr\u00f6\u00dfe", "==", 1),),)
    with pytest.raises(InvalidInput, match=r"b'\\xff'"):
        parse_predicates([[(b"\xff", "==", 1)]])


@pytest.mark.parametrize("op", ["in", "not in"])
@pytest.mark.parametrize("value", [1, 1.5, None, float("nan"), pd.NA, "ab", b"ab", np.array(1), dt.date(2020, 1, 1)])
@pytest.mark.parametrize("error", [InvalidType, InvalidInput, TypeError, ValueError])
def test_a_list_operator_refuses_a_scalar_as_kartothek_and_as_plateau_do(op, value, error):  # H26, H27
    with pytest.raises(error, match=f"'{op}' on column 'x' needs a list of values"):
        parse_predicates([[("x", op, value)]])


@pytest.mark.parametrize("op", [op for op in OPERATORS if not op.endswith("in")])
@pytest.mark.parametrize("value", [[1], (), {1}, {"a": 1}, np.array([1]), pd.Series([1]), pa.array([1]), range(1)])
def test_any_other_operator_refuses_a_list(op, value):
    for error in (InvalidType, InvalidInput):
        with pytest.raises(error, match=f"'{op}' on column 'x' needs one value"):
            parse_predicates([[("x", op, value)]])


COLLECTIONS = [
    *(
        [1, 2],
        (1, 2),
        np.array([1, 2]),
        pd.Series([1, 2], index=[7, 8]),
        pd.Index([1, 2]),
        pd.array([1, 2], dtype="Int64"),
        range(1, 3),
    ),
    *(
        {1, 2},
        frozenset({1, 2}),
        {1: "a", 2: "b"}.keys(),
        pa.array([1, 2]),
        pa.chunked_array([[1], [2]]),
        [pa.scalar(1), pa.scalar(2)],
    ),
]


@pytest.mark.parametrize("op", ["in", "not in"])
@pytest.mark.parametrize("values", COLLECTIONS, ids=lambda v: type(v).__name__)
def test_any_collection_of_constants_is_taken(op, values):  # H25
    ((clause,),) = parse_predicates([[("x", op, values)]])
    assert clause == Clause("x", op, (1, 2))
    assert hash(clause)


@pytest.mark.parametrize("op", ["in", "not in"])
@pytest.mark.parametrize(
    "values", [iter([1, 2]), (value for value in [1, 2]), map(int, "12")], ids=lambda v: type(v).__name__
)
def test_constants_that_can_be_read_only_once_are_refused(op, values):
    """As predicates are: a second reader, e.g. after check_predicates, would find an empty list."""
    with pytest.raises(WrongOperand, match=f"'{op}' on column 'x' .* can be read only once"):
        parse_predicates([[("x", op, values)]])


def test_a_list_of_constants_is_a_tuple_that_travels():
    (conjunction,) = parse_predicates([[("x", "in", [1, 2])]])
    matching_all(pa.array([1, 3]), conjunction)
    for made in (pickle.loads(pickle.dumps(conjunction)), copy.copy(conjunction), copy.deepcopy(conjunction)):
        assert made == conjunction == (Clause("x", "in", (1, 2)),)
        assert hash(made) == hash(conjunction)
        assert repr(made) == repr((Clause("x", "in", (1, 2)),))
        assert matching_all(pa.array([1, 3]), made).tolist() == [True, False]


def test_a_scalar_of_arrow_is_the_value_that_it_holds():
    assert parse_predicates([[("x", "<", pa.scalar(1)), ("x", "==", pa.scalar(None, pa.int64()))]]) == (
        (Clause("x", "<", 1), Clause("x", "==", None)),
    )


@pytest.mark.parametrize(
    "value",
    [
        None,
        float("nan"),
        np.nan,
        pd.NaT,
        pd.NA,
        np.datetime64("NaT", "ns"),
        np.float32("nan"),
        Decimal("nan"),
        Decimal("sNaN"),
    ],
)
def test_spellings_of_null(value):
    assert is_null(value)
    assert parse_predicates([[("x", "!=", value)]]) is not None


@pytest.mark.parametrize(
    "value", [0, "", False, b"", [], np.array([1, 2]), np.array([]), (), "nan", Decimal("Infinity")]
)
def test_what_is_not_null(value):
    assert not is_null(value)


@pytest.mark.parametrize("fold", [0, 1])
def test_an_hour_that_comes_twice_is_two_hours_for_a_constant(fold):
    """Python takes the two for equal."""
    first, second = (dt.datetime(2020, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=f) for f in (0, 1))
    schema = pa.schema([("p", pa.timestamp("us", "UTC")), ("x", pa.int64())])
    store = MemoryStore()
    store.put("uuid/table/f.parquet", ParquetFormat().encode(pa.table({"x": [1, 2]})))
    predicates = parse_predicates([[("p", "==", first), ("x", "==", 1)], [("p", "==", second), ("x", "==", 2)]])
    constants = {"p": dt.datetime(2020, 10, 25, fold, 30, tzinfo=dt.UTC)}
    assert read_rows(store, "uuid/table/f.parquet", FileRequest("uuid", schema, ("x",), predicates), constants)[
        "x"
    ].to_pylist() == [fold + 1]


def test_columns():
    assert columns_of(((X, Y), (P,))) == {"x", "y", "p"}
    assert columns_of(None) == frozenset()


def test_known_clauses_are_dropped():  # H08
    predicates = ((X, Y), (P,))
    assert resolve_constants(None, {X: True}.get) is None
    assert resolve_constants(predicates, {}.get) == predicates
    assert resolve_constants(predicates, {X: True}.get) == ((Y,), (P,))
    assert resolve_constants(predicates, {X: False}.get) == ((P,),)
    assert resolve_constants(predicates, {X: False, P: False}.get) == ()
    assert resolve_constants(predicates, {P: True}.get) is None
    assert resolve_constants(predicates, {X: True, Y: True, P: False}.get) is None


@pytest.mark.parametrize(
    ("clause", "opposite"),
    [
        (Clause("x", "!=", 1), Clause("x", "==", 1)),
        (Clause("x", "is distinct from", None), Clause("x", "==", None)),
        (Clause("x", "not in", (1, None)), Clause("x", "in", (1, None))),
    ],
)
def test_an_operator_that_denies_another(clause, opposite):
    assert denied(clause) == opposite
    assert denied(opposite) is None
    assert accepts_null(clause) != accepts_null(opposite)
    assert constants_of(clause) == constants_of(opposite)


CLAUSES = [
    Clause("p", op, value)
    for op, value in product(OPERATORS, [1, 2, None])
    if not (value is None and op[0] in "<>") and op not in ("in", "not in")
]
CLAUSES += [Clause("p", op, values) for op, values in product(["in", "not in"], [(), (1,), (None,), (1, None), (2, 3)])]


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda c: f"{c.op} {c.value}")
@pytest.mark.parametrize("value", [1, None])
def test_a_clause_on_a_constant_is_dropped_and_decides(clause, value):
    holds = clause_on_scalar(pa.scalar(value, pa.int64()), clause)
    assert value is not None or holds == accepts_null(clause)
    assert resolve_constants(((clause, Y),), {clause: holds}.get) == (((Y,),) if holds else ())
    assert resolve_constants(((clause,), (X, Y)), {clause: holds}.get) == (None if holds else ((X, Y),))

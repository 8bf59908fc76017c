from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from kartothek_cube.core.predicates import Clause, columns_of, is_null, parse_predicates, resolve_constants
from kartothek_cube.errors import InvalidInput, InvalidType, Unsupported

X, Y, P = Clause("x", "==", 1), Clause("y", "<", "b"), Clause("p", "!=", 2)


def test_form():
    assert parse_predicates(None) is None
    assert parse_predicates([[("x", "==", 1), ("y", "<", "b")], [("p", "!=", 2)]]) == ((X, Y), (P,))
    assert parse_predicates(([("x", "==", 1)],)) == ((X,),)


@pytest.mark.parametrize(
    ("predicates", "error", "text"),
    [
        ([], InvalidInput, "Empty predicates"),
        ([[]], InvalidInput, "Conjunction 0 is empty"),
        ([("x", "==", 1)], InvalidInput, "Conjunction 0 should be a list of 3-tuples"),
        ([[("x", "==", 1)], ()], InvalidInput, "Conjunction 1 should be a list"),
        ([[["x", "==", 1]]], InvalidInput, "Clause 0 in conjunction 0 should be a 3-tuple"),
        ([[("x", "==")]], InvalidInput, "should be a 3-tuple"),
        ([[("x", "~", 1)]], Unsupported, "'~' on column 'x'"),
        ([[("x", "not in", [1])]], Unsupported, "'not in'"),
        ([[("x", "<", None)]], InvalidInput, "only the operators"),
        ([[("x", ">=", float("nan"))]], InvalidInput, "only the operators"),
        ([[("x", "==", b"a\0")]], Unsupported, "null-terminated"),
        ([[("x", "in", [b"a", b"b\0"])]], Unsupported, "null-terminated"),
        ([[("x", "in", 1)]], InvalidType, "'in' on column 'x'"),
        ([[("x", "in", None)]], InvalidType, "'in' on column 'x'"),
    ],
)
def test_wrong_form_is_refused_with_its_place(predicates, error, text):
    with pytest.raises(error, match=text):
        parse_predicates(predicates)


@pytest.mark.parametrize("values", [[1, 2], (1, 2), np.array([1, 2]), pd.Series([1, 2]), range(1, 3)])
def test_any_collection_of_constants_is_taken(values):
    ((clause,),) = parse_predicates([[("x", "in", values)]])
    assert clause == Clause("x", "in", (1, 2))


@pytest.mark.parametrize("value", [None, float("nan"), np.nan, pd.NaT, pd.NA, np.datetime64("NaT", "ns"), np.float32("nan")])
def test_spellings_of_null(value):
    assert is_null(value)
    assert parse_predicates([[("x", "!=", value)]]) is not None


@pytest.mark.parametrize("value", [0, "", False, b"", [], np.array([1, 2]), np.array([]), (), "nan"])
def test_what_is_not_null(value):
    assert not is_null(value)


def test_columns():
    assert columns_of(((X, Y), (P,))) == {"x", "y", "p"}
    assert columns_of(None) == frozenset()


def test_known_clauses_are_dropped():
    predicates = ((X, Y), (P,))
    assert resolve_constants(None, {X: True}) is None
    assert resolve_constants(predicates, {}) == predicates
    assert resolve_constants(predicates, {X: True}) == ((Y,), (P,))
    assert resolve_constants(predicates, {X: False}) == ((P,),)
    assert resolve_constants(predicates, {X: False, P: False}) == ()
    assert resolve_constants(predicates, {P: True}) is None
    assert resolve_constants(predicates, {X: True, Y: True, P: False}) is None

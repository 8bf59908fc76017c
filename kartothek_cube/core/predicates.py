"""Predicates as values: comparisons of a column with a constant, in disjunctive normal form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from kartothek_cube.errors import InvalidInput, InvalidType, Unsupported

__all__ = ["OPERATORS", "Clause", "Predicates", "by_column", "columns_of", "parse_predicates", "resolve_constants"]

OPERATORS = ("==", "!=", "<", "<=", ">", ">=", "in")


@dataclass(frozen=True, slots=True)
class Clause:
    """One comparison of a column with a constant.

    Parameters
    ----------
    column : str
        Name of the column.
    op : str
        One of ``== != < <= > >= in``.
    value : object
        The constant; for ``in`` a tuple of constants. ``None`` with ``==`` means "is null", with ``!=`` "is not null".

    Notes
    -----
    ``!=`` with a constant is true for null; every other comparison with a constant is false for null.

    Examples
    --------
    >>> Clause("COUNTRY_CODE", "==", "DE")
    Clause(column='COUNTRY_CODE', op='==', value='DE')
    """

    column: str
    op: str
    value: Any


Predicates = tuple[tuple[Clause, ...], ...]


def is_null(value: Any) -> bool:
    """Whether a literal is one of the spellings of null: None, NaN, NaT, NA."""
    if value is None or isinstance(value, np.ndarray):
        return value is None
    try:
        return bool(value != value)  # noqa: PLR0124 - what all spellings of "not a number" have in common
    except (TypeError, ValueError):  # pandas.NA refuses a truth value, an array has several
        return type(value).__name__ == "NAType"


def parse_predicates(predicates: Any) -> Predicates | None:
    """Check kartothek's form ``[[(column, op, value), ...], ...]`` and turn it into a value.

    Raises
    ------
    InvalidInput
        If the form is wrong: an empty list, a conjunction that is not a list, a clause that is not a tuple of three, a
        null with an operator that knows no null.
    InvalidType
        If ``in`` is given no collection.
    Unsupported
        For an unknown operator, or bytes that contain NUL.
    """
    if predicates is None:
        return None
    if len(predicates) == 0:
        raise InvalidInput("Empty predicates: give None to read everything.")
    return tuple(_parse_conjunction(i, conjunction) for i, conjunction in enumerate(predicates))


def _parse_conjunction(i: int, conjunction: Any) -> tuple[Clause, ...]:
    if not isinstance(conjunction, list):
        raise InvalidInput(f"Conjunction {i} should be a list of 3-tuples, got object of type {type(conjunction).__name__} instead.")
    if not conjunction:
        raise InvalidInput(f"Conjunction {i} is empty.")
    return tuple(_parse_clause(f"Clause {j} in conjunction {i}", clause) for j, clause in enumerate(conjunction))


def _parse_clause(place: str, clause: Any) -> Clause:
    if not isinstance(clause, tuple) or len(clause) != 3:
        raise InvalidInput(f"{place} should be a 3-tuple (column, operator, value), got {clause!r}.")
    column, op, value = clause
    if op not in OPERATORS:
        raise Unsupported(f"{place}: the operator {op!r} on column {column!r} is not supported, use one of {', '.join(OPERATORS)}.")
    if op == "in":
        value = _constants(place, column, value)
    elif op not in ("==", "!=") and is_null(value):
        raise InvalidInput(f"{place}: only the operators '==', '!=' and 'in' know null values, got {op!r} on column {column!r}.")
    _refuse_nul_bytes(place, value if op == "in" else (value,))
    return Clause(str(column), op, value)


def _constants(place: str, column: Any, values: Any) -> tuple[Any, ...]:
    try:
        return tuple(values)
    except TypeError:
        raise InvalidType(f"{place}: 'in' on column {column!r} needs a list of values, got {values!r}.") from None


def _refuse_nul_bytes(place: str, values: Iterable[Any]) -> None:
    if any(isinstance(v, bytes) and b"\0" in v for v in values):
        raise Unsupported(f"{place}: null-terminated binary strings are not supported as predicate values.")


def columns_of(predicates: Predicates | None) -> frozenset[str]:
    """All columns that the predicates mention."""
    return frozenset(clause.column for conjunction in predicates or () for clause in conjunction)


def by_column(clauses: Iterable[Clause]) -> dict[str, list[Clause]]:
    """Clauses grouped by their column.

    Examples
    --------
    >>> list(by_column([Clause("WEEK", ">=", 10), Clause("PRICE", "<", 2.5), Clause("WEEK", "<", 20)]))
    ['WEEK', 'PRICE']
    """
    found: dict[str, list[Clause]] = {}
    for clause in clauses:
        found.setdefault(clause.column, []).append(clause)
    return found


def resolve_constants(predicates: Predicates | None, truth: Mapping[Clause, bool]) -> Predicates | None:
    """Drop clauses whose truth is known. None: no row needs a look; an empty tuple: no row matches."""
    if predicates is None:
        return None
    possible = [c for c in predicates if all(truth.get(clause, True) for clause in c)]
    rest = tuple(tuple(clause for clause in c if clause not in truth) for c in possible)
    return rest if all(rest) else None

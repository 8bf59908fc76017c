"""Predicates as values: comparisons of a column with a constant, in disjunctive normal form."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa

from kartothek_cube.core.naming import column_name
from kartothek_cube.core.schema import WrongOperand, check_literals
from kartothek_cube.errors import InvalidInput, InvalidType, Unsupported

__all__ = [
    "OPERATORS",
    "Clause",
    "Constants",
    "Predicates",
    "WrongOperand",
    "accepts_null",
    "by_column",
    "check_constants",
    "columns_of",
    "constants_of",
    "denied",
    "is_null",
    "parse_predicates",
    "resolve_constants",
]

OPERATORS = ("==", "!=", "<", "<=", ">", ">=", "in", "not in", "is distinct from")
# Operators that are true exactly where another one is false, for nulls, too.
_DENIES = {"!=": "==", "is distinct from": "==", "not in": "in"}
_LISTS = ("in", "not in")
_ORDERS = ("<", "<=", ">", ">=")


class Constants(tuple[Any, ...]):  # noqa: SLOT001 - a tuple can have no slots with names
    """The constants of a list, a tuple that keeps the Arrow arrays made of it: every file that is read asks for them again."""

    arrays: dict[pa.DataType, pa.Array]

    def __new__(cls, values: Iterable[Any]) -> Self:
        made = super().__new__(cls, values)
        made.arrays = {}
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return Constants, (tuple(self),)


@dataclass(frozen=True, slots=True)
class Clause:
    """One comparison of a column with a constant.

    Parameters
    ----------
    column : str
        Name of the column.
    op : str
        One of ``== != < <= > >= in``, ``not in``, ``is distinct from``.
    value : object
        The constant; for ``in`` and ``not in`` a tuple of constants. A null (None, NaN, NaT, NA) with ``==`` means "is null", with
        ``!=`` "is not null".

    Notes
    -----
    ``!=`` and ``is distinct from`` are true where ``==`` is false, ``not in`` where ``in`` is: they are true for null unless null
    is among the constants. An order is false for null.

    Examples
    --------
    >>> Clause("COUNTRY_CODE", "==", "DE")
    Clause(column='COUNTRY_CODE', op='==', value='DE')
    """

    column: str
    op: str
    value: Any


Predicates = tuple[tuple[Clause, ...], ...]


def is_null(value: object) -> bool:
    """Whether a literal is one of the spellings of null: None, NaN, NaT, NA."""
    if value is None or isinstance(value, np.ndarray):
        return value is None
    try:
        return bool(value != value)  # noqa: PLR0124 - what all spellings of "not a number" have in common
    except (TypeError, ValueError, ArithmeticError):  # pandas.NA refuses a truth value, an array has several, a signalling NaN signals
        return type(value).__name__ in ("NAType", "Decimal")


def parse_predicates(predicates: Any) -> Predicates | None:
    """Check kartothek's form ``[[(column, op, value), ...], ...]`` and turn it into a value.

    ``in`` and ``not in`` take every collection: list, tuple, set, range, NumPy and Arrow array, pandas Series; no iterator, as
    predicates may be read more than once.

    Raises
    ------
    InvalidInput
        If the form is wrong: an empty list, a conjunction that is not a list, a clause that is not a tuple of three, a
        null with an operator that knows no null.
    InvalidType
        If the predicates are no list. With an `InvalidInput` in one class: if ``in`` or ``not in`` are given no collection (a text
        is none), or another operator is given one.
    Unsupported
        For an unknown operator, or bytes that contain NUL.

    Examples
    --------
    >>> parse_predicates([[("COUNTRY_CODE", "in", {"DE"}), ("PRICE", "<", 2.5)]])
    ((Clause(column='COUNTRY_CODE', op='in', value=('DE',)), Clause(column='PRICE', op='<', value=2.5)),)
    """
    if predicates is None:
        return None
    if not hasattr(predicates, "__len__"):
        raise InvalidType(f"Predicates are a list of lists of (column, operator, value), got {predicates!r}.")
    if len(predicates) == 0:
        raise InvalidInput("Empty predicates: give None to read everything.")
    return tuple(_parse_conjunction(i, conjunction) for i, conjunction in enumerate(predicates))


def _parse_conjunction(i: int, conjunction: object) -> tuple[Clause, ...]:
    if not isinstance(conjunction, list):
        raise InvalidInput(f"Conjunction {i} should be a list of 3-tuples, got object of type {type(conjunction).__name__} instead.")
    if not conjunction:
        raise InvalidInput(f"Conjunction {i} is empty.")
    return tuple(_parse_clause(f"Clause {j} in conjunction {i}", clause) for j, clause in enumerate(conjunction))


def _parse_clause(place: str, clause: object) -> Clause:
    if not isinstance(clause, tuple) or len(clause) != 3:
        raise InvalidInput(f"{place} should be a 3-tuple (column, operator, value), got {clause!r}.")
    column, op, value = clause
    if op not in OPERATORS:
        raise Unsupported(f"{place}: the operator {op!r} on column {column!r} is not supported, use one of {', '.join(OPERATORS)}.")
    column = column_name(column)
    parsed = Clause(column, op, _constants(place, column, op, value) if op in _LISTS else _constant(place, column, op, value))
    _refuse_nul_bytes(place, constants_of(parsed))
    return parsed


def _constants(place: str, column: str, op: str, values: Any) -> tuple[Any, ...]:
    if not _is_collection(values):
        raise WrongOperand(f"{place}: {op!r} on column {column!r} needs a list of values, got {values!r}. Write [{values!r}] for a single one.")
    if isinstance(values, Iterator):
        raise WrongOperand(f"{place}: {op!r} on column {column!r} needs a list of values, got {values!r}, which can be read only once. Call list() on it.")
    return Constants(values.to_pylist() if hasattr(values, "to_pylist") else map(_plain, values))


def _plain(value: object) -> Any:
    return value.as_py() if hasattr(value, "as_py") else value  # a scalar of Arrow


def _constant(place: str, column: object, op: str, value: object) -> Any:
    value = _plain(value)
    if _is_collection(value):
        raise WrongOperand(f"{place}: {op!r} on column {column!r} needs one value, got {value!r}. For several there are 'in' and 'not in'.")
    if op in _ORDERS and is_null(value):
        raise InvalidInput(
            f"Only operators supporting null values are '==', '!=', 'in', 'not in' and 'is distinct from', but {place} has {op!r} on column {column!r}."
        )
    return value


def _is_collection(values: object) -> bool:
    return isinstance(values, Iterable) and not isinstance(values, (str, bytes)) and getattr(values, "ndim", 1) > 0


def _refuse_nul_bytes(place: str, values: Iterable[Any]) -> None:
    if any(isinstance(v, bytes) and b"\0" in v for v in values):
        raise Unsupported(f"Null-terminated binary strings are not supported as predicate values, but {place} has one.")


def constants_of(clause: Clause) -> Sequence[Any]:
    """All constants of a clause, nulls included.

    Examples
    --------
    >>> constants_of(Clause("WEEK", "<", 10)), constants_of(Clause("WEEK", "in", (10, 11)))
    ((10,), (10, 11))
    """
    return clause.value if clause.op in _LISTS else (clause.value,)


def denied(clause: Clause) -> Clause | None:
    """The clause of which this one is the exact negation; None if it is none.

    Examples
    --------
    >>> denied(Clause("COUNTRY_CODE", "not in", ("DE", "FR")))
    Clause(column='COUNTRY_CODE', op='in', value=('DE', 'FR'))
    """
    return Clause(clause.column, _DENIES[clause.op], clause.value) if clause.op in _DENIES else None


def accepts_null(clause: Clause) -> bool:
    """Whether a null satisfies the comparison."""
    opposite = denied(clause)
    if opposite is not None:
        return not accepts_null(opposite)
    return clause.op not in _ORDERS and any(map(is_null, constants_of(clause)))


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


def check_constants(clauses: Iterable[Clause], schema: pa.Schema, where: str = "") -> None:
    """Raise `InvalidType` unless all constants may be compared with their columns; null may always be."""
    for clause in clauses:
        check_literals((v for v in constants_of(clause) if not is_null(v)), schema.field(clause.column).type, clause.column, where)


def resolve_constants(predicates: Predicates | None, truth: Callable[[Clause], bool | None]) -> Predicates | None:
    """Drop clauses whose truth is known. None: no row needs a look; an empty tuple: no row matches."""
    if predicates is None:
        return None
    known = [[(clause, truth(clause)) for clause in conjunction] for conjunction in predicates]
    rest = tuple(tuple(clause for clause, holds in c if holds is None) for c in known if all(holds is not False for _, holds in c))
    return rest if all(rest) else None

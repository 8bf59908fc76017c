"""Predicates as values: comparisons of a column with a constant, in disjunctive normal form."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import pyarrow as pa

from kartothek_cube.core.arguments import column_name
from kartothek_cube.core.arrow.literals import WrongOperand, check_literals, without_arrow
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
# Operators that are true exactly where another one is false, also for nulls.
_NEGATIONS = {"!=": "==", "is distinct from": "==", "not in": "in"}
_LISTS = ("in", "not in")
_ORDERS = ("<", "<=", ">", ">=")


class Constants(tuple[Any, ...]):  # noqa: SLOT001 - a tuple can have no slots with names
    """The constants of ``in`` or ``not in``: a tuple that caches its Arrow arrays by type."""

    # Each file of a scan compares with the same array: it is made once.
    arrays: dict[pa.DataType, pa.Array]

    def __new__(cls, values: Iterable[Any]) -> Self:
        constants = super().__new__(cls, values)
        constants.arrays = {}
        return constants

    def __reduce__(self) -> tuple[Any, ...]:
        return Constants, (tuple(self),)

    @cached_property
    def has_null(self) -> bool:
        """Whether one of them is a null."""
        return any(map(is_null, self))


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
        The constant; for ``in`` and ``not in`` a tuple of constants. A null (None, NaN, NaT, NA)
        with ``==`` means "is null", with ``!=`` "is not null".

    Notes
    -----
    ``!=`` and ``is distinct from`` are true where ``==`` is false, ``not in`` where ``in`` is.
    All are true for null unless null is among the constants. ``< <= > >=`` are false for null.

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
    """Whether a literal is a spelling of null: None, NaN, NaT, NA."""
    if value is None or isinstance(value, np.ndarray):
        return value is None
    try:
        return bool(value != value)  # noqa: PLR0124 - NaN and NaT of all libraries differ from themselves
    except (TypeError, ValueError, ArithmeticError):
        # pandas.NA has no truth value, arrays have several, a signalling NaN of Decimal raises.
        return type(value).__name__ in ("NAType", "Decimal")


def parse_predicates(predicates: Any) -> Predicates | None:
    """Check kartothek's form ``[[(column, op, value), ...], ...]`` and turn it into a value.

    ``in`` and ``not in`` take every collection: list, tuple, set, range, NumPy and Arrow array,
    pandas Series. They take no iterator, since predicates may be read more than once.

    Raises
    ------
    InvalidInput
        If the form is wrong: an empty list, a conjunction that is not a list, a clause that is not
        a tuple of three, a null with ``< <= > >=``.
    InvalidType
        If the predicates are no list.
    WrongOperand
        If ``in`` or ``not in`` has no collection (text is none), or another operator has one. It is
        an `InvalidType` and an `InvalidInput`.
    Unsupported
        For an unknown operator, or bytes that contain NUL.

    Examples
    --------
    >>> parse_predicates([[("COUNTRY_CODE", "in", {"DE"})]])
    ((Clause(column='COUNTRY_CODE', op='in', value=('DE',)),),)
    """
    if predicates is None:
        return None
    # Without a length it may be an iterator, which the first reader would exhaust.
    if not hasattr(predicates, "__len__"):
        raise InvalidType(f"Predicates are a list of lists of (column, operator, value), got {predicates!r}.")
    is_text = isinstance(predicates, str)
    if len(predicates) == 0:
        raise InvalidInput("Empty predicates: give None to read everything.")
    parsed = []
    for i, conjunction in enumerate(predicates):
        if not isinstance(conjunction, list):
            kind = type(conjunction).__name__
            hint = ' Text is for cubes and for open_dataset(uuid, store).query("UNITS > 2").' if is_text else ""
            raise InvalidInput(
                f"Conjunction {i} should be a list of 3-tuples, got object of type {kind} instead. "
                f'Predicates look like [[("UNITS", ">", 2)]].{hint}'
            )
        if not conjunction:
            raise InvalidInput(f"Conjunction {i} is empty.")
        clauses = (_parse_clause(f"Clause {j} in conjunction {i}", clause) for j, clause in enumerate(conjunction))
        parsed.append(tuple(clauses))
    return tuple(parsed)


def _parse_clause(context: str, clause: object) -> Clause:
    if not isinstance(clause, tuple) or len(clause) != 3:
        raise InvalidInput(f"{context} should be a 3-tuple (column, operator, value), got {clause!r}.")
    column, op, value = clause
    if op not in OPERATORS:
        raise Unsupported(
            f"{context}: the operator {op!r} on column {column!r} is not supported, use one of {', '.join(OPERATORS)}."
        )
    column, parse = column_name(column), _parse_list if op in _LISTS else _parse_constant
    parsed = Clause(column, op, parse(context, column, op, value))
    if any(isinstance(v, bytes) and b"\0" in v for v in constants_of(parsed)):
        raise Unsupported(
            f"Null-terminated binary strings are not supported as predicate values, but {context} has one."
        )
    return parsed


def _parse_list(context: str, column: str, op: str, values: Any) -> Constants:
    hint = ""
    if not _is_collection(values):
        hint = f". Write [{values!r}] for a single one."
    elif isinstance(values, Iterator):
        hint = ", which can be read only once. Call list() on it."
    if hint:
        raise WrongOperand(f"{context}: {op!r} on column {column!r} needs a list of values, got {values!r}{hint}")
    return Constants(values.to_pylist() if hasattr(values, "to_pylist") else map(without_arrow, values))


def _parse_constant(context: str, column: str, op: str, value: object) -> Any:
    value = without_arrow(value)
    if _is_collection(value):
        raise WrongOperand(
            f"{context}: {op!r} on column {column!r} needs one value, got {value!r}. "
            "For several there are 'in' and 'not in'."
        )
    if op in _ORDERS and is_null(value):
        raise InvalidInput(
            "Only operators supporting null values are '==', '!=', 'in', 'not in' and 'is distinct from', "
            f"but {context} has {op!r} on column {column!r}."
        )
    return value


def _is_collection(values: object) -> bool:
    return isinstance(values, Iterable) and not isinstance(values, (str, bytes)) and getattr(values, "ndim", 1) > 0


def constants_of(clause: Clause) -> Sequence[Any]:
    """All constants of a clause, nulls included.

    Examples
    --------
    >>> constants_of(Clause("WEEK", "<", 10)), constants_of(Clause("WEEK", "in", (10, 11)))
    ((10,), (10, 11))
    """
    return clause.value if clause.op in _LISTS else (clause.value,)


def denied(clause: Clause) -> Clause | None:
    """The clause that this one negates exactly; None if it is no negation.

    Examples
    --------
    >>> denied(Clause("COUNTRY_CODE", "not in", ("DE", "FR")))
    Clause(column='COUNTRY_CODE', op='in', value=('DE', 'FR'))
    """
    return Clause(clause.column, _NEGATIONS[clause.op], clause.value) if clause.op in _NEGATIONS else None


def accepts_null(clause: Clause) -> bool:
    """Whether a null satisfies the comparison."""
    opposite = denied(clause)
    if opposite is not None:
        return not accepts_null(opposite)
    if isinstance(clause.value, Constants):
        return clause.value.has_null
    return clause.op not in _ORDERS and any(map(is_null, constants_of(clause)))


def columns_of(predicates: Predicates | None) -> frozenset[str]:
    """All columns that the predicates name."""
    return frozenset(clause.column for conjunction in predicates or () for clause in conjunction)


def by_column(clauses: Iterable[Clause]) -> dict[str, list[Clause]]:
    """Clauses grouped by column.

    Examples
    --------
    >>> by_column([Clause("WEEK", ">=", 10)])
    {'WEEK': [Clause(column='WEEK', op='>=', value=10)]}
    """
    groups: dict[str, list[Clause]] = {}
    for clause in clauses:
        groups.setdefault(clause.column, []).append(clause)
    return groups


def check_constants(clauses: Iterable[Clause], schema: pa.Schema, context: str = "") -> None:
    """Raise `InvalidType` unless all constants are null or can be compared with their columns."""
    for clause in clauses:
        constants = (v for v in constants_of(clause) if not is_null(v))
        check_literals(constants, schema.field(clause.column).type, clause.column, context)


def resolve_constants(predicates: Predicates | None, truth: Callable[[Clause], bool | None]) -> Predicates | None:
    """The residual predicates, without the clauses whose truth is known.

    None means that all rows match, an empty tuple that none does.
    """
    if predicates is None:
        return None
    residual = []
    for conjunction in predicates:
        truths = [truth(clause) for clause in conjunction]
        if False not in truths:
            residual.append(tuple(c for c, known in zip(conjunction, truths, strict=True) if known is None))
    return tuple(residual) if all(residual) else None

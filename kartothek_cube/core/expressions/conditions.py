"""Conditions as values: the column `C`, and the condition classes that its comparisons make."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar, Never

import numpy as np
import pyarrow as pa

from kartothek_cube.core.arguments import converter_str, converter_tuple
from kartothek_cube.core.arrow.literals import without_arrow
from kartothek_cube.core.expressions.conjunction import (
    Condition,
    Conjunction,
    PredicatePart,
    SimpleCondition,
    condition_class,
    register,
)
from kartothek_cube.core.expressions.parsing import NoLiteral, check_values
from kartothek_cube.errors import InvalidInput, InvalidType

__all__ = [
    "C",
    "Condition",
    "Conjunction",
    "EqualityCondition",
    "GreaterEqualCondition",
    "GreaterThanCondition",
    "InIntervalCondition",
    "InequalityCondition",
    "IsInCondition",
    "IsNotInCondition",
    "LessEqualCondition",
    "LessThanCondition",
    "SimpleCondition",
    "VirtualColumn",
    "convert_predicates_to_cube_conditions",
    "write_predicate_as_cube_condition",
]


class EqualityCondition(SimpleCondition):
    """``C(column) == value``.

    Examples
    --------
    >>> (C("COUNTRY_CODE") == "DE").predicate_part
    [('COUNTRY_CODE', '==', 'DE')]
    """

    __slots__ = ()
    OP: ClassVar[str] = "=="


class InequalityCondition(SimpleCondition):
    """``C(column) != value``. In frames a null does not match; in queries a stored one does.

    Examples
    --------
    >>> (C("COUNTRY_CODE") != "DE").predicate_part
    [('COUNTRY_CODE', '!=', 'DE')]
    """

    __slots__ = ()
    OP: ClassVar[str] = "!="


class LessThanCondition(SimpleCondition):
    """``C(column) < value``.

    Examples
    --------
    >>> (C("WEEK") < 10).predicate_part
    [('WEEK', '<', 10)]
    """

    __slots__ = ()
    OP: ClassVar[str] = "<"


class LessEqualCondition(SimpleCondition):
    """``C(column) <= value``.

    Examples
    --------
    >>> (C("WEEK") <= 10).predicate_part
    [('WEEK', '<=', 10)]
    """

    __slots__ = ()
    OP: ClassVar[str] = "<="


class GreaterThanCondition(SimpleCondition):
    """``C(column) > value``.

    Examples
    --------
    >>> (C("WEEK") > 10).predicate_part
    [('WEEK', '>', 10)]
    """

    __slots__ = ()
    OP: ClassVar[str] = ">"


class GreaterEqualCondition(SimpleCondition):
    """``C(column) >= value``.

    Examples
    --------
    >>> (C("WEEK") >= 10).predicate_part
    [('WEEK', '>=', 10)]
    """

    __slots__ = ()
    OP: ClassVar[str] = ">="


class IsInCondition(SimpleCondition):
    """``C(column).isin(value)``; the value is kept as a tuple.

    Examples
    --------
    >>> C("COUNTRY_CODE").isin(["DE", "FR"]).value
    ('DE', 'FR')
    """

    __slots__ = ()
    OP: ClassVar[str] = "in"

    def _check_value(self) -> None:
        object.__setattr__(self, "value", _constants(self.column, self.value))


class IsNotInCondition(SimpleCondition):
    """``C(column).isnotin(value)``: ``!=`` for each of the values, which are kept as a tuple.

    Examples
    --------
    >>> C("COUNTRY_CODE").isnotin("DE").value
    ('DE',)
    """

    __slots__ = ()
    OP: ClassVar[str] = "not in"

    def _check_value(self) -> None:
        object.__setattr__(self, "value", _constants(self.column, self.value))


def _constants(column: str, value: object) -> tuple[Any, ...]:
    constants = tuple(map(without_arrow, converter_tuple(value)))
    check_values(column, constants)
    return constants


@dataclass(frozen=True, eq=False, init=False)
class InIntervalCondition(Condition):
    """``C(column).in_interval(start, stop)``: start included, stop excluded, None for an open end.

    Examples
    --------
    >>> C("WEEK").in_interval(10, 20).predicate_part
    [('WEEK', '>=', 10), ('WEEK', '<', 20)]
    >>> C("WEEK").in_interval().active
    False
    """

    __slots__ = ("start", "stop")
    start: Any
    stop: Any

    def __init__(self, column: str, start: object = None, stop: object = None) -> None:
        object.__setattr__(self, "column", column)
        object.__setattr__(self, "start", without_arrow(start))
        object.__setattr__(self, "stop", without_arrow(stop))
        self.__post_init__()
        check_values(self.column, [bound for bound in (self.start, self.stop) if bound is not None])

    @property
    def active(self) -> bool:
        """Whether at least one bound is given."""
        return self.start is not None or self.stop is not None

    @property
    def predicate_part(self) -> PredicatePart:
        """One ``(column, operator, value)`` tuple for each bound that is given."""
        return [(self.column, op, bound) for op, bound in ((">=", self.start), ("<", self.stop)) if bound is not None]

    def __str__(self) -> str:
        return f"{self.column}.in_interval({self.start}, {self.stop})"


register(
    EqualityCondition,
    InequalityCondition,
    LessThanCondition,
    LessEqualCondition,
    GreaterThanCondition,
    GreaterEqualCondition,
    IsInCondition,
    IsNotInCondition,
    InIntervalCondition,
)


@dataclass(frozen=True, eq=False)
class VirtualColumn(NoLiteral):
    """A column by name; comparisons with constants make conditions. ``C`` is the short name.

    Parameters
    ----------
    name : str
        Name of the column.

    Examples
    --------
    >>> C("COUNTRY_CODE") == "DE"
    EqualityCondition(column='COUNTRY_CODE', value='DE')
    >>> print((C("PRICE") >= 1.5) & C("BRAND").isin(["Acme", "Umbrella"]))
    (PRICE >= 1.5) & (BRAND in ('Acme', 'Umbrella'))
    """

    __slots__ = ("name",)
    REFUSAL: ClassVar[str] = "Cannot compare two columns."

    name: str

    # `==` returns a condition and not a truth value, so a column cannot be a dict key.
    __hash__: ClassVar[None] = None  # type: ignore[assignment]
    # Makes NumPy return NotImplemented for `numpy.int64(1) < C("x")`, so that `__gt__` is called.
    __array_ufunc__: ClassVar[None] = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", converter_str(self.name))

    def __reduce__(self) -> tuple[Any, ...]:
        return VirtualColumn, (self.name,)

    def __and__(self, other: object) -> Never:
        raise InvalidType(
            f"C({self.name!r}) stands beside `&` or `|`, which bind tighter than comparisons. "
            "Write brackets: `(C('x') == 1) & (C('y') == 2)`."
        )

    # `C("x") == 1 & C("y") == 2` calls `__rand__` with 1, since `&` binds tighter than `==`.
    __rand__ = __or__ = __ror__ = __and__

    def __eq__(self, other: object) -> EqualityCondition:  # type: ignore[override]
        return EqualityCondition(self.name, other)

    def __ne__(self, other: object) -> InequalityCondition:  # type: ignore[override]
        return InequalityCondition(self.name, other)

    def __lt__(self, other: object) -> LessThanCondition:
        return LessThanCondition(self.name, other)

    def __le__(self, other: object) -> LessEqualCondition:
        return LessEqualCondition(self.name, other)

    def __gt__(self, other: object) -> GreaterThanCondition:
        return GreaterThanCondition(self.name, other)

    def __ge__(self, other: object) -> GreaterEqualCondition:
        return GreaterEqualCondition(self.name, other)

    def isin(self, other: object) -> IsInCondition:
        """The column has one of these values.

        A single value needs no list. An empty list matches nothing.

        Examples
        --------
        >>> C("COUNTRY_CODE").isin(["DE", "FR"])
        IsInCondition(column='COUNTRY_CODE', value=('DE', 'FR'))
        """
        return IsInCondition(self.name, other)

    def isnotin(self, other: object) -> IsNotInCondition:
        """The column has none of these values: ``!=`` for each of them.

        A single value needs no list. An empty list matches all rows that ``!=`` can match.

        Examples
        --------
        >>> C("COUNTRY_CODE").isnotin(["DE", "FR"])
        IsNotInCondition(column='COUNTRY_CODE', value=('DE', 'FR'))
        """
        return IsNotInCondition(self.name, other)

    def in_interval(self, start: object = None, stop: object = None) -> InIntervalCondition:
        """The column is at least ``start`` and less than ``stop``; None leaves an end open.

        Examples
        --------
        >>> C("WEEK").in_interval(10, 20).predicate_part
        [('WEEK', '>=', 10), ('WEEK', '<', 20)]
        """
        return InIntervalCondition(self.name, start, stop)


C = VirtualColumn


def write_predicate_as_cube_condition(predicate: Sequence[Any]) -> Condition:
    """One ``(column, operator, value)`` predicate of a dataset as a condition.

    Raises
    ------
    InvalidInput
        If the predicate does not have three parts, or has an operator that conditions lack.
    InvalidType
        If the value is neither text nor number nor boolean nor date nor timestamp.

    Examples
    --------
    >>> write_predicate_as_cube_condition(("COUNTRY_CODE", "==", "DE"))
    EqualityCondition(column='COUNTRY_CODE', value='DE')
    """
    if len(predicate) != 3:
        raise InvalidInput(
            f"Please use predicates consisting of exactly 3 entries: (column, operator, value). Got {predicate!r}."
        )
    column, op, value = predicate
    value = converter_tuple(value) if op in ("in", "not in") else value
    for constant in value if isinstance(value, tuple) else (value,):
        if not isinstance(constant, (str, int, float, dt.date, Decimal, np.generic, pa.Scalar)):
            raise InvalidType(
                "A predicate takes str, int, float, Decimal, bool, date or timestamp, "
                f"got {constant!r} ({type(constant).__name__}) for column {column!r}."
            )
    return condition_class(op)(column, value)


def convert_predicates_to_cube_conditions(predicates: Sequence[Sequence[Sequence[Any]]]) -> tuple[Condition, ...]:
    """Dataset predicates without an *or*, i.e. with one inner list, as conditions.

    Raises
    ------
    InvalidInput
        If there is not exactly one inner list.

    Examples
    --------
    >>> convert_predicates_to_cube_conditions([[("WEEK", ">=", 10), ("WEEK", "<", 20)]])
    (GreaterEqualCondition(column='WEEK', value=10), LessThanCondition(column='WEEK', value=20))
    """
    if not isinstance(predicates, Sequence):
        raise InvalidType(f"Predicates are a list of lists of (column, operator, value), got {predicates!r}.")
    if len(predicates) != 1:
        raise InvalidInput(
            "Cube conditions cannot handle 'or' operators, so exactly one list of predicates is expected, "
            f"got {len(predicates)}."
        )
    return tuple(write_predicate_as_cube_condition(predicate) for predicate in predicates[0])

"""Filters of other engines as values, and the conditions that follow from them. Pure.

A filter has three truth values, as in SQL, and orders NaN above every number, as Polars and DuckDB
do. Conditions of this library know neither, so a filter *implies* conditions: every row that the
filter keeps satisfies them. Where both keep the same rows, the conditions are exact.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from kartothek_cube.core.expressions.predicates import Clause, Constants


@dataclass(frozen=True, slots=True)
class Comparison:
    """``column op value`` with one of ``== != < <= > >=``; unknown for null."""

    column: str
    op: str
    value: Any


@dataclass(frozen=True, slots=True)
class Membership:
    """The column has one of these values; unknown for null. Nulls among the values are left out."""

    column: str
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class NullTest:
    """The column is null. NaN is not null."""

    column: str


@dataclass(frozen=True, slots=True)
class Not:
    """The operand is false."""

    operand: Filter


@dataclass(frozen=True, slots=True)
class And:
    """All operands are true."""

    operands: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """One of the operands is true."""

    operands: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Unknown:
    """A filter that only its engine understands."""


Filter: TypeAlias = Comparison | Membership | NullTest | Not | And | Or | Unknown
"""Which rows an engine keeps: those for which it is true."""

Accepts: TypeAlias = Callable[[Clause], bool]
"""Whether a table takes a clause as a condition: its column, operator and constants."""


@dataclass(frozen=True, slots=True)
class Implied:
    """The clauses that follow from a filter; ``exact`` if they keep the same rows as it does."""

    clauses: tuple[Clause, ...] = ()
    exact: bool = False


def joined(joint: type[And | Or], operands: Iterable[Filter]) -> And | Or:
    """Several filters as one, which is flat: the operands of operands of its kind are its own.

    Examples
    --------
    >>> week, country = Comparison("WEEK", "<", 10), NullTest("COUNTRY_CODE")
    >>> joined(And, (And((week, country)), week)) == And((week, country, week))
    True
    """
    return joint(tuple(chain.from_iterable(o.operands if isinstance(o, joint) else (o,) for o in operands)))


_TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - naive, as columns without a zone


def moment(ticks: int, unit: str, zone: str | None) -> dt.datetime | np.datetime64 | None:
    """A number of ticks since the epoch as a constant; None if no constant is so exact.

    Examples
    --------
    >>> moment(86_400, "s", None)
    datetime.datetime(1970, 1, 2, 0, 0)
    """
    microseconds, rest = divmod(ticks * 10**6, _TICKS[unit])
    if rest:
        return np.datetime64(ticks, "ns") if zone is None else None
    naive = _EPOCH + dt.timedelta(microseconds=microseconds)
    return naive if zone is None else naive.replace(tzinfo=dt.UTC)


NOTHING = Implied()
_OPPOSITE = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


def conjuncts_of(condition: Filter) -> tuple[Filter, ...]:
    """The filters that all have to be true, with negations inside of them resolved.

    Examples
    --------
    >>> early, german = Comparison("WEEK", "<", 10), Comparison("COUNTRY_CODE", "==", "DE")
    >>> [(c.column, c.op) for c in conjuncts_of(Not(Or((early, german))))]
    [('WEEK', '>='), ('COUNTRY_CODE', '!=')]
    """
    plain = _without_negation(condition)
    return plain.operands if isinstance(plain, And) else (plain,)


def _without_negation(condition: Filter, *, negated: bool = False) -> Filter:
    """The same filter with `Not` only around memberships and null tests, and flat joints."""
    match condition:
        case Not(operand):
            return _without_negation(operand, negated=not negated)
        case And(operands) | Or(operands):
            joint = And if isinstance(condition, And) != negated else Or
            return joined(joint, (_without_negation(operand, negated=negated) for operand in operands))
        case Comparison(op=op):
            return replace(condition, op=_OPPOSITE[op]) if negated else condition
        case Unknown():
            return condition
    return Not(condition) if negated else condition


def implied_clauses(filters: Sequence[Filter], schema: pa.Schema, accepts: Accepts) -> list[Implied]:
    """The clauses that each of several filters implies, if all of them have to be true.

    Examples
    --------
    >>> import pyarrow as pa
    >>> schema = pa.schema([("WEEK", pa.int64()), ("PRICE", pa.float64())])
    >>> weeks = Or((Comparison("WEEK", "==", 1), Membership("WEEK", (2, 3))))
    >>> dear = Comparison("PRICE", ">", 2.0)  # NaN satisfies it here, and no condition
    >>> implied = implied_clauses([weeks, dear], schema, lambda clause: True)
    >>> [[clause.op for clause in each.clauses] for each in implied]
    [['in'], []]
    """
    try:
        split = [conjuncts_of(condition) for condition in filters]
        translator = _Translator(schema, accepts, frozenset(_columns_without_nan(chain.from_iterable(split))))
        return [_all_of([translator.implied(conjunct) for conjunct in conjuncts]) for conjuncts in split]
    except RecursionError:  # nothing is known of what is too deep
        return [NOTHING] * len(filters)


def _all_of(implied: Sequence[Implied]) -> Implied:
    return Implied(tuple(chain.from_iterable(i.clauses for i in implied)), all(i.exact for i in implied))


def _columns_without_nan(conjuncts: Iterable[Filter]) -> set[str]:
    """Columns in which NaN cannot satisfy all the conjuncts, whatever the others say."""
    return {
        c.column
        for c in conjuncts
        if isinstance(c, Membership) or (isinstance(c, Comparison) and c.op in ("==", "<", "<="))
    }


# --- the values that one column may have ----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Bound:
    """An end of a range; ``closed`` if the value itself belongs to it."""

    value: Any
    closed: bool


@dataclass(frozen=True, slots=True)
class Domain:
    """The values that a column may have: some points, or a range. Null is not among them.

    A range with an open upper end has NaN.
    """

    points: tuple[Any, ...] | None = None
    low: Bound | None = None
    high: Bound | None = None

    def __or__(self, other: Domain) -> Domain:
        if self.points is not None and other.points is not None:
            return Domain(tuple(dict.fromkeys((*self.points, *other.points))))
        left, right = self._as_range(), other._as_range()
        if left is None or right is None:
            return other if left is None else self
        return Domain(None, _outer(left.low, right.low, least=True), _outer(left.high, right.high, least=False))

    def __and__(self, other: Domain) -> Domain:
        # The narrower one of the two would do, too: what follows from one follows from both.
        if self.points is not None or other.points is not None:
            return self if self.points is not None else other
        return Domain(None, self.low or other.low, self.high or other.high)

    def _as_range(self) -> Domain | None:
        if self.points is None:
            return self
        if not self.points:
            return None
        return Domain(None, Bound(min(self.points), closed=True), Bound(max(self.points), closed=True))

    def clauses(self, column: str) -> tuple[Clause, ...]:
        """The same as clauses."""
        if self.points is not None:
            return (Clause(column, "in", Constants(self.points)),)
        ends = ((self.low, ">"), (self.high, "<"))
        return tuple(Clause(column, f"{op}=" if end.closed else op, end.value) for end, op in ends if end is not None)


def _outer(left: Bound | None, right: Bound | None, *, least: bool) -> Bound | None:
    if left is None or right is None:
        return None
    if left.value == right.value:
        return Bound(left.value, left.closed or right.closed)
    return left if (left.value < right.value) == least else right


_EVERYTHING = Domain()


@dataclass(frozen=True, slots=True)
class _Translator:
    """Translates filters on the columns of one table."""

    schema: pa.Schema
    accepts: Accepts
    without_nan: frozenset[str]

    def implied(self, condition: Filter) -> Implied:
        """The clauses that follow from one filter without negations."""
        match condition:
            case Comparison(column, op, value):
                # Conditions take a stored null as different from everything.
                return self._checked((Clause(column, op, value),), exact=op != "!=")
            case Membership(column, values):
                return self._checked((Clause(column, "in", Constants(values)),), exact=True)
            case NullTest(column) if not self._has_nan(column):
                return self._checked((Clause(column, "==", None),), exact=True)
            case Not(NullTest(column)) if not self._has_nan(column):
                return self._checked((Clause(column, "!=", None),), exact=True)
            case Not(Membership(column, values)):
                return self._checked((Clause(column, "not in", Constants(values)),), exact=False)
            case Or(operands):
                domains = reduce(_united, map(self._domains, operands))
                clauses = (clause for column, domain in domains.items() for clause in domain.clauses(column))
                checked = (self._checked((clause,), exact=True).clauses for clause in clauses)
                kept = tuple(clause for accepted in checked for clause in accepted)
                return Implied(kept, exact=len(kept) == 1 and _names_points(condition, kept[0].column))
        return NOTHING

    def _checked(self, clauses: tuple[Clause, ...], *, exact: bool) -> Implied:
        fitting = [self._fitted(clause) for clause in clauses]
        if None in fitting:
            return NOTHING
        return Implied(tuple(clause for clause in fitting if clause is not None), exact)

    def _fitted(self, clause: Clause) -> Clause | None:
        """The clause as the table takes it; None if it would drop rows that the engine keeps."""
        if clause.column not in self.schema.names:
            return None
        # Conditions have no lists, structs or maps; an engine may give their items as values.
        if clause.value is not None and pt.is_nested(self.schema.field(clause.column).type):
            return None
        # The engine keeps NaN, which is above all; conditions and statistics leave NaN out.
        if clause.op in (">", ">=") and self._has_nan(clause.column):
            return None
        if pt.is_floating(self.schema.field(clause.column).type):
            clause = replace(clause, value=_floats(clause.value))
        return clause if self.accepts(clause) else None

    def _has_nan(self, column: str) -> bool:
        if column not in self.schema.names or column in self.without_nan:
            return False
        return bool(pt.is_floating(self.schema.field(column).type))

    def _domains(self, condition: Filter) -> dict[str, Domain]:
        """What the filter says about each column that it restricts."""
        match condition:
            case Comparison(column, "==", value):
                return {column: Domain((value,))}
            case Comparison(column, "<" | "<=" as op, value):
                return {column: Domain(None, None, Bound(value, op == "<="))}
            case Comparison(column, ">" | ">=" as op, value):
                return {column: Domain(None, Bound(value, op == ">="))}
            case Membership(column, values):
                return {column: Domain(values)}
            case And(operands):
                inside = list(map(self._domains, operands))
                names = {column for domains in inside for column in domains}
                return {c: reduce(Domain.__and__, (d[c] for d in inside if c in d), _EVERYTHING) for c in sorted(names)}
            case Or(operands):
                return reduce(_united, map(self._domains, operands))
        return {}


def _united(left: dict[str, Domain], right: dict[str, Domain]) -> dict[str, Domain]:
    united = {column: _union(left[column], right[column]) for column in left if column in right}
    return {column: domain for column, domain in united.items() if domain is not None and domain != _EVERYTHING}


def _union(left: Domain, right: Domain) -> Domain | None:
    try:
        return left | right
    except TypeError:  # constants of two types, which have no order
        return None


def _names_points(condition: Or, column: str) -> bool:
    """Whether the filter does nothing but name values of one column."""
    return all(
        (isinstance(operand, Membership) and operand.column == column)
        or (isinstance(operand, Comparison) and operand.op == "==" and operand.column == column)
        or (isinstance(operand, Or) and _names_points(operand, column))
        for operand in condition.operands
    )


def _floats(value: Any) -> Any:
    """Integers, which engines compare with floats, as floats; those that are none exactly stay."""
    if isinstance(value, Constants):
        return Constants(map(_floats, value))
    is_exact = isinstance(value, int) and not isinstance(value, bool) and abs(value) <= 2**53
    return float(value) if is_exact else value

"""The filters of engines as one tree of comparisons, and the clauses that follow from it.

A filter has three truth values, as in SQL, and orders NaN above every number, as Polars, DuckDB and
Spark do. Predicates and conditions know neither, so a filter *implies* clauses: every row that the
filter keeps satisfies them. Where both keep the same rows, the clauses are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.types as pt
from msgspec import Struct
from msgspec.structs import replace

from kartothek_cube.core.expressions.literals import is_own_kind
from kartothek_cube.core.expressions.predicates import Clause, Constants, constants_of, is_null


class Not(Struct, frozen=True):
    """The operand is false."""

    operand: Filter


class And(Struct, frozen=True):
    """All operands are true."""

    operands: tuple[Filter, ...]


class Or(Struct, frozen=True):
    """One of the operands is true."""

    operands: tuple[Filter, ...]


class Unknown(Struct, frozen=True):
    """A filter that only its engine understands."""


Filter: TypeAlias = Clause | Not | And | Or | Unknown
"""Which rows an engine keeps: those for which it is true.

A clause of a filter is unknown for null, unless it compares with None: then it asks for null, which
NaN is not. ``in`` and ``not in`` have no nulls among their constants, and no constant is NaN.
"""

Accepts: TypeAlias = Callable[[Clause], bool]
"""Whether a table takes a clause as a condition: its column, operator and constants."""


def is_alike(clause: Clause, data_type: pa.DataType) -> bool:
    """Whether a clause compares with null, or with constants of the column's own kind."""
    return clause.value is None or all(not is_null(v) and is_own_kind(v, data_type) for v in constants_of(clause))


class Implied(Struct, frozen=True):
    """The clauses that follow from a filter; ``exact`` if they keep the same rows as it does."""

    clauses: tuple[Clause, ...] = ()
    exact: bool = False


def joined(joint: type[And | Or], operands: Iterable[Filter]) -> And | Or:
    """Several filters as one, which is flat: the operands of operands of its kind are its own.

    Examples
    --------
    >>> week, country = Clause("WEEK", "<", 10), Clause("COUNTRY_CODE", "==", None)
    >>> joined(And, (And((week, country)), week)) == And((week, country, week))
    True
    """
    return joint(tuple(chain.from_iterable(o.operands if isinstance(o, joint) else (o,) for o in operands)))


NOTHING = Implied()
_OPPOSITE = {"==": "!=", "<": ">=", ">": "<=", "in": "not in"}
_OPPOSITE |= {opposite: op for op, opposite in _OPPOSITE.items()}
_POINTS, _LOWER, _UPPER = ("==", "in"), (">", ">="), ("<", "<=")


def conjuncts_of(condition: Filter) -> tuple[Filter, ...]:
    """The filters that all have to be true, without negations.

    Examples
    --------
    >>> early, german = Clause("WEEK", "<", 10), Clause("COUNTRY_CODE", "==", "DE")
    >>> [(c.column, c.op) for c in conjuncts_of(Not(Or((early, german))))]
    [('WEEK', '>='), ('COUNTRY_CODE', '!=')]
    """
    plain = _without_negation(condition)
    return plain.operands if isinstance(plain, And) else (plain,)


def _without_negation(condition: Filter, *, negated: bool = False) -> Filter:
    """The same filter without `Not`, and with flat joints."""
    match condition:
        case Not(operand):
            return _without_negation(operand, negated=not negated)
        case And(operands) | Or(operands):
            joint = And if isinstance(condition, And) != negated else Or
            return joined(joint, (_without_negation(operand, negated=negated) for operand in operands))
        case Clause(op=op) if negated:
            return replace(condition, op=_OPPOSITE[op])
    return condition


def implied_clauses(filters: Sequence[Filter], schema: pa.Schema, accepts: Accepts) -> list[Implied]:
    """The clauses that each of several filters implies, if all of them have to be true.

    Examples
    --------
    >>> import pyarrow as pa
    >>> schema = pa.schema([("WEEK", pa.int64()), ("PRICE", pa.float64())])
    >>> weeks = Or((Clause("WEEK", "==", 1), Clause("WEEK", "in", (2, 3))))
    >>> dear = Clause("PRICE", ">", 2.0)  # NaN satisfies it here, and no condition
    >>> implied = implied_clauses([weeks, dear], schema, lambda clause: True)
    >>> [[clause.op for clause in each.clauses] for each in implied]
    [['in'], []]
    """
    try:
        split = [conjuncts_of(condition) for condition in filters]
        # NaN cannot satisfy these, whatever the other conjuncts say.
        clauses = (c for c in chain.from_iterable(split) if isinstance(c, Clause) and c.value is not None)
        translator = _Translator(schema, accepts, frozenset(c.column for c in clauses if c.op in (*_POINTS, *_UPPER)))
        implied = ([translator.implied(conjunct) for conjunct in conjuncts] for conjuncts in split)
        return [
            Implied(tuple(chain.from_iterable(i.clauses for i in each)), all(i.exact for i in each)) for each in implied
        ]
    except RecursionError:  # nothing is known of what is too deep
        return [NOTHING] * len(filters)


@dataclass(frozen=True, slots=True)
class _Translator:
    """Translates filters on the columns of one table."""

    schema: pa.Schema
    accepts: Accepts
    without_nan: frozenset[str]

    def implied(self, condition: Filter) -> Implied:
        """The clauses that follow from one filter without negations."""
        match condition:
            case Clause(column, op, value):
                # Clauses take a stored null as different from everything, and NaN as a null.
                exact = op not in ("!=", "not in") if value is not None else not self._has_nan(column)
                fitted = self._fitted(condition)
                return NOTHING if fitted is None else Implied((fitted,), exact)
            case Or(operands):
                clauses = chain.from_iterable(reduce(_either, map(_ranges_of, operands)).values())
                kept = tuple(fitted for clause in clauses if (fitted := self._fitted(clause)) is not None)
                return Implied(kept, exact=len(kept) == 1 and _names_points(condition, kept[0].column))
        return NOTHING

    def _fitted(self, clause: Clause) -> Clause | None:
        """The clause as the table takes it; None if it would drop rows that the engine keeps."""
        if clause.column not in self.schema.names:
            return None
        data_type = self.schema.field(clause.column).type
        # Conditions have no lists, structs or maps; an engine may give their items as values.
        if clause.value is not None and pt.is_nested(data_type):
            return None
        # The engine keeps NaN, which is above all; conditions and statistics leave NaN out.
        is_open = clause.op in _LOWER or (clause.op == "!=" and clause.value is None)
        if is_open and self._has_nan(clause.column):
            return None
        if pt.is_floating(data_type):
            clause = replace(clause, value=_floats(clause.value))
        return clause if self.accepts(clause) else None

    def _has_nan(self, column: str) -> bool:
        is_free = column not in self.schema.names or column in self.without_nan
        return not is_free and bool(pt.is_floating(self.schema.field(column).type))


def _names_points(condition: Filter, column: str) -> bool:
    """Whether the filter does nothing but name values of one column."""
    if isinstance(condition, Or):
        return all(_names_points(operand, column) for operand in condition.operands)
    return isinstance(condition, Clause) and condition.column == column and condition.op in _POINTS


def _floats(value: Any) -> Any:
    """Integers, which engines compare with floats, as floats; those that are none exactly stay."""
    if isinstance(value, tuple):
        return Constants(map(_floats, value))
    is_exact = isinstance(value, int) and not isinstance(value, bool) and abs(value) <= 2**53
    return float(value) if is_exact else value


# --- the values that a column may have: one `in`, or at most two ends of a range ------------------

_Range: TypeAlias = tuple[Clause, ...]


def _ranges_of(condition: Filter) -> Mapping[str, _Range]:
    """What a filter says about each column that it restricts to some values, or to a range."""
    match condition:
        case Clause(column, "==", value) if value is not None:
            return {column: (Clause(column, "in", Constants((value,))),)}
        case Clause(column, "in" | "<" | "<=" | ">" | ">="):
            return {column: (condition,)}
        case And(operands):
            inside = list(map(_ranges_of, operands))
            names = sorted({column for ranges in inside for column in ranges})
            return {column: _both(*(ranges[column] for ranges in inside if column in ranges)) for column in names}
        case Or(operands):
            return reduce(_either, map(_ranges_of, operands))
    return {}


def _both(*ranges: _Range) -> _Range:
    # The narrower one would do, too: what follows from one follows from all.
    clauses = list(chain.from_iterable(ranges))
    if points := [clause for clause in clauses if clause.op == "in"]:
        return (points[0],)
    return tuple(end for end in _ends(clauses) if end is not None)


def _either(left: Mapping[str, _Range], right: Mapping[str, _Range]) -> Mapping[str, _Range]:
    """What two filters say, if one of them is true."""
    united = {column: _union(left[column], right[column]) for column in left if column in right}
    return {column: clauses for column, clauses in united.items() if clauses}


def _union(left: _Range, right: _Range) -> _Range:
    """The values of either, or the range of both; nothing without an end."""
    if left[0].op == right[0].op == "in":
        return (replace(left[0], value=Constants(dict.fromkeys((*left[0].value, *right[0].value)))),)
    for empty, other in ((left, right), (right, left)):
        if empty[0].op == "in" and not empty[0].value:
            return other
    try:
        ends = zip(_ends(left), _ends(right), (min, max), strict=True)
        return tuple(outer for a, b, outermost in ends if (outer := _outer(a, b, outermost)) is not None)
    except TypeError:  # constants of two types, which have no order
        return ()


def _ends(clauses: Sequence[Clause]) -> Sequence[Clause | None]:
    """The lower and the upper end."""
    if clauses[0].op == "in":
        column, values = clauses[0].column, clauses[0].value
        return Clause(column, ">=", min(values)), Clause(column, "<=", max(values))
    return [next((clause for clause in clauses if clause.op in ops), None) for ops in (_LOWER, _UPPER)]


def _outer(left: Clause | None, right: Clause | None, outermost: Callable[[Any, Any], Any]) -> Clause | None:
    if left is None or right is None:
        return None
    if left.value == right.value:
        return left if left.op.endswith("=") else right
    return left if outermost(left.value, right.value) == left.value else right

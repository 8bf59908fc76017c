"""Expressions of Polars as filters.

Polars has no public way to look into an expression, so its JSON form is read. The form differs
between releases: what is not recognized is `Unknown`, and stays with Polars.
"""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeAlias

import numpy as np
import polars as pl
import pyarrow as pa

from kartothek_cube.engines.filters import And, Comparison, Filter, Membership, Not, NullTest, Or, Unknown, moment

__all__ = ["Conjunct", "split_predicate", "tree_of"]

Tree: TypeAlias = Mapping[str, Any]
"""A node of an expression in JSON: its kind, and what belongs to it."""

_OPERATORS = {"Eq": "==", "NotEq": "!=", "Lt": "<", "LtEq": "<=", "Gt": ">", "GtEq": ">="}
_TURNED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_JOINTS: dict[str, type[And | Or]] = {"And": And, "LogicalAnd": And, "Or": Or, "LogicalOr": Or}
# The operators of the lower and the upper end of `is_between`.
_ENDS = {"Both": (">=", "<="), "Left": (">=", "<"), "Right": (">", "<="), "None": (">", "<")}
_UNITS = {"Milliseconds": "ms", "Microseconds": "us", "Nanoseconds": "ns"}


class NoConstant(Exception):
    """The expression is no constant, or one that conditions cannot have."""


@dataclass(frozen=True, slots=True)
class Conjunct:
    """One of the expressions that all have to be true."""

    expression: pl.Expr

    @property
    def filter(self) -> Filter:
        """The expression as a filter."""
        tree = tree_of(self.expression)
        return Unknown() if tree is None else _filter(tree)


def split_predicate(predicate: pl.Expr) -> list[Conjunct]:
    """The conjuncts of a predicate.

    Examples
    --------
    >>> import polars as pl
    >>> [c.filter for c in split_predicate((pl.col("WEEK") > 9) & pl.col("BRAND").is_null())]
    [Comparison(column='WEEK', op='>', value=9), NullTest(column='BRAND')]
    """
    tree = tree_of(predicate) or {}
    node = tree.get("BinaryExpr")
    if node is not None and _JOINTS.get(node["op"]) is And:
        # Not from their JSON form, in which NaN is null.
        return [conjunct for part in reversed(predicate.meta.pop()) for conjunct in split_predicate(part)]
    # Where only the greatest rows count, Polars adds a hint that it cannot evaluate itself.
    return [] if "dynamic_pred" in str(tree.get("Display", "")) else [Conjunct(predicate)]


def tree_of(expression: pl.Expr) -> Tree | None:
    """The JSON form of an expression; None if it has none, as one with a function of Python."""
    try:
        tree: Tree = json.loads(expression.meta.serialize(format="json"))
    except (ValueError, pl.exceptions.PolarsError):
        return None
    return tree


def _filter(tree: Tree) -> Filter:
    """The filter of a node; `Unknown` for all that is not understood."""
    try:
        kind, node = next(iter(tree.items()))
        return _KINDS[kind](node) if kind in _KINDS else Unknown()
    except (NoConstant, LookupError, TypeError, ValueError, ArithmeticError, AttributeError):
        return Unknown()


def _binary(node: Tree) -> Filter:
    left, op, right = node["left"], node["op"], node["right"]
    if op in _JOINTS:
        return _JOINTS[op]((_filter(left), _filter(right)))
    if "Column" in left:
        return Comparison(left["Column"], _OPERATORS[op], _constant(right))
    return Comparison(right["Column"], _TURNED[_OPERATORS[op]], _constant(left))


def _function(node: Tree) -> Filter:
    name, inputs = node["function"]["Boolean"], node["input"]
    if name == "Not":
        return Not(_filter(inputs[0]))
    column = inputs[0]["Column"]
    match name:
        case "IsNull":
            return NullTest(column)
        case "IsNotNull":
            return Not(NullTest(column))
        case {"IsIn": {"nulls_equal": False}}:
            return Membership(column, _constants(inputs[1]))
        case {"IsBetween": {"closed": closed}}:
            bounds = zip(_ENDS[closed], inputs[1:], strict=True)
            return And(tuple(Comparison(column, op, _constant(bound)) for op, bound in bounds))
    return Unknown()


def _ternary(node: Tree) -> Filter:
    """``when(column.is_null()).then(None).otherwise(column.is_in(...))``: the IN of DuckDB."""
    otherwise = _filter(node["falsy"])
    is_null = _filter(node["predicate"])
    is_in = isinstance(otherwise, Membership) and is_null == NullTest(otherwise.column)
    return otherwise if is_in and _is_null_literal(node["truthy"]) else Unknown()


def _is_null_literal(tree: Tree) -> bool:
    literal = tree["Cast"]["expr"] if "Cast" in tree else tree
    return "Null" in json.dumps(literal["Literal"])


_KINDS: dict[str, Callable[[Any], Filter]] = {
    "BinaryExpr": _binary,
    "Function": _function,
    "Ternary": _ternary,
    # A column of truth values.
    "Column": lambda name: Comparison(name, "==", value=True),
}


# --- constants ------------------------------------------------------------------------------------


def _constant(tree: Tree) -> Any:
    """The value of a literal; raises `NoConstant` for nulls, NaN and unknown types."""
    literal = tree["Literal"]
    literal = literal.get("Scalar", literal.get("Dyn", literal))
    # Polars 1.30 tells the type of a scalar beside its value.
    literal = literal.get("value", literal)
    kind, value = next(iter(literal.items()))
    if value is None:  # also NaN and infinity
        raise NoConstant
    if kind in ("Float", "Float32", "Float64"):
        number = float(np.float32(value)) if kind == "Float32" else float(value)
        if not math.isfinite(number):
            raise NoConstant
        return number
    if kind.removeprefix("U").rstrip("0123456789") == "Int":
        return int(value)
    convert = _CONVERSIONS.get(kind)
    if convert is None:
        raise NoConstant
    return convert(value)


def _moment(value: Sequence[Any]) -> Any:
    ticks, unit, zone = value
    constant = moment(ticks, _UNITS[unit], zone)
    if constant is None:
        raise NoConstant
    return constant


_CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    "Boolean": bool,
    "String": str,
    "StringOwned": str,
    "Binary": bytes,
    "BinaryOwned": bytes,
    "Date": lambda days: dt.date(1970, 1, 1) + dt.timedelta(days=days),
    "Datetime": _moment,
    "DatetimeOwned": _moment,
    "Decimal": lambda value: Decimal(value[0]).scaleb(-value[-1]),
}


def _constants(tree: Tree) -> tuple[Any, ...]:
    """The values of a literal list, without nulls."""
    literal = tree["Literal"]
    literal = literal.get("Scalar", literal)
    literal = literal.get("value", literal)
    (content,) = (value for kind, value in literal.items() if kind in ("List", "Series"))
    values = pa.ipc.open_stream(bytes(content)).read_all().column(0).combine_chunks()
    while pa.types.is_list(values.type) or pa.types.is_large_list(values.type):
        values = values.flatten()
    if pa.types.is_timestamp(values.type) and values.type.unit == "ns":
        return tuple(np.array(values.drop_null()))
    constants = tuple(value for value in values.to_pylist() if value is not None)
    if any(constant != constant for constant in constants):  # noqa: PLR0124 - NaN
        raise NoConstant
    return constants

"""The tagged values of ``case.json`` as Python values, and the conditions and predicates that are
made of them.
"""

from __future__ import annotations

import datetime
import decimal
import functools
import operator
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from collections.abc import Callable

DECODERS: dict[str, Callable[[Any], Any]] = {
    "none": lambda _: None,
    "list": lambda items: [decode(item) for item in items],
    "tuple": lambda items: tuple(decode(item) for item in items),
    "set": lambda items: {decode(item) for item in items},
    "bool": bool,
    "int": int,
    "float": float,
    "str": str,
    "bytes": bytes.fromhex,
    "date": datetime.date.fromisoformat,
    "datetime": datetime.datetime.fromisoformat,
    "decimal": decimal.Decimal,
    "pd.Timestamp": pd.Timestamp,
    "np.datetime64": lambda text: np.datetime64(text, "ns"),
}

OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "isin": lambda column, values: column.isin(values),
}


def decode(tagged: dict[str, Any]) -> Any:
    """The Python value of ``{"t": tag, "v": value}``; a tag like ``np.int8`` names a scalar type of
    NumPy.
    """
    tag, value = tagged["t"], tagged.get("v")
    if tag in DECODERS:
        return DECODERS[tag](value)
    scalar = getattr(np, tag.removeprefix("np."))
    return scalar(float(value) if issubclass(scalar, np.floating) else value)


def decode_names(names: Any) -> Any:
    """Column names: a string, a list of strings, or a tagged container."""
    return decode(names) if isinstance(names, dict) else names


def build_condition(C: Any, spec: dict[str, Any]) -> Any:
    """One condition of the language ``C``."""
    column = C(spec["col"])
    if spec["op"] == "in_interval":
        return column.in_interval(**{key: decode(spec[key]) for key in ("start", "stop") if key in spec})
    return OPERATORS[spec["op"]](column, decode(spec["value"]))


def build_conditions(C: Any, spec: dict[str, Any] | None) -> Any:
    """``{"form": "and" | "list" | "tuple" | "single", "all": [condition, ...]}`` as ``query_cube``
    takes it.
    """
    parts = [build_condition(C, part) for part in spec["all"]] if spec else []
    form = spec.get("form", "and") if spec else "and"
    if form == "list":
        return parts
    if form == "tuple":
        return tuple(parts)
    return functools.reduce(operator.and_, parts) if parts else None


def build_predicates(spec: list[list[list[Any]]]) -> list[list[tuple[str, str, Any]]]:
    """Predicates in disjunctive normal form as ``read_table`` takes them."""
    return [[(column, op, decode(value)) for column, op, value in conjunction] for conjunction in spec]

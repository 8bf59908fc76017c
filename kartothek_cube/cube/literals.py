"""The values in conditions as text: reading them by the type of their column, and what an error says of one that is none. Pure."""

from __future__ import annotations

import ast
import datetime as dt
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from kartothek_cube.cube.converters import get_str_to_python_converter
from kartothek_cube.errors import InvalidInput

__all__ = ["read_literals"]

_JOINED = re.compile(r"(?:^|\s)(?:and|or|[|]+)\s", re.IGNORECASE)
_NULLS = frozenset({"null", "none", "nan", "na", "nat"})


def read_literals(words: Sequence[str], column: str, types: Mapping[str, pa.DataType], text: str, *, exact: bool) -> tuple[Any, ...]:
    """The values that words stand for.

    Parameters
    ----------
    words
        The words.
    column
        The column that is compared with them.
    types
        The type of every column.
    text
        The condition, for the error.
    exact
        Whether a word in quotes is exactly what Python would read.

    Raises
    ------
    InvalidInput
        If a word is no literal of the column's type, or texts have no values of it.

    Examples
    --------
    >>> read_literals(["10", "11"], "WEEK", {"WEEK": pa.int64()}, "WEEK in (10, 11)", exact=True)
    (10, 11)
    >>> read_literals(["2024-01-31"], "SALES_DATE", {"SALES_DATE": pa.date32()}, "SALES_DATE > 2024-01-31", exact=False)
    (datetime.date(2024, 1, 31),)
    """
    kind = types[column].value_type if pt.is_dictionary(types[column]) else types[column]
    read = _reader(kind, column)
    try:
        return tuple(_exact(word, read, kind) if exact and word[0] in "'\"" else read(word) for word in words)
    except (ValueError, SyntaxError) as error:
        raise InvalidInput(f'Condition "{text}": column {column} is {types[column]} and takes {_example(kind)}.{_because(words, types)}') from error


def _exact(quoted: str, read: Callable[[str], Any], kind: pa.DataType) -> Any:
    value = ast.literal_eval(quoted)
    return value if _is_text(kind) else read(value)


def _reader(kind: pa.DataType, column: str) -> Callable[[str], Any]:
    """What reads a value of a type: those of kartothek's texts, and dates."""
    if pt.is_date(kind):
        return _date
    try:
        return get_str_to_python_converter(pa.string() if _is_text(kind) else kind)
    except InvalidInput as error:
        raise InvalidInput(f'{error} of column "{column}": conditions as text are on texts, numbers, booleans, dates and times.') from error


def _is_text(kind: pa.DataType) -> bool:
    return bool(pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind))


def _date(text: str) -> dt.date:
    return dt.date.fromisoformat(text.strip("'\""))


def _example(kind: pa.DataType) -> str:
    """What a value of a type looks like."""
    if pt.is_boolean(kind):
        return "true or false"
    if pt.is_temporal(kind):
        return "a date such as 2024-01-31" if pt.is_date(kind) else "a time such as 2024-01-31 12:00"
    return "an integer" if pt.is_integer(kind) else "a number" if pt.is_floating(kind) else "a text"


def _because(words: Sequence[str], types: Mapping[str, pa.DataType]) -> str:
    """What may have been meant by words that are no values."""
    if any(word in types for word in words):
        return " A column is compared with a value, not with another column."
    if any(_JOINED.search(word) for word in words):
        return " Conditions are joined by &, and there is no or."
    return " Nothing can be compared with a null." if any(word.casefold() in _NULLS for word in words) else ""

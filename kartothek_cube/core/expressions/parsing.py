"""The text form of a comparison, and checks of its right-hand side. Pure."""

from __future__ import annotations

import ast
import datetime as dt
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.types as pt

from kartothek_cube.core.arguments import get_str_to_python_converter
from kartothek_cube.core.expressions.predicates import is_null
from kartothek_cube.core.text import did_you_mean, join_names
from kartothek_cube.errors import InvalidInput, InvalidType

__all__ = ["NoLiteral", "check_values", "parse_comparison", "read_literals"]

_JOINED = re.compile(r"(?:^|\s)(?:and|or|[|]+)\s", re.IGNORECASE)

_NULLS = frozenset({"null", "none", "nan", "na", "nat"})


def read_literals(
    words: Sequence[str], column: str, types: Mapping[str, pa.DataType], text: str, *, exact: bool
) -> tuple[Any, ...]:
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
        raise InvalidInput(
            f'Condition "{text}": column {column} is {types[column]} and takes {_example(kind)}.{_because(words, types)}'
        ) from error


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
        raise InvalidInput(
            f'{error} of column "{column}": conditions as text are on texts, numbers, booleans, dates and times.'
        ) from error


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


# A column may have spaces and brackets in its name, so that a list in which a text has a comparison
# looks like one: lists come first.
_COMPARISON = re.compile(r"\(?\s*([^\s!<>=](?:[^!<>=]*[^\s!<>=])?)\s*(==|=|<=|<|>=|>|!=)([^)=]+)\)?\s*")

# What stands between commas: text in quotes, as Python writes it, or anything else without quotes
# and brackets.
_ITEM = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^'"(),\s](?:[^'"(),]*[^'"(),\s])?"""

_LIST = re.compile(
    rf"\(?\s*([^\s!<>=](?:[^!<>=]*?[^\s!<>=])??)\s+(in|not\s+in)\s*\(((?:\s*(?:{_ITEM})\s*,)*\s*(?:{_ITEM})?\s*)\)\s*\)?\s*"
)


class NoLiteral:
    """Base of what a column cannot be compared with; ``REFUSAL`` says why."""

    __slots__ = ()
    REFUSAL: ClassVar[str]


def check_values(column: str, values: Sequence[Any]) -> None:
    """Refuse nulls, columns, conditions and containers as constants of a comparison."""
    wrong = next((value for value in values if isinstance(value, NoLiteral)), None)
    if any(_is_scalar(value) and is_null(value) for value in values):
        raise InvalidInput(
            f'Cannot use NULL-value to compare w/ column "{column}". Nothing can be compared with a null.'
        )
    if wrong is not None:
        raise InvalidType(f'{wrong.REFUSAL} Give column "{column}" a constant.')
    for value in values:
        if not _is_scalar(value):
            raise InvalidInput(
                f'Cannot compare column "{column}" with a {type(value).__name__}; for several values use C("{column}").isin(...).'
            )


def _is_scalar(value: object) -> bool:
    return isinstance(value, (str, bytes)) or not isinstance(value, (Iterable, NoLiteral))


def parse_comparison(text: str, types: Mapping[str, pa.DataType]) -> tuple[str, str, Any]:
    """Column, operator and value of a text such as ``PRICE >= 1.5`` or ``WEEK in (10, 11)``, bare or in brackets.

    Raises
    ------
    InvalidInput
        If the text is no comparison, the column is unknown, or the value is no literal of the
        column's type.

    Examples
    --------
    >>> import pyarrow as pa
    >>> parse_comparison("(PRICE >= 1.5)", {"PRICE": pa.float64()})
    ('PRICE', '>=', 1.5)
    >>> parse_comparison("COUNTRY_CODE not in ('DE', FR)", {"COUNTRY_CODE": pa.string()})
    ('COUNTRY_CODE', 'not in', ('DE', 'FR'))
    """
    match = _LIST.fullmatch(text.lstrip()) or _COMPARISON.fullmatch(text.lstrip())
    if match is None:
        raise InvalidInput(
            f'Cannot parse condition "{text}". Write COLUMN OPERATOR VALUE, with one of the operators == != < <= > >=, or COLUMN in (VALUE, VALUE), '
            "or not in; & joins conditions, and there is no or."
        )
    column, op, literal = match.groups()
    if column not in types:
        turned = (
            " The column stands on the left."
            if set(literal.split()[:1]) & set(types)
            else did_you_mean([column], types)
        )
        raise InvalidInput(f'Unknown column "{column}" in condition "{text}". Known are: {join_names(types)}.{turned}')
    several = op.endswith("in")
    words = re.findall(_ITEM, literal) if several else [literal.strip()]
    values = read_literals(words, column, types, text, exact=several)
    return column, "==" if op == "=" else " ".join(op.split()), values if several else values[0]

"""The text form of comparisons, and checks of their constants. Pure.

In order: the grammar of a comparison, the literals of its right-hand side, the constants in Python.
"""

from __future__ import annotations

import ast
import datetime as dt
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.types as pt

from kartothek_cube.core.arguments import did_you_mean, get_str_to_python_converter, join_names
from kartothek_cube.core.expressions.predicates import is_null
from kartothek_cube.errors import InvalidInput, InvalidType

__all__ = ["NoLiteral", "check_brackets", "check_values", "doubt_about", "parse_comparison", "read_literals"]

# Tried second: column names may have spaces and brackets, so a list with a comparison in one of its
# texts would match.
_COMPARISON = re.compile(r"\(?\s*([^\s!<>=](?:[^!<>=]*[^\s!<>=])?)\s*(==|=|<=|<|>=|>|!=)([^)=]+)\)?\s*")

# An item of a list: text in Python's quotes, or anything without quotes and brackets.
_ITEM = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^'"(),\s](?:[^'"(),]*[^'"(),\s])?"""

_LIST = re.compile(
    rf"\(?\s*([^\s!<>=](?:[^!<>=]*?[^\s!<>=])??)\s+(in|not\s+in)\s*\(((?:\s*(?:{_ITEM})\s*,)*\s*(?:{_ITEM})?\s*)\)\s*\)?\s*"
)

# Words that join conditions in SQL and Python, but not here.
_RULE = "conditions are joined by &, and there is no or"
_SECOND = re.compile(r"\s(?:and|or|[|]+)\s+(\S+?)\s*(?:[=!<>]|in\b|not\s+in\b)", re.IGNORECASE)
_JOINED = re.compile(r"(?:^|\s)(?:and|or|[|]+)\s", re.IGNORECASE)
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?")
_QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""")
# An operator, and a bracket in what follows it; "in (" has none.
_BRACKET_IN_VALUE = re.compile(r"[=<>][^=<>!&]*\(")
_NULLS = frozenset({"null", "none", "nan", "na", "nat"})


def parse_comparison(text: str, types: Mapping[str, pa.DataType]) -> tuple[str, str, Any]:
    """Column, operator and value of a text such as ``PRICE >= 1.5`` or ``WEEK in (10, 11)``.

    Brackets around it are optional.

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
            f'Cannot parse condition "{text}". Write COLUMN OPERATOR VALUE, with one of the operators '
            "== != < <= > >=, or COLUMN in (VALUE, VALUE), or not in; & joins conditions, and there is no or."
        )
    column, op, literal = match.groups()
    if column not in types:
        is_turned = bool(set(literal.split()[:1]) & set(types))
        hint = " The column stands on the left." if is_turned else did_you_mean([column], types)
        raise InvalidInput(f'Unknown column "{column}" in condition "{text}". Known are: {join_names(types)}.{hint}')
    is_list = op.endswith("in")
    words = re.findall(_ITEM, literal) if is_list else [literal.strip()]
    values = read_literals(words, column, types, text, exact=is_list)
    return column, "==" if op == "=" else " ".join(op.split()), values if is_list else values[0]


def read_literals(
    words: Sequence[str], column: str, types: Mapping[str, pa.DataType], text: str, *, exact: bool
) -> tuple[Any, ...]:
    """The values of words, read as literals of the column's type.

    Parameters
    ----------
    words
        The literals.
    column
        The column of the comparison.
    types
        The type of every column.
    text
        The condition, for the error.
    exact
        Whether a word in quotes is a literal of Python, with its escapes.

    Raises
    ------
    InvalidInput
        If a word is no literal of the column's type, or the type has no literals.

    Examples
    --------
    >>> read_literals(["10", "11"], "WEEK", {"WEEK": pa.int64()}, "WEEK in (10, 11)", exact=True)
    (10, 11)
    >>> types = {"SALES_DATE": pa.date32()}
    >>> read_literals(["2024-01-31"], "SALES_DATE", types, "SALES_DATE > 2024-01-31", exact=False)
    (datetime.date(2024, 1, 31),)
    """
    data_type = types[column].value_type if pt.is_dictionary(types[column]) else types[column]
    is_text = bool(pt.is_string(data_type) or pt.is_large_string(data_type) or pt.is_string_view(data_type))
    read = _reader(pa.string() if is_text else data_type, column)
    values = []
    try:
        for word in words:
            is_quoted = exact and word[0] in "'\""
            value = ast.literal_eval(word) if is_quoted else word
            values.append(value if is_quoted and is_text else read(value))
    except (ValueError, SyntaxError) as error:
        hint = " Nothing can be compared with a null." if any(word.casefold() in _NULLS for word in words) else ""
        if any(word in types for word in words):
            hint = " A column is compared with a value, not with another column."
        elif any(_JOINED.search(word) for word in words):
            hint = " Conditions are joined by &, and there is no or."
        raise InvalidInput(
            f'Condition "{text}": column {column} is {types[column]} and takes {_example(data_type)}.{hint}'
        ) from error
    return tuple(values)


def _reader(data_type: pa.DataType, column: str) -> Callable[[str], Any]:
    """The parser of one value: those of kartothek, and one for dates, which kartothek lacks."""
    if pt.is_date(data_type):
        return lambda text: dt.date.fromisoformat(text.strip("'\""))
    if pt.is_integer(data_type) or pt.is_decimal(data_type):
        return lambda text: _number(text, data_type)
    try:
        convert = get_str_to_python_converter(data_type)
    except InvalidInput as error:
        raise InvalidInput(
            f'{error} of column "{column}": conditions as text are on texts, numbers, booleans, dates and times.'
        ) from error
    if pt.is_floating(data_type):  # a double does not hold every integer
        return lambda text: int(text) if re.fullmatch(r"[+-]?\d+", text) else convert(text)
    return convert


def _number(text: str, data_type: pa.DataType) -> int | Decimal:
    with suppress(ValueError):
        if pt.is_integer(data_type):
            return int(text)
    # Integers are compared with other numbers, too, and a float would round the digits.
    if not _NUMBER.fullmatch(text):
        raise ValueError(text)
    return Decimal(text)


def _example(data_type: pa.DataType) -> str:
    """A literal of a type, for errors."""
    if pt.is_boolean(data_type):
        return "true or false"
    if pt.is_temporal(data_type):
        return "a date such as 2024-01-31" if pt.is_date(data_type) else "a time such as 2024-01-31 12:00"
    is_number = pt.is_integer(data_type) or pt.is_floating(data_type) or pt.is_decimal(data_type)
    return "a number" if is_number else "a text"


def check_brackets(text: str) -> None:
    """Refuse conditions in which a bracket may be of a value: those around them are optional.

    Raises
    ------
    InvalidInput
        If brackets without quotes do not come in pairs, or one opens within a value.
    """
    unquoted = _QUOTED.sub("", text)
    if unquoted.count("(") != unquoted.count(")") or _BRACKET_IN_VALUE.search(unquoted):
        raise InvalidInput(
            f'Condition "{text.strip()}": brackets in a value are ambiguous. Write the value in quotes, in a list: '
            "NAME in ('Food (frozen)')."
        )


def doubt_about(value: object, text: str, columns: Collection[str]) -> str | None:
    """Why a text may not be meant as a value of the condition; None: there is no doubt."""
    if isinstance(value, dt.date):  # pandas reads 01.02.2024 as a day of January, 13.02.2024 as one of February
        is_iso = value.isoformat()[:10] in text
        return None if is_iso else "a moment is written as 2024-01-31, 2024-01-31 12:00 or 2024-01-31T12:00:00+01:00"
    if not isinstance(value, str):
        return None
    quote = next((quote for quote in "'\"" if f"{quote}{value}{quote}" in text), None)
    if quote is not None:
        is_ended = re.search(rf"{quote}\s*(?:,|[|&]|(?:and|or)\s)", value, re.IGNORECASE)
        return f"{_RULE}, and several values are in (...)" if is_ended else None
    if value.startswith(("<", ">", "=", "!")):
        return "the operators are == != < <= > >=; a text that begins so stands in quotes"
    if value.casefold() == "null" or value == "None":
        doubt = "nothing can be compared with a null"
    elif value in columns:
        doubt = "a column is compared with a value, not with another column"
    elif (joined := _SECOND.search(value)) is not None and joined[1] in columns:
        doubt = _RULE
    else:
        return None
    return f"{doubt}. For the text, write {value!r} in quotes"


class NoLiteral:
    """Base of objects that a column cannot be compared with; ``REFUSAL`` says why."""

    __slots__ = ()
    REFUSAL: ClassVar[str]


def check_values(column: str, values: Sequence[Any]) -> None:
    """Raise for nulls, columns, conditions and containers as constants of a comparison."""
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
                f'Cannot compare column "{column}" with a {type(value).__name__}; '
                f'for several values use C("{column}").isin(...).'
            )


def _is_scalar(value: object) -> bool:
    return isinstance(value, (str, bytes)) or not isinstance(value, (Iterable, NoLiteral))

"""Pure checks of what may stand right of a comparison, and the text form of one comparison."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow.types as pt

from kartothek_cube.core.predicates import is_null
from kartothek_cube.cube.converters import get_str_to_python_converter
from kartothek_cube.errors import InvalidInput, InvalidType

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

__all__ = ["NotAValue", "check_values", "parse_comparison"]

_COMPARISON = re.compile(r"\(?\s*([^\s!<>=]+)\s*(==|=|<=|<|>=|>|!=)([^)=]+)\)?\s*")
# What stands between commas: text in quotes, as Python writes it, or anything else without quotes and brackets.
_ITEM = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^'"(),\s](?:[^'"(),]*[^'"(),\s])?"""
_LIST = re.compile(rf"\(?\s*([^\s!<>=]+)\s+(in|not\s+in)\s*\(((?:\s*(?:{_ITEM})\s*,)*\s*(?:{_ITEM})?\s*)\)\s*\)?\s*")


class NotAValue:
    """Base of what a column cannot be compared with; ``REFUSAL`` says why."""

    __slots__ = ()
    REFUSAL: ClassVar[str]


def check_values(column: str, values: Sequence[Any]) -> None:
    """Refuse nulls, columns, conditions and containers as constants of a comparison."""
    wrong = next((value for value in values if isinstance(value, NotAValue)), None)
    if any(_is_scalar(value) and is_null(value) for value in values):
        raise InvalidInput(f'Cannot use NULL-value to compare w/ column "{column}". A null matches no condition.')
    if wrong is not None:
        raise InvalidType(f'{wrong.REFUSAL} Give column "{column}" a constant.')
    for value in values:
        if not _is_scalar(value):
            raise InvalidInput(f'Cannot compare column "{column}" with a {type(value).__name__}; for several values use C("{column}").isin(...).')


def _is_scalar(value: object) -> bool:
    return isinstance(value, (str, bytes)) or not isinstance(value, (Iterable, NotAValue))


def parse_comparison(text: str, types: Mapping[str, pa.DataType]) -> tuple[str, str, Any]:
    """Column, operator and value of a text such as ``PRICE >= 1.5`` or ``WEEK in (10, 11)``, bare or in brackets.

    Raises
    ------
    InvalidInput
        If the text is no comparison, or the column is unknown.
    ValueError
        If the value is no literal of the column's type.

    Examples
    --------
    >>> import pyarrow as pa
    >>> parse_comparison("(PRICE >= 1.5)", {"PRICE": pa.float64()})
    ('PRICE', '>=', 1.5)
    >>> parse_comparison("COUNTRY_CODE not in ('DE', FR)", {"COUNTRY_CODE": pa.string()})
    ('COUNTRY_CODE', 'not in', ('DE', 'FR'))
    """
    match = _COMPARISON.fullmatch(text.lstrip()) or _LIST.fullmatch(text.lstrip())
    if match is None:
        raise InvalidInput(
            f'Cannot parse condition "{text}". Write COLUMN OPERATOR VALUE, with one of the operators == != < <= > >=, or COLUMN in (VALUE, VALUE), or not in.'
        )
    column, op, literal = match.groups()
    if column not in types:
        raise InvalidInput(f'Unknown column "{column}" in condition "{text}". Known are: {", ".join(sorted(types))}.')
    read = get_str_to_python_converter(types[column])
    if op.endswith("in"):
        return column, " ".join(op.split()), tuple(_item(item, read, types[column]) for item in re.findall(_ITEM, literal))
    return column, "==" if op == "=" else op, read(literal.strip())


def _item(text: str, read: Callable[[str], Any], kind: pa.DataType) -> Any:
    """One value of a list; a text in quotes is exactly what Python would read."""
    if text[0] not in "'\"":
        return read(text)
    value = ast.literal_eval(text)
    return value if pt.is_string(kind) else read(value)

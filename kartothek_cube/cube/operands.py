"""Pure checks of what may stand right of a comparison, and the text form of one comparison."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

from kartothek_cube.core.naming import listed, meant
from kartothek_cube.core.predicates import is_null
from kartothek_cube.cube.literals import read_literals
from kartothek_cube.errors import InvalidInput, InvalidType

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

__all__ = ["NotAValue", "check_values", "parse_comparison"]

# A column may have spaces and brackets in its name, so that a list in which a text has a comparison looks like one: lists come first.
_COMPARISON = re.compile(r"\(?\s*([^\s!<>=](?:[^!<>=]*[^\s!<>=])?)\s*(==|=|<=|<|>=|>|!=)([^)=]+)\)?\s*")
# What stands between commas: text in quotes, as Python writes it, or anything else without quotes and brackets.
_ITEM = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^'"(),\s](?:[^'"(),]*[^'"(),\s])?"""
_LIST = re.compile(rf"\(?\s*([^\s!<>=](?:[^!<>=]*?[^\s!<>=])??)\s+(in|not\s+in)\s*\(((?:\s*(?:{_ITEM})\s*,)*\s*(?:{_ITEM})?\s*)\)\s*\)?\s*")


class NotAValue:
    """Base of what a column cannot be compared with; ``REFUSAL`` says why."""

    __slots__ = ()
    REFUSAL: ClassVar[str]


def check_values(column: str, values: Sequence[Any]) -> None:
    """Refuse nulls, columns, conditions and containers as constants of a comparison."""
    wrong = next((value for value in values if isinstance(value, NotAValue)), None)
    if any(_is_scalar(value) and is_null(value) for value in values):
        raise InvalidInput(f'Cannot use NULL-value to compare w/ column "{column}". Nothing can be compared with a null.')
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
        If the text is no comparison, the column is unknown, or the value is no literal of the column's type.

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
        turned = " The column stands on the left." if set(literal.split()[:1]) & set(types) else meant([column], types)
        raise InvalidInput(f'Unknown column "{column}" in condition "{text}". Known are: {listed(types)}.{turned}')
    several = op.endswith("in")
    words = re.findall(_ITEM, literal) if several else [literal.strip()]
    values = read_literals(words, column, types, text, exact=several)
    return column, "==" if op == "=" else " ".join(op.split()), values if several else values[0]

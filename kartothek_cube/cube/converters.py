"""Pure conversions of loosely typed arguments: text, sets and tuples of text, text literals of an Arrow type."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa

from kartothek_cube.errors import InvalidInput, InvalidType

__all__ = [
    "converter_str",
    "converter_str_set",
    "converter_str_set_optional",
    "converter_str_tupleset",
    "converter_tuple",
    "get_str_to_python_converter",
]

_BOOLEANS = dict.fromkeys(("0", "f", "n", "false", "no"), False) | dict.fromkeys(("1", "t", "y", "true", "yes"), True)


def converter_str(obj: object) -> str:
    """Text as it is, bytes decoded as UTF-8.

    Raises
    ------
    InvalidType
        For anything else, also None.

    Examples
    --------
    >>> converter_str(b"COUNTRY_CODE")
    'COUNTRY_CODE'
    """
    if isinstance(obj, str):
        return obj
    if isinstance(obj, bytes):
        return obj.decode("utf-8")
    raise InvalidType(f"Object of type {type(obj).__name__} is not a string: {obj}")


def converter_tuple(obj: object) -> tuple[Any, ...]:
    """The items of an iterable, nothing for None, one item for anything else; text and bytes are one item.

    Examples
    --------
    >>> converter_tuple(None), converter_tuple("DE"), converter_tuple(["DE", "FR"])
    ((), ('DE',), ('DE', 'FR'))
    """
    if obj is None:
        return ()
    if isinstance(obj, Iterable) and not isinstance(obj, (str, bytes)):
        return tuple(obj)
    return (obj,)


def converter_str_set(obj: object) -> frozenset[str]:
    """A set of texts from one text or several; None is the empty set.

    Examples
    --------
    >>> converter_str_set(["PRODUCT_ID", b"PRODUCT_ID"])
    frozenset({'PRODUCT_ID'})
    """
    return frozenset(converter_str(item) for item in converter_tuple(obj))


def converter_str_set_optional(obj: object) -> frozenset[str] | None:
    """As `converter_str_set`, but None stays None.

    Examples
    --------
    >>> converter_str_set_optional(None) is None
    True
    """
    return None if obj is None else converter_str_set(obj)


def converter_str_tupleset(obj: object) -> tuple[str, ...]:
    """Distinct texts in a given order, from one text or several; None is the empty tuple.

    Raises
    ------
    InvalidType
        For a set or a dict, which do not say an order, and for items that are not text.
    InvalidInput
        For duplicates.

    Examples
    --------
    >>> converter_str_tupleset(["COUNTRY_CODE", "SALES_DATE"])
    ('COUNTRY_CODE', 'SALES_DATE')
    """
    if isinstance(obj, (dict, set, frozenset)):
        raise InvalidType(f"{obj} which has type {type(obj).__name__} has an unstable iteration order, give a list or a tuple")
    texts = tuple(converter_str(item) for item in converter_tuple(obj))
    if len(set(texts)) < len(texts):
        raise InvalidInput(f"Tuple-set contains duplicates: {', '.join(texts)}")
    return texts


def get_str_to_python_converter(pa_type: pa.DataType) -> Callable[[str], Any]:
    """The parser of text literals for columns of one Arrow type: boolean, integer, floating, string or timestamp.

    Raises
    ------
    InvalidInput
        For every other type. The parsers raise `ValueError` for text that is no literal of the type.

    Examples
    --------
    >>> get_str_to_python_converter(pa.int32())("42")
    42
    >>> get_str_to_python_converter(pa.string())("'New York'")
    'New York'
    """
    for holds, parse in _PARSERS:
        if holds(pa_type):
            return parse
    raise InvalidInput(f"Cannot handle type {pa_type}")


def _parse_bool(text: str) -> bool:
    try:
        return _BOOLEANS[text.lower()]
    except KeyError:
        raise InvalidInput(f"Cannot parse bool: {text}") from None


def _parse_string(text: str) -> str:
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "\"'"
    return text[1:-1] if quoted else text


def _parse_timestamp(text: str) -> Any:
    import pandas as pd

    return pd.Timestamp(text)


_PARSERS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[str], Any]], ...] = (
    (pa.types.is_boolean, _parse_bool),
    (pa.types.is_floating, float),
    (pa.types.is_integer, int),
    (pa.types.is_string, _parse_string),
    (pa.types.is_timestamp, _parse_timestamp),
)

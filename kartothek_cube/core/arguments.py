"""Arguments of the verbs in one form, and the wording of messages.

In order:

- arguments: lists, sets of names, flags, deprecated names
- text: shortened keys, joined names, counts with their noun, spelling suggestions
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable
from types import FrameType
from typing import TYPE_CHECKING, Any

from kartothek_cube.errors import InvalidInput, InvalidType, KartothekCubeDeprecationWarning

if TYPE_CHECKING:
    import pyarrow as pa

_BOOLEANS = dict.fromkeys(("0", "f", "n", "false", "no"), False) | dict.fromkeys(("1", "t", "y", "true", "yes"), True)


def converter_str(obj: object) -> str:
    """A text unchanged, or bytes decoded as UTF-8.

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
    """The items of an iterable, none for None; anything else, also a text, is one item.

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
        For a set or a dict, which have no stable order, and for items that are not text.
    InvalidInput
        For duplicates.

    Examples
    --------
    >>> converter_str_tupleset(["COUNTRY_CODE", "SALES_DATE"])
    ('COUNTRY_CODE', 'SALES_DATE')
    """
    if isinstance(obj, (dict, set, frozenset)):
        raise InvalidType(
            f"{obj} which has type {type(obj).__name__} has an unstable iteration order, give a list or a tuple"
        )
    texts = tuple(converter_str(item) for item in converter_tuple(obj))
    if len(set(texts)) < len(texts):
        raise InvalidInput(f"Tuple-set contains duplicates: {', '.join(texts)}")
    return texts


def get_str_to_python_converter(pa_type: pa.DataType) -> Callable[[str], Any]:
    """The parser of text literals of an Arrow type: boolean, integer, float, string or timestamp.

    Raises
    ------
    InvalidInput
        For every other type. The parsers raise `ValueError` for invalid literals.

    Examples
    --------
    >>> import pyarrow as pa
    >>> get_str_to_python_converter(pa.int32())("42")
    42
    >>> get_str_to_python_converter(pa.string())("'New York'")
    'New York'
    """
    import pyarrow.types as pt  # commands that import this module for its texts start without Arrow

    parsers: tuple[tuple[Callable[[pa.DataType], bool], Callable[[str], Any]], ...] = (
        (pt.is_boolean, _parse_bool),
        (pt.is_floating, float),
        (pt.is_integer, int),
        (pt.is_string, _parse_string),
        (pt.is_timestamp, _parse_timestamp),
    )
    for has_type, parse in parsers:
        if has_type(pa_type):
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


def as_list(value: object, argument: str) -> list[Any]:
    """The items of a list argument: none for None, one for a scalar.

    Raises
    ------
    InvalidInput
        For a set or a dict, which have no order or another meaning.
    """
    if value is None:
        return []
    if isinstance(value, (set, frozenset, dict)):
        raise InvalidInput(
            f"The argument {argument} is a list; {type(value).__name__} is incompatible for normalisation: {value!r}"
        )
    if isinstance(value, (str, bytes, int, float)) or not isinstance(value, Iterable):
        return [value]
    return list(value)


def check_flag(value: object, argument: str) -> bool:
    """The value of an argument that must be True or False.

    Raises
    ------
    InvalidType
        If it is anything else.
    """
    # Truth values are not accepted: `"no"` is true, and a misplaced argument would pass unnoticed.
    if not isinstance(value, bool):
        import numpy as np

        if isinstance(value, np.bool_):
            return bool(value)
        raise InvalidType(f"The argument {argument} is True or False, not {value!r}.")
    return value


def warn_deprecated(what: str, *, use: str, removal: str) -> None:
    """Warn that something is deprecated, at the line outside of this package that led here.

    Parameters
    ----------
    what : str
        The deprecated function, argument or value, as the user writes it.
    use : str
        The replacement.
    removal : str
        The version that removes it.

    Examples
    --------
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     warn_deprecated("compress=", use="compression=", removal="2.0")
    >>> print(caught[0].message)
    compress= is deprecated and will be removed in version 2.0. Use compression= instead.
    """
    # Python before 3.12 has no `skip_file_prefixes`. Level 1 is this function, level 2 its caller.
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - `inspect.stack` reads the source of every frame
    level = 2
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "kartothek_cube":
        frame, level = frame.f_back, level + 1
    warnings.warn(
        f"{what} is deprecated and will be removed in version {removal}. Use {use} instead.",
        KartothekCubeDeprecationWarning,
        stacklevel=level,
    )


# --- text -----------------------------------------------------------------------------------------


_LISTED_NAMES = 12


def shortened(text: str, length: int) -> str:
    """Cut a text to a length, with an ellipsis in the middle: both ends of a key carry meaning.

    Examples
    --------
    >>> shortened("STORE_GROUP=MAIN", 11)
    'STORE…=MAIN'
    """
    if len(text) <= length:
        return text
    tail = (length - 1) // 2
    return f"{text[: length - 1 - tail]}…{text[len(text) - tail :]}"


def pluralize(n: int, noun: str) -> str:
    """A count with its noun, in the regular plural unless the count is 1.

    Examples
    --------
    >>> pluralize(1, "file"), pluralize(1200, "file")
    ('1 file', '1,200 files')
    """
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def column_name(name: object) -> str:
    """The name of a column as text; bytes are decoded as UTF-8.

    Raises
    ------
    InvalidInput
        If the bytes are not UTF-8.

    Examples
    --------
    >>> column_name(b"UNITS"), column_name(2024)
    ('UNITS', '2024')
    """
    try:
        return name.decode("utf-8") if isinstance(name, bytes) else str(name)
    except UnicodeDecodeError:
        raise InvalidInput(f"The name of a column is text, in bytes as UTF-8, not {name!r}.") from None


def join_names(names: Iterable[str]) -> str:
    """Names in an error message: sorted, the first 12 and how many there are.

    Examples
    --------
    >>> join_names(["UNITS", "PRICE"]), join_names([])
    ('PRICE, UNITS', 'none')
    >>> join_names(f"F{i:03}" for i in range(300))
    'F000, F001, F002, F003, F004, F005, F006, F007, F008, F009, F010, F011, … (300 in all)'
    """
    ordered = sorted(names)
    more = f", … ({len(ordered):,} in all)" if len(ordered) > _LISTED_NAMES else ""
    return f"{', '.join(ordered[:_LISTED_NAMES]) or 'none'}{more}"


def did_you_mean(unknown: Iterable[str], known: Iterable[str]) -> str:
    """The end of an error about unknown names: similar names that exist, whatever their case.

    Examples
    --------
    >>> did_you_mean(["BRADN"], ["BRAND", "PRICE"]), did_you_mean(["brand"], ["BRAND", "PRICE"])
    (" Did you mean 'BRAND'?", " Did you mean 'BRAND'?")
    >>> did_you_mean(["WEEK"], ["BRAND"])
    ''
    """
    from difflib import get_close_matches

    names = {name.casefold(): name for name in known}
    matches = (get_close_matches(name.casefold(), names, n=1) for name in unknown)
    close = dict.fromkeys(repr(names[match[0]]) for match in matches if match)
    return f" Did you mean {', '.join(close)}?" if close else ""


def drop_or_fill(columns: Iterable[str]) -> str:
    """The end of an error about nulls in columns that may have none: what is to be done.

    Examples
    --------
    >>> drop_or_fill(["BRAND"])
    "Drop these rows, as pandas' df.dropna(subset=['BRAND']) does, or fill them."
    """
    return f"Drop these rows, as pandas' df.dropna(subset={list(columns)}) does, or fill them."

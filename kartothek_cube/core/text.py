"""Text for messages: shortened keys, joined names, counts with their noun, spelling suggestions."""

from __future__ import annotations

from collections.abc import Iterable

from kartothek_cube.errors import InvalidInput

__all__ = ["column_name", "did_you_mean", "drop_or_fill", "join_names", "pluralize", "shortened"]

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

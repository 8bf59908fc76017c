"""Text for people: names joined, numbers with their noun, the name that was probably meant."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from kartothek_cube.errors import InvalidInput

__all__ = ["column_name", "did_you_mean", "join_names", "pluralize", "shortened"]


def shortened(text: str, length: int) -> str:
    """Text of at most so many characters; what is left out shows as an ellipsis in the middle, as both ends of a key say something.

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
    """So many things, whose plural is regular.

    Examples
    --------
    >>> counted(1, "file"), counted(1200, "file")
    ('1 file', '1,200 files')
    """
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


_MOST_LISTED = 12


def column_name(name: Any) -> str:
    """The name of a column as text, of bytes in UTF-8 or anything else that has a text.

    Raises
    ------
    InvalidInput
        If the bytes are no text.

    Examples
    --------
    >>> column_name(b"UNITS"), column_name(2024)
    ('UNITS', '2024')
    """
    try:
        return name.decode("utf-8") if isinstance(name, bytes) else str(name)
    except UnicodeDecodeError:
        raise InvalidInput(f"The name of a column is text, in bytes as UTF-8, not {name!r}.") from None


# --- what an error says of names ----------------------------------------------------------------------------------------


def join_names(names: Iterable[str]) -> str:
    """The names that there are, sorted; of many the first ones.

    Examples
    --------
    >>> listed(["UNITS", "PRICE"]), listed([])
    ('PRICE, UNITS', 'none')
    >>> listed(f"FEATURE_{i:03}" for i in range(300)).removeprefix("FEATURE_000, FEATURE_001, FEATURE_002, FEATURE_003, ")
    'FEATURE_004, FEATURE_005, FEATURE_006, FEATURE_007, FEATURE_008, FEATURE_009, FEATURE_010, FEATURE_011, … (300 in all)'
    """
    found = sorted(names)
    more = f", … ({len(found):,} in all)" if len(found) > _MOST_LISTED else ""
    return f"{', '.join(found[:_MOST_LISTED]) or 'none'}{more}"


def did_you_mean(unknown: Iterable[str], known: Iterable[str]) -> str:
    """The end of an error that a name is unknown: the names that are close to it, whatever their case; nothing if there are none.

    Examples
    --------
    >>> meant(["BRADN"], ["BRAND", "PRICE"]), meant(["brand"], ["BRAND", "PRICE"]), meant(["WEEK"], ["BRAND"])
    (" Did you mean 'BRAND'?", " Did you mean 'BRAND'?", '')
    """
    names = {name.casefold(): name for name in known}
    close = dict.fromkeys(
        repr(names[found[0]]) for name in unknown if (found := get_close_matches(name.casefold(), names, n=1))
    )
    return f" Did you mean {', '.join(close)}?" if close else ""

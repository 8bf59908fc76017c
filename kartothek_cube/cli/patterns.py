"""Comma separated globs that choose datasets and columns. Pure."""

from __future__ import annotations

from collections.abc import Collection
from fnmatch import fnmatchcase

from kartothek_cube.cli.failures import Failure

__all__ = ["chosen", "is_glob", "matches", "missing", "parts_of"]


def missing(what: str, name: str, known: Collection[str]) -> Failure:
    """The error that a name, or a pattern, stands for nothing."""
    return Failure(f"Could not find {what} {name}, known {what}s are {', '.join(sorted(known)) or 'none'}")


def parts_of(pattern: str) -> list[str]:
    """The parts of a pattern, without the blanks around them."""
    return [part.strip() for part in pattern.split(",")]


def is_glob(part: str) -> bool:
    """Whether a part may stand for several names."""
    return any(character in part for character in "*?[")


def matches(pattern: str, names: Collection[str], what: str) -> set[str]:
    """The names that a pattern matches.

    Parameters
    ----------
    pattern
        Comma separated globs with ``*``, ``?`` and ``[a-z]``.
    names
        What there is.
    what
        What the names are, for the error.

    Raises
    ------
    Failure
        If a part matches nothing.

    Examples
    --------
    >>> sorted(matches("seed, price*", ["prices", "seed", "stock"], "dataset"))
    ['prices', 'seed']
    """
    found: set[str] = set()
    for part in parts_of(pattern):
        own = {name for name in names if fnmatchcase(name, part)}
        if not own:
            raise missing(what, part, names)
        found |= own
    return found


def chosen(names: Collection[str], include: str | None, exclude: str | None, what: str = "dataset") -> list[str]:
    """The included names, by default all, without the excluded ones, sorted.

    Examples
    --------
    >>> chosen(["prices", "seed", "stock"], "*s*", "stock")
    ['prices', 'seed']
    """
    included = set(names) if include is None else matches(include, names, what)
    excluded = set() if exclude is None else matches(exclude, names, what)
    return sorted(included - excluded)

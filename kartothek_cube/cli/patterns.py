"""Comma separated globs that choose datasets and columns."""

from __future__ import annotations

from collections.abc import Collection
from fnmatch import fnmatchcase

import click

from kartothek_cube.cli.failures import Failure

__all__ = ["chosen", "chosen_datasets", "is_glob", "matches", "missing", "parts_of"]


def missing(what: str, name: str, known: Collection[str]) -> Failure:
    """The error that a name, or a pattern, stands for nothing.

    Examples
    --------
    >>> print(missing("column", "units", ["PRICE", "UNITS"]).message)
    Could not find column units, known columns are PRICE, UNITS. Did you mean 'UNITS'?
    """
    from kartothek_cube.core.naming import listed, meant

    close = "" if is_glob(name) else meant([name], known)
    return Failure(f"Could not find {what} {name or repr(name)}, known {what}s are {listed(known)}{close and f'.{close}'}")


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


def chosen_datasets(names: Collection[str], include: str | None, exclude: str | None) -> list[str]:
    """As `chosen`, for what changes a store: that nothing is left to do is said on stderr."""
    found = chosen(names, include, exclude)
    if not found:
        click.echo("No dataset is left by --include and --exclude: nothing is done.", err=True)
    return found

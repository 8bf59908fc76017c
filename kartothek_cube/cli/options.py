"""Options that several commands share, and comma-separated globs for datasets and columns."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Any, TypeVar

import click

from kartothek_cube.cli import completion
from kartothek_cube.cli.context import Session
from kartothek_cube.cli.errors import Failure

__all__ = [
    "Duration",
    "StoreCommand",
    "as_of",
    "chosen",
    "chosen_datasets",
    "cube_command",
    "dry_run",
    "is_glob",
    "matches",
    "missing",
    "parts_of",
    "patterns",
    "yes",
]


def missing(what: str, name: str, known: Collection[str]) -> Failure:
    """The error that a name, or a pattern, stands for nothing.

    Examples
    --------
    >>> print(missing("column", "units", ["PRICE", "UNITS"]).message)
    Could not find column units, known columns are PRICE, UNITS. Did you mean 'UNITS'?
    """
    from kartothek_cube.core.text import did_you_mean, join_names

    close = "" if is_glob(name) else did_you_mean([name], known)
    return Failure(
        f"Could not find {what} {name or repr(name)}, known {what}s are {join_names(known)}{close and f'.{close}'}"
    )


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


F = TypeVar("F", bound=Callable[..., Any])

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd]?)")

FORMATS = click.Choice(["text", "json"])


class StoreCommand(click.Command):
    """A command with ``--format``, which may also stand in front of it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.append(
            click.Option(
                ["--format"],
                type=FORMATS,
                expose_value=False,
                callback=_set_format,
                help="Text, or one JSON document on stdout.  [default: text]",
            )
        )


def _set_format(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None and isinstance(ctx.obj, Session):
        ctx.obj = replace(ctx.obj, format=value)


def cube_command(name: str, *examples: str) -> Callable[[Callable[..., Any]], click.Command]:
    """A command; its help is the docstring, and examples of what stands behind the cube."""
    epilog = (
        "\n".join(
            ["\b", "Examples:", *(f"  kartothek_cube sales {name}{example and ' '}{example}" for example in examples)]
        )
        if examples
        else None
    )
    return click.command(
        name, cls=StoreCommand, epilog=epilog, context_settings={"help_option_names": ["-h", "--help"]}
    )


class Duration(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """A time span such as ``90s``, ``12h``, ``7d``, or ``0``."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        """Parse the text."""
        found = _DURATION.fullmatch(str(value).strip())
        if isinstance(value, timedelta) or found is None or not (found[2] or float(found[1]) == 0):
            return (
                value
                if isinstance(value, timedelta)
                else self.fail(f"{value!r} is no duration; write 90s, 15m, 12h, 7d or 0.", param, ctx)
            )
        return timedelta(seconds=float(found[1]) * _UNITS[found[2] or "s"])


def patterns(verb: str) -> Callable[[F], F]:
    """``--include`` and ``--exclude``."""

    def decorate(function: F) -> F:
        for name, text in (
            ("--exclude", f"Datasets that are not to be {verb}, in the same form."),
            ("--include", f"Datasets to be {verb}: comma separated globs."),
        ):
            click.option(name, metavar="<patterns>", shell_complete=completion.datasets, help=text)(function)
        return function

    return decorate


def dry_run(text: str = "Only say what would be done.") -> Callable[[F], F]:
    """``--dry-run``."""
    return click.option("--dry-run", is_flag=True, help=text)


def yes(function: F) -> F:
    """``--yes``."""
    return click.option("-y", "--yes", is_flag=True, help="Do not ask. Without a terminal there is no question.")(
        function
    )


def as_of(function: F) -> F:
    """``--as-of``."""
    return click.option(
        "--as-of",
        metavar="<commit or time>",
        help="The cube as it was then: a commit, or how its id begins (`history` lists them), or a time such as 2024-01-31T12:00.",
    )(function)

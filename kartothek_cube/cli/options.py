"""Options that several commands share: globs for datasets and columns, and a query as text."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import timedelta
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kartothek_cube.cli.context import (
    Failure,
    LoadedCube,
    Session,
    complete_columns,
    complete_commits,
    complete_datasets,
    complete_partition_columns,
    known_commit,
    missing,
    whole_commit,
)
from kartothek_cube.errors import one_line

if TYPE_CHECKING:
    from kartothek_cube.api.cube import Conjunction, QueryPlan


F = TypeVar("F", bound=Callable[..., Any])

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd]?)")
FORMATS = click.Choice(["text", "json"])


def parts_of(pattern: str) -> list[str]:
    """The parts of a pattern, without the blanks around them."""
    return [part.strip() for part in pattern.split(",")]


def matches(pattern: str, names: Collection[str], what: str) -> set[str]:
    """The names that a pattern matches.

    Parameters
    ----------
    pattern
        Comma separated globs with ``*``, ``?`` and ``[a-z]``.
    names
        The existing names.
    what
        The noun for a name in the error.

    Raises
    ------
    Failure
        If a part matches nothing.

    Examples
    --------
    >>> sorted(matches("seed, price*", ["prices", "seed", "stock"], "dataset"))
    ['prices', 'seed']
    """
    matching: set[str] = set()
    for part in parts_of(pattern):
        of_part = {name for name in names if fnmatchcase(name, part)}
        if not of_part:
            raise missing(what, part, names)
        matching |= of_part
    return matching


def select_names(names: Collection[str], include: str | None, exclude: str | None, what: str = "dataset") -> list[str]:
    """The included names, by default all, without the excluded ones, sorted.

    Examples
    --------
    >>> select_names(["prices", "seed", "stock"], "*s*", "stock")
    ['prices', 'seed']
    """
    included = set(names) if include is None else matches(include, names, what)
    excluded = set() if exclude is None else matches(exclude, names, what)
    return sorted(included - excluded)


def chosen_datasets(names: Collection[str], include: str | None, exclude: str | None) -> list[str]:
    """As `select_names`, for commands that change a store; notes on stderr if none is left."""
    datasets = select_names(names, include, exclude)
    if not datasets:
        click.echo("No dataset is left by --include and --exclude: nothing is done.", err=True)
    return datasets


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


def cube_command(name: str, *examples: str, front: str = "sales") -> Callable[[Callable[..., Any]], click.Command]:
    """A command; its help is the docstring, and examples of the arguments behind it.

    In the examples ``front``, the cube, stands in front of the command.
    """
    calls = [f"  kartothek_cube {front and front + ' '}{name}{example and ' '}{example}" for example in examples]
    # The backspace keeps click from reflowing the lines.
    epilog = "\n".join(["\b", "Examples:", *calls]) if examples else None
    settings = {"help_option_names": ["-h", "--help"]}
    return click.command(name, cls=StoreCommand, epilog=epilog, context_settings=settings)


class Duration(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """A time span such as ``90s``, ``12h``, ``7d``, or ``0``."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        """Parse the text."""
        if isinstance(value, timedelta):  # click converts defaults, too
            return value
        match = _DURATION.fullmatch(str(value).strip())
        if match is None or not (match[2] or float(match[1]) == 0):
            self.fail(f"{value!r} is no duration; write 90s, 15m, 12h, 7d or 0.", param, ctx)
        return timedelta(seconds=float(match[1]) * _UNITS[match[2] or "s"])


def patterns(verb: str) -> Callable[[F], F]:
    """``--include`` and ``--exclude``."""

    def decorate(function: F) -> F:
        for name, text in (
            ("--exclude", f"Datasets that are not to be {verb}, in the same form."),
            ("--include", f"Datasets to be {verb}: comma separated globs."),
        ):
            click.option(name, metavar="<patterns>", shell_complete=complete_datasets, help=text)(function)
        return function

    return decorate


def dry_run(text: str = "Only say what would be done.") -> Callable[[F], F]:
    """``--dry-run``."""
    return click.option("--dry-run", is_flag=True, help=text)


def yes(function: F) -> F:
    """``--yes``."""
    text = "Do not ask. Without a terminal there is no question."
    return click.option("-y", "--yes", is_flag=True, help=text)(function)


def as_of(function: F) -> F:
    """``--as-of``."""
    text = (
        "The cube as it was then: a tag (`tag` lists them), a commit, or how its id begins (`history` lists them), "
        "or a time such as 2024-01-31T12:00."
    )
    return click.option("--as-of", metavar="<tag, commit or time>", shell_complete=complete_commits, help=text)(
        function
    )


# --- a query as text ----------------------------------------------------------------------------


# Stands for all payload columns.
ALL = "__all__"


def where(function: F) -> F:
    """``--where``."""
    text = "Conditions, e.g. 'COUNTRY_CODE == DE & UNITS > 3'; what is given several times has to hold together."
    option = click.option("--where", multiple=True, metavar="<conditions>", shell_complete=complete_columns, help=text)
    return option(function)


def columns(function: F) -> F:
    """``--columns``."""
    text = "Payload columns: comma separated globs; an empty text for none.  [default: all]"
    return click.option("--columns", metavar="<patterns>", shell_complete=complete_columns, help=text)(function)


def question(function: F) -> F:
    """``--where``, ``--columns``, ``--by`` and ``--as-of``."""
    by = "Indexed columns: the result comes group by group."
    by_option = click.option("--by", metavar="<columns>", shell_complete=complete_partition_columns, help=by)
    return where(columns(by_option(as_of(function))))


def conditions_of(texts: tuple[str, ...], loaded: LoadedCube) -> Conjunction:
    """The conditions of all texts together.

    Raises
    ------
    Failure
        If a text is no condition on a column of the cube.
    """
    from kartothek_cube.core.expressions.conditions import Conjunction, conditions_in

    try:
        parsed = [conditions_in(text, loaded.types) for text in texts]
    except ValueError as error:
        raise Failure(f"Could not parse conditions: {one_line(error)}") from error
    return Conjunction([condition for conjunction in parsed for condition in conjunction.conditions])


def payload_names(loaded: LoadedCube) -> list[str]:
    """All payload columns of a cube, sorted."""
    from kartothek_cube.cube.verbs.describe import get_cube_payload

    return sorted(get_cube_payload(loaded.datasets, loaded.cube))


def payload_of(pattern: str | None, loaded: LoadedCube) -> list[str] | None:
    """The payload columns that a pattern names; None for all."""
    if pattern is None or pattern.strip() == ALL:
        return None
    payload = payload_names(loaded)
    # Dimension and partition columns are in every result, so a pattern may name them.
    always = {*loaded.cube.dimension_columns, *loaded.cube.partition_columns}
    return sorted(matches(pattern, {*payload, *always}, "column") - always) if pattern.strip() else []


def groups_of(text: str | None) -> list[str]:
    """The columns to group by."""
    return [part for part in parts_of(text or "") if part]


def plan_of(
    loaded: LoadedCube, where: tuple[str, ...], columns: str | None, by: str | None, as_of: str | None
) -> QueryPlan:
    """The plan of a query."""
    from kartothek_cube.cube.verbs.read import plan_cube_query

    conditions, payload = conditions_of(where, loaded), payload_of(columns, loaded)
    as_of = whole_commit(as_of, partial(known_commit, loaded))
    return plan_cube_query(
        loaded.cube, loaded.store, conditions, None, None, groups_of(by) or None, payload, as_of=as_of
    )

"""Options that several commands share, and the kind of command that has them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeVar

import click

from kartothek_cube.cli import completion
from kartothek_cube.cli.session import Session

__all__ = ["Duration", "StoreCommand", "as_of", "cube_command", "dry_run", "patterns", "yes"]

F = TypeVar("F", bound=Callable[..., Any])

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd]?)")
FORMATS = click.Choice(["text", "json"])


class StoreCommand(click.Command):
    """A command with ``--format``, which may also stand in front of it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.append(
            click.Option(["--format"], type=FORMATS, expose_value=False, callback=_set_format, help="Text, or one JSON document on stdout.  [default: text]")
        )


def _set_format(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None and isinstance(ctx.obj, Session):
        ctx.obj = replace(ctx.obj, format=value)


def cube_command(name: str, *examples: str) -> Callable[[Callable[..., Any]], click.Command]:
    """A command; its help is the docstring, and examples of what stands behind the cube."""
    epilog = "\n".join(["\b", "Examples:", *(f"  kartothek_cube sales {name}{example and ' '}{example}" for example in examples)]) if examples else None
    return click.command(name, cls=StoreCommand, epilog=epilog, context_settings={"help_option_names": ["-h", "--help"]})


class Duration(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """A time span such as ``90s``, ``12h``, ``7d``, or ``0``."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        """Parse the text."""
        found = _DURATION.fullmatch(str(value).strip())
        if isinstance(value, timedelta) or found is None or not (found[2] or float(found[1]) == 0):
            return value if isinstance(value, timedelta) else self.fail(f"{value!r} is no duration; write 90s, 15m, 12h, 7d or 0.", param, ctx)
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
    return click.option("-y", "--yes", is_flag=True, help="Do not ask. Without a terminal there is no question.")(function)


def as_of(function: F) -> F:
    """``--as-of``."""
    return click.option(
        "--as-of",
        metavar="<commit or time>",
        help="The cube as it was then: a commit, or how its id begins (`history` lists them), or a time such as 2024-01-31T12:00.",
    )(function)

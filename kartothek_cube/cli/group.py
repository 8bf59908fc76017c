"""The group of commands: each lies in a module of its own, which is loaded when it is called."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from importlib import import_module
from typing import Any

import click

from kartothek_cube.cli.completion import STORE_WIDE
from kartothek_cube.cli.failures import explained

__all__ = ["BARE", "COMMANDS", "LazyGroup", "meant_command"]

COMMANDS: Mapping[str, str] = {
    "check-migration": "Say what of a store of kartothek reads differently here.",
    "cleanup": "Remove files that the cube does not need any more.",
    "compact": "Merge small files into larger ones.",
    "copy": "Copy the cube to another store.",
    "delete": "Delete the cube, or some of its datasets.",
    "explain": "Show how a query would be answered.",
    "files": "List the data files of the cube, or of a query.",
    "history": "List the commits that can be read or undone.",
    "index": "Build secondary indices on columns of a dataset.",
    "info": "Show columns with their types, datasets and metadata.",
    "query": "Query the cube: interactively, or into a file.",
    "rename": "Give the cube, or one of its datasets, another name.",
    "report": "Write what there is to see of the cube as one HTML page.",
    "stats": "Count partitions, files, bytes and rows of each dataset.",
    "undo": "Take a commit back.",
    "verify": "Say what is wrong with the cube.",
}
"""Command → the first line of its help. So the list of commands loads none of them."""


def meant_command(name: str, known: Collection[str] = COMMANDS) -> str:
    """The end of the error that there is no such command."""
    from kartothek_cube.core.naming import meant

    return meant([name], known)


BARE = "kartothek_cube.bare"
"""Where a context remembers that there was no argument at all."""


class LazyGroup(click.Group):
    """A group whose commands are the modules beside this one."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of the commands."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name, loaded now."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"kartothek_cube.cli.{cmd_name.replace('-', '_')}").command
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is called; the error that there is none names those whose names are close."""
        name = args[0]
        if name not in COMMANDS and not name.startswith("-") and not ctx.resilient_parsing:
            raise click.UsageError(f"No such command {name!r}.{meant_command(name)}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, without loading them."""
        with formatter.section("Commands"):
            formatter.write_dl(sorted(COMMANDS.items()))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Commands that need no cube may stand in its place."""
        ctx.meta[BARE] = not args
        opts, rest, _ = self.make_parser(ctx).parse_args(args=list(args))
        cube, alone, wants_help = opts.get("cube"), not rest or rest[0].startswith("-"), not {"-h", "--help"}.isdisjoint(rest[:1])
        if (cube in STORE_WIDE and alone) or (cube in COMMANDS and wants_help):
            args.insert(len(args) - len(rest) - 1, "")
        elif cube in COMMANDS and not ctx.resilient_parsing and not set(COMMANDS).intersection(rest[:1]):
            raise click.UsageError(f"{cube} is a command: the cube stands in front of it, as in {ctx.info_name} CUBE {cube}.", ctx)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; errors become one line."""
        with explained():
            return super().invoke(ctx)

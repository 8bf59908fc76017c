"""The group of commands: each lies in a module of its own, which is loaded when it is called."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

from kartothek_cube.cli.completion import STORE_WIDE
from kartothek_cube.cli.failures import explained

__all__ = ["BARE", "COMMANDS", "LazyGroup"]

COMMANDS: Mapping[str, str] = {
    "check-migration": "What of a store of kartothek reads equally here, differently, or not at all.",
    "cleanup": "Remove non-required files from store.",
    "compact": "Merge small files into larger ones.",
    "copy": "Copy cube from one store to another.",
    "delete": "Delete cube from store.",
    "explain": "Show how a query would be answered.",
    "files": "List the data files of the cube, or of a query.",
    "history": "List the commits that can be read or undone.",
    "index": "Build index for given columns.",
    "info": "Show certain infos about the cube.",
    "query": "Query the cube: interactively, or into a file.",
    "rename": "Give the cube, or one of its datasets, another name.",
    "report": "Write what there is to see of the cube as one HTML page.",
    "stats": "Collect technical statistic from cube.",
    "undo": "Take a commit back.",
    "verify": "Say what is wrong with the cube.",
}
"""Command → the first line of its help. So the list of commands loads none of them."""


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

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, without loading them."""
        with formatter.section("Commands"):
            formatter.write_dl(sorted(COMMANDS.items()))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Commands that need no cube may stand in its place."""
        ctx.meta[BARE] = not args
        opts, rest, _ = self.make_parser(ctx).parse_args(args=list(args))
        if opts.get("cube") in STORE_WIDE and (not rest or rest[0].startswith("-")):
            args.insert(len(args) - len(rest) - 1, "")
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; errors become one line."""
        with explained():
            return super().invoke(ctx)

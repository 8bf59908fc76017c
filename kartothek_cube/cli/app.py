"""The group of commands: its options, and its commands, each loaded when it is called."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from kartothek_cube import __version__
from kartothek_cube.cli.context import (
    STORE_WIDE,
    Session,
    complete_cubes,
    complete_directories,
    complete_files,
    complete_stores,
    explained,
)
from kartothek_cube.cli.options import FORMATS

# Command → first line of its help, so that the list of commands loads none of them. Help and
# completion import in 0.05 s; the verbs, which import Arrow, take 0.8 s or more.
COMMANDS: Mapping[str, str] = {
    "append": "Add the rows of files to the seed, and to other datasets.",
    "build": "Build the cube from files.",
    "changes": "Count what came, went or changed since a commit or a time.",
    "check-migration": "Report which kartothek data reads differently here.",
    "cleanup": "Remove files that the cube does not need any more.",
    "compact": "Merge small files into larger ones.",
    "copy": "Copy the cube to another store.",
    "delete": "Delete the cube, or some of its datasets.",
    "delete-rows": "Delete the cells that a query would have.",
    "demo": "Build a small cube, query it, and write its report.",
    "doctor": "Say whether this machine and the store are ready.",
    "explain": "Show how a query would be answered.",
    "extend": "Add a new DATASET to the cube, from files.",
    "files": "List the data files of the cube, or of a query.",
    "forget": "Delete cells, and every file and state that still has them.",
    "history": "List the writes to the cube, or the commits of one DATASET.",
    "index": "Build secondary indices on columns of a dataset.",
    "info": "Show columns with their types, datasets and metadata.",
    "merge": "Merge the rows of files into a dataset, by key.",
    "publish": "Make Delta tables of the cube's datasets, for other engines.",
    "query": "Query the cube: interactively, or into a file.",
    "rename": "Give the cube, or one of its datasets, another name.",
    "report": "Write what there is to see of the cube as one HTML page.",
    "sql": "Run SQL over the cubes of the store, once or at a prompt.",
    "stats": "Count partitions, files, bytes and rows of each dataset.",
    "tag": "Name a state of the cube, which keeps it; list or drop names.",
    "undo": "Take a write to the cube back, or a commit of one DATASET.",
    "unpublish": "Remove the logs of the cube's Delta tables; the data stay.",
    "verify": "Say what is wrong with the cube.",
}
# The modules of the commands.
_MODULES = {
    command: module
    for module, commands in {
        "copy": "copy delete forget rename",
        "history": "changes history tag undo",
        "load": "append build extend",
        "maintain": "check_migration cleanup compact index publish unpublish verify",
        "query": "query sql",
        "rows": "delete_rows merge",
        "show": "explain files info report stats",
        "start": "demo doctor",
    }.items()
    for command in commands.split()
}
# The key of `Context.meta` that says whether there were no arguments.
BARE = "kartothek_cube.bare"


def _suggestion(name: str, known: Collection[str]) -> str:
    from kartothek_cube.core.arguments import did_you_mean

    return did_you_mean([name], known)


class LazyGroup(click.Group):
    """A group whose commands are in the modules of `commands`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of the commands."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of a command."""
        if cmd_name not in COMMANDS:
            return None
        # Each command imports what it needs, so that `--help` is as fast as its own imports.
        name = cmd_name.replace("-", "_")
        command: click.Command = getattr(
            import_module(f"kartothek_cube.cli.commands.{_MODULES[name]}"), f"{name}_command"
        )
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The called command; the error for an unknown one suggests similar names."""
        name = args[0]
        # Shell completion parses lines that are incomplete: these are no errors.
        if name not in COMMANDS and not name.startswith("-") and not ctx.resilient_parsing:
            similar = _suggestion(name, COMMANDS) or _suggestion(ctx.params.get("cube") or "", STORE_WIDE)
            raise click.UsageError(f"No such command {name!r}.{similar}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, without loading them."""
        with formatter.section("Commands"):
            formatter.write_dl(sorted(COMMANDS.items()))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert an empty cube where a command without a cube stands in its place."""
        ctx.meta[BARE] = not args
        # For click the first argument is the cube, so look ahead with a copy of the arguments.
        opts, rest, _ = self.make_parser(ctx).parse_args(args=list(args))
        cube = opts.get("cube")
        # What follows `sql` is its statement, unless a cube has this name: `sql info`. So is it
        # with the directory that follows `demo`.
        alone = not rest or rest[0].startswith("-") or (cube in {"demo", "sql"} and rest[0] not in COMMANDS)
        wants_help = not {"-h", "--help"}.isdisjoint(rest[:1])
        if (cube in STORE_WIDE and alone) or (cube in COMMANDS and wants_help):
            args.insert(len(args) - len(rest) - 1, "")
        elif cube in COMMANDS and not ctx.resilient_parsing and not set(COMMANDS).intersection(rest[:1]):
            raise click.UsageError(
                f"{cube} is a command: the cube stands in front of it, as in {ctx.info_name} CUBE {cube}.", ctx
            )
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; an error becomes one line."""
        with explained():
            return super().invoke(ctx)


_EPILOG = """\b
Examples:
  kartothek_cube --url /data/cubes
  kartothek_cube --url /data/cubes sales info
  kartothek_cube --url /data/cubes sales query --where 'WEEK >= 10' --limit 5
  kartothek_cube --url /data/cubes sql 'FROM sales LIMIT 5'
  kartothek_cube query --help

\b
Exit status:
  0  it is done
  1  Ctrl-C or a no, the store does not answer, a file cannot be written;
     verify, check-migration and doctor: something is wrong
  2  what was asked for cannot be done
"""

_COLOURS = {"always": True, "off": False, "auto": None}


@click.group(
    name="cli",
    cls=LazyGroup,
    invoke_without_command=True,
    no_args_is_help=False,
    subcommand_metavar="COMMAND [ARGS]...",
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--skv",
    metavar="FILE",
    default="skv.yml",
    show_default=True,
    envvar="KARTOTHEK_CUBE_SKV",
    show_envvar=True,
    shell_complete=complete_files,
    help="YAML file with stores by name.",
)
@click.option(
    "--store",
    metavar="NAME",
    default="dataset",
    show_default=True,
    envvar="KARTOTHEK_CUBE_STORE",
    show_envvar=True,
    shell_complete=complete_stores,
    help="Name of the store in that file.",
)
@click.option(
    "--url",
    metavar="URL",
    envvar="KARTOTHEK_CUBE_URL",
    show_envvar=True,
    shell_complete=complete_directories,
    help="The store itself: a URL such as hfs:///data or s3://bucket/prefix, or a directory.",
)
@click.option(
    "-j",
    "--n_threads",
    metavar="N",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Threads; 0 is as many as suit the store.",
)
@click.option(
    "--color",
    type=click.Choice(["always", "auto", "off"]),
    default="auto",
    show_default=True,
    help="Colours and bold type; `auto` heeds NO_COLOR.",
)
@click.option(
    "--format", "format_", type=FORMATS, default="text", show_default=True, help="Text, or one JSON document on stdout."
)
@click.version_option(__version__, prog_name="kartothek_cube")
@click.argument("cube", metavar="CUBE", required=False, shell_complete=complete_cubes)
@click.pass_context
def cli(
    ctx: click.Context,
    skv: str,
    store: str,
    url: str | None,
    n_threads: int,
    color: str,
    format_: str,
    cube: str | None,
) -> None:
    """Look at a cube, query it, and look after it.

    CUBE is the prefix of its datasets. Without a cube the cubes of the store are listed.
    """
    ctx.color = False if color == "auto" and os.environ.get("NO_COLOR") else _COLOURS[color]
    from_command_line = click.core.ParameterSource.COMMANDLINE
    if ctx.get_parameter_source("store") is from_command_line:
        if ctx.get_parameter_source("url") is from_command_line:
            ctx.fail("Give --store or --url, not both.")
        url = None  # of the environment: the command line wins
    session = ctx.obj = Session(skv, store, url, cube or None, n_threads, format_)
    if ctx.invoked_subcommand is not None:
        return
    if cube:
        ctx.fail(f"Missing command.{_suggestion(cube, STORE_WIDE)}")
    if ctx.meta[BARE] and session.url is None and not Path(session.skv).exists():
        click.echo(ctx.get_help())
        return
    from kartothek_cube.cli.commands.show import show_cubes

    show_cubes(session)

"""The command itself: the options in front of the commands, and the list of the cubes where none is named."""

from __future__ import annotations

import os
from pathlib import Path

import click

from kartothek_cube import __version__
from kartothek_cube.cli import completion
from kartothek_cube.cli.completion import STORE_WIDE
from kartothek_cube.cli.group import BARE, LazyGroup, meant_command
from kartothek_cube.cli.parameters import FORMATS
from kartothek_cube.cli.session import Session

__all__ = ["cli"]

_EPILOG = """\b
Examples:
  kartothek_cube --url /data/cubes
  kartothek_cube --url /data/cubes sales info
  kartothek_cube --url /data/cubes sales query --where 'WEEK >= 10' --limit 5
  kartothek_cube query --help

\b
Exit status:
  0  it is done
  1  Ctrl-C or a no, the store does not answer, a file cannot be written;
     verify and check-migration: errors were found
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
    shell_complete=completion.files,
    help="YAML file with stores by name.",
)
@click.option(
    "--store",
    metavar="NAME",
    default="dataset",
    show_default=True,
    envvar="KARTOTHEK_CUBE_STORE",
    show_envvar=True,
    shell_complete=completion.stores,
    help="Name of the store in that file.",
)
@click.option(
    "--url",
    metavar="URL",
    envvar="KARTOTHEK_CUBE_URL",
    show_envvar=True,
    shell_complete=completion.directories,
    help="The store itself: a URL such as hfs:///data or s3://bucket/prefix, or a directory.",
)
@click.option("-j", "--n_threads", metavar="N", type=click.IntRange(min=0), default=0, show_default=True, help="Threads; 0 is as many as suit the store.")
@click.option("--color", type=click.Choice(["always", "auto", "off"]), default="auto", show_default=True, help="Colours and bold type; `auto` heeds NO_COLOR.")
@click.option("--format", "format_", type=FORMATS, default="text", show_default=True, help="Text, or one JSON document on stdout.")
@click.version_option(__version__, prog_name="kartothek_cube")
@click.argument("cube", metavar="CUBE", required=False, shell_complete=completion.cubes)
@click.pass_context
def cli(ctx: click.Context, skv: str, store: str, url: str | None, n_threads: int, color: str, format_: str, cube: str | None) -> None:
    """Look at a cube, query it, and look after it.

    CUBE is the prefix of its datasets. Without a cube the cubes of the store are listed.
    """
    ctx.color = False if color == "auto" and os.environ.get("NO_COLOR") else _COLOURS[color]
    ctx.obj = Session(skv, store, _url(ctx, url), cube or None, n_threads, format_)
    if ctx.invoked_subcommand is None:
        if cube:
            ctx.fail(f"Missing command.{meant_command(cube, STORE_WIDE)}")
        _without_cube(ctx)


def _url(ctx: click.Context, url: str | None) -> str | None:
    """The URL, unless a store was named on the command line and the URL was not."""
    source = click.core.ParameterSource
    named, given = (ctx.get_parameter_source(name) is source.COMMANDLINE for name in ("store", "url"))
    if named and given:
        ctx.fail("Give --store or --url, not both.")
    return None if named else url


def _without_cube(ctx: click.Context) -> None:
    session: Session = ctx.obj
    if ctx.meta[BARE] and session.url is None and not Path(session.skv).exists():
        click.echo(ctx.get_help())
        return
    from kartothek_cube.cli.cubes import show_cubes

    show_cubes(session)

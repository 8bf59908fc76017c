"""The command itself: the options in front of the commands, and the list of the cubes where none is named."""

from __future__ import annotations

import os
from pathlib import Path

import click

from kartothek_cube import __version__
from kartothek_cube.cli import completion
from kartothek_cube.cli.group import BARE, LazyGroup
from kartothek_cube.cli.parameters import FORMATS
from kartothek_cube.cli.session import Session

__all__ = ["cli"]

_COLOURS = {"always": True, "off": False, "auto": None}


@click.group(
    name="cli",
    cls=LazyGroup,
    invoke_without_command=True,
    no_args_is_help=False,
    subcommand_metavar="COMMAND [ARGS]...",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option("--skv", default="skv.yml", show_default=True, envvar="KARTOTHEK_CUBE_SKV", help="YAML file with stores by name.")
@click.option(
    "--store", default="dataset", show_default=True, envvar="KARTOTHEK_CUBE_STORE", shell_complete=completion.stores, help="Name of the store in that file."
)
@click.option("--url", envvar="KARTOTHEK_CUBE_URL", help="The store itself: a URL such as hfs:///data or s3://bucket/prefix, or a directory.")
@click.option("-j", "--n_threads", type=click.IntRange(min=0), default=0, show_default=True, help="Number of threads to use (use 0 for number of cores).")
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
            ctx.fail("Missing command.")
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

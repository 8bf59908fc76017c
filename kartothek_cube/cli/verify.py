"""The command `verify`: what is wrong with a cube."""

from __future__ import annotations

import click

from kartothek_cube.cli.failures import Failure, one_line
from kartothek_cube.cli.output import show
from kartothek_cube.cli.parameters import cube_command
from kartothek_cube.cli.progress import working
from kartothek_cube.cli.session import Session, open_source

__all__ = ["command"]


@cube_command("verify")
@click.option("--deep", is_flag=True, help="Read the data, too.")
@click.pass_context
def command(ctx: click.Context, deep: bool) -> None:
    """Say what is wrong with the cube.

    The exit status is 1 if there are errors: answers would be wrong, or reading fails. Nothing is changed.
    """
    from kartothek_cube.cube.verbs.verify import verify_cube
    from kartothek_cube.errors import DatasetNotFound, InvalidInput

    session: Session = ctx.obj
    try:
        with working(session):
            report = verify_cube(session.prefix, open_source(session), deep)
    except (DatasetNotFound, InvalidInput) as error:
        raise Failure(f"Could not load cube: {one_line(error)}") from error
    show(session, report.to_dict(), lambda: repr(report).splitlines())
    if not report.ok:
        ctx.exit(1)

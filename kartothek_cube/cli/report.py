"""The command `report`: a cube as one HTML page."""

from __future__ import annotations

from pathlib import Path

import click

from kartothek_cube.cli.failures import Failure, one_line
from kartothek_cube.cli.output import show
from kartothek_cube.cli.parameters import cube_command
from kartothek_cube.cli.progress import working
from kartothek_cube.cli.session import Session, open_source

__all__ = ["command"]


@cube_command("report")
@click.option("--output", metavar="<file>", help="The file, or - for stdout.  [default: CUBE.html]")
@click.pass_obj
def command(session: Session, output: str | None) -> None:
    """Write what there is to see of the cube as one HTML page.

    A damaged cube has one, too.
    """
    from kartothek_cube.cube.verbs.report import cube_report
    from kartothek_cube.errors import DatasetNotFound, InvalidInput

    try:
        with working(session):
            page = cube_report(session.prefix, open_source(session))
    except (DatasetNotFound, InvalidInput) as error:
        raise Failure(f"Could not load cube: {one_line(error)}") from error
    if output == "-":
        click.echo(page)
        return
    path = Path(output or f"{session.prefix}.html")
    path.write_text(page, encoding="utf-8")
    show(session, {"file": str(path)}, lambda: (str(path),))

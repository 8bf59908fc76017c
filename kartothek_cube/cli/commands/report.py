"""The command `report`: writes a cube as one HTML page."""

from __future__ import annotations

import click

from kartothek_cube.cli import completion
from kartothek_cube.cli.context import Session, loading, working
from kartothek_cube.cli.options import cube_command
from kartothek_cube.cli.output import document, show
from kartothek_cube.cli.query.export import place_of

__all__ = ["command"]


@cube_command("report", "--output sales.html")
@click.option(
    "--output",
    metavar="<file>",
    shell_complete=completion.files,
    help="The file, or - for stdout.  [default: CUBE.html]",
)
@click.pass_obj
def command(session: Session, output: str | None) -> None:
    """Write what there is to see of the cube as one HTML page.

    A damaged cube has one, too.
    """
    from kartothek_cube.cube.verbs.report import cube_report

    path = None if output == "-" else place_of(output or f"{session.prefix}.html")
    with working(session), loading(session) as store:
        page = cube_report(session.prefix, store)
    if path is None:
        click.echo(document({"html": page}) if session.json else page)
        return
    path.write_text(page, encoding="utf-8")
    show(session, {"file": str(path)}, lambda: (str(path),))

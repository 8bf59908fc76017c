"""The command `report`: writes a cube as one HTML page."""

from __future__ import annotations

import click

from kartothek_cube.cli import completion
from kartothek_cube.cli.commands.history import known_commit, whole_commit
from kartothek_cube.cli.context import Session, load_cube, loading, working
from kartothek_cube.cli.options import cube_command
from kartothek_cube.cli.output import document, show
from kartothek_cube.cli.query.export import place_of, write_page

__all__ = ["command"]


@cube_command("report", "--output sales.html", "--changed-since 2024-01-31")
@click.option(
    "--changed-since",
    metavar="<commit or time>",
    shell_complete=completion.commits,
    help="Show what changed since a commit, or how its id begins, or a time.",
)
@click.option(
    "--output",
    metavar="<file>",
    shell_complete=completion.files,
    help="The file, or - for stdout. An existing file is replaced.  [default: CUBE.html]",
)
@click.pass_obj
def command(session: Session, changed_since: str | None, output: str | None) -> None:
    """Write what there is to see of the cube as one HTML page.

    A damaged cube has one, too.
    """
    from kartothek_cube.cube.verbs.report import cube_report

    # Checked first: the report of a large cube takes a while.
    path = None if output == "-" else place_of(output or f"{session.prefix}.html")
    with working(session), loading(session) as store:
        since = whole_commit(changed_since, lambda text: known_commit(load_cube(session), text))
        page = cube_report(session.prefix, store, changed_since=since)
    if path is None:
        click.echo(document({"html": page}) if session.json else page)
        return
    write_page(path, page)
    show(session, {"file": str(path)}, lambda: (str(path),))

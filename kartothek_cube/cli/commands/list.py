"""Lists the cubes of a store: what the program does without a command."""

from __future__ import annotations

import click

from kartothek_cube.cli.context import Session, missing_directory, open_source, working
from kartothek_cube.cli.errors import escaped
from kartothek_cube.cli.output import show

__all__ = ["show_cubes"]


def show_cubes(session: Session) -> None:
    """One cube a line."""
    from kartothek_cube.cube.verbs.describe import list_cubes

    store = open_source(session)
    with working(session):
        prefixes = list_cubes(store)
    if not prefixes and not session.json:
        click.echo(escaped(f"There is no cube in this store.{missing_directory(store)}"), err=True)
    show(session, {"cubes": prefixes}, lambda: prefixes)

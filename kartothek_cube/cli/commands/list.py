"""Lists the cubes of a store: what the program does without a command."""

from __future__ import annotations

import click

from kartothek_cube.cli.context import Session, missing_directory, open_source, working
from kartothek_cube.cli.errors import escaped
from kartothek_cube.cli.output import show

__all__ = ["show_cubes"]


def show_cubes(session: Session) -> None:
    """One cube a line; the exit status is 2 if there is no such store.

    Without a cube, the datasets of the store are named.
    """
    from kartothek_cube.core.arguments import join_names
    from kartothek_cube.core.dataset.maintain import list_datasets
    from kartothek_cube.cube.verbs.describe import list_cubes

    store = open_source(session)
    with working(session):
        prefixes = list_cubes(store)
        datasets = [] if prefixes or session.json else list_datasets(store)
    missing = missing_directory(store)
    # On stderr, since stdout has one name a line.
    if not prefixes and not session.json:
        also = f" Datasets of this store: {join_names(datasets)}." if datasets else ""
        click.echo(escaped(f"There is no cube in this store.{also}{missing}"), err=True)
    show(session, {"cubes": prefixes}, lambda: prefixes)
    if missing:
        click.get_current_context().exit(2)

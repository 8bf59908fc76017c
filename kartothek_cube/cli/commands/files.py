"""The command `files`: lists the data files of a cube, or of a query."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from kartothek_cube.cli.context import Session, load_cube, working
from kartothek_cube.cli.options import chosen, cube_command, patterns
from kartothek_cube.cli.output import bold, show, size
from kartothek_cube.cli.query.questions import conditions_of, where
from kartothek_cube.core.arguments import pluralize

__all__ = ["command", "files_lines"]


@cube_command("files", "", "--where 'COUNTRY_CODE == DE' --include seed")
@where
@patterns("listed")
@click.pass_obj
def command(session: Session, where: tuple[str, ...], include: str | None, exclude: str | None) -> None:
    """List the data files of the cube, or of a query.

    With --where only those that a query with these conditions would read.
    """
    with working(session):
        loaded = load_cube(session)
        names = chosen(loaded.datasets, include, exclude)
        if where:
            from kartothek_cube.cube.verbs.read import plan_cube_query

            keys = plan_cube_query(loaded.cube, loaded.store, conditions_of(where, loaded)).files()
        else:
            keys = {name: dataset.snapshot.files.to_pylist() for name, dataset in loaded.datasets.items()}
        files = {}
        for name in names:
            if name in keys:
                entries = loaded.store.list(f"{loaded.datasets[name].uuid}/", recursive=True).entries
                sizes = {entry.key: entry.size for entry in entries}
                files[name] = [{"key": key, "bytes": sizes.get(key)} for key in keys[name]]
    show(session, {"datasets": files}, lambda: files_lines(files))


def files_lines(datasets: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[str]:
    """One line a file."""
    for name, files in datasets.items():
        yield f"{bold(f'{name}:')} {pluralize(len(files), 'file')}, {size(sum(file['bytes'] or 0 for file in files))}"
        yield from (
            f"  - {file['key']}  {'missing' if file['bytes'] is None else size(file['bytes'])}" for file in files
        )

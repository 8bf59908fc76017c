"""The command `cleanup`: removes unreferenced files."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from kartothek_cube.cli.context import LoadedCube, Session, load_cube, working
from kartothek_cube.cli.options import Duration, cube_command, dry_run, yes
from kartothek_cube.cli.output import bold, confirm, show, size
from kartothek_cube.core.arguments import pluralize

if TYPE_CHECKING:
    from kartothek_cube.api.cube import CleanupReport
    from kartothek_cube.core.runtime.options import Overrides
    from kartothek_cube.core.stores.contract import Entry

__all__ = ["cleanup_lines", "command", "description"]

_OF_LIBRARY = re.compile(r"options\((\w+)=[^)]*\)")


@cube_command("cleanup", "--dry-run", "--grace 12h --retain 30d --yes")
@click.option(
    "--grace", type=Duration(), help="Age below which files stay, as a running write may need them.  [default: 1d]"
)
@click.option(
    "--retain", type=Duration(), help="How long replaced files stay for readers of older states.  [default: 7d]"
)
@dry_run("Only list what would be removed, and what waits.")
@yes
@click.pass_obj
def command(session: Session, grace: timedelta | None, retain: timedelta | None, dry_run: bool, yes: bool) -> None:
    """Remove files that the cube does not need any more.

    They are named by no dataset, nor by the history that is kept. On a terminal it asks before;
    without one it does not.
    """
    from kartothek_cube.core.runtime.options import options

    with working(session):
        loaded = load_cube(session)
    ages: dict[str, Any] = {name: age for name, age in (("grace", grace), ("retain", retain)) if age is not None}
    settings = options(**ages)
    if dry_run:
        report = description(_clean_up(session, loaded, settings, dry_run=True))
        show(session, report, lambda: cleanup_lines(report))
        return
    if not yes and sys.stdin.isatty():
        # The question names the number of files, which a dry run finds.
        planned = _clean_up(session, loaded, settings, dry_run=True)
        if planned.removed:
            files = f"{pluralize(len(planned.removed), 'file')} ({size(planned.bytes)})"
            confirm(f"Remove {files} of cube {session.prefix}?", loaded.store, yes=yes)
    removed = _clean_up(session, loaded, settings, dry_run=False)
    if session.json:
        show(session, description(removed), tuple)


def _clean_up(session: Session, loaded: LoadedCube, settings: Overrides, *, dry_run: bool) -> CleanupReport:
    from kartothek_cube.cube.verbs.maintain import cleanup_cube

    with working(session), settings:
        return cleanup_cube(loaded.cube, loaded.store, dry_run=dry_run)


def description(report: CleanupReport) -> dict[str, Any]:
    """A report as plain values, with options of the library named as those of the command."""
    return {
        "dry_run": report.dry_run,
        "removed": [_file(e) for e in report.removed],
        "waiting": [_file(e) for e in report.waiting],
    }


def _file(entry: Entry) -> dict[str, Any]:
    why = _OF_LIBRARY.sub(r"--\1", getattr(entry, "why", None) or "")
    return {"key": entry.key, "bytes": entry.size, "why": why or None}


def cleanup_lines(report: Mapping[str, Any]) -> Iterator[str]:
    """The files that would be removed, and those that wait, as text."""
    for heading, files in (("Would be removed:", report["removed"]), ("Waits:", report["waiting"])):
        total = sum(file["bytes"] or 0 for file in files)
        yield f"{bold(heading)} {pluralize(len(files), 'file')}, {size(total)}"
        yield from (f"  - {file['key']}  {size(file['bytes'] or 0)}  {file['why'] or ''}".rstrip() for file in files)

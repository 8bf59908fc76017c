"""The command `delete`: deletes a cube, or some of its datasets."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence

import click

from kartothek_cube.cli.context import LoadedCube, Session, load_cube, working
from kartothek_cube.cli.options import chosen_datasets, cube_command, dry_run, patterns, yes
from kartothek_cube.cli.output import bold, confirm, show
from kartothek_cube.core.arguments import pluralize

__all__ = ["command", "deletion_lines"]


@cube_command("delete", "--dry-run", "--include 'forecast_*'")
@patterns("deleted")
@dry_run("Only list the files that would be deleted.")
@yes
@click.pass_obj
def command(session: Session, include: str | None, exclude: str | None, dry_run: bool, yes: bool) -> None:
    """Delete the cube, or some of its datasets.

    The files of the chosen datasets are deleted, and their history with them. On a terminal it asks
    before; without one it does not.
    """
    from kartothek_cube.cube.verbs.cells import delete_cube

    with working(session):
        loaded = load_cube(session)
        names = chosen_datasets(loaded.datasets, include, exclude)
        # The plan costs store calls, so it is made only if it is shown.
        planned = _planned(loaded, names) if dry_run or session.json or sys.stdin.isatty() else {}
    if not dry_run and names:
        files = pluralize(sum(map(len, planned.values())), "file")
        confirm(f"Delete {', '.join(names)} of cube {session.prefix} ({files})?", loaded.store, yes=yes)
        with working(session):
            delete_cube(loaded.cube, loaded.store, names)
    if dry_run or session.json:
        show(session, {"dry_run": dry_run, "datasets": planned}, lambda: deletion_lines(planned))


def _planned(loaded: LoadedCube, names: Sequence[str]) -> dict[str, list[str]]:
    """Dataset → its keys, in the order of deletion."""
    from kartothek_cube.cube.verbs.cells import plan_cube_deletion

    plans = plan_cube_deletion(loaded.cube, loaded.store, names)
    ids = {loaded.cube.ktk_dataset_uuid(name): name for name in names}
    # A plan names the document in both encodings, of which one exists.
    absent = {key for plan in plans.values() for key in plan.documents if not loaded.store.contains(key)}
    return {
        ids[uuid]: [key for phase in plan.phases() for key in phase if key not in absent]
        for uuid, plan in plans.items()
    }


def deletion_lines(planned: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """The files that would be deleted, as text."""
    for name, keys in planned.items():
        yield f"{bold('Would be deleted:')} {name}, {pluralize(len(keys), 'file')}"
        yield from (f"  - {key}" for key in keys)

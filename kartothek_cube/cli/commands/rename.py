"""The command `rename`: renames a cube, or one of its datasets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import click

from kartothek_cube.cli import completion
from kartothek_cube.cli.context import LoadedCube, Session, load_cube, working
from kartothek_cube.cli.errors import Failure
from kartothek_cube.cli.options import cube_command, dry_run, missing, yes
from kartothek_cube.cli.output import bold, confirm, show

__all__ = ["command", "new_uuids", "rename_lines"]


@cube_command("rename", "sales_2024 --dry-run", "cells --dataset seed")
@click.argument("new_name")
@click.option(
    "--dataset",
    metavar="ID",
    shell_complete=completion.dataset,
    help="Rename this dataset inside the cube, not the cube.",
)
@dry_run()
@yes
@click.pass_obj
def command(session: Session, new_name: str, dataset: str | None, dry_run: bool, yes: bool) -> None:
    """Give the cube, or one of its datasets, another name.

    Each dataset is copied inside the store, then its original is deleted; the seed comes last. If
    that is interrupted, call it again. Histories begin anew, tags stay.
    """
    from kartothek_cube.core.maintenance.copy import rename_dataset

    with working(session):
        loaded = load_cube(session)
        names = new_uuids(loaded, new_name, dataset)
        _check_free(loaded, names, None if dataset is not None else new_name)
    if not dry_run:
        confirm(f"Rename {', '.join(f'{old} to {new}' for old, new in names.items())}?", loaded.store, yes=yes)
        with working(session):
            for old, new in names.items():
                rename_dataset(loaded.store, old, new, names if dataset is None else None)
    show(session, {"dry_run": dry_run, "renamed": names}, lambda: rename_lines(names, dry_run=dry_run))


def new_uuids(loaded: LoadedCube, new_name: str, dataset: str | None) -> dict[str, str]:
    """Uuid → new uuid, in the order of renaming."""
    cube = loaded.cube
    if dataset is not None and dataset not in loaded.datasets:
        raise missing("dataset", dataset, loaded.datasets)
    if new_name == (dataset or cube.uuid_prefix):
        raise Failure(
            f"The {'cube' if dataset is None else 'dataset'} is called {new_name} already. Nothing was renamed."
        )
    if dataset is not None:
        return {cube.ktk_dataset_uuid(dataset): cube.ktk_dataset_uuid(new_name)}
    renamed = cube.copy(uuid_prefix=new_name)
    # The cube exists as long as its seed: after an interruption, the next call continues.
    order = sorted(loaded.datasets, key=lambda name: (name == cube.seed_dataset, name))
    return {cube.ktk_dataset_uuid(name): renamed.ktk_dataset_uuid(name) for name in order}


def _check_free(loaded: LoadedCube, names: Mapping[str, str], prefix: str | None) -> None:
    """Raise for a name that is taken, unless by an interrupted call of the same renaming."""
    from kartothek_cube.core.maintenance.copy import is_nearly_renamed
    from kartothek_cube.core.snapshots.loader import is_visible
    from kartothek_cube.cube.members import read_members, valid_cube
    from kartothek_cube.errors import KartothekCubeError

    new_to_old = {new: old for old, new in names.items()}
    taken = [
        new
        for new, old in new_to_old.items()
        if is_visible(loaded.store, new) and (new == old or not is_nearly_renamed(loaded.store, old, new))
    ]
    if taken:
        raise Failure(f"There is already a dataset {taken[0]}. Nothing was renamed.")
    if prefix is None:
        return
    try:
        other = valid_cube(prefix, read_members(prefix, loaded.store))
    except KartothekCubeError:
        return  # the copies of an interrupted call have no seed yet, since it comes last
    seed = other.ktk_dataset_uuid(other.seed_dataset)
    if seed not in names.values():
        raise Failure(f"There is already a cube {prefix} with the seed dataset {seed}. Nothing was renamed.")


def rename_lines(names: Mapping[str, str], *, dry_run: bool) -> Iterator[str]:
    """One line a dataset."""
    yield from (f"{bold('Would be renamed:' if dry_run else 'Renamed:')} {old} to {new}" for old, new in names.items())

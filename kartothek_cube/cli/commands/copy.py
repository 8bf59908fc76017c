"""The command `copy`: copies a cube to another store."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from kartothek_cube.cli import completion
from kartothek_cube.cli.context import LoadedCube, Session, load_cube, store_named, working
from kartothek_cube.cli.errors import Failure, one_line
from kartothek_cube.cli.options import chosen_datasets, cube_command, dry_run, patterns, yes
from kartothek_cube.cli.output import confirm, echo, show
from kartothek_cube.core.arguments import pluralize

if TYPE_CHECKING:
    from kartothek_cube.core.stores.contract import Store

__all__ = ["Plan", "command", "plan_lines"]


@dataclass(frozen=True, slots=True)
class Plan:
    """The datasets that a copy deletes in the target first, and those that it copies.

    ``skips``: the target has a cube, and is not cleaned up.
    """

    copied: tuple[str, ...]
    deleted: tuple[str, ...] = ()
    skips: bool = False


@cube_command("copy", "--tgt_store backup", "--tgt_url s3://bucket/cubes --dry-run")
@click.option("--tgt_store", metavar="NAME", shell_complete=completion.stores, help="Target store to use.")
@click.option(
    "--tgt_url",
    metavar="URL",
    shell_complete=completion.directories,
    help="The target store as a URL or a directory, instead of a name.",
)
@click.option(
    "--overwrite/--no-overwrite",
    default=False,
    show_default=True,
    help="Whether datasets of the cube that are in the target are replaced.",
)
@click.option(
    "--cleanup/--no-cleanup",
    default=True,
    show_default=True,
    help="Whether replaced datasets are deleted first, so that none of their files are left.",
)
@patterns("copied")
@dry_run()
@yes
@click.pass_obj
def command(
    session: Session,
    tgt_store: str | None,
    tgt_url: str | None,
    overwrite: bool,
    cleanup: bool,
    include: str | None,
    exclude: str | None,
    dry_run: bool,
    yes: bool,
) -> None:
    """Copy the cube to another store.

    The target is a name in the file of stores, or a URL. A dataset that is there already is an
    error, unless --overwrite replaces it.
    """
    with working(session):
        loaded = load_cube(session)
        target = _target(session, tgt_store, tgt_url)
        names = chosen_datasets(loaded.datasets, include, exclude)
        existing = _existing(session, target) if overwrite else frozenset()
        replaced = sorted(existing.intersection(names))
        plan = Plan(tuple(names), tuple(replaced) if cleanup else (), skips=bool(existing) and not cleanup)
        _check(loaded, target, plan, overwrite=overwrite, dry_run=dry_run)
    if not dry_run and replaced:
        question = f"Replace {', '.join(replaced)} of cube {session.prefix} in the target store?"
        confirm(question, target, yes=yes)
    # Before the copy, which may take hours.
    if not session.json:
        for line in plan_lines(plan):
            echo(line)
    if not dry_run:
        _run(session, loaded, target, plan, overwrite=overwrite)
    if session.json:
        show(session, {"dry_run": dry_run, "deleted": plan.deleted, "copied": plan.copied}, tuple)


def plan_lines(plan: Plan) -> Iterator[str]:
    """The plan as text."""
    if plan.deleted:
        yield f"Deleting existing datasets {','.join(plan.deleted)} from target store..."
    elif plan.skips:
        yield "Skip cleanup, leave old existing cube."
    if plan.copied:
        yield f"Copy datasets {','.join(plan.copied)} to target store..."


def _target(session: Session, name: str | None, url: str | None) -> Store:
    if (name is None) == (url is None):
        raise click.UsageError(f"Give --tgt_store or --tgt_url{'' if name is None else ', not both'}.")
    if url is not None:
        from kartothek_cube.core.stores.open import open_store

        return open_store(url)
    assert name is not None
    if session.url is None and name == session.store:
        raise click.UsageError("Source and target store must be different.")
    return store_named(session.skv, name)


def _existing(session: Session, target: Store) -> frozenset[str]:
    """Ids of the datasets of the cube in the target; none if the target has no readable cube."""
    from kartothek_cube.cube.members import read_members, valid_cube
    from kartothek_cube.errors import KartothekCubeError

    try:
        members = read_members(session.prefix, target)
        valid_cube(session.prefix, members)
        return frozenset(members)
    except KartothekCubeError:
        return frozenset()


def _check(loaded: LoadedCube, target: Store, plan: Plan, *, overwrite: bool, dry_run: bool) -> None:
    """Raise for a copy that cannot succeed, before it deletes anything."""
    from kartothek_cube.core.commit.commit import check_store_can_commit
    from kartothek_cube.cube.verbs.copy import check_other_store, plan_cube_copy
    from kartothek_cube.errors import InvalidInput, KartothekCubeError

    if loaded.store == target or _is_same_directory(loaded.store, target):
        raise click.UsageError("Source and target store must be different.")
    if plan.deleted and not dry_run:
        check_store_can_commit(target)
        try:
            check_other_store(loaded.cube, loaded.store, target)
        except InvalidInput as error:
            raise click.UsageError(f"Source and target store must be different. {one_line(error)}") from error
    snapshots = {name: loaded.datasets[name].snapshot for name in plan.copied}
    if plan.copied and overwrite:
        try:
            copies = plan_cube_copy(loaded.cube, snapshots, loaded.store, target, overwrite=overwrite)
            # If the source has lost files, the target may be the only copy of the dataset.
            for name, copy in copies.items():
                listed = set(loaded.store.list(f"{loaded.datasets[name].uuid}/", recursive=True).keys)
                lost = [key for key in copy.plan.files if key not in listed and not loaded.store.contains(key)]
                if lost:
                    raise Failure(
                        f"Failed to copy cube: the source store lacks {pluralize(len(lost), 'file')} of dataset "
                        f"{name}, first {lost[0]}. Nothing was changed."
                    )
        except KartothekCubeError as error:
            raise _failed(error) from error


def _is_same_directory(source: Store, target: Store) -> bool:
    """Whether two local stores are one directory, e.g. by a link; checked without writing."""
    from kartothek_cube.core.stores.local import LocalStore

    if not (isinstance(source, LocalStore) and isinstance(target, LocalStore)):
        return False
    return os.path.realpath(source.root) == os.path.realpath(target.root)


def _run(session: Session, loaded: LoadedCube, target: Store, plan: Plan, *, overwrite: bool) -> None:
    from kartothek_cube.cube.verbs.cells import delete_cube
    from kartothek_cube.cube.verbs.copy import copy_cube

    try:
        with working(session):
            if plan.deleted:
                delete_cube(loaded.cube, target, plan.deleted)
            if plan.copied:
                copy_cube(loaded.cube, loaded.store, target, overwrite=overwrite, datasets=plan.copied)
    except (RuntimeError, ValueError) as error:
        raise _failed(error) from error


def _failed(error: Exception) -> Failure:
    from kartothek_cube.errors import AlreadyExists

    hint = "; --overwrite replaces it" if isinstance(error, AlreadyExists) else ""
    return Failure(f"Failed to copy cube: {one_line(error)}{hint}")

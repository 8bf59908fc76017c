"""The commands `copy`, `rename`, `delete` and `forget`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from kartothek_cube.cli.commands.rows import (
    Reports,
    cells_of,
    changes_rows,
    check_answer,
    commit_lines,
    deleted_rows,
    description,
    report_lines,
    yes_or_dry_run,
)
from kartothek_cube.cli.context import (
    Failure,
    LoadedCube,
    Session,
    complete_dataset,
    complete_directories,
    complete_stores,
    load_cube,
    missing,
    store_named,
    working,
)
from kartothek_cube.cli.options import chosen_datasets, cube_command, dry_run, patterns, where, yes
from kartothek_cube.cli.output import bold, confirm, echo, show, size
from kartothek_cube.core.arguments import pluralize
from kartothek_cube.errors import one_line

if TYPE_CHECKING:
    from kartothek_cube.api.cube import ForgetReport
    from kartothek_cube.core.stores.contract import Entry, Store


@dataclass(frozen=True, slots=True)
class Plan:
    """The datasets that a copy deletes in the target first, and those that it copies.

    ``skips``: the target has a cube, and is not cleaned up.
    """

    copied: tuple[str, ...]
    deleted: tuple[str, ...] = ()
    skips: bool = False


@cube_command("copy", "--tgt_store backup", "--tgt_url s3://bucket/cubes --dry-run")
@click.option("--tgt_store", metavar="NAME", shell_complete=complete_stores, help="Target store to use.")
@click.option(
    "--tgt_url",
    metavar="URL",
    shell_complete=complete_directories,
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
def copy_command(
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
    from kartothek_cube.core.stores.contract import check_store_can_commit
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


@cube_command("rename", "sales_2024 --dry-run", "cells --dataset seed")
@click.argument("new_name")
@click.option(
    "--dataset",
    metavar="ID",
    shell_complete=complete_dataset,
    help="Rename this dataset inside the cube, not the cube.",
)
@dry_run()
@yes
@click.pass_obj
def rename_command(session: Session, new_name: str, dataset: str | None, dry_run: bool, yes: bool) -> None:
    """Give the cube, or one of its datasets, another name.

    Each dataset is copied inside the store, then its original is deleted; the seed comes last. If
    that is interrupted, call it again. Histories begin anew, tags stay.
    """
    from kartothek_cube.cube.verbs.copy import rename_cube

    with working(session):
        loaded = load_cube(session)
        if dataset is not None and dataset not in loaded.datasets:
            raise missing("dataset", dataset, loaded.datasets)
        new = (new_name, None) if dataset is None else (None, {dataset: new_name})
        names = rename_cube(loaded.cube, loaded.store, *new, dry_run=True)
    if not dry_run:
        confirm(f"Rename {', '.join(f'{old} to {new}' for old, new in names.items())}?", loaded.store, yes=yes)
        with working(session):
            rename_cube(loaded.cube, loaded.store, *new)
    show(session, {"dry_run": dry_run, "renamed": names}, lambda: rename_lines(names, dry_run=dry_run))


def rename_lines(names: Mapping[str, str], *, dry_run: bool) -> Iterator[str]:
    """One line a dataset."""
    yield from (f"{bold('Would be renamed:' if dry_run else 'Renamed:')} {old} to {new}" for old, new in names.items())


@cube_command("delete", "--dry-run", "--include 'forecast_*'")
@patterns("deleted")
@dry_run("Only list the files that would be deleted.")
@yes
@click.pass_obj
def delete_command(session: Session, include: str | None, exclude: str | None, dry_run: bool, yes: bool) -> None:
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


# What a library cannot erase; the page *Right to erasure* says what to do.
BEYOND_REACH = (
    "rows of enrichments that no cell of the seed has ever shown",
    "overridden rows of cells whose newest row does not match: `compact` first",
    "copies, exports and results under other names, also in this store",
    "backups, and older versions that the store keeps",
    "what readers that are still running hold in memory",
)


@cube_command("forget", "--where 'CUSTOMER_ID == 7' --dry-run", "--where 'CUSTOMER_ID in (7, 8)' --yes")
@where
@click.option("--drop-tags", is_flag=True, help="Drop all tags, whose states may have the cells.")
@yes_or_dry_run
@click.pass_obj
def forget_command(session: Session, where: tuple[str, ...], drop_tags: bool, dry_run: bool, yes: bool) -> None:
    """Delete cells, and every file and state that still has them.

    First `delete-rows`, then `cleanup` with --grace and --retain of zero: no byte of the cells
    stays in the store. The whole history of the cube goes, too, so that no older state can be read
    and nothing can be undone. Readers and writers that are running fail. Tags keep older states: as
    long as there are any, it refuses, unless --drop-tags is given. Call it again if it was
    interrupted. On a terminal it shows what would be done, and asks.
    """
    from kartothek_cube.cube.consistent_read import check_whole_writes
    from kartothek_cube.cube.verbs.cells import forget_cells, tags_of_members

    check_answer(dry_run=dry_run, yes=yes)
    loaded, conditions = cells_of(session, where)
    with working(session):
        members = {name: found.snapshot for name, found in loaded.datasets.items()}
        check_whole_writes(session.prefix, loaded.store, members)
        tags = tags_of_members(loaded.store, members)
    if tags and not drop_tags:
        raise Failure(
            f"Tags keep older states, which may have the cells: {', '.join(map(str, tags))}. Give --drop-tags, "
            "or drop them by `tag NAME --drop` (of a single dataset: drop_dataset_tag). Nothing was deleted."
        )
    asks = not (dry_run or yes)
    if dry_run or asks:
        with working(session):
            planned = forget_cells(loaded.cube, loaded.store, conditions, drop_tags=drop_tags, dry_run=True)
        if dry_run:
            _show(session, planned)
            return
        if not session.json:
            for line in _rows(planned.rows):
                echo(line)
        confirm(_question(session.prefix, planned), loaded.store, yes=False)
    with working(session):
        done = forget_cells(loaded.cube, loaded.store, conditions, drop_tags=drop_tags)
    _show(session, done, asked=asks)


def _question(prefix: str, planned: ForgetReport) -> str:
    changes = changes_rows(planned.rows)
    rows = f"Delete {deleted_rows(planned.rows)} of cube {prefix}, then remove" if changes else "Remove"
    removed = planned.cleanup.removed
    files = f" and {pluralize(len(removed), 'file')} of older states" if removed else ""
    names = f" and the tags {', '.join(planned.dropped_tags)}" if planned.dropped_tags else ""
    return (
        f"{rows} all history{files}{names}? No older state can be read or restored any more, "
        "and readers and writers that are running fail."
    )


def _show(session: Session, report: ForgetReport, *, asked: bool = False) -> None:
    value: dict[str, Any] = description(report.rows, dry_run=report.dry_run)
    value |= {name: [entry.key for entry in getattr(report.cleanup, name)] for name in ("removed", "waiting")}
    value["dropped_tags"] = list(report.dropped_tags)
    value["beyond_reach"] = BEYOND_REACH
    show(session, value, lambda: forgotten_lines(report, asked=asked))


def forgotten_lines(report: ForgetReport, *, asked: bool = False) -> Iterator[str]:
    """Rows, files, and what remains.

    With ``asked`` the table of rows was shown before the question.
    """
    rows, garbage = report.rows, report.cleanup
    yield from commit_lines(rows) if asked else _rows(rows)
    # The files that the deletion would replace are no garbage yet, so they are counted apart.
    replaced = sum(one.files_rewritten + one.files_removed for one in rows.values()) if report.dry_run else 0
    head = "Would be removed:" if report.dry_run else "Removed:"
    more = f", and {pluralize(replaced, 'file')} with the rows" if replaced else ""
    yield f"{bold(head)} {_files(garbage.removed)} of older states and their history{more}"
    if garbage.waiting:
        yield f"{bold('Waits:')} {_files(garbage.waiting)}; call `forget` again"
    yield bold("Cannot be reached from here:")
    yield from (f"  - {text}" for text in BEYOND_REACH)


def _rows(reports: Reports) -> Iterable[str]:
    return report_lines(reports) if changes_rows(reports) else ["No cell matches."]


def _files(entries: Sequence[Entry]) -> str:
    return f"{pluralize(len(entries), 'file')} ({size(sum(entry.size or 0 for entry in entries))})"

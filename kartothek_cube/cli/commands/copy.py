"""The commands `copy`, `rename`, `delete` and `forget`."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from kartothek_cube.cli.commands.rows import (
    Reports,
    changes_rows,
    check_answer,
    commit_lines,
    deleted_rows,
    deletion_of,
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
    one_line,
    store_named,
    working,
)
from kartothek_cube.cli.options import chosen_datasets, cube_command, dry_run, patterns, where, yes
from kartothek_cube.cli.output import bold, confirm, echo, show, size
from kartothek_cube.core.arguments import pluralize
from kartothek_cube.errors import IncompleteCubeWarning

if TYPE_CHECKING:
    from kartothek_cube.api.cube import CleanupReport
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
    from kartothek_cube.core.maintenance.copy import run_rename

    with working(session):
        loaded = load_cube(session)
        names = new_uuids(loaded, new_name, dataset)
        _check_free(loaded, names, None if dataset is not None else new_name)
    if not dry_run:
        confirm(f"Rename {', '.join(f'{old} to {new}' for old, new in names.items())}?", loaded.store, yes=yes)
        with working(session):
            for old, new in names.items():
                run_rename(loaded.store, old, new, names if dataset is None else None)
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
    check_answer(dry_run=dry_run, yes=yes)
    with warnings.catch_warnings():
        warnings.simplefilter("error", IncompleteCubeWarning)
        try:
            loaded, delete = deletion_of(session, where)
        except IncompleteCubeWarning as warning:
            # Of an older version: a second deletion would not find what the seed has lost.
            text = "Take it back first: `forget` removes the history that this needs. Nothing was deleted."
            raise Failure(f"{warning} {text}") from None
    with working(session):
        tags = _tags(loaded)
    if tags and not drop_tags:
        raise Failure(
            f"Tags keep older states, which may have the cells: {_names(tags)}. Give --drop-tags, "
            "or drop them by `tag NAME --drop` (of a single dataset: drop_dataset_tag). Nothing was deleted."
        )
    asks = not (dry_run or yes)
    if dry_run or asks:
        # The files that the deletion would replace are no garbage yet, so they are counted apart.
        with working(session):
            planned = delete(True)
            garbage = _clean_up(loaded, dry_run=True)
        if dry_run:
            _show(session, planned, garbage, tags, dry_run=True)
            return
        if not session.json:
            for line in _rows(planned):
                echo(line)
        confirm(_question(session.prefix, planned, garbage, tags), loaded.store, yes=False)
    with working(session):
        # If the deletion fails, no history is lost.
        done = delete(False)
        _drop(loaded, tags)
        # Also where no row matches: an interrupted call may have left the files.
        garbage = _clean_up(loaded, dry_run=False)
    _show(session, done, garbage, tags, dry_run=False, asked=asks)


def _tags(loaded: LoadedCube) -> list[tuple[str, str | None]]:
    """The names of all tags: of the cube, and with the uuid those of single datasets."""
    from kartothek_cube.core.metadata.tag import Tag, tag_key
    from kartothek_cube.core.snapshots.time_travel import list_tags, stored_tags, tag_names

    found: list[tuple[str, str | None]] = []
    for uuid in (dataset.uuid for dataset in loaded.datasets.values()):
        counting = {tag.name: tag for tag in list_tags(loaded.store, uuid)}
        found += [(name, None if tag.seed else uuid) for name, tag in counting.items() if tag.seed in (None, uuid)]
        rest = {tag_key(uuid, name): name for name in tag_names(loaded.store, uuid) if name not in counting}
        # An unreadable tag keeps every tagged state. A share that does not count is garbage.
        stored = stored_tags(loaded.store, rest)
        found += [(rest[key], uuid) for key, tag in stored.items() if tag is not None and not isinstance(tag, Tag)]
    return sorted(found, key=str)


def _names(tags: Iterable[tuple[str, str | None]]) -> str:
    return ", ".join(name if uuid is None else f"{name} of {uuid}" for name, uuid in tags)


def _drop(loaded: LoadedCube, tags: Iterable[tuple[str, str | None]]) -> None:
    from kartothek_cube.core.dataset.history import drop_dataset_tag
    from kartothek_cube.cube.verbs.history import drop_cube_tag

    for name, uuid in tags:
        if uuid is None:
            drop_cube_tag(loaded.cube, loaded.store, name)
        else:
            drop_dataset_tag(uuid, loaded.store, name)


def _clean_up(loaded: LoadedCube, *, dry_run: bool) -> CleanupReport:
    """Remove all that the newest state of the cube does not need."""
    from kartothek_cube.core.runtime.options import options
    from kartothek_cube.cube.verbs.maintain import cleanup_cube

    return cleanup_cube(
        loaded.cube, loaded.store, dry_run=dry_run, options=options(grace=timedelta(0), retain=timedelta(0))
    )


def _question(prefix: str, planned: Reports, garbage: CleanupReport, tags: Sequence[tuple[str, str | None]]) -> str:
    rows = f"Delete {deleted_rows(planned)} of cube {prefix}, then remove" if changes_rows(planned) else "Remove"
    files = f" and {pluralize(len(garbage.removed), 'file')} of older states" if garbage.removed else ""
    names = f" and the tags {_names(tags)}" if tags else ""
    return (
        f"{rows} all history{files}{names}? No older state can be read or restored any more, "
        "and readers and writers that are running fail."
    )


def _show(
    session: Session,
    reports: Reports,
    garbage: CleanupReport,
    tags: Sequence[tuple[str, str | None]],
    *,
    dry_run: bool,
    asked: bool = False,
) -> None:
    value: dict[str, Any] = description(reports, dry_run=dry_run)
    value |= {name: [entry.key for entry in getattr(garbage, name)] for name in ("removed", "waiting")}
    value["dropped_tags"] = [_names([tag]) for tag in tags]
    value["beyond_reach"] = BEYOND_REACH
    show(session, value, lambda: forgotten_lines(reports, garbage, dry_run=dry_run, asked=asked))


def forgotten_lines(reports: Reports, garbage: CleanupReport, *, dry_run: bool, asked: bool = False) -> Iterator[str]:
    """Rows, files, and what remains.

    With ``asked`` the table of rows was shown before the question.
    """
    yield from commit_lines(reports) if asked else _rows(reports)
    replaced = sum(report.files_rewritten + report.files_removed for report in reports.values()) if dry_run else 0
    head = "Would be removed:" if dry_run else "Removed:"
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

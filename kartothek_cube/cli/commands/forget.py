"""The command `forget`: deletes cells, and every file and state that still has them."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from kartothek_cube.cli.commands.delete_rows import (
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
from kartothek_cube.cli.context import LoadedCube, Session, working
from kartothek_cube.cli.errors import Failure
from kartothek_cube.cli.options import cube_command
from kartothek_cube.cli.output import bold, confirm, echo, show, size
from kartothek_cube.cli.query.questions import where
from kartothek_cube.core.arguments import pluralize
from kartothek_cube.errors import IncompleteCubeWarning

if TYPE_CHECKING:
    from kartothek_cube.api.cube import CleanupReport
    from kartothek_cube.core.stores.contract import Entry

__all__ = ["BEYOND_REACH", "command", "forgotten_lines"]

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
def command(session: Session, where: tuple[str, ...], drop_tags: bool, dry_run: bool, yes: bool) -> None:
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

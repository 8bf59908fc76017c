"""The command `delete-rows`: deletes cells; and what commands that change rows share."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kartothek_cube.cli.context import LoadedCube, Session, load_cube, working
from kartothek_cube.cli.options import cube_command, dry_run
from kartothek_cube.cli.output import bold, confirm, echo, show, size, table
from kartothek_cube.cli.query.questions import conditions_of, where
from kartothek_cube.core.arguments import pluralize

if TYPE_CHECKING:
    from kartothek_cube.api.dataset import RowsReport
    from kartothek_cube.core.stores.contract import Store

__all__ = [
    "Reports",
    "changed_rows",
    "changes_rows",
    "check_answer",
    "command",
    "commit_lines",
    "deleted_rows",
    "deletion_of",
    "description",
    "perform",
    "report_lines",
    "yes_or_dry_run",
]

F = TypeVar("F", bound=Callable[..., Any])

Reports = Mapping[str, "RowsReport"]

_ROWS = ("matched", "deleted", "updated", "inserted")
_FILES = ("rewritten", "added", "removed", "untouched")


def yes_or_dry_run(function: F) -> F:
    """``--dry-run`` and ``--yes``, one of which has to be given without a terminal."""
    text = "Do not ask. Needed without a terminal, unless --dry-run is given."
    return dry_run()(click.option("-y", "--yes", is_flag=True, help=text)(function))


def check_answer(*, dry_run: bool, yes: bool) -> None:
    """Raise an error of usage if there is no answer, and nobody who could be asked."""
    # Unlike other commands: a script that deletes the wrong rows does so without a trace.
    if not (dry_run or yes or sys.stdin.isatty()):
        raise click.UsageError("Without a terminal, give --yes, or --dry-run to see what would be done.")


@cube_command("delete-rows", "--where 'CUSTOMER_ID == 7' --dry-run", "--where 'BRAND == Acme & WEEK < 10' --yes")
@where
@yes_or_dry_run
@click.pass_obj
def command(session: Session, where: tuple[str, ...], dry_run: bool, yes: bool) -> None:
    """Delete the cells that a query would have.

    All stored rows of these cells go, in one write to the cube, with the rows of enrichments that
    no other cell shows. Only files with such rows are written anew. Readers of older states still
    have the cells, until `cleanup`; see `forget`. On a terminal it shows what would be done, and
    asks.
    """
    check_answer(dry_run=dry_run, yes=yes)
    loaded, delete = deletion_of(session, where)

    def question(planned: Reports) -> str:
        return f"Delete {deleted_rows(planned)} of cube {session.prefix}?"

    perform(session, loaded.store, delete, question, dry_run=dry_run, yes=yes)


def deletion_of(session: Session, where: tuple[str, ...]) -> tuple[LoadedCube, Callable[[bool], Reports]]:
    """The cube, and what deletes its cells; its argument is ``dry_run``."""
    from kartothek_cube.cube.verbs.cells import delete_cells

    if not where:
        raise click.UsageError("Missing option '--where'. To delete everything, use `delete`.")
    with working(session):
        loaded = load_cube(session)
        conditions = conditions_of(where, loaded)
    return loaded, lambda dry: delete_cells(loaded.cube, loaded.store, conditions, dry_run=dry)


def perform(
    session: Session,
    store: Store,
    change: Callable[[bool], Reports],
    question: Callable[[Reports], str],
    *,
    dry_run: bool,
    yes: bool,
) -> None:
    """Show what a change of rows would do, ask, do it, and show what was done."""
    asks = not (dry_run or yes)
    if dry_run or asks:
        with working(session):
            planned = change(True)
        if dry_run or not changes_rows(planned):
            show(session, description(planned, dry_run=dry_run), lambda: report_lines(planned))
            return
        if not session.json:
            for line in report_lines(planned):
                echo(line)
        confirm(question(planned), store, yes=False)
    with working(session):
        done = change(False)
    # The table was shown with the question.
    lines = commit_lines if asks else report_lines
    show(session, description(done, dry_run=False), lambda: lines(done))


def changes_rows(reports: Reports) -> bool:
    """Whether there is anything to do."""
    return any(report.deleted or report.updated or report.inserted for report in reports.values())


def description(reports: Reports, *, dry_run: bool) -> dict[str, Any]:
    """Reports as plain values."""
    fields = [*_ROWS, *(f"files_{name}" for name in _FILES), "bytes", "commit"]
    datasets = {name: {field: getattr(report, field) for field in fields} for name, report in reports.items()}
    return {"dry_run": dry_run, "datasets": datasets}


def report_lines(reports: Reports) -> Iterator[str]:
    """A table of reports; columns without any figure are left out."""
    if not changes_rows(reports):
        yield "No row changes: there is nothing to do."
        return
    dry = any(report.dry_run for report in reports.values())
    columns = {name: [getattr(report, name) for report in reports.values()] for name in _ROWS}
    if columns["matched"] == columns["deleted"]:
        del columns["matched"]
    columns |= {f"files {name}": [getattr(r, f"files_{name}") for r in reports.values()] for name in _FILES}
    texts = {name: [f"{n:,}" for n in numbers] for name, numbers in columns.items() if any(numbers)}
    # The size of new files is not known before they are written.
    texts["to rewrite" if dry else "written"] = [size(report.bytes) for report in reports.values()]
    yield from table(["dataset", *texts], zip(reports, *texts.values(), strict=True), right=[*texts])
    if not dry:
        yield from commit_lines(reports)


def commit_lines(reports: Reports) -> Iterator[str]:
    """One line a commit."""
    for name, report in reports.items():
        if report.commit is not None:
            yield f"{bold(f'{name}:')} {changed_rows(report)}, commit {report.commit}"


def deleted_rows(reports: Reports) -> str:
    """The number of deleted rows, in words."""
    return pluralize(sum(report.deleted for report in reports.values()), "row")


def changed_rows(report: RowsReport) -> str:
    """What happens to how many rows, in words."""
    counts = {name: getattr(report, name) for name in _ROWS[1:]}
    return ", ".join(f"{pluralize(n, 'row')} {name}" for name, n in counts.items() if n)

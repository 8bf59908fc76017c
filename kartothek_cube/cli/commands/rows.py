"""The commands `delete-rows` and `merge`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kartothek_cube.cli.context import (
    Failure,
    LoadedCube,
    Session,
    complete_dataset_columns,
    complete_files,
    load_cube,
    load_dataset,
    working,
)
from kartothek_cube.cli.options import conditions_of, cube_command, dry_run, parts_of, where
from kartothek_cube.cli.output import bold, confirm, echo, show, size, table
from kartothek_cube.core.arguments import pluralize
from kartothek_cube.errors import one_line

if TYPE_CHECKING:
    import pyarrow as pa

    from kartothek_cube.api.cube import Conjunction
    from kartothek_cube.api.dataset import RowsReport
    from kartothek_cube.core.metadata.snapshot import Snapshot
    from kartothek_cube.core.stores.contract import Store


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
def delete_rows_command(session: Session, where: tuple[str, ...], dry_run: bool, yes: bool) -> None:
    """Delete the cells that a query would have.

    All stored rows of these cells go, in one write to the cube, with the rows of enrichments that
    no other cell shows. Only files with such rows are written anew. Readers of older states still
    have the cells, until `cleanup`; see `forget`. On a terminal it shows what would be done, and
    asks.
    """
    from kartothek_cube.cube.verbs.cells import delete_cells

    check_answer(dry_run=dry_run, yes=yes)
    loaded, conditions = cells_of(session, where)

    def question(planned: Reports) -> str:
        return f"Delete {deleted_rows(planned)} of cube {session.prefix}?"

    def delete(dry: bool) -> Reports:
        return delete_cells(loaded.cube, loaded.store, conditions, dry_run=dry)

    perform(session, loaded.store, delete, question, dry_run=dry_run, yes=yes)


def cells_of(session: Session, where: tuple[str, ...]) -> tuple[LoadedCube, Conjunction]:
    """The cube, and the conditions on cells to be deleted."""
    if not where:
        raise click.UsageError("Missing option '--where'. To delete everything, use `delete`.")
    with working(session):
        loaded = load_cube(session)
        return loaded, conditions_of(where, loaded)


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


@cube_command(
    "merge",
    "delivered.parquet --on ORDER_ID",
    "monday.csv tuesday.csv --on ORDER_ID --dry-run",
    front="orders",
)
@click.argument("files", nargs=-1, required=True, metavar="FILE...", shell_complete=complete_files)
@click.option(
    "--on",
    metavar="<columns>",
    shell_complete=complete_dataset_columns,
    help="Key columns, separated by commas.  [default for a dataset of a cube: what addresses its cells]",
)
@click.option(
    "--when-matched",
    type=click.Choice(["update", "ignore", "delete", "error"]),
    default="update",
    show_default=True,
    help="For rows of the dataset with a key of the files.",
)
@click.option(
    "--when-not-matched",
    type=click.Choice(["insert", "ignore"]),
    default="insert",
    show_default=True,
    help="For rows of the files with a new key.",
)
@click.option(
    "--when-not-matched-by-source",
    type=click.Choice(["keep", "delete"]),
    default="keep",
    show_default=True,
    help="For rows of the dataset whose key the files lack.",
)
@yes_or_dry_run
@click.pass_obj
def merge_command(
    session: Session,
    files: tuple[str, ...],
    on: str | None,
    when_matched: str,
    when_not_matched: str,
    when_not_matched_by_source: str,
    dry_run: bool,
    yes: bool,
) -> None:
    """Merge the rows of files into a dataset, by key.

    A dataset, such as `orders` or `sales++prices`, stands in the place of the cube. The files end
    in .parquet or .csv and have the same columns; a key occurs in them once. Rows of the dataset
    with a key of the files get the values of the files, other rows of the files are added, in one
    commit. On a terminal it shows what would be done, and asks.
    """
    from kartothek_cube.core.dataset.rows import merge_dataset

    check_answer(dry_run=dry_run, yes=yes)
    with working(session):
        store, snapshot = load_dataset(session)
        keys = key_columns(on, snapshot)
    by_source = "delete" if when_not_matched_by_source == "delete" else None

    def change(dry: bool) -> Reports:
        # The files are read again after the question, since their rows may exceed memory.
        report = merge_dataset(
            rows_of(files, snapshot),
            store,
            snapshot.uuid,
            keys,
            when_matched=when_matched,  # type: ignore[arg-type]
            when_not_matched=when_not_matched,  # type: ignore[arg-type]
            when_not_matched_by_source=by_source,
            dry_run=dry,
        )
        return {snapshot.uuid: report}

    def question(planned: Reports) -> str:
        return f"Change dataset {snapshot.uuid} ({changed_rows(planned[snapshot.uuid])})?"

    perform(session, store, change, question, dry_run=dry_run, yes=yes)


def key_columns(on: str | None, snapshot: Snapshot) -> list[str]:
    """The columns of ``--on``; in a cube by default those that address its cells."""
    from kartothek_cube.core.metadata.snapshot import cube_columns

    cube = cube_columns(snapshot.document.metadata)
    # Other keys are refused by the verb, with the reason.
    if on is not None:
        return [part for part in parts_of(on) if part]
    if cube is None:
        raise click.UsageError("Missing option '--on': the key columns of the merge.")
    return list(cube.cell_columns(snapshot.schema.names))


def rows_of(files: tuple[str, ...], snapshot: Snapshot) -> Iterator[pa.Table]:
    """The rows of all files, piece by piece.

    Raises
    ------
    Failure
        If a file cannot be read.
    """
    import pyarrow as pa

    for file in files:
        try:
            yield from _tables(file, snapshot)
        except (pa.ArrowException, OSError) as error:
            raise Failure(f"Could not read {file}: {one_line(error)}") from error


def _tables(file: str, snapshot: Snapshot) -> Iterator[pa.Table]:
    import pyarrow as pa
    from pyarrow import csv
    from pyarrow import parquet as pq

    suffix = Path(file).suffix.lower()
    if suffix == ".parquet":
        with pq.ParquetFile(file) as parquet:
            yield parquet.schema_arrow.empty_table()  # a file may have no rows
            yield from (pa.Table.from_batches([batch]) for batch in parquet.iter_batches())
    elif suffix == ".csv":
        # As `query --output` writes them: a text in quotes is no null, and `NA` is a text.
        convert = csv.ConvertOptions(
            column_types={field.name: field.type for field in snapshot.schema},
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )
        with csv.open_csv(file, convert_options=convert) as reader:
            yield reader.schema.empty_table()
            yield from (pa.Table.from_batches([batch]) for batch in reader)
    else:
        raise Failure(f"A merge takes files that end in .parquet or .csv, not {file}")

"""The command `merge`: merges the rows of files into a dataset."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kartothek_cube.cli import completion
from kartothek_cube.cli.commands.delete_rows import Reports, changed_rows, check_answer, perform, yes_or_dry_run
from kartothek_cube.cli.context import Session, load_dataset, working
from kartothek_cube.cli.errors import Failure, one_line
from kartothek_cube.cli.options import cube_command, parts_of

if TYPE_CHECKING:
    import pyarrow as pa

    from kartothek_cube.core.metadata.snapshot import Snapshot

__all__ = ["command", "key_columns", "rows_of"]


@cube_command(
    "merge",
    "delivered.parquet --on ORDER_ID",
    "monday.csv tuesday.csv --on ORDER_ID --dry-run",
    front="orders",
)
@click.argument("files", nargs=-1, required=True, metavar="FILE...", shell_complete=completion.files)
@click.option(
    "--on",
    metavar="<columns>",
    shell_complete=completion.dataset_columns,
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
def command(
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

"""The command `query`: interactively, or once, into a file."""

from __future__ import annotations

import click

from kartothek_cube.cli import completion
from kartothek_cube.cli.context import Session
from kartothek_cube.cli.options import cube_command
from kartothek_cube.cli.query.questions import question

__all__ = ["command"]


@cube_command(
    "query",
    "--where 'BRAND in (Acme, Bolt)' --limit 10",
    "--where 'WEEK >= 10' --output weeks.parquet",
    "--by BRAND --columns 'P*' --output '{BRAND}.csv'",
    "--as-of 2024-01-31 --format json",
)
@question
@click.option("--limit", metavar="N", type=click.IntRange(min=0), help="Stop after so many rows.")
@click.option(
    "--output",
    metavar="<file>",
    shell_complete=completion.files,
    help="A file that ends in .parquet or .csv, or - for CSV on stdout; with {COLUMN} for each column of --by "
    "in its name, one file a group. An existing file is replaced at the end.  [default: -]",
)
@click.pass_obj
def command(
    session: Session,
    where: tuple[str, ...],
    columns: str | None,
    by: str | None,
    as_of: str | None,
    limit: int | None,
    output: str | None,
) -> None:
    """Query the cube: interactively, or into a file.

    Without options it asks for conditions and payload columns, and opens an IPython shell with the
    result as `df`, round after round. With one of the options it runs once. Rows are written as
    they are read, physical partition after physical partition, not sorted as a whole.
    """
    if not (where or limit is not None or session.json) and (columns, by, as_of, output) == (None, None, None, None):
        from kartothek_cube.cli.query.repl import query_rounds

        query_rounds(session)
        return
    from kartothek_cube.cli.query.export import Question, query_once

    query_once(session, Question(where, columns, by, as_of, limit), "-" if output is None else output)

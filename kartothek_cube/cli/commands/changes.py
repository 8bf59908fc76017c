"""The command `changes`: counts what changed since a commit or a time, or writes the rows."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import click

from kartothek_cube.cli import completion
from kartothek_cube.cli.commands.history import known_commit, whole_commit
from kartothek_cube.cli.context import LoadedCube, Session, load_cube, working
from kartothek_cube.cli.errors import Failure, one_line
from kartothek_cube.cli.options import cube_command
from kartothek_cube.cli.output import show, table
from kartothek_cube.cli.query.export import first_rows, kind_of, pour, show_written, sink_of
from kartothek_cube.cli.query.questions import columns as columns_option
from kartothek_cube.cli.query.questions import conditions_of, payload_of
from kartothek_cube.cli.query.questions import where as where_option

if TYPE_CHECKING:
    from kartothek_cube.api.cube import CubeChanges

__all__ = ["changes_lines", "command"]

_MOMENT = "a commit, or how its id begins (`history` lists them), or a time such as 2024-01-31T12:00"


@cube_command(
    "changes",
    "--since 2024-01-31",
    "--since 0f1e2d3c --until 9a8b7c6d",
    "--since 2024-01-31 --output changes.parquet",
)
@click.option(
    "--since",
    metavar="<commit or time>",
    required=True,
    shell_complete=completion.commits,
    help=f"The older state: {_MOMENT}.",
)
@click.option(
    "--until",
    metavar="<commit or time>",
    shell_complete=completion.commits,
    help="The later state, in the same form.  [default: now]",
)
@where_option
@columns_option
@click.option("--limit", metavar="N", type=click.IntRange(min=0), help="Stop after so many rows: an update has two.")
@click.option(
    "--output",
    metavar="<file>",
    shell_complete=completion.files,
    help="The rows, in a file that ends in .parquet or .csv, or - for CSV on stdout. "
    "An existing file is replaced at the end.",
)
@click.pass_obj
def command(
    session: Session,
    since: str,
    until: str | None,
    where: tuple[str, ...],
    columns: str | None,
    limit: int | None,
    output: str | None,
) -> None:
    """Count what came, went or changed since a commit or a time.

    Cells are counted by dataset. With --where, --columns, --limit or --output the changed rows of a
    query are written instead, with the kind of the change in the column `_change_type`: insert,
    delete, update_preimage and update_postimage.
    """
    if where or (columns, limit, output) != (None, None, None):
        _write_rows(session, since, until, where, columns, limit, "-" if output is None else output)
        return
    from kartothek_cube.cube.verbs.describe import describe_cube_changes

    with working(session):
        loaded = load_cube(session)
        first, last = _states(loaded, since, until)
        changes = describe_cube_changes(loaded.cube, loaded.store, first, last, rows=0)
    counts = {row.pop("dataset"): row for row in changes.counts.to_pylist()}
    value = {"since": first, "until": last, "datasets": counts}
    show(session, value, lambda: changes_lines(changes))


def _states(loaded: LoadedCube, since: str, until: str | None) -> tuple[str, str | None]:
    """The two states, with ids of commits in full."""
    find = partial(known_commit, loaded)
    return whole_commit(since, find) or since, whole_commit(until, find)


def changes_lines(changes: CubeChanges) -> Iterator[str]:
    """A table of the changes of each dataset."""
    rows = [(name, *(f"{n:,}" for n in numbers)) for name, *numbers in changes.totals()]
    yield from table(changes.counts.column_names, rows, right=changes.counts.column_names[1:])


def _write_rows(
    session: Session,
    since: str,
    until: str | None,
    where: tuple[str, ...],
    columns: str | None,
    limit: int | None,
    output: str,
) -> None:
    import pyarrow as pa

    from kartothek_cube.cube.verbs.history import query_cube_changes

    to_stdout = kind_of(output) == "stdout"
    with working(session, quiet=to_stdout and sys.stdout.isatty()):
        loaded = load_cube(session)
        first, last = _states(loaded, since, until)
        conditions, payload = conditions_of(where, loaded), payload_of(columns, loaded)
        changes = query_cube_changes(loaded.cube, loaded.store, first, last, conditions, payload_columns=payload)
        try:
            with sink_of(session, output, changes.schema) as sink:
                rows = pour(first_rows(changes, limit), sink)
        except pa.ArrowException as error:
            raise Failure(f"Could not write {output}: {one_line(error)}") from error
    if not to_stdout:
        show_written(session, {output: rows})

"""The query of a script: its rows into a file, or to stdout, as they are read."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from string import Formatter
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from kartothek_cube.cli.failures import Failure, one_line
from kartothek_cube.cli.output import show
from kartothek_cube.cli.progress import working
from kartothek_cube.cli.questions import groups_of, plan_of
from kartothek_cube.cli.session import LoadedCube, Session, load_cube
from kartothek_cube.cli.sinks import CsvSink, JsonSink, ParquetSink, Sink, TerminalStream, kind_of, place_of
from kartothek_cube.core.markup import counted

if TYPE_CHECKING:
    import pyarrow as pa

    from kartothek_cube.api.cube import QueryPlan

__all__ = ["Question", "first_rows", "group_file", "query_once"]


@dataclass(frozen=True, slots=True)
class Question:
    """A query as the options say it."""

    where: tuple[str, ...] = ()
    columns: str | None = None
    by: str | None = None
    as_of: str | None = None
    limit: int | None = None


def query_once(session: Session, question: Question, output: str) -> None:
    """Run a query and write its rows.

    Raises
    ------
    Failure
        If the query cannot be asked so, or the kind of file cannot hold the columns.
    """
    import pyarrow as pa

    kind = kind_of(output)
    placeholders = _placeholders(output, groups_of(question.by))
    # A bar between the rows on a terminal would be no progress.
    quiet = kind == "stdout" and sys.stdout.isatty()
    with nullcontext() if quiet else working(session):
        loaded = load_cube(session)
        plan = plan_of(loaded, question.where, question.columns, question.by, question.as_of)
        try:
            written = _write_groups(plan, loaded, question, output) if placeholders else _write(session, plan, loaded, question, output)
        except pa.ArrowException as error:
            raise Failure(f"Could not write {output}: {one_line(error)}") from error
    if kind != "stdout":
        show(session, {"rows": sum(written.values()), "files": written}, lambda: (f"{counted(rows, 'row')} in {name}" for name, rows in written.items()))


def _write(session: Session, plan: QueryPlan, loaded: LoadedCube, question: Question, output: str) -> dict[str, int]:
    """All rows into one place; file → rows."""
    from kartothek_cube.cube.verbs.stream import run_plan

    with _sink(session, output, plan.schema) as sink:
        return {output: _pour(first_rows(run_plan(plan, loaded.store), question.limit), sink)}


def _write_groups(plan: QueryPlan, loaded: LoadedCube, question: Question, output: str) -> dict[str, int]:
    """Each group into a file of its own; file → rows."""
    from kartothek_cube.cube.run import iter_groups

    written: dict[str, int] = {}
    left = question.limit
    for key, table in iter_groups(plan, loaded.store):
        if left is not None and left <= 0:
            break
        name = group_file(output, key)
        if name in written:
            raise Failure(f"--output {output}: several groups would be written to {name}; put something that is in no value between the places.")
        with _file_sink(name, table.schema) as sink:
            written[name] = _pour(first_rows(table.to_batches(), left), sink)
        left = None if left is None else left - written[name]
    return written


def _pour(batches: Iterable[pa.RecordBatch], sink: Sink) -> int:
    rows = 0
    for batch in batches:
        sink.write(batch)
        rows += batch.num_rows
    return rows


def first_rows(batches: Iterable[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    """The batches of the first rows; what comes after them is not asked for."""
    if limit is None:
        yield from batches
        return
    left, rest = limit, iter(batches)
    while left > 0 and (batch := next(rest, None)) is not None:
        yield batch.slice(0, left)
        left -= min(left, batch.num_rows)


def _sink(session: Session, output: str, schema: pa.Schema) -> Sink:
    if output != "-":
        return _file_sink(output, schema)
    stream: Any = TerminalStream(sys.stdout.buffer) if sys.stdout.isatty() else sys.stdout.buffer
    if session.json:
        return JsonSink(stream, schema)
    return CsvSink(stream, schema)


def _file_sink(name: str, schema: pa.Schema) -> Sink:
    path = place_of(name)
    return ParquetSink(path, schema) if kind_of(name) == "parquet" else CsvSink(path, schema)


# --- names of files ---------------------------------------------------------------------------------------------------


def _placeholders(output: str, by: list[str]) -> bool:
    """Whether the name has a place for the value of every column of ``--by``."""
    try:
        found = {name for _, name, _, _ in Formatter().parse(output) if name is not None}
        if found == set(by):
            group_file(output, dict.fromkeys(by, "value"))
    except ValueError as error:
        raise Failure(f"--output {output}: {error}") from error
    if found and found != set(by):
        raise Failure(f"--output {output} should have a place for each column of --by and no other: {', '.join(f'{{{name}}}' for name in by) or 'none'}")
    return bool(found)


def group_file(output: str, key: dict[str, Any]) -> str:
    """The file of one group.

    Examples
    --------
    >>> group_file("sales_{COUNTRY_CODE}.parquet", {"COUNTRY_CODE": "DE/BY"})
    'sales_DE%2FBY.parquet'
    """
    return output.format_map({name: _quoted(str(value)) for name, value in key.items()})


def _quoted(value: str) -> str:
    """A value as a part of a path that cannot lead elsewhere."""
    return quote(value, safe=" ") if value.strip(".") else value.replace(".", "%2E")

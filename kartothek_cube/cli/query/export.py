"""The query of a script: rows into Parquet, CSV or JSON as they are read.

A file appears when it is whole.
"""

from __future__ import annotations

import codecs
import io
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from string import Formatter
from typing import IO, TYPE_CHECKING, Any, Literal, Self
from urllib.parse import quote

from kartothek_cube.cli.context import LoadedCube, Session, load_cube, working
from kartothek_cube.cli.errors import Failure, StoreFailure, escaped, one_line
from kartothek_cube.cli.output import json_text, show
from kartothek_cube.cli.query.questions import groups_of, plan_of
from kartothek_cube.core.text import pluralize

if TYPE_CHECKING:
    import pyarrow as pa

    from kartothek_cube.api.cube import QueryPlan

__all__ = [
    "CsvSink",
    "JsonSink",
    "ParquetSink",
    "Question",
    "Sink",
    "TerminalStream",
    "first_rows",
    "group_file",
    "kind_of",
    "place_of",
    "query_once",
]


def kind_of(output: str) -> Literal["csv", "parquet", "stdout"]:
    """What a name of a file asks for.

    Raises
    ------
    Failure
        If it is none that can be written.
    """
    if output == "-":
        return "stdout"
    suffix = Path(output).suffix.lower()
    if suffix in (".parquet", ".csv"):
        return "csv" if suffix == ".csv" else "parquet"
    raise Failure(f"--output takes a file that ends in .parquet or .csv, or - for stdout, not {output}")


def place_of(output: str) -> Path:
    """Where a file may be written.

    Raises
    ------
    StoreFailure
        If a directory lies there, or none above it.
    """
    path = Path(output)
    if path.is_dir():
        raise StoreFailure(f"Could not write {output}: it is a directory.")
    if not path.parent.is_dir():
        raise StoreFailure(f"Could not write {output}: there is no directory {path.parent}.")
    return path


class Sink(ABC):
    """Takes batches of rows.

    As a context manager it ends what it writes; after an error nothing is left of a file.
    """

    @abstractmethod
    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows."""

    @abstractmethod
    def close(self) -> None:
        """Write what comes after the rows."""

    @abstractmethod
    def discard(self) -> None:
        """Forget what was written, as far as nobody has it yet."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()


class _FileSink(Sink):
    """A file that has another name until it is whole."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
        self._writer: Any = None

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write(batch)

    def close(self) -> None:
        try:
            self._writer.close()
            self._partial.replace(self._path)
        except BaseException:
            self._partial.unlink(missing_ok=True)
            raise

    def discard(self) -> None:
        try:
            self._writer.close()
        finally:
            self._partial.unlink(missing_ok=True)


class ParquetSink(_FileSink):
    """A Parquet file."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        import pyarrow.parquet as pq

        super().__init__(path)
        self._writer = pq.ParquetWriter(self._partial, schema)


class CsvSink(_FileSink):
    """CSV with a header, into a file or a stream."""

    def __init__(self, target: Path | IO[bytes], schema: pa.Schema) -> None:
        import pyarrow.csv

        self._is_file = isinstance(target, Path)
        super().__init__(target if isinstance(target, Path) else Path("stdout"))
        _refuse_nested(schema)
        self._writer = pyarrow.csv.CSVWriter(str(self._partial) if self._is_file else target, schema)

    def close(self) -> None:
        if self._is_file:
            super().close()
        else:
            self._writer.close()

    def discard(self) -> None:
        if self._is_file:
            super().discard()


def _refuse_nested(schema: pa.Schema) -> None:
    import pyarrow.types as pt

    for field in schema:
        if pt.is_nested(field.type) or pt.is_binary(field.type):
            raise Failure(
                f"CSV cannot hold column {field.name} of type {field.type}; write a .parquet file, or leave it out with --columns."
            )


class TerminalStream(io.RawIOBase):
    """Writes to a terminal what rows hold, with control characters written out."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode

    def writable(self) -> bool:
        """Yes."""
        return True

    def write(self, data: Any) -> int:
        """Write bytes of UTF-8, wherever they are cut."""
        given = bytes(data)
        self._stream.write(escaped(self._decode(given)).encode())
        return len(given)

    def flush(self) -> None:
        """Let it be seen."""
        self._stream.flush()


class JsonSink(Sink):
    """One JSON document: the columns with their types, and the rows."""

    def __init__(self, stream: IO[bytes], schema: pa.Schema) -> None:
        self._stream, self._separator = stream, "\n"
        columns = [{"name": field.name, "type": str(field.type)} for field in schema]
        self._put(f'{{\n"columns": {json_text(columns)},\n"rows": [')

    def write(self, batch: pa.RecordBatch) -> None:
        for row in batch.to_pylist():
            self._put(self._separator + json_text(row))
            self._separator = ",\n"

    def close(self) -> None:
        self._put("\n]\n}\n")
        self._stream.flush()

    def discard(self) -> None:
        self._stream.flush()

    def _put(self, text: str) -> None:
        self._stream.write(text.encode())


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
            written = (
                _write_groups(plan, loaded, question, output)
                if placeholders
                else _write(session, plan, loaded, question, output)
            )
        except pa.ArrowException as error:
            raise Failure(f"Could not write {output}: {one_line(error)}") from error
    if kind != "stdout":
        show(
            session,
            {"rows": sum(written.values()), "files": written},
            lambda: (f"{pluralize(rows, 'row')} in {name}" for name, rows in written.items()),
        )


def _write(session: Session, plan: QueryPlan, loaded: LoadedCube, question: Question, output: str) -> dict[str, int]:
    """All rows into one place; file → rows."""
    from kartothek_cube.cube.verbs.stream import run_plan

    with _sink(session, output, plan.schema) as sink:
        return {output: _pour(first_rows(run_plan(plan, loaded.store), question.limit), sink)}


def _write_groups(plan: QueryPlan, loaded: LoadedCube, question: Question, output: str) -> dict[str, int]:
    """Each group into a file of its own; file → rows."""
    from kartothek_cube.cube.execute.run import iter_groups

    written: dict[str, int] = {}
    left = question.limit
    for key, table in iter_groups(plan, loaded.store):
        if left is not None and left <= 0:
            break
        name = group_file(output, key)
        if name in written:
            raise Failure(
                f"--output {output}: several groups would be written to {name}; put something that is in no value between the places."
            )
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
        raise Failure(
            f"--output {output} should have a place for each column of --by and no other: {', '.join(f'{{{name}}}' for name in by) or 'none'}"
        )
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

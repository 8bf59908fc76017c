"""Output of the commands.

In order:

- styles, figures, tables, sizes, JSON; and questions before deletions
- rows in Parquet, CSV or JSON, written as they are read; a file appears when it is complete
"""

from __future__ import annotations

import base64
import codecs
import io
import json
import math
import os
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from pathlib import Path
from string import Formatter
from typing import IO, TYPE_CHECKING, Any, Literal, Self
from urllib.parse import quote

import click

from kartothek_cube.cli.context import Failure, LoadedCube, Session, StoreFailure, escaped, load_cube, working
from kartothek_cube.cli.options import groups_of, plan_of
from kartothek_cube.core.arguments import pluralize
from kartothek_cube.errors import ReadOnlyStore, one_line

if TYPE_CHECKING:
    import pyarrow as pa

    from kartothek_cube.api.cube import QueryPlan
    from kartothek_cube.core.stores.contract import Store


_STEP = 1024
# Control characters that `json.dumps` does not escape.
_BEYOND_JSON = re.compile("[\x7f-\x9f\u2028-\u202e\u2066-\u2069]")

# Noncharacters of Unicode mark the styles, so that control sequences in names can be escaped.
_SECTION, _BOLD, _RED, _END = "\ufdd0", "\ufdd1", "\ufdd2", "\ufdd3"
_STYLES = {
    ord(mark): click.style("", reset=mark == _END, **style)
    for mark, style in (
        (_SECTION, {"fg": "yellow", "bold": True, "underline": True}),
        (_BOLD, {"bold": True}),
        (_RED, {"fg": "red", "bold": True}),
        (_END, {}),
    )
}


def echo(line: str) -> None:
    """Print one line with its styles; control characters of names and labels are escaped."""
    click.echo(escaped(line).replace("\n", "\\n").translate(_STYLES))


def section(text: str) -> str:
    """The heading of a section: bold, underlined, yellow."""
    return f"{_SECTION}{text}{_END}"


def bold(text: str) -> str:
    """The name of a figure or a list."""
    return f"{_BOLD}{text}{_END}"


def red(text: str) -> str:
    """An error, or a missing thing."""
    return f"{_RED}{text}{_END}"


def figure(name: str, number: int) -> str:
    """One line of statistics."""
    return f"{bold(f'{name}:')}  {number:,}"


def size(count: int) -> str:
    """A number of bytes in binary units.

    Examples
    --------
    >>> size(999), size(123_456)
    ('999 B', '120.6 KiB')
    """
    if count < _STEP:
        return f"{count} B"
    power = min(int(math.log(count, _STEP)), 5)
    return f"{count / _STEP**power:.1f} {'KMGTP'[power - 1]}iB"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[str] = ()) -> Iterator[str]:
    """Lines of a table; columns in ``right`` are aligned to the right."""
    # All rows at once: the widths of the columns depend on the last one, too.
    cells = [list(row) for row in rows]
    widths = [max(len(row[i]) for row in [list(head), *cells]) for i in range(len(head))]
    numbers = [name in right for name in head]
    yield bold(_line(head, widths, numbers))
    yield from (_line(row, widths, numbers) for row in cells)


def _line(cells: Sequence[str], widths: Sequence[int], numbers: Sequence[bool]) -> str:
    padded = (
        cell.rjust(width) if number else cell.ljust(width)
        for cell, width, number in zip(cells, widths, numbers, strict=True)
    )
    return "  ".join(padded).rstrip()


def plain(value: object) -> Any:
    """A value as JSON: ISO times, seconds, base64, sorted sets; null for NaN and infinity."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(plain(item) for item in value)
    if isinstance(value, float):
        # Python would write `NaN` and `Infinity`, which other parsers of JSON refuse.
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, date | datetime | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


def document(value: object) -> str:
    """One JSON document."""
    return json_text(value, indent=2)


def json_text(value: object, indent: int | None = None) -> str:
    """A value in JSON, without control characters."""
    text = json.dumps(plain(value), indent=indent, ensure_ascii=False)
    return _BEYOND_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def show(session: Session, value: object, lines: Callable[[], Iterable[str]]) -> None:
    """Print a value in the format of the session: as a JSON document, or as lines of text."""
    if session.json:
        click.echo(document(value))
        return
    for line in lines():
        echo(line)


def confirm(question: str, store: Store, *, yes: bool) -> None:
    """Ask a question on a terminal, unless ``--yes`` answered it.

    Raises
    ------
    ReadOnlyStore
        If the store cannot be written to.
    click.Abort
        If the answer is no.
    """
    if not store.capabilities.writable:
        raise ReadOnlyStore(f"The store {store.name} cannot be written to.")
    # Without a terminal there is no question, so that scripts keep working.
    if not yes and sys.stdin.isatty() and not _answer(escaped(question)):
        raise click.Abort


def _answer(question: str) -> bool:
    try:
        return click.confirm(question, err=True)
    except click.Abort:
        click.echo(err=True)  # Ctrl-C leaves the cursor behind the question
        raise


# --- rows on the terminal and in files ------------------------------------------------------------


def kind_of(output: str) -> Literal["csv", "parquet", "stdout"]:
    """The format of an output by its name.

    Raises
    ------
    Failure
        If there is no such format.
    """
    if output == "-":
        return "stdout"
    suffix = Path(output).suffix.lower()
    if suffix in (".parquet", ".csv"):
        return "csv" if suffix == ".csv" else "parquet"
    raise Failure(f"--output takes a file that ends in .parquet or .csv, or - for stdout, not {output}")


def place_of(output: str) -> Path:
    """The path of an output file.

    Raises
    ------
    StoreFailure
        If the path is a directory, or its directory does not exist.
    """
    path = Path(output)
    if path.is_dir():
        raise StoreFailure(f"Could not write {output}: it is a directory.")
    if not path.parent.is_dir():
        raise StoreFailure(f"Could not write {output}: there is no directory {path.parent}.")
    return path


def _partial_of(path: Path) -> Path:
    """The name of a file until it is complete."""
    # Hidden, and with the process id: two queries into one file do not mix their rows.
    return path.with_name(f".{path.name}.{os.getpid()}.partial")


def write_page(path: Path, page: str) -> None:
    """Write a page; an earlier one stays until this one is complete."""
    partial = _partial_of(path)
    try:
        partial.write_text(page, encoding="utf-8")
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


class Sink(ABC):
    """Writes batches of rows.

    A context manager: completes the output at its end, and removes a file after an error.
    """

    @abstractmethod
    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows."""

    @abstractmethod
    def close(self) -> None:
        """Complete the output."""

    @abstractmethod
    def discard(self) -> None:
        """Remove the incomplete output, if it is a file."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        if error_type is None:
            self.close()
        else:
            self.discard()


class _FileSink(Sink):
    """A file with a temporary name until it is complete."""

    def __init__(self, path: Path) -> None:
        self._path, self._partial = path, _partial_of(path)
        self._writer: Any = None

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write(batch)

    def close(self) -> None:
        try:
            # Closing writes the footer of Parquet, so it may fail, e.g. on a full disk.
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

        from kartothek_cube.core.io.formats import paths_with_statistics

        super().__init__(path)
        try:
            self._writer = pq.ParquetWriter(self._partial, schema, write_statistics=paths_with_statistics(schema))
        except BaseException:  # a type that Parquet does not have
            self._partial.unlink(missing_ok=True)
            raise


class CsvSink(_FileSink):
    """CSV with a header, into a file or a stream."""

    def __init__(self, target: Path | IO[bytes], schema: pa.Schema) -> None:
        import pyarrow.csv
        import pyarrow.types as pt

        self._is_file = isinstance(target, Path)
        super().__init__(target if isinstance(target, Path) else Path("stdout"))
        # Before the writer, which would leave a file behind.
        for field in schema:
            if pt.is_nested(field.type) or pt.is_binary(field.type):
                raise Failure(
                    f"CSV cannot hold column {field.name} of type {field.type}; write a .parquet file, or leave it out."
                )
        self._writer = pyarrow.csv.CSVWriter(str(self._partial) if self._is_file else target, schema)

    def close(self) -> None:
        if self._is_file:
            super().close()
        else:
            self._writer.close()

    def discard(self) -> None:
        # Rows that went to a stream cannot be taken back.
        if self._is_file:
            super().discard()


class TerminalStream(io.RawIOBase):
    """Writes to a terminal, with control characters escaped."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode

    def writable(self) -> bool:
        """True."""
        return True

    def write(self, data: Any) -> int:
        """Write bytes of UTF-8, which may end inside of a character."""
        chunk = bytes(data)
        self._stream.write(escaped(self._decode(chunk)).encode())
        return len(chunk)

    def flush(self) -> None:
        """Flush the terminal."""
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
    """The options of a query."""

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
        If the query is invalid, or the file format cannot hold the columns.
    """
    import pyarrow as pa

    from kartothek_cube.cube.verbs.read import run_plan

    to_stdout = kind_of(output) == "stdout"
    has_placeholders = _has_placeholders(output, groups_of(question.by))
    with working(session, quiet=to_stdout and sys.stdout.isatty()):
        loaded = load_cube(session)
        plan = plan_of(loaded, question.where, question.columns, question.by, question.as_of)
        try:
            if has_placeholders:
                written = _write_groups(plan, loaded, question, output)
            else:
                with sink_of(session, output, plan.schema) as sink:
                    written = {output: write_output(first_rows(run_plan(plan, loaded.store), question.limit), sink)}
        except pa.ArrowException as error:
            raise Failure(f"Could not write {output}: {one_line(error)}") from error
    if not to_stdout:
        show_written(session, written)


def show_written(session: Session, written: Mapping[str, int]) -> None:
    """Say how many rows are in which file."""
    show(
        session,
        {"rows": sum(written.values()), "files": written},
        lambda: (f"{pluralize(rows, 'row')} in {name}" for name, rows in written.items()),
    )


def _write_groups(plan: QueryPlan, loaded: LoadedCube, question: Question, output: str) -> dict[str, int]:
    """Write each group to its own file; return the number of rows of each file."""
    from kartothek_cube.cube.execute.run import iter_groups

    written: dict[str, int] = {}
    left = question.limit
    for key, table in iter_groups(plan, loaded.store):
        if left is not None and left <= 0:
            break
        name = group_file(output, key)
        # Values such as 1, 23 and 12, 3 are one name if nothing separates the placeholders.
        if name in written:
            raise Failure(
                f"--output {output}: several groups would be written to {name}; "
                "put something that is in no value between the places."
            )
        with _file_sink(name, table.schema) as sink:
            written[name] = write_output(first_rows(table.to_batches(), left), sink)
        left = None if left is None else left - written[name]
    return written


def write_output(batches: Iterable[pa.RecordBatch], sink: Sink) -> int:
    """Write batches; return the number of their rows."""
    rows = 0
    for batch in batches:
        sink.write(batch)
        rows += batch.num_rows
    return rows


def first_rows(batches: Iterable[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    """The first rows of some batches; later batches are not read."""
    if limit is None:
        yield from batches
        return
    left, rest = limit, iter(batches)
    while left > 0 and (batch := next(rest, None)) is not None:
        yield batch.slice(0, left)
        left -= min(left, batch.num_rows)


def sink_of(session: Session, output: str, schema: pa.Schema) -> Sink:
    """The sink for an output: a file, or for ``-`` CSV or JSON on stdout."""
    if output != "-":
        return _file_sink(output, schema)
    stream: Any = TerminalStream(sys.stdout.buffer) if sys.stdout.isatty() else sys.stdout.buffer
    if session.json:
        return JsonSink(stream, schema)
    return CsvSink(stream, schema)


def _file_sink(name: str, schema: pa.Schema) -> Sink:
    path = place_of(name)
    return ParquetSink(path, schema) if kind_of(name) == "parquet" else CsvSink(path, schema)


def _has_placeholders(output: str, by: list[str]) -> bool:
    """Whether the name has placeholders: for every column of ``--by`` and no other."""
    try:
        placeholders = {name for _, name, _, _ in Formatter().parse(output) if name is not None}
        if placeholders == set(by):
            group_file(output, dict.fromkeys(by, "value"))  # raises for an invalid format
    except ValueError as error:
        raise Failure(f"--output {output}: {error}") from error
    if placeholders and placeholders != set(by):
        places = ", ".join(f"{{{name}}}" for name in by) or "none"
        raise Failure(f"--output {output} should have a place for each column of --by and no other: {places}")
    return bool(placeholders)


def group_file(output: str, key: dict[str, Any]) -> str:
    """The file of one group.

    Examples
    --------
    >>> group_file("sales_{COUNTRY_CODE}.parquet", {"COUNTRY_CODE": "DE/BY"})
    'sales_DE%2FBY.parquet'
    """
    values = {}
    for name, value in key.items():
        # Neither a slash nor the names `.` and `..` may lead to another directory.
        text = str(value)
        values[name] = quote(text, safe=" ") if text.strip(".") else text.replace(".", "%2E")
    return output.format_map(values)

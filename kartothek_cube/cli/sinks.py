"""Where the rows of a query go: Parquet, CSV, JSON; a file appears when it is whole."""

from __future__ import annotations

import codecs
import io
import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, Self

from kartothek_cube.cli.failures import Failure, StoreFailure, escaped
from kartothek_cube.cli.output import json_text

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["CsvSink", "JsonSink", "ParquetSink", "Sink", "TerminalStream", "kind_of", "place_of"]


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
    """Takes batches of rows. As a context manager it ends what it writes; after an error nothing is left of a file."""

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
            raise Failure(f"CSV cannot hold column {field.name} of type {field.type}; write a .parquet file, or leave it out with --columns.")


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

"""The contract of file formats, their suffixes, and errors about files that cannot be read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pyarrow as pa

from kartothek_cube.core.stores.contract import Store, check_key
from kartothek_cube.errors import CorruptData, CorruptDocument, InvalidInput, KeyNotFound

__all__ = ["FileFormat", "as_table", "check_named_key", "file_suffix", "readable"]


INDEX_SUFFIX = ".by-dataset-index.parquet"
DATA_SUFFIX = ".parquet"
CSV_SUFFIX = ".csv"
CSV_GZIP_SUFFIX = ".csv.gz"


class FileFormat(ABC):
    """How data files are written.

    Formats are values: frozen, equal by their settings, picklable.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def file_suffix(self) -> str:
        """Suffix of the keys of data files, by which readers know the format."""

    def check(self, schema: pa.Schema) -> None:  # noqa: B027 - most formats carry everything
        """Raise `Unsupported` for columns that the format cannot carry."""

    @abstractmethod
    def encode(self, table: pa.Table) -> pa.Buffer:
        """The bytes of one file.

        Raises
        ------
        Unsupported
            If the format cannot carry a column.
        """

    @abstractmethod
    def write_stream(self, batches: Iterable[pa.RecordBatch | pa.Table], schema: pa.Schema, sink: object) -> int:
        """Write one file piece by piece and return the number of rows.

        Memory does not grow with the file.

        Parameters
        ----------
        batches : iterable of pyarrow.RecordBatch or pyarrow.Table
            The rows. Columns come in any order and are cast to the types of ``schema``.
        schema : pyarrow.Schema
            The columns of the file.
        sink : binary file object
            Where the bytes go. It is not closed.
        """


def as_table(batch: pa.RecordBatch | pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows in the columns and types of a schema."""
    table = pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else batch
    return table.select(schema.names).cast(schema)


def check_named_key(key: str, dataset: str | None) -> None:
    """Check a key that a document names.

    Raises
    ------
    CorruptDocument
        If no store can hold the key.
    """
    try:
        check_key(key)
    except InvalidInput as error:
        if dataset is None:
            raise
        raise CorruptDocument(f"The document of dataset {dataset!r} names a key that is none: {error}") from None


@contextmanager
def readable(store: Store, key: str, dataset: str | None) -> Iterator[None]:
    """Name the key and the dataset in errors about a file that is missing or damaged."""
    check_named_key(key, dataset)
    try:
        yield
    except (FileNotFoundError, KeyNotFound):
        if dataset is None:
            raise KeyNotFound(f"The file {key!r} is not in the store {store.name}.") from None
        raise KeyNotFound(
            f"The file {key!r}, which dataset {dataset!r} names, is not in the store {store.name}. If newer "
            "commits have replaced it and it was garbage collected since this read was planned, plan it again; else "
            "the dataset is damaged, and `verify` says how far."
        ) from None
    except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
        if isinstance(error, OSError) and (type(error) is not OSError or error.errno is not None):
            raise  # the store or the network, not the file
        if isinstance(error, MemoryError):
            raise
        owner = "" if dataset is None else f" of dataset {dataset!r}"
        raise CorruptData(f"The file {key!r}{owner} cannot be read: {error}") from error


def file_suffix(key: str) -> str:
    """The suffix of an index file or a data file; empty for any other key.

    Examples
    --------
    >>> file_suffix("sales++seed/table/week-18.csv.gz")
    '.csv.gz'
    """
    return next((s for s in (INDEX_SUFFIX, DATA_SUFFIX, CSV_GZIP_SUFFIX, CSV_SUFFIX) if key.endswith(s)), "")

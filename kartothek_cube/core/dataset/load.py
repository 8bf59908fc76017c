"""Running a scan: files in threads, results in the order of the plan, as Arrow tables."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from typing import TypeVar

import pyarrow as pa

from kartothek_cube.core.files import FileRequest, open_rows, read_rows
from kartothek_cube.core.frames import concat_encoded, encoded
from kartothek_cube.core.options import current_options
from kartothek_cube.core.parallel import READ_FILES, SizeEstimate, map_in_threads, thread_count
from kartothek_cube.core.rowkeys import empty_rows
from kartothek_cube.core.scan import FilePlan, ScanTask
from kartothek_cube.core.store import Store

__all__ = ["joined", "load_scan", "load_tables", "stream_pieces", "stream_tables"]

T = TypeVar("T")

# Smaller pieces of a file would cost more time than memory they save.
_LEAST_PIECE = 2**20


def load_tables(store: Store, request: FileRequest, tasks: Sequence[ScanTask], categoricals: Sequence[str] = ()) -> list[pa.Table]:
    """All files, in order; categoricals become dictionaries as soon as a file is read."""
    return list(map_in_threads(lambda task: encoded(read_rows(store, task.key, request, task.constants), categoricals), tasks, store=store, phase=READ_FILES))


def load_scan(store: Store, plan: FilePlan, categoricals: Sequence[str] = ()) -> pa.Table:
    """All files of a plan as one table."""
    return joined(load_tables(store, plan.request, plan.tasks(), categoricals), plan.request, categoricals)


def stream_tables(store: Store, request: FileRequest, tasks: Sequence[ScanTask]) -> Generator[pa.Table, None, None]:
    """The rows of all files as they are, as by `stream_pieces`."""
    return stream_pieces(store, request, tasks, lambda table: table)


def stream_pieces(store: Store, request: FileRequest, tasks: Sequence[ScanTask], convert: Callable[[pa.Table], T]) -> Generator[T, None, None]:
    """What ``convert`` makes of the rows of all files, piece by piece and in order; all pieces on their way take about ``bytes_in_flight``.

    The next files are opened in threads meanwhile. Those that fit into a piece, as most do, are read there, too; larger ones piece by piece when it is
    their turn.
    """
    settings, weight = current_options(), SizeEstimate()
    nbytes = max(_LEAST_PIECE, settings.bytes_in_flight // (2 * thread_count(store)))  # `map_in_threads` has up to two tasks a thread on their way

    def load(task: ScanTask) -> Iterator[T]:
        is_small, pieces = open_rows(store, task.key, request, nbytes, task.constants)
        if not is_small:
            return map(convert, pieces)
        tables = list(pieces)
        weight.measured(sum(table.nbytes for table in tables))
        return iter([convert(table) for table in tables])

    return _flat(map_in_threads(load, tasks, store=store, weight=weight, phase=READ_FILES))


def _flat(parts: Generator[Iterator[T], None, None]) -> Generator[T, None, None]:
    with closing(parts):
        for part in parts:
            yield from part


def joined(tables: Sequence[pa.Table], request: FileRequest, categoricals: Sequence[str] = ()) -> pa.Table:
    """Tables of one request as one; without any, an empty one of the same type."""
    if not request.columns:
        return empty_rows(sum(table.num_rows for table in tables))
    if not tables:
        tables = [encoded(pa.schema([request.schema.field(c) for c in request.columns]).empty_table(), categoricals)]
    return concat_encoded(tables, categoricals)

"""A few rows of several local files, by one scan: Arrow's threads decode and filter meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, reduce
from operator import and_, eq, ge, gt, le, lt, or_
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pa_fs
import pyarrow.types as pt

from kartothek_cube.core.arrow.literals import literal
from kartothek_cube.core.expressions.evaluate import constant_array, filter_table, matching_rows
from kartothek_cube.core.expressions.predicates import Clause, Predicates, accepts_null, columns_of
from kartothek_cube.core.io.parquet import matching_groups
from kartothek_cube.core.io.parquet_footer import FileState, ParquetFooter, file_state, kept_footer
from kartothek_cube.core.io.parquet_source import ParquetSource
from kartothek_cube.core.runtime.telemetry import record
from kartothek_cube.core.stores.contract import Store

if TYPE_CHECKING:
    from pyarrow.dataset import ParquetFileFormat

__all__ = ["implied_filter", "scan_matching"]

_LOCAL = pa_fs.LocalFileSystem()
# A scan has costs of its own for each file.
_FEWEST_ROWS, _MOST_ROWS = 4_096, 65_536
# So many values of all files may be in memory at a time.
_MOST_VALUES = 2**23
# Looking values up among more constants takes longer than it saves.
_CONSTANTS = 256
_COMPARE: dict[str, Any] = {"==": eq, "<": lt, "<=": le, ">": gt, ">=": ge}
# The name under which Arrow tells where in its dataset the file of a row is.
_NUMBER = "__fragment_index"


class _KnownFile(NamedTuple):
    """A file that this process has opened before, its row groups of use, and their rows."""

    path: str
    state: FileState
    footer: ParquetFooter
    groups: list[int]
    rows: int


def scan_matching(
    store: Store, keys: Sequence[str], columns: Sequence[str], schema: pa.Schema, predicates: Predicates
) -> tuple[pa.Table, list[int]] | None:
    """The rows of Parquet files that satisfy the predicates, and the number of rows of each file.

    None if a scan does not suit or fails: whoever reads the files one by one knows which is wrong.
    It suits files that this process has opened before, with all columns in the types of the schema.
    Texts take as long as one by one, where they are read as dictionaries.
    """
    names = [*columns, *sorted(columns_of(predicates) - set(columns))]
    wanted = pa.schema([(name, schema.field(name).type) for name in names])
    if not all(map(pt.is_primitive, wanted.types)):
        return None
    try:
        files = _known_files(store, keys, wanted, predicates)
        if not files:
            return None
        found = _scan(files, wanted, predicates)
        if any(file_state(file.path) != file.state for file in files):
            return None
    except (pa.ArrowException, OSError):
        return None
    record(files_read=len(files), bytes_read=sum(file.state.size for file in files))
    table = found.select(names)
    mask = matching_rows(table, predicates)
    counts = np.bincount(found.column(_NUMBER).to_numpy()[mask], minlength=len(files)).tolist()
    return filter_table(table, mask).select(list(columns)), counts


def _known_files(store: Store, keys: Sequence[str], wanted: pa.Schema, predicates: Predicates) -> list[_KnownFile]:
    """All files, or none if one of them does not suit."""
    files = []
    for key in keys:
        file = _known_file(store, key, wanted, predicates)
        if file is None:
            return []
        files.append(file)
    values = len(wanted) * sum(file.rows for file in files)
    return files if values <= _MOST_VALUES and len({file.path for file in files}) == len(files) else []


def _known_file(store: Store, key: str, wanted: pa.Schema, predicates: Predicates) -> _KnownFile | None:
    path = store.local_path(key)
    if path is None:
        return None
    state = file_state(path)
    footer = kept_footer(path, state)
    if footer is None or not all(
        field.name in footer.positions and footer.schema.field(field.name).type.equals(field.type) for field in wanted
    ):
        return None
    with _LOCAL.open_input_file(path) as handle:
        source = ParquetSource(handle, state.size, footer)
        groups = matching_groups(source, wanted, predicates)
        source.check_chunks(groups, wanted.names)
        file = _KnownFile(path, state, footer, groups, source.rows(groups))
    return file if not file.rows or _FEWEST_ROWS <= file.rows <= _MOST_ROWS else None


def _scan(files: Sequence[_KnownFile], wanted: pa.Schema, predicates: Predicates) -> pa.Table:
    """The rows that may satisfy the predicates, in order, with the number of their file."""
    from pyarrow.dataset import FileSystemDataset  # which loads pandas

    fragments = list(map(_fragment, files))
    dataset = FileSystemDataset(fragments, wanted, _format(), _LOCAL)
    scanner = dataset.scanner(
        [*wanted.names, _NUMBER], implied_filter(predicates, wanted), batch_size=_MOST_ROWS, use_threads=False
    )
    found: pa.Table = scanner.to_table()
    return found


def _fragment(file: _KnownFile) -> Any:
    """The row groups of use for scans. The footer is parsed by the first scan of the file."""
    if file.footer.fragment is None:
        file.footer.fragment = _format().make_fragment(file.path, _LOCAL, row_groups=file.groups)
        return file.footer.fragment
    return file.footer.fragment.subset(row_group_ids=file.groups)


@cache
def _format() -> ParquetFileFormat:
    from pyarrow.dataset import ParquetFileFormat, ParquetFragmentScanOptions

    options = ParquetFragmentScanOptions(pre_buffer=False, page_checksum_verification=True)
    return ParquetFileFormat(default_fragment_scan_options=options)


def implied_filter(predicates: Predicates, schema: pa.Schema) -> pc.Expression | None:
    """What Arrow can tell of a row while it reads; every row that satisfies the predicates passes.

    Examples
    --------
    >>> either = ((Clause("WEEK", "==", 7), Clause("SALES", "<", 0.5)), (Clause("WEEK", ">", 9),))
    >>> implied_filter(either, pa.schema([("WEEK", pa.int64()), ("SALES", pa.float64())]))
    <pyarrow.compute.Expression ((WEEK == 7) or (WEEK > 9))>
    """
    alternatives = []
    for conjunction in predicates:
        known = [f for c in conjunction if (f := _implied_by(c, schema.field(c.column).type)) is not None]
        if not known:
            return None
        alternatives.append(reduce(and_, known))
    return reduce(or_, alternatives)


def _implied_by(clause: Clause, data_type: pa.DataType) -> pc.Expression | None:
    has_order = any(is_one(data_type) for is_one in (pt.is_integer, pt.is_date, pt.is_timestamp))
    if not has_order or accepts_null(clause):
        return None
    if clause.op == "in":
        constants = constant_array(clause, data_type)
        is_short = len(constants) <= _CONSTANTS and constants.type.equals(data_type)
        return pc.field(clause.column).isin(constants) if is_short else None
    place = literal(clause.value, data_type) if clause.op in _COMPARE else None
    if place is None or not place.exact or place.floor is None or not place.floor.type.equals(data_type):
        return None
    expression: pc.Expression = _COMPARE[clause.op](pc.field(clause.column), place.floor)
    return expression

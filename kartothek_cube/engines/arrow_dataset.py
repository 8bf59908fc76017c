"""Tables as datasets of Arrow, which DuckDB scans with push-down, batch by batch.

DuckDB passes filters as expressions of Arrow. Arrow has no public way to look into these, but they
can be pickled: as a record batch, whose row has the constants and whose metadata list the nodes in
prefix order.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.types as pt

from kartothek_cube.core.expressions.predicates import is_null
from kartothek_cube.engines.pushdown import (
    And,
    Comparison,
    Filter,
    Membership,
    Not,
    NullTest,
    Or,
    Unknown,
    implied_clauses,
    moment,
)
from kartothek_cube.engines.tables import Scan, Table

__all__ = ["TableDataset", "fields_of", "filter_of"]

_OPERATORS = {
    "equal": "==",
    "not_equal": "!=",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
}

_JOINTS: dict[str, type[And | Or]] = {"and_kleene": And, "or_kleene": Or}

Operand: TypeAlias = str | pa.Scalar | Filter

"""A column by name, a constant, or a filter."""


def filter_of(expression: pc.Expression) -> Filter:
    """What an expression of Arrow says as a filter; `Unknown` for what is not understood.

    Examples
    --------
    >>> import pyarrow.compute as pc
    >>> filter_of((pc.field("WEEK") > 9) & pc.field("BRAND").is_null())
    And(operands=(Comparison(column='WEEK', op='>', value=9), NullTest(column='BRAND')))
    """
    batch = pa.ipc.open_file(expression.__reduce__()[1][0]).get_batch(0)
    return _as_filter(_Parser(_metadata(batch.schema), batch).operand())


def _metadata(schema: pa.Schema) -> list[tuple[str, str]]:
    """The metadata of a schema in order: keys repeat, so the dict of pyarrow does not have all."""
    capsule = schema.__arrow_c_schema__()
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    # Arrow's C data interface: the struct begins with pointers to format, name and metadata. These
    # are a count of pairs, then keys and values, each after its length.
    place = (ctypes.c_void_p * 3).from_address(pointer_of(capsule, b"arrow_schema"))[2] or 0
    words = []
    count = ctypes.c_int32.from_address(place).value
    for _ in range(2 * count):
        place += 4
        size = ctypes.c_int32.from_address(place).value
        words.append(ctypes.string_at(place + 4, size).decode())
        place += size
    return list(zip(words[::2], words[1::2], strict=True))


class _Parser:
    """Reads the nodes of an expression one after the other."""

    def __init__(self, nodes: list[tuple[str, str]], batch: pa.RecordBatch) -> None:
        self._nodes, self._batch, self._next = nodes, batch, 0

    def operand(self) -> Operand:
        """The next node, with all that belongs to it."""
        kind, value = self._take()
        if kind == "literal":
            return self._batch.column(int(value))[0]
        if kind == "field_ref":
            return value
        if kind == "nested_field_ref":
            self._next += int(value)
            return Unknown()
        operands, options = list[Operand](), dict[str, Any]()
        while self._nodes[self._next][0] != "end":
            if self._nodes[self._next][0] == "options":
                options = dict(self._batch.column(int(self._take()[1]))[0].items())
            else:
                operands.append(self.operand())
        self._take()
        return _call(value, operands, options)

    def _take(self) -> tuple[str, str]:
        self._next += 1
        return self._nodes[self._next - 1]


def _as_filter(operand: Operand) -> Filter:
    """A column alone is one of truth values; a constant alone says nothing."""
    if isinstance(operand, str):
        return Comparison(operand, "==", value=True)
    return Unknown() if isinstance(operand, pa.Scalar) else operand


def _call(name: str, operands: list[Operand], options: dict[str, Any]) -> Filter:
    if name in _JOINTS:
        # A null is what DuckDB 1.2 passes for the bound of `ORDER BY … LIMIT` before there is one.
        said = (o for o in operands if not (name == "and_kleene" and isinstance(o, pa.Scalar) and pt.is_null(o.type)))
        return _JOINTS[name](tuple(map(_as_filter, said)))
    match name, operands:
        case "invert", [operand]:
            return Not(_as_filter(operand))
        case "is_null", [str(column)] if not options["nan_is_null"].as_py():
            return NullTest(column)
        case "is_valid", [str(column)]:
            return Not(NullTest(column))
        case "is_in", [str(column)]:
            values = [constant(value) for value in options["value_set"].values if value.is_valid]
            return Unknown() if None in values else Membership(column, tuple(values))
        # The IN of DuckDB 2, which is null for null.
        case "if_else", [Not(NullTest(column)), Membership() as member, pa.Scalar(is_valid=False)]:
            return member if member.column == column else Unknown()
        case _, [str(column), pa.Scalar() as scalar] if name in _OPERATORS:
            value = constant(scalar)
            return Unknown() if value is None else Comparison(column, _OPERATORS[name], value)
    return Unknown()


def constant(scalar: pa.Scalar) -> Any:
    """The value of a scalar as a constant of conditions; None for null and NaN."""
    try:
        if pt.is_timestamp(scalar.type) and scalar.is_valid:
            return moment(scalar.value, scalar.type.unit, scalar.type.tz)
        value = scalar.as_py()
    except (OverflowError, ValueError):  # the infinite dates of DuckDB, and text cut within a letter
        return None
    return None if is_null(value) else value


def fields_of(expression: pc.Expression) -> set[str]:
    """The columns that an expression of Arrow names."""
    metadata = _metadata(pa.ipc.open_file(expression.__reduce__()[1][0]).get_batch(0).schema)
    return {value for kind, value in metadata if kind == "field_ref"}


class TableDataset(pads.Dataset):
    """A table as DuckDB takes it: a dataset of Arrow with a schema and a scanner.

    Nothing else of a dataset works: there is no dataset of Arrow's below.

    Parameters
    ----------
    table : Table
        What is scanned.
    record : callable
        Called with each scan, when it has been planned.
    is_dry : bool
        Plan and record scans, and give no rows.
    """

    def __init__(self, table: Table, record: Callable[[Scan], object], *, is_dry: bool = False) -> None:
        # Without the initializer of the base class, which allows none but Arrow's own datasets.
        self.table, self._record, self._is_dry = table, record, is_dry

    @property
    def schema(self) -> pa.Schema:
        """All columns of the table."""
        return self.table.schema

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002 - Arrow's name, which DuckDB uses
        **_: Any,
    ) -> TableScanner:
        """Plan a scan of some columns, for the rows that satisfy an expression."""
        table, wanted = self.table, list(self.table.schema.names if columns is None else columns)
        if filter is None:
            scanner = TableScanner(table.scan(wanted), wanted)
        else:
            (implied,) = implied_clauses([filter_of(filter)], table.schema, table.accepts)
            needed = wanted if implied.exact else [*wanted, *sorted(fields_of(filter) - set(wanted))]
            scan = table.scan(needed, implied.clauses)
            scanner = TableScanner(scan, wanted, None if implied.exact else filter)
        self._record(scanner.scan)
        return scanner.without_rows() if self._is_dry else scanner


class TableScanner:
    """A planned scan, which DuckDB asks for its reader."""

    def __init__(
        self, scan: Scan, columns: list[str], rest: pc.Expression | None = None, *, limit: int | None = None
    ) -> None:
        self.scan, self._columns, self._rest, self._limit = scan, columns, rest, limit

    def without_rows(self) -> TableScanner:
        """The same scanner, which reads nothing."""
        return TableScanner(self.scan, self._columns, self._rest, limit=0)

    @property
    def projected_schema(self) -> pa.Schema:
        """The columns of the rows."""
        return pa.schema([self.scan.table.schema.field(c) for c in self._columns])

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows, batch by batch."""
        return pa.RecordBatchReader.from_batches(self.projected_schema, self._batches())

    def _batches(self) -> Iterator[pa.RecordBatch]:
        for rows in self.scan.tables(self._limit):
            kept = rows if self._rest is None else rows.filter(self._rest)
            yield from kept.select(self._columns).to_batches()

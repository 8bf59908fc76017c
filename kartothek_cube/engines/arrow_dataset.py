"""Tables as datasets of Arrow, which DuckDB scans with push-down, batch by batch.

DuckDB passes filters as expressions of Arrow. Arrow has no public way to look into these, but they
can be pickled: as a record batch, whose row has the constants and whose metadata list the nodes in
prefix order.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from math import isnan
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.types as pt
from msgspec import Struct, field

from kartothek_cube.core.expressions.filters import And, Filter, Not, Or, Unknown, implied_clauses, joined
from kartothek_cube.core.expressions.literals import moment
from kartothek_cube.core.expressions.predicates import Clause, Constants, is_null
from kartothek_cube.engines.tables import Scan, Table

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

_Nodes: TypeAlias = list[tuple[str, str]]


def filter_of(expression: pc.Expression) -> Filter:
    """What an expression of Arrow says as a filter; `Unknown` for what is not understood.

    Examples
    --------
    >>> import pyarrow.compute as pc
    >>> filter_of(pc.field("WEEK").is_null() | (pc.field("WEEK") > 9)).operands
    (Clause(column='WEEK', op='==', value=None), Clause(column='WEEK', op='>', value=9))
    """
    return parse_expression(expression)[0]


def parse_expression(expression: pc.Expression) -> tuple[Filter, set[str]]:
    """What an expression of Arrow says as a filter, and the columns that it needs.

    Examples
    --------
    >>> import pyarrow.compute as pc
    >>> parse_expression(pc.field("SHOP", "CITY") == "Berlin")
    (Unknown(), {'SHOP'})
    """
    batch = pa.ipc.open_file(expression.__reduce__()[1][0]).get_batch(0)
    nodes, columns = iter(_metadata(batch.schema)), set[str]()
    # The calls that have not ended, from the outermost. A stack: expressions may be very deep.
    calls = [_Call("")]
    for kind, value in nodes:
        operands = calls[-1].operands
        match kind:
            case "literal":
                operands.append(batch.column(int(value))[0])
            case "field_ref":
                columns.add(value)
                operands.append(value)
            case "nested_field_ref":  # a field of a struct: as many names as it is deep
                struct, *_ = [name for _, name in islice(nodes, int(value))]
                columns.add(struct)
                operands.append(Unknown())
            case "options":
                calls[-1].options = dict(batch.column(int(value))[0].items())
            case "call":
                calls.append(_Call(value))
            case "end":
                ended = calls.pop()
                calls[-1].operands.append(ended.filter())
    return _as_filter(calls[0].operands[0]), columns


def nan_above_all(expression: pc.Expression) -> pc.Expression:
    """An expression of DuckDB in the order of its floats: NaN equals NaN and is above all numbers.

    Arrow compares NaN with nothing. Before release 2 DuckDB leaves such comparisons to Arrow all
    the same, and loses the rows.

    Examples
    --------
    >>> import pyarrow.compute as pc
    >>> nan_above_all(pc.field("PRICE") > 1.5)
    <pyarrow.compute.Expression ((PRICE > 1.5) or is_nan(PRICE))>
    """
    from_buffer, (buffer,) = expression.__reduce__()
    batch = pa.ipc.open_file(buffer).get_batch(0)
    if not any(pt.is_floating(constants.type) for constants in batch.columns):
        return expression
    # Of each call that has not ended, the nodes of its operands so far.
    calls: list[list[_Nodes]] = [[]]
    nodes = iter(_metadata(batch.schema))
    for kind, value in nodes:
        match kind:
            case "nested_field_ref":
                calls[-1].append([(kind, value), *islice(nodes, int(value))])
            case "call":
                calls.append([])
            case "end":
                operands = calls.pop()
                calls[-1].append(_in_order(value, operands, batch) or _call(value, *operands))
            case _:
                calls[-1].append([(kind, value)])
    sink = pa.BufferOutputStream()
    schema = batch.schema.with_metadata(pa.KeyValueMetadata(calls[0][0]))  # type: ignore[attr-defined] # keys repeat
    with pa.ipc.new_file(sink, schema) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=schema))
    found: pc.Expression = from_buffer(sink.getvalue())
    return found


def _call(function: str, *operands: _Nodes) -> _Nodes:
    return [("call", function), *chain.from_iterable(operands), ("end", function)]


def _in_order(function: str, operands: list[_Nodes], batch: pa.RecordBatch) -> _Nodes | None:
    """A comparison with a float, where Arrow's differs from the one of DuckDB."""
    match operands:
        case [[(reference, _), *_] as column, [("literal", place)]] if reference.endswith("field_ref"):
            bound = batch.column(int(place))[0]
            is_nan = _call("is_nan", column)
            if not pt.is_floating(bound.type) or not bound.is_valid:
                return None
            if not isnan(bound.as_py()):
                compared = _call(function, *operands)
                return _call("or_kleene", compared, is_nan) if function in ("greater", "greater_equal") else None
            is_number = _call("invert", is_nan)
            of_nan = {
                "equal": is_nan,
                "greater_equal": is_nan,
                "less": is_number,
                "not_equal": is_number,
                "less_equal": _call("or_kleene", is_nan, is_number),
                "greater": _call("and_kleene", is_nan, is_number),
            }
            return of_nan.get(function)
    return None


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


def _as_filter(operand: Operand) -> Filter:
    """A column alone is one of truth values; a constant alone says nothing."""
    if isinstance(operand, str):
        return Clause(operand, "==", value=True)
    return Unknown() if isinstance(operand, pa.Scalar) else operand


class _Call(Struct):
    """A function of Arrow with what is read of its operands and options."""

    name: str
    operands: list[Operand] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)

    def filter(self) -> Filter:
        """The call as a filter."""
        if self.name in _JOINTS:
            # A null is the bound of `ORDER BY … LIMIT` that DuckDB 1.2 passes before there is one.
            is_and = self.name == "and_kleene"
            said = [o for o in self.operands if not (is_and and isinstance(o, pa.Scalar) and pt.is_null(o.type))]
            return joined(_JOINTS[self.name], map(_as_filter, said))
        match self.name, self.operands:
            case "invert", [operand]:
                return Not(_as_filter(operand))
            case "is_null", [str(column)] if not self.options["nan_is_null"].as_py():
                return Clause(column, "==", None)
            case "is_valid", [str(column)]:
                return Clause(column, "!=", None)
            case "is_in", [str(column)]:
                values = [constant(value) for value in self.options["value_set"].values if value.is_valid]
                return Unknown() if None in values else Clause(column, "in", Constants(values))
            # The IN of DuckDB 2, which is null for null.
            case "if_else", [Clause(column, "!=", None), Clause(other, "in") as is_in, pa.Scalar(is_valid=False)]:
                return is_in if other == column else Unknown()
            case _, [str(column), pa.Scalar() as scalar] if self.name in _OPERATORS:
                value = constant(scalar)
                return Unknown() if value is None else Clause(column, _OPERATORS[self.name], value)
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
            scan, rest = table.scan(wanted), None
        else:
            condition, columns_of_filter = parse_expression(filter)
            (implied,) = implied_clauses([condition], table.schema, table.accepts)
            needed = wanted if implied.exact else [*wanted, *sorted(columns_of_filter - set(wanted))]
            scan, rest = table.scan(needed, implied.clauses), None if implied.exact else nan_above_all(filter)
        self._record(scan)
        return TableScanner(table.schema, wanted, partial(scan.tables, 0 if self._is_dry else None), rest)


class TableScanner:
    """A planned scan, which DuckDB asks for its reader.

    Parameters
    ----------
    schema : pyarrow.Schema
        Types of the columns.
    columns : list of str
        The columns that are wanted.
    tables : callable
        Begins a stream of rows, with these and maybe more columns.
    rest : pyarrow.compute.Expression, optional
        What the wanted rows satisfy.
    """

    def __init__(
        self,
        schema: pa.Schema,
        columns: list[str],
        tables: Callable[[], Iterable[pa.Table]],
        rest: pc.Expression | None = None,
    ) -> None:
        self._schema, self._columns, self._tables, self._rest = schema, columns, tables, rest

    @property
    def projected_schema(self) -> pa.Schema:
        """The columns of the rows."""
        return pa.schema([self._schema.field(c) for c in self._columns])

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows, batch by batch."""
        return pa.RecordBatchReader.from_batches(self.projected_schema, self._batches())

    def _batches(self) -> Iterator[pa.RecordBatch]:
        for rows in self._tables():
            kept = rows if self._rest is None else rows.filter(self._rest)
            yield from kept.select(self._columns).to_batches()

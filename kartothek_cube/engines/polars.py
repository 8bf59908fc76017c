"""Tables as lazy frames of Polars: the one module that knows how Polars reads a source.

Polars has no public way to look into an expression, so its JSON form is read. The form differs
between releases: what is not recognized is `Unknown`, and stays with Polars.
"""

from __future__ import annotations

import datetime as dt
import inspect
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import cache
from importlib.util import find_spec
from itertools import accumulate
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import polars as pl
import polars.selectors as cs
import pyarrow as pa
import pyarrow.types as pt
from msgspec import Struct
from polars.io.plugins import register_io_source

from kartothek_cube.core.arrow.types import mapped_type
from kartothek_cube.core.expressions.filters import And, Filter, Implied, Not, Or, Unknown, implied_clauses, joined
from kartothek_cube.core.expressions.literals import moment
from kartothek_cube.core.expressions.predicates import Clause, Constants
from kartothek_cube.core.runtime.telemetry import record
from kartothek_cube.engines.tables import DatasetScan, Scan, Table

if TYPE_CHECKING:
    from polars.lazyframe.resolver import FilterExpr, ResolvedLazyFrameProps


Tree: TypeAlias = Mapping[str, Any]

"""A node of an expression in JSON: its kind, and what belongs to it."""

_OPERATORS = {"Eq": "==", "NotEq": "!=", "Lt": "<", "LtEq": "<=", "Gt": ">", "GtEq": ">="}

_TURNED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}

_JOINTS: dict[str, type[And | Or]] = {"And": And, "LogicalAnd": And, "Or": Or, "LogicalOr": Or}

# The operators of the lower and the upper end of `is_between`.
_ENDS = {"Both": (">=", "<="), "Left": (">=", "<"), "Right": (">", "<="), "None": (">", "<")}

_UNITS = {"Milliseconds": "ms", "Microseconds": "us", "Nanoseconds": "ns"}


class NoConstant(Exception):
    """The expression is no constant, or one that conditions cannot have."""


class Conjunct(Struct, frozen=True):
    """One of the expressions that all have to be true."""

    expression: pl.Expr

    @property
    def filter(self) -> Filter:
        """The expression as a filter."""
        tree = tree_of(self.expression)
        try:
            return Unknown() if tree is None else _filter(tree)
        except RecursionError:
            return Unknown()


def split_predicate(predicate: pl.Expr) -> list[Conjunct]:
    """The conjuncts of a predicate.

    Examples
    --------
    >>> import polars as pl
    >>> [c.filter for c in split_predicate((pl.col("WEEK") > 9) & pl.col("BRAND").is_null())]
    [Clause(column='WEEK', op='>', value=9), Clause(column='BRAND', op='==', value=None)]
    """
    conjuncts, waiting = list[Conjunct](), [(tree_of(predicate) or {}, predicate)]
    while waiting:
        tree, expression = waiting.pop()
        node = tree.get("BinaryExpr")
        if node is not None and _JOINTS.get(node["op"]) is And:
            # Not from their JSON form, in which NaN is null.
            waiting += zip((node["right"], node["left"]), expression.meta.pop(), strict=True)
        # Where only the greatest rows count, Polars adds a hint that it cannot evaluate itself.
        elif "dynamic_pred" not in str(tree.get("Display", "")):
            conjuncts.append(Conjunct(expression))
    return conjuncts


def tree_of(expression: pl.Expr) -> Tree | None:
    """The JSON form of an expression; None if it has none or is too deep.

    Expressions with a function of Python have none.
    """
    try:
        tree: Tree = json.loads(expression.meta.serialize(format="json"))
    except (ValueError, pl.exceptions.PolarsError, RecursionError):
        return None
    return tree


def _filter(tree: Tree) -> Filter:
    """The filter of a node; `Unknown` for all that is not understood."""
    try:
        kind, node = next(iter(tree.items()))
        return _KINDS[kind](node) if kind in _KINDS else Unknown()
    except (NoConstant, LookupError, TypeError, ValueError, ArithmeticError, AttributeError):
        return Unknown()


def _binary(node: Tree) -> Filter:
    left, op, right = node["left"], node["op"], node["right"]
    if op in _JOINTS:
        return joined(_JOINTS[op], (_filter(left), _filter(right)))
    if "Column" in left:
        return Clause(left["Column"], _OPERATORS[op], _constant(right))
    return Clause(right["Column"], _TURNED[_OPERATORS[op]], _constant(left))


def _function(node: Tree) -> Filter:
    name, inputs = node["function"]["Boolean"], node["input"]
    if name == "Not":
        return Not(_filter(inputs[0]))
    column = inputs[0]["Column"]
    match name:
        case "IsNull":
            return Clause(column, "==", None)
        case "IsNotNull":
            return Clause(column, "!=", None)
        case {"IsIn": {"nulls_equal": False}}:
            return Clause(column, "in", Constants(_constants(inputs[1])))
        case {"IsBetween": {"closed": closed}}:
            bounds = zip(_ENDS[closed], inputs[1:], strict=True)
            return And(tuple(Clause(column, op, _constant(bound)) for op, bound in bounds))
    return Unknown()


def _ternary(node: Tree) -> Filter:
    """``when(column.is_null()).then(None).otherwise(column.is_in(...))``: the IN of DuckDB."""
    match _filter(node["predicate"]), _filter(node["falsy"]):
        case Clause(column, "==", None), Clause(other, "in") as is_in if column == other:
            literal = node["truthy"]["Cast"]["expr"] if "Cast" in node["truthy"] else node["truthy"]
            return is_in if "Null" in json.dumps(literal["Literal"]) else Unknown()
    return Unknown()


_KINDS: dict[str, Callable[[Any], Filter]] = {
    "BinaryExpr": _binary,
    "Function": _function,
    "Ternary": _ternary,
    # A column of truth values.
    "Column": lambda name: Clause(name, "==", value=True),
}

# --- constants ------------------------------------------------------------------------------------


def _constant(tree: Tree) -> Any:
    """The value of a literal; raises `NoConstant` for nulls, NaN and unknown types."""
    literal = tree["Literal"]
    literal = literal.get("Scalar", literal.get("Dyn", literal))
    # Polars 1.30 tells the type of a scalar beside its value.
    literal = literal.get("value", literal)
    kind, value = next(iter(literal.items()))
    if value is None:  # also NaN and infinity
        raise NoConstant
    if kind in ("Float", "Float32", "Float64"):
        number = float(np.float32(value)) if kind == "Float32" else float(value)
        if not math.isfinite(number):
            raise NoConstant
        return number
    if kind.removeprefix("U").rstrip("0123456789") == "Int":
        return int(value)
    convert = _CONVERSIONS.get(kind)
    if convert is None:
        raise NoConstant
    return convert(value)


def _moment(value: Sequence[Any]) -> Any:
    ticks, unit, zone = value
    constant = moment(ticks, _UNITS[unit], zone)
    if constant is None:
        raise NoConstant
    return constant


_CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    "Boolean": bool,
    "String": str,
    "StringOwned": str,
    "Binary": bytes,
    "BinaryOwned": bytes,
    "Date": lambda days: dt.date(1970, 1, 1) + dt.timedelta(days=days),
    "Datetime": _moment,
    "DatetimeOwned": _moment,
    # By its text: arithmetic rounds to 28 digits.
    "Decimal": lambda value: Decimal(f"{value[0]}E{-value[-1]}"),
}


def _constants(tree: Tree) -> tuple[Any, ...]:
    """The values of a literal list, without nulls."""
    literal = tree["Literal"]
    literal = literal.get("Scalar", literal)
    literal = literal.get("value", literal)
    (content,) = (value for kind, value in literal.items() if kind in ("List", "Series"))
    values = pa.ipc.open_stream(bytes(content)).read_all().column(0).combine_chunks()
    while pa.types.is_list(values.type) or pa.types.is_large_list(values.type):
        values = values.flatten()
    if pa.types.is_timestamp(values.type) and values.type.unit == "ns":
        return tuple(np.array(values.drop_null()))
    constants = tuple(value for value in values.to_pylist() if value is not None)
    if any(constant != constant for constant in constants):  # noqa: PLR0124 - NaN
        raise NoConstant
    return constants


# What a value takes in memory, before it is known better.
_VALUE_BYTES = 12

# More files at a time are no faster.
_MOST_FILES = 256

_RESOLVES = find_spec("polars.lazyframe.resolver") is not None
# A partition column with more values is left to Polars.
_MOST_VALUES = 100_000

# The table never changes: a query that has been resolved once stays so.
_VERSION = "pinned"


def lazy_frame(table: Table) -> pl.LazyFrame:
    """A lazy frame over a table, which is read when the frame is collected."""
    return _resolving_frame(table) if _RESOLVES else _Source(table).frame()


def _resolving_frame(table: Table) -> pl.LazyFrame:
    """A frame that is planned when Polars optimizes a query, so that `explain` shows the plan."""
    from polars.lazyframe.resolver import LazyFrameResolver, ResolvedLazyFrameProps

    schema = _schema_of(table)  # at the call: an error within Polars ends in a panic

    class TableResolver(LazyFrameResolver):
        """Resolves a query of the table to a scan of the files that planning leaves."""

        def schema(self) -> pl.Schema:
            return schema

        def resolve_lazyframe(
            self,
            *,
            projection: list[str] | None,
            limit: int | None,
            filters: list[FilterExpr],
            filter_columns: list[str],
            filter_drop_columns_idx: int | None,
            existing_resolved_version_key: str | None,
        ) -> tuple[pl.LazyFrame | None, ResolvedLazyFrameProps]:
            if existing_resolved_version_key == _VERSION:
                return None, ResolvedLazyFrameProps(version_key=_VERSION)
            pushed = _pushed(table, [Conjunct(condition.expr) for condition in filters])
            applied = {i for i, implied in enumerate(pushed) if implied.exact}
            left = {c for i, f in enumerate(filters) if i not in applied for c in f.expr.meta.root_names()}
            columns = table.schema.names if projection is None else projection[:filter_drop_columns_idx]
            clauses = [clause for implied in pushed for clause in implied.clauses]
            scan = table.scan([c for c in table.schema.names if c in {*columns, *left}], clauses)
            return _Source(table, scan).frame(), ResolvedLazyFrameProps(version_key=_VERSION, applied_filters=applied)

    return TableResolver().lazy()


class _Source:
    """What Polars calls to read a table.

    With ``planned``, the filters of the query have been pushed into this scan already. Polars still
    passes those that it has to apply.
    """

    def __init__(self, table: Table, planned: Scan | None = None) -> None:
        self._table, self._planned = table, planned

    def frame(self) -> pl.LazyFrame:
        """The lazy frame."""
        options: dict[str, Any] = {"explain_name": f"{self._table.kind} {self._table.name!r}", "is_pure": True}
        if self._planned is not None:
            options["explain_detail"] = self._planned.detail
        # Older releases know fewer of them.
        known = inspect.signature(register_io_source).parameters
        accepted = {name: value for name, value in options.items() if name in known}
        return register_io_source(self._frames, schema=_schema_of(self._table), **accepted)

    def _frames(
        self, with_columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        # In the order of the schema: the streaming engine of Polars 1.30 goes by their places.
        columns = [c for c in self._table.schema.names if with_columns is None or c in with_columns]
        scan, rest = self._scan(columns, predicate)
        if not columns:
            yield pl.DataFrame(height=min(scan.count(), n_rows or 2**63))
            return
        # A limit leaves most files unread, which tables do more exactly.
        frames = _read(scan, columns) if n_rows is None else _converted(scan.table, scan.tables(n_rows), columns)
        for frame in frames:
            yield frame if rest is None else frame.filter(rest)

    def _scan(self, columns: Sequence[str], predicate: pl.Expr | None) -> tuple[Scan, pl.Expr | None]:
        """The scan, and the filter that its rows still need."""
        if self._planned is not None:
            is_same = set(columns) == set(self._planned.columns)
            return self._planned if is_same else self._table.scan(columns, self._planned.clauses), predicate
        conjuncts = [] if predicate is None else split_predicate(predicate)
        pushed = _pushed(self._table, conjuncts)
        clauses = [clause for implied in pushed for clause in implied.clauses]
        left = [c.expression for c, implied in zip(conjuncts, pushed, strict=True) if not implied.exact]
        return self._table.scan(columns, clauses), pl.all_horizontal(left) if left else None


def _pushed(table: Table, conjuncts: Sequence[Conjunct]) -> list[Implied]:
    """What a scan does for each of several filters that all have to be true."""
    implied = implied_clauses([conjunct.filter for conjunct in conjuncts], table.schema, table.accepts)
    return [i if i.exact else _by_partition_values(table, c) or i for c, i in zip(conjuncts, implied, strict=True)]


def _by_partition_values(table: Table, conjunct: Conjunct) -> Implied | None:
    """Any filter on one partition column: Polars says which of its values satisfy the filter."""
    names = set(conjunct.expression.meta.root_names())
    values = table.partition_values(*names) if len(names) == 1 else None
    if values is None or len(values) > _MOST_VALUES:
        return None
    column = names.pop()
    kept = _frame(pa.table({column: values})).filter(conjunct.expression).to_arrow().column(0).to_pylist()
    clause = Clause(column, "in", Constants(kept))
    return Implied((clause,), exact=True) if table.accepts(clause) else None


def _read(scan: Scan, columns: list[str]) -> Iterator[pl.DataFrame]:
    """All rows, by Polars' own reader as far as it can read the files: it takes half the time."""
    # Older releases pass over columns that they do not expect, and hide which file is broken.
    is_exact = _RESOLVES and _polars_schema(scan.table.schema) is None
    if not is_exact or not isinstance(scan, DatasetScan) or not (paths := scan.local_files()):
        return _converted(scan.table, scan.tables(), columns)

    def frames() -> Iterator[pl.DataFrame]:
        done = 0
        for files, frame in _read_bundles(scan, paths, columns):
            done += files
            yield frame
        if done < len(paths):
            yield from _converted(scan.table, scan.tables_after(done), columns)

    with scan.table.operation() as op:
        return op.lasting(frames())


def _converted(table: Table, tables: Iterator[pa.Table], columns: list[str]) -> Iterator[pl.DataFrame]:
    schema = _polars_schema(pa.schema([table.schema.field(c) for c in columns]))
    return (_frame(rows.select(columns), schema) for rows in tables)


def _read_bundles(scan: Scan, paths: list[str], columns: list[str]) -> Iterator[tuple[int, pl.DataFrame]]:
    """Neighbouring files in about a quarter of `bytes_in_flight`, up to the first error."""
    schema, budget, begin = _schema_of(scan.table), scan.table.options.bytes_in_flight // 4, 0
    places = {name: data_type for name, data_type in schema.items() if f"/{name}=" in paths[0]}

    def files(begin: int, end: int) -> pl.LazyFrame:
        sources = paths[begin:end]
        return pl.scan_parquet(
            sources, schema=schema, hive_schema=places or None, hive_partitioning=bool(places), glob=False
        )

    try:
        sizes = [os.stat(path).st_size for path in paths]  # noqa: PTH116 - a `Path` takes as long as ten of these
        rows = files(0, 1).select(pl.len()).collect().item()
        expansion = max(1, rows * _VALUE_BYTES * len(columns) / max(1, sizes[0]))
        # Other values than numbers may take any room, e.g. texts.
        is_known = rows > 0 and all(pt.is_primitive(scan.table.schema.field(c).type) for c in columns)
        while begin < len(paths) and sizes[begin] * expansion <= 2 * budget:
            # Files are read alone until one has told how large rows are.
            room = accumulate(sizes[begin : begin + (_MOST_FILES if is_known else 1)])
            end = begin + max(1, sum(size * expansion <= budget for size in room))
            # By name: `select` takes some names as patterns.
            frame = files(begin, end).select(cs.by_name(columns)).collect()
            if frame.columns != columns:  # Polars 1.30 does so with selectors, too
                return
            nbytes = sum(sizes[begin:end])
            record(files_read=end - begin, bytes_read=nbytes, rows_read=frame.height)
            if frame.height:
                is_known = True
                expansion = max(1, frame.estimated_size() / max(1, nbytes))
            yield end - begin, frame
            begin = end
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError):
        return  # what Polars cannot read, `tables` reads, or it raises our error


def _schema_of(table: Table) -> pl.Schema:
    return _frame((_polars_schema(table.schema) or table.schema).empty_table()).schema


def _frame(table: pa.Table, schema: pa.Schema | None = None) -> pl.DataFrame:
    frame = pl.from_arrow(table if schema is None else table.cast(schema))
    assert isinstance(frame, pl.DataFrame)
    return frame


def _polars_schema(schema: pa.Schema) -> pa.Schema | None:
    """The schema with UTC for zones that Polars lacks; None if it has all."""
    types = [mapped_type(data_type, _with_zone) for data_type in schema.types]
    return None if types == schema.types else pa.schema(list(zip(schema.names, types, strict=True)))


def _with_zone(data_type: pa.DataType) -> pa.DataType:
    is_known = not pt.is_timestamp(data_type) or data_type.tz is None or _has_zone(data_type.tz)
    return data_type if is_known else pa.timestamp(data_type.unit, "UTC")


@cache
def _has_zone(zone: str) -> bool:
    """Whether Polars knows the zone: its conversion panics at some others, and values at ``*``."""
    try:
        pl.Series([], dtype=pl.Datetime("us", zone)).dt.replace_time_zone(None)
    except pl.exceptions.PolarsError:
        return False
    return True

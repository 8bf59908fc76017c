"""One truth table for comparisons, three evaluators: rows, index values, and min/max bounds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kartothek_cube.core.predicates import Clause, Predicates, is_null
from kartothek_cube.core.schema import literal_array, literal_scalar, plain_type

__all__ = ["Bounds", "clause_on_scalar", "matching_all", "matching_rows", "matching_values", "possible_chunks"]

Mask = np.ndarray[Any, np.dtype[np.bool_]]

# A longer list of constants is not tried one by one against every chunk; it excludes nothing.
LONG_LIST = 256

_COMPARE = {"==": pc.equal, "<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal}


@dataclass(frozen=True, slots=True)
class Bounds:
    """What is known of the values of one column in several chunks (row groups, files): one entry a chunk.

    ``minimum`` and ``maximum`` are null where nothing is known; ``has_null`` is true where a null is possible.
    """

    minimum: pa.Array
    maximum: pa.Array
    has_null: Mask


def matching_rows(table: pa.Table, predicates: Predicates | None) -> Mask:
    """One boolean a row of ``table``: whether it satisfies the predicates."""
    if predicates is None:
        return np.ones(table.num_rows, dtype=bool)
    result = np.zeros(table.num_rows, dtype=bool)
    for conjunction in predicates:
        result |= _all_of(table, conjunction)
    return result


def _all_of(table: pa.Table, conjunction: tuple[Clause, ...]) -> Mask:
    mask = np.ones(table.num_rows, dtype=bool)
    for clause in conjunction:
        mask &= matching_values(table.column(clause.column), clause)
    return mask


def matching_all(values: pa.Array | pa.ChunkedArray, clauses: Iterable[Clause]) -> Mask:
    """One boolean a value: whether it satisfies all comparisons."""
    mask = np.ones(len(values), dtype=bool)
    for clause in clauses:
        mask &= matching_values(values, clause)
    return mask


def matching_values(values: pa.Array | pa.ChunkedArray, clause: Clause) -> Mask:
    """One boolean a value: whether it satisfies the comparison."""
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if clause.op == "in":
        return _is_in(values, clause)
    if is_null(clause.value):
        return _to_numpy(_nulls(values) if clause.op == "==" else pc.invert(_nulls(values)))
    if pa.types.is_null(values.type):
        return np.full(len(values), clause.op == "!=", dtype=bool)
    literal = literal_scalar(clause.value, values.type)
    if literal is None:
        return _out_of_range(values, clause)
    if pa.types.is_timestamp(literal.type) and literal.type != plain_type(values.type):
        return _between_microseconds(values, clause, literal)
    if clause.op == "!=":
        return ~_compare("==", values, literal)
    return _compare(clause.op, values, literal)


def _nulls(values: pa.Array | pa.ChunkedArray) -> Any:
    return pc.is_null(values, nan_is_null=pa.types.is_floating(values.type))


def _to_numpy(mask: Any) -> Mask:
    out: Mask = mask.to_numpy(zero_copy_only=False) if isinstance(mask, pa.Array) else mask.to_numpy()
    return out.astype(bool, copy=False)


def _compare(op: str, values: Any, literal: pa.Scalar) -> Mask:
    return _to_numpy(pc.fill_null(_COMPARE[op](values, literal), False))


def _out_of_range(values: Any, clause: Clause) -> Mask:
    """An integer that the column's type cannot hold lies below or above every value."""
    if clause.op in ("==", "!="):
        return np.full(len(values), clause.op == "!=", dtype=bool)
    below = bool(clause.value < 0)
    return ~_to_numpy(_nulls(values)) if below == (clause.op in (">", ">=")) else np.zeros(len(values), dtype=bool)


def _between_microseconds(values: Any, clause: Clause, literal: pa.Scalar) -> Mask:
    """A moment between two microseconds equals no value; in an order the microsecond before it takes its place."""
    if clause.op in ("==", "!="):
        return np.full(len(values), clause.op == "!=", dtype=bool)
    before = pa.scalar(literal.value // 1000, pa.int64()).cast(plain_type(values.type))
    return _compare("<=" if clause.op in ("<", "<=") else ">", values, before)


def _is_in(values: Any, clause: Clause) -> Mask:
    wants_null = any(is_null(v) for v in clause.value)
    mask = _to_numpy(_nulls(values)) if wants_null else np.zeros(len(values), dtype=bool)
    wanted = literal_array([v for v in clause.value if not is_null(v)], values.type)
    if len(wanted):
        mask = mask | _to_numpy(pc.fill_null(pc.is_in(_one_zero(values.cast(wanted.type)), value_set=_one_zero(wanted), skip_nulls=True), False))
    return mask


def _one_zero(values: Any) -> Any:
    # A set tells -0.0 from 0.0; adding zero leaves only the latter.
    return pc.add(values, 0.0) if pa.types.is_floating(values.type) else values


def clause_on_scalar(scalar: pa.Scalar, clause: Clause) -> bool:
    """Whether one constant, e.g. a partition value, satisfies the comparison."""
    return bool(matching_values(pa.array([scalar.as_py()], type=scalar.type), clause)[0])


def possible_chunks(bounds: Mapping[str, Bounds], n: int, predicates: Predicates | None) -> Mask:
    """One boolean a chunk: whether a row of it may satisfy the predicates. Columns without bounds exclude nothing."""
    if predicates is None:
        return np.ones(n, dtype=bool)
    result = np.zeros(n, dtype=bool)
    for conjunction in predicates:
        mask = np.ones(n, dtype=bool)
        for clause in conjunction:
            if clause.column in bounds:
                mask &= _possible(bounds[clause.column], clause)
        result |= mask
    return result


def _possible(bounds: Bounds, clause: Clause) -> Mask:
    unknown = _unknown(bounds)
    if clause.op == "in":
        return _possible_in(bounds, clause, unknown)
    if is_null(clause.value):
        return unknown | bounds.has_null if clause.op == "==" else np.ones(len(unknown), dtype=bool)
    return unknown | _within(bounds, clause)


def _possible_in(bounds: Bounds, clause: Clause, unknown: Mask) -> Mask:
    if len(clause.value) > LONG_LIST:
        return np.ones(len(unknown), dtype=bool)
    mask = np.zeros(len(unknown), dtype=bool)
    for value in clause.value:
        mask |= _possible(bounds, Clause(clause.column, "==", value))
    return mask


def _unknown(bounds: Bounds) -> Mask:
    missing = ~_to_numpy(bounds.minimum.is_valid()) | ~_to_numpy(bounds.maximum.is_valid())
    # Some old writers stored a maximum below the minimum, or NaN.
    return missing | ~_to_numpy(pc.fill_null(pc.less_equal(bounds.minimum, bounds.maximum), False))


def _within(bounds: Bounds, clause: Clause) -> Mask:
    low, high = bounds.minimum, bounds.maximum
    if clause.op == "==":
        return matching_values(low, Clause(clause.column, "<=", clause.value)) & matching_values(high, Clause(clause.column, ">=", clause.value))
    if clause.op == "!=":
        constant = matching_values(low, Clause(clause.column, "==", clause.value)) & matching_values(high, Clause(clause.column, "==", clause.value))
        return ~constant | bounds.has_null
    return matching_values(low if clause.op in ("<", "<=") else high, clause)

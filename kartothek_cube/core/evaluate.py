"""One truth table for comparisons, three evaluators: rows, index values, and min/max bounds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kartothek_cube.core.predicates import Clause, Constants, Predicates, accepts_null, constants_of, denied, is_null
from kartothek_cube.core.schema import literal, literal_array

__all__ = ["Bounds", "clause_on_scalar", "filter_table", "matching_all", "matching_rows", "matching_values", "possible_chunks"]

Mask = np.ndarray[Any, np.dtype[np.bool_]]

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
        mask = np.ones(table.num_rows, dtype=bool)
        for clause in conjunction:
            mask &= matching_values(table.column(clause.column), clause)
        result |= mask
    return result


def matching_all(values: pa.Array | pa.ChunkedArray, clauses: Iterable[Clause]) -> Mask:
    """One boolean a value: whether it satisfies all comparisons."""
    mask = np.ones(len(values), dtype=bool)
    for clause in clauses:
        mask &= matching_values(values, clause)
    return mask


def matching_values(values: pa.Array | pa.ChunkedArray, clause: Clause) -> Mask:
    """One boolean a value: whether it satisfies the comparison."""
    if pa.types.is_dictionary(values.type):
        return _matching_codes(values, clause)
    opposite = denied(clause)
    if opposite is not None:
        return ~matching_values(values, opposite)
    if clause.op == "in":
        return _is_in(values, clause)
    if is_null(clause.value):
        return _to_numpy(_nulls(values))
    if pa.types.is_null(values.type):
        return np.zeros(len(values), dtype=bool)
    return _compared(values, clause)


def _matching_codes(values: pa.Array | pa.ChunkedArray, clause: Clause) -> Mask:
    """For dictionaries: each of their values is compared once, unless there are more than rows."""
    null = bool(matching_values(pa.nulls(1, values.type.value_type), clause)[0])
    masks = [np.zeros(0, dtype=bool)]
    for chunk in values.chunks if isinstance(values, pa.ChunkedArray) else [values]:
        if len(chunk.dictionary) > len(chunk):
            masks.append(matching_values(chunk.cast(values.type.value_type), clause))
        else:
            known = pa.array(matching_values(chunk.dictionary, clause))
            masks.append(_to_numpy(pc.fill_null(pc.take(known, chunk.indices), null)))
    return np.concatenate(masks)


def filter_table(table: pa.Table, mask: Mask) -> pa.Table:
    """The rows where the mask is true; the table itself where all are."""
    return table if mask.all() else table.filter(pa.array(mask))


def _nulls(values: pa.Array | pa.ChunkedArray) -> Any:
    return pc.is_null(values, nan_is_null=pa.types.is_floating(values.type))


def _to_numpy(mask: pa.Array | pa.ChunkedArray) -> Mask:
    out: Mask = mask.to_numpy(zero_copy_only=False) if isinstance(mask, pa.Array) else mask.to_numpy()
    return out.astype(bool, copy=False)


def _compare(op: str, values: pa.Array | pa.ChunkedArray, literal: pa.Scalar) -> Mask:
    return _to_numpy(pc.fill_null(_COMPARE[op](values, literal), False))


def _compared(values: pa.Array | pa.ChunkedArray, clause: Clause) -> Mask:
    """``== < <= > >=``. Where the type has no value that equals the constant, the greatest one below takes its place in an order."""
    place = literal(clause.value, values.type)
    if place.floor is None:
        return ~_to_numpy(_nulls(values)) if clause.op in (">", ">=") else np.zeros(len(values), dtype=bool)
    if place.exact:
        return _compare(clause.op, values, place.floor)
    if clause.op == "==":
        return np.zeros(len(values), dtype=bool)
    return _compare("<=" if clause.op in ("<", "<=") else ">", values, place.floor)


def _is_in(values: pa.Array | pa.ChunkedArray, clause: Clause) -> Mask:
    mask = _to_numpy(_nulls(values)) if accepts_null(clause) else np.zeros(len(values), dtype=bool)
    wanted = _wanted(clause, values.type)
    if len(wanted):
        mask = mask | _to_numpy(pc.fill_null(pc.is_in(_one_zero(values.cast(wanted.type)), value_set=_one_zero(wanted), skip_nulls=True), False))
    return mask


def _wanted(clause: Clause, kind: pa.DataType) -> pa.Array:
    """The constants that are values of the type, ascending."""
    known = clause.value.arrays if isinstance(clause.value, Constants) else {}
    if kind not in known:
        found = literal_array([v for v in constants_of(clause) if not is_null(v)], kind)
        known[kind] = found.take(pc.sort_indices(found)) if len(found) else found
    return known[kind]


def _one_zero(values: pa.Array | pa.ChunkedArray) -> Any:
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
    """Where a value may satisfy the clause: unless the bounds say that none does, or that all satisfy the opposite."""
    opposite = denied(clause)
    if opposite is not None:
        return ~_certain(bounds, opposite)
    possible = _unknown(bounds) | (bounds.has_null if accepts_null(clause) else False)
    if clause.op in ("==", "in"):
        return possible | _meets(bounds, clause)
    return possible | matching_values(bounds.minimum if clause.op in ("<", "<=") else bounds.maximum, clause)


def _certain(bounds: Bounds, clause: Clause) -> Mask:
    """Where all values satisfy ``==`` or ``in``: a chunk of one value."""
    constant = _to_numpy(pc.fill_null(pc.equal(bounds.minimum, bounds.maximum), False)) & matching_values(bounds.minimum, clause)
    return constant if accepts_null(clause) else constant & ~bounds.has_null


def _meets(bounds: Bounds, clause: Clause) -> Mask:
    """Where one of the constants lies within the bounds."""
    wanted = _wanted(clause, bounds.minimum.type)
    mask = ~_unknown(bounds)
    constants = _ordered(wanted)
    low, high = (_ordered(side.filter(pa.array(mask)).cast(wanted.type)) for side in (bounds.minimum, bounds.maximum))
    mask[mask] = np.searchsorted(constants, low, side="left") < np.searchsorted(constants, high, side="right")
    return mask


def _ordered(values: pa.Array) -> Any:
    """Values without null as NumPy knows and compares them: numbers and moments as such, others as Python's objects."""
    return values.to_numpy(zero_copy_only=False)


def _unknown(bounds: Bounds) -> Mask:
    missing = ~_to_numpy(bounds.minimum.is_valid()) | ~_to_numpy(bounds.maximum.is_valid())
    # Some old writers stored a maximum below the minimum, or NaN.
    return missing | ~_to_numpy(pc.fill_null(pc.less_equal(bounds.minimum, bounds.maximum), False))

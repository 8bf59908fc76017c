"""Evaluation of comparisons on rows, on index values, and on min/max bounds: one truth table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import eq, ge, gt, le, lt
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kartothek_cube.core.arrow.keys import as_int64, expand_ranges, is_plain_integer
from kartothek_cube.core.arrow.literals import literal, literal_array
from kartothek_cube.core.expressions.predicates import (
    Clause,
    Constants,
    Predicates,
    accepts_null,
    constants_of,
    denied,
    is_null,
)

__all__ = [
    "MANY",
    "Bounds",
    "Ranges",
    "can_be_searched",
    "clause_on_scalar",
    "filter_table",
    "matching_all",
    "matching_ranges",
    "matching_rows",
    "matching_values",
    "may_hold",
    "possible_chunks",
]

Mask = np.ndarray[Any, np.dtype[np.bool_]]

# To find out that fewer values are sorted takes longer than to hash them.
_SEARCHED = 16_384
_COMPARE_NUMBERS: dict[str, Any] = {"==": eq, "<": lt, "<=": le, ">": gt, ">=": ge}
_COMPARE = {"==": pc.equal, "<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal}


@dataclass(frozen=True)
class Bounds:
    """Statistics of one column for several chunks (row groups, files), one entry per chunk.

    ``minimum`` and ``maximum`` are null if they are unknown; ``has_null`` is true if a null is
    possible.
    """

    minimum: pa.Array
    maximum: pa.Array
    has_null: Mask

    @cached_property
    def unknown(self) -> Mask:
        """The chunks whose bounds say nothing."""
        if not (self.minimum.null_count or self.maximum.null_count):
            return ~_to_numpy(pc.less_equal(self.minimum, self.maximum))
        missing = ~_to_numpy(self.minimum.is_valid()) | ~_to_numpy(self.maximum.is_valid())
        # Some old writers stored NaN, or a maximum below the minimum.
        return missing | ~_to_numpy(pc.fill_null(pc.less_equal(self.minimum, self.maximum), False))

    def known_as(self, data_type: pa.DataType) -> tuple[Any, Any]:
        """Minima and maxima of the other chunks for NumPy, as values of a type."""
        if data_type not in self._known:
            # NumPy compares numbers and moments as such, all others (text, dates) as objects of
            # Python.
            sides = (side.filter(pa.array(~self.unknown)) for side in (self.minimum, self.maximum))
            low, high = (side if side.type.equals(data_type) else side.cast(data_type) for side in sides)
            self._known[data_type] = low.to_numpy(zero_copy_only=False), high.to_numpy(zero_copy_only=False)
        return self._known[data_type]

    @cached_property
    def _known(self) -> dict[pa.DataType, tuple[Any, Any]]:
        return {}


def matching_rows(table: pa.Table, predicates: Predicates | None) -> Mask:
    """One boolean per row of ``table``: whether it satisfies the predicates."""
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
    """One boolean per value: whether it satisfies all comparisons."""
    mask = np.ones(len(values), dtype=bool)
    for clause in clauses:
        mask &= matching_values(values, clause)
    return mask


def matching_values(values: pa.Array | pa.ChunkedArray, clause: Clause) -> Mask:
    """One boolean per value: whether it satisfies the comparison."""
    if pa.types.is_dictionary(values.type):
        return _matching_codes(values, clause)
    opposite = denied(clause)
    if opposite is not None:
        # The exact negation, so that null satisfies `!=` although it satisfies no order.
        return ~matching_values(values, opposite)
    if clause.op == "in":
        mask = _to_numpy(_nulls(values)) if accepts_null(clause) else np.zeros(len(values), dtype=bool)
        constants = _constants_as(clause, values.type)
        if len(constants):
            mask = mask | _is_in(values.cast(constants.type), constants)
        return mask
    if is_null(clause.value):
        return _to_numpy(_nulls(values))
    if pa.types.is_null(values.type):
        return np.zeros(len(values), dtype=bool)
    return _compared(values, clause)


def _matching_codes(values: pa.Array | pa.ChunkedArray, clause: Clause) -> Mask:
    """The same for dictionary columns: each dictionary value is compared once."""
    null = bool(matching_values(pa.nulls(1, values.type.value_type), clause)[0])
    masks = [np.zeros(0, dtype=bool)]
    for chunk in values.chunks if isinstance(values, pa.ChunkedArray) else [values]:
        # A slice of a large column may have more dictionary values than rows.
        if len(chunk.dictionary) > len(chunk):
            masks.append(matching_values(chunk.cast(values.type.value_type), clause))
        else:
            matches = pa.array(matching_values(chunk.dictionary, clause))
            masks.append(_to_numpy(pc.fill_null(pc.take(matches, chunk.indices), null)))
    return np.concatenate(masks)


def filter_table(table: pa.Table, mask: Mask) -> pa.Table:
    """The rows for which the mask is true; the table itself if all are."""
    return table if mask.all() else table.filter(pa.array(mask))


def _nulls(values: pa.Array | pa.ChunkedArray) -> Any:
    return pc.is_null(values, nan_is_null=pa.types.is_floating(values.type))


def _to_numpy(mask: pa.Array | pa.ChunkedArray) -> Mask:
    out: Mask = mask.to_numpy(zero_copy_only=False) if isinstance(mask, pa.Array) else mask.to_numpy()
    return out.astype(bool, copy=False)


def _compare(op: str, values: pa.Array | pa.ChunkedArray, literal: pa.Scalar) -> Mask:
    if pa.types.is_int64(values.type) and not values.null_count:
        # Arrow's result has bits, of which it takes longer to make booleans than to compare.
        mask: Mask = _COMPARE_NUMBERS[op](values.to_numpy(), literal.as_py())
        return mask
    # Arrow compares a null to null.
    return _to_numpy(pc.fill_null(_COMPARE[op](values, literal), False))


def _compared(values: pa.Array | pa.ChunkedArray, clause: Clause) -> Mask:
    """The operators ``== < <= > >=``."""
    # If no value of the type equals the constant, the greatest value below it stands in: x < 2.5 is
    # x <= 2 for integers.
    place = literal(clause.value, values.type)
    if place.floor is None:
        return ~_to_numpy(_nulls(values)) if clause.op in (">", ">=") else np.zeros(len(values), dtype=bool)
    if place.exact:
        return _compare(clause.op, values, place.floor)
    if clause.op == "==":
        return np.zeros(len(values), dtype=bool)
    return _compare("<=" if clause.op in ("<", "<=") else ">", values, place.floor)


def _constants_as(clause: Clause, data_type: pa.DataType) -> pa.Array:
    """The constants that are values of the type, ascending; cached in `Constants`."""
    arrays = clause.value.arrays if isinstance(clause.value, Constants) else {}
    if data_type not in arrays:
        array = literal_array([v for v in constants_of(clause) if not is_null(v)], data_type)
        arrays[data_type] = array.take(pc.sort_indices(array)) if len(array) > 1 else array
    return arrays[data_type]


def _is_in(values: pa.Array | pa.ChunkedArray, constants: pa.Array) -> Mask:
    """Whether a value is one of the ascending constants; false for null."""
    column = values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([values])
    if len(column) >= _SEARCHED and is_plain_integer(column) and not pa.types.is_boolean(column.type):
        # A search of each constant in sorted values is several times as fast as hashing each value.
        numbers, sought = as_int64(column), as_int64(pa.chunked_array([constants]))
        if (numbers[1:] >= numbers[:-1]).all():
            begins, ends = (np.searchsorted(numbers, sought, side=side) for side in ("left", "right"))
            mask = np.zeros(len(numbers), dtype=bool)
            mask[expand_ranges(begins, ends - begins)[1]] = True
            return mask
    is_in = pc.is_in(_one_zero(values), value_set=_one_zero(constants), skip_nulls=True)
    return _to_numpy(pc.fill_null(is_in, False))


def _one_zero(values: pa.Array | pa.ChunkedArray) -> Any:
    # `is_in` compares bits, and -0.0 has others than 0.0; the sum with 0.0 is always 0.0.
    return pc.add(values, 0.0) if pa.types.is_floating(values.type) else values


def clause_on_scalar(scalar: pa.Scalar, clause: Clause) -> bool:
    """Whether one constant, e.g. a partition value, satisfies the comparison."""
    return bool(matching_values(pa.array([scalar.as_py()], type=scalar.type), clause)[0])


def possible_chunks(bounds: Mapping[str, Bounds], n: int, predicates: Predicates | None) -> Mask:
    """One boolean per chunk: whether one of its rows may satisfy the predicates.

    Columns without bounds exclude nothing.
    """
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
    """The chunks in which a value may satisfy the clause."""
    opposite = denied(clause)
    if opposite is not None:
        # Excluded only if all values satisfy `==` or `in`: a chunk of one value.
        is_constant = _to_numpy(pc.fill_null(pc.equal(bounds.minimum, bounds.maximum), False))
        certain = is_constant & matching_values(bounds.minimum, opposite)
        return ~(certain if accepts_null(opposite) else certain & ~bounds.has_null)
    if clause.op in ("==", "in"):
        possible = may_hold(bounds, _constants_as(clause, bounds.minimum.type))
    else:  # an order holds for some value if it holds for the least or the greatest one
        side = bounds.minimum if clause.op in ("<", "<=") else bounds.maximum
        possible = bounds.unknown | matching_values(side, clause)
    return possible | bounds.has_null if accepts_null(clause) else possible


def may_hold(bounds: Bounds, ascending: pa.Array) -> Mask:
    """The chunks that have one of these sorted values within their bounds, or unknown bounds."""
    mask = bounds.unknown.copy()
    values, (lowest, highest) = ascending.to_numpy(zero_copy_only=False), bounds.known_as(ascending.type)
    mask[~bounds.unknown] = np.searchsorted(values, lowest, "left") < np.searchsorted(values, highest, "right")
    return mask


Ranges: TypeAlias = list[tuple[int, int]]

"""Begin and end of each, ascending."""

# Fewer values are compared faster than they are searched.
MANY = 65_536

# A call of Arrow has fixed costs, so each step of a search compares this many values.
_PROBES = 512

# Each constant of ``in`` is a search of its own.
_CONSTANTS_LIMIT = 16

# The comparison that bounds the range from below, and from above.
_LOWER = {"==": ">=", ">=": ">=", ">": ">"}

_UPPER = {"==": "<=", "<=": "<=", "<": "<"}


def can_be_searched(clauses: Sequence[Clause]) -> bool:
    """Whether the values that satisfy the comparisons are a few ranges without nulls."""
    for clause in clauses:
        constants = list(constants_of(clause))
        is_range = clause.op in {*_LOWER, *_UPPER, "in"}
        if not is_range or len(constants) > _CONSTANTS_LIMIT or any(map(is_null, constants)):
            return False
    return True


def matching_ranges(values: pa.Array, clauses: Sequence[Clause]) -> Ranges:
    """The ranges of ascending values, without nulls, that satisfy all comparisons.

    `can_be_searched` must be true for the clauses.

    Examples
    --------
    >>> clauses = [Clause("WEEK", ">", 1), Clause("WEEK", "in", (3, 4))]
    >>> matching_ranges(pa.array([1, 3, 3, 5]), clauses)
    [(1, 3)]
    """
    result = [(0, len(values))] if len(values) else []
    for clause in clauses:
        alternatives = [Clause(clause.column, "==", v) for v in constants_of(clause)] if clause.op == "in" else [clause]
        ranges = []
        for column, op, constant in ((a.column, a.op, a.value) for a in alternatives):
            lower, upper = _LOWER.get(op), _UPPER.get(op)
            low = _leading(values, Clause(column, lower, constant), False) if lower else 0
            high = _leading(values, Clause(column, upper, constant), True) if upper else len(values)
            ranges.append((low, high))
        common = [(max(a, c), min(b, d)) for a, b in result for c, d in ranges]
        result = sorted({(low, high) for low, high in common if low < high})
    return result


def _leading(values: pa.Array, clause: Clause, truth: bool) -> int:
    """The number of leading values for which the comparison has this truth; the others have not."""
    low, high = 0, len(values)
    while high - low > _PROBES:
        probes = np.linspace(low, high - 1, _PROBES).astype(np.int64)
        same = int((matching_values(values.take(pa.array(probes)), clause) == truth).sum())
        low, high = (int(probes[same - 1]) + 1 if same else low), (int(probes[same]) if same < _PROBES else high)
    return low + int((matching_values(values.slice(low, high - low), clause) == truth).sum())

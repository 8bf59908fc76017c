"""Ascending values, and the ranges of them that satisfy comparisons: found by a few looks instead of one at every value. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from kartothek_cube.core.evaluate import matching_values
from kartothek_cube.core.predicates import Clause, constants_of, is_null

__all__ = ["MANY", "Ranges", "can_be_searched", "matching_ranges"]

Ranges: TypeAlias = list[tuple[int, int]]
"""Begin and end of each, ascending."""

# Fewer values are sooner compared than searched.
MANY = 65_536
_LOOKS = 512
_MOST_CONSTANTS = 16
_LOWER = {"==": ">=", ">=": ">=", ">": ">"}
_UPPER = {"==": "<=", "<=": "<=", "<": "<"}


def can_be_searched(clauses: Sequence[Clause]) -> bool:
    """Whether what satisfies the comparisons are a few ranges, without nulls."""
    for clause in clauses:
        constants = list(constants_of(clause))
        if clause.op not in {*_LOWER, *_UPPER, "in"} or len(constants) > _MOST_CONSTANTS or any(map(is_null, constants)):
            return False
    return True


def matching_ranges(values: pa.Array, clauses: Sequence[Clause]) -> Ranges:
    """Where ascending values, no null among them, satisfy all comparisons, which are such as `can_be_searched` wants.

    Examples
    --------
    >>> matching_ranges(pa.array([1, 3, 3, 5]), [Clause("WEEK", ">", 1), Clause("WEEK", "in", (3, 4))])
    [(1, 3)]
    """
    found = [(0, len(values))] if len(values) else []
    for clause in clauses:
        alternatives = [Clause(clause.column, "==", v) for v in constants_of(clause)] if clause.op == "in" else [clause]
        ranges = [_range(values, alternative) for alternative in alternatives]
        common = [(max(a, c), min(b, d)) for a, b in found for c, d in ranges]
        found = sorted({(low, high) for low, high in common if low < high})
    return found


def _range(values: pa.Array, clause: Clause) -> tuple[int, int]:
    lower, upper = _LOWER.get(clause.op), _UPPER.get(clause.op)
    low = _leading(values, Clause(clause.column, lower, clause.value), False) if lower else 0
    return low, _leading(values, Clause(clause.column, upper, clause.value), True) if upper else len(values)


def _leading(values: pa.Array, clause: Clause, truth: bool) -> int:
    """How many of the first values satisfy the comparison, or do not, where the others are the other way."""
    low, high = 0, len(values)
    while high - low > _LOOKS:
        looks = np.linspace(low, high - 1, _LOOKS).astype(np.int64)
        alike = int((matching_values(values.take(pa.array(looks)), clause) == truth).sum())
        low, high = (int(looks[alike - 1]) + 1 if alike else low), (int(looks[alike]) if alike < _LOOKS else high)
    return low + int((matching_values(values.slice(low, high - low), clause) == truth).sum())

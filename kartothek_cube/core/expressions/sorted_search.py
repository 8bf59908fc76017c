"""Binary search in ascending values: the ranges that satisfy comparisons. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from kartothek_cube.core.expressions.evaluate import matching_values
from kartothek_cube.core.expressions.predicates import Clause, constants_of, is_null

__all__ = ["MANY", "Ranges", "can_be_searched", "matching_ranges"]

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

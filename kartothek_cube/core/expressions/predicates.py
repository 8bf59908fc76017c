"""Predicates as values, and their evaluation on rows, index values and bounds.

In order:

- predicates: comparisons in disjunctive normal form
- evaluation: one truth table
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import eq, ge, gt, le, lt
from typing import Any, Self, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from kartothek_cube.core.arguments import column_name
from kartothek_cube.core.arrow.keys import as_int64, expand_ranges, is_plain_integer
from kartothek_cube.core.expressions.literals import WrongOperand, check_literals, literal, literal_array, without_arrow
from kartothek_cube.errors import InvalidInput, InvalidType, Unsupported

OPERATORS = ("==", "!=", "<", "<=", ">", ">=", "in", "not in", "is distinct from")
# Operators that are true exactly where another one is false, also for nulls.
_NEGATIONS = {"!=": "==", "is distinct from": "==", "not in": "in"}
LISTS = ("in", "not in")
_ORDERS = ("<", "<=", ">", ">=")


class Constants(tuple[Any, ...]):  # noqa: SLOT001 - a tuple can have no slots with names
    """The constants of ``in`` or ``not in``: a tuple that caches its Arrow arrays by type."""

    # Each file of a scan compares with the same array: it is made once.
    arrays: dict[pa.DataType, pa.Array]

    def __new__(cls, values: Iterable[Any]) -> Self:
        constants = super().__new__(cls, values)
        constants.arrays = {}
        return constants

    def __reduce__(self) -> tuple[Any, ...]:
        return Constants, (tuple(self),)

    @cached_property
    def has_null(self) -> bool:
        """Whether one of them is a null."""
        return any(map(is_null, self))


class Clause(Struct, frozen=True):
    """One comparison of a column with a constant.

    Parameters
    ----------
    column : str
        Name of the column.
    op : str
        One of ``== != < <= > >= in``, ``not in``, ``is distinct from``.
    value : object
        The constant; for ``in`` and ``not in`` a tuple of constants. A null (None, NaN, NaT, NA)
        with ``==`` means "is null", with ``!=`` "is not null".

    Notes
    -----
    ``!=`` and ``is distinct from`` are true where ``==`` is false, ``not in`` where ``in`` is.
    All are true for null unless null is among the constants. ``< <= > >=`` are false for null.

    Examples
    --------
    >>> Clause("COUNTRY_CODE", "==", "DE")
    Clause(column='COUNTRY_CODE', op='==', value='DE')
    """

    column: str
    op: str
    value: Any


Predicates = tuple[tuple[Clause, ...], ...]


def is_null(value: object) -> bool:
    """Whether a literal is a spelling of null: None, NaN, NaT, NA."""
    if value is None or isinstance(value, np.ndarray):
        return value is None
    try:
        return bool(value != value)  # noqa: PLR0124 - NaN and NaT of all libraries differ from themselves
    except (TypeError, ValueError, ArithmeticError):
        # pandas.NA has no truth value, arrays have several, a signalling NaN of Decimal raises.
        return type(value).__name__ in ("NAType", "Decimal")


def parse_predicates(predicates: Any) -> Predicates | None:
    """Check kartothek's form ``[[(column, op, value), ...], ...]`` and turn it into a value.

    ``in`` and ``not in`` take every collection: list, tuple, set, range, NumPy and Arrow array,
    pandas Series. They take no iterator, since predicates may be read more than once.

    Raises
    ------
    InvalidInput
        If the form is wrong: an empty list, a conjunction that is not a list, a clause that is not
        a tuple of three, a null with ``< <= > >=``.
    InvalidType
        If the predicates are no list.
    WrongOperand
        If ``in`` or ``not in`` has no collection (text is none), or another operator has one. It is
        an `InvalidType` and an `InvalidInput`.
    Unsupported
        For an unknown operator, or bytes that contain NUL.

    Examples
    --------
    >>> parse_predicates([[("COUNTRY_CODE", "in", {"DE"})]])
    ((Clause(column='COUNTRY_CODE', op='in', value=('DE',)),),)
    """
    if predicates is None:
        return None
    # Without a length it may be an iterator, which the first reader would exhaust.
    if not hasattr(predicates, "__len__"):
        raise InvalidType(f"Predicates are a list of lists of (column, operator, value), got {predicates!r}.")
    is_text = isinstance(predicates, str)
    if len(predicates) == 0:
        raise InvalidInput("Empty predicates: give None to read everything.")
    parsed = []
    for i, conjunction in enumerate(predicates):
        if not isinstance(conjunction, list):
            kind = type(conjunction).__name__
            hint = ' Text is for cubes and for open_dataset(uuid, store).query("UNITS > 2").' if is_text else ""
            raise InvalidInput(
                f"Conjunction {i} should be a list of 3-tuples, got object of type {kind} instead. "
                f'Predicates look like [[("UNITS", ">", 2)]].{hint}'
            )
        if not conjunction:
            raise InvalidInput(f"Conjunction {i} is empty.")
        clauses = (_parse_clause(f"Clause {j} in conjunction {i}", clause) for j, clause in enumerate(conjunction))
        parsed.append(tuple(clauses))
    return tuple(parsed)


def _parse_clause(context: str, clause: object) -> Clause:
    if not isinstance(clause, tuple) or len(clause) != 3:
        raise InvalidInput(f"{context} should be a 3-tuple (column, operator, value), got {clause!r}.")
    column, op, value = clause
    if op not in OPERATORS:
        raise Unsupported(
            f"{context}: the operator {op!r} on column {column!r} is not supported, use one of {', '.join(OPERATORS)}."
        )
    column, parse = column_name(column), _parse_list if op in LISTS else _parse_constant
    parsed = Clause(column, op, parse(context, column, op, value))
    if any(isinstance(v, bytes) and b"\0" in v for v in constants_of(parsed)):
        raise Unsupported(
            f"Null-terminated binary strings are not supported as predicate values, but {context} has one."
        )
    return parsed


def _parse_list(context: str, column: str, op: str, values: Any) -> Constants:
    hint = ""
    if not _is_collection(values):
        hint = f". Write [{values!r}] for a single one."
    elif isinstance(values, Iterator):
        hint = ", which can be read only once. Call list() on it."
    if hint:
        raise WrongOperand(f"{context}: {op!r} on column {column!r} needs a list of values, got {values!r}{hint}")
    return Constants(values.to_pylist() if hasattr(values, "to_pylist") else map(without_arrow, values))


def _parse_constant(context: str, column: str, op: str, value: object) -> Any:
    value = without_arrow(value)
    if _is_collection(value):
        raise WrongOperand(
            f"{context}: {op!r} on column {column!r} needs one value, got {value!r}. "
            "For several there are 'in' and 'not in'."
        )
    if op in _ORDERS and is_null(value):
        raise InvalidInput(
            "Only operators supporting null values are '==', '!=', 'in', 'not in' and 'is distinct from', "
            f"but {context} has {op!r} on column {column!r}."
        )
    return value


def _is_collection(values: object) -> bool:
    return isinstance(values, Iterable) and not isinstance(values, (str, bytes)) and getattr(values, "ndim", 1) > 0


def constants_of(clause: Clause) -> Sequence[Any]:
    """All constants of a clause, nulls included.

    Examples
    --------
    >>> constants_of(Clause("WEEK", "<", 10)), constants_of(Clause("WEEK", "in", (10, 11)))
    ((10,), (10, 11))
    """
    return clause.value if clause.op in LISTS else (clause.value,)


def denied(clause: Clause) -> Clause | None:
    """The clause that this one negates exactly; None if it is no negation.

    Examples
    --------
    >>> denied(Clause("COUNTRY_CODE", "not in", ("DE", "FR")))
    Clause(column='COUNTRY_CODE', op='in', value=('DE', 'FR'))
    """
    return Clause(clause.column, _NEGATIONS[clause.op], clause.value) if clause.op in _NEGATIONS else None


def accepts_null(clause: Clause) -> bool:
    """Whether a null satisfies the comparison."""
    opposite = denied(clause)
    if opposite is not None:
        return not accepts_null(opposite)
    if isinstance(clause.value, Constants):
        return clause.value.has_null
    return clause.op not in _ORDERS and any(map(is_null, constants_of(clause)))


def columns_of(predicates: Predicates | None) -> frozenset[str]:
    """All columns that the predicates name."""
    return frozenset(clause.column for conjunction in predicates or () for clause in conjunction)


def by_column(clauses: Iterable[Clause]) -> dict[str, list[Clause]]:
    """Clauses grouped by column.

    Examples
    --------
    >>> by_column([Clause("WEEK", ">=", 10)])
    {'WEEK': [Clause(column='WEEK', op='>=', value=10)]}
    """
    groups: dict[str, list[Clause]] = {}
    for clause in clauses:
        groups.setdefault(clause.column, []).append(clause)
    return groups


def check_constants(clauses: Iterable[Clause], schema: pa.Schema, context: str = "") -> None:
    """Raise `InvalidType` unless all constants are null or can be compared with their columns."""
    for clause in clauses:
        constants = (v for v in constants_of(clause) if not is_null(v))
        check_literals(constants, schema.field(clause.column).type, clause.column, context)


def resolve_constants(predicates: Predicates | None, truth: Callable[[Clause], bool | None]) -> Predicates | None:
    """The residual predicates, without the clauses whose truth is known.

    None means that all rows match, an empty tuple that none does.
    """
    if predicates is None:
        return None
    residual = []
    for conjunction in predicates:
        truths = [truth(clause) for clause in conjunction]
        if False not in truths:
            residual.append(tuple(c for c, known in zip(conjunction, truths, strict=True) if known is None))
    return tuple(residual) if all(residual) else None


# --- evaluation -----------------------------------------------------------------------------------


Mask = np.ndarray[Any, np.dtype[np.bool_]]

# To find out that fewer values are sorted takes longer than to hash them.
_SEARCHED = 16_384
COMPARE: dict[str, Any] = {"==": eq, "<": lt, "<=": le, ">": gt, ">=": ge}
_COMPARE_IN_ARROW = {"==": pc.equal, "<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal}


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


def disjunction(n: int, conjunctions: Iterable[Iterable[Mask]]) -> Mask:
    """One boolean per row: whether all masks of one of the conjunctions are true."""
    result = np.zeros(n, dtype=bool)
    for masks in conjunctions:
        mask = np.ones(n, dtype=bool)
        for each in masks:
            mask &= each
        result |= mask
    return result


def matching_rows(table: pa.Table, predicates: Predicates | None) -> Mask:
    """One boolean per row of ``table``: whether it satisfies the predicates."""
    if predicates is None:
        return np.ones(table.num_rows, dtype=bool)
    return disjunction(
        table.num_rows, ((matching_values(table.column(c.column), c) for c in clauses) for clauses in predicates)
    )


def matching_all(values: pa.Array | pa.ChunkedArray, clauses: Iterable[Clause]) -> Mask:
    """One boolean per value: whether it satisfies all comparisons."""
    return disjunction(len(values), [(matching_values(values, clause) for clause in clauses)])


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
        mask: Mask = COMPARE[op](values.to_numpy(), literal.as_py())
        return mask
    # Arrow compares a null to null.
    return _to_numpy(pc.fill_null(_COMPARE_IN_ARROW[op](values, literal), False))


def comparison_in_type(clause: Clause, data_type: pa.DataType) -> tuple[str, pa.Scalar] | bool:
    """Operator and constant of ``== < <= > >=`` for values of a type, or the truth for all values.

    If no value of the type equals the constant, the greatest value below it stands in.

    Examples
    --------
    >>> comparison_in_type(Clause("WEEK", "<", 2.5), pa.int64())
    ('<=', <pyarrow.Int64Scalar: 2>)
    >>> comparison_in_type(Clause("WEEK", "==", 2.5), pa.int64())
    False
    """
    place = literal(clause.value, data_type)
    if place.floor is None:
        return clause.op in (">", ">=")
    if place.exact:
        return clause.op, place.floor
    return clause.op != "==" and ("<=" if clause.op in ("<", "<=") else ">", place.floor)


def _compared(values: pa.Array | pa.ChunkedArray, clause: Clause) -> Mask:
    """The operators ``== < <= > >=``."""
    placed = comparison_in_type(clause, values.type)
    if isinstance(placed, bool):
        return ~_to_numpy(_nulls(values)) if placed else np.zeros(len(values), dtype=bool)
    return _compare(placed[0], values, placed[1])


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
    return disjunction(
        n, ((_possible(bounds[c.column], c) for c in clauses if c.column in bounds) for clauses in predicates)
    )


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

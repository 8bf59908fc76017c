"""kartothek's functions on predicates: check, select by column, filter frames and arrays."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from kartothek_cube.core.arguments import column_name
from kartothek_cube.core.arrow.pandas import arrow_array, is_series
from kartothek_cube.core.arrow.types import stored_type
from kartothek_cube.core.expressions.literals import WrongOperand, check_literals, is_own_kind
from kartothek_cube.core.expressions.predicates import (
    Clause,
    Mask,
    Predicates,
    columns_of,
    constants_of,
    is_null,
    matching_values,
    parse_predicates,
)
from kartothek_cube.errors import InvalidInput, InvalidType, UnknownColumn

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "ConjunctionType",
    "LiteralType",
    "LiteralValue",
    "PredicatesType",
    "check_known",
    "check_predicates",
    "columns_in_predicates",
    "filter_array_like",
    "filter_df",
    "filter_df_from_predicates",
    "filter_predicates_by_column",
    "predicate_mask",
]

LiteralValue: TypeAlias = Any
"""The constant of a comparison."""

LiteralType: TypeAlias = tuple[str, str, LiteralValue]
"""One comparison: column, operator, value."""

ConjunctionType: TypeAlias = list[LiteralType]
"""Comparisons that must all be true."""

PredicatesType: TypeAlias = list[ConjunctionType]
"""Conjunctions; at least one must be true."""


def check_predicates(predicates: PredicatesType | None) -> None:
    """Check that predicates have the form ``[[(column, operator, value), ...], ...]``.

    Raises
    ------
    InvalidInput
        For an empty list, a conjunction that is no list, a clause that is no triple, or a null that
        cannot be compared.
    InvalidType
        If the value for ``in`` is no collection.
    Unsupported
        For an unknown operator, or bytes that contain NUL.

    Examples
    --------
    >>> check_predicates([[("COUNTRY_CODE", "in", ["DE", "FR"]), ("UNITS", ">", 3)]])
    """
    parse_predicates(predicates)


def columns_in_predicates(predicates: PredicatesType | None) -> set[str]:
    """All columns in the predicates.

    Examples
    --------
    >>> sorted(columns_in_predicates([[("COUNTRY_CODE", "==", "DE")], [("UNITS", ">", 3)]]))
    ['COUNTRY_CODE', 'UNITS']
    """
    return {column_name(clause[0]) for conjunction in predicates or () for clause in conjunction}


def filter_predicates_by_column(predicates: PredicatesType | None, columns: Collection[str]) -> PredicatesType | None:
    """The comparisons of some columns; None if there are none.

    Examples
    --------
    >>> predicates = [[("COUNTRY_CODE", "==", "DE"), ("UNITS", ">", 3)], [("PRICE", "<", 2.5)]]
    >>> filter_predicates_by_column(predicates, ["UNITS"])
    [[('UNITS', '>', 3)]]
    """
    kept = [[clause for clause in conjunction if column_name(clause[0]) in columns] for conjunction in predicates or ()]
    return [conjunction for conjunction in kept if conjunction] or None


def filter_df(df: pd.DataFrame, filter_query: str | None = None) -> pd.DataFrame:
    """The rows that match a query of pandas; without a query, the frame itself.

    Examples
    --------
    >>> import pandas as pd
    >>> filter_df(pd.DataFrame({"UNITS": [1, 2, 3]}), "UNITS > 1")["UNITS"].tolist()
    [2, 3]
    """
    return df.query(filter_query) if filter_query else df


def filter_df_from_predicates(
    df: pd.DataFrame, predicates: PredicatesType | None, strict_date_types: bool = False
) -> pd.DataFrame:
    """The rows that match the predicates, with their row labels.

    Parameters
    ----------
    df : pandas.DataFrame
        The rows.
    predicates : list of list of tuple, optional
        ``[[(column, operator, value), ...], ...]``; None returns the frame itself.
    strict_date_types : bool, default False
        Compare dates only with dates, moments only with moments. By default a date is compared as
        its midnight.

    Raises
    ------
    UnknownColumn
        If the frame lacks a column of the predicates.
    InvalidInput
        If the frame has a column of the predicates twice.
    InvalidType
        If a value does not fit its column, e.g. a float for integers.

    Examples
    --------
    >>> import pandas as pd
    >>> sales = pd.DataFrame({"COUNTRY_CODE": ["DE", "FR", None], "UNITS": [1, 2, 3]})
    >>> filter_df_from_predicates(sales, [[("COUNTRY_CODE", "!=", "DE")]])["UNITS"].tolist()
    [2, 3]
    """
    filters = parse_predicates(predicates)
    if filters is None:
        return df
    columns = columns_of(filters)
    check_known(columns, list(df.columns), "The predicates name columns that the frame does not have")
    # pandas returns a frame for a name that occurs twice.
    twice = sorted(c for c in columns if not is_series(df[c]))
    if twice:
        raise InvalidInput(
            f"The predicates name columns that the frame has more than once: {', '.join(twice)}. "
            "Rename all but one of each."
        )
    arrays = {c: _as_arrow(df[c], c) for c in sorted(columns)}
    return df[predicate_mask(pa.table(arrays), filters, strict_date_types)]


def check_known(columns: Iterable[str], present: Collection[str], context: str) -> None:
    """Check that all columns are present."""
    unknown = sorted(set(columns) - set(present))
    if unknown:
        raise UnknownColumn(f"{context}: {', '.join(unknown)}. There are {list(present)}.")


def predicate_mask(table: pa.Table, predicates: Predicates, strict: bool) -> Mask:
    """Whether each row matches the predicates."""
    result = np.zeros(table.num_rows, dtype=bool)
    for conjunction in predicates:
        mask = np.ones(table.num_rows, dtype=bool)
        for clause in conjunction:
            mask &= _matches(table.column(clause.column), clause, strict)
        result |= mask
    return result


def filter_array_like(
    array_like: object,
    op: str,
    value: LiteralValue,
    mask: Mask | None = None,
    out: Mask | None = None,
    strict_date_types: bool = False,
    column_name: str | None = None,
) -> Mask:
    """Whether each value satisfies a comparison.

    Parameters
    ----------
    array_like : array, Series, Index, Categorical or pyarrow.Array
        The values, one-dimensional.
    op : str
        An operator of predicates: ``== != < <= > >= in`` ….
    value : object
        The constant; for ``in`` a collection.
    mask : array of bool, optional
        Combined with the result by AND.
    out : array of bool, optional
        Overwritten with the result and returned.
    strict_date_types : bool, default False
        As in `filter_df_from_predicates`.
    column_name : str, optional
        For error messages.

    Returns
    -------
    numpy.ndarray
        One ``bool`` per value.

    Raises
    ------
    InvalidInput
        If ``mask`` or ``out`` has another length than the array.
    InvalidType
        If the value does not fit the values of the array.

    Examples
    --------
    >>> import numpy as np
    >>> filter_array_like(np.array([3, 4, 5]), ">", 3, mask=np.array([True, True, False])).tolist()
    [False, True, False]
    """
    ((clause,),) = parse_predicates([[(column_name or "<unknown>", op, value)]]) or ()
    result = _matches(_as_arrow(array_like, clause.column), clause, strict_date_types)
    for name, given in (("mask", mask), ("out", out)):
        if given is not None and np.shape(given) != result.shape:
            raise InvalidInput(
                f"{name} should have one boolean for each of {len(result)} values of {clause.column!r}, "
                f"but has shape {np.shape(given)}."
            )
    if mask is not None:
        result = result & np.asarray(mask, dtype=bool)
    if out is None:
        return result
    out[...] = result  # in place: kartothek's callers pass a buffer
    return out


def _as_arrow(values: object, name: str) -> pa.Array | pa.ChunkedArray:
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return values
    try:
        return arrow_array(values)
    except (pa.ArrowException, TypeError, OverflowError, UnicodeError) as error:
        raise InvalidType(f"Column {name!r} has no single type that could be compared: {error}") from None


def _matches(values: pa.Array | pa.ChunkedArray, clause: Clause, strict: bool) -> Mask:
    if not strict:
        values, clause = _with_moments(values, clause)
    constants = [v for v in constants_of(clause) if not is_null(v)]
    if strict and pt.is_temporal(values.type) and not all(is_own_kind(v, values.type) for v in constants):
        raise InvalidType(
            f"Unexpected type for predicate: column {clause.column!r} is {values.type}, and strict_date_types "
            f"compares dates with dates only, moments with moments, but the value is {clause.value!r}."
        )
    if pt.is_floating(values.type) and not all(isinstance(v, (float, np.floating)) for v in constants):
        # A pandas column of nulls is a column of NaN, whatever its type was.
        only_nulls = pc.all(pc.is_null(values, nan_is_null=True)).as_py() is not False
        values = pa.nulls(len(values)) if only_nulls else values
    check_literals(constants, values.type, clause.column)
    # Moments keep their unit: microseconds would round them.
    return matching_values(values if pt.is_timestamp(values.type) else values.cast(stored_type(values.type)), clause)


# --- dates and moments ----------------------------------------------------------------------------

_MOMENT = (dt.datetime, np.datetime64)


def _with_moments(values: pa.Array | pa.ChunkedArray, clause: Clause) -> tuple[pa.Array | pa.ChunkedArray, Clause]:
    """Convert dates and texts to moments if the other side of the comparison has moments."""
    if pt.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    constants = constants_of(clause)
    is_text = pt.is_string(values.type) or pt.is_large_string(values.type)
    if is_text and any(isinstance(v, (dt.date, np.datetime64)) for v in constants):
        try:
            values = values.cast(pa.timestamp("us"))
        except pa.ArrowInvalid as error:
            message = f"Column {clause.column!r} is text that cannot be compared with dates: {error}"
            raise InvalidType(message) from None
    # In microseconds, which reach every date.
    elif pt.is_date(values.type) and any(isinstance(v, _MOMENT) for v in constants):
        values = values.cast(pa.timestamp("us"))
    if not pt.is_timestamp(values.type):
        return values, clause
    moments = tuple(_moment(v, clause.column) for v in constants)
    return values, replace(clause, value=moments if isinstance(clause.value, tuple) else moments[0])


def _moment(value: object, name: str) -> Any:
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return dt.datetime.combine(value, dt.time())
    if not isinstance(value, (str, bytes)):
        return value
    import pandas as pd

    try:
        moment: Any = pd.Timestamp(value.decode() if isinstance(value, bytes) else value)
    except ValueError:
        moment = None
    if is_null(moment):  # pandas makes NaT of empty text
        raise WrongOperand(
            f"Unexpected type for predicate: column {name!r} has moments, but {value!r} is no text of one."
        )
    return moment

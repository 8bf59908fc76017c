"""Pure evaluation of conditions on a pandas frame."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from kartothek_cube.core.evaluate import matching_rows
from kartothek_cube.core.predicates import Clause, constants_of
from kartothek_cube.core.schema import check_literal
from kartothek_cube.errors import InvalidInput, InvalidType

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    import pandas as pd

__all__ = ["ColumnNotFound", "filter_frame"]


class ColumnNotFound(InvalidInput, KeyError):
    """A condition names a column that the frame does not have."""

    __str__ = Exception.__str__


def filter_frame(df: pd.DataFrame, columns: Collection[str], clauses: Iterable[Clause]) -> pd.DataFrame:
    """The rows of ``df`` that have a value in all ``columns`` and satisfy all ``clauses``, with their row labels.

    Examples
    --------
    >>> import pandas as pd
    >>> df = pd.DataFrame({"WEEK": [1, 2, 3], "PRICE": [1.5, 2.5, None]})
    >>> filter_frame(df, ["PRICE"], [Clause("PRICE", ">", 2.0)])
       WEEK  PRICE
    1     2    2.5
    """
    missing = sorted(column for column in columns if column not in df.columns)
    if missing:
        raise ColumnNotFound(f"Conditions on columns that the frame does not have: {', '.join(missing)}. It has: {', '.join(map(str, df.columns))}.")
    names = sorted(columns)
    mask = df[names].notna().all(axis=1).to_numpy(dtype=bool, copy=True)
    if names:
        table = _to_arrow(df.loc[mask, names])
        checked = tuple(_checked(clause, table.schema.field(clause.column).type) for clause in clauses)
        mask[np.flatnonzero(mask)] = matching_rows(table, (checked,))
    return df.loc[mask]


def _to_arrow(df: pd.DataFrame) -> pa.Table:
    try:
        return pa.Table.from_pandas(df, preserve_index=False)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise InvalidType(f"Cannot compare with columns of mixed or unknown types: {error}") from error


def _checked(clause: Clause, kind: pa.DataType) -> Clause:
    """The clause with constants that suit a column of this type."""
    if clause.value is None:
        return clause
    kind = kind.value_type if pt.is_dictionary(kind) else kind
    suited = tuple(_suited(value, kind, clause.column) for value in constants_of(clause))
    return Clause(clause.column, clause.op, suited if isinstance(clause.value, tuple) else suited[0])


def _suited(value: object, kind: pa.DataType, column: str) -> Any:
    if pt.is_timestamp(kind):
        value = _as_timestamp(value, column)
    elif isinstance(value, np.integer):
        value = int(value)  # a signed constant may meet an unsigned column
    check_literal(value, kind, column, strict=True)
    return value


def _as_timestamp(value: object, column: str) -> Any:
    """A frame has no dates, so a timestamp column is compared with dates and their text, too."""
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return dt.datetime(value.year, value.month, value.day)  # noqa: DTZ001 -- as naive as the date
    if not isinstance(value, str):
        return value
    import pandas as pd

    try:
        return pd.Timestamp(value)
    except ValueError as error:
        raise InvalidInput(f"Cannot compare column {column!r} with {value!r}, which is no timestamp. Write it as 2024-12-31 or 2024-12-31 23:59:59.") from error

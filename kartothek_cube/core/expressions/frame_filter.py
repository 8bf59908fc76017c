"""Evaluation of conditions on a pandas frame. Pure."""

from __future__ import annotations

import datetime as dt
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from kartothek_cube.core.arrow.literals import check_literal
from kartothek_cube.core.arrow.pandas import arrow_array
from kartothek_cube.core.expressions.evaluate import matching_rows
from kartothek_cube.core.expressions.predicates import Clause, constants_of
from kartothek_cube.errors import InvalidInput, InvalidType

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    import pandas as pd

__all__ = ["ColumnNotFound", "filter_frame"]


class ColumnNotFound(InvalidInput, KeyError):
    """A condition names a column that the frame does not have."""

    __str__ = Exception.__str__


def filter_frame(df: pd.DataFrame, columns: Collection[str], clauses: Iterable[Clause]) -> pd.DataFrame:
    """The rows of ``df`` that have a value in all ``columns`` and satisfy all ``clauses``.

    Rows keep their labels.

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
        raise ColumnNotFound(
            f"Conditions on columns that the frame does not have: {', '.join(missing)}. "
            f"It has: {', '.join(map(str, df.columns))}."
        )
    names = sorted(columns)
    # In frames a null satisfies no condition, not even `!=`.
    found = df[names]
    if found.shape[1] > len(names):
        raise InvalidInput(f"The frame has several columns of one name: {', '.join(map(str, found.columns))}.")
    mask = found.notna().all(axis=1).to_numpy(dtype=bool, copy=True)
    if names:
        try:
            table = pa.table({name: arrow_array(found.loc[mask, name]) for name in names})
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
            raise InvalidType(f"Cannot compare with columns of mixed or unknown types: {error}") from error
        checked = tuple(_checked(clause, table.schema.field(clause.column).type) for clause in clauses)
        mask[np.flatnonzero(mask)] = matching_rows(table, (checked,))
    return df.loc[mask]


def _checked(clause: Clause, data_type: pa.DataType) -> Clause:
    """The clause with constants that can be compared with a column of this type."""
    if clause.value is None:
        return clause
    data_type = data_type.value_type if pt.is_dictionary(data_type) else data_type
    constants: list[Any] = []
    for constant in constants_of(clause):
        value = _as_timestamp(constant, clause.column) if pt.is_timestamp(data_type) else constant
        check_literal(value, data_type, clause.column)
        constants.append(value)
    return Clause(clause.column, clause.op, tuple(constants) if isinstance(clause.value, tuple) else constants[0])


def _as_timestamp(value: object, column: str) -> Any:
    # pandas has no type for dates: timestamp columns are compared with dates and their text, too.
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return dt.datetime(value.year, value.month, value.day)  # noqa: DTZ001 -- as naive as the date
    if not isinstance(value, str):
        return value
    import pandas as pd

    with suppress(ValueError):
        moment = pd.Timestamp(value)
        if not pd.isna(moment):
            return moment
    raise InvalidInput(
        f"Cannot compare column {column!r} with {value!r}, which is no timestamp. "
        "Write it as 2024-12-31 or 2024-12-31 23:59:59."
    )

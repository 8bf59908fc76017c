"""Values of index objects: normalised to the type of the index, from dicts to Arrow and back."""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from kartothek_cube.core.arrow.keys import group_starts
from kartothek_cube.core.arrow.pandas import to_frame
from kartothek_cube.core.arrow.types import plain_type
from kartothek_cube.core.expressions.literals import literal_array
from kartothek_cube.core.expressions.predicates import Clause, Mask, is_null, matching_all
from kartothek_cube.core.metadata.index import SecondaryIndex, index_of_pairs, index_type, run_starts
from kartothek_cube.errors import InvalidInput, InvalidType, Unsupported

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "dict_of",
    "flat_series",
    "index_data_type",
    "infer_type",
    "normalize_value",
    "numpy_values",
    "pairs_of",
    "satisfying",
]

_log = logging.getLogger(__name__)

# The range of nanoseconds in int64, in whole days.
_FIRST, _LAST = np.datetime64("1677-09-22"), np.datetime64("2262-04-11")


def index_data_type(dtype: pa.DataType | None, column: str, normalize: bool = True) -> pa.DataType | None:
    """The type of an index on this column; None if the type is not known yet."""
    if dtype is None:
        index_type(pa.string(), column)  # checks the name of the column
        return None
    data_type = index_type(plain_type(dtype), column)
    return data_type if normalize else dtype


def infer_type(values: Sequence[Any], column: str) -> pa.DataType:
    """The common type of Python values."""
    # Arrow takes every Python integer for int64.
    is_unsigned = {type(v) for v in values} == {int} and max(values) >= 2**63 and min(values) >= 0
    try:
        return pa.uint64() if is_unsigned else pa.array(values).type
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise InvalidInput(
            f"The values of the index on column {column!r} have no common type, give `dtype`: {error}"
        ) from error


# --- one value ------------------------------------------------------------------------------------


def normalize_value(dtype: pa.DataType | None, value: object) -> Any:
    """Convert a value to the type of an index, see `IndexBase.normalize_value`."""
    return next(_normalised((value,), dtype))


def _normalised(values: Iterable[Any], dtype: pa.DataType | None) -> Iterator[Any]:
    if dtype is None:
        raise InvalidInput(
            "Cannot normalize index values as long as dtype is not set. Load the index first, or give its dtype."
        )
    data_type = plain_type(dtype)
    normalise = next((f for applies, f in _NORMALISERS if applies(data_type)), None)
    if normalise is None:
        raise Unsupported(f"Cannot normalize index value for type {dtype}")
    for value in values:
        if is_null(value):
            raise InvalidType(f"An index knows no nulls, so that {value!r} cannot be looked up in it or put into it.")
        try:
            yield normalise(value, data_type)
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidInput(
                f"The index value {value!r} ({type(value).__name__}) cannot be taken for {data_type}: {error}"
            ) from error


def _text(value: object, _data_type: pa.DataType) -> str:
    return value.decode("utf-8") if isinstance(value, bytes) else str(value)


def _boolean(value: object, data_type: pa.DataType) -> bool:
    if not isinstance(value, (str, bytes)):
        return bool(value)
    text = _text(value, data_type).lower()
    if text not in ("true", "false"):
        raise ValueError("text is a boolean if it is 'true' or 'false'")
    return text == "true"


def _date(value: object, _data_type: pa.DataType) -> dt.date:
    if isinstance(value, dt.date):
        return value.date() if isinstance(value, dt.datetime) else value
    date: dt.date = _stamp(value).date()
    return date


def _stamp(value: Any) -> pd.Timestamp:
    import pandas as pd

    stamp = pd.Timestamp(value)
    if is_null(stamp):  # what pandas makes of empty text
        raise ValueError("it is no moment")
    return stamp


def _moment(value: object, data_type: pa.DataType) -> Any:
    stamp = _stamp(value)
    if data_type.tz is not None:
        aware = stamp if stamp.tzinfo is not None else stamp.tz_localize("UTC")
        return aware.tz_convert(pa.lib.string_to_tzinfo(data_type.tz))
    naive = stamp if stamp.tzinfo is None else stamp.tz_convert("UTC").tz_localize(None)
    return _in_nanoseconds(naive.to_datetime64())


def _in_nanoseconds(moments: Any) -> Any:
    """In nanoseconds, kartothek's unit, if all moments are in range."""
    return moments.astype("datetime64[ns]") if np.all((moments >= _FIRST) & (moments <= _LAST)) else moments


_NORMALISERS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any, pa.DataType], Any]], ...] = (
    (pt.is_string, _text),
    (pt.is_binary, lambda v, _: bytes(v) if isinstance(v, (bytes, bytearray, memoryview)) else str(v).encode("utf-8")),
    (pt.is_boolean, _boolean),
    (pt.is_integer, lambda value, data_type: int(value)),
    (pt.is_floating, lambda value, data_type: float(value)),
    (pt.is_date, _date),
    (pt.is_timestamp, _moment),
)


# --- dicts and Arrow ------------------------------------------------------------------------------

# Python types that Arrow converts to the type of the index exactly as `normalize_value` does: such
# values need no loop in Python.
_EXACT: tuple[tuple[Callable[[pa.DataType], bool], Callable[[type], bool]], ...] = (
    (pt.is_string, lambda t: issubclass(t, str)),
    (pt.is_binary, lambda t: issubclass(t, bytes)),
    (pt.is_boolean, lambda t: t is bool),
    (pt.is_integer, lambda t: t is int),
    (pt.is_floating, lambda t: t is float),
    (pt.is_date, lambda t: t is dt.date),
)


def values_array(values: Sequence[Any], data_type: pa.DataType, column: str) -> pa.Array:
    """Normalise values, as the column of an index."""
    is_exact = next((exact for applies, exact in _EXACT if applies(data_type)), None)
    if is_exact is None or not all(map(is_exact, set(map(type, values)))):
        values = list(_normalised(values, data_type))
    try:
        if pt.is_timestamp(data_type):
            array = literal_array(values, data_type).cast(data_type)
        else:
            array = pa.array(values, type=data_type)
    except (pa.ArrowException, OverflowError) as error:
        raise InvalidInput(
            f"The values of the index on column {column!r} cannot be stored as {data_type}: {error}"
        ) from error
    if len(array) < len(values):  # `literal_array` drops moments that the unit cannot express
        raise InvalidInput(
            f"A value of the index on column {column!r} is finer than a microsecond, which {data_type} cannot store."
        )
    if pt.is_floating(data_type) and pc.any(pc.is_nan(array)).as_py():
        raise InvalidType(f"An index knows no nulls, but the one on column {column!r} is given NaN.")
    return array


def pairs_of(column: str, index_dct: Mapping[Any, Iterable[str]], data_type: pa.DataType) -> SecondaryIndex:
    """An index from a dict value → labels; values that are equal after normalisation are merged."""
    if not isinstance(index_dct, Mapping):
        raise InvalidType(
            f"The index on column {column!r} should be a dict value → list of labels, "
            f"but is {type(index_dct).__name__}."
        )
    values = values_array(list(index_dct), data_type, column)
    collisions = len(values) - len(pc.unique(values))
    if collisions:
        _log.warning(
            "Value normalization for index column %s resulted in %d collision(s); the lists of labels are merged.",
            column,
            collisions,
        )
    for labels in index_dct.values():
        if isinstance(labels, (str, bytes)) or not isinstance(labels, Iterable):
            raise InvalidType(f"The index on column {column!r} needs a list of labels for each value, got {labels!r}.")
    lists = [list(labels) for labels in index_dct.values()]
    repeated = values.take(pa.array(np.repeat(np.arange(len(values)), list(map(len, lists)))))
    return index_of_pairs(column, repeated, label_array(chain.from_iterable(lists), column).dictionary_encode())


def label_array(labels: Iterable[str], column: str) -> pa.Array:
    """Labels as a column."""
    if isinstance(labels, (str, bytes)):
        raise InvalidType(f"The index on column {column!r} needs a list of labels, got {labels!r}.")
    try:
        return pa.array(list(labels), type=pa.string())
    except (pa.ArrowException, TypeError) as error:
        raise InvalidType(f"The labels in an index on column {column!r} are text: {error}") from error


def dict_of(pairs: SecondaryIndex) -> dict[Any, list[str]]:
    """Value → labels, from sorted pairs."""
    starts = run_starts(pairs.values)
    labels = pairs.labels.cast(pa.string()).to_pylist()
    lists = [labels[a:b] for a, b in pairwise([*starts.tolist(), len(labels)])]
    distinct = pairs.values.take(pa.array(starts))
    keys = numpy_values(distinct) if pt.is_timestamp(distinct.type) else distinct.to_pylist()
    return dict(zip(keys, lists, strict=True))


# --- numpy and pandas -----------------------------------------------------------------------------


def numpy_values(values: pa.Array, date_as_object: bool = True) -> np.ndarray[Any, Any]:
    """Values as NumPy array.

    Dates are objects or ``datetime64``, moments with a zone `pandas.Timestamp`, text is objects.
    """
    data_type = values.type
    if (pt.is_date(data_type) and date_as_object) or (pt.is_timestamp(data_type) and data_type.tz is not None):
        out = np.empty(len(values), dtype=object)
        out[:] = values.to_pylist() if pt.is_date(data_type) else list(values.to_pandas())
        return out
    array: np.ndarray[Any, Any] = values.to_numpy(zero_copy_only=False)
    # Arrow's array cannot be written to: return a copy.
    return _in_nanoseconds(array) if pt.is_temporal(data_type) else np.array(array)


def flat_series(
    pairs: SecondaryIndex, compact: bool, partitions_as_index: bool, date_as_object: bool
) -> pd.Series[Any]:
    """Sorted pairs as a series value → label, or label → value.

    With ``compact`` each entry of the series' index is unique and has an array.
    """
    import pandas as pd

    table = pa.table({pairs.column: pairs.values, "partition": pairs.labels.cast(pa.string())})
    frame = to_frame(table, dates_as_object=date_as_object)
    by, other = ("partition", pairs.column) if partitions_as_index else (pairs.column, "partition")
    if not compact:
        return frame.set_index(by)[other]
    if partitions_as_index:
        order = np.argsort(pairs.labels.indices.to_numpy(), kind="stable")
        starts = group_starts(pairs.labels.indices.to_numpy()[order])
    else:
        order, starts = np.arange(len(pairs)), run_starts(pairs.values)
    values = frame[other].to_numpy()[order]
    arrays = np.empty(len(starts), dtype=object)
    # Entry by entry: NumPy would make one matrix of arrays of equal length.
    for i, (start, end) in enumerate(pairwise([*starts.tolist(), len(values)])):
        arrays[i] = values[start:end]
    return pd.Series(arrays, index=pd.Index(frame[by].iloc[order[starts]], name=by), name=other)


# --- predicates -----------------------------------------------------------------------------------


def satisfying(values: pa.Array, conjunctions: Iterable[Sequence[Clause]]) -> Mask:
    """Whether each value satisfies one of the conjunctions."""
    mask = np.zeros(len(values), dtype=bool)
    for clauses in conjunctions:
        mask |= matching_all(values, clauses)
    return mask

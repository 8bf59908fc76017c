"""Values of index objects: normalised to the type of the index, from a dict of labels to Arrow and back, as numpy and as pandas."""

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

from kartothek_cube.core.arrow.pandas import to_frame
from kartothek_cube.core.arrow.schema import literal_array, plain_type
from kartothek_cube.core.arrow.sort_keys import group_starts
from kartothek_cube.core.expressions.evaluate import Mask, matching_all
from kartothek_cube.core.expressions.predicates import Clause, is_null
from kartothek_cube.core.metadata.index import SecondaryIndex, index_type, run_starts
from kartothek_cube.errors import InvalidInput, InvalidType, Unsupported

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "dict_of",
    "flat_series",
    "index_kind",
    "infer_type",
    "normalize_value",
    "numpy_values",
    "pairs_of",
    "satisfying",
]

_log = logging.getLogger(__name__)

# What nanoseconds can hold, in whole days.
_FIRST, _LAST = np.datetime64("1677-09-22"), np.datetime64("2262-04-11")


def index_kind(dtype: pa.DataType | None, column: str, normalize: bool = True) -> pa.DataType | None:
    """The type of an index on this column; None if the type is not known yet."""
    if dtype is None:
        index_type(pa.string(), column)  # for the check of the name
        return None
    kind = index_type(plain_type(dtype), column)
    return kind if normalize else dtype


def infer_type(values: Sequence[Any], column: str) -> pa.DataType:
    """The type of Python values, if they have one."""
    try:
        return pa.uint64() if _need_all_bits(values) else pa.array(values).type
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise InvalidInput(
            f"The values of the index on column {column!r} have no common type, give `dtype`: {error}"
        ) from error


def _need_all_bits(values: Sequence[Any]) -> bool:
    """Whether they are integers of Python too large for int64, which Arrow takes for granted."""
    return {type(v) for v in values} == {int} and max(values) >= 2**63 and min(values) >= 0


# --- one value ------------------------------------------------------------------------------------


def normalize_value(dtype: pa.DataType | None, value: object) -> Any:
    """A value of a lenient type as a value of an index on a column of this type; see `IndexBase.normalize_value`."""
    return next(_normalised((value,), dtype))


def _normalised(values: Iterable[Any], dtype: pa.DataType | None) -> Iterator[Any]:
    if dtype is None:
        raise InvalidInput(
            "Cannot normalize index values as long as dtype is not set. Load the index first, or give its dtype."
        )
    kind = plain_type(dtype)
    normalise = next((f for applies, f in _NORMALISERS if applies(kind)), None)
    if normalise is None:
        raise Unsupported(f"Cannot normalize index value for type {dtype}")
    for value in values:
        if is_null(value):
            raise InvalidType(f"An index knows no nulls, so that {value!r} cannot be looked up in it or put into it.")
        try:
            yield normalise(value, kind)
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidInput(
                f"The index value {value!r} ({type(value).__name__}) cannot be taken for {kind}: {error}"
            ) from error


def _text(value: object, _kind: pa.DataType) -> str:
    return value.decode("utf-8") if isinstance(value, bytes) else str(value)


def _binary(value: object, _kind: pa.DataType) -> bytes:
    return bytes(value) if isinstance(value, (bytes, bytearray, memoryview)) else str(value).encode("utf-8")


def _truth(value: object, kind: pa.DataType) -> bool:
    if not isinstance(value, (str, bytes)):
        return bool(value)
    text = _text(value, kind).lower()
    if text not in ("true", "false"):
        raise ValueError("text is a boolean if it is 'true' or 'false'")
    return text == "true"


def _date(value: object, _kind: pa.DataType) -> dt.date:
    if isinstance(value, dt.date):
        return value.date() if isinstance(value, dt.datetime) else value
    found: dt.date = _stamp(value).date()
    return found


def _stamp(value: Any) -> pd.Timestamp:
    import pandas as pd

    stamp = pd.Timestamp(value)
    if is_null(stamp):  # what pandas makes of empty text
        raise ValueError("it is no moment")
    return stamp


def _moment(value: object, kind: pa.DataType) -> Any:
    stamp = _stamp(value)
    if kind.tz is not None:
        aware = stamp if stamp.tzinfo is not None else stamp.tz_localize("UTC")
        return aware.tz_convert(pa.lib.string_to_tzinfo(kind.tz))
    naive = stamp if stamp.tzinfo is None else stamp.tz_convert("UTC").tz_localize(None)
    return _in_nanoseconds(naive.to_datetime64())


def _in_nanoseconds(moments: Any) -> Any:
    """kartothek's unit, where it reaches that far."""
    return moments.astype("datetime64[ns]") if np.all((moments >= _FIRST) & (moments <= _LAST)) else moments


_NORMALISERS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any, pa.DataType], Any]], ...] = (
    (pt.is_string, _text),
    (pt.is_binary, _binary),
    (pt.is_boolean, _truth),
    (pt.is_integer, lambda value, kind: int(value)),
    (pt.is_floating, lambda value, kind: float(value)),
    (pt.is_date, _date),
    (pt.is_timestamp, _moment),
)


# --- dicts and Arrow ------------------------------------------------------------------------------

# Python types that Arrow converts to the type of the index as `normalize_value` would.
_EXACT: tuple[tuple[Callable[[pa.DataType], bool], Callable[[type], bool]], ...] = (
    (pt.is_string, lambda t: issubclass(t, str)),
    (pt.is_binary, lambda t: issubclass(t, bytes)),
    (pt.is_boolean, lambda t: t is bool),
    (pt.is_integer, lambda t: t is int),
    (pt.is_floating, lambda t: t is float),
    (pt.is_date, lambda t: t is dt.date),
)


def values_array(values: Sequence[Any], kind: pa.DataType, column: str) -> pa.Array:
    """Values of lenient types as one column of an index."""
    is_exact = next((exact for applies, exact in _EXACT if applies(kind)), None)
    if is_exact is None or not all(map(is_exact, set(map(type, values)))):
        values = list(_normalised(values, kind))
    try:
        array = literal_array(values, kind).cast(kind) if pt.is_timestamp(kind) else pa.array(values, type=kind)
    except (pa.ArrowException, OverflowError) as error:
        raise InvalidInput(
            f"The values of the index on column {column!r} cannot be stored as {kind}: {error}"
        ) from error
    if len(array) < len(values):
        raise InvalidInput(
            f"A value of the index on column {column!r} is finer than a microsecond, which {kind} cannot store."
        )
    if pt.is_floating(kind) and pc.any(pc.is_nan(array)).as_py():
        raise InvalidType(f"An index knows no nulls, but the one on column {column!r} is given NaN.")
    return array


def pairs_of(column: str, index_dct: Mapping[Any, Iterable[str]], kind: pa.DataType) -> SecondaryIndex:
    """An index from a dict of values and their labels; values that are the same once they have the type are merged."""
    if not isinstance(index_dct, Mapping):
        raise InvalidType(
            f"The index on column {column!r} should be a dict value → list of labels, but is {type(index_dct).__name__}."
        )
    values = values_array(list(index_dct), kind, column)
    collisions = len(values) - len(pc.unique(values))
    if collisions:
        _log.warning(
            "Value normalization for index column %s resulted in %d collision(s); the lists of labels are merged.",
            column,
            collisions,
        )
    labels = [_label_list(column, found) for found in index_dct.values()]
    repeated = values.take(pa.array(np.repeat(np.arange(len(values)), [len(found) for found in labels])))
    return SecondaryIndex(column, repeated, label_array(chain.from_iterable(labels), column).dictionary_encode())


def _label_list(column: str, labels: object) -> list[str]:
    if isinstance(labels, (str, bytes)) or not isinstance(labels, Iterable):
        raise InvalidType(f"The index on column {column!r} needs a list of labels for each value, got {labels!r}.")
    return list(labels)


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
    return dict(zip(_python_values(pairs.values.take(pa.array(starts))), lists, strict=True))


def _python_values(values: pa.Array) -> list[Any]:
    return list(numpy_values(values)) if pt.is_timestamp(values.type) else values.to_pylist()


# --- numpy and pandas -----------------------------------------------------------------------------


def numpy_values(values: pa.Array, date_as_object: bool = True) -> np.ndarray[Any, Any]:
    """Values as numpy array: dates as objects or moments, moments with a zone as pandas timestamps, text as objects."""
    kind = values.type
    if (pt.is_date(kind) and date_as_object) or (pt.is_timestamp(kind) and kind.tz is not None):
        out = np.empty(len(values), dtype=object)
        out[:] = values.to_pylist() if pt.is_date(kind) else list(values.to_pandas())
        return out
    array: np.ndarray[Any, Any] = values.to_numpy(zero_copy_only=False)
    return _in_nanoseconds(array) if pt.is_temporal(kind) else np.array(array)


def flat_series(
    pairs: SecondaryIndex, compact: bool, partitions_as_index: bool, date_as_object: bool
) -> pd.Series[Any]:
    """Sorted pairs as a series value → label, or label → value; ``compact`` has one array an entry of its index."""
    import pandas as pd

    frame = to_frame(
        pa.table({pairs.column: pairs.values, "partition": pairs.labels.cast(pa.string())}),
        dates_as_object=date_as_object,
    )
    by, other = ("partition", pairs.column) if partitions_as_index else (pairs.column, "partition")
    if not compact:
        return frame.set_index(by)[other]
    if partitions_as_index:
        order = np.argsort(pairs.labels.indices.to_numpy(), kind="stable")
        starts = group_starts(pairs.labels.indices.to_numpy()[order])
    else:
        order, starts = np.arange(len(pairs)), run_starts(pairs.values)
    return pd.Series(
        _cut(frame[other].to_numpy()[order], starts), index=pd.Index(frame[by].iloc[order[starts]], name=by), name=other
    )


def _cut(values: np.ndarray[Any, Any], starts: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    out = np.empty(len(starts), dtype=object)
    for i, (a, b) in enumerate(pairwise([*starts.tolist(), len(values)])):
        out[i] = values[a:b]
    return out


# --- predicates -----------------------------------------------------------------------------------


def satisfying(values: pa.Array, conjunctions: Iterable[Sequence[Clause]]) -> Mask:
    """One boolean a value: whether it satisfies all clauses of one of the conjunctions."""
    mask = np.zeros(len(values), dtype=bool)
    for clauses in conjunctions:
        mask |= matching_all(values, clauses)
    return mask

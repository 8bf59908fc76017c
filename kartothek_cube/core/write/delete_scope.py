"""Delete scopes: the partitions that an update removes. Pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from kartothek_cube.core.arguments import as_list
from kartothek_cube.core.expressions.predicates import Clause, Mask, is_null
from kartothek_cube.core.metadata.snapshot import Snapshot, type_of_column
from kartothek_cube.core.scan.plan import index_mask, partition_mask
from kartothek_cube.errors import InvalidInput, InvalidRequest, InvalidType

__all__ = ["Scope", "labels_in_scope", "parse_scope"]

Scope = tuple[tuple[Clause, ...], ...]


def parse_scope(delete_scope: object, base: Snapshot | None) -> Scope:
    """Check ``[{column: value, ...}, ...]`` against the dataset; cast values to column types.

    Raises
    ------
    InvalidInput, InvalidType
        If it is no list of dicts, a dict is empty, a column is unknown or has no index, or a value
        does not fit its column.
    """
    items = as_list(delete_scope, "delete_scope")
    if base is None:
        return ()
    scope: list[tuple[Clause, ...]] = []
    for item in items:
        if not isinstance(item, Mapping):
            raise InvalidType(
                f"delete_scope of dataset {base.uuid!r} is a list of dicts column → value; one item is {item!r}."
            )
        if not item:
            raise InvalidInput(
                f"delete_scope of dataset {base.uuid!r} has an empty dict, which would remove every partition. "
                "Name the partitions, or overwrite."
            )
        clauses = []
        for column, value in ((str(c), value) for c, value in item.items()):
            data_type = type_of_column(base.schemas, column, base.uuid)
            if column not in base.indexed_columns:
                raise InvalidRequest(
                    f"delete_scope of dataset {base.uuid!r}: column {column!r} is neither a partition key "
                    "nor has it a secondary index, so it selects no partitions. "
                    f"Indexed are {sorted(base.indexed_columns)}."
                )
            if is_null(value) or isinstance(value, (list, tuple, set, frozenset, dict, np.ndarray)):
                raise InvalidType(
                    f"delete_scope of dataset {base.uuid!r}: {column!r} needs one value, not {value!r}. "
                    "Give one dict for each value."
                )
            try:
                clauses.append(Clause(column, "==", _cast(value, data_type)))
            except (pa.ArrowException, UnicodeDecodeError, OverflowError, TypeError) as error:
                raise InvalidInput(
                    f"delete_scope of dataset {base.uuid!r}: {value!r} is no value of column {column!r}, "
                    f"which is {data_type}: {error}"
                ) from None
        scope.append(tuple(clauses))
    return tuple(scope)


def _cast(value: object, data_type: pa.DataType) -> Any:
    """The value in a column's type: as lenient as kartothek, but never another value.

    "1" is 1, as in kartothek. 1.9 is not.
    """
    plain: Any = value.as_py() if isinstance(value, pa.Scalar) else value
    if isinstance(plain, np.datetime64):
        # The item of a datetime64 in nanoseconds would be an integer.
        moment = plain.astype("datetime64[us]")
        if moment != plain:
            raise pa.ArrowInvalid("a moment between two microseconds")
        plain = moment
    elif isinstance(plain, np.generic):
        plain = plain.item()
    is_number = isinstance(plain, (int, float))
    if is_number and (pa.types.is_temporal(data_type) or (pa.types.is_boolean(data_type) and plain not in (0, 1))):
        raise pa.ArrowInvalid("a number")
    if pa.types.is_string(data_type):
        return plain.decode("utf-8") if isinstance(plain, bytes) else str(plain)
    if pa.types.is_binary(data_type):
        return plain.encode("utf-8") if isinstance(plain, str) else plain
    if pa.types.is_null(data_type):
        return plain
    if isinstance(plain, int) and pa.types.is_integer(data_type):
        # Without a type Arrow takes an integer for int64, which is too narrow for uint64.
        return pa.scalar(int(plain), data_type).as_py()
    if pa.types.is_date(data_type):
        return _day(plain)
    return pa.scalar(plain).cast(data_type).as_py()


def _day(value: Any) -> dt.date:
    """The date that a date, its text, or a midnight without a zone is."""
    moment: dt.datetime = pa.scalar(value).cast(pa.timestamp("us")).as_py()
    if getattr(value, "tzinfo", None) is not None or moment.time() != dt.time():
        raise pa.ArrowInvalid("a moment")
    return moment.date()


def labels_in_scope(snapshot: Snapshot, scope: Scope) -> pa.Array:
    """Labels of the partitions that contain all values of one of the dicts.

    The indices on its columns must be loaded.
    """
    result: Mask = np.zeros(len(snapshot.partitions), dtype=bool)
    for clauses in scope:
        mask = partition_mask(snapshot, clauses)
        for clause in clauses:
            if clause.column not in snapshot.partition_keys:
                mask &= index_mask(snapshot.indices[clause.column], [clause], snapshot.partitions)
        result |= mask
    return snapshot.partitions.labels.filter(pa.array(result))

"""Delete scopes: which partitions an update takes away. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from kartothek_cube.core.dataset.arguments import as_list
from kartothek_cube.core.evaluate import Mask
from kartothek_cube.core.metadata.snapshot import Snapshot, type_of_column
from kartothek_cube.core.predicates import Clause, is_null
from kartothek_cube.core.scan import index_mask, partition_mask
from kartothek_cube.errors import InvalidInput, InvalidRequest, InvalidType

__all__ = ["Scope", "labels_in_scope", "parse_scope"]

Scope = tuple[tuple[Clause, ...], ...]


def parse_scope(delete_scope: Any, base: Snapshot | None) -> Scope:
    """Check ``[{column: value, ...}, ...]`` against the dataset; values become those of the columns' types.

    Raises
    ------
    InvalidInput, InvalidType
        If it is no list of dicts, a dict is empty, a column is unknown or has no index, or a value is none of the column.
    """
    scopes = as_list(delete_scope, "delete_scope")
    if base is None:
        return ()
    return tuple(_clauses(scope, base) for scope in scopes)


def _clauses(scope: Any, base: Snapshot) -> tuple[Clause, ...]:
    if not isinstance(scope, Mapping):
        raise InvalidType(f"delete_scope of dataset {base.uuid!r} is a list of dicts column → value; one item is {scope!r}.")
    if not scope:
        raise InvalidInput(f"delete_scope of dataset {base.uuid!r} has an empty dict, which would remove every partition. Name the partitions, or overwrite.")
    return tuple(Clause(str(column), "==", _value(base, str(column), value)) for column, value in scope.items())


def _value(base: Snapshot, column: str, value: Any) -> Any:
    kind = type_of_column(base.schemas, column, base.uuid)
    if column not in base.indexed_columns:
        raise InvalidRequest(
            f"delete_scope of dataset {base.uuid!r}: column {column!r} is neither a partition key nor has it a secondary index, so it selects no partitions. "
            f"Indexed are {sorted(base.indexed_columns)}."
        )
    if is_null(value) or isinstance(value, (list, tuple, set, frozenset, dict, np.ndarray)):
        raise InvalidType(f"delete_scope of dataset {base.uuid!r}: {column!r} needs one value, not {value!r}. Give one dict for each value.")
    try:
        return _cast(value, kind)
    except (pa.ArrowException, UnicodeDecodeError, OverflowError, TypeError) as error:
        raise InvalidInput(f"delete_scope of dataset {base.uuid!r}: {value!r} is no value of column {column!r}, which is {kind}: {error}") from None


def _cast(value: Any, kind: pa.DataType) -> Any:
    """As lenient as kartothek, which took "1" for 1, but never another value: 1.9 is not 1."""
    plain = _plain(value)
    if isinstance(plain, (int, float)) and (pa.types.is_temporal(kind) or (pa.types.is_boolean(kind) and plain not in (0, 1))):
        raise pa.ArrowInvalid("a number")
    if pa.types.is_string(kind):
        return plain.decode("utf-8") if isinstance(plain, bytes) else str(plain)
    if pa.types.is_binary(kind):
        return plain.encode("utf-8") if isinstance(plain, str) else plain
    if pa.types.is_null(kind):
        return plain
    if isinstance(plain, int) and pa.types.is_integer(kind):
        return pa.scalar(int(plain), kind).as_py()  # Arrow takes an integer without a type for one of 64 bits with sign
    if pa.types.is_date(kind):
        return pa.scalar(plain).cast(pa.timestamp("us")).cast(pa.date32()).as_py()
    return pa.scalar(plain).cast(kind).as_py()


def _plain(value: object) -> Any:
    if isinstance(value, pa.Scalar):
        return value.as_py()
    if isinstance(value, np.datetime64):
        return value.astype("datetime64[us]")
    return value.item() if isinstance(value, np.generic) else value


def labels_in_scope(snapshot: Snapshot, scope: Scope) -> pa.Array:
    """Labels of the partitions that contain all values of one of the dicts. The indices that it needs must be loaded."""
    mask: Mask = np.zeros(len(snapshot.partitions), dtype=bool)
    for clauses in scope:
        mask |= _matching(snapshot, clauses)
    return snapshot.partitions.labels.filter(pa.array(mask))


def _matching(snapshot: Snapshot, clauses: Sequence[Clause]) -> Mask:
    mask = partition_mask(snapshot, clauses)
    for clause in clauses:
        if clause.column not in snapshot.partition_keys:
            mask &= index_mask(snapshot.indices[clause.column], [clause], snapshot.partitions)
    return mask

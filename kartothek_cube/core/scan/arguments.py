"""Arguments of the readers, checked against a snapshot: tables, columns, categoricals.

Pure: no store is called.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.types as pt

from kartothek_cube.core.arguments import did_you_mean
from kartothek_cube.core.expressions.predicates import Predicates
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.errors import InvalidInput, InvalidType, KeyNotFound, UnknownColumn

__all__ = [
    "GroupArguments",
    "LabelFilter",
    "check_table",
    "checked_categoricals",
    "checked_columns",
    "checked_label_filter",
    "names_by_table",
    "names_of",
]

LabelFilter: TypeAlias = Callable[[str], bool]
"""Called with the label of a partition: whether to read it."""


@dataclass(frozen=True, slots=True)
class GroupArguments:
    """The arguments of a read in groups, before they are checked against a snapshot.

    Attributes
    ----------
    tables : collection of str, optional
        Tables to read; None for all.
    columns, categoricals : object
        Column names by table, or those of the only table, as the user gave them.
    predicates : Predicates, optional
        Only rows that satisfy them.
    label_filter : callable, optional
        Called with a label: whether its partition is read.
    dispatch_by : sequence, optional
        Columns whose values make groups; None for one group per partition.
    by_partition_keys : bool
        Whether to group by the partition keys instead of ``dispatch_by``.
    """

    tables: Collection[str] | None = None
    columns: Any = None
    categoricals: Any = None
    predicates: Predicates | None = None
    label_filter: LabelFilter | None = None
    dispatch_by: Sequence[Any] | None = None
    by_partition_keys: bool = False


def check_table(snapshot: Snapshot, table: object) -> pa.Schema:
    """The schema of a table.

    Raises
    ------
    KeyNotFound
        If the dataset has no such table.
    """
    if not isinstance(table, str) or table not in snapshot.schemas:
        raise KeyNotFound(f"Dataset {snapshot.uuid!r} has no table {table!r}, only {list(snapshot.tables)}.")
    return snapshot.schemas[table]


def names_of(value: object, table: object, argument: str) -> list[str] | None:
    """The column names in an argument of `read_table`: a list, or a dict with a list for the table.

    None stays None.

    Raises
    ------
    InvalidType
        If the table is no text, or the columns are neither list nor dict.
    InvalidInput
        If the dict is for other tables.
    """
    if not isinstance(table, str):
        raise InvalidType(f"Argument `table` needs to be a string, got {type(table).__name__}.")
    if isinstance(value, Mapping):
        if table not in value:
            raise InvalidInput(
                f"Provided table {table!r} is not compatible with input from argument {argument}, "
                f"which is for the tables {sorted(value)}."
            )
        value = value[table]
    return _names(value, argument)


def _names(value: object, argument: str) -> list[str] | None:
    if value is None:
        return None
    if not isinstance(value, list):
        raise InvalidType(
            f"Unknown type encountered for argument {argument}: "
            f"give a list of column names, not {type(value).__name__}."
        )
    return [str(name) for name in value]


def names_by_table(value: object, snapshot: Snapshot, argument: str) -> dict[str, list[str]]:
    """The argument of a reader of several tables: a dict of tables and lists of column names.

    A list is for the only table of the dataset.

    Raises
    ------
    InvalidInput
        If it is neither, a list for several tables, or has tables that the dataset lacks.
    """
    if value is None:
        return {}
    only = snapshot.tables[0] if len(snapshot.tables) == 1 else None
    given = {only: value} if only is not None and isinstance(value, list) else value
    by_table = given if isinstance(given, Mapping) else None
    unknown = value if by_table is None else sorted(map(str, set(by_table) - set(snapshot.schemas)))
    if by_table is None or unknown:
        right = (
            "a dict of tables and lists of columns" if only is None else f"a list of columns, or {{{only!r}: a list}}"
        )
        raise InvalidInput(
            f"You are trying to read columns from invalid table(s): {argument}={unknown!r}. "
            f"Give {right}; dataset {snapshot.uuid!r} has the tables {list(snapshot.tables)}."
        )
    return {table: names for table, named in by_table.items() if (names := _names(named, argument)) is not None}


def checked_columns(names: Sequence[str] | None, schema: pa.Schema, uuid: str) -> tuple[str, ...]:
    """The columns to return: ``names``, or all columns if it is None.

    Raises
    ------
    UnknownColumn
        If the dataset lacks one.
    InvalidInput
        If a column is named twice.
    """
    columns = tuple(schema.names) if names is None else tuple(names)
    unknown = sorted(set(columns) - set(schema.names))
    if unknown:
        raise UnknownColumn(
            f"Columns cannot be found in stored dataframe: {', '.join(unknown)} in dataset {uuid!r}, "
            f"which has {schema.names}.{did_you_mean(unknown, schema.names)}"
        )
    if len(set(columns)) != len(columns):
        raise InvalidInput(f"A column is asked for twice in dataset {uuid!r}: {list(columns)}.")
    return columns


def checked_categoricals(
    names: Sequence[str] | None, columns: Sequence[str], schema: pa.Schema, uuid: str
) -> tuple[str, ...]:
    """The columns to return as categoricals.

    Raises
    ------
    UnknownColumn
        If one is not among the columns to return.
    InvalidInput
        If a column holds lists or structs.
    """
    categoricals = tuple(dict.fromkeys(names or ()))
    unknown = sorted(set(categoricals) - set(columns))
    if unknown:
        raise UnknownColumn(
            f"Columns to return as categoricals that are not among those to return of dataset {uuid!r}: {unknown}. "
            f"There are {list(columns)}."
        )
    nested = [c for c in categoricals if pt.is_nested(schema.field(c).type)]
    if nested:
        raise InvalidInput(f"Columns of lists cannot be categoricals: {nested} of dataset {uuid!r}.")
    return categoricals


def checked_label_filter(label_filter: object) -> LabelFilter | None:
    """The argument ``label_filter``, which is called with labels.

    Raises
    ------
    InvalidType
        If it cannot be called.
    """
    if label_filter is not None and not callable(label_filter):
        raise InvalidType(
            "label_filter is called with each label and says whether to read it; "
            f"{type(label_filter).__name__} cannot be called."
        )
    return label_filter

"""Arguments of the readers, checked against a snapshot: tables, columns, categoricals. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.types as pt

from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.naming import meant
from kartothek_cube.core.predicates import Predicates
from kartothek_cube.errors import InvalidInput, InvalidType, KeyNotFound, UnknownColumn

__all__ = ["GroupArguments", "LabelFilter", "check_table", "checked_categoricals", "checked_columns", "checked_label_filter", "names_by_table", "names_of"]

LabelFilter: TypeAlias = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class GroupArguments:
    """What a read in groups was asked for; not yet checked against a snapshot.

    Attributes
    ----------
    tables : collection of str, optional
        Tables to read; None for all.
    columns, categoricals : object
        Column names by table, as the user gave them.
    predicates : Predicates, optional
        Only rows that satisfy them.
    label_filter : callable, optional
        Says whether the partition of a label is read.
    dispatch_by : sequence, optional
        Columns whose values make groups; None for one group a partition.
    by_partition_keys : bool
        Whether ``dispatch_by`` is the partition keys.
    """

    tables: Collection[str] | None = None
    columns: Any = None
    categoricals: Any = None
    predicates: Predicates | None = None
    label_filter: LabelFilter | None = None
    dispatch_by: Sequence[Any] | None = None
    by_partition_keys: bool = False


def check_table(snapshot: Snapshot, table: Any) -> pa.Schema:
    """The schema of a table.

    Raises
    ------
    KeyNotFound
        If the dataset has no such table.
    """
    if not isinstance(table, str) or table not in snapshot.schemas:
        raise KeyNotFound(f"Dataset {snapshot.uuid!r} has no table {table!r}, only {list(snapshot.tables)}.")
    return snapshot.schemas[table]


def names_of(value: Any, table: Any, argument: str) -> list[str] | None:
    """An argument of `read_table`: a list of column names, or a dict that has one for the table; None if nothing was asked for.

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
            raise InvalidInput(f"Provided table {table!r} is not compatible with input from argument {argument}, which is for the tables {sorted(value)}.")
        value = value[table]
    return _names(value, argument)


def _names(value: object, argument: str) -> list[str] | None:
    if value is None:
        return None
    if not isinstance(value, list):
        raise InvalidType(f"Unknown type encountered for argument {argument}: give a list of column names, not {type(value).__name__}.")
    return [str(name) for name in value]


def names_by_table(value: Any, snapshot: Snapshot, argument: str) -> dict[str, list[str]]:
    """An argument of the readers of several tables: a dict from tables to lists of column names.

    Raises
    ------
    InvalidInput
        If it is no dict, or has tables that the dataset lacks.
    """
    if value is None:
        return {}
    unknown = sorted(map(str, set(value) - set(snapshot.schemas))) if isinstance(value, Mapping) else [value]
    if unknown:
        raise InvalidInput(
            f"You are trying to read columns from invalid table(s): {argument}={unknown if isinstance(value, Mapping) else value!r}. "
            f"Give a dict of tables and lists of columns; dataset {snapshot.uuid!r} has the tables {list(snapshot.tables)}."
        )
    return {table: found for table, names in value.items() if (found := _names(names, argument)) is not None}


def checked_columns(names: Sequence[str] | None, schema: pa.Schema, uuid: str) -> tuple[str, ...]:
    """The columns to return: those asked for, else all.

    Raises
    ------
    UnknownColumn
        If the dataset lacks one.
    InvalidInput
        If one is asked for twice.
    """
    chosen = tuple(schema.names) if names is None else tuple(names)
    unknown = sorted(set(chosen) - set(schema.names))
    if unknown:
        raise UnknownColumn(
            f"Columns cannot be found in stored dataframe: {', '.join(unknown)} in dataset {uuid!r}, which has {schema.names}.{meant(unknown, schema.names)}"
        )
    if len(set(chosen)) != len(chosen):
        raise InvalidInput(f"A column is asked for twice in dataset {uuid!r}: {list(chosen)}.")
    return chosen


def checked_categoricals(names: Sequence[str] | None, columns: Sequence[str], schema: pa.Schema, uuid: str) -> tuple[str, ...]:
    """The columns to return as categoricals.

    Raises
    ------
    UnknownColumn
        If one is not among the columns to return.
    InvalidInput
        If its values have no order of their own: lists and structs.
    """
    chosen = tuple(dict.fromkeys(names or ()))
    unknown = sorted(set(chosen) - set(columns))
    if unknown:
        raise UnknownColumn(f"Columns to return as categoricals that are not among those to return of dataset {uuid!r}: {unknown}. There are {list(columns)}.")
    nested = [c for c in chosen if pt.is_nested(schema.field(c).type)]
    if nested:
        raise InvalidInput(f"Columns of lists cannot be categoricals: {nested} of dataset {uuid!r}.")
    return chosen


def checked_label_filter(label_filter: Any) -> LabelFilter | None:
    """The argument ``label_filter``, which is called with labels.

    Raises
    ------
    InvalidType
        If it cannot be called.
    """
    if label_filter is not None and not callable(label_filter):
        raise InvalidType(f"label_filter is called with each label and says whether to read it; {type(label_filter).__name__} cannot be called.")
    return label_filter  # type: ignore[no-any-return]

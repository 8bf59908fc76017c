"""The plan of a merge: the rows of the source, checked; the files with their keys; new keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from kartothek_cube.core.arguments import did_you_mean
from kartothek_cube.core.arrow.keys import Spool
from kartothek_cube.core.arrow.types import unify
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.rows.edits import RowEdit, WhenMatched
from kartothek_cube.core.rows.rewrite import RewriteSpec
from kartothek_cube.core.rows.run import RowsPlan, plan_rows, stored_files
from kartothek_cube.core.rows.search import partitions_with_keys
from kartothek_cube.core.rows.source import MergeSource, SourceKeys, check_keys, check_no_nulls
from kartothek_cube.core.runtime.executor import THREADS, Executor
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.write.input_rows import InputPartition, as_items, chunk_bytes, elements_in
from kartothek_cube.core.write.plan import column_names
from kartothek_cube.errors import CommitConflict, InvalidInput, UnknownColumn, Unsupported

__all__ = [
    "MergeRules",
    "WhenNotMatched",
    "check_partition_values",
    "check_same_source",
    "merge_rules",
    "merge_source",
    "plan_merge",
    "source_schema",
    "typed_rows",
    "with_source_types",
]

WhenNotMatched: TypeAlias = Literal["insert", "ignore"]

_WHEN_MATCHED, _WHEN_NOT_MATCHED = ("update", "ignore", "delete", "error"), ("insert", "ignore")


@dataclass(frozen=True, slots=True)
class MergeRules:
    """What a merge does with rows of the dataset and of the source, by their keys."""

    on: tuple[str, ...]
    when_matched: WhenMatched
    inserts: bool
    deletes_others: bool


def merge_rules(
    spec: RewriteSpec, on: object, when_matched: object, when_not_matched: object, by_source: object
) -> MergeRules:
    """The checked arguments of a merge.

    Raises
    ------
    InvalidInput, InvalidType, UnknownColumn, Unsupported
        If an argument has another value, or a column cannot be a key.
    """
    for name, value, allowed in (
        ("when_matched", when_matched, _WHEN_MATCHED),
        ("when_not_matched", when_not_matched, _WHEN_NOT_MATCHED),
        ("when_not_matched_by_source", by_source, (None, "delete")),
    ):
        if value not in allowed:
            raise InvalidInput(f"{name} is one of {', '.join(map(repr, allowed))}, not {value!r}.")
    columns = column_names(on, "on")
    if not columns:
        raise InvalidInput(f"on names the key columns of a merge into dataset {spec.uuid!r}; it names none.")
    _check_known(columns, spec, "The argument on names")
    nested = [c for c in columns if pt.is_nested(spec.schema.field(c).type)]
    if nested:
        raise Unsupported(f"The columns {nested} of dataset {spec.uuid!r} hold lists or structs, which are no keys.")
    cells = () if spec.cube is None else spec.cube.cell_columns(spec.schema.names)
    if cells and set(cells) != set(columns):
        raise InvalidInput(
            f"Dataset {spec.uuid!r} belongs to a cube, which addresses its rows by {list(cells)}: give these as on. "
            "Corrections of a cube are appended (append_to_cube): the newest row of a cell wins."
        )
    matched = next(mode for mode in _WHEN_MATCHED if mode == when_matched)
    return MergeRules(columns, matched, when_not_matched == "insert", by_source == "delete")  # type: ignore[arg-type]


def _check_known(columns: Sequence[str], spec: RewriteSpec, subject: str) -> None:
    unknown = sorted(set(columns) - set(spec.schema.names))
    if unknown:
        raise UnknownColumn(
            f"{subject} columns that dataset {spec.uuid!r} does not have: {', '.join(unknown)}. "
            f"It has {spec.schema.names}.{did_you_mean(unknown, spec.schema.names)}"
        )


@contextmanager
def merge_source(data: object, spec: RewriteSpec, rules: MergeRules) -> Iterator[MergeSource]:
    """All rows of the source, in the types of the dataset; if they are many, in a temporary file.

    Raises
    ------
    InvalidInput, UnknownColumn
        If a column is missing, unknown or of another type, if a key has a null or occurs twice.
    """
    tables = (_rows(element, spec) for item in as_items(data) for element in elements_in(item, spec.uuid))
    first = next(tables, None)
    if first is None:
        raise InvalidInput(f"There are no rows to be merged into dataset {spec.uuid!r}, not even a frame without rows.")
    schema = source_schema(first.schema, spec, rules)
    with Spool(schema, chunk_bytes()) as spool:
        for rows in chain([first], tables):
            typed = typed_rows(rows, schema, spec.uuid)
            check_no_nulls(typed, rules.on, spec.uuid)
            check_partition_values(typed, spec.partition_keys, spec.uuid)
            spool.add(typed)
        source = MergeSource(spool.table(), rules.on)
        check_keys(source, spec.uuid)
        yield source


def _rows(element: InputPartition, spec: RewriteSpec) -> pa.Table:
    tables = [rows for rows in element.tables.values() if rows is not None]
    if len(tables) != 1:
        raise InvalidInput(f"A merge into dataset {spec.uuid!r} takes rows of one table, not of {len(tables)}.")
    return tables[0]


def source_schema(given: pa.Schema, spec: RewriteSpec, rules: MergeRules) -> pa.Schema:
    """The columns of the source in the types of the dataset.

    Raises
    ------
    InvalidInput, UnknownColumn
        If a column is missing, unknown or of another type.
    """
    _check_known(given.names, spec, "The rows to be merged have")
    needed = [*rules.on, *(spec.partition_keys if rules.inserts else ())]
    missing = [c for c in dict.fromkeys(needed) if c not in given.names]
    if missing:
        use = "columns of on and, for new rows, partition columns" if rules.inserts else "columns of on"
        raise InvalidInput(f"The rows to be merged into dataset {spec.uuid!r} lack {missing}: they need the {use}.")
    known = pa.schema([spec.schema.field(name) for name in given.names])
    wide = unify([known, given], f"dataset {spec.uuid!r}")
    # Only a column that is null throughout takes the type of the source.
    return pa.schema([wide.field(f.name) if pt.is_null(f.type) else f for f in known])


def typed_rows(rows: pa.Table, schema: pa.Schema, uuid: str) -> pa.Table:
    """Rows of the source in the types of `source_schema`; InvalidInput if a value does not fit."""
    if sorted(rows.column_names) != sorted(schema.names):
        raise InvalidInput(
            f"The rows to be merged into dataset {uuid!r} have the columns {schema.names}, but some of them "
            f"{rows.column_names}."
        )
    columns = []
    for field in schema:
        values = rows.column(field.name)
        unify([pa.schema([field]), pa.schema([(field.name, values.type)])], f"dataset {uuid!r}")
        try:
            columns.append(_exact(values, field.type))
        except pa.ArrowException as error:
            raise InvalidInput(
                f"Column {field.name!r} of dataset {uuid!r} is {field.type}, which cannot hold all values of the rows "
                f"to be merged: {error}"
            ) from None
    return pa.table(columns, schema=schema)


def _exact(values: pa.ChunkedArray, data_type: pa.DataType) -> pa.ChunkedArray:
    cast = values.cast(data_type)
    # Arrow refuses a number that an integer type cannot hold, but makes one infinite for a float.
    if pt.is_floating(data_type) and not pc.is_inf(cast).equals(pc.is_inf(values.cast(pa.float64()))):
        raise pa.ArrowInvalid("a value would become infinite")
    return cast


def check_same_source(source: pa.Schema, spec: RewriteSpec, rules: MergeRules) -> None:
    """Raise if the rows, read for an earlier state of the dataset, do not fit it any more.

    Raises
    ------
    CommitConflict
        If another writer changed the columns or the partition keys meanwhile.
    """
    try:
        is_same = source_schema(source, spec, rules).equals(source)
    except InvalidInput as error:
        raise CommitConflict(
            f"Dataset {spec.uuid!r} was changed while the rows to be merged were read: {error} Nothing was written."
        ) from error
    if not is_same:
        raise CommitConflict(
            f"Dataset {spec.uuid!r} got other types while the rows to be merged were read. Nothing was written; repeat "
            "the merge."
        )


def check_partition_values(rows: pa.Table, partition_keys: Sequence[str], uuid: str) -> None:
    """Raise if a partition column of the source has nulls, which no path can name."""
    nulls = [c for c in partition_keys if c in rows.column_names and rows.column(c).null_count]
    if nulls:
        raise InvalidInput(f"The rows to be merged into dataset {uuid!r} have nulls in the partition columns {nulls}.")


def with_source_types(spec: RewriteSpec, schema: pa.Schema) -> RewriteSpec:
    """The spec with types for columns that were null throughout."""
    fields = [schema.field(f.name) if pt.is_null(f.type) and f.name in schema.names else f for f in spec.schema]
    return replace(spec, schema=pa.schema(fields))


def plan_merge(
    store: Store,
    base: Snapshot,
    spec: RewriteSpec,
    edit: RowEdit,
    source: SourceKeys,
    rules: MergeRules,
    executor: Executor = THREADS,
) -> RowsPlan:
    """Find the rows with keys of the source, and the keys without rows.

    Raises
    ------
    InvalidInput
        If ``when_matched`` is "error" and a row has a key of the source.
    """
    mask = partitions_with_keys(store, base, source)
    plan = plan_rows(store, base, spec, edit, stored_files(base, spec.table, mask | rules.deletes_others), executor)
    is_new = np.ones(source.num_rows, dtype=bool)
    for match in plan.matches:
        if match.found.sources is not None:
            is_new[match.found.sources] = False
    if rules.when_matched == "error" and not is_new.all():
        raise InvalidInput(
            f"Dataset {spec.uuid!r} has rows with {int(np.count_nonzero(~is_new)):,} of the keys that are to be "
            f'merged, e.g. {source.key(int(np.argmin(is_new)))}, and when_matched is "error".'
        )
    return replace(plan, is_new=is_new) if rules.inserts else plan

"""What a writer of the data source writes to, a dataset of a cube or any other: planned from options and columns, staged in tasks, committed once."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

import pyarrow as pa

from kartothek_cube.core.commit import check_store_can_commit
from kartothek_cube.core.dataset.plan_write import plan_new, plan_update
from kartothek_cube.core.dataset.prepare import Schemas, WriteRequest
from kartothek_cube.core.dataset.run import CommitOptions, MetadataArguments, StagedWrite, commit_staged
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.metadata.txn import Txn, is_applied
from kartothek_cube.core.receipt import Receipt
from kartothek_cube.core.snapshots import find_snapshot
from kartothek_cube.core.store import Store
from kartothek_cube.core.stores import open_store
from kartothek_cube.cube.commit import commit_cube_write
from kartothek_cube.cube.cube import Cube
from kartothek_cube.cube.discovery import dataset_ids
from kartothek_cube.cube.duplicates import check_duplicates
from kartothek_cube.cube.verbs.build import existing_for_build
from kartothek_cube.cube.verbs.discover import discover_cube
from kartothek_cube.cube.write_plan import CubeWrite, plan_append, plan_build, plan_extend
from kartothek_cube.errors import CommitConflict, InvalidInput
from kartothek_cube.spark.datasource.options import SourceOptions, dataset_uuid
from kartothek_cube.spark.stage_rows import CubeRows, DatasetRows, Rows, checked_schemas

__all__ = ["ANY", "Layout", "Wanted", "WritePlan", "layout_of", "plan_write", "publish_files", "version_of"]

ANY = "any version"

Layout: TypeAlias = tuple[tuple[str, ...], frozenset[str]]
"""Partition columns and indexed columns of a dataset."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be written: the options, the columns of the rows in stored types, whether former rows go. Small, as it travels to every task."""

    options: SourceOptions
    schema: pa.Schema
    overwrite: bool = False


class WritePlan(Protocol):
    """A plan that fits one state of the store; `rows` is the part of it that tasks need."""

    @property
    def base(self) -> Snapshot | None:
        """The dataset as it is."""

    @property
    def rows(self) -> Rows:
        """How rows become files."""

    def commit(self, store: Store, receipts: Sequence[Receipt], txn: Txn | None) -> None:
        """Publish files that were staged so."""


def plan_write(wanted: Wanted) -> WritePlan:
    """Check a write against the store as it is now.

    Raises
    ------
    InvalidInput, InvalidType, Unsupported
        If columns or options do not fit what is there, or do not say enough to make what is not.
    """
    store = open_store(wanted.options.store)
    check_store_can_commit(store)
    return _plan_dataset(wanted, store) if wanted.options.cube is None else _plan_cube(wanted, store)


# --- a dataset --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DatasetWritePlan:
    """A write to a dataset that belongs to no cube."""

    request: WriteRequest
    table: str
    schema: pa.Schema
    schemas: Schemas

    @property
    def base(self) -> Snapshot | None:
        """The dataset as it is."""
        return self.request.base

    @property
    def rows(self) -> DatasetRows:
        """How rows become files."""
        return DatasetRows(replace(self.request, base=None, replace=False), self.table, self.schema)

    def commit(self, store: Store, receipts: Sequence[Receipt], txn: Txn | None) -> None:
        """Publish files that were staged so."""
        staged = StagedWrite(self.request, tuple(receipts), self.schemas.tables, 1)
        commit_staged(store, staged, MetadataArguments(), CommitOptions(creates=self.request.replace, txn=txn))


def _plan_dataset(wanted: Wanted, store: Store) -> DatasetWritePlan:
    options, uuid = wanted.options, dataset_uuid(wanted.options)
    base = find_snapshot(store, uuid)
    if base is not None and wanted.overwrite:
        keys = base.partition_keys if options.partition_on is None else options.partition_on
        indices = sorted(base.secondary_columns) if options.secondary_indices is None else options.secondary_indices
        request = plan_new(uuid, base, list(keys), list(indices), overwrite=True, storage_format="msgpack" if base.is_msgpack else "json")
    else:
        request = plan_update(uuid, base, list(options.partition_on or ()), list(options.secondary_indices or ()))
    schemas = checked_schemas(request, options.table, wanted.schema)
    known = schemas.tables[options.table]
    typed = pa.schema([known.field(f.name) if f.name not in request.partition_on else f for f in wanted.schema])
    return DatasetWritePlan(request, options.table, typed, schemas)


# --- a dataset of a cube ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CubeWritePlan:
    """A write to one dataset of a cube."""

    name: str
    write: CubeWrite

    @property
    def base(self) -> Snapshot | None:
        """The dataset as it is."""
        return self.write.bases.get(self.name)

    @property
    def rows(self) -> CubeRows:
        """How rows become files."""
        return CubeRows(self.write.datasets[self.name])

    def commit(self, store: Store, receipts: Sequence[Receipt], txn: Txn | None) -> None:
        """Publish files that were staged so."""
        check_duplicates(store, self.write.datasets[self.name], receipts, "the rows of two tasks")
        commit_cube_write(store, replace(self.write, txn=txn), {self.name: list(receipts)})


def _plan_cube(wanted: Wanted, store: Store) -> CubeWritePlan:
    options = wanted.options
    assert options.cube is not None
    if not dataset_ids(options.cube, store):
        cube = _new_cube(options)
        return CubeWritePlan(cube.seed_dataset, plan_build(cube, {cube.seed_dataset: wanted.schema}, {}, partition_on=_keys(options, cube.seed_dataset, None)))
    cube, datasets = discover_cube(options.cube, store)
    existing = {i: d.snapshot for i, d in datasets.items()}
    name = options.dataset or cube.seed_dataset
    _check_cube(options, cube, existing.get(name))
    return CubeWritePlan(name, _plan_member(wanted, store, cube, name, existing))


def _plan_member(wanted: Wanted, store: Store, cube: Cube, name: str, existing: dict[str, Snapshot]) -> CubeWrite:
    options, rows, base = wanted.options, {name: wanted.schema}, existing.get(name)
    if base is not None and not wanted.overwrite:
        if options.partition_on is not None and tuple(options.partition_on) != base.partition_keys:
            raise InvalidInput(f"Dataset {base.uuid!r} is partitioned on {list(base.partition_keys)}, not on {list(options.partition_on)}.")
        return plan_append(cube, rows, existing)
    if wanted.overwrite and name == cube.seed_dataset:
        return plan_build(_with_indices(cube, options), rows, existing_for_build(cube, store), overwrite=True, partition_on=_keys(options, name, base))
    return plan_extend(_with_indices(cube, options), rows, existing, overwrite=wanted.overwrite, partition_on=_keys(options, name, base))


def _new_cube(options: SourceOptions) -> Cube:
    if options.dimension_columns is None or options.partition_columns is None:
        raise InvalidInput(
            f"There is no cube {options.cube!r} in the store. To make it, give the options dimension_columns and partition_columns, e.g. "
            '.option("dimension_columns", "PRODUCT_ID,SALES_DATE").option("partition_columns", "COUNTRY_CODE").'
        )
    assert options.cube is not None
    seed = {} if options.dataset is None else {"seed_dataset": options.dataset}
    return Cube(options.dimension_columns, options.partition_columns, options.cube, index_columns=options.index_columns or (), **seed)


def _keys(options: SourceOptions, name: str, base: Snapshot | None) -> dict[str, Sequence[str]] | None:
    """Partition columns as given; a dataset that is replaced keeps its own."""
    keys = options.partition_on if options.partition_on is not None or base is None else base.partition_keys
    return None if keys is None else {name: list(keys)}


def _with_indices(cube: Cube, options: SourceOptions) -> Cube:
    return cube.copy(index_columns=cube.index_columns | set(options.index_columns or ()))


def _check_cube(options: SourceOptions, cube: Cube, base: Snapshot | None) -> None:
    """What the options say of the cube has to be so."""
    for argument, given, known in [
        ("dimension_columns", options.dimension_columns, cube.dimension_columns),
        ("partition_columns", options.partition_columns, cube.partition_columns),
    ]:
        if given is not None and tuple(given) != tuple(known):
            raise InvalidInput(f"Cube {options.cube!r} exists with the {argument} {list(known)}, not {list(given)}. Leave the option {argument} out.")
    surplus = sorted(set(options.index_columns or ()) - base.indexed_columns) if base is not None else []
    if surplus:
        raise InvalidInput(f"The dataset of cube {options.cube!r} has no index on {surplus}. Leave them out of index_columns; build_cube_index makes an index.")


# --- the commit -------------------------------------------------------------------------------------------------------


def publish_files(wanted: Wanted, layout: Layout, receipts: Sequence[Receipt], txn: Txn | None, seen: Hashable = ANY) -> None:
    """Commit files that were staged for a plan, planned again for the store as it is now.

    ``layout`` is that for which they were staged, ``seen`` the version of the dataset that may be replaced; `ANY`: whatever is there.

    Raises
    ------
    CommitConflict
        If the dataset was made, replaced or indexed differently in between. Nothing is visible.
    """
    plan = plan_write(wanted)
    base = plan.base
    if base is not None and is_applied(txn, base.document.metadata):
        return
    if layout_of(plan.rows) != layout:
        keys, indices = layout_of(plan.rows)
        raise CommitConflict(
            f"{_where(wanted)} has the partition columns {list(keys)} and indices on {sorted(indices)} now, for which these rows were not written. "
            "Nothing of them is visible. Write them again."
        )
    if wanted.overwrite and seen is not ANY and version_of(base) != seen:
        raise CommitConflict(f"{_where(wanted)} was changed while the rows that replace it were written. Nothing of them is visible. Write them again.")
    plan.commit(open_store(wanted.options.store), receipts, txn)


def layout_of(rows: Rows) -> Layout:
    """Partition columns and indexed columns: what must not have changed when the files are committed."""
    return rows.request.partition_on, frozenset(rows.request.index_columns)


def version_of(base: Snapshot | None) -> Hashable:
    """What tells one state of a dataset from another, and may travel; None: no dataset."""
    return None if base is None else base.token


def _where(wanted: Wanted) -> str:
    options = wanted.options
    return f"Dataset {dataset_uuid(options)!r}" if options.dataset is not None else f"Cube {options.cube!r}"

"""A write to several datasets of a cube as one value, planned and checked from schemas. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from kartothek_cube.core.arrow.types import ordered, unify
from kartothek_cube.core.commit.change import Change, OnConflict
from kartothek_cube.core.expressions.conditions import Conjunction
from kartothek_cube.core.io.formats import FileFormat
from kartothek_cube.core.metadata.commit_log import Txn, is_applied
from kartothek_cube.core.metadata.naming import SINGLE_TABLE
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.scan.plan import partition_mask
from kartothek_cube.core.write.layout import NO_LAYOUT, DatasetLayout, layout_of
from kartothek_cube.core.write.stage import Receipt
from kartothek_cube.cube.arguments import check_dataset_ids, partition_clauses, partition_conditions
from kartothek_cube.cube.cube import Cube, get_payload_subset
from kartothek_cube.cube.members.consistency import DatasetInfo, check_infos, check_members, infos_of
from kartothek_cube.cube.write.input_data import cube_metadata, resolve_metadata, resolve_partition_on
from kartothek_cube.cube.write.prepare import (
    REPLACE_OR_APPEND,
    DatasetWrite,
    check_columns,
    check_payload,
    check_visible,
    make_write,
)
from kartothek_cube.errors import AlreadyExists, InvalidInput, KartothekCubeError, MultiTableCommitAborted
from kartothek_cube.typing import IntoConditions

__all__ = [
    "CubeWrite",
    "check_arguments",
    "check_extension",
    "check_not_empty",
    "check_stays_filled",
    "done_datasets",
    "plan_append",
    "plan_build",
    "plan_extend",
    "plan_removal",
    "plan_update",
]


@dataclass(frozen=True, slots=True)
class CubeWrite:
    """A write to a cube, without its rows.

    Attributes
    ----------
    cube : Cube
        The cube.
    datasets : Mapping[str, DatasetWrite]
        How the rows of each dataset are checked and stored.
    bases : Mapping[str, Snapshot]
        The datasets that exist, in the state for which the write was planned.
    replace : bool
        Whether the former contents of the datasets are removed.
    metadata : Mapping[str, dict]
        User metadata to merge into each dataset.
    removed : Mapping[str, pyarrow.Array]
        Labels to remove from each dataset.
    scopes : Mapping[str, Callable]
        Functions that give these labels for any state of the dataset.
    on_conflict : {"raise", "reapply"}
        The reaction to a commit in between that changed what this write removes or replaces.
    allow_empty, may_vanish : bool
        Whether a dataset may get no new rows, and whether it may end up without any.
    txn : Txn | None
        The number of the write; datasets that have it already are skipped.
    """

    cube: Cube
    datasets: Mapping[str, DatasetWrite]
    bases: Mapping[str, Snapshot]
    replace: bool
    metadata: Mapping[str, dict[str, Any]]
    removed: Mapping[str, pa.Array] = field(default_factory=dict)
    scopes: Mapping[str, Callable[[Snapshot], pa.Array]] = field(default_factory=dict)
    on_conflict: OnConflict = "raise"
    allow_empty: bool = False
    may_vanish: bool = False
    txn: Txn | None = None

    @property
    def done(self) -> frozenset[str]:
        """The datasets that had the txn already when the write was planned."""
        return done_datasets(self.txn, self.bases)

    def change(self, name: str, receipts: Collection[Receipt]) -> Change:
        """The change of one dataset."""
        write = self.datasets[name]
        request = write.request
        return Change(
            request.uuid,
            tuple(receipts),
            {SINGLE_TABLE: ordered(write.schema, request.partition_on)},
            request.partition_on,
            request.index_columns,
            metadata=self.metadata[name],
            removed=self.removed.get(name, pa.array([], type=pa.string())),
            scope=self.scopes.get(name),
            replace=self.replace,
            on_conflict=self.on_conflict,
            txn=self.txn,
            # A dataset that is there keeps its own.
            records=write.layout.record() if self.replace or name not in self.bases else {},
        )


def check_not_empty(
    write: CubeWrite, added: Mapping[str, Sequence[object]], names: Iterable[str] | None = None
) -> None:
    """Raise for datasets without new rows, if the write needs some; by default of ``added``."""
    if not write.allow_empty:
        _raise_empty([i for i in (added if names is None else names) if not added.get(i)])


def check_stays_filled(write: CubeWrite, added: Mapping[str, Sequence[object]]) -> None:
    """Raise for datasets that the write would leave without rows; ``added``: new parts of each."""

    def loses_everything(name: str) -> bool:
        if not write.allow_empty:
            return name not in write.bases or write.replace
        partitions = len(write.bases[name].partitions)
        return partitions == len(write.removed.get(name, ())) and partitions > 0

    if not write.may_vanish:
        unchanged = [i for i in write.datasets if not added.get(i) and i not in write.done]
        _raise_empty([i for i in unchanged if loses_everything(i)])


def _raise_empty(names: Collection[str]) -> None:
    if names:
        cause: KartothekCubeError = InvalidInput(f"Cannot write empty datasets: {', '.join(sorted(names))}")
        raise MultiTableCommitAborted(f"Aborting commit, nothing was written. {cause}") from cause


def done_datasets(txn: Txn | None, existing: Mapping[str, Snapshot]) -> frozenset[str]:
    """The datasets that have a txn already."""
    return frozenset(i for i, snapshot in existing.items() if is_applied(txn, snapshot.document.metadata))


Arguments: TypeAlias = tuple[dict[str, tuple[str, ...]], dict[str, dict[str, Any]]]


def check_arguments(
    cube: Cube, names: Collection[str], metadata: object, partition_on: object, *, more: bool = False
) -> Arguments:
    """Partition columns and user metadata by dataset.

    ``more``, here and in all plans: further datasets may follow, so a missing one is no error.
    """
    return resolve_partition_on(cube, names, partition_on), resolve_metadata(metadata, names, more=more)


def check_extension(
    cube: Cube, names: Collection[str], metadata: object, partition_on: object, *, more: bool = False
) -> Arguments:
    """The same for an extension, without knowing the datasets of the cube."""
    arguments = check_arguments(cube, names, metadata, partition_on, more=more)
    if cube.seed_dataset in names:
        raise InvalidInput(f'Seed data ("{cube.seed_dataset}") cannot be written during extension.')
    return arguments


def plan_build(
    cube: Cube,
    schemas: Mapping[str, pa.Schema],
    existing: Mapping[str, Snapshot],
    metadata: object = None,
    overwrite: bool = False,
    partition_on: object = None,
    serializer: FileFormat | None = None,
    *,
    more: bool = False,
    on_conflict: OnConflict = "raise",
    txn: Txn | None = None,
) -> CubeWrite:
    """Check a build from the columns of its data.

    ``existing``: the datasets in the store under the cube's prefix. Without ``overwrite`` all of
    them must have the ``txn`` already.
    """
    keys, user = check_arguments(cube, schemas, metadata, partition_on, more=more)
    # While more blocks may follow, a missing dataset can still come.
    if not more and cube.seed_dataset not in schemas:
        given = ", ".join(sorted(schemas)) or "no dataset"
        raise InvalidInput(
            f'Seed data ("{cube.seed_dataset}") is missing. There is data for {given}; '
            "Cube(seed_dataset=...) says which one is the seed."
        )
    left = sorted(set(existing) - set(schemas))
    if not more and left:
        raise InvalidInput(
            "The cube has datasets that would not be overwritten (partial overwrite), this is not allowed: "
            f"{', '.join(left)}. Give data for them, too, delete them first (delete_cube), "
            "or write with extend_cube or update_cube."
        )
    writes = _new_writes(cube, schemas, keys, {}, serializer, existing)
    _check_absent(cube, existing.keys() - done_datasets(txn, existing), schemas, overwrite)
    _check_result(cube, {}, writes, more=more)
    stored = _metadata(cube, schemas, user)
    return CubeWrite(cube, writes, existing, overwrite, stored, on_conflict=on_conflict, txn=txn)


def plan_extend(
    cube: Cube,
    schemas: Mapping[str, pa.Schema],
    existing: Mapping[str, Snapshot],
    metadata: object = None,
    overwrite: bool = False,
    partition_on: object = None,
    serializer: FileFormat | None = None,
    *,
    more: bool = False,
    on_conflict: OnConflict = "raise",
    txn: Txn | None = None,
) -> CubeWrite:
    """Check an extension from the columns of its data.

    ``existing``: the datasets of the valid cube.
    """
    keys, user = check_extension(cube, schemas, metadata, partition_on, more=more)
    # A dataset that is replaced, or may be by a later block, need not keep its columns.
    done = done_datasets(txn, existing)
    replaced = (set(existing) - {cube.seed_dataset} if more else set(schemas)) if overwrite else done & schemas.keys()
    kept = {i: info for i, info in infos_of(existing).items() if i not in replaced}
    payload = {c: i for i, info in kept.items() for c in get_payload_subset(info.columns, cube)}
    writes = _new_writes(cube, schemas, keys, payload, serializer, existing)
    _check_absent(cube, existing.keys() - done, schemas, overwrite)
    _check_result(cube, kept, writes, more=more)
    bases = {i: existing[i] for i in schemas if i in existing}
    return CubeWrite(cube, writes, bases, overwrite, _metadata(cube, schemas, user), on_conflict=on_conflict, txn=txn)


def plan_append(
    cube: Cube,
    schemas: Mapping[str, pa.Schema],
    existing: Mapping[str, Snapshot],
    metadata: object = None,
    serializer: FileFormat | None = None,
    *,
    more: bool = False,
    txn: Txn | None = None,
) -> CubeWrite:
    """Check an append from the columns of its data.

    ``existing``: the datasets of the valid cube.
    """
    unknown = sorted(set(schemas) - set(existing))
    if unknown:
        raise InvalidInput(f"Unknown / non-existing datasets: {', '.join(unknown)}")
    user = resolve_metadata(metadata, schemas, more=more)
    writes = {i: _append_write(cube, i, schema, existing[i], serializer) for i, schema in schemas.items()}
    return CubeWrite(cube, writes, {i: existing[i] for i in schemas}, False, _metadata(cube, schemas, user), txn=txn)


def plan_update(
    cube: Cube,
    schemas: Mapping[str, pa.Schema],
    existing: Mapping[str, Snapshot],
    remove_conditions: IntoConditions,
    names: Collection[str] | None = None,
    metadata: object = None,
    serializer: FileFormat | None = None,
    *,
    more: bool = False,
    on_conflict: OnConflict = "raise",
    txn: Txn | None = None,
) -> CubeWrite:
    """Check an update: an append that also removes the partitions in which the conditions hold.

    ``names``: the datasets to update, by default those with data.
    """
    conjunction = None
    if remove_conditions is not None:
        conjunction = partition_conditions(cube, remove_conditions, existing, "remove")
    concerned = list(dict.fromkeys((*(names or ()), *schemas)))
    unknown = sorted(set(concerned) - set(existing))
    if unknown:
        raise InvalidInput(f"Unknown / non-existing datasets: {', '.join(unknown)}")
    if names is not None and set(schemas) - set(names):
        raise InvalidInput(
            "There is data for datasets that ktk_cube_dataset_ids does not name: "
            f"{', '.join(sorted(set(schemas) - set(names)))}"
        )
    if names is None and not schemas and remove_conditions is not None:
        raise InvalidInput(
            "There are conditions but no data, so no dataset is concerned. Name the datasets in ktk_cube_dataset_ids."
        )
    user = resolve_metadata(metadata, concerned, more=more)
    full = {i: schemas[i] if i in schemas else existing[i].schema for i in concerned}
    writes = {i: _append_write(cube, i, schema, existing[i], serializer) for i, schema in full.items()}
    bases = {i: existing[i] for i in concerned}
    scopes = {} if conjunction is None else _scopes(conjunction, bases, named=names is not None)
    removed = {i: scope(bases[i]) for i, scope in scopes.items()}
    stored = _metadata(cube, concerned, user)
    return CubeWrite(cube, writes, bases, False, stored, removed, scopes, on_conflict, allow_empty=True, txn=txn)


def plan_removal(
    cube: Cube,
    existing: Mapping[str, Snapshot],
    conditions: IntoConditions,
    names: Collection[str],
    metadata: object = None,
    *,
    named: bool = False,
    on_conflict: OnConflict = "raise",
    txn: Txn | None = None,
) -> CubeWrite:
    """Check a removal of partitions without new rows; a dataset may end up empty."""
    conjunction = partition_conditions(cube, conditions, existing, "remove")
    check_dataset_ids(cube, names, existing)
    user = resolve_metadata(metadata, names)
    bases = {i: existing[i] for i in names}
    writes = {i: _append_write(cube, i, base.schema, base, None) for i, base in bases.items()}
    scopes = _scopes(conjunction, bases, named=named)
    removed = {i: scope(bases[i]) for i, scope in scopes.items()}
    stored = _metadata(cube, names, user)
    return CubeWrite(
        cube, writes, bases, False, stored, removed, scopes, on_conflict, allow_empty=True, may_vanish=True, txn=txn
    )


def _scopes(
    conjunction: Conjunction, bases: Mapping[str, Snapshot], *, named: bool
) -> dict[str, Callable[[Snapshot], pa.Array]]:
    return {i: partial(_labels_to_remove, i, conjunction, named) for i in bases}


def _labels_to_remove(name: str, conjunction: Conjunction, named: bool, snapshot: Snapshot) -> pa.Array:
    """Labels of the physical partitions in which the conditions hold."""
    clauses = partition_clauses(conjunction, snapshot)
    # A dataset that is partitioned by none of the columns loses everything: it has to be named.
    if conjunction.columns and not clauses and not named:
        columns = ", ".join(sorted(conjunction.columns))
        raise InvalidInput(
            f'Dataset "{name}" is not partitioned by {columns}, so it would lose all partitions. '
            "Name it in ktk_cube_dataset_ids to say so."
        )
    return snapshot.partitions.labels.take(pa.array(np.flatnonzero(partition_mask(snapshot, clauses))))


def _new_writes(
    cube: Cube,
    schemas: Mapping[str, pa.Schema],
    keys: Mapping[str, tuple[str, ...]],
    payload: Mapping[str, str],
    serializer: FileFormat | None,
    existing: Mapping[str, Snapshot],
) -> dict[str, DatasetWrite]:
    for name, schema in schemas.items():
        check_columns(cube, name, schema.names, keys[name])
        check_visible(cube, name, schema.names)
        check_payload(cube, name, schema.names, keys[name], payload)
    return {
        name: make_write(cube, name, schema, keys[name], serializer, on_record=_on_record(existing.get(name)))
        for name, schema in schemas.items()
    }


def _on_record(base: Snapshot | None) -> DatasetLayout:
    return NO_LAYOUT if base is None else layout_of(base.document.metadata, base.uuid)


def _append_write(
    cube: Cube, name: str, schema: pa.Schema, base: Snapshot, serializer: FileFormat | None
) -> DatasetWrite:
    check_columns(cube, name, schema.names, base.partition_keys)
    unified = unify([base.schema, schema], f'dataset "{name}"')
    # A column of nulls takes the stored type.
    typed = pa.schema([unified.field(f.name) if pa.types.is_null(f.type) else f for f in schema])
    indexed, on_record = base.secondary_columns, _on_record(base)
    return make_write(cube, name, typed, base.partition_keys, serializer, indexed, on_record)


def _check_absent(cube: Cube, existing: Collection[str], names: Collection[str], overwrite: bool) -> None:
    present = sorted(cube.ktk_dataset_uuid(i) for i in set(existing) & set(names))
    if present and not overwrite:
        raise AlreadyExists(
            f"Dataset `{', '.join(present)}` already exists and overwrite is not permitted! {REPLACE_OR_APPEND}"
        )


def _check_result(
    cube: Cube, kept: Mapping[str, DatasetInfo], writes: Mapping[str, DatasetWrite], *, more: bool
) -> None:
    """Check that the cube is valid after the write."""
    # kartothek checks after writing. Here the check comes first: nothing has to be rolled back.
    infos = dict(kept)
    for name, write in writes.items():
        keys, indexed = write.request.partition_on, frozenset(write.request.index_columns)
        infos[name] = DatasetInfo(name, ordered(write.schema, keys), keys, indexed)
    try:
        (check_members if more else check_infos)(infos, cube)
    except KartothekCubeError as error:
        raise MultiTableCommitAborted(
            f"The datasets would not make a valid cube; nothing was written. {error}"
        ) from error


def _metadata(cube: Cube, names: Collection[str], user: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    return {name: cube_metadata(cube, name, user.get(name, {})) for name in names}

"""Which groups of a query read files that only one of two states has. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kartothek_cube.core.arrow.keys import BoolArray, IntArray, KeyIndex, expand_ranges
from kartothek_cube.core.arrow.types import ordered
from kartothek_cube.core.metadata.naming import SINGLE_TABLE
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.scan.plan import unshared, widened, with_columns_of, without_files
from kartothek_cube.cube.cube import Cube
from kartothek_cube.cube.query.plan import QueryPlan

__all__ = ["StatePlan", "changed_pairs", "past_members", "select_groups", "with_types_of"]


def with_types_of(now: Mapping[str, Snapshot], before: Mapping[str, Snapshot]) -> dict[str, Snapshot]:
    """The later datasets of a cube with types that hold the values of the older ones, too."""
    types = {f.name: f.type for snapshot in before.values() for f in snapshot.schema}
    schemas = {i: widened(snapshot.schema, types) for i, snapshot in now.items()}
    return {
        i: snapshot
        if schemas[i].equals(snapshot.schema)
        else with_columns_of(snapshot, {**snapshot.schemas, SINGLE_TABLE: schemas[i]}, ())
        for i, snapshot in now.items()
    }


def past_members(before: Mapping[str, Snapshot], now: Mapping[str, Snapshot], cube: Cube) -> dict[str, Snapshot]:
    """The older datasets of a cube with the types and the payload of the later ones.

    Payload that none of them had is null, and a dataset that did not exist has no rows. Payload
    that another dataset has now stays where it was.
    """
    types = {field.name: field for snapshot in now.values() for field in snapshot.schema}
    known = {name for snapshot in before.values() for name in snapshot.schema.names}
    indexed = {column for snapshot in now.values() for column in snapshot.indexed_columns}
    address = {*cube.dimension_columns, *cube.partition_columns}
    members = {}
    for i, snapshot in now.items():
        past = before.get(i) or without_files(snapshot)
        own = past.schema if i in before else [f for f in snapshot.schema if f.name in address]
        new = [f for f in snapshot.schema if f.name not in known | address]
        fields = {f.name: types.get(f.name, f) for f in (*own, *new)}
        schema = ordered(pa.schema(fields.values()), past.partition_keys)
        elsewhere = indexed - set(snapshot.schema.names)
        required = {c for c in fields if c in snapshot.indexed_columns | elsewhere} - set(cube.partition_columns)
        members[i] = with_columns_of(past, {**past.schemas, SINGLE_TABLE: schema}, required)
    return members


@dataclass(frozen=True, slots=True)
class StatePlan:
    """A query of one state of a cube, and all files of the datasets, not only those it reads."""

    plan: QueryPlan
    files: Mapping[str, pa.Array]


def changed_pairs(before: StatePlan, after: StatePlan) -> tuple[IntArray, IntArray]:
    """Positions of equal groups in two plans of which one reads a file that the other state lacks.

    -1 stands for a group that one of the plans does not have. If both read only files that both
    states have, their rows are equal: what pruning leaves out has none.
    """
    index = KeyIndex(after.plan.group_keys(), after.plan.group_keys().column_names)
    partners = index.positions(before.plan.group_keys()).astype(np.int64)
    partner_of = np.full(len(after.plan.groups), -1, dtype=np.int64)
    partner_of[partners[partners >= 0]] = np.flatnonzero(partners >= 0)
    new = {i: unshared(before.files[i], after.files[i]) for i in after.files}
    went = _reads(before, {i: mine for i, (mine, _) in new.items()})
    came = _reads(after, {i: theirs for i, (_, theirs) in new.items()})
    came[partners[went & (partners >= 0)]] = True
    changed, removed = np.flatnonzero(came), np.flatnonzero(went & (partners < 0))
    no_group = np.full(len(removed), -1, dtype=np.int64)
    return np.concatenate([partner_of[changed], removed]), np.concatenate([changed, no_group])


def _reads(state: StatePlan, new: Mapping[str, BoolArray]) -> BoolArray:
    """For each group whether it reads a new file; ``new`` is about all files of the datasets."""
    plan = state.plan
    changed = np.zeros(len(plan.aligned), dtype=bool)
    for dataset, parts in plan.aligned.parts.items():
        partitions, files, is_new = plan.partitions[dataset], plan.file_columns[dataset], new[dataset]
        if len(files) < len(is_new):
            some = state.files[dataset].filter(pa.array(is_new))
            is_new = pc.is_in(files, value_set=some).to_numpy(zero_copy_only=False)
        if is_new.any():
            # The last place is for aligned partitions without a file of the dataset: -1 finds it.
            changed |= np.append(_any(is_new[partitions.files], partitions.offsets), False)[parts]
    return _any(changed, plan.group_offsets)


def _any(flags: BoolArray, offsets: IntArray) -> BoolArray:
    """Whether any flag is set from each offset to the next."""
    counts = np.append(0, np.cumsum(flags))
    some: BoolArray = counts[offsets[1:]] > counts[offsets[:-1]]
    return some


def select_groups(plan: QueryPlan, positions: IntArray) -> QueryPlan:
    """The plan with only some groups. Its slices are still those of all groups."""
    starts, counts = plan.group_offsets[positions], np.diff(plan.group_offsets)[positions]
    offsets = np.append(0, np.cumsum(counts)).astype(np.int64)
    return replace(plan, aligned=plan.aligned.take(expand_ranges(starts, counts)[1]), group_offsets=offsets)

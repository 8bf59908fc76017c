"""The groups of a plan, created on demand from its columns. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any, overload

import numpy as np
import pyarrow as pa

from kartothek_cube.core.arrow.keys import IntArray, group_starts
from kartothek_cube.cube.query.align import Aligned
from kartothek_cube.cube.query.intention import DatasetRole
from kartothek_cube.cube.query.partitions import DatasetPartitions

__all__ = ["AlignedFiles", "DatasetFiles", "Group", "GroupContext", "GroupPartition", "Groups"]

# Groups are created in blocks: one by one they take many times as long.
_BLOCK = 256


@dataclass(frozen=True, slots=True)
class GroupContext:
    """The values that all groups of a plan share: roles, columns, types."""

    uuid_prefix: str
    roles: tuple[DatasetRole, ...]
    dimension_columns: tuple[str, ...]
    partition_columns: tuple[str, ...]
    partition_by: tuple[str, ...]
    schema: pa.Schema

    @property
    def cell_columns(self) -> tuple[str, ...]:
        """The key of the rows in the result of one aligned partition."""
        seed = self.roles[0]
        by = [c for c in self.partition_by if c in seed.dimensions and c not in self.dimension_columns]
        return (*self.dimension_columns, *by)


@dataclass(frozen=True, slots=True)
class DatasetFiles:
    """The files of one dataset in one aligned partition; later files override earlier ones.

    ``values`` are their partition values, one mapping a file.
    """

    keys: tuple[str, ...]
    values: tuple[Mapping[str, Any], ...]

    def __reduce__(self) -> tuple[Any, ...]:
        # Groups travel by the thousand; the default of a dataclass takes twice as long.
        return DatasetFiles, (self.keys, self.values)


@dataclass(frozen=True, slots=True)
class GroupPartition:
    """One aligned partition: values of the cube's partition columns, and files by dataset."""

    values: Mapping[str, Any]
    files: Mapping[str, DatasetFiles]

    def __reduce__(self) -> tuple[Any, ...]:
        return GroupPartition, (self.values, self.files)


@dataclass(frozen=True, slots=True)
class Group:
    """The unit of a plan that is loaded alone. Picklable; `load_group` loads it anywhere.

    ``key`` has the values of the ``partition_by`` columns, by default those of the partition
    columns. A *slice* is a group that is not limited to one value of ``partition_by``: it reads the
    files of one aligned partition once for all groups.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube import Cube, build_cube, open_store
    >>> cube, store = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales"), open_store("hmemory://")
    >>> sales = pa.table({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"], "UNITS": [3, 4]})
    >>> _ = build_cube(sales, cube, store)
    >>> from kartothek_cube import load_group, plan_cube_query
    >>> group = plan_cube_query(cube, store).groups[0]
    >>> dict(group.key), len(group.file_keys())
    ({'COUNTRY_CODE': 'DE'}, 1)
    >>> load_group(group, store).to_pylist()
    [{'COUNTRY_CODE': 'DE', 'PRODUCT_ID': 1, 'UNITS': 3}]
    """

    context: GroupContext
    key: Mapping[str, Any]
    partitions: tuple[GroupPartition, ...]
    is_slice: bool = False

    def __reduce__(self) -> tuple[Any, ...]:
        return Group, (self.context, self.key, self.partitions, self.is_slice)

    def file_keys(self) -> list[str]:
        """Keys of all files that loading the group reads, in order."""
        return [key for p in self.partitions for f in p.files.values() for key in f.keys]


@dataclass(frozen=True, slots=True, eq=False)
class AlignedFiles:
    """The files of all datasets by aligned partition, as columns: attributes of `QueryPlan`."""

    context: GroupContext
    aligned: Aligned
    partitions: Mapping[str, DatasetPartitions]
    file_columns: Mapping[str, pa.Array]
    value_columns: Mapping[str, pa.Table]

    def merge(self, rows: IntArray, units: IntArray) -> list[GroupPartition]:
        """One aligned partition for each unit, merged from rows that differ in ``partition_by``.

        Units are numbered from 0, in order.
        """
        firsts = rows[group_starts(units)]
        values = self.aligned.keys.select(list(self.context.partition_columns)).take(pa.array(firsts)).to_pylist()
        files = {i: self._dataset_files(i, parts[rows], units, len(firsts)) for i, parts in self.aligned.parts.items()}
        return [
            GroupPartition(constants, {i: f for i, of_units in files.items() if (f := of_units[u]) is not None})
            for u, constants in enumerate(values)
        ]

    def _dataset_files(self, dataset: str, parts: IntArray, units: IntArray, n_units: int) -> list[DatasetFiles | None]:
        """The files of a dataset in each unit, distinct and in the order of the document."""
        partitions, names = self.partitions[dataset], self.file_columns[dataset]
        present = parts >= 0
        parts, units = parts[present], units[present]
        counts = partitions.offsets[parts + 1] - partitions.offsets[parts]
        # One number for a unit and a file in it: sorted and distinct by one pass over all units.
        numbers = np.unique(np.repeat(units, counts) * max(len(names), 1) + partitions.files_of(parts))
        unit_of, positions = np.divmod(numbers, max(len(names), 1))
        keys, values = names.take(pa.array(positions)).to_pylist(), self.value_columns[dataset]
        rows = values.take(pa.array(positions)).to_pylist() if values.num_columns else [{}] * len(keys)
        bounds = pairwise(np.searchsorted(unit_of, np.arange(n_units + 1)).tolist())
        return [DatasetFiles(tuple(keys[a:b]), tuple(rows[a:b])) if b > a else None for a, b in bounds]


class Groups(Sequence[Group]):
    """Groups, created on demand.

    Group *i* has the aligned partitions ``offsets[i]`` to ``offsets[i + 1]``. With ``order``, these
    are positions in ``order``, and the groups are slices.
    """

    def __init__(self, files: AlignedFiles, offsets: IntArray, order: IntArray | None = None) -> None:
        self._files, self._offsets, self._order = files, offsets, order

    def __len__(self) -> int:
        return len(self._offsets) - 1

    @overload
    def __getitem__(self, i: int) -> Group: ...
    @overload
    def __getitem__(self, i: slice) -> list[Group]: ...
    def __getitem__(self, i: int | slice) -> Group | list[Group]:
        if isinstance(i, slice):
            start, stop, step = i.indices(len(self))
            return self._create(start, stop) if step == 1 else [self[j] for j in range(start, stop, step)]
        if not -len(self) <= i < len(self):
            raise IndexError(f"The plan has {len(self)} groups, there is no number {i}.")
        i %= len(self)
        return self._create(i, i + 1)[0]

    def __iter__(self) -> Iterator[Group]:
        return chain.from_iterable(self[i : i + _BLOCK] for i in range(0, len(self), _BLOCK))

    def _create(self, start: int, stop: int) -> list[Group]:
        if stop <= start:
            return []
        context, offsets = self._files.context, self._offsets[start : stop + 1]
        if self._order is not None:
            # A slice merges the rows of its partition, one for each value of `partition_by`.
            units = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
            parts = self._files.merge(self._order[offsets[0] : offsets[-1]], units)
            return [Group(context, part.values, (part,), is_slice=True) for part in parts]
        parts = self._files.merge(np.arange(offsets[0], offsets[-1]), np.arange(offsets[-1] - offsets[0]))
        names = list(context.partition_by or context.partition_columns)
        keys = self._files.aligned.keys.select(names).take(pa.array(offsets[:-1])).to_pylist()
        bounds = pairwise((offsets - offsets[0]).tolist())
        return [Group(context, key, tuple(parts[a:b])) for key, (a, b) in zip(keys, bounds, strict=True)]

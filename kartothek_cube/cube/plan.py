"""The plan of a query: which files each group reads and how they are joined. A pure, picklable value without a store."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import Any, NamedTuple, overload

import numpy as np
import pyarrow as pa

from kartothek_cube.core.explain import Step, render
from kartothek_cube.core.index import SecondaryIndex
from kartothek_cube.core.markup import Markup, details
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.rowkeys import IntArray, group_starts, pack_one, stable_order, take_rows
from kartothek_cube.cube.align import Aligned, align, sort_into_groups, start
from kartothek_cube.cube.drawing import draw
from kartothek_cube.cube.explain import (
    alignment_step,
    conditions_step,
    explanation,
    join_step,
    labels_step,
    order_step,
    partition_by_step,
    regrouping_step,
)
from kartothek_cube.cube.intention import DatasetRole, Intention
from kartothek_cube.cube.partitions import DatasetPartitions, dataset_partitions
from kartothek_cube.cube.picture import picture_of

__all__ = ["DatasetFiles", "Group", "GroupContext", "GroupPartition", "QueryPlan", "plan_query"]

_MADE_AT_ONCE = 256
# So many times fewer numbers are sorted instead of looked for among all.
_FEW = 64


@dataclass(frozen=True, slots=True)
class GroupContext:
    """What all groups of a plan share: roles, columns, types."""

    uuid_prefix: str
    roles: tuple[DatasetRole, ...]
    dimension_columns: tuple[str, ...]
    partition_columns: tuple[str, ...]
    partition_by: tuple[str, ...]
    schema: pa.Schema

    @property
    def cell_columns(self) -> tuple[str, ...]:
        """Columns that are distinct in the result of one aligned partition."""
        seed = self.roles[0]
        by = [c for c in self.partition_by if c in seed.dimensions and c not in self.dimension_columns]
        return (*self.dimension_columns, *by)


@dataclass(frozen=True, slots=True)
class DatasetFiles:
    """The files of one dataset in one aligned partition, in the order in which later ones override earlier ones.

    ``values`` are their partition values, one mapping a file.
    """

    keys: tuple[str, ...]
    values: tuple[Mapping[str, Any], ...]

    def __reduce__(self) -> tuple[Any, ...]:
        # Groups travel by the thousand; what a dataclass does for itself takes twice as long.
        return DatasetFiles, (self.keys, self.values)


@dataclass(frozen=True, slots=True)
class GroupPartition:
    """One aligned partition: values of the cube's partition columns, and the files of each dataset that has some there."""

    values: Mapping[str, Any]
    files: Mapping[str, DatasetFiles]

    def __reduce__(self) -> tuple[Any, ...]:
        return GroupPartition, (self.values, self.files)


@dataclass(frozen=True, slots=True)
class Group:
    """The unit of a plan that is loaded alone. Picklable; `load_group` loads it anywhere.

    ``key`` has the values of the ``partition_by`` columns, else those of the partition columns. A *slice* is a group
    that is not limited to one value of ``partition_by``: it reads the files of one aligned partition once for all groups.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube import Cube, build_cube, open_store
    >>> cube, store = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales"), open_store("hmemory://")
    >>> _ = build_cube(pa.table({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"], "UNITS": [3, 4]}), cube, store)
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
        """Keys of all files that loading the group reads."""
        return [key for p in self.partitions for f in p.files.values() for key in f.keys]


class Groups(Sequence[Group]):
    """Groups made on demand from the columns of a plan."""

    def __init__(self, plan: QueryPlan, *, slices: bool = False) -> None:
        self._plan, self._slices = plan, slices

    def __len__(self) -> int:
        return len(self._plan.slice_offsets if self._slices else self._plan.group_offsets) - 1

    @overload
    def __getitem__(self, i: int) -> Group: ...
    @overload
    def __getitem__(self, i: slice) -> list[Group]: ...
    def __getitem__(self, i: int | slice) -> Group | list[Group]:
        if isinstance(i, slice):
            start, stop, step = i.indices(len(self))
            return self._made(start, stop) if step == 1 else [self[j] for j in range(start, stop, step)]
        if not -len(self) <= i < len(self):
            raise IndexError(f"The plan has {len(self)} groups, there is no number {i}.")
        i %= len(self)
        return self._made(i, i + 1)[0]

    def __iter__(self) -> Iterator[Group]:
        return chain.from_iterable(self[i : i + _MADE_AT_ONCE] for i in range(0, len(self), _MADE_AT_ONCE))

    def _made(self, start: int, stop: int) -> list[Group]:
        if stop <= start:
            return []
        return self._plan.make_slices(start, stop) if self._slices else self._plan.make_groups(start, stop)


@dataclass(frozen=True, slots=True, eq=False)
class QueryPlan:
    """Which files each group of a query reads, and how they are joined.

    The plan pins exact file keys, so that everyone who runs it sees the same state of the cube. Making it reads no data
    file.

    Attributes
    ----------
    intention : Intention
        The checked query.
    context : GroupContext
        What the groups share.
    aligned : Aligned
        Partitions of all datasets side by side, in the order of the groups.
    group_offsets : numpy.ndarray
        Group *i* has the aligned partitions ``group_offsets[i]`` to ``group_offsets[i + 1]``.
    slice_order, slice_offsets : numpy.ndarray
        The same aligned partitions by the cube's partition columns.
    partitions : Mapping[str, DatasetPartitions]
        The partitions of each dataset.
    file_columns, value_columns : Mapping
        Keys and partition values of the files of each dataset that the query reads.
    steps : tuple of Step
        What planning did, for `explain`.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube import Cube, build_cube, open_store
    >>> cube, store = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales"), open_store("hmemory://")
    >>> _ = build_cube(pa.table({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"], "UNITS": [3, 4]}), cube, store)
    >>> from kartothek_cube import C, plan_cube_query
    >>> plan = plan_cube_query(cube, store, C("COUNTRY_CODE") == "DE")
    >>> len(plan.groups), len(plan.files()["seed"]), plan.schema.names
    (1, 1, ['COUNTRY_CODE', 'PRODUCT_ID', 'UNITS'])
    >>> print(plan.explain().splitlines()[0])
    Query of cube 'sales'
    """

    intention: Intention
    context: GroupContext
    aligned: Aligned
    group_offsets: IntArray
    slice_order: IntArray
    slice_offsets: IntArray
    partitions: Mapping[str, DatasetPartitions]
    file_columns: Mapping[str, pa.Array]
    value_columns: Mapping[str, pa.Table]
    steps: tuple[Step, ...]

    @property
    def groups(self) -> Groups:
        """The groups, made on demand."""
        return Groups(self)

    @property
    def slices(self) -> Groups:
        """The same work cut by the cube's partition columns alone: every seed file is read once."""
        return Groups(self, slices=True)

    @property
    def schema(self) -> pa.Schema:
        """Columns and types of the result."""
        return self.context.schema

    def group_keys(self) -> pa.Table:
        """One row a group: the values that `Group.key` has."""
        names = list(self.context.partition_by or self.context.partition_columns)
        return self.aligned.keys.select(names).take(pa.array(self.group_offsets[:-1]))

    def file_counts(self) -> dict[str, int]:
        """Number of distinct files of each dataset that the query reads."""
        return {r.id: len(self.file_columns[r.id]) for r in self.context.roles}

    def files(self) -> dict[str, list[str]]:
        """Keys of the files of each dataset that the query reads, each once."""
        return {r.id: self.file_columns[r.id].to_pylist() for r in self.context.roles}

    def reads(self, datasets: Collection[str] | None = None) -> int:
        """Number of file reads, of all or some datasets, if every group were loaded alone."""
        chosen = {i: p for i, p in self.aligned.parts.items() if datasets is None or i in datasets}
        return sum(int(np.diff(self.partitions[i].offsets)[parts[parts >= 0]].sum()) for i, parts in chosen.items())

    def amplification(self) -> float:
        """Reads per file if every group were loaded alone."""
        files = sum(self.file_counts().values())
        return self.reads() / files if files else 1.0

    def explain(self, format: str = "text") -> str:  # noqa: A002 - the name users know from data frames
        """What was asked for, every step of planning with what was there before and after it, and the files that are read.

        Parameters
        ----------
        format : {"text", "html", "json"}
            JSON has all files, the others the first few.

        Raises
        ------
        InvalidInput
            For another format.
        """
        return render(explanation(self.intention, self.steps, chain.from_iterable(self.files().values())), format)

    def __repr__(self) -> str:
        return f"QueryPlan(cube={self.context.uuid_prefix!r}, groups={len(self.groups)}, files={sum(self.file_counts().values())})"

    def to_svg(self) -> str:
        """The plan as a drawing: datasets are columns, aligned partitions are rows; what is read of them, what is lacking, and what was dropped.

        Neighbouring partitions are drawn as bands where there are many, so that the drawing does not grow with them. It adapts to light and dark.

        Returns
        -------
        str
            A document of its own, which can also stand inside a page of HTML. Equal plans give equal drawings.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from kartothek_cube import C, Cube, build_cube, open_store, plan_cube_query
        >>> store, cube = open_store("hmemory://"), Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
        >>> _ = build_cube(pa.table({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"]}), cube, store)
        >>> plan_cube_query(cube, store, C("COUNTRY_CODE") == "DE").to_svg()[:4]
        '<svg'
        """
        order, offsets = self.slice_order, self.slice_offsets
        return draw(picture_of(self.intention, self.aligned, order, offsets, self.partitions, self.file_counts(), len(self.groups)))

    def _repr_html_(self) -> str:
        drawing = details("drawing", Markup(self.to_svg()))
        return f'{self.explain("html")}<div class="kartothek-cube">{drawing}</div>'

    def make_groups(self, start: int, stop: int) -> list[Group]:
        """Groups number ``start`` to ``stop``, without the last one."""
        offsets = self.group_offsets[start : stop + 1]
        parts = self._partitions(np.arange(offsets[0], offsets[-1]), np.arange(offsets[-1] - offsets[0]))
        names = list(self.context.partition_by or self.context.partition_columns)
        keys = self.aligned.keys.select(names).take(pa.array(offsets[:-1])).to_pylist()
        bounds = pairwise((offsets - offsets[0]).tolist())
        return [Group(self.context, key, tuple(parts[a:b])) for key, (a, b) in zip(keys, bounds, strict=True)]

    def make_slices(self, start: int, stop: int) -> list[Group]:
        """Slices number ``start`` to ``stop``, without the last one."""
        offsets = self.slice_offsets[start : stop + 1]
        units = np.repeat(np.arange(stop - start), np.diff(offsets))
        return [Group(self.context, p.values, (p,), is_slice=True) for p in self._partitions(self.slice_order[offsets[0] : offsets[-1]], units)]

    def _partitions(self, rows: IntArray, units: IntArray) -> list[GroupPartition]:
        """One aligned partition for each unit, from its rows, which differ only in ``partition_by``. Units are numbered from 0, in order."""
        firsts = rows[group_starts(units)]
        values = self.aligned.keys.select(list(self.context.partition_columns)).take(pa.array(firsts)).to_pylist()
        files = {i: self._dataset_files(i, parts[rows], units, len(firsts)) for i, parts in self.aligned.parts.items()}
        return [GroupPartition(own, {i: f[u] for i, f in files.items() if f[u] is not None}) for u, own in enumerate(values)]  # type: ignore[misc]

    def _dataset_files(self, dataset: str, parts: IntArray, units: IntArray, n_units: int) -> list[DatasetFiles | None]:
        """The files of a dataset in each unit, each once and in the order of the document."""
        own, names = self.partitions[dataset], self.file_columns[dataset]
        found = parts >= 0
        parts, counts = parts[found], own.offsets[parts[found] + 1] - own.offsets[parts[found]]
        # One number for a unit and a file in it: sorted and distinct by one pass over all units.
        numbers = np.unique(np.repeat(units[found], counts) * max(len(names), 1) + own.files_of(parts))
        unit_of, positions = np.divmod(numbers, max(len(names), 1))
        keys, values = names.take(pa.array(positions)).to_pylist(), self.value_columns[dataset]
        rows = values.take(pa.array(positions)).to_pylist() if values.num_columns else [{}] * len(keys)
        bounds = pairwise(np.searchsorted(unit_of, np.arange(n_units + 1)).tolist())
        return [DatasetFiles(tuple(keys[a:b]), tuple(rows[a:b])) if b > a else None for a, b in bounds]


def _present(numbers: IntArray, n: int) -> IntArray:
    """The distinct numbers below ``n``, ascending."""
    if len(numbers) * _FEW < n:
        return np.unique(numbers)
    mask = np.zeros(n, dtype=bool)
    mask[numbers] = True
    return np.flatnonzero(mask)


def plan_query(intention: Intention, snapshots: Mapping[str, Snapshot], indices: Mapping[str, Mapping[str, SecondaryIndex]]) -> QueryPlan:
    """Plan a query, step by step as kartothek's query system. ``indices`` has what `needed_indices` asked for, by dataset."""
    roles = intention.roles
    partitions = {r.id: dataset_partitions(r, intention, snapshots[r.id], indices.get(r.id, {})) for r in roles}
    aligned = start(roles[0].id, partitions[roles[0].id])
    counts = [len(aligned)]
    for role in roles[1:]:
        aligned = align(aligned, role.id, partitions[role.id], inner=role.restricts)
        counts.append(len(aligned))
    steps = [
        labels_step(intention, partitions),
        conditions_step(intention, partitions, indices),
        partition_by_step(partitions),
        alignment_step(roles, counts),
    ]
    columns = intention.cube.partition_columns
    aligned, offsets = sort_into_groups(aligned, intention.partition_by, columns)
    order, slices = _slices(aligned, columns) if intention.partition_by else (np.arange(len(aligned)), offsets)
    context = GroupContext(intention.cube.uuid_prefix, roles, intention.dimension_columns, columns, intention.partition_by, intention.schema)
    read = {i: _read(own, snapshots[i], aligned.parts[i]) for i, own in partitions.items()}
    plan = QueryPlan(
        intention,
        context,
        Aligned(aligned.keys, {i: r.parts for i, r in read.items()}),
        offsets,
        order,
        slices,
        {i: r.partitions for i, r in read.items()},
        {i: r.files for i, r in read.items()},
        {i: r.values for i, r in read.items()},
        (),
    )
    return replace(plan, steps=(*steps, *_last_steps(plan)))


def _slices(aligned: Aligned, columns: Sequence[str]) -> tuple[IntArray, IntArray]:
    """The aligned partitions in the order of the cube's partition columns, and where each combination of them begins."""
    keys = pack_one(aligned.keys, columns)
    sorting = stable_order(keys)
    order = np.arange(len(keys)) if sorting is None else sorting
    return order, np.append(group_starts(keys[order]), len(aligned)).astype(np.int64)


class _Read(NamedTuple):
    """What a plan reads of a dataset: for each aligned partition which of ``partitions`` stands there; their files and values in the order of the document."""

    parts: IntArray
    partitions: DatasetPartitions
    files: pa.Array
    values: pa.Table


def _read(own: DatasetPartitions, snapshot: Snapshot, parts: IntArray) -> _Read:
    """A plan travels: it carries the partitions and files that it reads, not those of the whole dataset."""
    used = _present(parts[parts >= 0], len(own))
    whole = len(used) == len(own)
    files = _present(own.files if whole else own.files_of(used), own.total)
    if whole and len(files) == own.total:
        return _Read(parts, own, snapshot.files, snapshot.values)
    narrowed = own.narrowed(used, files)
    return _Read(_renumbered(parts, used), narrowed, snapshot.files.take(pa.array(files)), take_rows(snapshot.values, files))


def _renumbered(parts: IntArray, used: IntArray) -> IntArray:
    """The same partitions by their positions among those that are used."""
    return np.where(parts < 0, -1, np.searchsorted(used, parts))


def _last_steps(plan: QueryPlan) -> tuple[Step, ...]:
    files, context = plan.file_counts(), plan.context
    return (
        regrouping_step(plan.intention, len(plan.aligned), len(plan.groups)),
        join_step(plan.intention, files, context.cell_columns),
        order_step((*context.dimension_columns, *context.partition_columns), sum(files.values()), plan.reads()),
    )

"""The plan of a query as a picklable value without a store. Pure.

In order:

- groups, created on demand from the columns of the plan
- the plan; what shows it is imported then
- the steps of planning as values for `explain`
- groups that read files which only one of two states has
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from typing import Any, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field
from msgspec.structs import replace

from kartothek_cube.core.arguments import pluralize
from kartothek_cube.core.arrow.keys import BoolArray, IntArray, KeyIndex, expand_ranges, group_starts
from kartothek_cube.core.arrow.types import ordered
from kartothek_cube.core.display import Explanation, Step, StepRow, predicates_text
from kartothek_cube.core.metadata.naming import SINGLE_TABLE
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.scan.plan import unshared, widened, with_columns_of, without_files
from kartothek_cube.cube.cube import KTK_CUBE_UUID_SEPERATOR, Cube, get_payload_subset
from kartothek_cube.cube.query.intention import DatasetRole, Intention
from kartothek_cube.cube.query.partitions import Aligned, DatasetPartitions
from kartothek_cube.typing import GroupKey, StoreLike

# Groups are created in blocks: one by one they take many times as long.
_BLOCK = 256


class GroupContext(Struct, frozen=True):
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


class DatasetFiles(Struct, frozen=True):
    """The files of one dataset in one aligned partition; later files override earlier ones.

    ``values`` are their partition values, one mapping a file.
    """

    keys: tuple[str, ...]
    values: tuple[Mapping[str, Any], ...]

    def __reduce__(self) -> tuple[Any, ...]:
        # Groups travel by the thousand; the default of a dataclass takes twice as long.
        return DatasetFiles, (self.keys, self.values)


class GroupPartition(Struct, frozen=True):
    """One aligned partition: values of the cube's partition columns, and files by dataset."""

    values: Mapping[str, Any]
    files: Mapping[str, DatasetFiles]

    def __reduce__(self) -> tuple[Any, ...]:
        return GroupPartition, (self.values, self.files)


class Group(Struct, frozen=True):
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


class AlignedFiles(Struct, frozen=True, eq=False):
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


# --- the plan -------------------------------------------------------------------------------------


class QueryPlan(Struct, frozen=True, eq=False):
    """The files that each group of a query reads, and how they are joined.

    The plan pins exact file keys: every execution sees the same state of the cube. Planning reads
    no data file.

    Attributes
    ----------
    intention : Intention
        The checked query.
    context : GroupContext
        The values that the groups share.
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
        The steps of planning, for `explain`.
    commits : Mapping[str, str or None]
        The last commit of each dataset in the state that the plan reads, None after a writer that
        keeps no history. ``as_of=``, ``changed_since=`` and ``since=`` of queries of the same
        datasets take it; it depends on no clock.
    removed : pyarrow.Table, optional
        Of a plan with ``changed_since``: the keys of `removed_group_keys`.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube import Cube, build_cube, open_store
    >>> cube, store = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales"), open_store("hmemory://")
    >>> sales = pa.table({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"], "UNITS": [3, 4]})
    >>> _ = build_cube(sales, cube, store)
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
    commits: Mapping[str, str | None] = field(default_factory=dict)
    removed: pa.Table | None = None

    @property
    def groups(self) -> Groups:
        """The groups, created on demand."""
        return Groups(self._aligned_files(), self.group_offsets)

    @property
    def slices(self) -> Groups:
        """The same work cut by the cube's partition columns alone: each seed file is read once."""
        return Groups(self._aligned_files(), self.slice_offsets, self.slice_order)

    def _aligned_files(self) -> AlignedFiles:
        return AlignedFiles(self.context, self.aligned, self.partitions, self.file_columns, self.value_columns)

    @property
    def schema(self) -> pa.Schema:
        """Columns and types of the result."""
        return self.context.schema

    def group_keys(self) -> pa.Table:
        """The values of `Group.key`, one row per group."""
        names = list(self.context.partition_by or self.context.partition_columns)
        return self.aligned.keys.select(names).take(pa.array(self.group_offsets[:-1]))

    def removed_group_keys(self) -> list[GroupKey]:
        """Keys of the groups that this query had at ``changed_since`` and does not have any more.

        A group is in a plan if it has files to read. A group whose rows are gone, but not its
        files, is among ``groups`` and is loaded empty.

        Returns
        -------
        list of dict
            Values as in `Group.key`; empty for a plan without ``changed_since``.
        """
        keys: list[GroupKey] = [] if self.removed is None else self.removed.to_pylist()
        return keys

    def file_counts(self) -> dict[str, int]:
        """Number of distinct files of each dataset that the query reads."""
        return {r.id: len(self.file_columns[r.id]) for r in self.context.roles}

    def files(self) -> dict[str, list[str]]:
        """Keys of the files of each dataset that the query reads, each once."""
        return {r.id: self.file_columns[r.id].to_pylist() for r in self.context.roles}

    def reads(self, datasets: Collection[str] | None = None) -> int:
        """Number of file reads, of all or some datasets, if every group were loaded alone."""
        selected = {i: p for i, p in self.aligned.parts.items() if datasets is None or i in datasets}
        return sum(int(np.diff(self.partitions[i].offsets)[parts[parts >= 0]].sum()) for i, parts in selected.items())

    def amplification(self) -> float:
        """Reads per file if every group were loaded alone."""
        files = sum(self.file_counts().values())
        return self.reads() / files if files else 1.0

    def explain(
        self,
        format: str = "text",  # noqa: A002 - the name users know from data frames
        store: StoreLike | None = None,
    ) -> str:
        """The query, the steps of planning with counts before and after each, the files to read.

        Parameters
        ----------
        format : {"text", "html", "json"}
            JSON lists all files, the other formats the first few.
        store : store, URL or factory, optional
            Where the cube is. With a store the footers of the files are read, and a step *Pages*
            says how many pages each dataset has, and how many of these are decoded, as far as the
            conditions on its own columns tell.

        Raises
        ------
        InvalidInput
            For another format.
        """
        from kartothek_cube.core.display import render

        steps = self.steps if store is None else (*self.steps, *self._pages_step(store))
        return render(explanation(self.intention, steps, chain.from_iterable(self.files().values())), format)

    def _pages_step(self, store: StoreLike) -> tuple[Step, ...]:
        # Plans travel to executors, which explain nothing.
        from kartothek_cube.core.io.reader import FileRequest
        from kartothek_cube.core.scan.execute import pages_step
        from kartothek_cube.core.stores.open import open_instrumented

        reads = []
        for role in self.context.roles:
            clauses = tuple(c for c in role.clauses if c.column not in role.partition_keys)
            uuid = f"{self.context.uuid_prefix}{KTK_CUBE_UUID_SEPERATOR}{role.id}"
            if clauses:
                reads.append((role.id, self.files()[role.id], FileRequest(uuid, role.schema, (), (clauses,))))
        return pages_step(open_instrumented(store), reads)

    def __repr__(self) -> str:
        files = sum(self.file_counts().values())
        return f"QueryPlan(cube={self.context.uuid_prefix!r}, groups={len(self.groups)}, files={files})"

    def to_svg(self) -> str:
        """The plan as a drawing: datasets are columns, aligned partitions are rows.

        It shows which partitions are read, which are missing, and which were dropped. Many
        neighbouring partitions are drawn as bands, so the drawing does not grow with their number.
        It adapts to light and dark.

        Returns
        -------
        str
            An SVG document, which can also be embedded in HTML. Equal plans give equal drawings.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from kartothek_cube import C, Cube, build_cube, open_store, plan_cube_query
        >>> store, cube = open_store("hmemory://"), Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
        >>> sales = pa.table({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"]})
        >>> _ = build_cube(sales, cube, store)
        >>> plan_cube_query(cube, store, C("COUNTRY_CODE") == "DE").to_svg()[:4]
        '<svg'
        """
        from kartothek_cube.cube.query.picture import draw, picture_of

        order, offsets = self.slice_order, self.slice_offsets
        counts, groups = self.file_counts(), len(self.groups)
        return draw(picture_of(self.intention, self.aligned, order, offsets, self.partitions, counts, groups))

    def _repr_html_(self) -> str:
        from kartothek_cube.core.display import Markup, details

        drawing = details("drawing", Markup(self.to_svg()))
        return f'{self.explain("html")}<div class="kartothek-cube">{drawing}</div>'


# --- the steps of planning as values for explain --------------------------------------------------


def explanation(intention: Intention, steps: Sequence[Step], files: Iterable[str]) -> Explanation:
    """The whole explanation of a plan."""
    clauses = intention.conjunction.clauses
    facts = (
        ("columns", ", ".join(intention.output_columns)),
        ("conditions", predicates_text((tuple(clauses),) if clauses else None)),
        ("partition by", ", ".join(intention.partition_by) or "none"),
    )
    return Explanation(f"Query of cube {intention.cube.uuid_prefix!r}", facts, tuple(steps), tuple(files))


def labels_step(intention: Intention, partitions: Mapping[str, DatasetPartitions]) -> Step:
    """All files of each dataset."""
    rows = []
    for role in intention.roles:
        note = f"partitioned by {', '.join(role.partition_keys)}" if role.partition_keys else "not partitioned"
        rows.append(StepRow(role.id, None, partitions[role.id].total, note))
    rows += [StepRow(i, None, None, "gives nothing to this query") for i in intention.left_out]
    return Step("Labels", "files", tuple(rows))


def conditions_step(
    intention: Intention,
    partitions: Mapping[str, DatasetPartitions],
    matched: Mapping[str, int],
    indexed: Mapping[str, Collection[str]],
) -> Step:
    """The files that partition values and indices drop; ``indexed``: columns by dataset."""
    rows = []
    for role in intention.roles:
        columns = {c.column for c in role.clauses}
        by_key, by_index = columns & set(role.partition_keys), columns & set(indexed.get(role.id, ()))
        by_rows = columns - by_key - by_index
        notes = [("partition index", by_key), ("secondary index", by_index), ("rows only", by_rows)]
        note = "; ".join(f"{name}: {', '.join(sorted(by))}" for name, by in notes if by)
        rows.append(StepRow(role.id, partitions[role.id].total, matched[role.id], note))
    return Step("Pre-conditions", "files", tuple(rows))


def statistics_steps(
    intention: Intention,
    partitions: Mapping[str, DatasetPartitions],
    matched: Mapping[str, int],
    columns: Mapping[str, Collection[str]],
) -> tuple[Step, ...]:
    """The files that statistics drop, if any were read; ``columns``: those read, by dataset."""
    read = [(r.id, f"bounds of {', '.join(sorted(columns[r.id]))}") for r in intention.roles if columns.get(r.id)]
    rows = [StepRow(i, matched[i], partitions[i].matched, note) for i, note in read]
    return (Step("Statistics", "files", tuple(rows)),) if rows else ()


def partition_by_step(partitions: Mapping[str, DatasetPartitions]) -> Step:
    """Files by the values of partition columns and ``partition_by`` columns."""
    rows = []
    for name, matching in partitions.items():
        lost = [
            f"; in no group: {pluralize(n, 'file')} without a value of {column}"
            for column, n in matching.without_value.items()
            if n
        ]
        note = f"by {', '.join(matching.keys.column_names) or 'nothing'}{''.join(lost)}"
        rows.append(StepRow(name, matching.matched, len(matching), note))
    return Step("Partition by", "files → partitions", tuple(rows))


def alignment_step(roles: Sequence[DatasetRole], counts: Sequence[int]) -> Step:
    """The aligned partitions after each dataset has joined."""
    before = (None, *counts[:-1])
    rows = [
        StepRow(r.id, b, n, "seed" if r.is_seed else f"{_join(r)} join")
        for r, b, n in zip(roles, before, counts, strict=True)
    ]
    return Step("Alignment", "partitions", tuple(rows))


def _join(role: DatasetRole) -> str:
    return "inner" if role.restricts else "left"


def regrouping_step(intention: Intention, aligned: int, groups: int) -> Step:
    """Aligned partitions by group, and the rows that are in no group."""
    by = intention.partition_by
    payload = sorted(get_payload_subset(by, intention.cube))
    note = f"by {', '.join(by)}" if by else "one group an aligned partition"
    lost = f"; cells without a value of {' or '.join(payload)} are in no group" if payload else ""
    return Step("Re-grouping", "partitions → groups", (StepRow("all", aligned, groups, note + lost),))


def changed_step(since: str, groups: int, changed: int, removed: int) -> Step:
    """The groups that read a file which came or went since."""
    note = f"{pluralize(removed, 'group')} removed since" if removed else ""
    return Step(f"Changed since {since}", "groups", (StepRow("all", groups, changed, note),))


def join_step(intention: Intention, files: Mapping[str, int], cell_columns: Sequence[str]) -> Step:
    """The distinct files of each dataset, and how its rows are joined to those of the seed."""
    rows = []
    for role in intention.roles:
        note = f"{'cells by' if role.is_seed else f'{_join(role)} join on'} {', '.join(role.dimensions)}"
        if role.is_seed and set(role.dimensions) - set(cell_columns):
            note += f", projected to {', '.join(cell_columns)}"
        rows.append(StepRow(role.id, None, files[role.id], note))
    return Step("Join inside a partition", "files", tuple(rows))


def order_step(order: Sequence[str], files: int, reads: int) -> Step:
    """The number of reads of each file if every group were loaded alone."""
    amplification = reads / files if files else 1.0
    note = f"{amplification:.1f} reads per file if every group were loaded alone"
    return Step(f"Concatenation, ordered by {', '.join(order)}", "files → reads", (StepRow("all", files, reads, note),))


# --- groups that read files which only one of two states has --------------------------------------


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


class StatePlan(Struct, frozen=True):
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

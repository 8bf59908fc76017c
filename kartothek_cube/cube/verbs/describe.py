"""What a cube is, and what changed in it at a glance.

In order:

- cubes of a store, and one cube
- datasets of a cube, its `Cube`, and whether they fit together
- changes: counts by dataset, and the first rows
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kartothek_cube.core.arguments import pluralize
from kartothek_cube.core.arrow.difference import CHANGE_TYPE, changes_schema
from kartothek_cube.core.dataset.read import checked_limit
from kartothek_cube.core.delta.publication import describe_publication
from kartothek_cube.core.display import (
    KINDS,
    ChangeCounts,
    Markup,
    changed_rows,
    changes_table,
    counts_table,
    details,
    escape,
    in_notebook,
    or_dash,
    show_count,
    spelled,
    table,
)
from kartothek_cube.core.kartothek.dataset_metadata import DatasetMetadata
from kartothek_cube.core.metadata.snapshot import (
    KTK_CUBE_METADATA_DIMENSION_COLUMNS,
    KTK_CUBE_METADATA_KEY_IS_SEED,
    KTK_CUBE_METADATA_PARTITION_COLUMNS,
    Snapshot,
)
from kartothek_cube.core.metadata.statistics import ColumnRange, FileStatistics, column_ranges, known_rows
from kartothek_cube.core.runtime.executor import map_in_threads
from kartothek_cube.core.runtime.options import Overrides
from kartothek_cube.core.runtime.telemetry import operation
from kartothek_cube.core.scan.plan import check_change_type, without_files
from kartothek_cube.core.snapshots.statistics import statistics_of_files
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.stores.open import open_instrumented
from kartothek_cube.core.write.layout import NO_LAYOUT, DatasetLayout, layout_of
from kartothek_cube.cube.consistent_read import check_infos, cube_tags, infos_of, state_text
from kartothek_cube.cube.cube import (
    KTK_CUBE_METADATA_SUPPRESS_INDEX_ON,
    Cube,
    get_payload_subset,
    prefix_of,
    visible_columns,
)
from kartothek_cube.cube.execute.run import iter_changes, iter_dataset_changes
from kartothek_cube.cube.members import (
    cube_and_store,
    cube_of,
    dataset_ids,
    list_cube_prefixes,
    load_cube,
    load_states,
    read_members,
    valid_cube,
)
from kartothek_cube.cube.query.intention import QueryArguments
from kartothek_cube.cube.query.plan import StatePlan, with_types_of
from kartothek_cube.cube.query.planning import plan_between
from kartothek_cube.cube.report.page import ranges_details
from kartothek_cube.errors import InvalidInput
from kartothek_cube.typing import AsOf, Columns, CubeState, StoreLike

# With more payload columns the HTML hides them behind a click.
_SHOWN_COLUMNS = 12
# Metadata that is no user metadata.
_LIBRARY_KEYS = {
    KTK_CUBE_METADATA_DIMENSION_COLUMNS,
    KTK_CUBE_METADATA_KEY_IS_SEED,
    KTK_CUBE_METADATA_PARTITION_COLUMNS,
    KTK_CUBE_METADATA_SUPPRESS_INDEX_ON,
    "creation_time",
}


@dataclass(frozen=True, slots=True)
class DatasetDescription:
    """One dataset of a cube: columns with types, partition keys, indices, files, user metadata.

    ``rows``, the number of stored rows, is None where statistics do not know it; ``ranges`` has the
    columns whose least and greatest value they know. ``layout`` is what is on record about files.
    ``delta`` says at which version the Delta table is, if it is one.
    """

    id: str
    partition_keys: tuple[str, ...]
    files: int
    dimensions: tuple[str, ...]
    payload: Mapping[str, str]
    indices: tuple[str, ...]
    metadata: Mapping[str, object]
    rows: int | None = None
    ranges: Mapping[str, ColumnRange] = field(default_factory=dict)
    layout: DatasetLayout = NO_LAYOUT
    delta: str | None = None


@dataclass(frozen=True, slots=True)
class CubeDescription:
    """A cube at a glance: prints as text, is a table in notebooks, and converts to JSON.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube import Cube, build_cube, open_store
    >>> cube, store = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales"), open_store("hmemory://")
    >>> sales = pa.table({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"], "UNITS": [3, 4]})
    >>> _ = build_cube(sales, cube, store)
    >>> description = describe_cube("sales", store)
    >>> description.seed_dataset, dict(description.dimensions), description.datasets[0].files
    ('seed', {'PRODUCT_ID': 'int64'}, 2)
    """

    uuid_prefix: str
    seed_dataset: str
    dimensions: Mapping[str, str]
    partitions: Mapping[str, str]
    index_columns: tuple[str, ...]
    datasets: tuple[DatasetDescription, ...]
    tags: tuple[str, ...] = ()

    def to_json(self) -> str:
        """The description as JSON."""
        return json.dumps(asdict(self), default=str, indent=2)

    def __repr__(self) -> str:
        lines = [
            f"Cube {self.uuid_prefix!r}, seed {self.seed_dataset!r}",
            f"  dimensions  {_typed(self.dimensions)}",
            f"  partitions  {_typed(self.partitions)}",
            f"  indices     {', '.join(self.index_columns) or '(none)'}",
            *([f"  tags        {', '.join(self.tags)}"] if self.tags else ()),
        ]
        width = max(len(d.id) for d in self.datasets)
        for d in self.datasets:
            files, keys = pluralize(d.files, "file"), ", ".join(d.partition_keys) or "nothing"
            rows = f"{pluralize(d.rows, 'row')}, " if d.rows is not None else ""
            lines.append(f"  {d.id:<{width}}  cells by {', '.join(d.dimensions)}; {files}, {rows}partitioned by {keys}")
            lines.append(f"  {'':<{width}}  {_typed(d.payload)}")
            ranges = spelled(", ".join(f"{c} {r}" for c, r in d.ranges.items()))
            notes = ("layout: ", d.layout), ("Delta table: ", d.delta), ("", ranges)
            lines += [f"  {'':<{width}}  {label}{text}" for label, text in notes if text]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        facts = (
            ("dimensions", _typed(self.dimensions)),
            ("partitions", _typed(self.partitions)),
            ("indices", ", ".join(self.index_columns) or "(none)"),
            *([("tags", ", ".join(self.tags))] if self.tags else ()),
        )
        lines = "".join(f'<br><span class="q">{name}:</span> {escape(value)}' for name, value in facts)
        head = Markup(f"<strong>Cube {escape(self.uuid_prefix)}</strong>{lines}")
        rows = []
        for d in sorted(self.datasets, key=lambda d: d.id != self.seed_dataset):
            name = Markup(f'{escape(d.id)} <span class="q">seed</span>') if d.id == self.seed_dataset else d.id
            dimensions, keys, indices = (
                or_dash(", ".join(names)) for names in (d.dimensions, d.partition_keys, d.indices)
            )
            payload = or_dash(_typed(d.payload) if d.payload else "")
            if len(d.payload) > _SHOWN_COLUMNS:
                payload = details(f"{len(d.payload):,} columns", escape(_typed(d.payload)))
            stored = show_count(d.rows) if d.rows is not None else ""
            rows.append((name, dimensions, keys, show_count(d.files), stored, indices, payload))
        columns = ("dataset", "cells by", "partitioned by", "files", "rows", "indices", "payload")
        return in_notebook(
            head,
            table(columns, rows, numbers=(3, 4)),
            *(
                Markup(f'<br><span class="q">{what} of {escape(d.id)}:</span> {escape(str(value))}')
                for d in self.datasets
                for what, value in (("layout", d.layout), ("Delta table", d.delta))
                if value
            ),
            *(ranges_details(d.id, d.ranges) for d in self.datasets),
            *_metadata_details(self.datasets),
        )


def _typed(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{c} {t}" for c, t in columns.items()) or "(none)"


def _metadata_details(datasets: Iterable[DatasetDescription]) -> Iterator[Markup]:
    for d in datasets:
        # The table shows the values of the library's own keys.
        user = {name: value for name, value in d.metadata.items() if name not in _LIBRARY_KEYS}
        if user:
            text = json.dumps(user, default=str, indent=2, ensure_ascii=False)
            yield details(f"metadata of {d.id}", Markup(f"<pre>{escape(text)}</pre>"))


def describe_cube(
    uuid_prefix: Cube | str, store: StoreLike, *, as_of: AsOf | None = None, options: Overrides | None = None
) -> CubeDescription:
    """Describe a cube from its documents, schemas, tags and statistics alone.

    ``as_of`` as in `query_cube`.

    Raises
    ------
    InvalidInput
        If there is no such cube.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube import Cube, build_cube, describe_cube, open_store
    >>> store = open_store("hmemory://")
    >>> sales = pa.table({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"], "UNITS": [3, 4]})
    >>> _ = build_cube(sales, Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales"), store)
    >>> describe_cube("sales", store)
    Cube 'sales', seed 'seed'
      dimensions  PRODUCT_ID int64
      partitions  COUNTRY_CODE string
      indices     (none)
      seed  cells by PRODUCT_ID; 2 files, 2 rows, partitioned by COUNTRY_CODE
            UNITS int64
            PRODUCT_ID 1 to 2, UNITS 3 to 4
    """
    with operation("describe_cube", options, cube=uuid_prefix):
        opened = open_instrumented(store)
        prefix = prefix_of(uuid_prefix)
        members = read_members(prefix, opened, as_of=as_of)
        cube = cube_of(prefix, members, opened)
        tags = cube_tags(opened, cube.ktk_dataset_uuid(cube.seed_dataset))
        known = map_in_threads(lambda s: statistics_of_files(opened, s, s.files, None), members.values(), store=opened)
        statistics = dict(zip(members, known, strict=True))
        tables = {} if as_of is not None else {i: describe_publication(opened, s) for i, s in members.items()}
        return _description_of(cube, members, statistics, tuple(tag.name for tag in tags), tables)


def _description_of(
    cube: Cube,
    members: Mapping[str, Snapshot],
    statistics: Mapping[str, FileStatistics],
    tags: tuple[str, ...],
    tables: Mapping[str, str | None],
) -> CubeDescription:
    types = {f.name: str(f.type) for s in members.values() for f in s.schema}
    datasets = []
    for name, snapshot in members.items():
        columns = visible_columns(snapshot.schema.names)
        payload = sorted(get_payload_subset(columns, cube))
        datasets.append(
            DatasetDescription(
                id=name,
                partition_keys=snapshot.partition_keys,
                files=len(snapshot.partitions),
                dimensions=tuple(c for c in cube.dimension_columns if c in columns),
                payload={c: str(snapshot.schema.field(c).type) for c in payload},
                indices=tuple(sorted(snapshot.secondary_columns)),
                metadata=snapshot.document.user_metadata,
                rows=known_rows(statistics[name]),
                ranges=column_ranges(statistics[name], [f for f in snapshot.schema if f.name in columns]),
                layout=layout_of(snapshot.document.metadata, snapshot.uuid),
                delta=tables.get(name),
            )
        )
    return CubeDescription(
        uuid_prefix=cube.uuid_prefix,
        seed_dataset=cube.seed_dataset,
        dimensions={c: types[c] for c in cube.dimension_columns},
        partitions={c: types[c] for c in cube.partition_columns},
        index_columns=tuple(sorted(cube.index_columns)),
        datasets=tuple(datasets),
        tags=tags,
    )


def list_cubes(store: StoreLike) -> list[str]:
    """Prefixes of the cubes in a store; one listing of the top level, no document is read.

    It also names a cube whose first write has not committed, or was aborted: readers see none yet.

    Examples
    --------
    >>> from kartothek_cube import open_store
    >>> list_cubes(open_store("hmemory://"))
    []
    """
    return list_cube_prefixes(open_instrumented(store))


# --- datasets of a cube ---------------------------------------------------------------------------


def discover_ktk_cube_dataset_ids(uuid_prefix: Cube | str, store: StoreLike) -> set[str]:
    """Ids of the datasets under a prefix. One listing of the top level; no document is read.

    It also names datasets that a write makes and has not committed: readers do not see them yet.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube import Cube, build_cube, open_store
    >>> store = open_store("hmemory://")
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> _ = build_cube(pa.table({"PRODUCT_ID": [1], "COUNTRY_CODE": ["DE"]}), cube, store)
    >>> discover_ktk_cube_dataset_ids("sales", store)
    {'seed'}
    """
    opened = open_instrumented(store)
    return dataset_ids(prefix_of(uuid_prefix), opened)


def discover_datasets_unchecked(
    uuid_prefix: Cube | str, store: StoreLike, filter_ktk_cube_dataset_ids: Columns = None, *, as_of: AsOf | None = None
) -> dict[str, DatasetMetadata]:
    """The datasets under a prefix, by id; ``as_of`` as in `query_cube`.

    An incomplete dataset is left out, with a warning in the log.

    Examples
    --------
    >>> from kartothek_cube import open_store
    >>> discover_datasets_unchecked("sales", open_store("hmemory://"))
    {}
    """
    opened = open_instrumented(store)
    members = read_members(prefix_of(uuid_prefix), opened, filter_ktk_cube_dataset_ids, skip_broken=True, as_of=as_of)
    return DatasetMetadata.of_each(members)


def discover_datasets(
    cube: Cube | str, store: StoreLike, filter_ktk_cube_dataset_ids: Columns = None, *, as_of: AsOf | None = None
) -> dict[str, DatasetMetadata]:
    """The datasets of a valid cube, by id; ``as_of`` as in `query_cube`.

    Raises
    ------
    InvalidInput
        If a dataset in ``filter_ktk_cube_dataset_ids`` is missing, or the datasets do not fit
        together.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube import Cube, build_cube, open_store
    >>> store = open_store("hmemory://")
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> _ = build_cube(pa.table({"PRODUCT_ID": [1], "COUNTRY_CODE": ["DE"]}), cube, store)
    >>> sorted(discover_datasets(cube, store))
    ['seed']
    """
    members = load_cube(*cube_and_store(cube, store, as_of), filter_ktk_cube_dataset_ids, as_of=as_of)
    return DatasetMetadata.of_each(members)


def discover_cube(
    uuid_prefix: Cube | str, store: StoreLike, filter_ktk_cube_dataset_ids: Columns = None, *, as_of: AsOf | None = None
) -> tuple[Cube, dict[str, DatasetMetadata]]:
    """The `Cube` that the stored metadata describe, and its datasets; ``as_of`` as in `query_cube`.

    The partition indices of the datasets are loaded, the secondary indices are not.

    Raises
    ------
    InvalidInput
        If there is no seed dataset or more than one, or the datasets do not fit together. The
        message names the cubes of the store if this one is missing.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube import Cube, build_cube, open_store
    >>> store = open_store("hmemory://")
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> _ = build_cube(pa.table({"PRODUCT_ID": [1], "COUNTRY_CODE": ["DE"]}), cube, store)
    >>> discover_cube("sales", store)[0] == cube
    True
    """
    cube, members = _discover(uuid_prefix, store, filter_ktk_cube_dataset_ids, as_of)
    return cube, {i: DatasetMetadata.of(s).load_partition_indices() for i, s in members.items()}


def _discover(
    uuid_prefix: Cube | str, store: StoreLike, only: Iterable[str] | str | None, as_of: AsOf | None
) -> tuple[Cube, dict[str, Snapshot]]:
    opened, prefix = open_instrumented(store), prefix_of(uuid_prefix)
    members = read_members(prefix, opened, only, as_of=as_of)
    return valid_cube(prefix, members, opened), members


def open_cube(uuid_prefix: Cube | str, store: StoreLike, *, as_of: AsOf | None = None) -> Cube:
    """The `Cube` that the stored metadata describe.

    ``as_of`` as in `query_cube`, errors as in `discover_cube`.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube import Cube, build_cube, open_cube, open_store
    >>> store = open_store("hmemory://")
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> _ = build_cube(pa.table({"PRODUCT_ID": [1], "COUNTRY_CODE": ["DE"]}), cube, store)
    >>> open_cube("sales", store).dimension_columns
    ('PRODUCT_ID',)
    """
    return _discover(uuid_prefix, store, None, as_of)[0]


def check_datasets(datasets: Mapping[str, DatasetMetadata], cube: Cube) -> dict[str, DatasetMetadata]:
    """Check that datasets make a valid cube, and return them with their partition indices loaded.

    Raises
    ------
    InvalidInput
        If they do not. The message names the dataset and the reason.

    Examples
    --------
    >>> from kartothek_cube import Cube
    >>> check_datasets({}, Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales"))
    Traceback (most recent call last):
    kartothek_cube.errors.InvalidInput: Seed data ("seed") is missing. Datasets of the cube ...
    """
    if not isinstance(datasets, Mapping):
        raise InvalidInput(f"Expected a dict dataset id → DatasetMetadata, got {type(datasets).__name__}.")
    check_infos(infos_of({i: d.snapshot for i, d in datasets.items()}), cube)
    return {i: d.load_partition_indices() for i, d in datasets.items()}


def get_cube_payload(datasets: Mapping[str, DatasetMetadata], cube: Cube) -> set[str]:
    """All payload columns of some datasets: neither dimension nor partition columns of the cube.

    Examples
    --------
    >>> from kartothek_cube import Cube
    >>> get_cube_payload({}, Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales"))
    set()
    """
    return {c for d in datasets.values() for c in get_payload_subset(visible_columns(d.schema.names), cube)}


# --- changes --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CubeChanges:
    """What changed in a cube between two states: prints as text, is a table in notebooks.

    Attributes
    ----------
    cube : str
        The uuid prefix.
    since, until : str
        The two states.
    counts : pyarrow.Table
        Columns ``dataset``, ``inserted``, ``updated`` and ``deleted``: cells of each dataset
        itself, the seed first.
    first : pyarrow.Table
        The first changes of `query_cube_changes`.
    keys : tuple of str
        Dimension and partition columns.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube import Cube, append_to_cube, build_cube, open_store, plan_cube_query
    >>> store, cube = open_store("hmemory://"), Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> _ = build_cube(pa.table({"PRODUCT_ID": [1], "COUNTRY_CODE": ["DE"]}), cube, store)
    >>> seen = plan_cube_query(cube, store).commits
    >>> _ = append_to_cube(pa.table({"PRODUCT_ID": [2], "COUNTRY_CODE": ["FR"]}), cube, store)
    >>> describe_cube_changes(cube, store, seen).counts.to_pylist()
    [{'dataset': 'seed', 'inserted': 1, 'updated': 0, 'deleted': 0}]
    """

    cube: str
    since: str
    until: str
    counts: pa.Table
    first: pa.Table
    keys: tuple[str, ...]

    def __repr__(self) -> str:
        cells = [("dataset", *KINDS), *((name, *(f"{n:,}" for n in numbers)) for name, *numbers in self.totals())]
        widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
        lines = [
            "  ".join([name.ljust(widths[0]), *(n.rjust(width) for n, width in zip(numbers, widths[1:], strict=True))])
            for name, *numbers in cells
        ]
        return "\n  ".join([f"Changes of cube {self.cube!r} since {self.since}, until {self.until}", *lines])

    def totals(self) -> list[ChangeCounts]:
        """The rows of ``counts``."""
        return list(zip(*(column.to_pylist() for column in self.counts.columns), strict=True))

    def _repr_html_(self) -> str:
        head = Markup(
            f"<strong>Changes of cube {escape(self.cube)}</strong>"
            f'<br><span class="q">since {escape(self.since)}, until {escape(self.until)}</span>'
        )
        columns = {field.name: str(field.type) for field in self.first.schema if field.name != CHANGE_TYPE}
        return in_notebook(
            head, counts_table(self.totals()), changes_table(columns, changed_rows(self.first), self.keys)
        )


def describe_cube_changes(
    cube: Cube | str,
    store: StoreLike,
    since: CubeState,
    until: CubeState | None = None,
    *,
    rows: int = 10,
    options: Overrides | None = None,
) -> CubeChanges:
    """Count what came, went or changed in the datasets of a cube, and show the first changes.

    Cells are counted by dataset: a cell has the dimension columns of the dataset, and of several
    stored rows the newest counts. A cell that was overridden, or that moved to another partition,
    is one update. Only partitions are read for which one of the states has a file that the other
    has not.

    Parameters
    ----------
    cube, store, since, until
        As in `query_cube_changes`.
    rows : int, default 10
        The number of changes to show, of which an update has two rows.
    options : optional
        The result of `options`: settings for this call.

    Returns
    -------
    CubeChanges
        A table in notebooks; ``counts`` and ``first`` are tables of Arrow.

    Raises
    ------
    HistoryUnavailable, InvalidInput, InvalidType
        As in `query_cube_changes`.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube import Cube, append_to_cube, build_cube, open_store, plan_cube_query
    >>> from kartothek_cube import describe_cube_changes
    >>> store, cube = open_store("hmemory://"), Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> sales = pd.DataFrame({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"], "UNITS": [3, 4]})
    >>> _ = build_cube(sales, cube, store)
    >>> seen = plan_cube_query(cube, store).commits
    >>> _ = append_to_cube(sales[1:].assign(UNITS=5), cube, store)
    >>> describe_cube_changes(cube, store, seen)
    Changes of cube 'sales' since the commits of 1 dataset, until now
      dataset  inserted  updated  deleted
      seed            0        1        0
    """
    with operation("describe_cube_changes", options, cube=cube) as op:
        limit = checked_limit(rows, "rows") or 0
        changes = changes_between(*cube_and_store(cube, store, until), since, until, limit)[0]
        return op.returned(changes, lambda found: sum(map(sum, (numbers for _, *numbers in found.totals()))))


def changes_between(
    cube: Cube, store: Store, since: CubeState, until: CubeState | None, limit: int
) -> tuple[CubeChanges, tuple[StatePlan, StatePlan]]:
    """What `describe_cube_changes` returns, and the plans of the whole cube in both states."""
    then, now = load_states(cube, store, None, since, until)
    now = with_types_of(now, then)
    plans = plan_between(QueryArguments(cube), then, now, store)
    check_change_type(plans[1].plan.schema.names, f"Cube {cube.uuid_prefix!r}")
    changes = CubeChanges(
        cube=cube.uuid_prefix,
        since=state_text(since),
        until="now" if until is None else state_text(until),
        counts=_counts(cube, store, then, now),
        first=_first(plans, store, limit),
        keys=(*cube.dimension_columns, *cube.partition_columns),
    )
    return changes, plans


def _counts(cube: Cube, store: Store, then: Mapping[str, Snapshot], now: Mapping[str, Snapshot]) -> pa.Table:
    names = sorted(now, key=lambda name: (name != cube.seed_dataset, name))
    counts = np.zeros((len(KINDS), len(names)), dtype=np.int64)
    for i, name in enumerate(names):
        before = then.get(name) or without_files(now[name])
        for found in iter_dataset_changes(cube, before, now[name], store):
            counts[:, i] += [found.inserted.num_rows, found.postimages.num_rows, found.deleted.num_rows]
    return pa.table({"dataset": pa.array(names, pa.string()), **dict(zip(KINDS, counts, strict=True))})


def _first(plans: tuple[StatePlan, StatePlan], store: Store, limit: int) -> pa.Table:
    """The rows of so many changes of the whole cube."""
    taken = [changes_schema(plans[1].plan.schema).empty_table()]
    if not limit:
        return taken[0]
    with closing(iter_changes(*plans, store)) as changes:  # closed, threads read no further ahead
        while limit > 0 and (table := next(changes, None)) is not None:
            begins = pc.not_equal(table.column(CHANGE_TYPE), "update_postimage").to_numpy()
            taken.append(table.slice(0, int(np.searchsorted(np.cumsum(begins), limit, side="right"))))
            limit -= int(begins.sum())
    return pa.concat_tables(taken)

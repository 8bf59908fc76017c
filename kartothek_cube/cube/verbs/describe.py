"""List the cubes of a store, and describe one cube."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field

from kartothek_cube.core.arguments import pluralize
from kartothek_cube.core.display import Markup, details, escape, in_notebook, or_dash, show_count, spelled, table
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
from kartothek_cube.core.snapshots.statistics import statistics_of_files
from kartothek_cube.core.stores.open import open_instrumented
from kartothek_cube.core.write.layout import NO_LAYOUT, DatasetLayout, layout_of
from kartothek_cube.cube.cube import (
    KTK_CUBE_METADATA_SUPPRESS_INDEX_ON,
    Cube,
    get_payload_subset,
    prefix_of,
    visible_columns,
)
from kartothek_cube.cube.members.discovery import cube_of, list_cube_prefixes, read_members
from kartothek_cube.cube.members.tags import cube_tags
from kartothek_cube.cube.report.charts import ranges_details
from kartothek_cube.typing import AsOf, StoreLike

__all__ = ["CubeDescription", "DatasetDescription", "describe_cube", "list_cubes"]

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
            if d.layout:
                lines.append(f"  {'':<{width}}  layout: {d.layout}")
            if d.ranges:
                lines.append(f"  {'':<{width}}  {spelled(', '.join(f'{c} {r}' for c, r in d.ranges.items()))}")
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
                Markup(f'<br><span class="q">layout of {escape(d.id)}:</span> {escape(str(d.layout))}')
                for d in self.datasets
                if d.layout
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
        return _description_of(cube, members, statistics, tuple(tag.name for tag in tags))


def _description_of(
    cube: Cube, members: Mapping[str, Snapshot], statistics: Mapping[str, FileStatistics], tags: tuple[str, ...]
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

"""What there is: the cubes of a store, and one cube at a glance."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.options import Overrides, use_options
from kartothek_cube.core.stores import open_store
from kartothek_cube.cube.columns import get_payload_subset, visible_columns
from kartothek_cube.cube.cube import Cube
from kartothek_cube.cube.discovery import cube_of, list_cube_prefixes, read_members

__all__ = ["CubeDescription", "DatasetDescription", "describe_cube", "list_cubes"]


@dataclass(frozen=True, slots=True)
class DatasetDescription:
    """One dataset of a cube: columns with their types, partition keys, indices, number of files, user metadata."""

    id: str
    partition_keys: tuple[str, ...]
    files: int
    dimensions: tuple[str, ...]
    payload: Mapping[str, str]
    indices: tuple[str, ...]
    metadata: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CubeDescription:
    """A cube at a glance; prints as text, shows as a table in notebooks, and turns into JSON."""

    uuid_prefix: str
    seed_dataset: str
    dimensions: Mapping[str, str]
    partitions: Mapping[str, str]
    index_columns: tuple[str, ...]
    datasets: tuple[DatasetDescription, ...]

    def to_json(self) -> str:
        """The description as JSON."""
        return json.dumps(asdict(self), default=str, indent=2)

    def __repr__(self) -> str:
        head = [
            f"Cube {self.uuid_prefix!r}, seed {self.seed_dataset!r}",
            f"  dimensions  {_typed(self.dimensions)}",
            f"  partitions  {_typed(self.partitions)}",
            f"  indices     {', '.join(self.index_columns) or '(none)'}",
        ]
        width = max(len(d.id) for d in self.datasets)
        return "\n".join([*head, *(line for d in self.datasets for line in _dataset_lines(d, width))])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{h}</th>" for h in ("dataset", "dimensions", "partitioned by", "files", "indices", "payload"))
        rows = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in _cells(d))}</tr>" for d in self.datasets)
        caption = f"Cube <b>{html.escape(self.uuid_prefix)}</b>: dimensions {html.escape(_typed(self.dimensions))}"
        return f"<table><caption>{caption}</caption><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _typed(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{c} {t}" for c, t in columns.items()) or "(none)"


def _dataset_lines(dataset: DatasetDescription, width: int) -> list[str]:
    keys = ", ".join(dataset.partition_keys) or "nothing"
    return [
        f"  {dataset.id:<{width}}  cells by {', '.join(dataset.dimensions)}; {dataset.files:,} files, partitioned by {keys}",
        f"  {'':<{width}}  {_typed(dataset.payload)}",
    ]


def _cells(d: DatasetDescription) -> tuple[str, ...]:
    return d.id, ", ".join(d.dimensions), ", ".join(d.partition_keys), f"{d.files:,}", ", ".join(d.indices), _typed(d.payload)


def describe_cube(uuid_prefix: str, store: Any, *, as_of: Any = None, options: Overrides | None = None) -> CubeDescription:
    """A cube at a glance, from its documents and schemas alone; ``as_of`` as in `query_cube`.

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
      seed  cells by PRODUCT_ID; 2 files, partitioned by COUNTRY_CODE
            UNITS int64
    """
    with use_options(options):
        members = read_members(uuid_prefix, open_store(store), as_of=as_of)
        cube = cube_of(uuid_prefix, members)
        types = {f.name: str(f.type) for s in members.values() for f in s.schema}
        return CubeDescription(
            uuid_prefix=uuid_prefix,
            seed_dataset=cube.seed_dataset,
            dimensions={c: types[c] for c in cube.dimension_columns},
            partitions={c: types[c] for c in cube.partition_columns},
            index_columns=tuple(sorted(cube.index_columns)),
            datasets=tuple(_describe(i, s, cube) for i, s in members.items()),
        )


def _describe(name: str, snapshot: Snapshot, cube: Cube) -> DatasetDescription:
    columns = visible_columns(snapshot.schema.names)
    payload = sorted(get_payload_subset(columns, cube))
    return DatasetDescription(
        id=name,
        partition_keys=snapshot.partition_keys,
        files=len(snapshot.partitions),
        dimensions=tuple(c for c in cube.dimension_columns if c in columns),
        payload={c: str(snapshot.schema.field(c).type) for c in payload},
        indices=tuple(sorted(snapshot.secondary_columns)),
        metadata=snapshot.document.user_metadata,
    )


def list_cubes(store: Any) -> list[str]:
    """Prefixes of the cubes that a store holds; one listing of the top level.

    Examples
    --------
    >>> from kartothek_cube import open_store
    >>> list_cubes(open_store("hmemory://"))
    []
    """
    return list_cube_prefixes(open_store(store))

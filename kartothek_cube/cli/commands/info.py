"""The command `info`: shows columns, datasets and metadata of a cube."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import click

from kartothek_cube.cli.context import LoadedCube, Session, load_cube, working
from kartothek_cube.cli.options import cube_command
from kartothek_cube.cli.output import bold, section, show

__all__ = ["command", "description", "info_lines"]


@cube_command("info", "--format json")
@click.pass_obj
def command(session: Session) -> None:
    """Show columns with their types, datasets and metadata."""
    with working(session):
        info = description(load_cube(session))
    show(session, info, lambda: info_lines(info))


def description(loaded: LoadedCube) -> dict[str, Any]:
    """Columns, datasets and metadata of a cube as plain values."""
    from kartothek_cube.cube.cube import get_payload_subset, visible_columns

    cube, types = loaded.cube, loaded.types
    described = []
    for name, dataset in sorted(loaded.datasets.items()):
        # Not the types of the cube: those of the seed win there over the dataset's.
        own_types = {field.name: field.type for field in dataset.snapshot.schema}
        visible = visible_columns(dataset.snapshot.schema.names)
        described.append(
            {
                "id": name,
                "partition_keys": _columns(dataset.partition_keys, own_types),
                "partitions": len(dataset.snapshot.partitions),
                "metadata": dict(dataset.metadata),
                "dimension_columns": _columns(sorted(set(cube.dimension_columns) & set(visible)), own_types),
                "layout": str(dataset.layout) if dataset.layout else None,
                "payload_columns": _columns(sorted(get_payload_subset(visible, cube)), own_types),
            }
        )
    return {
        "uuid_prefix": cube.uuid_prefix,
        "seed_dataset": cube.seed_dataset,
        "dimension_columns": _columns(cube.dimension_columns, types),
        "partition_columns": _columns(cube.partition_columns, types),
        "index_columns": _columns(sorted(cube.index_columns), types),
        "datasets": described,
    }


def _columns(names: Iterable[str], types: Mapping[str, Any]) -> list[dict[str, str]]:
    return [{"name": name, "type": str(types[name])} for name in names]


def info_lines(info: Mapping[str, Any]) -> Iterator[str]:
    """The description as text."""
    yield section("Infos")
    yield f"{bold('UUID Prefix:')}        {info['uuid_prefix']}"
    yield from _list("Dimension Columns:", info["dimension_columns"])
    yield from _list("Partition Columns:", info["partition_columns"])
    yield from _list("Index Columns:", info["index_columns"])
    if not info["index_columns"]:
        yield ""
    yield f"{bold('Seed Dataset:')}      {info['seed_dataset']}"
    for dataset in info["datasets"]:
        yield ""
        yield section(f"Dataset: {dataset['id']}")
        yield from _list("Partition Keys:", dataset["partition_keys"])
        yield f"{bold('Partitions:')} {dataset['partitions']}"
        if dataset["layout"]:
            yield f"{bold('Layout:')} {dataset['layout']}"
        yield bold("Metadata:")
        metadata = json.dumps(dataset["metadata"], indent=2, sort_keys=True, separators=(",", ": "), default=str)
        yield from (f"  {line}" for line in metadata.splitlines())
        yield from _list("Dimension Columns:", dataset["dimension_columns"])
        yield from _list("Payload Columns:", dataset["payload_columns"])


def _list(heading: str, columns: Iterable[Mapping[str, str]]) -> Iterator[str]:
    yield bold(heading)
    yield from (f"  - {column['name']}: {column['type']}" for column in columns)

"""Shell completion of cubes, stores, datasets and columns; errors lead to no suggestions."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

import click
from click.shell_completion import CompletionItem, FishComplete, add_completion_class

from kartothek_cube.cli.context import LoadedCube, load_cube, load_dataset, open_source, session_of, store_names

__all__ = [
    "columns",
    "commits",
    "cubes",
    "dataset",
    "dataset_columns",
    "datasets",
    "directories",
    "files",
    "partition_columns",
    "stores",
]

# Commands that need no cube.
STORE_WIDE = ("check-migration", "demo", "doctor", "sql")
# As `history` shows them on a terminal.
_SHORT = 8

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def _offering(names: Callable[[click.Context], Collection[str]], *, several: bool = False) -> Completer:
    """A completer of one name, or of the last of several names that are separated by commas."""

    def complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
        head, comma, last = incomplete.rpartition(",") if several else ("", "", incomplete)
        try:
            candidates = sorted(names(ctx))
        except Exception:  # a message would garble the command line
            return []
        return [CompletionItem(f"{head}{comma}{name}") for name in candidates if name.startswith(last)]

    return complete


def _paths(path_type: str) -> Completer:
    """A completer that leaves ``file`` or ``dir`` to the shell."""
    return lambda _ctx, _parameter, incomplete: [CompletionItem(incomplete, type=path_type)]


@add_completion_class
class _Fish(FishComplete):
    """Fish, with values that contain commas: only the first comma separates type and value."""

    source_template = FishComplete.source_template.replace('string split ","', 'string split --max 1 ","')


def _cube(ctx: click.Context) -> LoadedCube:
    return load_cube(session_of(ctx.find_root().params))


@_offering
def cubes(ctx: click.Context) -> Collection[str]:
    """The cubes of the store, and the commands that take none."""
    from kartothek_cube.cube.verbs.describe import list_cubes

    return [*list_cubes(open_source(session_of(ctx.params))), *STORE_WIDE]


@partial(_offering, several=True)
def columns(ctx: click.Context) -> Collection[str]:
    """The columns of the dataset that the command line names, else of the cube."""
    from kartothek_cube.cube.cube import visible_columns

    datasets, chosen = _cube(ctx).datasets, ctx.params.get("dataset")
    snapshots = (dataset.snapshot for name, dataset in datasets.items() if chosen in (None, name))
    return {column for snapshot in snapshots for column in visible_columns(snapshot.schema.names)}


@partial(_offering, several=True)
def partition_columns(ctx: click.Context) -> Collection[str]:
    """The columns that a query can group by: those with an index."""
    loaded = _cube(ctx)
    indexed = (column for dataset in loaded.datasets.values() for column in dataset.snapshot.secondary_columns)
    return {*loaded.cube.partition_columns, *loaded.cube.index_columns, *indexed}


@partial(_offering, several=True)
def dataset_columns(ctx: click.Context) -> Collection[str]:
    """The columns of the dataset that stands in the place of the cube."""
    _, snapshot = load_dataset(session_of(ctx.find_root().params))
    return list(snapshot.schema.names)


@_offering
def commits(ctx: click.Context) -> Collection[str]:
    """The tags of the cube, and how the ids of its kept commits and writes begin."""
    from kartothek_cube.core.dataset.history import history

    loaded = _cube(ctx)
    known = (history(dataset.uuid, loaded.store) for dataset in loaded.datasets.values())
    ids = {name[:_SHORT] for table in known for column in ("commit", "cube") for name in table[column].dropna()}
    return ids | set(tag_names(loaded))


def tag_names(loaded: LoadedCube) -> list[str]:
    """The names of the tags of a cube."""
    from kartothek_cube.cube.consistent_read import cube_tags

    seed = loaded.cube.ktk_dataset_uuid(loaded.cube.seed_dataset)
    return [tag.name for tag in cube_tags(loaded.store, seed)]


tags = _offering(lambda ctx: tag_names(_cube(ctx)))
dataset = _offering(lambda ctx: _cube(ctx).datasets)
datasets = _offering(lambda ctx: _cube(ctx).datasets, several=True)
stores = _offering(lambda ctx: store_names(session_of(ctx.find_root().params).skv))
files, directories = _paths("file"), _paths("dir")

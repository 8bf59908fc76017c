"""What the shell offers when the tab key is pressed: cubes, datasets, columns.

Whatever goes wrong, it offers nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import click
from click.shell_completion import CompletionItem, FishComplete, add_completion_class

from kartothek_cube.cli.context import LoadedCube, load_cube, open_source, session_of, store_names

__all__ = ["columns", "cubes", "dataset", "datasets", "directories", "files", "partition_columns", "stores"]

STORE_WIDE = ("check-migration",)
"""Commands that need no cube."""

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def _offering(names: Callable[[click.Context], Collection[str]], *, several: bool) -> Completer:
    """A completer of one name, or of the last one of several with commas between them."""

    def complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
        head, comma, last = incomplete.rpartition(",") if several else ("", "", incomplete)
        try:
            known = sorted(names(ctx))
        except Exception:  # the shell is no place for errors
            return []
        return [CompletionItem(f"{head}{comma}{name}") for name in known if name.startswith(last)]

    return complete


def _paths(kind: str) -> Completer:
    """A completer that leaves files or directories to the shell."""
    return lambda _ctx, _parameter, incomplete: [CompletionItem(incomplete, type=kind)]


@add_completion_class
class _Fish(FishComplete):
    """Fish with values that hold commas: only the first comma parts the kind of an item from its value."""

    source_template = FishComplete.source_template.replace('string split ","', 'string split --max 1 ","')


def _cube(ctx: click.Context) -> LoadedCube:
    return load_cube(session_of(ctx.find_root().params))


def _cubes(ctx: click.Context) -> Collection[str]:
    from kartothek_cube.cube.verbs.describe import list_cubes

    return [*list_cubes(open_source(session_of(ctx.params))), *STORE_WIDE]


def _stores(ctx: click.Context) -> Collection[str]:
    return store_names(session_of(ctx.find_root().params).skv)


def _datasets(ctx: click.Context) -> Collection[str]:
    return _cube(ctx).datasets


def _columns(ctx: click.Context) -> Collection[str]:
    """Of the dataset that stands before, else of the cube."""
    from kartothek_cube.cube.cube import visible_columns

    found = _cube(ctx).datasets
    name = ctx.params.get("dataset")
    return {
        column for i, d in found.items() if name in (None, i) for column in visible_columns(d.snapshot.schema.names)
    }


def _groupable(ctx: click.Context) -> Collection[str]:
    found = _cube(ctx)
    return {
        *found.cube.partition_columns,
        *found.cube.index_columns,
        *(c for d in found.datasets.values() for c in d.snapshot.secondary_columns),
    }


cubes = _offering(_cubes, several=False)
dataset = _offering(_datasets, several=False)
datasets = _offering(_datasets, several=True)
columns = _offering(_columns, several=True)
partition_columns = _offering(_groupable, several=True)
stores = _offering(_stores, several=False)
files, directories = _paths("file"), _paths("dir")

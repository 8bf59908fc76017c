"""The command `index`: builds secondary indices on columns of a dataset."""

from __future__ import annotations

from collections.abc import Collection

import click

from kartothek_cube.cli import completion
from kartothek_cube.cli.context import Session, load_cube, working
from kartothek_cube.cli.errors import Failure
from kartothek_cube.cli.options import cube_command, is_glob, matches, missing, parts_of
from kartothek_cube.cli.output import show

__all__ = ["command", "indexable"]


@cube_command("index", "seed PRODUCT_ID,BRAND", "prices 'PRICE*'")
@click.argument("dataset", shell_complete=completion.dataset)
@click.argument("columns", shell_complete=completion.columns)
@click.pass_obj
def command(session: Session, dataset: str, columns: str) -> None:
    """Build secondary indices on columns of a dataset.

    COLUMNS are comma separated globs over the columns of DATASET. Partition keys have an index
    already: a glob passes over them, and naming one is refused.
    """
    from kartothek_cube.cube.cube import visible_columns
    from kartothek_cube.cube.verbs.maintain import build_cube_index

    with working(session):
        loaded = load_cube(session)
        if dataset not in loaded.datasets:
            raise missing("dataset", dataset, loaded.datasets)
        snapshot = loaded.datasets[dataset].snapshot
        names = indexable(columns, visible_columns(snapshot.schema.names), snapshot.partition_keys, dataset)
        if names:
            build_cube_index(loaded.cube, loaded.store, names, [dataset])
    if session.json:
        show(session, {"dataset": dataset, "columns": names}, tuple)


def indexable(pattern: str, columns: Collection[str], keys: Collection[str], dataset: str) -> list[str]:
    """The columns that a pattern names; globs skip partition keys.

    Examples
    --------
    >>> indexable("*", ["BRAND", "COUNTRY_CODE", "UNITS"], ["COUNTRY_CODE"], "seed")
    ['BRAND', 'UNITS']
    """
    named = {part for part in parts_of(pattern) if not is_glob(part)}
    named_keys = sorted(named.intersection(keys))
    if named_keys:
        raise Failure(
            f"Column {named_keys[0]} of dataset {dataset} is a partition key: it is indexed by the paths of the files."
        )
    return sorted(matches(pattern, columns, "column") - set(keys))

"""The commands `publish` and `unpublish`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from kartothek_cube.cli.context import LoadedCube, Session, complete_datasets, load_cube, missing, open_source, working
from kartothek_cube.cli.options import cube_command, yes
from kartothek_cube.cli.output import bold, confirm, show, size
from kartothek_cube.core.arguments import pluralize
from kartothek_cube.errors import KartothekCubeError

if TYPE_CHECKING:
    from kartothek_cube.api.dataset import PublishedDelta
    from kartothek_cube.core.stores.contract import Store

_datasets = click.option(
    "--dataset",
    "datasets",
    multiple=True,
    metavar="<dataset>",
    shell_complete=complete_datasets,
    help="One dataset; may be given several times.  [default: all]",
)


@cube_command("publish", "", "--dataset seed --always")
@_datasets
@click.option("--always", is_flag=True, help="After each later write, too, until `unpublish`.")
@click.pass_obj
def publish_command(session: Session, datasets: tuple[str, ...], always: bool) -> None:
    """Make Delta tables of the cube's datasets, for other engines.

    Logs are written beside the data files, which stay as they are. If the tables are there, their
    newest versions show the newest state afterwards. A dataset that belongs to no cube may stand in
    the place of the cube.
    """
    from kartothek_cube.core.dataset.delta import publish_delta
    from kartothek_cube.cube.verbs.delta import publish_cube_delta

    with working(session):
        store, loaded = _subject(session)
        if loaded is None:
            published = {session.prefix: publish_delta(session.prefix, store, always=always)}
        else:
            names = _chosen(loaded, datasets)
            published = publish_cube_delta(loaded.cube, store, datasets=names, always=always)
    show(session, {"datasets": {i: _plain(each) for i, each in published.items()}}, lambda: _lines(published))


@cube_command("unpublish", "", "--dataset seed --yes")
@_datasets
@yes
@click.pass_obj
def unpublish_command(session: Session, datasets: tuple[str, ...], yes: bool) -> None:
    """Remove the logs of the cube's Delta tables; the data stay.

    Other engines do not find the tables any more. On a terminal it asks before.
    """
    from kartothek_cube.core.dataset.delta import unpublish_delta

    with working(session):
        store, loaded = _subject(session)
        uuids = [session.prefix]
        if loaded is not None:
            uuids = [loaded.datasets[name].uuid for name in _chosen(loaded, datasets)]
        confirm(f"Remove the logs of {pluralize(len(uuids), 'Delta table')} of {session.prefix}?", store, yes=yes)
        for uuid in uuids:
            unpublish_delta(uuid, store)
    show(session, {"unpublished": uuids}, tuple)


def _subject(session: Session) -> tuple[Store, LoadedCube | None]:
    """The store, and the cube, None if a dataset stands in its place."""
    from kartothek_cube.core.snapshots.loader import find_snapshot

    store = None
    try:
        store = open_source(session)
        is_dataset = find_snapshot(store, session.prefix) is not None
    except KartothekCubeError:  # the cube cannot be loaded either, which says why
        is_dataset = False
    if is_dataset and store is not None:
        return store, None
    loaded = load_cube(session)
    return loaded.store, loaded


def _chosen(loaded: LoadedCube, datasets: tuple[str, ...]) -> list[str]:
    for name in datasets:
        if name not in loaded.datasets:
            raise missing("dataset", name, loaded.datasets)
    return sorted(datasets or loaded.datasets)


def _plain(published: PublishedDelta) -> dict[str, Any]:
    names = ("version", "commit", "added", "removed", "bytes")
    return {name: getattr(published, name) for name in names}


def _lines(published: Mapping[str, PublishedDelta]) -> Iterator[str]:
    for name, each in published.items():
        done = f"{pluralize(each.added, 'file')} added, {each.removed:,} removed, {size(each.bytes)} of log"
        yield f"{bold(f'{name}:')} version {each.version}, {done if each.bytes else 'published already'}"

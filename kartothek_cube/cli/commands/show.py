"""Commands that show: `info`, `files`, `stats`, `explain`, `report`, and the list of cubes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import click

from kartothek_cube.cli.context import (
    LoadedCube,
    Session,
    complete_commits,
    complete_files,
    escaped,
    known_commit,
    load_cube,
    loading,
    missing_directory,
    open_source,
    whole_commit,
    working,
)
from kartothek_cube.cli.options import conditions_of, cube_command, patterns, plan_of, question, select_names, where
from kartothek_cube.cli.output import bold, document, figure, place_of, section, show, size, write_page
from kartothek_cube.core.arguments import pluralize


@cube_command("info", "--format json")
@click.pass_obj
def info_command(session: Session) -> None:
    """Show columns with their types, datasets and metadata."""
    with working(session):
        info = description(load_cube(session))
    show(session, info, lambda: info_lines(info))


def description(loaded: LoadedCube) -> dict[str, Any]:
    """Columns, datasets and metadata of a cube as plain values."""
    from kartothek_cube.core.delta.publication import describe_publication
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
                "delta": describe_publication(loaded.store, dataset.snapshot),
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
        if dataset["delta"]:
            yield f"{bold('Delta table:')} {dataset['delta']}"
        yield bold("Metadata:")
        metadata = json.dumps(dataset["metadata"], indent=2, sort_keys=True, separators=(",", ": "), default=str)
        yield from (f"  {line}" for line in metadata.splitlines())
        yield from _list("Dimension Columns:", dataset["dimension_columns"])
        yield from _list("Payload Columns:", dataset["payload_columns"])


def _list(heading: str, columns: Iterable[Mapping[str, str]]) -> Iterator[str]:
    yield bold(heading)
    yield from (f"  - {column['name']}: {column['type']}" for column in columns)


def show_cubes(session: Session) -> None:
    """One cube a line; the exit status is 2 if there is no such store.

    Without a cube, the datasets of the store are named.
    """
    from kartothek_cube.core.arguments import join_names
    from kartothek_cube.core.dataset.maintain import list_datasets
    from kartothek_cube.cube.verbs.describe import list_cubes

    store = open_source(session)
    with working(session):
        prefixes = list_cubes(store)
        datasets = [] if prefixes or session.json else list_datasets(store)
    missing = missing_directory(store)
    # On stderr, since stdout has one name a line.
    if not prefixes and not session.json:
        also = f" Datasets of this store: {join_names(datasets)}." if datasets else ""
        click.echo(escaped(f"There is no cube in this store.{also}{missing}"), err=True)
    show(session, {"cubes": prefixes}, lambda: prefixes)
    if missing:
        click.get_current_context().exit(2)


@cube_command("files", "", "--where 'COUNTRY_CODE == DE' --include seed")
@where
@patterns("listed")
@click.pass_obj
def files_command(session: Session, where: tuple[str, ...], include: str | None, exclude: str | None) -> None:
    """List the data files of the cube, or of a query.

    With --where only those that a query with these conditions would read.
    """
    with working(session):
        loaded = load_cube(session)
        names = select_names(loaded.datasets, include, exclude)
        if where:
            from kartothek_cube.cube.verbs.read import plan_cube_query

            keys = plan_cube_query(loaded.cube, loaded.store, conditions_of(where, loaded)).files()
        else:
            keys = {name: dataset.snapshot.files.to_pylist() for name, dataset in loaded.datasets.items()}
        files = {}
        for name in names:
            if name in keys:
                entries = loaded.store.list(f"{loaded.datasets[name].uuid}/", recursive=True).entries
                sizes = {entry.key: entry.size for entry in entries}
                files[name] = [{"key": key, "bytes": sizes.get(key)} for key in keys[name]]
    show(session, {"datasets": files}, lambda: files_lines(files))


def files_lines(datasets: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[str]:
    """One line a file."""
    for name, files in datasets.items():
        yield f"{bold(f'{name}:')} {pluralize(len(files), 'file')}, {size(sum(file['bytes'] or 0 for file in files))}"
        yield from (
            f"  - {file['key']}  {'missing' if file['bytes'] is None else size(file['bytes'])}" for file in files
        )


@cube_command("explain", "--where 'BRAND == Acme & WEEK >= 10'")
@question
@click.pass_obj
def explain_command(
    session: Session, where: tuple[str, ...], columns: str | None, by: str | None, as_of: str | None
) -> None:
    """Show how a query would be answered.

    No data is read, but for the footers of the files.
    """
    with working(session):
        cube = load_cube(session)
        explained = plan_of(cube, where, columns, by, as_of).explain("json" if session.json else "text", cube.store)
    show(session, json.loads(explained) if session.json else None, explained.splitlines)


@cube_command("report", "--output sales.html", "--changed-since 2024-01-31")
@click.option(
    "--changed-since",
    metavar="<commit or time>",
    shell_complete=complete_commits,
    help="Show what changed since a commit, or how its id begins, or a time.",
)
@click.option(
    "--output",
    metavar="<file>",
    shell_complete=complete_files,
    help="The file, or - for stdout. An existing file is replaced.  [default: CUBE.html]",
)
@click.pass_obj
def report_command(session: Session, changed_since: str | None, output: str | None) -> None:
    """Write what there is to see of the cube as one HTML page.

    A damaged cube has one, too.
    """
    from kartothek_cube.cube.verbs.report import cube_report

    # Checked first: the report of a large cube takes a while.
    path = None if output == "-" else place_of(output or f"{session.prefix}.html")
    with working(session), loading(session) as store:
        since = whole_commit(changed_since, lambda text: known_commit(load_cube(session), text))
        page = cube_report(session.prefix, store, changed_since=since)
    if path is None:
        click.echo(document({"html": page}) if session.json else page)
        return
    write_page(path, page)
    show(session, {"file": str(path)}, lambda: (str(path),))


# Rows and partitions of different datasets do not add up.
_TOTAL = ("blobsize", "files")


@cube_command("stats", "--exclude 'forecast_*'")
@patterns("scanned")
@click.pass_obj
def stats_command(session: Session, include: str | None, exclude: str | None) -> None:
    """Count partitions, files, bytes and rows of each dataset.

    Rows are the stored ones, also those that newer files override. A query, and a cube's table in
    SQL, has one row for each cell.
    """
    from kartothek_cube.cube.verbs.maintain import collect_stats

    with working(session):
        loaded = load_cube(session)
        stats = collect_stats(loaded.cube, loaded.store, select_names(loaded.datasets, include, exclude))
    show(session, {"datasets": stats, "total": total_of(stats)}, lambda: stats_lines(stats))


def total_of(stats: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """Sums over all datasets."""
    return {name: sum(figures[name] for figures in stats.values()) for name in _TOTAL}


def stats_lines(stats: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    """The figures as text."""
    for name in sorted(stats):
        yield section(name)
        yield from (figure(key, stats[name][key]) for key in sorted(stats[name]))
        yield ""
    if not stats:
        yield ""
    yield section("__total__")
    yield from (figure(key, number) for key, number in sorted(total_of(stats).items()))

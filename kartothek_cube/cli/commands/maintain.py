"""The commands that look after a cube: `cleanup`, `compact`, `verify`, `publish` and others."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import asdict, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from kartothek_cube.cli.context import (
    Failure,
    LoadedCube,
    Session,
    complete_columns,
    complete_dataset,
    complete_datasets,
    escaped,
    is_glob,
    load_cube,
    loading,
    missing,
    missing_directory,
    open_source,
    working,
)
from kartothek_cube.cli.options import (
    Duration,
    chosen_datasets,
    conditions_of,
    cube_command,
    dry_run,
    matches,
    parts_of,
    patterns,
    where,
    yes,
)
from kartothek_cube.cli.output import bold, confirm, red, show, size
from kartothek_cube.core.arguments import pluralize
from kartothek_cube.errors import KartothekCubeError

if TYPE_CHECKING:
    from kartothek_cube.api.cube import CleanupReport, MigrationReport, Verdict
    from kartothek_cube.api.dataset import CompactionReport, Finding, PublishedDelta, VerifyReport
    from kartothek_cube.core.runtime.options import Overrides
    from kartothek_cube.core.stores.contract import Entry, Store
    from kartothek_cube.cube.verbs.verify import Outcome, Weight


_OF_LIBRARY = re.compile(r"options\((\w+)=[^)]*\)")


@cube_command("cleanup", "--dry-run", "--grace 12h --retain 30d --yes")
@click.option(
    "--grace", type=Duration(), help="Age below which files stay, as a running write may need them.  [default: 1d]"
)
@click.option(
    "--retain", type=Duration(), help="How long replaced files stay for readers of older states.  [default: 7d]"
)
@dry_run("Only list what would be removed, and what waits.")
@yes
@click.pass_obj
def cleanup_command(
    session: Session, grace: timedelta | None, retain: timedelta | None, dry_run: bool, yes: bool
) -> None:
    """Remove files that the cube does not need any more.

    They are named by no dataset, nor by the history that is kept. On a terminal it asks before;
    without one it does not.
    """
    from kartothek_cube.core.runtime.options import options

    with working(session):
        loaded = load_cube(session)
    ages: dict[str, Any] = {name: age for name, age in (("grace", grace), ("retain", retain)) if age is not None}
    settings = options(**ages)
    if dry_run:
        report = description(_clean_up(session, loaded, settings, dry_run=True))
        show(session, report, lambda: cleanup_lines(report))
        return
    if not yes and sys.stdin.isatty():
        # The question names the number of files, which a dry run finds.
        planned = _clean_up(session, loaded, settings, dry_run=True)
        if planned.removed:
            files = f"{pluralize(len(planned.removed), 'file')} ({size(planned.bytes)})"
            confirm(f"Remove {files} of cube {session.prefix}?", loaded.store, yes=yes)
    removed = _clean_up(session, loaded, settings, dry_run=False)
    if session.json:
        show(session, description(removed), tuple)


def _clean_up(session: Session, loaded: LoadedCube, settings: Overrides, *, dry_run: bool) -> CleanupReport:
    from kartothek_cube.cube.verbs.maintain import cleanup_cube

    with working(session), settings:
        return cleanup_cube(loaded.cube, loaded.store, dry_run=dry_run)


def description(report: CleanupReport) -> dict[str, Any]:
    """A report as plain values, with options of the library named as those of the command."""
    return {
        "dry_run": report.dry_run,
        "removed": [_file(e) for e in report.removed],
        "waiting": [_file(e) for e in report.waiting],
    }


def _file(entry: Entry) -> dict[str, Any]:
    why = _OF_LIBRARY.sub(r"--\1", getattr(entry, "why", None) or "")
    return {"key": entry.key, "bytes": entry.size, "why": why or None}


def cleanup_lines(report: Mapping[str, Any]) -> Iterator[str]:
    """The files that would be removed, and those that wait, as text."""
    for heading, files in (("Would be removed:", report["removed"]), ("Waits:", report["waiting"])):
        total = sum(file["bytes"] or 0 for file in files)
        yield f"{bold(heading)} {pluralize(len(files), 'file')}, {size(total)}"
        yield from (f"  - {file['key']}  {size(file['bytes'] or 0)}  {file['why'] or ''}".rstrip() for file in files)


# The fields of a report that the JSON document shows.
_FIELDS = (
    "files_before",
    "files_after",
    "rows_before",
    "rows_after",
    "bytes_before",
    "bytes_after",
    "partitions",
    "commit",
)


@cube_command("compact", "--dry-run", "--where 'WEEK >= 10' --target_rows 5000000")
@click.option(
    "--target_rows",
    type=click.IntRange(min=1),
    default=1_000_000,
    show_default=True,
    help="Most rows of a merged file.",
    metavar="N",
)
@click.option(
    "--sort-by",
    metavar="COLUMNS",
    shell_complete=complete_columns,
    help="Sort the rows of each partition by these columns, comma-separated, across its files.",
)
@click.option(
    "--zorder-by",
    metavar="COLUMNS",
    shell_complete=complete_columns,
    help="Put the rows of each partition in Z-order of these columns, comma-separated.",
)
@click.option(
    "--rewrite",
    is_flag=True,
    help="Write every file anew: in the layout on record, without old values of dropped columns.",
)
@where
@patterns("compacted")
@dry_run()
@click.pass_obj
def compact_command(
    session: Session,
    target_rows: int,
    sort_by: str | None,
    zorder_by: str | None,
    rewrite: bool,
    where: tuple[str, ...],
    include: str | None,
    exclude: str | None,
    dry_run: bool,
) -> None:
    """Merge small files into larger ones.

    Every query answers as before. With --where only the partitions in which the conditions on
    partition columns hold. With --sort-by or --zorder-by files of any size are rewritten, if their
    rows are not in this order yet. The old files become garbage, which `cleanup` removes.
    """
    from kartothek_cube.cube.verbs.maintain import compact_cube

    with working(session):
        loaded = load_cube(session)
        # None: all datasets, or those that have the columns of the conditions.
        names: list[str] | None = None
        if include is not None or exclude is not None:
            names = chosen_datasets(loaded.datasets, include, exclude)
        conditions = conditions_of(where, loaded) if where else None
        reports: Mapping[str, CompactionReport] = {}
        if names != []:
            sort, curve = (None if columns is None else parts_of(columns) for columns in (sort_by, zorder_by))
            what = target_rows, conditions, names, dry_run
            reports = compact_cube(loaded.cube, loaded.store, *what, sort_by=sort, zorder_by=curve, rewrite=rewrite)
    datasets = {name: {field: getattr(report, field) for field in _FIELDS} for name, report in reports.items()}
    result = {"dry_run": dry_run, "datasets": datasets}
    show(session, result, lambda: compaction_lines(result))


def compaction_lines(result: Mapping[str, Any]) -> Iterator[str]:
    """One line a dataset."""
    verb = "would be merged into" if result["dry_run"] else "merged into"
    for name, report in result["datasets"].items():
        if not report["files_before"]:
            yield f"{bold(f'{name}:')} nothing to do"
            continue
        files = f"{pluralize(report['files_before'], 'file')} {verb} {report['files_after']:,}"
        after = "" if report["bytes_after"] is None else f" → {size(report['bytes_after'])}"
        yield f"{bold(f'{name}:')} {files}, {report['rows_before']:,} rows, {size(report['bytes_before'])}{after}"


@cube_command("index", "seed PRODUCT_ID,BRAND", "prices 'PRICE*'")
@click.argument("dataset", shell_complete=complete_dataset)
@click.argument("columns", shell_complete=complete_columns)
@click.pass_obj
def index_command(session: Session, dataset: str, columns: str) -> None:
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


# --- what is wrong with a cube, and which data of kartothek reads differently here ----------------


@cube_command("verify", "--deep")
@click.option("--deep", is_flag=True, help="Read the data, too.")
@click.pass_context
def verify_command(ctx: click.Context, deep: bool) -> None:
    """Say what is wrong with the cube.

    The exit status is 1 if there are errors: answers would be wrong, or reading fails. Nothing is
    changed.
    """
    from kartothek_cube.cube.verbs.verify import verify_cube

    session: Session = ctx.obj
    with working(session), loading(session) as store:
        report = verify_cube(session.prefix, store, deep)
    show(session, report.to_dict(), lambda: repr(with_commands(report, session.prefix)).splitlines())
    if not report.ok:
        ctx.exit(1)


def with_commands(report: VerifyReport, prefix: str) -> VerifyReport:
    """The report with commands instead of calls for repairs, where there is such a command."""
    return replace(report, findings=tuple(replace(finding, mend=_mend(finding, prefix)) for finding in report.findings))


def _mend(finding: Finding, prefix: str) -> str:
    from kartothek_cube.core.maintenance.verify_checks import rebuild

    name, column = finding.dataset.removeprefix(f"{prefix}++"), finding.column
    # Commands name datasets of the cube, so a finding of the cube itself keeps its call.
    if not finding.mend or name == finding.dataset:
        return finding.mend
    if finding.check == "garbage":
        return shlex.join(["kartothek_cube", prefix, "cleanup"])
    if finding.check == "overridden-cells":
        return shlex.join(["kartothek_cube", prefix, "compact", "--include", name])
    is_index = column is not None and finding.mend == rebuild(finding.dataset, column)
    # Globs and commas have a meaning in the argument of `index`.
    if column is not None and is_index and not is_glob(column) and "," not in column:
        return shlex.join(["kartothek_cube", prefix, "index", name, column])
    return finding.mend


def with_options(report: MigrationReport) -> MigrationReport:
    """The report with the option of the command instead of the argument of the verb."""

    def renamed(verdict: Verdict) -> Verdict:
        remarks = (replace(remark, text=remark.text.replace("deep=True", "--deep")) for remark in verdict.remarks)
        return replace(verdict, remarks=tuple(remarks))

    return replace(report, verdicts=tuple(map(renamed, report.verdicts)))


_MARKS: Mapping[Weight, str] = {"note": "·", "difference": "≠", "error": "✗"}
_WORDS: Mapping[Outcome, str] = {
    "equal": "reads equally",
    "different": "reads differently",
    "unreadable": "cannot be read",
}


def lines(report: MigrationReport) -> Iterator[str]:
    """The verdicts as text."""
    for verdict in report.verdicts:
        word = _WORDS[verdict.outcome]
        yield f"{bold(f'{verdict.kind} {verdict.name}:')} {red(word) if verdict.outcome == 'unreadable' else word}"
        # Often one text holds for many columns, e.g. narrow types: one line names them all.
        columns: dict[tuple[Weight, str, str], list[str]] = {}
        for remark in verdict.remarks:
            names = columns.setdefault((remark.weight, remark.check, remark.text), [])
            if remark.column:
                names.append(remark.column)
        for (weight, check, text), names in columns.items():
            shown = f" [{', '.join(names)}]" if names else ""
            yield f"  {_MARKS[weight]} {check}{shown}: {text}"
    if any(verdict.remarks for verdict in report.verdicts):
        yield "≠ another answer than in kartothek, · good to know, ✗ cannot be read. Nothing was changed."
    counts = report.counts
    yield f"{counts['equal']:,} read equally, {counts['different']:,} differently, {counts['unreadable']:,} not at all."


@cube_command("check-migration", "--deep")
@click.option(
    "--deep",
    is_flag=True,
    help="Read the data, too; without it the first file of each dataset tells the widths of its numbers.",
)
@click.pass_context
def check_migration_command(ctx: click.Context, deep: bool) -> None:
    """Report which kartothek data reads differently here.

    Every dataset and every cube of the store, or those of CUBE, read equally, differently or not at
    all. Each difference names the page of the documentation that tells of it. Nothing is changed.
    The exit status is 1 if something cannot be read.
    """
    from kartothek_cube.cube.verbs.verify import check_migration

    session: Session = ctx.obj
    with working(session), loading(session) if session.cube else nullcontext(open_source(session)) as store:
        report = with_options(check_migration(store, session.cube, deep))
    missing = missing_directory(store)
    if not report.verdicts and not session.json:
        click.echo(escaped(f"There is no dataset in this store.{missing}"), err=True)
    show(session, report.to_dict(), lambda: lines(report))
    if missing or not report.ok:
        ctx.exit(2 if missing else 1)


# --- Delta tables ---------------------------------------------------------------------------------


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
    from kartothek_cube.core.dataset.maintain import publish_delta
    from kartothek_cube.cube.verbs.maintain import publish_cube_delta

    with working(session):
        store, loaded = published_subject(session)
        if loaded is None:
            published = {session.prefix: publish_delta(session.prefix, store, always=always)}
        else:
            names = datasets_of(loaded, datasets)
            published = publish_cube_delta(loaded.cube, store, datasets=names, always=always)
    plain = {name: asdict(each) for name, each in published.items()}
    show(session, {"datasets": plain}, lambda: published_lines(published))


@cube_command("unpublish", "", "--dataset seed --yes")
@_datasets
@yes
@click.pass_obj
def unpublish_command(session: Session, datasets: tuple[str, ...], yes: bool) -> None:
    """Remove the logs of the cube's Delta tables; the data stay.

    Other engines do not find the tables any more. On a terminal it asks before.
    """
    from kartothek_cube.core.dataset.maintain import unpublish_delta

    with working(session):
        store, loaded = published_subject(session)
        uuids = [session.prefix]
        if loaded is not None:
            uuids = [loaded.datasets[name].uuid for name in datasets_of(loaded, datasets)]
        confirm(f"Remove the logs of {pluralize(len(uuids), 'Delta table')} of {session.prefix}?", store, yes=yes)
        for uuid in uuids:
            unpublish_delta(uuid, store)
    show(session, {"unpublished": uuids}, tuple)


def published_subject(session: Session) -> tuple[Store, LoadedCube | None]:
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


def datasets_of(loaded: LoadedCube, datasets: tuple[str, ...]) -> list[str]:
    """The datasets that were named, by default all."""
    for name in datasets:
        if name not in loaded.datasets:
            raise missing("dataset", name, loaded.datasets)
    return sorted(datasets or loaded.datasets)


def published_lines(published: Mapping[str, PublishedDelta]) -> Iterator[str]:
    """One line a dataset."""
    for name, each in published.items():
        done = f"{pluralize(each.added, 'file')} added, {each.removed:,} removed, {size(each.bytes)} of log"
        yield f"{bold(f'{name}:')} version {each.version}, {done if each.bytes else 'published already'}"

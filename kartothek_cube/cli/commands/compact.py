"""The command `compact`: merges small files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from kartothek_cube.cli import completion
from kartothek_cube.cli.context import Session, load_cube, working
from kartothek_cube.cli.options import chosen_datasets, cube_command, dry_run, parts_of, patterns
from kartothek_cube.cli.output import bold, show, size
from kartothek_cube.cli.query.questions import conditions_of, where
from kartothek_cube.core.arguments import pluralize

if TYPE_CHECKING:
    from kartothek_cube.api.dataset import CompactionReport

__all__ = ["command", "compaction_lines"]

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
    shell_complete=completion.columns,
    help="Sort the rows of each partition by these columns, comma-separated, across its files.",
)
@click.option(
    "--zorder-by",
    metavar="COLUMNS",
    shell_complete=completion.columns,
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
def command(
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

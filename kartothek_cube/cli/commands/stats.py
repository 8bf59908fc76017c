"""The command `stats`: counts partitions, files, bytes and rows of the datasets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import click

from kartothek_cube.cli.context import Session, load_cube, working
from kartothek_cube.cli.options import chosen, cube_command, patterns
from kartothek_cube.cli.output import figure, section, show

__all__ = ["command", "stats_lines", "total_of"]

# Rows and partitions of different datasets do not add up.
_TOTAL = ("blobsize", "files")


@cube_command("stats", "--exclude 'forecast_*'")
@patterns("scanned")
@click.pass_obj
def command(session: Session, include: str | None, exclude: str | None) -> None:
    """Count partitions, files, bytes and rows of each dataset.

    Rows are the stored ones, also those that newer files override. A query, and a cube's table in
    SQL, has one row for each cell.
    """
    from kartothek_cube.cube.verbs.maintain import collect_stats

    with working(session):
        loaded = load_cube(session)
        stats = collect_stats(loaded.cube, loaded.store, chosen(loaded.datasets, include, exclude))
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

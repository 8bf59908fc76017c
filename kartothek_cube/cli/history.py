"""The command `history`: the commits of the datasets of a cube."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import click

from kartothek_cube.cli import completion
from kartothek_cube.cli.output import show, table
from kartothek_cube.cli.parameters import cube_command
from kartothek_cube.cli.patterns import missing
from kartothek_cube.cli.progress import working
from kartothek_cube.cli.session import LoadedCube, Session, load_cube

__all__ = ["command", "commits_of", "history_lines"]

_HEAD = ("time", "dataset", "commit", "added", "removed", "cube", "kept")


@cube_command("history")
@click.argument("dataset", required=False, shell_complete=completion.dataset)
@click.pass_obj
def command(session: Session, dataset: str | None) -> None:
    """List the commits that can be read or undone.

    The newest first; of one DATASET, or of all. Commits of one write to several datasets share the id in the column `cube`.
    """
    with working(session):
        commits = commits_of(load_cube(session), dataset)
    show(session, {"commits": commits}, lambda: history_lines(commits))


def commits_of(loaded: LoadedCube, dataset: str | None) -> list[dict[str, Any]]:
    """The known commits of one dataset or of all, the newest first.

    Raises
    ------
    Failure
        If there is no such dataset.
    """
    from kartothek_cube.core.dataset.history import history

    if dataset is not None and dataset not in loaded.datasets:
        raise missing("dataset", dataset, loaded.datasets)
    names = sorted(loaded.datasets) if dataset is None else [dataset]
    found = [_row(name, row) for name in names for row in history(loaded.datasets[name].uuid, loaded.store).to_dict("records")]
    return sorted(found, key=lambda row: row["time"] or "", reverse=True)


def _row(dataset: str, row: Mapping[Any, Any]) -> dict[str, Any]:
    import pandas as pd

    values = {name: None if pd.isna(row[name]) else row[name] for name in ("time", "commit", "parent", "added", "removed", "cube", "kept")}
    numbers = {name: int(row[name]) for name in ("added", "removed") if values[name] is not None}
    time = None if values["time"] is None else values["time"].isoformat()
    return {"dataset": dataset, **values, **numbers, "time": time, "kept": bool(values["kept"])}


def history_lines(commits: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """A table of commits."""
    yield from table(_HEAD, ([_cell(commit[name]) for name in _HEAD] for commit in commits), right=("added", "removed"))


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)

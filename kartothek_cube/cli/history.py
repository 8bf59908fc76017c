"""The command `history`: the commits of the datasets of a cube."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import click

from kartothek_cube.cli import completion
from kartothek_cube.cli.failures import Failure
from kartothek_cube.cli.output import show, table
from kartothek_cube.cli.parameters import cube_command
from kartothek_cube.cli.patterns import missing
from kartothek_cube.cli.progress import working
from kartothek_cube.cli.session import LoadedCube, Session, load_cube

__all__ = ["command", "commits_of", "history_lines", "resolved", "shortened"]

_SHORTEST, _SHORT = 4, 8
_HEAD = ("time", "dataset", "commit", "added", "removed", "cube", "kept")


@cube_command("history", "", "seed --format json")
@click.argument("dataset", required=False, shell_complete=completion.dataset)
@click.pass_obj
def command(session: Session, dataset: str | None) -> None:
    """List the commits that can be read or undone.

    The newest first; of one DATASET, or of all. Commits of one write to several datasets share the id in the column `cube`. On a terminal ids are cut short;
    `undo` and --as-of take the beginning of an id as well.
    """
    with working(session):
        commits = commits_of(load_cube(session), dataset)
    show(session, {"commits": commits}, lambda: history_lines(shortened(commits) if sys.stdout.isatty() else commits))


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


def resolved(commits: Iterable[Mapping[str, Any]], text: str) -> str:
    """The id of the one commit, or write to the cube, that a text begins.

    Raises
    ------
    Failure
        If there is none, or more than one.

    Examples
    --------
    >>> resolved([{"commit": "0f1e2d3c", "cube": None}, {"commit": "0f1e9a8b", "cube": "77aa0011"}], "0f1e2")
    '0f1e2d3c'
    """
    known = {name for row in commits for name in (row["commit"], row["cube"]) if name is not None}
    found = sorted(name for name in known if name.startswith(text)) if len(text) >= _SHORTEST else []
    if text in known or len(found) == 1:
        return text if text in known else found[0]
    if found:
        raise Failure(f"Several commits begin with {text}: {', '.join(found)}.")
    raise Failure(f"Could not find commit {text}; `history` lists those that are kept.")


def shortened(commits: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The commits as a terminal shows them: times to the second, and no more of the ids than tells them apart.

    Examples
    --------
    >>> row = {"time": "2024-05-01T12:00:00.123456+00:00", "commit": "0f1e2d3c4b5a69788796a5b4c3d2e1f0", "cube": None}
    >>> shortened([row])
    [{'time': '2024-05-01T12:00:00Z', 'commit': '0f1e2d3c', 'cube': None}]
    """
    ids = {row[name] for row in commits for name in ("commit", "cube") if row[name] is not None}
    length = next((n for n in range(_SHORT, 32) if len({name[:n] for name in ids}) == len(ids)), 32)
    return [{**row, "time": _seconds(row["time"]), **{name: row[name] and row[name][:length] for name in ("commit", "cube")}} for row in commits]


def _seconds(time: str | None) -> str | None:
    return time and datetime.fromisoformat(time).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _row(dataset: str, row: Mapping[Any, Any]) -> dict[str, Any]:
    import pandas as pd

    values = {name: None if pd.isna(row[name]) else row[name] for name in ("time", "commit", "parent", "added", "removed", "cube", "kept")}
    numbers = {name: int(row[name]) for name in ("added", "removed") if values[name] is not None}
    time = None if values["time"] is None else values["time"].isoformat()
    return {"dataset": dataset, **values, **numbers, "time": time, "kept": bool(values["kept"])}


def history_lines(commits: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """A table of commits."""
    yield from table(_HEAD, ([_cell(commit[name]) for name in _HEAD] for commit in commits), right=("added", "removed"))


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)

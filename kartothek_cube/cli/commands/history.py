"""The command `history`: lists the writes to a cube, or the commits of one of its datasets."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from kartothek_cube.cli import completion
from kartothek_cube.cli.context import LoadedCube, Session, load_cube, working
from kartothek_cube.cli.errors import Failure
from kartothek_cube.cli.options import cube_command, missing
from kartothek_cube.cli.output import show, table

if TYPE_CHECKING:
    from kartothek_cube.core.stores.contract import Store

__all__ = [
    "command",
    "commits_in",
    "commits_of",
    "history_lines",
    "known_commit",
    "plain_row",
    "resolved",
    "shortened",
    "whole_commit",
    "writes_of",
]

_SHORTEST, _SHORT = 4, 8
_HEX = re.compile("[0-9a-f]+")
_COLUMNS = ("time", "commit", "parent", "added", "removed", "cube", "kept", "tags")
_HEAD = ("time", "dataset", "commit", "added", "removed", "cube", "kept", "tags")
_HEAD_OF_CUBE = ("time", "datasets", "commit", "added", "removed", "tags", "kept")


@cube_command("history", "", "seed --format json")
@click.argument("dataset", required=False, shell_complete=completion.dataset)
@click.pass_obj
def command(session: Session, dataset: str | None) -> None:
    """List the writes to the cube, or the commits of one DATASET.

    The newest first; those that are kept can be read and undone. A write to several datasets is one
    row; in the history of a DATASET its id is in the column `cube`. On a terminal ids are cut
    short; `undo` and --as-of take the beginning of an id as well. What has a tag is kept as long as
    it has one.
    """
    with working(session):
        loaded = load_cube(session)
        commits = list(writes_of(loaded)) if dataset is None else commits_of(loaded, dataset)
    show(session, {"commits": commits}, lambda: history_lines(shortened(commits) if sys.stdout.isatty() else commits))


def writes_of(loaded: LoadedCube) -> Iterator[dict[str, Any]]:
    """The known writes to the cube as plain values, the newest first."""
    from kartothek_cube.cube.verbs.history import cube_history

    for row in cube_history(loaded.cube, loaded.store).to_dict("records"):
        yield plain_row(row, _HEAD_OF_CUBE)


def commits_of(loaded: LoadedCube, dataset: str | None) -> list[dict[str, Any]]:
    """The kept commits of one dataset or of all, the newest first.

    Raises
    ------
    Failure
        If the dataset does not exist.
    """
    if dataset is not None and dataset not in loaded.datasets:
        raise missing("dataset", dataset, loaded.datasets)
    names = sorted(loaded.datasets) if dataset is None else [dataset]
    rows = [
        {"dataset": name, **commit} for name in names for commit in commits_in(loaded.datasets[name].uuid, loaded.store)
    ]
    return sorted(rows, key=lambda row: row["time"] or "", reverse=True)


def commits_in(dataset_uuid: str, store: Store) -> Iterator[dict[str, Any]]:
    """The kept commits of a dataset as plain values."""
    from kartothek_cube.core.dataset.history import history

    for row in history(dataset_uuid, store).to_dict("records"):
        yield plain_row(row, _COLUMNS)


def plain_row(row: Mapping[Any, Any], columns: Sequence[str]) -> dict[str, Any]:
    """A row of a history as values of JSON."""
    import pandas as pd

    known = {column: row[column] for column in columns if isinstance(row[column], list) or not pd.isna(row[column])}
    # pandas turns a column of integers with gaps into floats with NaN.
    known |= {column: int(known[column]) for column in ("added", "removed") if column in known}
    known |= {"kept": bool(known.get("kept"))}
    if "time" in known:
        known["time"] = known["time"].isoformat()
    return {**dict.fromkeys(columns), **known}


def whole_commit(as_of: str | None, find: Callable[[str], str]) -> str | None:
    """The value of ``--as-of``, with the id of a commit in full where only its beginning is given.

    ``find`` looks for the id.

    Raises
    ------
    Failure
        If it can only be the beginning of an id, and is none, or of several.
    """
    from kartothek_cube.core.metadata.tag import may_be_tag
    from kartothek_cube.core.snapshots.time_travel import check_as_of

    # What is shorter than an id of 32 characters, and no time, may be the beginning of an id.
    if as_of is None or len(as_of) >= 32 or isinstance(check_as_of(as_of), datetime) or not _HEX.fullmatch(as_of):
        return as_of
    try:
        return find(as_of)
    except Failure as error:
        if may_be_tag(as_of):  # a short one
            return as_of
        raise Failure(f"{error.message} A time is written as 2024-01-31 or 2024-01-31T12:00.") from error


def known_commit(loaded: LoadedCube, text: str, dataset: str | None = None) -> str:
    """The id of a commit of one dataset, or of all, whose beginning may be given.

    Raises
    ------
    Failure
        As of `resolved`; if a commit is not found, it says where another library ended a history.
    """
    from kartothek_cube.core.snapshots.time_travel import foreign_commits

    snapshots = [each.snapshot for name, each in loaded.datasets.items() if dataset in (None, name)]
    return resolved(commits_of(loaded, dataset), text, lambda: foreign_commits(loaded.store, snapshots))


def resolved(commits: Iterable[Mapping[str, Any]], text: str, why: Callable[[], str] = str) -> str:
    """The id of the only commit, or write to the cube, that begins with a text.

    ``why`` says more where there is none.

    Raises
    ------
    Failure
        If there is none, or more than one.

    Examples
    --------
    >>> first = {"commit": "0f1e2d3c", "cube": None}
    >>> second = {"commit": "0f1e9a8b", "cube": "77aa0011"}
    >>> resolved([first, second], "0f1e2")
    '0f1e2d3c'
    """
    ids = {name for row in commits for name in (row["commit"], row["cube"]) if name is not None}
    if text in ids:
        return text
    matching: list[str] = sorted(name for name in ids if name.startswith(text)) if len(text) >= _SHORTEST else []
    if len(matching) == 1:
        return matching[0]
    if matching:
        raise Failure(f"Several commits begin with {text}: {', '.join(matching)}.")
    raise Failure(f"Could not find commit {text}; `history` lists those that are kept.{why()}")


def shortened(commits: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The commits for a terminal: times to the second, ids cut to a unique length.

    Examples
    --------
    >>> commit = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"
    >>> shortened([{"time": "2024-05-01T12:00:00.123456+00:00", "commit": commit, "cube": None}])
    [{'time': '2024-05-01T12:00:00Z', 'commit': '0f1e2d3c', 'cube': None}]
    """
    ids = {row[name] for row in commits for name in ("commit", "cube") if row.get(name) is not None}
    length = next((n for n in range(_SHORT, 32) if len({name[:n] for name in ids}) == len(ids)), 32)
    names = ("commit", "cube")
    rows = [{**row, **{name: row[name][:length] for name in names if row.get(name)}} for row in commits]
    for row in rows:
        if row["time"]:
            row["time"] = datetime.fromisoformat(row["time"]).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return rows


def history_lines(commits: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A table of commits, or of writes to the cube."""
    head = _HEAD_OF_CUBE if commits and "datasets" in commits[0] else _HEAD

    def shown(value: object) -> str:
        return ", ".join(map(str, value)) if isinstance(value, list) else "" if value is None else str(value)

    worded = ({**commit, "kept": "yes" if commit["kept"] else "no"} for commit in commits)
    yield from table(head, ([shown(row[name]) for name in head] for row in worded), right=("added", "removed"))

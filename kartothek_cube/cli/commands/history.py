"""The commands `history`, `changes`, `tag` and `undo`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from kartothek_cube.cli.context import (
    Failure,
    LoadedCube,
    Session,
    commits_of,
    complete_commits,
    complete_dataset,
    complete_files,
    complete_tags,
    known_commit,
    load_cube,
    missing,
    plain_row,
    whole_commit,
    working,
)
from kartothek_cube.cli.options import as_of as as_of_option
from kartothek_cube.cli.options import columns as columns_option
from kartothek_cube.cli.options import conditions_of, cube_command, dry_run, payload_of, yes
from kartothek_cube.cli.options import where as where_option
from kartothek_cube.cli.output import (
    bold,
    confirm,
    first_rows,
    kind_of,
    show,
    show_written,
    sink_of,
    table,
    write_output,
)
from kartothek_cube.errors import one_line

if TYPE_CHECKING:
    from kartothek_cube.api.cube import CubeChanges


_SHORT = 8
_HEAD = ("time", "dataset", "commit", "added", "removed", "cube", "kept", "tags")
_HEAD_OF_CUBE = ("time", "datasets", "commit", "added", "removed", "tags", "kept")


@cube_command("history", "", "seed --format json")
@click.argument("dataset", required=False, shell_complete=complete_dataset)
@click.pass_obj
def history_command(session: Session, dataset: str | None) -> None:
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


_MOMENT = "a commit, or how its id begins (`history` lists them), or a time such as 2024-01-31T12:00"


@cube_command(
    "changes",
    "--since 2024-01-31",
    "--since 0f1e2d3c --until 9a8b7c6d",
    "--since 2024-01-31 --output changes.parquet",
)
@click.option(
    "--since",
    metavar="<commit or time>",
    required=True,
    shell_complete=complete_commits,
    help=f"The older state: {_MOMENT}.",
)
@click.option(
    "--until",
    metavar="<commit or time>",
    shell_complete=complete_commits,
    help="The later state, in the same form.  [default: now]",
)
@where_option
@columns_option
@click.option("--limit", metavar="N", type=click.IntRange(min=0), help="Stop after so many rows: an update has two.")
@click.option(
    "--output",
    metavar="<file>",
    shell_complete=complete_files,
    help="The rows, in a file that ends in .parquet or .csv, or - for CSV on stdout. "
    "An existing file is replaced at the end.",
)
@click.pass_obj
def changes_command(
    session: Session,
    since: str,
    until: str | None,
    where: tuple[str, ...],
    columns: str | None,
    limit: int | None,
    output: str | None,
) -> None:
    """Count what came, went or changed since a commit or a time.

    Cells are counted by dataset. With --where, --columns, --limit or --output the changed rows of a
    query are written instead, with the kind of the change in the column `_change_type`: insert,
    delete, update_preimage and update_postimage.
    """
    if where or (columns, limit, output) != (None, None, None):
        _write_rows(session, since, until, where, columns, limit, "-" if output is None else output)
        return
    from kartothek_cube.cube.verbs.describe import describe_cube_changes

    with working(session):
        loaded = load_cube(session)
        first, last = _states(loaded, since, until)
        changes = describe_cube_changes(loaded.cube, loaded.store, first, last, rows=0)
    counts = {row.pop("dataset"): row for row in changes.counts.to_pylist()}
    value = {"since": first, "until": last, "datasets": counts}
    show(session, value, lambda: changes_lines(changes))


def _states(loaded: LoadedCube, since: str, until: str | None) -> tuple[str, str | None]:
    """The two states, with ids of commits in full."""
    find = partial(known_commit, loaded)
    return whole_commit(since, find) or since, whole_commit(until, find)


def changes_lines(changes: CubeChanges) -> Iterator[str]:
    """A table of the changes of each dataset."""
    rows = [(name, *(f"{n:,}" for n in numbers)) for name, *numbers in changes.totals()]
    yield from table(changes.counts.column_names, rows, right=changes.counts.column_names[1:])


def _write_rows(
    session: Session,
    since: str,
    until: str | None,
    where: tuple[str, ...],
    columns: str | None,
    limit: int | None,
    output: str,
) -> None:
    import pyarrow as pa

    from kartothek_cube.cube.verbs.history import query_cube_changes

    to_stdout = kind_of(output) == "stdout"
    with working(session, quiet=to_stdout and sys.stdout.isatty()):
        loaded = load_cube(session)
        first, last = _states(loaded, since, until)
        conditions, payload = conditions_of(where, loaded), payload_of(columns, loaded)
        changes = query_cube_changes(loaded.cube, loaded.store, first, last, conditions, payload_columns=payload)
        try:
            with sink_of(session, output, changes.schema) as sink:
                rows = write_output(first_rows(changes, limit), sink)
        except pa.ArrowException as error:
            raise Failure(f"Could not write {output}: {one_line(error)}") from error
    if not to_stdout:
        show_written(session, {output: rows})


_TAG_HEAD = ("name", "commit", "time")


@cube_command("tag", "", "'model 7'", "audit-2024 --as-of 2024-01-31", "audit-2024 --drop")
@click.argument("name", required=False, shell_complete=complete_tags)
@as_of_option
@click.option("--drop", is_flag=True, help="Drop the tag. What only it keeps, the next `cleanup` removes.")
@yes
@click.pass_obj
def tag_command(session: Session, name: str | None, as_of: str | None, drop: bool, yes: bool) -> None:
    """Name a state of the cube, which keeps it; list or drop names.

    Without NAME the tags are listed. With it the newest state, or the one that --as-of names, gets
    the tag NAME: from then on --as-of takes NAME, and `cleanup` leaves the files of the state
    alone.
    """
    from kartothek_cube.cube.verbs.history import drop_cube_tag, tag_cube

    if drop and (name is None or as_of is not None):
        raise click.UsageError("--drop takes the NAME of a tag, and no --as-of.")
    if name is None and as_of is not None:
        raise click.UsageError("--as-of needs a NAME for the state.")
    with working(session):
        loaded = load_cube(session)
    if name is None:
        with working(session):
            tags = tags_in(loaded)
        show(session, {"tags": tags}, lambda: tag_lines(tags))
        return
    if drop:
        confirm(f"Drop tag {name} of cube {session.prefix}?", loaded.store, yes=yes)
    with working(session):
        if drop:
            drop_cube_tag(loaded.cube, loaded.store, name)
        else:
            state = whole_commit(as_of, partial(known_commit, loaded))
            tag_cube(loaded.cube, loaded.store, name, as_of=state)
    done = "dropped" if drop else "tagged"
    show(session, {done: name}, lambda: [f"{bold(f'{done.capitalize()}:')} {name}"])


def tags_in(loaded: LoadedCube) -> list[dict[str, Any]]:
    """The tags of a cube as plain values, the latest state first."""
    from kartothek_cube.cube.consistent_read import cube_tags, latest_state

    seed = loaded.cube.ktk_dataset_uuid(loaded.cube.seed_dataset)
    states = [latest_state(tag.members) for tag in cube_tags(loaded.store, seed)]
    rows = [{"name": s.name, "commit": s.commit, "time": s.time and s.time.isoformat()} for s in states]
    return sorted(rows, key=lambda row: row["time"] or "", reverse=True)


def tag_lines(tags: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A table of tags."""
    if not tags:
        yield "There are no tags."
        return
    yield from table(_TAG_HEAD, ([str(tag[column] or "") for column in _TAG_HEAD] for tag in tags))


@cube_command("undo", "--dry-run", "--commit 0f1e2d3c", "seed")
@click.argument("dataset", required=False, shell_complete=complete_dataset)
@click.option(
    "--commit",
    metavar="ID",
    help="The commit, or the write to several datasets, or how its id begins; `history` lists them."
    "  [default: the newest]",
)
@dry_run()
@yes
@click.pass_obj
def undo_command(session: Session, dataset: str | None, commit: str | None, dry_run: bool, yes: bool) -> None:
    """Take a write to the cube back, or a commit of one DATASET.

    The newest, or the one that --commit names. A write to several datasets is taken back in all of
    them at once; with a DATASET only there. What came after it stays. An undo can be undone.
    """
    from kartothek_cube.core.dataset.history import plan_undo, undo
    from kartothek_cube.cube.verbs.history import plan_cube_undo, undo_cube
    from kartothek_cube.errors import InvalidInput

    with working(session):
        loaded = load_cube(session)
        snapshots = {name: each.snapshot for name, each in loaded.datasets.items()}
        if dataset is not None and dataset not in snapshots:
            if re.fullmatch("[0-9a-f]{6,32}", dataset):
                raise Failure(f"{dataset} is no dataset. A commit is named by --commit {dataset}.")
            raise missing("dataset", dataset, snapshots)
        commit_id = None if commit is None else known_commit(loaded, commit, dataset)
        try:
            if dataset is None:
                plans = plan_cube_undo(loaded.cube, loaded.store, snapshots, commit_id)
            else:
                plans = {dataset: plan_undo(loaded.store, snapshots[dataset], commit_id)}
        except InvalidInput as error:
            text = one_line(error).replace("delete_dataset deletes", f"`delete --include {dataset}` deletes")
            raise Failure(text.replace("delete_cube deletes", "`delete --include` deletes")) from error
    undone: list[dict[str, Any]] = [
        {"dataset": name, "commit": entry.commit, "added": len(entry.added), "removed": len(entry.removed)}
        for name, entry in ((name, plan.entry) for name, plan in plans.items())
    ]
    if not dry_run:
        confirm(f"Take back {', '.join(map(_words, undone))}?", loaded.store, yes=yes)
        with working(session):
            # Those that were shown, whatever has come since.
            shown = undone[0]["commit"]
            if dataset is None:
                undo_cube(loaded.cube, loaded.store, shown)
            else:
                undo(loaded.datasets[dataset].uuid, loaded.store, shown)
    show(session, {"dry_run": dry_run, "undone": undone}, lambda: undo_lines(undone, dry_run=dry_run))


def _words(row: Mapping[str, Any]) -> str:
    return f"commit {row['commit']} of {row['dataset']}"


def undo_lines(commits: Sequence[Mapping[str, Any]], *, dry_run: bool) -> Iterator[str]:
    """One line a dataset."""
    for row in commits:
        effect = f": {row['added']:,} partitions go, {row['removed']:,} come back"
        yield f"{bold('Would be undone:' if dry_run else 'Undone:')} {_words(row)}{effect}"

"""The command `undo`: takes a commit back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from kartothek_cube.cli import completion
from kartothek_cube.cli.commands.history import commits_of, resolved
from kartothek_cube.cli.context import Session, load_cube, working
from kartothek_cube.cli.errors import Failure, one_line
from kartothek_cube.cli.options import cube_command, dry_run, yes
from kartothek_cube.cli.output import bold, confirm, show

__all__ = ["command", "taken_back", "undo_lines"]


@cube_command("undo", "seed --dry-run", "--commit 0f1e2d3c")
@click.argument("dataset", required=False, shell_complete=completion.dataset)
@click.option(
    "--commit",
    metavar="ID",
    help="The commit, or the write to several datasets, or how its id begins; `history` lists them."
    "  [default: the newest]",
)
@dry_run()
@yes
@click.pass_obj
def command(session: Session, dataset: str | None, commit: str | None, dry_run: bool, yes: bool) -> None:
    """Take a commit back.

    Of one DATASET the newest commit, or the one that --commit names. Without a DATASET the write to
    the cube that --commit names, in every dataset that has it. What came after it stays. An undo
    can be undone.
    """
    from kartothek_cube.core.dataset.history import plan_undo, undo
    from kartothek_cube.errors import InvalidInput

    with working(session):
        loaded = load_cube(session)
        commits = taken_back(commits_of(loaded, dataset), dataset, commit, seed=loaded.cube.seed_dataset)
        # All are checked before the first dataset changes: each undo is a commit of its own.
        for row in commits:
            try:
                plan_undo(loaded.store, loaded.datasets[row["dataset"]].snapshot, row["commit"])
            except InvalidInput as error:
                command_line = f"`delete --include {row['dataset']}` deletes it"
                raise Failure(one_line(error).replace("delete_dataset deletes it", command_line)) from error
    if not dry_run:
        confirm(f"Take back {', '.join(map(_words, commits))}?", loaded.store, yes=yes)
        with working(session):
            for row in commits:
                undo(loaded.datasets[row["dataset"]].uuid, loaded.store, row["commit"])
    undone = [{name: row[name] for name in ("dataset", "commit", "added", "removed")} for row in commits]
    show(session, {"dry_run": dry_run, "undone": undone}, lambda: undo_lines(commits, dry_run=dry_run))


def taken_back(
    commits: Sequence[Mapping[str, Any]], dataset: str | None, commit: str | None, *, seed: str
) -> list[Mapping[str, Any]]:
    """The commits to take back, one for each dataset.

    Raises
    ------
    Failure
        If there is none, or none was named.
    """
    if commit is None and dataset is None:
        raise click.UsageError("Name a DATASET, or a write to the cube with --commit.")
    commit_id = None if commit is None else resolved(commits, commit)
    by_dataset: dict[str, Mapping[str, Any]] = {}
    for row in commits:
        if commit_id is None or commit_id in (row["commit"], row["cube"]):
            by_dataset.setdefault(row["dataset"], row)
    if not by_dataset:
        raise Failure("There is no commit that could be undone.")
    # The seed first, so that readers see no row without its enrichments.
    return sorted(by_dataset.values(), key=lambda row: (row["dataset"] != seed, row["dataset"]))


def _words(row: Mapping[str, Any]) -> str:
    return f"commit {row['commit']} of {row['dataset']}"


def undo_lines(commits: Sequence[Mapping[str, Any]], *, dry_run: bool) -> Iterator[str]:
    """One line a dataset."""
    for row in commits:
        effect = "" if row["added"] is None else f": {row['added']:,} partitions go, {row['removed']:,} come back"
        yield f"{bold('Would be undone:' if dry_run else 'Undone:')} {_words(row)}{effect}"

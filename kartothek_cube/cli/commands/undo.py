"""The command `undo`: takes a write to the cube back, or a commit of one dataset."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from kartothek_cube.cli import completion
from kartothek_cube.cli.commands.history import known_commit
from kartothek_cube.cli.context import Session, load_cube, working
from kartothek_cube.cli.errors import Failure, one_line
from kartothek_cube.cli.options import cube_command, dry_run, missing, yes
from kartothek_cube.cli.output import bold, confirm, show

__all__ = ["command", "undo_lines"]


@cube_command("undo", "--dry-run", "--commit 0f1e2d3c", "seed")
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

"""The command `tag`: names a state of a cube, lists the names, and drops one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import click

from kartothek_cube.cli import completion
from kartothek_cube.cli.commands.history import known_commit, whole_commit
from kartothek_cube.cli.context import LoadedCube, Session, load_cube, working
from kartothek_cube.cli.options import as_of as as_of_option
from kartothek_cube.cli.options import cube_command, yes
from kartothek_cube.cli.output import bold, confirm, show, table

__all__ = ["command", "tag_lines", "tags_in"]

_HEAD = ("name", "commit", "time")


@cube_command("tag", "", "'model 7'", "audit-2024 --as-of 2024-01-31", "audit-2024 --drop")
@click.argument("name", required=False, shell_complete=completion.tags)
@as_of_option
@click.option("--drop", is_flag=True, help="Drop the tag. What only it keeps, the next `cleanup` removes.")
@yes
@click.pass_obj
def command(session: Session, name: str | None, as_of: str | None, drop: bool, yes: bool) -> None:
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
    yield from table(_HEAD, ([str(tag[column] or "") for column in _HEAD] for tag in tags))

"""The command `explain`: shows the plan of a query."""

from __future__ import annotations

import json

import click

from kartothek_cube.cli.context import Session, load_cube, working
from kartothek_cube.cli.options import cube_command
from kartothek_cube.cli.output import show
from kartothek_cube.cli.query.questions import plan_of, question

__all__ = ["command"]


@cube_command("explain", "--where 'BRAND == Acme & WEEK >= 10'")
@question
@click.pass_obj
def command(session: Session, where: tuple[str, ...], columns: str | None, by: str | None, as_of: str | None) -> None:
    """Show how a query would be answered.

    No data is read.
    """
    with working(session):
        plan = plan_of(load_cube(session), where, columns, by, as_of)
    show(session, json.loads(plan.explain("json")), lambda: plan.explain("text").splitlines())

"""The command `verify`: checks a cube."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from kartothek_cube.cli.context import Session, loading, working
from kartothek_cube.cli.options import cube_command, is_glob
from kartothek_cube.cli.output import show

if TYPE_CHECKING:
    from kartothek_cube.api.dataset import Finding, VerifyReport

__all__ = ["command", "with_commands"]


@cube_command("verify", "--deep")
@click.option("--deep", is_flag=True, help="Read the data, too.")
@click.pass_context
def command(ctx: click.Context, deep: bool) -> None:
    """Say what is wrong with the cube.

    The exit status is 1 if there are errors: answers would be wrong, or reading fails. Nothing is
    changed.
    """
    from kartothek_cube.cube.verbs.verify import verify_cube

    session: Session = ctx.obj
    with working(session), loading(session) as store:
        report = verify_cube(session.prefix, store, deep)
    show(session, report.to_dict(), lambda: repr(with_commands(report, session.prefix)).splitlines())
    if not report.ok:
        ctx.exit(1)


def with_commands(report: VerifyReport, prefix: str) -> VerifyReport:
    """The report with commands instead of calls for repairs, where there is such a command."""
    return replace(report, findings=tuple(replace(finding, mend=_mend(finding, prefix)) for finding in report.findings))


def _mend(finding: Finding, prefix: str) -> str:
    from kartothek_cube.core.maintenance.verify_checks import rebuild

    name, column = finding.dataset.removeprefix(f"{prefix}++"), finding.column
    # Commands name datasets of the cube, so a finding of the cube itself keeps its call.
    if not finding.mend or name == finding.dataset:
        return finding.mend
    if finding.check == "garbage":
        return shlex.join(["kartothek_cube", prefix, "cleanup"])
    if finding.check == "overridden-cells":
        return shlex.join(["kartothek_cube", prefix, "compact", "--include", name])
    is_index = column is not None and finding.mend == rebuild(finding.dataset, column)
    # Globs and commas have a meaning in the argument of `index`.
    if column is not None and is_index and not is_glob(column) and "," not in column:
        return shlex.join(["kartothek_cube", prefix, "index", name, column])
    return finding.mend

"""The commands `verify`, and `check-migration`: which data of kartothek reads differently here."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from kartothek_cube.cli.context import (
    Session,
    escaped,
    is_glob,
    loading,
    missing_directory,
    open_source,
    working,
)
from kartothek_cube.cli.options import cube_command
from kartothek_cube.cli.output import bold, red, show

if TYPE_CHECKING:
    from kartothek_cube.api.cube import MigrationReport, Verdict
    from kartothek_cube.api.dataset import Finding, VerifyReport
    from kartothek_cube.cube.verbs.verify import Outcome, Weight


@cube_command("verify", "--deep")
@click.option("--deep", is_flag=True, help="Read the data, too.")
@click.pass_context
def verify_command(ctx: click.Context, deep: bool) -> None:
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


def with_options(report: MigrationReport) -> MigrationReport:
    """The report with the option of the command instead of the argument of the verb."""

    def renamed(verdict: Verdict) -> Verdict:
        remarks = (replace(remark, text=remark.text.replace("deep=True", "--deep")) for remark in verdict.remarks)
        return replace(verdict, remarks=tuple(remarks))

    return replace(report, verdicts=tuple(map(renamed, report.verdicts)))


_MARKS: Mapping[Weight, str] = {"note": "·", "difference": "≠", "error": "✗"}
_WORDS: Mapping[Outcome, str] = {
    "equal": "reads equally",
    "different": "reads differently",
    "unreadable": "cannot be read",
}


def lines(report: MigrationReport) -> Iterator[str]:
    """The verdicts as text."""
    for verdict in report.verdicts:
        word = _WORDS[verdict.outcome]
        yield f"{bold(f'{verdict.kind} {verdict.name}:')} {red(word) if verdict.outcome == 'unreadable' else word}"
        # Often one text holds for many columns, e.g. narrow types: one line names them all.
        columns: dict[tuple[Weight, str, str], list[str]] = {}
        for remark in verdict.remarks:
            names = columns.setdefault((remark.weight, remark.check, remark.text), [])
            if remark.column:
                names.append(remark.column)
        for (weight, check, text), names in columns.items():
            shown = f" [{', '.join(names)}]" if names else ""
            yield f"  {_MARKS[weight]} {check}{shown}: {text}"
    if any(verdict.remarks for verdict in report.verdicts):
        yield "≠ another answer than in kartothek, · good to know, ✗ cannot be read. Nothing was changed."
    counts = report.counts
    yield f"{counts['equal']:,} read equally, {counts['different']:,} differently, {counts['unreadable']:,} not at all."


@cube_command("check-migration", "--deep")
@click.option(
    "--deep",
    is_flag=True,
    help="Read the data, too; without it the first file of each dataset tells the widths of its numbers.",
)
@click.pass_context
def check_migration_command(ctx: click.Context, deep: bool) -> None:
    """Report which kartothek data reads differently here.

    Every dataset and every cube of the store, or those of CUBE, read equally, differently or not at
    all. Each difference names the page of the documentation that tells of it. Nothing is changed.
    The exit status is 1 if something cannot be read.
    """
    from kartothek_cube.cube.verbs.verify import check_migration

    session: Session = ctx.obj
    with working(session), loading(session) if session.cube else nullcontext(open_source(session)) as store:
        report = with_options(check_migration(store, session.cube, deep))
    missing = missing_directory(store)
    if not report.verdicts and not session.json:
        click.echo(escaped(f"There is no dataset in this store.{missing}"), err=True)
    show(session, report.to_dict(), lambda: lines(report))
    if missing or not report.ok:
        ctx.exit(2 if missing else 1)

"""Asking before something is deleted: on a terminal, and only there."""

from __future__ import annotations

import sys

import click

from kartothek_cube.cli.failures import escaped

__all__ = ["confirm"]


def confirm(question: str, *, yes: bool) -> None:
    """Go on if the answer is yes, if ``--yes`` gave it beforehand, or if nobody sits at the other end: scripts of old keep working.

    Raises
    ------
    click.Abort
        If the answer is no.
    """
    if not yes and sys.stdin.isatty():
        click.confirm(escaped(question), abort=True, err=True)

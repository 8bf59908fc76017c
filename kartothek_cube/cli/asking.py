"""Asking before something is deleted: on a terminal, and only there."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from kartothek_cube.cli.failures import escaped
from kartothek_cube.errors import ReadOnlyStore

if TYPE_CHECKING:
    from kartothek_cube.core.store import Store

__all__ = ["confirm"]


def confirm(question: str, store: Store, *, yes: bool) -> None:
    """Go on if the answer is yes, if ``--yes`` gave it beforehand, or if nobody sits at the other end: scripts of old keep working.

    Raises
    ------
    ReadOnlyStore
        If the store cannot be written to, whatever the answer would be.
    click.Abort
        If the answer is no.
    """
    if not store.capabilities.writable:
        raise ReadOnlyStore(f"The store {store.name} cannot be written to.")
    if not yes and sys.stdin.isatty() and not _answer(escaped(question)):
        raise click.Abort


def _answer(question: str) -> bool:
    try:
        return click.confirm(question, err=True)
    except click.Abort:
        click.echo(err=True)  # Ctrl-C leaves the cursor behind the question
        raise

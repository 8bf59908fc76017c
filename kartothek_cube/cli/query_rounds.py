"""The interactive query: prompts, the query, a shell with its result, and again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from kartothek_cube.cli.failures import Failure
from kartothek_cube.cli.output import echo, red
from kartothek_cube.cli.progress import working
from kartothek_cube.cli.prompts import Prompt
from kartothek_cube.cli.questions import ALL, conditions_in, payload_names
from kartothek_cube.cli.session import LoadedCube, Session, load_cube

if TYPE_CHECKING:
    from kartothek_cube.api.cube import Conjunction

__all__ = ["parse_payload", "query_rounds", "shown_payload"]


def query_rounds(session: Session) -> None:
    """Ask and answer until the user interrupts.

    Raises
    ------
    Failure
        If IPython is not installed.
    click.Abort
        If the shell is killed or a prompt interrupted.
    """
    with working(session):
        loaded = load_cube(session)
    embed = _embed()
    payload = payload_names(loaded)
    conditions_prompt = Prompt("Conditions: ", sorted(loaded.types))
    payload_prompt = Prompt("Payload Columns: ", [ALL, *sorted(loaded.types)])
    always = {*loaded.cube.dimension_columns, *loaded.cube.partition_columns}
    conditions, columns = "", ""
    with _whole_frames():
        while True:
            conjunction = conditions_prompt.ask(conditions, lambda text: conditions_in(text, loaded.types))
            selection = payload_prompt.ask(columns, lambda text: parse_payload(text, payload, always))
            conditions, columns = str(conjunction), shown_payload(selection, payload)
            _answer(session, loaded, conjunction, selection, embed)


def parse_payload(text: str, known: Sequence[str], always: Collection[str] = ()) -> list[str]:
    """The payload columns that a text names; those that are in every result may be named, too.

    Raises
    ------
    ValueError
        If one is unknown.

    Examples
    --------
    >>> parse_payload("UNITS, PRICE", ["BRAND", "PRICE", "UNITS"])
    ['PRICE', 'UNITS']
    >>> parse_payload("", ["BRAND"])
    []
    """
    from kartothek_cube.core.naming import meant

    if text.strip() == ALL:
        return list(known)
    names = {name for part in text.split(",") if (name := part.replace(" ", ""))}
    unknown = sorted(names.difference(known, always))
    if unknown:
        close = meant(unknown, {*known, *always})
        raise ValueError(f"Unknown: {', '.join(unknown)}{close and '.'}{close}")
    return sorted(names.intersection(known))


def shown_payload(selection: Sequence[str], known: Sequence[str]) -> str:
    """The text that selects these columns."""
    return ALL if sorted(selection) == sorted(known) else ",".join(selection)


def _answer(session: Session, loaded: LoadedCube, conjunction: Conjunction, payload: Sequence[str], embed: Callable[..., Any]) -> None:
    from kartothek_cube.cube.verbs.query import query_cube

    with working(session):
        frames = query_cube(loaded.cube, loaded.store, conjunction, payload_columns=payload)
    if not frames:
        echo(red("No data found."))
        return
    _shell(frames[0], embed)


def _shell(df: object, embed: Callable[..., Any]) -> None:  # noqa: ARG001 - used by whoever types into the shell
    """The shell sees the variables of the function that opens it: ``df``."""
    try:
        embed(banner1="Shell:")
    except Exception as error:
        if type(error).__name__ == "KillEmbedded":
            raise click.Abort from error
        raise


def _embed() -> Callable[..., Any]:
    try:
        import IPython
    except ImportError as error:
        raise Failure(f"Could not load IPython: {error}. It comes with pip install 'kartothek-cube[interactive]'.") from error
    embed: Callable[..., Any] = IPython.embed
    return embed


@contextmanager
def _whole_frames() -> Iterator[None]:
    import pandas as pd

    with pd.option_context("display.width", None, "display.max_rows", 0):
        yield

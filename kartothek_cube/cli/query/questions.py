"""A query as text, and its options: conditions, columns, groups, a commit or time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kartothek_cube.cli import completion
from kartothek_cube.cli.context import LoadedCube
from kartothek_cube.cli.errors import Failure, one_line
from kartothek_cube.cli.options import matches, parts_of

if TYPE_CHECKING:
    from kartothek_cube.api.cube import Conjunction, QueryPlan

__all__ = [
    "ALL",
    "columns",
    "conditions_of",
    "groups_of",
    "payload_names",
    "payload_of",
    "plan_of",
    "question",
    "where",
]

F = TypeVar("F", bound=Callable[..., Any])

# Stands for all payload columns.
ALL = "__all__"


def where(function: F) -> F:
    """``--where``."""
    text = "Conditions, e.g. 'COUNTRY_CODE == DE & UNITS > 3'; what is given several times has to hold together."
    option = click.option(
        "--where", multiple=True, metavar="<conditions>", shell_complete=completion.columns, help=text
    )
    return option(function)


def columns(function: F) -> F:
    """``--columns``."""
    text = "Payload columns: comma separated globs; an empty text for none.  [default: all]"
    return click.option("--columns", metavar="<patterns>", shell_complete=completion.columns, help=text)(function)


def question(function: F) -> F:
    """``--where``, ``--columns``, ``--by`` and ``--as-of``."""
    from kartothek_cube.cli.options import as_of

    by = "Indexed columns: the result comes group by group."
    by_option = click.option("--by", metavar="<columns>", shell_complete=completion.partition_columns, help=by)
    return where(columns(by_option(as_of(function))))


def conditions_of(texts: tuple[str, ...], loaded: LoadedCube) -> Conjunction:
    """The conditions of all texts together.

    Raises
    ------
    Failure
        If a text is no condition on a column of the cube.
    """
    from kartothek_cube.core.expressions.conditions import Conjunction, conditions_in

    try:
        parsed = [conditions_in(text, loaded.types) for text in texts]
    except ValueError as error:
        raise Failure(f"Could not parse conditions: {one_line(error)}") from error
    return Conjunction([condition for conjunction in parsed for condition in conjunction.conditions])


def payload_names(loaded: LoadedCube) -> list[str]:
    """All payload columns of a cube, sorted."""
    from kartothek_cube.cube.verbs.describe import get_cube_payload

    return sorted(get_cube_payload(loaded.datasets, loaded.cube))


def payload_of(pattern: str | None, loaded: LoadedCube) -> list[str] | None:
    """The payload columns that a pattern names; None for all."""
    if pattern is None or pattern.strip() == ALL:
        return None
    payload = payload_names(loaded)
    # Dimension and partition columns are in every result, so a pattern may name them.
    always = {*loaded.cube.dimension_columns, *loaded.cube.partition_columns}
    return sorted(matches(pattern, {*payload, *always}, "column") - always) if pattern.strip() else []


def groups_of(text: str | None) -> list[str]:
    """The columns to group by."""
    return [part for part in parts_of(text or "") if part]


def plan_of(
    loaded: LoadedCube, where: tuple[str, ...], columns: str | None, by: str | None, as_of: str | None
) -> QueryPlan:
    """The plan of a query."""
    from kartothek_cube.cli.commands.history import known_commit, whole_commit
    from kartothek_cube.cube.verbs.read import plan_cube_query

    conditions, payload = conditions_of(where, loaded), payload_of(columns, loaded)
    as_of = whole_commit(as_of, partial(known_commit, loaded))
    return plan_cube_query(
        loaded.cube, loaded.store, conditions, None, None, groups_of(by) or None, payload, as_of=as_of
    )

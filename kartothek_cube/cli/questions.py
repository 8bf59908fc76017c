"""A query as text: conditions, columns, groups, a moment; and the options that hold them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kartothek_cube.cli import completion
from kartothek_cube.cli.failures import Failure, one_line
from kartothek_cube.cli.patterns import matches, parts_of
from kartothek_cube.cli.session import LoadedCube

if TYPE_CHECKING:
    from kartothek_cube.api.cube import Conjunction, QueryPlan

__all__ = ["ALL", "conditions_of", "groups_of", "moment_of", "payload_names", "payload_of", "plan_of", "question", "where"]

F = TypeVar("F", bound=Callable[..., Any])

ALL = "__all__"
"""Stands for all payload columns."""


def where(function: F) -> F:
    """``--where``."""
    text = "Conditions, e.g. 'COUNTRY_CODE == DE & UNITS > 3'; what is given several times has to hold together."
    return click.option("--where", multiple=True, metavar="<conditions>", shell_complete=completion.columns, help=text)(function)


def question(function: F) -> F:
    """``--where``, ``--columns``, ``--by`` and ``--as-of``."""
    from kartothek_cube.cli.parameters import as_of

    by = "Indexed columns: the result comes group by group."
    columns = "Payload columns: comma separated globs; an empty text for none.  [default: all]"
    function = as_of(function)
    function = click.option("--by", metavar="<columns>", shell_complete=completion.partition_columns, help=by)(function)
    function = click.option("--columns", metavar="<patterns>", shell_complete=completion.columns, help=columns)(function)
    return where(function)


def conditions_of(texts: tuple[str, ...], loaded: LoadedCube) -> Conjunction:
    """The conditions of all texts together.

    Raises
    ------
    Failure
        If a text is no condition on a column of the cube.
    """
    from kartothek_cube.cube.conditions import Conjunction

    try:
        parsed = [Conjunction.from_string(text, loaded.types) for text in texts]
    except ValueError as error:
        raise Failure(f"Could not parse conditions: {one_line(error)}") from error
    return Conjunction([condition for conjunction in parsed for condition in conjunction.conditions])


def payload_names(loaded: LoadedCube) -> list[str]:
    """All payload columns of a cube, sorted."""
    from kartothek_cube.cube.verbs.discover import get_cube_payload

    return sorted(get_cube_payload(loaded.datasets, loaded.cube))


def payload_of(pattern: str | None, loaded: LoadedCube) -> list[str] | None:
    """The payload columns that a pattern names; None for all. Dimension and partition columns are in every result, so they may be named, too."""
    if pattern is None or pattern.strip() == ALL:
        return None
    payload = payload_names(loaded)
    always = {*loaded.cube.dimension_columns, *loaded.cube.partition_columns}
    return sorted(matches(pattern, {*payload, *always}, "column") - always) if pattern.strip() else []


def groups_of(text: str | None) -> list[str]:
    """The columns to group by."""
    return [part for part in parts_of(text or "") if part]


def moment_of(text: str | None) -> str | datetime | None:
    """A time in ISO form, or else the id of a commit.

    Examples
    --------
    >>> moment_of("2024-05-01T12:00")
    datetime.datetime(2024, 5, 1, 12, 0)
    >>> moment_of("0f1e2d")
    '0f1e2d'
    """
    try:
        return None if text is None else datetime.fromisoformat(text)
    except ValueError:
        return text


def plan_of(loaded: LoadedCube, where: tuple[str, ...], columns: str | None, by: str | None, as_of: str | None) -> QueryPlan:
    """The plan of a query."""
    from kartothek_cube.cube.verbs.query import plan_cube_query

    conditions, payload = conditions_of(where, loaded), payload_of(columns, loaded)
    return plan_cube_query(loaded.cube, loaded.store, conditions, None, None, groups_of(by) or None, payload, as_of=moment_of(as_of))

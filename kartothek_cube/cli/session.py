"""What one run of the command works on: the options in front of the command, the store and the cube that they name."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from kartothek_cube.cli.failures import Failure, one_line
from kartothek_cube.cli.stores import store_named
from kartothek_cube.errors import KartothekCubeError

if TYPE_CHECKING:
    from kartothek_cube.api.cube import Cube
    from kartothek_cube.api.dataset import DatasetMetadata
    from kartothek_cube.core.store import Store

__all__ = ["LoadedCube", "Session", "load_cube", "open_source", "session_of"]


@dataclass(frozen=True, slots=True)
class Session:
    """The options in front of the command.

    ``url`` wins over ``skv`` and ``store``; ``threads`` 0 is the number of processors; ``format`` is ``"text"`` or ``"json"``.
    """

    skv: str = "skv.yml"
    store: str = "dataset"
    url: str | None = None
    cube: str | None = None
    threads: int = 0
    format: str = "text"

    @property
    def json(self) -> bool:
        """Whether one JSON document is wanted."""
        return self.format == "json"

    @property
    def prefix(self) -> str:
        """The cube; an error of usage if none was named."""
        if not self.cube:
            raise click.UsageError("Missing argument 'CUBE'.")
        return self.cube


@dataclass(frozen=True, slots=True)
class LoadedCube:
    """A cube that is there, with its store and its datasets by id."""

    cube: Cube
    store: Store
    datasets: dict[str, DatasetMetadata]

    @property
    def types(self) -> dict[str, Any]:
        """The Arrow type of every column; of one that several datasets have, the seed's, else the first one's."""
        seed = self.cube.seed_dataset
        order = [self.datasets[name].snapshot.schema for name in sorted(self.datasets, key=lambda i: (i != seed, i))]
        return {field.name: field.type for schema in reversed(order) for field in schema}


def open_source(session: Session) -> Store:
    """The store of a session.

    Raises
    ------
    Failure
        If there is no such file or name.
    KartothekCubeError
        If there cannot be such a store.
    """
    if session.url is None:
        return store_named(session.skv, session.store)
    from kartothek_cube.core.stores import open_store

    return open_store(session.url)


def load_cube(session: Session) -> LoadedCube:
    """The cube of a session.

    Raises
    ------
    Failure
        If store or cube are not there, or cannot be read.
    """
    prefix = session.prefix
    try:
        store = open_source(session)
        from kartothek_cube.cube.verbs.discover import discover_cube

        cube, datasets = discover_cube(prefix, store)
    except KartothekCubeError as error:
        raise Failure(f"Could not load cube: {one_line(error)}") from error
    return LoadedCube(cube, store, datasets)


def session_of(parameters: dict[str, Any]) -> Session:
    """The session of parsed options, for the completion of the rest."""
    names = {"skv": "skv", "store": "store", "url": "url", "cube": "cube"}
    return replace(Session(), **{field: parameters[name] for field, name in names.items() if parameters.get(name)})

"""What one run of the command works on: the options in front of the command, the store and the cube that they name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kartothek_cube.cli.failures import Failure, one_line
from kartothek_cube.cli.stores import store_named
from kartothek_cube.errors import DatasetNotFound, InvalidInput, KartothekCubeError

if TYPE_CHECKING:
    from kartothek_cube.api.cube import Cube
    from kartothek_cube.api.dataset import DatasetMetadata
    from kartothek_cube.core.store import Store

__all__ = ["LoadedCube", "Session", "load_cube", "loading", "missing_directory", "open_source", "session_of"]


@dataclass(frozen=True, slots=True)
class Session:
    """The options in front of the command.

    ``url`` wins over ``skv`` and ``store``; ``threads`` 0 leaves their number to the library; ``format`` is ``"text"`` or ``"json"``.
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
    with loading(session) as store:
        from kartothek_cube.cube.verbs.discover import discover_cube

        cube, datasets = discover_cube(session.prefix, store)
        return LoadedCube(cube, store, datasets)


@contextmanager
def loading(session: Session) -> Iterator[Store]:
    """The store of a session while its cube is looked for: errors say that it could not be loaded, and which cubes there are if it is none of them.

    Raises
    ------
    Failure
        If store or cube are not there, or cannot be read.
    """
    prefix, others = session.prefix, ""
    try:
        store = open_source(session)
        try:
            yield store
        except (InvalidInput, DatasetNotFound):
            others = _others(prefix, store)
            raise
    except KartothekCubeError as error:
        raise Failure(f"Could not load cube: {one_line(error)}{others}") from error


def _others(prefix: str, store: Store) -> str:
    from kartothek_cube.core.naming import listed, meant
    from kartothek_cube.cube.discovery import list_cube_prefixes

    found = list_cube_prefixes(store)
    return "" if prefix in found else f" Cubes of this store: {listed(found)}.{meant([prefix], found)}{missing_directory(store)}"


def missing_directory(store: Store) -> str:
    """The end of an error that something is not in a store whose directory is not there either."""
    from kartothek_cube.core.stores.local import LocalStore

    return f" There is no directory {store.root}." if isinstance(store, LocalStore) and not Path(store.root).is_dir() else ""


def session_of(parameters: dict[str, Any]) -> Session:
    """The session of parsed options, for the completion of the rest."""
    names = {"skv": "skv", "store": "store", "url": "url", "cube": "cube"}
    return replace(Session(), **{field: parameters[name] for field, name in names.items() if parameters.get(name)})

"""What a run of the command works on: its options, store, cube, threads and progress bar."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kartothek_cube.cli.errors import Failure, one_line
from kartothek_cube.errors import DatasetNotFound, InvalidInput, KartothekCubeError

if TYPE_CHECKING:
    from kartothek_cube.api.cube import Cube
    from kartothek_cube.api.dataset import DatasetMetadata
    from kartothek_cube.core.stores.contract import Store

__all__ = [
    "LoadedCube",
    "Session",
    "load_cube",
    "loading",
    "missing_directory",
    "open_source",
    "read_stores",
    "session_of",
    "store_named",
    "store_names",
    "store_of",
    "working",
]


def read_stores(path: str) -> dict[str, Any]:
    """Store name → what the file says of it.

    Raises
    ------
    Failure
        If the file cannot be read or parsed.
    """
    import yaml

    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(
            f"Could not open load store YAML: {error}. Name the store's URL with --url or KARTOTHEK_CUBE_URL, or such a file with --skv."
        ) from error
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise Failure(f"Could not parse provided YAML file: {_where(path, error)}") from error
    if found is not None and not isinstance(found, dict):
        raise Failure(
            f"Could not parse provided YAML file: {path} should map names of stores to their settings, but holds a {type(found).__name__}."
        )
    return {str(name): entry for name, entry in (found or {}).items()}


def _where(path: str, error: Exception) -> str:
    """What is wrong with a file, and in which line of it."""
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    return f"{path}: {error}" if mark is None else f"{path}, line {mark.line + 1}, column {mark.column + 1}: {problem}"


def _unknown(path: str, name: str, stores: Collection[str]) -> Failure:
    """The error that a file has no store of this name."""
    from kartothek_cube.core.text import did_you_mean, join_names

    return Failure(
        f"Could not find store {name} in {path}, which has {join_names(stores)}.{did_you_mean([name], stores)}"
    )


def store_names(path: str) -> list[str]:
    """The names in a file of stores."""
    return sorted(read_stores(path))


def store_named(path: str, name: str) -> Store:
    """The store of this name.

    Raises
    ------
    Failure
        If the file or the name is not there.
    InvalidInput, Unsupported
        If there cannot be such a store.
    """
    stores = read_stores(path)
    if name not in stores:
        raise _unknown(path, name, stores)
    return store_of(stores[name], name)


def store_of(entry: object, name: str) -> Store:
    """The store that an entry describes: a URL, a dict with ``url`` and settings of `open_store`, or arguments of ``storefact.get_store``."""
    from kartothek_cube.core.stores.open import open_store
    from kartothek_cube.errors import InvalidInput, KartothekCubeError

    if isinstance(entry, str):
        return open_store(entry)
    if not isinstance(entry, Mapping):
        raise InvalidInput(f"Store {name} should be a URL or a mapping with its type, but is {entry!r}.")
    settings = {str(key): value for key, value in entry.items()}
    if "url" in settings:
        return open_store(settings.pop("url"), **settings)
    try:
        return open_store(_made(settings, name))
    except KartothekCubeError:
        raise
    except KeyError as error:
        raise InvalidInput(
            f"Store {name} cannot be opened: a store of type {settings['type']} needs the setting {error}."
        ) from error
    except Exception as error:  # what storefact raises for settings that it does not know
        raise InvalidInput(f"Store {name} cannot be opened: {type(error).__name__}: {error}") from error


def _made(settings: dict[str, Any], name: str) -> Any:
    from kartothek_cube.errors import InvalidInput

    if "type" not in settings:
        raise InvalidInput(f"Store {name} has neither a type nor a url.")
    import storefact

    return partial(storefact.get_store, **settings)


@dataclass(frozen=True, slots=True)
class Session:
    """The options in front of the command.

    ``url`` wins over ``skv`` and ``store``; ``threads`` 0 leaves their number to the library;
    ``format`` is ``"text"`` or ``"json"``.
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
    from kartothek_cube.core.stores.open import open_store

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
    from kartothek_cube.core.text import did_you_mean, join_names
    from kartothek_cube.cube.members.discovery import list_cube_prefixes

    found = list_cube_prefixes(store)
    return (
        ""
        if prefix in found
        else f" Cubes of this store: {join_names(found)}.{did_you_mean([prefix], found)}{missing_directory(store)}"
    )


def missing_directory(store: Store) -> str:
    """The end of an error that something is not in a store whose directory is not there either."""
    from kartothek_cube.core.stores.local import LocalStore

    return (
        f" There is no directory {store.root}."
        if isinstance(store, LocalStore) and not Path(store.root).is_dir()
        else ""
    )


def session_of(parameters: dict[str, Any]) -> Session:
    """The session of parsed options, for the completion of the rest."""
    names = {"skv": "skv", "store": "store", "url": "url", "cube": "cube"}
    return replace(Session(), **{field: parameters[name] for field, name in names.items() if parameters.get(name)})


@contextmanager
def working(session: Session) -> Iterator[None]:
    """The options of a verb: the threads that were asked for, and progress on stderr if that is a terminal."""
    from kartothek_cube.core.runtime.options import options

    with options(threads=session.threads or None, progress=sys.stderr.isatty()):
        yield

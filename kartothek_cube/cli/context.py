"""The context of a command: its options, its store and cube, threads and progress bar."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
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
    from kartothek_cube.core.metadata.snapshot import Snapshot
    from kartothek_cube.core.stores.contract import Store

__all__ = [
    "LoadedCube",
    "Session",
    "load_cube",
    "load_dataset",
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


@dataclass(frozen=True, slots=True)
class Session:
    """The options of the group, in front of the command.

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
        """Whether the output is one JSON document."""
        return self.format == "json"

    @property
    def prefix(self) -> str:
        """The cube; raises an error of usage if none was named."""
        if not self.cube:
            raise click.UsageError("Missing argument 'CUBE'.")
        return self.cube


def session_of(parameters: dict[str, Any]) -> Session:
    """The session of parsed options, for shell completion."""
    names = ("skv", "store", "url", "cube")
    return replace(Session(), **{name: parameters[name] for name in names if parameters.get(name)})


@dataclass(frozen=True, slots=True)
class LoadedCube:
    """An existing cube, with its store and its datasets by id."""

    cube: Cube
    store: Store
    datasets: dict[str, DatasetMetadata]

    @property
    def types(self) -> dict[str, Any]:
        """The Arrow type of every column: that of the seed, else of the first dataset with it."""
        seed = self.cube.seed_dataset
        # The last one wins below, hence in reverse.
        order = [self.datasets[name].snapshot.schema for name in sorted(self.datasets, key=lambda i: (i != seed, i))]
        return {field.name: field.type for schema in reversed(order) for field in schema}


@contextmanager
def working(session: Session, *, quiet: bool = False) -> Iterator[None]:
    """Apply the options of a session: threads, and progress on stderr if that is a terminal.

    ``quiet`` shows no progress: on a terminal it would mix with the rows.
    """
    from kartothek_cube.core.runtime.options import options

    with options(threads=session.threads or None, progress=not quiet and sys.stderr.isatty()):
        yield


def open_source(session: Session) -> Store:
    """The store of a session.

    Raises
    ------
    Failure
        If the file or the name does not exist.
    KartothekCubeError
        If the store cannot be opened.
    """
    if session.url is None:
        return store_named(session.skv, session.store)
    from kartothek_cube.core.stores.open import open_store

    return open_store(session.url)


def read_stores(path: str) -> dict[str, Any]:
    """The entries of a file of stores, by name.

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
            f"Could not open load store YAML: {error}. "
            "Name the store's URL with --url or KARTOTHEK_CUBE_URL, or such a file with --skv."
        ) from error
    try:
        stores = yaml.safe_load(text)
    except yaml.YAMLError as error:
        reason = f"{path}: {error}"
        if (mark := getattr(error, "problem_mark", None)) is not None:
            problem = getattr(error, "problem", None)
            reason = f"{path}, line {mark.line + 1}, column {mark.column + 1}: {problem}"
        raise Failure(f"Could not parse provided YAML file: {reason}") from error
    if stores is not None and not isinstance(stores, dict):
        raise Failure(
            f"Could not parse provided YAML file: {path} should map names of stores to their settings, "
            f"but holds a {type(stores).__name__}."
        )
    return {str(name): entry for name, entry in (stores or {}).items()}


def store_names(path: str) -> list[str]:
    """The names in a file of stores."""
    return sorted(read_stores(path))


def store_named(path: str, name: str) -> Store:
    """The store of this name.

    Raises
    ------
    Failure
        If the file or the name does not exist.
    InvalidInput, Unsupported
        If the store cannot be opened.
    """
    stores = read_stores(path)
    if name not in stores:
        from kartothek_cube.core.arguments import did_you_mean, join_names

        hint = did_you_mean([name], stores)
        raise Failure(f"Could not find store {name} in {path}, which has {join_names(stores)}.{hint}")
    return store_of(stores[name], name)


def store_of(entry: object, name: str) -> Store:
    """The store of an entry in a file of stores.

    An entry is a URL, a mapping with ``url`` and settings of `open_store`, or one with arguments of
    ``storefact.get_store``.
    """
    from kartothek_cube.core.stores.open import open_store

    if isinstance(entry, str):
        return open_store(entry)
    if not isinstance(entry, Mapping):
        raise InvalidInput(f"Store {name} should be a URL or a mapping with its type, but is {entry!r}.")
    settings = {str(key): value for key, value in entry.items()}
    if "url" in settings:
        return open_store(settings.pop("url"), **settings)
    # The arguments of storefact are what files of stores for kartothek contain.
    if "type" not in settings:
        raise InvalidInput(f"Store {name} has neither a type nor a url.")
    import storefact

    try:
        return open_store(partial(storefact.get_store, **settings))
    except KartothekCubeError:
        raise
    except KeyError as error:
        raise InvalidInput(
            f"Store {name} cannot be opened: a store of type {settings['type']} needs the setting {error}."
        ) from error
    except Exception as error:  # storefact raises anything for unknown settings
        raise InvalidInput(f"Store {name} cannot be opened: {type(error).__name__}: {error}") from error


def load_cube(session: Session) -> LoadedCube:
    """The cube of a session.

    Raises
    ------
    Failure
        If store or cube do not exist, or cannot be read.
    """
    with loading(session) as store:
        from kartothek_cube.cube.verbs.describe import discover_cube

        cube, datasets = discover_cube(session.prefix, store)
        return LoadedCube(cube, store, datasets)


def load_dataset(session: Session) -> tuple[Store, Snapshot]:
    """The store, and the dataset that stands in the place of the cube.

    Raises
    ------
    Failure
        If store or dataset do not exist, or cannot be read.
    """
    from kartothek_cube.core.arguments import did_you_mean, join_names
    from kartothek_cube.core.dataset.maintain import list_datasets
    from kartothek_cube.core.snapshots.loader import find_snapshot

    uuid = session.prefix
    try:
        store = open_source(session)
        snapshot = find_snapshot(store, uuid)
        if snapshot is not None:
            return store, snapshot
        known = list_datasets(store)
    except KartothekCubeError as error:
        raise Failure(f"Could not load dataset: {one_line(error)}") from error
    of_cube = [name for name in known if name.startswith(f"{uuid}++")]
    hint = (
        f" It is a cube: name one of its datasets, {join_names(of_cube)}." if of_cube else did_you_mean([uuid], known)
    )
    names = "" if of_cube else f" Datasets of this store: {join_names(known)}."
    raise Failure(f"Could not load dataset: There is no dataset {uuid}.{names}{hint}{missing_directory(store)}")


@contextmanager
def loading(session: Session) -> Iterator[Store]:
    """The store of a session, while its cube is loaded; errors say if its directory is missing.

    Raises
    ------
    Failure
        If store or cube do not exist, or cannot be read.
    """
    hint = ""
    try:
        store = open_source(session)
        try:
            yield store
        except (InvalidInput, DatasetNotFound):
            hint = missing_directory(store)
            raise
    except KartothekCubeError as error:
        raise Failure(f"Could not load cube: {one_line(error)}{hint}") from error


def missing_directory(store: Store) -> str:
    """The end of an error about a missing object, if the directory of the store is missing, too."""
    from kartothek_cube.core.stores.contract import ReadOnlyView
    from kartothek_cube.core.stores.local import LocalStore

    inner = store.inner if isinstance(store, ReadOnlyView) else store
    if not isinstance(inner, LocalStore) or Path(inner.root).is_dir():
        return ""
    return f" There is no directory {inner.root}."

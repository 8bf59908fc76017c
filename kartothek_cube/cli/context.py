"""The context of a command: options, store and cube, errors, completion, commits.

In order:

- errors: one line, and an exit status for scripts
- store, cube, threads and progress bar
- completion of cubes, stores, datasets and columns; errors lead to no suggestions
- commits by the beginning of their ids, and errors about unknown names
"""

from __future__ import annotations

import errno
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem, FishComplete, add_completion_class

from kartothek_cube.errors import DatasetNotFound, InvalidInput, KartothekCubeError, one_line

if TYPE_CHECKING:
    from kartothek_cube.api.cube import Cube
    from kartothek_cube.api.dataset import DatasetMetadata
    from kartothek_cube.core.metadata.snapshot import Snapshot
    from kartothek_cube.core.stores.contract import Store


# C0 without the line feed, C1, line separators, and marks that change the direction of writing.
_CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


class _Ending(click.ClickException):
    def format_message(self) -> str:
        """The message in one line, without control characters of names in it."""
        return " ".join(line.strip() for line in escaped(self.message).split("\n"))


class Failure(_Ending):
    """The command cannot be carried out: ``Error: <message>``, exit status 2."""

    exit_code = 2


class SqlFailure(Failure):
    """A DuckDB error; one of its lines marks the position."""

    def format_message(self) -> str:
        """The message as DuckDB wrote it, without control characters of names in it."""
        return escaped(self.message)


class StoreFailure(_Ending):
    """A store or a file failed: ``Error: <message>``, exit status 1."""

    exit_code = 1


def escaped(text: str) -> str:
    r"""Escape control characters, so that a label cannot control the terminal; line feeds stay.

    Examples
    --------
    >>> print(escaped("a\x1b[31m"))
    a\x1b[31m
    """
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


@contextmanager
def explained() -> Iterator[None]:
    """Turn errors of the library and of the system into one line without a traceback."""
    try:
        yield
    except KartothekCubeError as error:
        raise Failure(one_line(error)) from error
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise  # the reader of the output has gone: click ends quietly
        raise StoreFailure(one_line(error)) from error


# --- store ----------------------------------------------------------------------------------------


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


# --- completion of cubes --------------------------------------------------------------------------


# Commands that need no cube.
STORE_WIDE = ("check-migration", "demo", "doctor", "sql")
# As `history` shows them on a terminal.
_SHORT = 8

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def _offering(names: Callable[[click.Context], Collection[str]], *, several: bool = False) -> Completer:
    """A completer of one name, or of the last of several names that are separated by commas."""

    def complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
        head, comma, last = incomplete.rpartition(",") if several else ("", "", incomplete)
        try:
            candidates = sorted(names(ctx))
        except Exception:  # a message would garble the command line
            return []
        return [CompletionItem(f"{head}{comma}{name}") for name in candidates if name.startswith(last)]

    return complete


def _paths(path_type: str) -> Completer:
    """A completer that leaves ``file`` or ``dir`` to the shell."""
    return lambda _ctx, _parameter, incomplete: [CompletionItem(incomplete, type=path_type)]


@add_completion_class
class _Fish(FishComplete):
    """Fish, with values that contain commas: only the first comma separates type and value."""

    source_template = FishComplete.source_template.replace('string split ","', 'string split --max 1 ","')


def _cube(ctx: click.Context) -> LoadedCube:
    return load_cube(session_of(ctx.find_root().params))


@_offering
def complete_cubes(ctx: click.Context) -> Collection[str]:
    """The cubes of the store, and the commands that take none."""
    from kartothek_cube.cube.verbs.describe import list_cubes

    return [*list_cubes(open_source(session_of(ctx.params))), *STORE_WIDE]


@partial(_offering, several=True)
def complete_columns(ctx: click.Context) -> Collection[str]:
    """The columns of the dataset that the command line names, else of the cube."""
    from kartothek_cube.cube.cube import visible_columns

    datasets, chosen = _cube(ctx).datasets, ctx.params.get("dataset")
    snapshots = (dataset.snapshot for name, dataset in datasets.items() if chosen in (None, name))
    return {column for snapshot in snapshots for column in visible_columns(snapshot.schema.names)}


@partial(_offering, several=True)
def complete_partition_columns(ctx: click.Context) -> Collection[str]:
    """The columns that a query can group by: those with an index."""
    loaded = _cube(ctx)
    indexed = (column for dataset in loaded.datasets.values() for column in dataset.snapshot.secondary_columns)
    return {*loaded.cube.partition_columns, *loaded.cube.index_columns, *indexed}


@partial(_offering, several=True)
def complete_dataset_columns(ctx: click.Context) -> Collection[str]:
    """The columns of the dataset that stands in the place of the cube."""
    _, snapshot = load_dataset(session_of(ctx.find_root().params))
    return list(snapshot.schema.names)


@_offering
def complete_commits(ctx: click.Context) -> Collection[str]:
    """The tags of the cube, and how the ids of its kept commits and writes begin."""
    from kartothek_cube.core.dataset.history import history

    loaded = _cube(ctx)
    known = (history(dataset.uuid, loaded.store) for dataset in loaded.datasets.values())
    ids = {name[:_SHORT] for table in known for column in ("commit", "cube") for name in table[column].dropna()}
    return ids | set(tag_names(loaded))


def tag_names(loaded: LoadedCube) -> list[str]:
    """The names of the tags of a cube."""
    from kartothek_cube.cube.consistent_read import cube_tags

    seed = loaded.cube.ktk_dataset_uuid(loaded.cube.seed_dataset)
    return [tag.name for tag in cube_tags(loaded.store, seed)]


complete_tags = _offering(lambda ctx: tag_names(_cube(ctx)))
complete_dataset = _offering(lambda ctx: _cube(ctx).datasets)
complete_datasets = _offering(lambda ctx: _cube(ctx).datasets, several=True)
complete_stores = _offering(lambda ctx: store_names(session_of(ctx.find_root().params).skv))
complete_files, complete_directories = _paths("file"), _paths("dir")


# --- commits by the beginning of their ids --------------------------------------------------------


_SHORTEST = 4
_HEX = re.compile("[0-9a-f]+")
_COLUMNS = ("time", "commit", "parent", "added", "removed", "cube", "kept", "tags")


def commits_of(loaded: LoadedCube, dataset: str | None) -> list[dict[str, Any]]:
    """The kept commits of one dataset or of all, the newest first.

    Raises
    ------
    Failure
        If the dataset does not exist.
    """
    if dataset is not None and dataset not in loaded.datasets:
        raise missing("dataset", dataset, loaded.datasets)
    names = sorted(loaded.datasets) if dataset is None else [dataset]
    rows = [
        {"dataset": name, **commit} for name in names for commit in commits_in(loaded.datasets[name].uuid, loaded.store)
    ]
    return sorted(rows, key=lambda row: row["time"] or "", reverse=True)


def commits_in(dataset_uuid: str, store: Store) -> Iterator[dict[str, Any]]:
    """The kept commits of a dataset as plain values."""
    from kartothek_cube.core.dataset.history import history

    for row in history(dataset_uuid, store).to_dict("records"):
        yield plain_row(row, _COLUMNS)


def plain_row(row: Mapping[Any, Any], columns: Sequence[str]) -> dict[str, Any]:
    """A row of a history as values of JSON."""
    import pandas as pd

    known = {column: row[column] for column in columns if isinstance(row[column], list) or not pd.isna(row[column])}
    # pandas turns a column of integers with gaps into floats with NaN.
    known |= {column: int(known[column]) for column in ("added", "removed") if column in known}
    known |= {"kept": bool(known.get("kept"))}
    if "time" in known:
        known["time"] = known["time"].isoformat()
    return {**dict.fromkeys(columns), **known}


def whole_commit(as_of: str | None, find: Callable[[str], str]) -> str | None:
    """The value of ``--as-of``, with the id of a commit in full where only its beginning is given.

    ``find`` looks for the id.

    Raises
    ------
    Failure
        If it can only be the beginning of an id, and is none, or of several.
    """
    from kartothek_cube.core.metadata.tag import may_be_tag
    from kartothek_cube.core.snapshots.time_travel import check_as_of

    # What is shorter than an id of 32 characters, and no time, may be the beginning of an id.
    if as_of is None or len(as_of) >= 32 or isinstance(check_as_of(as_of), datetime) or not _HEX.fullmatch(as_of):
        return as_of
    try:
        return find(as_of)
    except Failure as error:
        if may_be_tag(as_of):  # a short one
            return as_of
        raise Failure(f"{error.message} A time is written as 2024-01-31 or 2024-01-31T12:00.") from error


def known_commit(loaded: LoadedCube, text: str, dataset: str | None = None) -> str:
    """The id of a commit of one dataset, or of all, whose beginning may be given.

    Raises
    ------
    Failure
        As of `resolved`; if a commit is not found, it says where another library ended a history.
    """
    from kartothek_cube.core.snapshots.time_travel import foreign_commits

    snapshots = [each.snapshot for name, each in loaded.datasets.items() if dataset in (None, name)]
    return resolved(commits_of(loaded, dataset), text, lambda: foreign_commits(loaded.store, snapshots))


def resolved(commits: Iterable[Mapping[str, Any]], text: str, why: Callable[[], str] = str) -> str:
    """The id of the only commit, or write to the cube, that begins with a text.

    ``why`` says more where there is none.

    Raises
    ------
    Failure
        If there is none, or more than one.

    Examples
    --------
    >>> first = {"commit": "0f1e2d3c", "cube": None}
    >>> second = {"commit": "0f1e9a8b", "cube": "77aa0011"}
    >>> resolved([first, second], "0f1e2")
    '0f1e2d3c'
    """
    ids = {name for row in commits for name in (row["commit"], row["cube"]) if name is not None}
    if text in ids:
        return text
    matching: list[str] = sorted(name for name in ids if name.startswith(text)) if len(text) >= _SHORTEST else []
    if len(matching) == 1:
        return matching[0]
    if matching:
        raise Failure(f"Several commits begin with {text}: {', '.join(matching)}.")
    raise Failure(f"Could not find commit {text}; `history` lists those that are kept.{why()}")


def missing(what: str, name: str, known: Collection[str]) -> Failure:
    """The error for a name or a pattern that matches nothing.

    Examples
    --------
    >>> print(missing("column", "units", ["PRICE", "UNITS"]).message)
    Could not find column units, known columns are PRICE, UNITS. Did you mean 'UNITS'?
    """
    from kartothek_cube.core.arguments import did_you_mean, join_names

    hint = "" if is_glob(name) else did_you_mean([name], known)
    names = join_names(known) + (hint and f".{hint}")
    return Failure(f"Could not find {what} {name or repr(name)}, known {what}s are {names}")


def is_glob(part: str) -> bool:
    """Whether a part may match several names."""
    return any(character in part for character in "*?[")

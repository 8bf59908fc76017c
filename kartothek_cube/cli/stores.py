"""Stores by name, from a YAML file, or by URL."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kartothek_cube.cli.failures import Failure

if TYPE_CHECKING:
    from kartothek_cube.core.store import Store

__all__ = ["read_stores", "store_named", "store_names", "store_of"]


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
        raise Failure(f"Could not open load store YAML: {error}. Name the store's URL with --url or KARTOTHEK_CUBE_URL, or such a file with --skv.") from error
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise Failure(f"Could not parse provided YAML file: {_where(path, error)}") from error
    if found is not None and not isinstance(found, dict):
        raise Failure(f"Could not parse provided YAML file: {path} should map names of stores to their settings, but holds a {type(found).__name__}.")
    return {str(name): entry for name, entry in (found or {}).items()}


def _where(path: str, error: Exception) -> str:
    """What is wrong with a file, and in which line of it."""
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    return f"{path}: {error}" if mark is None else f"{path}, line {mark.line + 1}, column {mark.column + 1}: {problem}"


def _unknown(path: str, name: str, stores: Collection[str]) -> Failure:
    """The error that a file has no store of this name."""
    from kartothek_cube.core.naming import listed, meant

    return Failure(f"Could not find store {name} in {path}, which has {listed(stores)}.{meant([name], stores)}")


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
    from kartothek_cube.core.stores import open_store
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
        raise InvalidInput(f"Store {name} cannot be opened: a store of type {settings['type']} needs the setting {error}.") from error
    except Exception as error:  # what storefact raises for settings that it does not know
        raise InvalidInput(f"Store {name} cannot be opened: {type(error).__name__}: {error}") from error


def _made(settings: dict[str, Any], name: str) -> Any:
    from kartothek_cube.errors import InvalidInput

    if "type" not in settings:
        raise InvalidInput(f"Store {name} has neither a type nor a url.")
    import storefact

    return partial(storefact.get_store, **settings)

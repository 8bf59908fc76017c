"""Opens stores from a URL, a path, a store object or a factory."""

from __future__ import annotations

import importlib
import importlib.util
import os
import pickle
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, cast
from urllib.parse import unquote

from kartothek_cube.core.stores.contract import InstrumentedStore, ReadOnlyView, Store
from kartothek_cube.core.stores.local import LocalStore, check_no_settings
from kartothek_cube.errors import InvalidInput, InvalidType, KartothekCubeError, Unsupported
from kartothek_cube.typing import StoreLike

if TYPE_CHECKING:
    from kartothek_cube.core.stores.urls import StoreUrl


_LOCAL_SETTINGS = ("fsync", "lock", "perm")
_OBJECT_SETTINGS = ("check_conditions", "credentials", "endpoint", "region")
_SETTINGS = sorted(("path", "readonly", *_LOCAL_SETTINGS, *_OBJECT_SETTINGS))
_BOOLEAN = (bool, "True or False")
_TYPES: dict[str, tuple[type | UnionType, str]] = {
    "readonly": _BOOLEAN,
    "fsync": _BOOLEAN,
    "check_conditions": _BOOLEAN,
    "perm": (int, "an int"),
    "region": (str, "a str"),
    "path": (str | os.PathLike, "a str or os.PathLike"),
}
_NONE_IS_DEFAULT = frozenset({"check_conditions", "perm", "region"})
_ALL_BITS = 0o7777
_SCHEMES = ("hfs", "file", "hmemory", "s3", "az", "gs")
_LONGEST_CHAIN = 10  # of factories that return factories


class StoreSettings(TypedDict, total=False):
    """Settings of a store; documented at `open_store`."""

    path: str | os.PathLike[str]
    readonly: bool
    fsync: bool
    lock: Literal["inode", "sidecar"]
    perm: int | None
    region: str | None
    endpoint: str
    credentials: Callable[[], object]
    check_conditions: bool | None


def open_store(x: StoreLike, **settings: Unpack[StoreSettings]) -> Store:
    """Open a store. Every ``store=`` argument accepts the same values.

    Nothing is read or written, and no directory is made.

    Parameters
    ----------
    x : str | os.PathLike | Store | simplekv or minimalkv store | file system | Callable
        A URL (``hfs:///path``, ``hfs://relative/path``, ``file:///path``, ``hmemory://name``,
        ``s3://bucket/prefix``, ``az://container/prefix``, ``gs://bucket/prefix``, an old one that
        contains credentials, or another one of storefact, minimalkv or fsspec), a directory, a
        store object, a file system of fsspec or pyarrow, or a function without arguments that
        returns one of these. A simplekv or minimalkv store of plain files and a local file system
        become a `LocalStore` on the same directory.
    **settings
        ``path`` is the folder of a file system that is the store, ``"bucket/prefix"``.
        ``readonly=True`` refuses writes. For local stores also ``lock`` (``"inode"`` or
        ``"sidecar"``), ``fsync`` (default True) and ``perm``. For object stores ``region``,
        ``endpoint`` (a URL), ``credentials`` (a function without arguments, as a
        ``credential_provider`` of obstore) and ``check_conditions`` (whether conditional puts are
        probed before the first commit; default: if there is an ``endpoint``).

    Raises
    ------
    InvalidType
        If ``x`` is none of these.
    InvalidInput
        If the URL or a setting is unknown or malformed.
    Unsupported
        If the URL names an object store and its extra (``s3``, ``azure``, ``gcs``) is not
        installed.

    Examples
    --------
    >>> store = open_store("hmemory://sales")
    >>> store.put("uuid/table/COUNTRY_CODE=DE/1.parquet", b"PAR1")
    >>> open_store("hmemory://sales").list("uuid/", recursive=True).keys
    ['uuid/table/COUNTRY_CODE=DE/1.parquet']
    """
    unknown = sorted(settings.keys() - set(_SETTINGS))
    if unknown:
        from kartothek_cube.core.arguments import did_you_mean

        hint = did_you_mean(unknown, _SETTINGS)
        raise InvalidInput(f"Unknown store settings {unknown}; there are {_SETTINGS}.{hint}")
    # The errors do not show the value: it may be a misplaced credential.
    for name, value in settings.items():
        expected, expected_text = _TYPES.get(name, (object, ""))
        if not isinstance(value, expected) and not (value is None and name in _NONE_IS_DEFAULT):
            raise InvalidType(f"{name}= of a store is {expected_text}, not {type(value).__name__}.")
    perm = settings.get("perm")
    if perm is not None and (isinstance(perm, bool) or not 0 <= perm <= _ALL_BITS):
        raise InvalidInput(f"perm={perm!r} is no set of permission bits; give an int such as 0o640.")
    others: dict[str, Any] = dict(settings)
    readonly = others.pop("readonly", False)
    store = _open(_call_factory(x), others)
    return ReadOnlyView(store) if readonly and store.capabilities.writable else store


def open_instrumented(x: StoreLike) -> Store:
    """Open a store for a verb: as `open_store`, and the current operation counts its calls.

    Examples
    --------
    >>> store = open_instrumented("hmemory://sales")
    >>> store == open_store("hmemory://sales"), open_store(store)
    (True, <MemoryStore hmemory://sales>)
    """
    return x if isinstance(x, InstrumentedStore) else InstrumentedStore(open_store(x))


def _call_factory(x: object) -> Any:
    for _ in range(_LONGEST_CHAIN):
        if isinstance(x, Store | str | os.PathLike) or not callable(x):
            return x
        from kartothek_cube.core.stores.key_value import is_key_value_store

        # A class is a factory although it has the methods of its stores.
        if is_key_value_store(x) and not isinstance(x, type):
            return x
        x = x()
    raise InvalidType(f"A store factory returned a function {_LONGEST_CHAIN} times instead of a store.")


def _open(x: object, settings: dict[str, Any]) -> Store:
    # Each kind of store loads its module itself: a process opens one of them.
    if not isinstance(x, Store | str | os.PathLike):
        from kartothek_cube.core.stores.file_system import is_file_system, open_file_system

        if is_file_system(x):
            _check_none_of(settings, _OBJECT_SETTINGS, "object stores given by URL")
            return open_file_system(x, os.fspath(settings.pop("path", "")), settings)
    _check_none_of(settings, ("path",), "file systems of fsspec and pyarrow")
    if isinstance(x, Store):
        _check_none_of(settings, _OBJECT_SETTINGS, "object stores given by URL")
        check_no_settings(settings, f"the opened store {x.name}")
        return x.inner if isinstance(x, InstrumentedStore) else x
    if isinstance(x, str) and ":" in x:
        from kartothek_cube.core.stores.urls import fsspec_url, looks_like_url, names_object_store

        explicit = fsspec_url(x)
        if explicit is not None:
            return _open_with_fsspec(explicit, settings)
        if names_object_store(x):
            return _open_objects(x, settings)
        if looks_like_url(x):
            return _open_url(x, settings)
    _check_none_of(settings, _OBJECT_SETTINGS, "object stores given by URL")
    if isinstance(x, str | os.PathLike):
        path = os.fspath(x)
        if not isinstance(path, str):
            raise InvalidType(f"Provided incompatible store type: the path {path!r} is bytes; it has to be a str.")
        if not path or "\0" in path:
            raise InvalidInput(f"{path!r} is no path of a directory.")
        return LocalStore(Path(path).expanduser(), **settings)
    from kartothek_cube.core.stores.key_value import adapt, is_key_value_store

    if is_key_value_store(x):
        return adapt(x, settings)
    prefix = getattr(x, "uuid_prefix", None)
    if isinstance(prefix, str):
        raise InvalidType(
            f"Expected a store, but got the cube {prefix!r}. The cube comes before the store: "
            f"query_cube({prefix!r}, store) would be right."
        )
    raise InvalidType(
        f"Provided incompatible store type {type(x).__name__}. A store is a URL such as hfs:///path, a path, "
        "a store object of kartothek_cube, simplekv or minimalkv, a file system of fsspec or pyarrow, or a function "
        "without arguments that returns one of these."
    )


def _check_none_of(settings: dict[str, Any], names: tuple[str, ...], stores: str) -> None:
    misplaced = sorted(settings.keys() & set(names))
    if misplaced:
        raise InvalidInput(f"The settings {misplaced} are for {stores}; this store does not take them.")


def _open_objects(url: str, settings: dict[str, Any]) -> Store:
    from kartothek_cube.core.stores.object_store import ObjectStore
    from kartothek_cube.core.stores.urls import parse_location

    _check_none_of(settings, _LOCAL_SETTINGS, "local stores")
    location = parse_location(url).with_settings(settings)
    objects = ObjectStore(location, settings.get("credentials"))
    return ReadOnlyView(objects) if location.readonly else objects


def _open_url(url: str, settings: dict[str, Any]) -> Store:
    from kartothek_cube.core.stores.urls import parse_url

    _check_none_of(settings, _OBJECT_SETTINGS, "object stores given by URL")
    parsed = parse_url(url)
    if parsed is None:
        return _open_with_storefact(url, settings)
    settings = {**parsed.settings, **settings}
    readonly = settings.pop("readonly", False)
    store = _open_parsed(parsed, settings)
    return ReadOnlyView(store) if readonly and store.capabilities.writable else store


def _open_parsed(url: StoreUrl, settings: dict[str, Any]) -> Store:
    from kartothek_cube.core.stores.urls import MEMORY_SCHEMES, StoreUrl

    if url.wrappers == ("readonly",):
        return ReadOnlyView(_open_parsed(StoreUrl(url.scheme, url.path), settings))
    if url.scheme in MEMORY_SCHEMES:
        from kartothek_cube.core.stores.local import MemoryStore

        check_no_settings(settings, "a memory store")
        if url.wrappers:
            raise InvalidInput(f"A memory store takes no wrapper but readonly, not {'+'.join(url.wrappers)}.")
        return MemoryStore(url.path or None)
    if url.wrappers:
        return _open_with_storefact(url.storefact(str(Path(url.path).absolute())), settings)
    return LocalStore(url.path, **settings)


def _open_with_storefact(url: str, settings: dict[str, Any]) -> Store:
    import storefact

    from kartothek_cube.core.arguments import did_you_mean
    from kartothek_cube.core.stores.key_value import adapt

    scheme = url.partition("://")[0]
    missing = ""
    try:
        store = storefact.get_store_from_url(url)
    except (ValueError, TypeError):
        store = _from_minimalkv(url)
    except ImportError as error:
        store, missing = None, str(error)
    if missing:
        raise Unsupported(f"Stores of kind {scheme} need a package that is not installed: {missing}.")
    if store is not None:
        adapted = adapt(store, settings)
        # A URL of minimalkv; its own store forgets this part where it has a directory.
        is_readonly = "readonly" in scheme.split("+")[1:]
        return ReadOnlyView(adapted) if is_readonly and adapted.capabilities.writable else adapted
    if importlib.util.find_spec("fsspec") and scheme in importlib.import_module("fsspec").available_protocols():
        return _open_with_fsspec(url, settings)
    # Errors of storefact and minimalkv may contain the URL with its password.
    raise InvalidInput(
        f"Unknown storage type or malformed URL {scheme}://…; use hfs://, hmemory://, s3://, az://, gs://, "
        f"another scheme of storefact, or one of fsspec (extra `fsspec`).{did_you_mean([scheme], _SCHEMES)}"
    )


def _open_with_fsspec(url: str, settings: dict[str, Any]) -> Store:
    from kartothek_cube.core.stores.file_system import open_file_system
    from kartothek_cube.core.stores.object_store import redacted

    _check_none_of(settings, _OBJECT_SETTINGS, "object stores given by URL")
    kind = re.split("::|://", url)[0]
    try:
        fs, path = importlib.import_module("fsspec").url_to_fs(url)
    except ImportError as error:
        raise Unsupported(f"Stores of kind {kind} need a package that is not installed: {error}.") from None
    except Exception as error:  # clients connect here, and raise anything
        secrets = [unquote(user) for user in re.findall(r"//([^/]*)@", url)]
        text = redacted(str(error), (*secrets, *(user.partition(":")[2] for user in secrets)))
        refusal = ConnectionError if isinstance(error, OSError) else InvalidInput
        refused = refusal(f"fsspec cannot open {kind}://…: {type(error).__name__}: {text}")
    else:
        # Without a path of its own, a protocol has that of the next one, which `dir` has in itself.
        return open_file_system(fs, "" if url.startswith("dir::") else path, settings)
    raise refused  # here, where the original, which may contain the password, is not its context


def _from_minimalkv(url: str) -> Any:
    """Return the store, or None if minimalkv is not installed or does not know the URL."""
    try:
        minimalkv = importlib.import_module("minimalkv")
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
            return minimalkv.get_store_from_url(url)
    except (ImportError, ValueError, TypeError, KeyError, NotImplementedError):
        return None


@dataclass(frozen=True, slots=True)
class StoreFactory:
    """Opens a store in another process, for stores that cannot be pickled but whose factory can."""

    # No repr: a `partial` shows its arguments, which may be a URL with a password.
    make: Callable[[], StoreLike] = field(repr=False)

    def __call__(self) -> Store:
        return open_store(self.make)


def store_factory(x: object) -> Store | StoreFactory:
    """Return a picklable form of a store: the store itself if possible, else a function.

    `open_store` accepts both, and equal directories give equal results.

    Raises
    ------
    InvalidType
        If neither can be pickled, or if another process cannot see the same objects, as of a store
        in memory.
    """
    store = open_store(cast("StoreLike", x))
    if not store.capabilities.shared:
        raise InvalidType(
            f"Store {store.name} lives in the memory of this process, so it cannot be used by another. "
            "Use a directory or another shared store."
        )
    if _can_pickle(store):
        return store
    from kartothek_cube.core.stores.key_value import is_key_value_store

    if callable(x) and not isinstance(x, Store) and not is_key_value_store(x) and _can_pickle(x):
        return StoreFactory(x)
    raise InvalidType(
        f"Store {store.name} cannot be pickled, so no other process can open it. "
        "Give its URL, or a function at module level that opens it."
    )


def _can_pickle(x: object) -> bool:
    try:
        pickle.loads(pickle.dumps(x))
    except KartothekCubeError:
        return False
    except Exception:  # pickling runs code of the user, which may raise anything
        return False
    return True

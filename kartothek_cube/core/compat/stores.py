"""`ensure_store` and `lazy_store`: kartothek's names for opening a store now, and for a function that opens it."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

from kartothek_cube.core.store import Store
from kartothek_cube.core.stores import StoreFactory, open_store
from kartothek_cube.core.stores.keyvalue import is_key_value_store
from kartothek_cube.errors import InvalidType
from kartothek_cube.typing import StoreLike

__all__ = ["ensure_store", "lazy_store"]


def ensure_store(store: StoreLike) -> Store:
    """The opened store, from everything that `open_store` takes. Whether it works is not tested.

    It has ``keys``, ``iter_keys``, ``in`` and ``open`` of simplekv.

    Raises
    ------
    InvalidType
        If it is nothing of this.
    InvalidInput
        If a URL is unknown or malformed.

    Examples
    --------
    >>> ensure_store("hmemory://sales")
    <MemoryStore hmemory://sales>
    """
    return open_store(store)


def lazy_store(store: StoreLike) -> Callable[[], Store]:
    """A function without arguments that opens the store whenever it is called. It pickles if its argument does.

    Raises
    ------
    InvalidType
        If it is no URL, path, store or function. A wrong URL fails when the function is called.

    Examples
    --------
    >>> open_sales = lazy_store("hmemory://sales")
    >>> open_sales() == ensure_store("hmemory://sales")
    True
    """
    if isinstance(store, StoreFactory):
        return store
    if isinstance(store, (str, os.PathLike, Store)) or (is_key_value_store(store) and not isinstance(store, type)):
        return partial(open_store, store)
    if callable(store):
        return StoreFactory(store)
    raise InvalidType(
        f"Provided incompatible store type {type(store).__name__}. A store is a URL, a path, a store object, or a function that returns one of these."
    )

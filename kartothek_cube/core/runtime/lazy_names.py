"""Modules that are imported when a name of theirs is first used."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

__all__ = ["lazy_names", "load"]


def load(name: str) -> ModuleType:
    """Import a module, without collections of garbage: what a module makes, it keeps.

    They take a sixth of the time of loading Arrow or pandas.

    Examples
    --------
    >>> load("kartothek_cube.errors").KeyNotFound.__name__
    'KeyNotFound'
    """
    if name in sys.modules or not gc.isenabled():
        return import_module(name)
    gc.disable()
    try:
        return import_module(name)
    finally:
        gc.enable()


def lazy_names(
    module: str, homes: Mapping[str, Collection[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The ``__getattr__`` and ``__dir__`` of a module.

    Parameters
    ----------
    module : str
        Its name. The module has ``__all__``.
    homes : dict of str to list of str
        Names per module of this package that defines them; ``"A as B"`` is another name of ``A``,
        and ``{"errors": ["errors"]}`` means the module.

    Examples
    --------
    >>> find, _ = lazy_names("kartothek_cube", {"core.text": ["did_you_mean"]})
    >>> find("did_you_mean")(["SALES_DAT"], ["SALES_DATE"])
    " Did you mean 'SALES_DATE'?"
    """
    places = {name.rpartition(" as ")[2]: (home, name.partition(" as ")[0]) for home in homes for name in homes[home]}

    def find(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        home, attribute = places[name]
        found = load(f"kartothek_cube.{home}")
        value = found if home == attribute else getattr(found, attribute)
        setattr(sys.modules[module], name, value)  # the next access is one of a plain module
        return value

    # A name may be missing in `__all__`: a star import leaves the builtin `open` alone.
    return find, lambda: sorted({*places, *sys.modules[module].__all__})

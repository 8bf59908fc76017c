"""Modules that are imported when a name of theirs is first used."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(
    module: str, homes: Mapping[str, str]
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """The ``__all__``, ``__getattr__`` and ``__dir__`` of a module.

    Parameters
    ----------
    module : str
        Its name.
    homes : dict of str to str
        Names, joined by ``", "``, per module of this package that defines them; ``"A as B"`` is
        another name of ``A``, and ``{"errors": "errors"}`` means the module.

    Examples
    --------
    >>> names, find, _ = lazy_names("kartothek_cube", {"core.arguments": "did_you_mean"})
    >>> find("did_you_mean")(["SALES_DAT"], ["SALES_DATE"])
    " Did you mean 'SALES_DATE'?"
    """
    places = {}
    for home, names in homes.items():
        for shown in names.split(", "):
            attribute, _, other = shown.partition(" as ")
            places[other or attribute] = (home, attribute)

    def find(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        home, attribute = places[name]
        found = import_module(f"kartothek_cube.{home}")
        value = found if home == attribute else getattr(found, attribute)
        setattr(sys.modules[module], name, value)  # the next access is one of a plain module
        return value

    # A star import leaves the builtin `open` alone.
    return sorted(name for name in places if not hasattr(builtins, name)), find, lambda: sorted(places)

"""A bar of tqdm: on stderr if that is a terminal, and in notebooks. Nothing of it stays."""

from __future__ import annotations

import importlib
from typing import Any

from kartothek_cube.core.progress import Progress
from kartothek_cube.errors import MissingExtra

__all__ = ["Bar", "require_tqdm"]


def require_tqdm() -> Any:
    """The class of bars that suits terminal or notebook.

    Raises
    ------
    MissingExtra
        If tqdm is not installed.
    """
    try:
        return importlib.import_module("tqdm.auto").tqdm
    except ImportError as error:
        raise MissingExtra("options(progress=True) needs the package tqdm, which is not installed: pip install 'kartothek-cube[progress]'") from error


class Bar:
    """Draws one phase of a verb."""

    def __init__(self) -> None:
        self._make = require_tqdm()
        self._bar: Any = None

    def __call__(self, event: Progress) -> None:
        """Draw how far it is."""
        if self._bar is None:  # a bar without a total has no truth value
            self._bar = self._drawn(event)
        self._bar.total = event.total
        self._bar.update(event.done - self._bar.n)

    def _drawn(self, event: Progress) -> Any:
        # tqdm takes a notebook for no terminal.
        in_notebook = any(kind.__module__ == "tqdm.notebook" for kind in self._make.__mro__)
        return self._make(desc=event.heading, unit=f" {event.unit}", total=event.total, leave=False, dynamic_ncols=True, disable=False if in_notebook else None)

    def close(self) -> None:
        """Take it away."""
        if self._bar is not None:
            self._bar.close()

"""The command ``kartothek_cube``.

It needs the extra ``cli``; nothing outside of this room imports click.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kartothek_cube.cli.app import cli

__all__ = ["cli", "main"]

_MISSING = "The command kartothek_cube needs the package {}, which is not installed: pip install 'kartothek-cube[cli]'"


def main() -> None:
    """Run the command: what the console script calls.

    Without the extra ``cli`` it ends with one line that names it.
    """
    try:
        from kartothek_cube.cli.app import cli
    except ModuleNotFoundError as error:
        if error.name != "click":
            raise
        sys.exit(f"Error: {_MISSING.format('click')}")
    _fill_streams()
    cli(prog_name="kartothek_cube")


def _fill_streams() -> None:
    """Whoever starts programs without a terminal may close their streams; then there is None, which cannot be asked whether it is one."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - it stays open


def __getattr__(name: str) -> Any:
    if name != "cli":
        raise AttributeError(f"module 'kartothek_cube.cli' has no attribute {name!r}")
    try:
        from kartothek_cube.cli.app import cli
    except ModuleNotFoundError as error:
        if error.name != "click":
            raise
        from kartothek_cube.errors import MissingExtra

        raise MissingExtra(_MISSING.format("click")) from error
    return cli

"""The command ``kartothek_cube``, with the extra ``cli``; only this room imports click."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kartothek_cube.cli.app import cli as cli


_MISSING = "The command kartothek_cube needs the package {}, which is not installed: pip install 'kartothek-cube[cli]'"


def main() -> None:
    """Run the command; the console script calls this.

    Without the extra ``cli`` the process ends with one line that names the extra.
    """
    try:
        from kartothek_cube.cli.app import cli as cli
    except ModuleNotFoundError as error:
        if error.name != "click":
            raise
        sys.exit(f"Error: {_MISSING.format('click')}")
    _fill_streams()
    cli(prog_name="kartothek_cube")


def _fill_streams() -> None:
    # A parent may start us with closed streams. Then they are None, without `isatty`.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - it stays open


def __getattr__(name: str) -> Any:
    if name != "cli":
        raise AttributeError(f"module 'kartothek_cube.cli' has no attribute {name!r}")
    try:
        from kartothek_cube.cli.app import cli as cli
    except ModuleNotFoundError as error:
        if error.name != "click":
            raise
        from kartothek_cube.errors import MissingExtra

        raise MissingExtra(_MISSING.format("click")) from error
    return cli

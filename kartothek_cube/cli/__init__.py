"""The command ``kartothek_cube``. It needs the extra ``cli``; nothing outside of this room imports click."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kartothek_cube.cli.commands import cli

__all__ = ["cli", "main"]

_MISSING = "The command kartothek_cube needs the package {}, which is not installed: pip install 'kartothek-cube[cli]'"


def main() -> None:
    """Run the command: what the console script calls.

    Without the extra ``cli`` it ends with one line that names it.
    """
    try:
        from kartothek_cube.cli.commands import cli
    except ModuleNotFoundError as error:
        if error.name != "click":
            raise
        sys.exit(f"Error: {_MISSING.format('click')}")
    cli(prog_name="kartothek_cube")


def __getattr__(name: str) -> Any:
    if name != "cli":
        raise AttributeError(f"module 'kartothek_cube.cli' has no attribute {name!r}")
    try:
        from kartothek_cube.cli.commands import cli
    except ModuleNotFoundError as error:
        if error.name != "click":
            raise
        from kartothek_cube.errors import MissingExtra

        raise MissingExtra(_MISSING.format("click")) from error
    return cli

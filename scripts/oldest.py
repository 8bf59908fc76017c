"""Prints lower bounds, the constraints of ``make test-oldest``.

They are those of the main dependencies and of the extras whose packages this library adapts to.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ADAPTED = ("polars", "sql")
REQUIREMENT = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)\s*>=\s*(?P<oldest>[0-9][0-9A-Za-z.]*)")


def pin(requirement: str) -> str:
    """``pandas>=2.2.0`` as ``pandas==2.2.0``."""
    found = REQUIREMENT.match(requirement)
    if found is None:
        message = f"the dependency {requirement!r} in pyproject.toml has no lower bound: write it as name>=version"
        raise SystemExit(message)
    return f"{found['name']}=={found['oldest']}"


def main(pyproject: Path) -> None:
    """Print one pin a line."""
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    requirements = [*project["dependencies"], *(item for extra in ADAPTED for item in extras[extra])]
    print("\n".join(map(pin, requirements)))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "pyproject.toml")

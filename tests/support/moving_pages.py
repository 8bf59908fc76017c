"""The page on moving: pairs of an old and a new example, and the tables of names."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from dataclasses import dataclass
from typing import Any

from tests.support.checklists import LISTS, REPOSITORY
from tests.support.doc_blocks import blocks_in

PAGE = REPOSITORY / "docs" / "moving.md"
LIBRARIES = {"kartothek": "kartothek 5.3", "plateau": "plateau 4.6"}
# Modules with all names of some old modules.
HOMES = [
    "kartothek_cube.cli",
    *(f"kartothek_cube.api.{name}" for name in ("cube", "dataset", "discover", "consistency", "serialization")),
]
_TOKEN = re.compile(r"`([^`]+)`")


@dataclass(frozen=True, slots=True)
class Pair:
    """Code for the old library, and the same code for this one."""

    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Row:
    """Names of old modules and their new places. A row without names covers the rest."""

    modules: tuple[str, ...]
    names: tuple[str, ...]
    here: tuple[str, ...]
    is_same: bool


def text() -> str:
    return PAGE.read_text(encoding="utf-8")


def section(title: str) -> str:
    """The text below a heading of the second level."""
    return text().partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def pairs_of(library: str) -> list[Pair]:
    """Each old example with the new one after it; some examples are both."""
    blocks = list(blocks_in(text()))
    pairs = []
    for n, block in enumerate(blocks):
        if block.rest == f"no-run: runs with {LIBRARIES[library]}":
            pairs.append(Pair(block.code, blocks[n + 1].code))
        elif block.code.startswith(f"# {LIBRARIES[library]} and kartothek_cube\n"):
            pairs.append(Pair(block.code, block.code))
    return pairs


def rows() -> list[Row]:
    """The two tables of names: the modules with the same names, and the changes."""
    lines = section("Every name").splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if line.startswith("| `")]
    return [_row(left, right) for left, right in cells]


def _row(left: str, right: str) -> Row:
    modules, _, names = left.partition(": ")
    here = tuple(token for token in _TOKEN.findall(right) if token.startswith("kartothek_cube"))
    return Row(
        tuple(_TOKEN.findall(modules)), tuple(_TOKEN.findall(names)), here, right in {f"`{module}`" for module in HOMES}
    )


def names_of(library: str) -> dict[str, list[str]]:
    """Old module → its public names."""
    listed = tomllib.loads((LISTS / "moving_names.toml").read_text(encoding="utf-8"))[library]
    return {module: names.split() for module, names in listed.items()}


def heirs_of(module: str, name: str) -> tuple[str, ...] | None:
    """The new place of a name, from its own row or its module's row; None if there is none."""
    found = [row for row in rows() if module in row.modules]
    for row in sorted(found, key=lambda row: not row.names):
        if name in row.names or (not row.names and not row.is_same):
            return row.here
        if row.is_same:
            return (f"{row.here[0]}.{name}",)
    return None


def exists(dotted: str) -> bool:
    """Whether a module, or a name of a module, can be imported."""
    module, _, name = dotted.rpartition(".")
    try:
        return hasattr(importlib.import_module(module), name) or importlib.util.find_spec(dotted) is not None
    except ImportError:
        return False


def frames_of(namespace: dict[str, Any]) -> dict[str, list[Any]]:
    """The frames among the variables, and the lists of frames."""
    import pandas as pd

    lists = {
        name: value if isinstance(value, list) else [value]
        for name, value in namespace.items()
        if not name.startswith("_")
    }
    return {
        name: frames
        for name, frames in lists.items()
        if frames and all(isinstance(frame, pd.DataFrame) for frame in frames)
    }

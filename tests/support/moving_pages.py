"""The pages for movers: pairs of an old and a new example, and the table of names."""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.doc_blocks import blocks_in

DOCS = Path(__file__).parents[2] / "docs"
_TOKEN = re.compile(r"`([^`]+)`")


@dataclass(frozen=True, slots=True)
class Pair:
    """What was written for the old library, and what is written now."""

    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Row:
    """Names of one old module and where they are now; modules without names are told of elsewhere."""

    module: str
    names: tuple[str, ...]
    here: tuple[str, ...]


def text_of(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


def pairs_of(page: str, library: str) -> list[Pair]:
    """Each old example with the new one that follows it."""
    blocks = list(blocks_in(text_of(page)))
    old = [n for n, block in enumerate(blocks) if block.rest.startswith(f"no-run: runs with {library} ")]
    return [Pair(blocks[n].code, blocks[n + 1].code) for n in old]


def rows_of(page: str) -> list[Row]:
    """The table of names; what it says of the names on the right is a place for each of them, or words."""
    lines = text_of(page).partition("## Every name\n")[2].splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if line.startswith("| `")]
    return [row for left, right in cells for row in _rows(left, right)]


def _rows(left: str, right: str) -> list[Row]:
    modules, _, names = left.partition(": ")
    listed = tuple(_TOKEN.findall(names))
    places = tuple(token for token in _TOKEN.findall(right) if token.startswith("kartothek_cube"))
    here = (*(f"{places[0]}.{name}" for name in listed), *places[1:]) if right.startswith("same names") else places
    return [Row(module, listed, here) for module in _TOKEN.findall(modules)]


def exists(dotted: str) -> bool:
    """Whether a module, or a name in one, can be imported."""
    module, _, name = dotted.rpartition(".")
    try:
        return hasattr(importlib.import_module(module), name) if module else bool(importlib.import_module(dotted))
    except ImportError:
        return False


def frames_of(namespace: dict[str, Any]) -> dict[str, list[Any]]:
    """The frames among variables, and lists of frames."""
    import pandas as pd

    lists = {name: value if isinstance(value, list) else [value] for name, value in namespace.items() if not name.startswith("_")}
    return {name: frames for name, frames in lists.items() if frames and all(isinstance(frame, pd.DataFrame) for frame in frames)}

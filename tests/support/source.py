"""The source of the package, for the tests of its layers and its shape."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import kartothek_cube

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = Path(kartothek_cube.__file__).parent


@dataclass(frozen=True, slots=True)
class Module:
    """One file of the package."""

    name: str
    path: Path
    text: str

    @property
    def tree(self) -> ast.Module:
        """The parsed source."""
        return _parsed(self.text)

    @property
    def is_package(self) -> bool:
        """Whether the file is the ``__init__`` of a folder."""
        return self.path.name == "__init__.py"


@cache
def _parsed(text: str) -> ast.Module:
    return ast.parse(text)


def read_module(path: Path) -> Module:
    """The module in a file."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    return Module(name, path, path.read_text(encoding="utf-8"))


MODULES = {module.name: module for module in map(read_module, sorted(PACKAGE.rglob("*.py")))}


@cache
def imports(module: Module) -> tuple[str, ...]:
    """Full names of all imported modules: at the top, in functions, for type checking only."""
    return tuple(_imports(module))


def _imports(module: Module) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            assert node.level == 0, f"{module.name} has a relative import: {base}"
            yield from (f"{base}.{alias.name}" if f"{base}.{alias.name}" in MODULES else base for alias in node.names)


def functions(module: Module) -> Iterator[tuple[str, int]]:
    """Name and number of lines of every function; docstring and signature do not count."""
    for node in ast.walk(module.tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            body = node.body[1:] if ast.get_docstring(node) is not None else node.body
            yield f"{module.name}.{node.name}", (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0

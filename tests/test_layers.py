"""Imports go one way; importing the package is fast and loads nothing heavy."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections import Counter

import pytest

from tests.support.source import MODULES, imports

# A room imports from the rooms above it in the list, and from itself.
ROOMS = [
    "errors",
    "typing",
    "core.text",
    "core.arguments",
    "core.runtime",
    "core.stores",
    "core.arrow",
    "core.expressions",
    "core.display",
    "core.io",
    "core.metadata",
    "core.snapshots",
    "core.scan",
    "core.write",
    "core.commit",
    "core.maintenance",
    "core.rows",
    "core.kartothek",
    "core.dataset",
    "cube.cube",
    "cube.arguments",
    "cube.members",
    "cube.query",
    "cube.execute",
    "cube.write",
    "cube.verify",
    "cube.report",
    "cube.verbs",
    "engines",
    "api",
    "testing",
    "spark",
    "cli",
    "__main__",
]

# Where a library may be imported; all others are for everyone.
HOMES = {
    "pandas": {
        "core.arguments",
        "core.arrow",
        "core.dataset",
        "core.expressions",
        "core.kartothek",
        "cube",
        "spark",
        "cli",
        "testing",
        "typing",
    },
    "pyspark": {"spark", "testing"},
    "click": {"cli"},
    "polars": {"engines"},
    "daft": {"engines"},
    "duckdb": {"engines", "cli"},
}
MODULES_OF_A_ROOM = 15
# What `import kartothek_cube` may load.
MODULES_LOADED = 60


def room_of(name: str) -> str | None:
    """The room of a module; None for other packages, and for the ``__init__`` of the package and of
    its layers.
    """
    package, _, inside = name.partition(".")
    if package != "kartothek_cube":
        return None
    return max((room for room in ROOMS if f"{inside}.".startswith(f"{room}.")), key=len, default=None)


def top_level(name: str) -> set[str]:
    return {imported.split(".")[0] for imported in imports(MODULES[name])}


# The types of public signatures name classes of all rooms, for type checkers only.
TYPES = "kartothek_cube.typing"
NAMED = [
    name for name in MODULES if name not in {"kartothek_cube", "kartothek_cube.core", "kartothek_cube.cube", TYPES}
]


@pytest.mark.parametrize("name", NAMED)
def test_a_room_imports_only_from_the_rooms_above_it(name):
    room = room_of(name)
    assert room is not None, f"give {name} a room in ROOMS"
    below = set(ROOMS[ROOMS.index(room) + 1 :])
    assert [imported for imported in imports(MODULES[name]) if room_of(imported) in below] == []


def test_every_room_has_modules():
    assert [room for room in ROOMS if not any(room_of(name) == room for name in MODULES)] == []


def test_no_room_is_crowded():
    folders = Counter(
        name if module.is_package else name.rpartition(".")[0]
        for name, module in MODULES.items()
        if not module.is_package
    )
    # A command and a verb each have a file of their own, however many there are.
    verbs = {"kartothek_cube.cli.commands", "kartothek_cube.cube.verbs"}
    assert {folder: n for folder, n in folders.items() if n > MODULES_OF_A_ROOM and folder not in verbs} == {}


@pytest.mark.parametrize("library", HOMES)
def test_a_library_stays_in_its_rooms(library):
    strangers = [
        name
        for name in MODULES
        if library in top_level(name)
        and not any(f"{name}.".startswith(f"kartothek_cube.{home}.") for home in HOMES[library])
    ]
    assert [name for name in strangers if name != "kartothek_cube"] == []


@pytest.mark.parametrize("name", [name for name in MODULES if room_of(name) == "api"])
def test_api_holds_imports_only(name):
    for node in MODULES[name].tree.body:
        is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        is_all = isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["__all__"]
        assert is_docstring or is_all or isinstance(node, (ast.Import, ast.ImportFrom)), ast.unparse(node)


def test_the_types_import_only_the_standard_library():
    loaded = modules_after(f"import {TYPES}")
    assert {name for name in loaded if name.partition(".")[0] not in sys.stdlib_module_names} == {
        "kartothek_cube",
        TYPES,
    }


def test_the_modules_import_each_other_without_a_cycle():
    graph = {
        name: {imported for imported in imports(module) if imported in MODULES and imported != name}
        for name, module in MODULES.items()
        if name != TYPES
    }
    while free := [name for name, needed in graph.items() if not needed & graph.keys()]:
        for name in free:
            del graph[name]
    assert sorted(graph) == []


def modules_after(statement: str) -> set[str]:
    """What a fresh interpreter loads by a statement."""
    code = (
        f"import sys, json; before = set(sys.modules); {statement}; "
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    return set(
        json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    )


def test_importing_the_package_loads_nothing_heavy():
    loaded = modules_after("import kartothek_cube")
    assert loaded & {"pandas", "numpy", "pyarrow", "pyspark", "simplekv", "storefact", "click"} == set()
    assert len(loaded) <= MODULES_LOADED


def test_the_verbs_come_without_pandas_and_pyspark():
    loaded = modules_after("import kartothek_cube.api.cube, kartothek_cube.api.dataset, kartothek_cube.spark")
    assert loaded & {"pandas", "pyspark", "simplekv", "storefact", "click", "obstore"} == set()

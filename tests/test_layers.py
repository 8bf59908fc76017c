"""Imports go one way; importing the package is fast and pulls nothing heavy."""

from __future__ import annotations

import ast
import json
import subprocess
import sys

import pytest

from tests.support.source import MODULES, imports

# A layer imports from those above it in the list and from itself.
LAYERS = ["errors", "typing", "core", "cube", "api", "testing", "spark", "cli", "__main__"]

# Names what all layers have, for annotations; at run time it imports nothing of the package.
TYPES = "kartothek_cube.typing"

# The same inside core, room by room. Rooms on one line may import from each other.
ROOMS = [
    ["markup"],
    ["lookup", "naming", "rowkeys", "unpack"],
    ["types"],
    ["schema"],
    ["schema_file"],
    ["predicates"],
    ["evaluate"],
    ["ranges"],
    ["index"],
    ["metadata"],
    ["layout"],
    ["gc_guard", "progress"],
    ["options"],
    ["telemetry"],
    ["store", "stores"],
    ["formats", "footer"],
    ["parquet_file"],
    ["parquet", "csv_format"],
    ["files"],
    ["small_files", "beside"],
    ["scan"],
    ["receipt"],
    ["change"],
    ["split"],
    ["rebase"],
    ["apply"],
    ["explain"],
    ["render"],
    ["parallel"],
    ["regroup"],
    ["document_store"],
    ["snapshots"],
    ["history"],
    ["stage"],
    ["group_commit", "renew", "schema_update", "commit"],
    ["maintenance"],
    ["frames"],
    ["input_rows"],
    ["compat"],
    # A compaction reads as a scan does, whose execution is in `dataset`.
    ["maintenance", "dataset"],
]

PANDAS_ROOMS = {"frames", "compat", "dataset"}
# Where else a library may be imported than in its own layer.
PYSPARK_LAYERS = {"spark", "testing"}
CLICK_LAYERS = {"cli"}
MOST_MODULES = 60

LEVEL = {room: level for level, rooms in enumerate(ROOMS) for room in rooms}
CORE = [name for name in MODULES if name.startswith("kartothek_cube.core.")]


def part(name: str, depth: int) -> str | None:
    """The layer (depth 1) or room (depth 2) of a module of the package."""
    parts = name.split(".")
    return parts[depth] if parts[0] == "kartothek_cube" and len(parts) > depth else None


def top_level(name: str) -> set[str]:
    return {imported.split(".")[0] for imported in imports(MODULES[name])}


@pytest.mark.parametrize("name", [name for name in MODULES if name not in ("kartothek_cube", TYPES)])
def test_a_layer_imports_only_from_the_layers_above_it(name):
    layer = part(name, 1)
    assert layer in LAYERS, f"give the layer {layer} a place in LAYERS"
    below = LAYERS[LAYERS.index(layer) + 1 :]
    assert [imported for imported in imports(MODULES[name]) if part(imported, 1) in below] == []


@pytest.mark.parametrize("name", CORE)
def test_a_room_of_core_imports_only_from_the_rooms_above_it(name):
    room = part(name, 2)
    assert room in LEVEL, f"give the room {room} a place in ROOMS"
    rooms = {imported: part(imported, 2) for imported in imports(MODULES[name]) if part(imported, 1) == "core"}
    assert [imported for imported, other in rooms.items() if other is not None and LEVEL.get(other, len(ROOMS)) > LEVEL[room]] == []


@pytest.mark.parametrize("name", [name for name in CORE if part(name, 2) not in PANDAS_ROOMS])
def test_core_knows_pandas_only_at_its_edge(name):
    assert "pandas" not in top_level(name)


@pytest.mark.parametrize("name", MODULES)
def test_pyspark_and_click_stay_in_their_layers(name):
    layer = part(name, 1)
    assert "pyspark" not in top_level(name) or layer in PYSPARK_LAYERS
    assert "click" not in top_level(name) or layer in CLICK_LAYERS


@pytest.mark.parametrize("name", [name for name in MODULES if part(name, 1) == "api"])
def test_api_holds_imports_only(name):
    for node in MODULES[name].tree.body:
        is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        is_all = isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["__all__"]
        assert is_docstring or is_all or isinstance(node, (ast.Import, ast.ImportFrom)), ast.unparse(node)


def test_the_types_import_only_the_standard_library_at_run_time():
    code = f"import sys; before = set(sys.modules); import {TYPES}; print(*set(sys.modules) - before)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {name for name in loaded if name.partition(".")[0] not in sys.stdlib_module_names} == {"kartothek_cube", TYPES}


def test_the_modules_import_each_other_without_a_cycle():
    graph = {name: {imported for imported in imports(module) if imported in MODULES and imported != name} for name, module in MODULES.items() if name != TYPES}
    while free := [name for name, needed in graph.items() if not needed & graph.keys()]:
        for name in free:
            del graph[name]
    assert sorted(graph) == []


def modules_after(statement: str) -> set[str]:
    """What a fresh interpreter loads by a statement."""
    code = f"import sys, json; before = set(sys.modules); {statement}; print(json.dumps(sorted(set(sys.modules) - before)))"
    return set(json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout))


def test_importing_the_package_loads_nothing_heavy():
    loaded = modules_after("import kartothek_cube")
    assert loaded & {"pandas", "numpy", "pyarrow", "pyspark", "simplekv", "storefact", "click"} == set()
    assert len(loaded) <= MOST_MODULES


def test_the_verbs_come_without_pandas_and_pyspark():
    loaded = modules_after("import kartothek_cube.api.cube, kartothek_cube.api.dataset, kartothek_cube.spark")
    assert loaded & {"pandas", "pyspark", "simplekv", "storefact", "click", "obstore"} == set()

"""Imports go one way; importing the package is fast and loads nothing heavy."""

from __future__ import annotations

import ast
import importlib
import json
import subprocess
import sys
from collections import Counter

import pyarrow as pa
import pytest

from kartothek_cube import Cube, build_cube
from tests.support.source import MODULES, imports

# A room imports from the rooms above it in the list, and from itself.
ROOMS = [
    "errors",
    "typing",
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
    "core.delta",
    "core.write",
    "core.commit",
    "core.maintenance",
    "core.rows",
    "core.kartothek",
    "core.dataset",
    "cube.cube",
    "cube.consistent_read",
    "cube.members",
    "cube.query",
    "cube.execute",
    "cube.write",
    "cube.report",
    "cube.verbs",
    "engines",
    "api",
    "handles",
    "testing",
    "spark",
    "dask",
    "plateau",
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
        "dask",
        "handles",
        "plateau",
        "spark",
        "cli",
        "testing",
        "typing",
    },
    "pyspark": {"spark", "testing"},
    "dask": {"dask", "plateau.io.dask"},
    "distributed": {"dask"},
    "click": {"cli"},
    "polars": {"engines", "handles"},
    "daft": {"engines"},
    "duckdb": {"engines", "handles", "cli"},
}
MODULES_OF_A_ROOM = 15
# Names that a star import leaves out, since they are those of builtins.
STARLESS = {"kartothek_cube": {"open"}}
# What `import kartothek_cube` may load.
MODULES_LOADED = 60
# What a verb that reads a dataset may load of this package.
MODULES_OF_A_READ = 46


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


API = [name for name in MODULES if room_of(name) == "api" and not MODULES[name].is_package]


@pytest.mark.parametrize("name", ["kartothek_cube", *API])
def test_a_module_of_the_api_holds_names_only(name):
    docstring, *nodes = [node for node in MODULES[name].tree.body if not isinstance(node, ast.ImportFrom)]
    assert isinstance(docstring, ast.Expr)
    types, *assigned = nodes
    assert isinstance(types, ast.If)
    assert ast.unparse(types.test) == "TYPE_CHECKING"
    assert {ast.unparse(target) for node in assigned for target in node.targets} <= {"__all__", "__version__"}


@pytest.mark.parametrize("name", ["kartothek_cube", *API])
def test_a_module_of_the_api_loads_what_type_checkers_see(name):
    types = next(node for node in MODULES[name].tree.body if isinstance(node, ast.If))
    seen = {
        alias.asname or alias.name: (
            node.module.removeprefix("kartothek_cube.") if alias.name != "errors" else "errors",
            alias.name,
        )
        for node in types.body
        for alias in node.names
    }
    homes = ast.literal_eval(types.orelse[0].value.args[1])
    loaded = {
        shown.rpartition(" as ")[2]: (home, shown.partition(" as ")[0])
        for home, names in homes.items()
        for shown in names.split(", ")
    }
    assert loaded == seen
    module = importlib.import_module(name)
    listed = set(module.__all__) | STARLESS.get(name, set())
    assert sorted(loaded) == sorted(listed - {"__version__"}) == sorted(set(dir(module)) - {"__version__"})
    for shown, (home, attribute) in loaded.items():
        defined = importlib.import_module(f"kartothek_cube.{home}")
        assert getattr(module, shown) is (defined if home == attribute else getattr(defined, attribute))


@pytest.mark.parametrize("name", ["kartothek_cube", *API])
def test_all_names_of_the_api_come_with_a_star(name):
    namespace = {}
    exec(f"from {name} import *", namespace)
    assert set(importlib.import_module(name).__all__) <= namespace.keys()
    assert not STARLESS.get(name, set()) & namespace.keys()


def test_a_name_that_the_api_lacks_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"module 'kartothek_cube\.api\.cube' has no attribute 'build_cubes'"):
        importlib.import_module("kartothek_cube.api.cube").build_cubes  # noqa: B018


def test_the_types_import_only_the_standard_library():
    loaded = modules_after(f"import {TYPES}") - modules_after("import kartothek_cube")
    assert {name for name in loaded if name.partition(".")[0] not in sys.stdlib_module_names} == {TYPES}


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


def test_the_modules_of_the_api_load_none_of_the_modules_whose_names_they_have():
    loaded = modules_after(f"import {', '.join(API)}") - modules_after("import kartothek_cube")
    assert loaded <= {"kartothek_cube.api", *API}


# What a statement may not load: other libraries, and rooms of this package that it does without.
WITHOUT = {"pandas", "pyspark", "duckdb", "polars", "msgpack", "simplekv", "storefact", "click", "obstore", "tqdm"}
UNUSED_BY_READS = {
    "pyarrow.csv",
    "pyarrow.dataset",
    *(
        f"kartothek_cube.{room}"
        for room in (
            "core.commit",
            "core.kartothek.dataset_metadata",
            "core.maintenance",
            "core.rows",
            "core.stores.key_value",
            "core.stores.object_store",
            "core.stores.urls",
            "core.write.stage",
            "engines",
            "spark",
        )
    ),
}


def test_a_command_starts_without_arrow():
    pytest.importorskip("click", reason="not installed: click")
    names = (name for name in MODULES if name.startswith("kartothek_cube.cli.commands."))
    loaded = modules_after(f"import {', '.join(names)}")
    assert loaded & {"numpy", "pyarrow", "pandas", "duckdb", "prompt_toolkit"} == set()


def test_all_verbs_together_load_no_heavy_library():
    statement = "; ".join(f"from {name} import *" for name in API)
    assert modules_after(f"{statement}; import kartothek_cube.spark") & WITHOUT == set()


@pytest.mark.parametrize("room", ["core", "cube", "api", "spark", "dask", "plateau"])
def test_no_room_needs_a_library_of_another_extra(room):
    for library in {"spark": ["pyspark"], "dask": ["dask", "distributed"], "plateau": ["dask"]}.get(room, []):
        pytest.importorskip(library, reason=f"not installed: {library}")
    names = [name for name in MODULES if name.startswith(f"kartothek_cube.{room}.")]
    assert modules_after(f"import {', '.join(names)}") & {"duckdb", "polars", "daft", "prompt_toolkit"} == set()


def test_a_verb_that_reads_a_dataset_loads_nothing_that_others_need():
    loaded = modules_after("from kartothek_cube.api.dataset import read_table_arrow")
    assert loaded & (WITHOUT | UNUSED_BY_READS | {"kartothek_cube.core.expressions.conditions"}) == set()
    # Old versions of NumPy load it themselves.
    assert "secrets" not in loaded - modules_after("import numpy, pyarrow.parquet")
    assert not any(name.startswith("kartothek_cube.cube") for name in loaded)
    ours = sorted(name for name in loaded if name.startswith("kartothek_cube."))
    assert len(ours) <= MODULES_OF_A_READ, ours


@pytest.mark.parametrize("task", ["read"])
def test_a_reading_task_of_spark_loads_neither_planning_of_cubes_nor_commits(task):
    pytest.importorskip("pyspark", reason="not installed: pyspark")
    loaded = modules_after(f"import kartothek_cube.spark.{task}") - {"kartothek_cube.spark", "pyspark"}
    assert loaded & (WITHOUT | UNUSED_BY_READS) == set()
    assert "kartothek_cube.cube.query.planning" not in loaded


def test_the_module_that_spark_finds_by_its_name_holds_the_data_source():
    pytest.importorskip("pyspark", reason="not installed: pyspark")
    found = importlib.import_module("pyspark_kartothek_cube")
    assert found.DefaultSource is importlib.import_module("kartothek_cube.spark.datasource").KartothekCubeSource
    # Whoever uses another data source of Python loads it, too.
    assert modules_after("import pyspark_kartothek_cube") & (WITHOUT | {"pyarrow.dataset"}) - {"pyspark"} == set()


def test_a_writing_task_of_spark_loads_none_of_the_classes_of_kartothek():
    pytest.importorskip("pyspark", reason="not installed: pyspark")
    loaded = modules_after("import kartothek_cube.spark.stage") - {"pyspark"}
    assert loaded & WITHOUT == set()
    assert [
        name for name in loaded if name.startswith(("kartothek_cube.core.kartothek", "kartothek_cube.engines"))
    ] == []


def test_reading_loads_no_more_than_pandas_which_arrow_loads(tmp_path):
    table = pa.table({"p": [1, 1, 2], "x": [1, 2, 3]})
    build_cube(table, Cube(["x"], ["p"], "sales"), tmp_path)
    statement = "from kartothek_cube.api.dataset import read_table_arrow"
    call = f"read_table_arrow('sales++seed', {str(tmp_path)!r}, predicates=[[('p', '==', 1)]])"
    loaded = modules_after(f"import pandas, pyarrow.pandas_compat; {statement}; {call}") - modules_after(
        f"import pandas, pyarrow.pandas_compat; {statement}"
    )
    assert {name for name in loaded if name.partition(".")[0] not in sys.stdlib_module_names} <= {
        "pyarrow.vendored.version"
    }

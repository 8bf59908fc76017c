"""Our modules of plateau, and of kartothek on dask, have the names and arguments of theirs."""

from __future__ import annotations

import importlib
import inspect
import json

import pytest

pytestmark = pytest.mark.interop

SIGNATURES = """
import importlib, inspect, json, sys, warnings
warnings.simplefilter("ignore")
found = {}
for name in json.loads(sys.argv[1]):
    module = importlib.import_module(name)
    top = name.split(".")[0]
    names = getattr(module, "__all__", None) or [
        n for n in vars(module) if not n.startswith("_")
        and getattr(getattr(module, n), "__module__", "").startswith(top)
    ]
    found[name] = {}
    for n in names:
        value = getattr(module, n)
        parameters = inspect.signature(value).parameters.values() if inspect.isfunction(value) else ()
        found[name][n] = [[p.name, repr(p.default)] for p in parameters]
print(json.dumps(found))
"""
PLATEAU = """
    api.dataset api.serialization io.eager io.iter io.dask.dataframe io.dask.bag io.dask.delayed core.dataset
    core.factory core.index core.common_metadata serialization
"""
DASK = ["dataframe", "bag", "delayed", "bag_cube", "dataframe_cube"]


def differences(theirs, ours):
    """What our function lacks: a name, an order, a default."""
    mine = [
        [p.name, repr(p.default)]
        for p in inspect.signature(ours).parameters.values()
        if p.kind is not inspect.Parameter.KEYWORD_ONLY
    ]
    return [] if mine == theirs else [theirs, mine]


def compared(found, home):
    wrong = {}
    for module, names in found.items():
        ours = importlib.import_module(home(module))
        for name, parameters in names.items():
            if not hasattr(ours, name):
                wrong[f"{module}.{name}"] = "is missing"
            elif parameters and (differs := differences(parameters, getattr(ours, name))):
                wrong[f"{module}.{name}"] = differs
    return wrong


def test_plateau_has_no_name_and_no_argument_that_we_lack(run_plateau):
    found = run_plateau(SIGNATURES, json.dumps([f"plateau.{name}" for name in PLATEAU.split()]))
    assert sum(map(len, found.values())) > 90
    assert compared(found, lambda module: f"kartothek_cube.{module}") == {}


def test_kartothek_has_no_function_and_no_argument_on_dask_that_we_lack(run_kartothek):
    found = run_kartothek(SIGNATURES, json.dumps([f"kartothek.io.dask.{name}" for name in DASK]))
    assert sum(map(len, found.values())) == 26
    assert compared(found, lambda module: f"kartothek_cube.{module.removeprefix('kartothek.io.')}") == {}

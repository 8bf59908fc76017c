"""Types as users see them: calls that mypy takes or refuses, and signatures that say what they
take.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import re
import subprocess
import sys
import typing
from pathlib import Path

import pytest

import kartothek_cube.typing as types
from tests.support.source import PACKAGE

CALLS = Path(__file__).with_name("calls.py")
MODULES = [
    "kartothek_cube",
    *(f"kartothek_cube.api.{name}" for name in ("cube", "dataset", "discover", "consistency", "serialization")),
]
SPARK = ["kartothek_cube.spark"] if importlib.util.find_spec("pyspark") else []
EXPECTED = re.compile(r"# error: (?P<code>[a-z-]+)$")
FOUND = re.compile(r"^(?P<path>.+?):(?P<line>\d+): error: .*\[(?P<code>[a-z-]+)\]$")


@pytest.mark.slow
def test_mypy_takes_the_right_calls_and_refuses_the_wrong_ones():
    pytest.importorskip("mypy", reason="not installed: mypy (the extra lint)")
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--hide-error-context", str(CALLS)]
    output = subprocess.run(command, cwd=PACKAGE.parent, capture_output=True, text=True, check=False).stdout
    lines = CALLS.read_text(encoding="utf-8").splitlines()
    expected = {(number, match["code"]) for number, line in enumerate(lines, 1) if (match := EXPECTED.search(line))}
    found = {
        (int(match["line"]), match["code"])
        for line in output.splitlines()
        if (match := FOUND.match(line)) and Path(match["path"]).name == CALLS.name
    }
    assert len(expected) > 20
    assert found == expected, output


def functions(module):
    """The public functions of a module by name, with where they are defined."""
    home = importlib.import_module(module)
    return {
        name: value
        for name in home.__all__
        if inspect.isfunction(value := getattr(home, name)) and value.__module__.startswith("kartothek_cube")
    }


PUBLIC = {
    f"{value.__module__}.{value.__name__}": value for module in MODULES + SPARK for value in functions(module).values()
}


def says_any(annotation):
    """Whether an annotation, which is text, contains `Any` as a name."""
    return any(
        isinstance(node, ast.Name) and node.id == "Any" for node in ast.walk(ast.parse(str(annotation), mode="eval"))
    )


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_no_public_signature_says_any(name):
    signature = inspect.signature(PUBLIC[name])
    annotations = {p.name: p.annotation for p in signature.parameters.values()} | {
        "return": signature.return_annotation
    }
    assert [where for where, annotation in annotations.items() if annotation is inspect.Parameter.empty] == []
    found = [where for where, annotation in annotations.items() if says_any(annotation)]
    assert found == []


@pytest.mark.parametrize("name", types.__all__)
def test_a_type_can_be_asked_for_at_run_time(name):
    alias = getattr(types, name)
    hints = typing.get_type_hints(type("Holder", (), {"__annotations__": {"value": alias}}))
    assert "ForwardRef" not in repr(hints["value"]).split("[")[0]


def test_the_types_of_a_store_are_classes_at_run_time():
    from kartothek_cube.core.stores.contract import Store

    def opened(store: types.StoreLike | None) -> None: ...

    opened.__annotations__["store"] = types.StoreLike | None
    assert Store in typing.get_args(typing.get_type_hints(opened)["store"])

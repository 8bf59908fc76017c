"""`doctor`: what it says of a machine and a store, and that it leaves nothing behind."""

from __future__ import annotations

import dataclasses
import sys
from datetime import timedelta
from importlib.metadata import PackageNotFoundError, version

import pytest
from msgspec.structs import replace

from kartothek_cube import open_store
from kartothek_cube.cli.commands import start as doctor
from kartothek_cube.cli.commands.start import SCRATCH, store_checks
from kartothek_cube.core.stores.contract import Listing, StoreView
from kartothek_cube.errors import Unsupported


class Patient(StoreView):
    """A store in memory that raises at one call, has other guarantees, or another clock."""

    def __init__(self, error=None, at=0, late=timedelta(0), **lacks):
        super().__init__(open_store("hmemory://"))
        self.calls, self.error, self.at, self.late, self.lacks = 0, error, at, late, lacks

    @property
    def capabilities(self):
        return dataclasses.replace(self.inner.capabilities, modification_times=True, **self.lacks)

    def around(self, operation, key, action):
        self.calls += 1
        if self.calls == self.at:
            raise self.error
        result = action()
        if not isinstance(result, Listing):
            return result
        entries = [replace(e, modified=e.modified and e.modified + self.late) for e in result.entries]
        return Listing(entries, result.prefixes)


def problems(checks):
    return {check.name: check.text for check in checks if check.status == "problem"}


def test_all_is_well_with_a_directory_and_nothing_is_left_there(run, folder):
    ran = run("--url", "two", "doctor")
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert lines[-1] == "All is well."
    assert [line for line in lines if len(line) > 80 and "/" not in line] == []
    assert {line.split()[1] for line in lines if line.startswith("ok")} >= {"version", "commit", "clock", "removal"}
    assert list((folder / "two").iterdir()) == []


def test_the_store_may_be_named_after_the_command(run, folder):
    ran = run("doctor", "--url", "two")
    assert (ran.code, list((folder / "two").iterdir())) == (0, [])
    assert "removal" in ran.out


def test_read_only_writes_nothing(run, folder):
    before = sorted((folder / "store").rglob("*"))
    ran = run("--url", "hfs://store?readonly=1", "doctor", "--format", "json")
    assert ran.code == 0
    assert {check["name"] for check in ran.json["checks"]}.isdisjoint({"clock", "removal"})
    ran = run("--url", "store", "doctor", "--read-only")
    assert "not tried" in ran.out
    assert sorted((folder / "store").rglob("*")) == before


def test_json_has_every_check_with_its_remedy(run):
    found = run("--url", "nowhere", "doctor", "--format", "json")
    assert found.code == 1
    assert found.json["ok"] is False
    (problem,) = [check for check in found.json["checks"] if check["status"] == "problem"]
    assert problem["name"] == "store"
    assert "There is no directory" in problem["text"]
    assert problem["remedy"]


def test_a_store_that_cannot_be_opened_is_a_line_and_no_traceback(run):
    ran = run("--url", "nosuch://place", "doctor")
    assert ran.code == 1
    assert "Problems: 1." in ran.out
    ran = run("--store", "absent", "doctor")
    assert ran.code == 1
    assert "Could not find store absent" in ran.out


def test_without_a_store_the_machine_is_looked_at(run, folder):
    (folder / "skv.yml").unlink()
    ran = run("doctor")
    assert ran.code == 0
    assert "Name one with --url" in ran.out


def test_a_cube_in_front_is_an_error_of_usage(run):
    ran = run("sales", "doctor")
    assert ran.code == 2
    assert "leave the cube out" in ran.err


def test_every_failing_call_is_a_problem_and_the_scratch_dataset_goes(folder):
    whole = Patient()
    assert problems(store_checks(whole)) == {}
    # The last calls are those of the removal itself.
    for at in range(1, whole.calls - 8):
        store = Patient(OSError("the disk is full"), at)
        found = problems(store_checks(store))
        assert len(found) <= 1, at
        assert all("the disk is full" in text for text in found.values()), at
        assert store.list(SCRATCH, recursive=True).keys == []


def test_ctrl_c_removes_the_scratch_dataset():
    store = Patient(KeyboardInterrupt(), 8)
    with pytest.raises(KeyboardInterrupt):
        list(store_checks(store))
    assert store.list("", recursive=True).keys == []


def test_what_cannot_be_removed_is_named(monkeypatch):
    store = Patient()
    monkeypatch.setattr(Patient, "delete", lambda self, key: None)
    found = {check.name: check for check in store_checks(store)}
    assert found["removal"].status == "problem"
    assert SCRATCH in found["removal"].remedy


@pytest.mark.parametrize("late", [timedelta(hours=1), -timedelta(hours=1)])
def test_a_clock_that_is_wrong_is_a_problem(late):
    assert list(problems(store_checks(Patient(late=late)))) == ["clock"]
    assert "apart" in problems(store_checks(Patient(late=late)))["clock"]


@pytest.mark.parametrize(
    ("lacks", "words", "status"),
    [("conditional_put", "not: conditional puts", "problem"), ("shared", "not: shared", "absent")],
)
def test_a_guarantee_that_a_store_lacks_has_a_remedy(lacks, words, status):
    found = {check.text: check for check in store_checks(Patient(**{lacks: False}), read_only=True)}
    assert found[words].status == status
    assert found[words].remedy
    assert words.removeprefix("not: ") not in next(text for text in found if "atomic puts" in text)


def test_an_old_package_is_a_problem_and_a_missing_extra_is_none(monkeypatch):
    def installed(name):
        if name == "duckdb":
            raise PackageNotFoundError(name)
        return "0.9" if name == "pyarrow" else version(name)

    monkeypatch.setattr(doctor, "version", installed)
    monkeypatch.setattr(doctor, "requires", lambda name: ["pyarrow>=18.0.0", 'duckdb>=1.2.0; extra == "sql"'])
    found = {check.text: check for check in doctor.machine_checks()}
    old = found["pyarrow 0.9, but >=18.0.0 is needed"]
    assert (old.status, old.remedy) == ("problem", "pip install --upgrade pyarrow")
    missing = found["SQL: not installed"]
    assert (missing.status, missing.remedy) == ("absent", "pip install 'kartothek-cube[sql]'")


@pytest.mark.parametrize("is_same", [True, False])
def test_another_python_for_the_workers_of_spark_is_named(monkeypatch, tmp_path, is_same):
    pytest.importorskip("pyspark")
    other = tmp_path / "python3"
    other.touch(mode=0o755)
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable if is_same else str(other))
    named = {check.name: check for check in doctor.machine_checks()}
    assert ("workers" in named) is not is_same
    if not is_same:
        assert (str(other) in named["workers"].text, "PYSPARK_PYTHON" in named["workers"].remedy) == (True, True)


def test_a_machine_without_java_is_a_problem_if_there_is_spark(monkeypatch):
    java = pytest.importorskip("kartothek_cube.spark.java", reason="not installed: pyspark")
    pytest.importorskip("pyspark", reason="not installed: pyspark")

    def absent():
        raise Unsupported("There is no Java.")

    monkeypatch.setattr(java, "java_home", absent)
    assert problems(doctor.machine_checks())["Java"] == "There is no Java."

    def client_alone(package):
        if package == "pyspark":
            raise PackageNotFoundError(package)
        return version(package)

    monkeypatch.setattr(doctor, "version", client_alone)  # of Sail: it has the same modules
    assert "Java" not in {check.name for check in doctor.machine_checks()}

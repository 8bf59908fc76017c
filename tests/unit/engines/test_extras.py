"""A package that is missing or too old is named in one line, with the remedy."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from kartothek_cube import connect, scan_cube, scan_dataset
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.engines import verbs as extras
from kartothek_cube.engines.verbs import OLDEST, require, scan_cube_daft
from kartothek_cube.errors import MissingExtra

VERBS = {
    "scan_cube": (lambda: scan_cube("cube", MemoryStore()), "polars"),
    "scan_dataset": (lambda: scan_dataset("uuid", MemoryStore()), "polars"),
    "connect": (lambda: connect(MemoryStore()), "sql"),
    "scan_cube_daft": (lambda: scan_cube_daft("cube", MemoryStore()), "daft"),
}


def installed(monkeypatch, **releases):
    """Let other releases be installed: None is none at all."""

    def version(package):
        if releases[package] is None:
            raise PackageNotFoundError(package)
        return releases[package]

    monkeypatch.setattr(extras, "version", version)


@pytest.mark.parametrize("release", [None, "0.6", "0.7.9", "0"], ids=str)
@pytest.mark.parametrize("verb", VERBS)
def test_a_missing_or_old_package(monkeypatch, verb, release):
    call, extra = VERBS[verb]
    package, oldest = OLDEST[extra]
    installed(monkeypatch, **{package: release})
    with pytest.raises(MissingExtra) as caught:
        call()
    assert str(caught.value) == (
        f"This needs the package {package}, at least {oldest} (installed: {release or 'none'}): "
        f"pip install 'kartothek-cube[{extra}]'"
    )


@pytest.mark.parametrize("extra", OLDEST)
@pytest.mark.parametrize("change", [lambda oldest: oldest, lambda oldest: oldest + "rc1", lambda oldest: "10.0.0.dev3"])
def test_a_package_that_is_new_enough(monkeypatch, extra, change):
    package, oldest = OLDEST[extra]
    installed(monkeypatch, **{package: change(oldest)})
    require(extra)


def test_releases_are_compared_as_numbers(monkeypatch):
    installed(monkeypatch, polars="1.9.3")
    with pytest.raises(MissingExtra, match=re.escape("at least 1.30.0 (installed: 1.9.3)")):
        require("polars")
    # Two numbers stand for three.
    for release, extra in (("1.30", "polars"), ("1.2", "sql")):
        installed(monkeypatch, **{OLDEST[extra][0]: release})
        require(extra)


def test_the_bounds_are_those_of_the_package():
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for extra, (package, oldest) in OLDEST.items():
        bounds = [
            requirement.partition(">=")[2]
            for requirements in project["optional-dependencies"].values()
            for requirement in requirements
            if requirement.partition(">=")[0] == package
        ]
        assert bounds != []
        # Whoever tests needs no other release than whoever uses it.
        assert {bound.removesuffix(".0") for bound in bounds} == {oldest.removesuffix(".0")}
        assert any(requirement.startswith(f"{package}>=") for requirement in project["optional-dependencies"][extra])

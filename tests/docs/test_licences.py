"""The page of licences names what is installed, with the licence that each package states."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

REPOSITORY = Path(__file__).parents[2]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
# Extras of those who work on the library: their packages come to no user.
TOOLS = {"docs", "lint", "quick", "test", "test-sail", "dev", "release", "bench"}
OF_USERS = {extra: items for extra, items in PROJECT["optional-dependencies"].items() if extra not in TOOLS}
ROWS = re.findall(
    r"^\| ([\w-]+) \| ([^|]+?) \|(?: ([^|]+) \|)?$", (REPOSITORY / "docs" / "licences.md").read_text(), re.MULTILINE
)
STATED = {name: licence for name, licence, _ in ROWS if name != "Package"}


def names(requirements):
    return {Requirement(text).name for text in requirements} - {"kartothek-cube"}


def test_the_page_lists_every_package_that_users_install():
    assert set(STATED) == names(PROJECT["dependencies"]).union(*map(names, OF_USERS.values()))


def test_the_page_says_which_extra_brings_a_package():
    for name, _, extras in ROWS:
        if extras and name != "Package":
            assert set(re.findall(r"`([a-z0-9]+)`", extras)) >= {
                e for e, items in OF_USERS.items() if name in names(items)
            }


@pytest.mark.slow  # older versions of some packages state nothing, or the whole text
@pytest.mark.parametrize("name", STATED)
def test_the_licence_is_the_one_that_the_package_states(name):
    try:
        said = metadata(name)
    except PackageNotFoundError:
        pytest.skip("not installed here")
    texts = [said.get("License-Expression"), said.get("License"), *(said.get_all("Classifier") or [])]
    known = (
        " ".join(text for text in texts if text)
        .replace("GPLv2", "GPL-2.0")
        .replace("Python Software Foundation", "PSF")
    )
    assert STATED[name].split(" (")[0] in known

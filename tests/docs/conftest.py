"""The documentation, built once for all tests of this room."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.checklists import REPOSITORY


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """The folder of the built pages. A warning is an error, as in `make docs`."""
    for module in ("sphinx", "myst_parser", "furo"):
        pytest.importorskip(module, reason=f"not installed: {module} (the extra docs)")
    pytest.importorskip("click", reason="not installed: click (the extra cli)")
    folder = tmp_path_factory.mktemp("site")
    command = [
        sys.executable,
        "-X",
        "faulthandler",
        "-m",
        "sphinx",
        "-W",
        "--keep-going",
        "-q",
        "-b",
        "html",
        "-d",
        str(folder / "doctrees"),
        "docs",
        str(folder / "html"),
    ]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "html"

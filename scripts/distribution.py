"""Builds the wheel and the source distribution, and checks that both can be published."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
PACKAGE = "kartothek_cube"
# The share of public names whose types a checker knows without guessing.
KNOWN_TYPES = 0.95
# The tests in the sources that are run: those of the format, which need its data and no server.
TESTS = ["tests/golden", "tests/unit/metadata", "tests/unit/expressions", "tests/docs/test_structure.py", "--thin", "6"]
QUICK = "not spark and not slow and not interop and not servers"


def run(*command: object, folder: Path = REPOSITORY, **environment: str) -> None:
    """Run a program; the script ends where it fails."""
    print("$", *command, flush=True)
    done = subprocess.run(list(map(str, command)), check=False, cwd=folder, env={**os.environ, **environment})
    if done.returncode:
        raise SystemExit(f"{command[0]} ended with {done.returncode}")


def build(source: Path, target: Path, *kinds: str) -> None:
    """Build distributions from a source tree."""
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", target, *kinds, ".", folder=source)


def content(wheel: Path) -> set[str]:
    """The names of the files in a wheel."""
    return set(zipfile.ZipFile(wheel).namelist())


def known_types(wheel: Path, folder: Path) -> float:
    """The share of public names whose types are known where the wheel is installed."""
    environment, python = folder / "environment", folder / "environment" / "bin" / "python"
    venv.create(environment, symlinks=True)
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-index", "--no-deps", wheel)
    packages = next(environment.glob("lib/python*/site-packages"))
    # What the wheel depends on comes from the environment that runs this script.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    # The checker takes the first Python on PATH, and passes over what lies where it runs.
    (folder / "empty").mkdir()
    checker = [Path(sys.executable).with_name("basedpyright"), "--outputjson", "--ignoreexternal"]
    found = subprocess.run(
        [*checker, "--verifytypes", PACKAGE],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder / "empty",
        env={**os.environ, "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"},
    )
    score: float = json.loads(found.stdout)["typeCompleteness"]["completenessScore"]
    return score


def check_wheel(wheel: Path, folder: Path) -> None:
    """A wheel has what it should, and the types of its public names are known."""
    run(Path(sys.executable).with_name("check-wheel-contents"), wheel)
    score = known_types(wheel, folder)
    print(f"types of public names that are known: {score:.1%}")
    if score < KNOWN_TYPES:
        raise SystemExit(f"at least {KNOWN_TYPES:.0%} must be; see basedpyright --verifytypes {PACKAGE}")


def check_source(archive: Path, wheel: Path, folder: Path) -> None:
    """A source distribution builds the same wheel, and passes the tests in it."""
    with tarfile.open(archive) as opened:
        opened.extractall(folder, filter="data")
    (source,) = folder.iterdir()
    build(source, folder / "dist", "--wheel")
    different = content(next((folder / "dist").glob("*.whl"))) ^ content(wheel)
    if different:
        raise SystemExit(f"the wheel of {archive.name} differs in {sorted(different)}")
    run(sys.executable, "-m", "pytest", *TESTS, "-q", "-n", "2", "-m", QUICK, folder=source, PYTHONPATH=str(source))


def main(target: Path) -> None:
    """Build and check."""
    target.mkdir(exist_ok=True)
    for old in target.glob(f"{PACKAGE}-*"):
        old.unlink()
    build(REPOSITORY, target)
    (archive,), (wheel,) = target.glob("*.tar.gz"), target.glob("*.whl")
    run(sys.executable, "-m", "twine", "check", "--strict", archive, wheel)
    with tempfile.TemporaryDirectory() as folder:
        check_wheel(wheel, Path(folder, "types"))
        Path(folder, "source").mkdir()
        check_source(archive, wheel, Path(folder, "source"))
    print(f"{wheel.name} and {archive.name} can be published")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else REPOSITORY / "dist")

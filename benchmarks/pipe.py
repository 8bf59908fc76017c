"""Peers in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Self

from data import Place

HERE = Path(__file__).parent


class Engine:
    """A process for one side's work, so that no side inherits the memory of another."""

    def __init__(self) -> None:
        self.processes = ProcessPoolExecutor(1, mp_context=get_context("spawn"))

    def __call__(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """What the work gives, through a pipe: it has to be small."""
        return self.processes.submit(work, *arguments).result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.processes.shutdown()


class Kartothek:
    """A script in a process that gets commands by a pipe, by default that of kartothek 5.3."""

    def __init__(self, python: str, script: str = "kartothek_peer.py", *arguments: str) -> None:
        command = [python, "-W", "ignore", str(HERE / script), *arguments]
        bare = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=bare)

    def __call__(self, verb: str, **arguments: Any) -> Any:
        assert self.process.stdin
        assert self.process.stdout
        print(json.dumps([verb, arguments]), file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError(f"kartothek ended during {verb}: see above.")
        return json.loads(answer)

    def close(self) -> None:
        """End it."""
        self.process.communicate()


def where(place: Place) -> dict[str, Any]:
    """A cube and its folder as kartothek gets them."""
    names = (
        "uuid_prefix",
        "seed_dataset",
        "dimension_columns",
        "partition_columns",
        "index_columns",
        "suppress_index_on",
    )
    return {"cube": {name: _plain(getattr(place.cube, name)) for name in names}, "root": str(place.root.resolve())}


def _plain(setting: Any) -> str | list[str]:
    return setting if isinstance(setting, str) else sorted(setting) if isinstance(setting, frozenset) else list(setting)


@contextmanager
def start_kartothek() -> Iterator[Kartothek | None]:
    """kartothek, or None where its environment is not there: ``make bench`` makes it."""
    python = os.environ.get("KARTOTHEK_PYTHON") or str(HERE.parent / ".venv-kartothek" / "bin" / "python")
    kartothek = Kartothek(python) if Path(python).exists() else None
    try:
        yield kartothek
    finally:
        if kartothek:
            kartothek.close()

"""A store that logs its calls to a file shared by all processes, and queries of the log."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from pathlib import Path

from kartothek_cube.core.stores.contract import StoreView
from kartothek_cube.core.stores.open import open_store


class LoggedStore(StoreView):
    """Appends one line per call to a log: process, operation, key.

    As an object store it has no local paths, so that column chunks are asked for.
    """

    def __init__(self, url, log):
        super().__init__(open_store(url))
        self.log = str(log)

    def around(self, operation, key, action):
        if operation == "local_path":
            return None
        line = f"{os.getpid()} {operation} {key}\n".encode()
        log = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            os.write(log, line)
        finally:
            os.close(log)
        return super().around(operation, key, action)


class Log:
    """The calls in the log so far."""

    def __init__(self, path):
        self.path = Path(path)

    def lines(self):
        return [line.split(" ", 2) for line in self.path.read_text().splitlines()] if self.path.exists() else []

    def clear(self):
        self.path.unlink(missing_ok=True)

    def by_file(self, folder):
        """The number of each operation on keys with this prefix."""
        found = defaultdict(Counter)
        for _, operation, key in self.lines():
            if key.startswith(folder):
                found[key][operation] += 1
        return {key: dict(counts) for key, counts in found.items()}

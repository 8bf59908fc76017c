"""What every script does around its rows: arguments, a folder for the data, the table."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pairs import Row, header, show


@dataclass(frozen=True)
class Bench:
    """A folder for data, the number of rounds, and whether the script is only tried."""

    folder: Path
    rounds: int
    small: bool
    large: bool

    def size(self, full: int, small: int, large: int | None = None) -> int:
        """One of them."""
        return small if self.small else large if large and self.large else full


def run(doc: str | None, results: Callable[[Bench], Iterator[Row]]) -> None:
    """Print the table."""
    arguments = _parsed(doc)
    with tempfile.TemporaryDirectory(dir=arguments.folder, prefix="benchmark-") as name:
        print(f"load {os.getloadavg()[0]:.1f}")
        header()
        for row in results(Bench(Path(name), arguments.rounds, arguments.small, arguments.large)):
            show(row)


def _parsed(doc: str | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("--small", action="store_true", help="little data, to try the script in seconds")
    parser.add_argument(
        "--large",
        action="store_true",
        help="the largest sizes of all, where the usual ones do not take them for the time they need",
    )
    parser.add_argument("--rounds", type=int, default=3, help="how often both sides of each work take turns")
    parser.add_argument("--folder", type=Path, help="where a temporary folder for the data is made")
    return parser.parse_args()

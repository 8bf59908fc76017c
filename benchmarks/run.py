"""Runs every benchmark script in turn, keeps the figures, and writes the tables of the page."""

from __future__ import annotations

import argparse
import ast
import importlib.metadata
import importlib.util
import json
import math
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import takewhile
from pathlib import Path

from pairs import FIGURES, PROC, Row, figures

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "benchmarks.md"
PICTURES = PAGE.with_name("pictures")
# In this order. What needs a package that is not there is left out.
SCRIPTS = {
    "planning": "",
    "cube": "",
    "limit": "",
    "sql": "",
    "changes": "pyspark",
    "rows": "",
    "tables": "",
    "writing": "",
    "small": "",
    "growth": "",
    "memory": "",
    "imports": "",
    "remote": "obstore",
    "spark": "pyspark",
    "with_dask": "dask",
}
PACKAGES = (
    "kartothek-cube",
    "pyarrow",
    "numpy",
    "duckdb",
    "polars",
    "pyspark",
    "dask",
    "deltalake",
    "pyiceberg",
    "pylance",
)
MODULES = {"pylance": "lance"}
TABLE = "| work | ours | peers |\n|---|--:|---|\n"


def rows_of(script: str, arguments: Sequence[str], pictures: Path | None) -> list[Row]:
    """Run a script, keep its pictures, and return its rows; it prints them as they come."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.json"
        print(f"\n== {script}: {title(script)}", flush=True)
        subprocess.run(
            [sys.executable, HERE / f"{script}.py", *arguments], check=True, env=os.environ | {FIGURES: str(file)}
        )
        for picture in Path(folder).glob("*.svg") if pictures else ():
            shutil.copy(picture, pictures)
        return (
            [Row(**json.loads(line)) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []
        )


def title(script: str) -> str:
    """The first line of its docstring."""
    doc = ast.get_docstring(ast.parse((HERE / f"{script}.py").read_text(encoding="utf-8"))) or script
    return doc.splitlines()[0].rstrip(".")


# --- the page -------------------------------------------------------------------------------------


def section(script: str, rows: Sequence[Row]) -> str:
    """A heading, the day, and a table with a line for each work and figure of ours.

    Peers that were not there are left out.
    """
    by_figure: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        if not (math.isnan(row.theirs) and math.isnan(row.ours)):
            by_figure.setdefault((row.work, figures(row)[1], row.unit), []).append(row)
    lines, before = [], ""
    for of_work in by_figure.values():
        lines.append(line(of_work, before))
        before = of_work[0].work
    return f"## {title(script)}\n\n{datetime.now(UTC):%Y-%m-%d}.\n\n{TABLE}{''.join(lines)}"


def line(rows: Sequence[Row], before: str) -> str:
    """What we take and what peers take for one work; of targets, those that are missed."""
    first = rows[0]
    ours = f"{figures(first)[1]} {first.unit}" if figures(first)[1] else ""
    alone = "".join(missed(row) for row in rows if not row.peer)
    # The unit of ours, unless there is none.
    unit = "" if ours else f" {first.unit}"
    peers = ", ".join(f"{row.peer} {figures(row)[0]}{unit}{missed(row)}" for row in rows if row.peer)
    work = shortened(first.work, before) if first.work != before else ""
    return f"| {' | '.join(cell.strip() for cell in (work, ours + alone, peers))} |\n"


def missed(row: Row) -> str:
    """The ratio and the target, where it is not met."""
    if row.verdict in {"", "met"}:
        return ""
    target = row.target.replace("<= ", "≤").replace(">= ", "≥")
    words = [figures(row)[2], "**missed**", target] if row.verdict == "missed" else [row.verdict]
    return f" ({' '.join(word for word in words if word)})"


def shortened(work: str, before: str) -> str:
    """A work without the parts, each ended by a colon, in which it begins as the one before."""
    parts = work.split(": ")
    pairs = zip(parts[:-1], before.split(": "), strict=False)
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    return ": ".join(parts[same:]) if not same else f"… {': '.join(parts[same:])}"


def machine() -> str:
    """What the figures were made on."""
    versions = ", ".join(
        f"{name} {importlib.metadata.version(name)}"
        for name in PACKAGES
        if importlib.util.find_spec(MODULES.get(name, name.replace("-", "_")))
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"The machine of the last run: {_processor()}, {os.cpu_count()} cores, {memory:.0f} GiB, {platform.system()}; "
        f"Python {platform.python_version()}, {versions}."
    )


def _processor() -> str:
    try:
        found = re.search(r"^model name\s*: (.*)$", (PROC / "cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1] if found else platform.machine()


def put(page: str, script: str, text: str) -> str:
    """The page with this section of a script in place of its last one."""
    begin, end = f"<!-- figures of {script} -->\n", f"<!-- end of {script} -->\n"
    new = f"{begin}{text}\n{end}"
    if begin in page:
        return page[: page.index(begin)] + new + page[page.index(end) + len(end) :]
    return f"{page.rstrip()}\n\n{new}"


# --- all of it ------------------------------------------------------------------------------------


def runnable() -> list[str]:
    """The scripts that exist and have what they need."""
    return [
        script
        for script, package in SCRIPTS.items()
        if (HERE / f"{script}.py").exists() and (not package or importlib.util.find_spec(package))
    ]


def main() -> None:
    """Run them and write the page, unless they are only tried."""
    arguments, rest = _parsed()
    failed = []
    for script in arguments.only or runnable():
        try:
            small = ["--small"] if arguments.small else []
            rows = rows_of(script, [*rest, *small], None if arguments.small else PICTURES)
        except subprocess.CalledProcessError:
            failed.append(script)
            continue
        if not arguments.small:
            page = put(PAGE.read_text(encoding="utf-8"), "machine", f"{machine()}\n")
            PAGE.write_text(put(page, script, section(script, rows)), encoding="utf-8")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def _parsed() -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(description=__doc__, epilog="Other arguments go to each script.")
    parser.add_argument(
        "--small", action="store_true", help="little data, to try the scripts in seconds; the page stays as it is"
    )
    parser.add_argument("--only", nargs="+", choices=list(SCRIPTS), help="these scripts")
    return parser.parse_known_args()


if __name__ == "__main__":
    main()

"""Advice on a cube, from findings and file sizes, with the call and command that mend it. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kartothek_cube.core.arguments import pluralize
from kartothek_cube.core.display import show_bytes
from kartothek_cube.core.maintenance.compaction_plan import TARGET_ROWS, cell_order, neighbours
from kartothek_cube.core.maintenance.inspection import SEVERITIES, Finding, Severity, alike
from kartothek_cube.core.maintenance.verify_checks import rebuild
from kartothek_cube.cube.cube import KTK_CUBE_UUID_SEPERATOR, Cube
from kartothek_cube.cube.report.facts import Advice
from kartothek_cube.cube.report.measure import CubeStatistics

__all__ = ["advice_of"]

# Bytes: below this size, opening a file costs more than reading it.
_SMALL_FILE = 8_000_000
# A dataset with as many files, tiny on average, has too many partitions.
_TINY_FILE, _MANY_FILES = 64_000, 1_000
# A partition of this size, so many times the median, takes longer than all others together.
_HUGE_PARTITION, _SKEW_FACTOR = 256_000_000, 8
# Share of files beyond one for each physical partition. Every append leaves a few.
_SURPLUS_SHARE = 0.1

_GRACE = " They stay until they are older than the option grace, a day by default."

# The command line takes such names for several names, or for an option.
_PATTERN = re.compile(r"[,*?\[]|^-|^\s|\s$")


@dataclass(frozen=True, slots=True)
class _Context:
    """The cube as calls and commands name it.

    ``cube`` is None if the metadata describe none. ``command_start`` is empty if there are no
    commands. ``is_loadable``: the cube can be loaded as a whole.
    """

    prefix: str
    cube: Cube | None
    command_start: str
    is_loadable: bool

    def uuid(self, name: str) -> str:
        return f"{self.prefix}{KTK_CUBE_UUID_SEPERATOR}{name}"

    def command(self, *words: str) -> str:
        return " ".join([self.command_start, *map(shlex.quote, words)]) if self.command_start and words else ""


def advice_of(
    prefix: str,
    cube: Cube | None,
    store: str,
    findings: Sequence[Finding],
    statistics: Mapping[str, CubeStatistics],
    *,
    readable: bool = True,
) -> tuple[Advice, ...]:
    """All advice on a cube, errors first.

    There are no commands if no URL names the store. A cube cannot be loaded unless all of its
    datasets are ``readable`` and fit together; then every call concerns a single dataset.
    """
    is_loadable = readable and not any(f.severity == "error" and f.check.startswith("cube-") for f in findings)
    start = f"kartothek_cube --url {shlex.quote(store)} {shlex.quote(prefix)}" if "://" in store else ""
    context = _Context(prefix, cube, start if is_loadable else "", is_loadable)
    advice = []
    for group in alike(findings):
        first = group[0]
        name = first.dataset.removeprefix(context.uuid(""))
        call, words = _mend(name, first) if is_loadable else (first.mend, ())
        message = f"{first.message}{_GRACE}" if first.check == "garbage" else first.message
        subject, *more = [", ".join(part for part in (name, f.column, f.key or f.label) if part) for f in group]
        count, command = sum(f.count for f in group) if more else 1, context.command(*words)
        advice.append(Advice(first.severity, first.check, subject, message, call, command, tuple(more), count))
    for name, dataset in statistics.items():
        advice += _size_advice(context, name, dataset)
    return tuple(sorted(advice, key=lambda a: (SEVERITIES.index(a.severity), not a.call)))


def _mend(name: str, finding: Finding) -> tuple[str, tuple[str, ...]]:
    """The call for the cube instead of its dataset, and the words of an equal command if any."""
    if finding.check == "garbage":
        return "cleanup_cube(cube, store)", ("cleanup",)
    if finding.check == "overridden-cells":
        return f"compact_cube(cube, store, ktk_cube_dataset_ids=[{name!r}])", ("compact", "--include", name)
    if finding.check == "missing-file":
        removal = f"remove_partitions(cube, store, conditions, ktk_cube_dataset_ids=[{name!r}])"
        text = "restore the file from a backup of the store, go back with undo, or give its partition up"
        return f"{text}: {removal}", ()
    column = finding.column
    if column is not None and finding.mend == rebuild(finding.dataset, column):
        call = f"build_cube_index(cube, store, [{column!r}], {name!r})"
        return call, () if _PATTERN.search(column) else ("index", name, column)
    return finding.mend, ()


# --- sizes ----------------------------------------------------------------------------------------


def _size_advice(context: _Context, name: str, statistics: CubeStatistics) -> Iterator[Advice]:
    sizes, physical = statistics.sizes, statistics.snapshot.physical_partitions()
    has_size = sizes > 0
    if not has_size.any():
        return
    small = _mergeable(statistics, context.cube)
    if small.any() and sizes[small].mean() < _SMALL_FILE:
        n_files, n_partitions = int(small.sum()), len(np.unique(physical[small]))
        severity: Severity = "warning" if n_files - n_partitions > _SURPLUS_SHARE * len(sizes) else "info"
        text = (
            f"{n_files:,} files of {show_bytes(sizes[small].mean())} on average are in "
            f"{pluralize(n_partitions, 'physical partition')}. A query that needs a partition opens each of its files."
        )
        single = f"compact_dataset({context.uuid(name)!r}, store)"
        call = "compact_cube(cube, store)" if context.is_loadable else single
        yield Advice(severity, "small-files", name, text, call, context.command("compact"))
    elif len(sizes) >= _MANY_FILES and (mean := sizes[has_size].mean()) < _TINY_FILE:
        # A compaction merges no partitions: only other partition columns help.
        text = (
            f"{len(sizes):,} partitions of one file each have {show_bytes(mean)} on average. "
            "Fewer or coarser partition columns read faster."
        )
        yield Advice("info", "small-partitions", name, text)
    # A partition is the smallest unit of work of a group, and of a task in Spark.
    partitions = np.bincount(physical, weights=sizes)
    largest, median = float(partitions.max()), float(np.median(partitions))
    if largest >= _HUGE_PARTITION and largest > _SKEW_FACTOR * median:
        text = (
            f"The largest of {len(partitions):,} physical partitions has {show_bytes(largest)}, "
            f"half of them have no more than {show_bytes(median)}. "
            "A task on it needs as much memory and time; another partition column divides it."
        )
        yield Advice("info", "skew", name, text)


def _mergeable(statistics: CubeStatistics, cube: Cube | None) -> npt.NDArray[np.bool_]:
    """The files that a compaction would merge: small neighbours; any size if rows are unknown."""
    snapshot, rows = statistics.snapshot, statistics.rows
    small = statistics.sizes > 0 if rows is None else (statistics.sizes > 0) & (2 * rows < TARGET_ROWS)
    order = None if cube is None else cell_order(snapshot, cube.dimension_columns, cube.partition_columns)
    merged = np.zeros(len(small), dtype=bool)
    if not {*snapshot.partition_keys} <= {*snapshot.values.column_names}:
        return merged
    runs = neighbours(snapshot, ~merged, order)
    if runs:
        files, run = np.concatenate(runs), np.repeat(np.arange(len(runs)), [len(r) for r in runs])
        pairs = np.flatnonzero((run[1:] == run[:-1]) & small[files[1:]] & small[files[:-1]])
        merged[files[pairs]] = merged[files[pairs + 1]] = True
    return merged

"""What to do about a cube: the findings of a verification and of its file sizes, each with the call and the command that mend it. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kartothek_cube.core.arrow.sort_keys import IntArray
from kartothek_cube.core.display.html import show_bytes
from kartothek_cube.core.maintenance.compaction.plan import TARGET_ROWS, cell_order, neighbours
from kartothek_cube.core.maintenance.verify.indices import rebuild
from kartothek_cube.core.maintenance.verify.report import SEVERITIES, Finding, Severity, alike
from kartothek_cube.core.text import pluralize
from kartothek_cube.cube.cube import KTK_CUBE_UUID_SEPERATOR, Cube
from kartothek_cube.cube.report.facts import Advice
from kartothek_cube.cube.report.measure import CubeStatistics

__all__ = ["advice_of"]

# Below that, opening a file costs more than reading it.
_SMALL = 8_000_000
_TINY, _MANY = 64_000, 1_000
# A partition of that size, and so many times the median, holds up the others.
_HUGE, _SKEWED = 256_000_000, 8
# Files beyond one for each physical partition, as a share of all.
_SURPLUS = 0.1

_GRACE = " They stay until they are older than the option grace, a day by default."

# What the command line takes for several names, or for an option.
_PATTERN = re.compile(r"[,*?\[]|^-|^\s|\s$")


@dataclass(frozen=True, slots=True)
class _Site:
    """The cube that is talked about: its prefix, itself if metadata describe one, how commands begin, and whether it can be loaded as a whole."""

    prefix: str
    cube: Cube | None
    base: str
    loads: bool

    def uuid(self, name: str) -> str:
        return f"{self.prefix}{KTK_CUBE_UUID_SEPERATOR}{name}"

    def command(self, *words: str) -> str:
        return " ".join([self.base, *map(shlex.quote, words)]) if self.base and words else ""


def advice_of(
    prefix: str,
    cube: Cube | None,
    store: str,
    findings: Sequence[Finding],
    measured: Mapping[str, CubeStatistics],
    *,
    readable: bool = True,
) -> tuple[Advice, ...]:
    """Everything that there is to say, errors first.

    There are no commands where no URL names the store. As long as the cube cannot be loaded,
    because not all of its datasets are ``readable`` or fit together, every mend is one for a single
    dataset.
    """
    loads = readable and not any(f.severity == "error" and f.check.startswith("cube-") for f in findings)
    base = f"kartothek_cube --url {shlex.quote(store)} {shlex.quote(prefix)}" if "://" in store and loads else ""
    site = _Site(prefix, cube, base, loads)
    found = [_of_findings(site, group) for group in alike(findings)] + [
        a for name, m in measured.items() for a in _of_sizes(site, name, m)
    ]
    return tuple(sorted(found, key=lambda a: (SEVERITIES.index(a.severity), not a.call)))


def _of_findings(site: _Site, group: Sequence[Finding]) -> Advice:
    first = group[0]
    name = first.dataset.removeprefix(site.uuid(""))
    call, words = _mend(name, first) if site.loads else (first.mend, ())
    message = f"{first.message}{_GRACE}" if first.check == "garbage" else first.message
    subject, *more = [", ".join(part for part in (name, f.column, f.key or f.label) if part) for f in group]
    count = sum(f.count for f in group) if more else 1
    return Advice(first.severity, first.check, subject, message, call, site.command(*words), tuple(more), count)


def _mend(name: str, finding: Finding) -> tuple[str, tuple[str, ...]]:
    """The call, and the words of a command that does the same, if there is one."""
    if finding.check == "garbage":
        return "cleanup_cube(cube, store)", ("cleanup",)
    if finding.check == "overridden-cells":
        return f"compact_cube(cube, store, ktk_cube_dataset_ids=[{name!r}])", ("compact", "--include", name)
    if finding.check == "missing-file":
        removal = f"remove_partitions(cube, store, conditions, ktk_cube_dataset_ids=[{name!r}])"
        return (
            f"restore the file from a backup of the store, go back with undo, or give its partition up: {removal}",
            (),
        )
    column = finding.column
    if column is not None and finding.mend == rebuild(finding.dataset, column):
        return f"build_cube_index(cube, store, [{column!r}], {name!r})", () if _PATTERN.search(column) else (
            "index",
            name,
            column,
        )
    return finding.mend, ()


# --- sizes ----------------------------------------------------------------------------------------


def _of_sizes(site: _Site, name: str, found: CubeStatistics) -> Iterator[Advice]:
    """What the sizes of files say, as far as they are known."""
    known = found.sizes > 0
    if not known.any():
        return
    where, several = found.snapshot.physical_partitions(), _mergeable(found, site.cube)
    if several.any() and found.sizes[several].mean() < _SMALL:
        # A few are what every append leaves.
        surplus = int(several.sum()) - len(np.unique(where[several]))
        severity: Severity = "warning" if surplus > _SURPLUS * len(found.sizes) else "info"
        call = "compact_cube(cube, store)" if site.loads else f"compact_dataset({site.uuid(name)!r}, store)"
        yield Advice(
            severity,
            "small-files",
            name,
            _small_files(found.sizes[several], where[several]),
            call,
            site.command("compact"),
        )
    elif len(found.sizes) >= _MANY and (mean := found.sizes[known].mean()) < _TINY:
        text = f"{len(found.sizes):,} partitions of one file each have {show_bytes(mean)} on average. Fewer or coarser partition columns read faster."
        yield Advice("info", "small-partitions", name, text)
    yield from _skew(name, np.bincount(where, weights=found.sizes).astype(np.float64))


def _mergeable(found: CubeStatistics, cube: Cube | None) -> npt.NDArray[np.bool_]:
    """The files that a compaction would merge: small ones that lie beside each other, by their rows if those were counted."""
    snapshot, rows = found.snapshot, found.rows
    small = found.sizes > 0 if rows is None else (found.sizes > 0) & (2 * rows < TARGET_ROWS)
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


def _small_files(sizes: IntArray, where: IntArray) -> str:
    """Many small files in a physical partition can be merged; many small partitions are a matter of the partition columns."""
    place = pluralize(len(np.unique(where)), "physical partition")
    return f"{len(sizes):,} files of {show_bytes(sizes.mean())} on average lie in {place}. A query that needs a partition opens each of its files."


def _skew(name: str, partitions: npt.NDArray[np.float64]) -> Iterator[Advice]:
    """A partition is the least that a group or a task of Spark works on."""
    most, middle = float(partitions.max()), float(np.median(partitions))
    if most >= _HUGE and most > _SKEWED * middle:
        text = f"The largest of {len(partitions):,} physical partitions has {show_bytes(most)}, half of them have no more than {show_bytes(middle)}."
        yield Advice(
            "info",
            "skew",
            name,
            f"{text} Whoever works on it needs as much memory and time; another partition column divides it.",
        )

"""What to do about a cube: the findings of a verification and of its file sizes, each with the call and the command that mend it. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from kartothek_cube.core.maintenance.verify_indices import rebuild
from kartothek_cube.core.maintenance.verify_report import SEVERITIES, Finding, Severity
from kartothek_cube.core.markup import show_bytes
from kartothek_cube.cube.constants import KTK_CUBE_UUID_SEPERATOR
from kartothek_cube.cube.report.facts import Advice
from kartothek_cube.cube.report.measure import Measured, physical_partitions

__all__ = ["advice_of"]

# Below that, opening a file costs more than reading it.
_SMALL = 8_000_000
_TINY, _MANY = 64_000, 1_000
# Files beyond one for each physical partition, as a share of all.
_SURPLUS = 0.1

# What the command line takes for several names, or for an option.
_PATTERN = re.compile(r"[,*?\[]|^-|^\s|\s$")


def advice_of(prefix: str, store: str, findings: Iterable[Finding], measured: Mapping[str, Measured]) -> tuple[Advice, ...]:
    """Everything that there is to say, errors first; without commands where no URL names the store."""
    base = f"kartothek_cube --url {shlex.quote(store)} {shlex.quote(prefix)}" if "://" in store else ""
    found = [_of_finding(prefix, base, f) for f in findings] + [a for i, m in measured.items() for a in _of_sizes(i, base, m)]
    return tuple(sorted(found, key=lambda a: (SEVERITIES.index(a.severity), not a.call)))


def _of_finding(prefix: str, base: str, finding: Finding) -> Advice:
    name = finding.dataset.removeprefix(prefix + KTK_CUBE_UUID_SEPERATOR)
    where = ", ".join(part for part in (name, finding.column, finding.key or finding.label) if part)
    call, words = _mend(name, finding)
    return Advice(finding.severity, finding.check, where, finding.message, call, _command(base, words))


def _mend(name: str, finding: Finding) -> tuple[str, tuple[str, ...]]:
    """The call, and the words of a command that does the same, if there is one."""
    if finding.check == "garbage":
        return "cleanup_cube(cube, store)", ("cleanup",)
    column = finding.column
    if column is not None and finding.mend == rebuild(finding.dataset, column):
        return f"build_cube_index(cube, store, [{column!r}], {name!r})", () if _PATTERN.search(column) else ("index", name, column)
    return finding.mend, ()


def _command(base: str, words: Sequence[str]) -> str:
    return " ".join([base, *map(shlex.quote, words)]) if base and words else ""


def _of_sizes(name: str, base: str, found: Measured) -> Iterator[Advice]:
    """Many small files in a physical partition can be merged; many small partitions are a matter of the partition columns."""
    known = found.sizes > 0
    if not known.any():
        return
    where = physical_partitions(found.snapshot)
    several = (np.bincount(where)[where] > 1) & known
    mean = found.sizes[known].mean()
    if several.any() and found.sizes[several].mean() < _SMALL:
        files, partitions = int(several.sum()), len(np.unique(where[several]))
        # A few are what every append leaves.
        severity: Severity = "warning" if files - partitions > _SURPLUS * len(found.sizes) else "info"
        size = show_bytes(found.sizes[several].mean())
        place = f"{partitions:,} physical partition{'' if partitions == 1 else 's'}"
        text = f"{files:,} files of {size} on average lie in {place}. A query that needs a partition opens each of its files."
        yield Advice(severity, "small-files", name, text, "compact_cube(cube, store)", _command(base, ("compact",)))
    elif len(found.sizes) >= _MANY and mean < _TINY:
        text = f"{len(found.sizes):,} partitions of one file each have {show_bytes(mean)} on average. Fewer or coarser partition columns read faster."
        yield Advice("info", "small-partitions", name, text)

"""What a verification found, as values: findings, counts, and a report that shows itself as text, HTML, JSON and a table. Pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import groupby
from typing import Any, Literal, TypeAlias

import pyarrow as pa

from kartothek_cube.core.display.html import Markup, code, details, escape, in_notebook, table
from kartothek_cube.core.text import pluralize

__all__ = ["SEVERITIES", "Counts", "Finding", "Severity", "VerifyReport", "alike", "condensed", "report_of"]

Severity: TypeAlias = Literal["error", "warning", "info"]

SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")
# So many findings of one kind are shown one by one; for what is only to be known, one example will
# do.
_SHOWN = {"error": 20, "warning": 20, "info": 1}
_MARKS = {"error": "✗", "warning": "!", "info": "·"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a verification found.

    Attributes
    ----------
    severity : str
        ``"error"``: answers are wrong, or reading fails. ``"warning"``: something is not as it
        should be, but can be read. ``"info"``: good to know.
    check : str
        Short stable name of the check.
    dataset : str
        Uuid of the dataset; of a finding about several datasets of a cube its prefix.
    message : str
        What was found, in a sentence.
    key, label, column : str | None
        What it is about, as far as it is about one.
    mend : str
        The call that mends it, or what else to do; empty if nothing need or can be done.
    count : int
        How many of its kind it stands for.

    Examples
    --------
    >>> Finding("error", "missing-file", "sales", "The file is not in the store.", key="sales/table/COUNTRY_CODE=DE/1.parquet").check
    'missing-file'
    """

    severity: Severity
    check: str
    dataset: str
    message: str
    key: str | None = None
    label: str | None = None
    column: str | None = None
    mend: str = ""
    count: int = 1


@dataclass(frozen=True, slots=True)
class Counts:
    """What was looked at.

    ``bytes`` are those of the data files, as far as the listing says them; ``rows`` are stored
    rows, None unless data was read.
    """

    datasets: int = 0
    partitions: int = 0
    files: int = 0
    bytes: int = 0
    rows: int | None = None

    def __add__(self, other: Counts) -> Counts:
        rows = None if self.rows is None and other.rows is None else (self.rows or 0) + (other.rows or 0)
        sums = (
            self.datasets + other.datasets,
            self.partitions + other.partitions,
            self.files + other.files,
            self.bytes + other.bytes,
        )
        return Counts(*sums, rows)


@dataclass(frozen=True, slots=True, repr=False)
class VerifyReport:
    """What a verification found: errors first.

    It prints as text, shows as a table in notebooks, and turns into JSON, Arrow and pandas.

    Attributes
    ----------
    subject : str
        What was verified.
    findings : tuple of Finding
        Sorted by severity, dataset and check.
    counts : Counts
        What was looked at.
    deep : bool
        Whether data was read.

    Examples
    --------
    >>> report = VerifyReport("dataset 'sales'", (), Counts(datasets=1, partitions=2, files=2, bytes=2_400))
    >>> report
    Verified dataset 'sales' without reading data: 1 dataset, 2 partitions, 2 files, 2,400 bytes.
    Nothing was found.
    >>> report.ok, report.clean
    (True, True)
    """

    subject: str
    findings: tuple[Finding, ...]
    counts: Counts
    deep: bool = False

    @property
    def ok(self) -> bool:
        """Whether there is no error."""
        return not self.errors

    @property
    def clean(self) -> bool:
        """Whether there is no error and no warning."""
        return self.ok and not self.warnings

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that are errors."""
        return tuple(f for f in self.findings if f.severity == "error")

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """The findings that are warnings."""
        return tuple(f for f in self.findings if f.severity == "warning")

    def of(self, check: str) -> tuple[Finding, ...]:
        """The findings of one check."""
        return tuple(f for f in self.findings if f.check == check)

    def to_dict(self) -> dict[str, Any]:
        """The report as plain dicts and lists."""
        found = [asdict(f) for f in self.findings]
        return {
            "subject": self.subject,
            "deep": self.deep,
            "ok": self.ok,
            "clean": self.clean,
            "counts": asdict(self.counts),
            "findings": found,
        }

    def to_json(self) -> str:
        """The report as JSON."""
        return json.dumps(self.to_dict(), indent=2)

    def to_arrow(self) -> pa.Table:
        """One row a finding; the columns are the attributes of `Finding`."""
        schema = pa.schema([(f.name, pa.int64() if f.name == "count" else pa.string()) for f in fields(Finding)])
        rows = [{name: _storable(value) for name, value in asdict(f).items()} for f in self.findings]
        return pa.Table.from_pylist(rows, schema=schema)

    def to_pandas(self) -> Any:
        """`to_arrow` as a pandas frame."""
        return self.to_arrow().to_pandas()

    def __repr__(self) -> str:
        return "\n".join([self._headline(), *(line for f in self.findings for line in _lines(f))])

    def _headline(self) -> str:
        how = "with all data" if self.deep else "without reading data"
        c = self.counts
        rows = "" if c.rows is None else f", {pluralize(c.rows, 'row')}"
        size = f"{pluralize(c.datasets, 'dataset')}, {pluralize(c.partitions, 'partition')}, {pluralize(c.files, 'file')}, {c.bytes:,} bytes{rows}"
        return f"Verified {self.subject} {how}: {size}.\n{self._verdict()}"

    def _verdict(self) -> str:
        found = Counter(f.severity for f in self.findings)
        words = {"error": "error", "warning": "warning", "info": "remark"}
        return (
            ", ".join(pluralize(found[s], words[s]) for s in SEVERITIES if found[s]) + ":"
            if found
            else "Nothing was found."
        )

    def _repr_html_(self) -> str:
        verified, verdict = self._headline().split("\n", 1)
        head = Markup(f"<strong>{escape(verified)}</strong><br>{escape(verdict)}")
        found = table(("severity", "check", "what and where", "mend"), map(_cells, alike(self.findings)))
        return in_notebook(head, found) if self.findings else in_notebook(head)


def _storable(value: object) -> Any:
    """Arrow holds UTF-8: a stray half of a surrogate pair is shown as an escape."""
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


def _lines(finding: Finding) -> Iterator[str]:
    yield f"{_MARKS[finding.severity]} {finding.severity} {finding.check} [{_where(finding)}]: {finding.message}"
    if finding.mend:
        yield f"    mend: {finding.mend}"


def _where(finding: Finding) -> str:
    parts = (finding.dataset, finding.column, finding.key or finding.label)
    return ", ".join(part for part in parts if part)


def _cells(group: Sequence[Finding]) -> tuple[str, ...]:
    """One row for findings that are alike."""
    first = group[0]
    mark = Markup(f'<span class="{first.severity}">{_MARKS[first.severity]}&nbsp;{first.severity}</span>')
    check = first.check if len(group) == 1 else f"{first.check}, {pluralize(sum(f.count for f in group), 'time')}"
    message = escape(first.message).replace("\n", "<br>")
    where, *others = [
        Markup(f'<span class="q w">{escape(text)}</span>')
        for text in (_where(first), *(f.key or f.label or _where(f) for f in group[1:]))
    ]
    more = details(f"{len(others):,} more of them", Markup("<br>".join(others))) if others else ""
    return mark, check, Markup(f"{message}<br>{where}{more}"), code(first.mend)


# --- making reports -------------------------------------------------------------------------------


def report_of(subject: str, findings: Iterable[Finding], counts: Counts, *, deep: bool) -> VerifyReport:
    """A report of these findings, in its order."""
    return VerifyReport(subject, tuple(sorted(condensed(findings), key=_rank)), counts, deep)


def _rank(finding: Finding) -> tuple[int, str, str, str]:
    return SEVERITIES.index(finding.severity), finding.dataset, finding.check, finding.column or ""


def condensed(findings: Iterable[Finding]) -> list[Finding]:
    """The findings, but of many of one kind the first ones, the last of which says how many more there are."""
    order = sorted(findings, key=_rank)
    groups = [list(group) for _, group in groupby(order, key=_rank)]
    return [finding for group in groups for finding in _shortened(group)]


def alike(findings: Iterable[Finding]) -> list[list[Finding]]:
    """The findings of a report, those together that say the same of several files or partitions of a dataset.

    Examples
    --------
    >>> one, other = (Finding("error", "missing-file", "sales", "It is gone.", key=key) for key in ("1.parquet", "2.parquet"))
    >>> [len(group) for group in alike([one, other, Finding("warning", "two-documents", "sales", "There are two.")])]
    [2, 1]
    """
    groups: list[list[Finding]] = []
    for finding in findings:
        if groups and _is_like(finding, groups[-1][0]):
            groups[-1].append(finding)
        else:
            groups.append([finding])
    return groups


def _is_like(finding: Finding, first: Finding) -> bool:
    # The last one of a kind may say how many more there are.
    same_words = finding.message == first.message or finding.message.startswith(f"{first.message} And ")
    return same_words and _rank(finding) == _rank(first) and finding.mend == first.mend


def _shortened(group: Sequence[Finding]) -> list[Finding]:
    shown = _SHOWN[group[0].severity]
    more = sum(f.count for f in group[shown:])
    if not more:
        return list(group)
    last = group[shown - 1]
    return [
        *group[: shown - 1],
        replace(last, message=f"{last.message} And {more:,} more of this kind.", count=last.count + more),
    ]

"""The result of a verification: findings, counts, and a report as text, HTML, JSON or table."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import groupby
from typing import Any, Literal, TypeAlias

import pyarrow as pa

from kartothek_cube.core.arguments import pluralize
from kartothek_cube.core.display import Markup, code, details, escape, in_notebook, table

__all__ = ["SEVERITIES", "Counts", "Finding", "Severity", "VerifyReport", "alike", "condensed", "report_of"]

Severity: TypeAlias = Literal["error", "warning", "info"]

SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")
# Findings of one check that are listed one by one. A remark needs no more than one example.
_SHOWN = {"error": 20, "warning": 20, "info": 1}
_MARKS = {"error": "✗", "warning": "!", "info": "·"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of a check.

    Attributes
    ----------
    severity : str
        ``"error"``: answers are wrong, or reading fails. ``"warning"``: a fault that readers
        tolerate. ``"info"``: good to know.
    check : str
        Short stable name of the check.
    dataset : str
        Uuid of the dataset. If the finding concerns several datasets of a cube, the cube's prefix.
    message : str
        The finding in a sentence.
    key, label, column : str | None
        The file, partition and column concerned, if it is a single one.
    mend : str
        The call that mends it, or other advice; empty if nothing need or can be done.
    count : int
        The number of findings of its kind that it stands for.

    Examples
    --------
    >>> Finding("error", "missing-file", "sales", "It is gone.", key="sales/table/1.parquet").check
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
    """The extent of a verification.

    ``bytes`` is the size of the data files, as far as the listing has sizes. ``rows`` counts the
    stored rows; None unless data was read.
    """

    datasets: int = 0
    partitions: int = 0
    files: int = 0
    bytes: int = 0
    rows: int | None = None

    def __add__(self, other: Counts) -> Counts:
        rows = None if self.rows is None and other.rows is None else (self.rows or 0) + (other.rows or 0)
        files, nbytes = self.files + other.files, self.bytes + other.bytes
        return Counts(self.datasets + other.datasets, self.partitions + other.partitions, files, nbytes, rows)


@dataclass(frozen=True, slots=True, repr=False)
class VerifyReport:
    """The findings of a verification, errors first.

    A report prints as text, shows as a table in notebooks, and converts to JSON, Arrow and pandas.

    Attributes
    ----------
    subject : str
        What was verified: a dataset or a cube.
    findings : tuple of Finding
        Sorted by severity, dataset and check.
    counts : Counts
        The extent of the verification.
    deep : bool
        Whether data was read.

    Examples
    --------
    >>> counts = Counts(datasets=1, partitions=2, files=2, bytes=2_400)
    >>> report = VerifyReport("dataset 'sales'", (), counts)
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
        """Whether there are no errors."""
        return not self.errors

    @property
    def clean(self) -> bool:
        """Whether there are neither errors nor warnings."""
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
        return {
            "subject": self.subject,
            "deep": self.deep,
            "ok": self.ok,
            "clean": self.clean,
            "counts": asdict(self.counts),
            "findings": [asdict(f) for f in self.findings],
        }

    def to_json(self) -> str:
        """The report as JSON."""
        return json.dumps(self.to_dict(), indent=2)

    def to_arrow(self) -> pa.Table:
        """The findings as rows; the columns are the attributes of `Finding`."""
        schema = pa.schema([(f.name, pa.int64() if f.name == "count" else pa.string()) for f in fields(Finding)])

        def storable(value: object) -> object:
            # Arrow holds UTF-8: a lone surrogate, from bytes that are no text, becomes an escape.
            return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value

        rows = [{name: storable(value) for name, value in asdict(f).items()} for f in self.findings]
        return pa.Table.from_pylist(rows, schema=schema)

    def to_pandas(self) -> Any:
        """`to_arrow` as a pandas frame."""
        return self.to_arrow().to_pandas()

    def __repr__(self) -> str:
        lines = list(self._headline())
        for f in self.findings:
            lines.append(f"{_MARKS[f.severity]} {f.severity} {f.check} [{_location(f)}]: {f.message}")
            lines += [f"    mend: {f.mend}"] if f.mend else []
        return "\n".join(lines)

    def _headline(self) -> tuple[str, str]:
        """The extent of the verification, and its verdict."""
        how, c = "with all data" if self.deep else "without reading data", self.counts
        extent = [pluralize(c.datasets, "dataset"), pluralize(c.partitions, "partition"), pluralize(c.files, "file")]
        extent += [f"{c.bytes:,} bytes", *([] if c.rows is None else [pluralize(c.rows, "row")])]
        number = Counter(f.severity for f in self.findings)
        words = {"error": "error", "warning": "warning", "info": "remark"}
        verdict = ", ".join(pluralize(number[s], words[s]) for s in SEVERITIES if number[s])
        verdict = f"{verdict}:" if verdict else "Nothing was found."
        return f"Verified {self.subject} {how}: {', '.join(extent)}.", verdict

    def _repr_html_(self) -> str:
        verified, verdict = self._headline()
        head = Markup(f"<strong>{escape(verified)}</strong><br>{escape(verdict)}")
        rows = table(("severity", "check", "what and where", "mend"), map(_table_row, alike(self.findings)))
        return in_notebook(head, rows) if self.findings else in_notebook(head)


def _location(finding: Finding) -> str:
    parts = (finding.dataset, finding.column, finding.key or finding.label)
    return ", ".join(part for part in parts if part)


def _table_row(group: Sequence[Finding]) -> tuple[str, ...]:
    """One row of HTML for findings that are alike."""
    first = group[0]
    mark = Markup(f'<span class="{first.severity}">{_MARKS[first.severity]}&nbsp;{first.severity}</span>')
    check = first.check if len(group) == 1 else f"{first.check}, {pluralize(sum(f.count for f in group), 'time')}"
    message = escape(first.message).replace("\n", "<br>")
    texts = (_location(first), *(f.key or f.label or _location(f) for f in group[1:]))
    location, *others = [Markup(f'<span class="q w">{escape(text)}</span>') for text in texts]
    more = details(f"{len(others):,} more of them", Markup("<br>".join(others))) if others else ""
    return mark, check, Markup(f"{message}<br>{location}{more}"), code(first.mend)


# --- making reports -------------------------------------------------------------------------------


def report_of(subject: str, findings: Iterable[Finding], counts: Counts, *, deep: bool) -> VerifyReport:
    """A report of these findings, condensed and sorted."""
    return VerifyReport(subject, tuple(sorted(condensed(findings), key=_rank)), counts, deep)


def _rank(finding: Finding) -> tuple[int, str, str, str]:
    return SEVERITIES.index(finding.severity), finding.dataset, finding.check, finding.column or ""


def condensed(findings: Iterable[Finding]) -> list[Finding]:
    """Sort the findings and keep the first of each kind; the last of them counts the rest."""
    kept: list[Finding] = []
    for _, group in groupby(sorted(findings, key=_rank), key=_rank):
        members = list(group)
        shown = _SHOWN[members[0].severity]
        kept += members[:shown]
        rest = sum(f.count for f in members[shown:])
        if rest:
            last = kept.pop()
            message = f"{last.message} And {rest:,} more of this kind."
            kept.append(replace(last, message=message, count=last.count + rest))
    return kept


def alike(findings: Iterable[Finding]) -> list[list[Finding]]:
    """Group the findings of a report that differ in their file or partition only.

    Examples
    --------
    >>> one, two = (Finding("error", "missing-file", "sales", "Gone.", key) for key in ("1", "2"))
    >>> other = Finding("warning", "two-documents", "sales", "There are two.")
    >>> [len(group) for group in alike([one, two, other])]
    [2, 1]
    """
    groups: list[list[Finding]] = []
    for finding in findings:
        first = groups[-1][0] if groups else finding
        # The last of a kind may end with the number of the rest.
        has_same_text = finding.message == first.message or finding.message.startswith(f"{first.message} And ")
        if groups and has_same_text and _rank(finding) == _rank(first) and finding.mend == first.mend:
            groups[-1].append(finding)
        else:
            groups.append([finding])
    return groups

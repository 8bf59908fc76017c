"""What a verification says to somebody who moves: datasets that read equally, differently, or not at all. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from kartothek_cube.cli.output import bold, red

if TYPE_CHECKING:
    from kartothek_cube.api.dataset import Finding

__all__ = ["Outcome", "Remark", "Verdict", "documents", "lines", "of_members", "outcome_of", "unreadable"]

Outcome: TypeAlias = Literal["equal", "different", "unreadable"]

OUTCOMES: tuple[Outcome, ...] = ("equal", "different", "unreadable")
_VERIFY = 'docs, page "Verify: is it whole?"'
# True of every dataset that another library has written. What follows from it is looked for in the files: narrow types.
_SUPPRESSED = frozenset({"foreign-dataset"})
# Good to know, but no answer is another one.
_NOTES = frozenset(
    {
        "foreign-between",
        "garbage",
        "hidden-column",
        "implicit",
        "kept-for-snapshots",
        "lacking-column",
        "msgpack",
        "no-file",
        "schema-spelling",
        "schema-without-pandas",
        "several-tables",
        "surplus-column",
        "unknown-files",
        "unseen-cells",
        "unsorted-file",
    }
)

Weight: TypeAlias = Literal["note", "difference", "error"]


@dataclass(frozen=True, slots=True)
class Remark:
    """One thing that is different, wrong or good to know, and the page of the documentation that tells of it."""

    check: str
    text: str
    column: str | None = None
    weight: Weight = "difference"


@dataclass(frozen=True, slots=True)
class Verdict:
    """How one dataset or cube reads here, compared with kartothek."""

    name: str
    kind: Literal["dataset", "cube"]
    outcome: Outcome
    remarks: tuple[Remark, ...] = ()


def outcome_of(name: str, kind: Literal["dataset", "cube"], findings: Iterable[Finding], more: Sequence[Remark] = ()) -> Verdict:
    """The verdict from what a verification found, and from other remarks."""
    remarks = (*(_remark(finding) for finding in findings if finding.check not in _SUPPRESSED), *more)
    weights = {remark.weight for remark in remarks}
    return Verdict(name, kind, "unreadable" if "error" in weights else "different" if "difference" in weights else "equal", remarks)


def unreadable(name: str, kind: Literal["dataset", "cube"], reason: str) -> Verdict:
    """The verdict of what cannot even be verified."""
    return Verdict(name, kind, "unreadable", (Remark("unreadable", " ".join(reason.split()), weight="error"),))


def of_members(prefix: str, members: Sequence[Verdict]) -> tuple[Remark, ...]:
    """What holds for a cube because it holds for some of its datasets."""
    weights: dict[Outcome, Weight] = {"different": "difference", "unreadable": "error"}
    named = {outcome: [verdict.name.removeprefix(f"{prefix}++") for verdict in members if verdict.outcome == outcome] for outcome in weights}
    text = "What is said of its datasets holds for the cube: {}."
    return tuple(Remark("members", text.format(", ".join(names)), weight=weights[outcome]) for outcome, names in named.items() if names)


def _remark(finding: Finding) -> Remark:
    page = "" if "docs, page" in finding.message else f" ({_VERIFY}, {finding.check})"
    return Remark(finding.check, finding.message.replace("deep=True", "--deep") + page, finding.column, _weight(finding))


def _weight(finding: Finding) -> Weight:
    if finding.severity == "error":
        return "error"
    return "note" if finding.check in _NOTES else "difference"


def documents(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """The verdicts as plain values."""
    return {"counts": _counts(verdicts), "verdicts": [_plain(verdict) for verdict in verdicts]}


def _counts(verdicts: Sequence[Verdict]) -> dict[str, int]:
    return {outcome: sum(verdict.outcome == outcome for verdict in verdicts) for outcome in OUTCOMES}


def _plain(verdict: Verdict) -> dict[str, Any]:
    remarks = [{"check": remark.check, "text": remark.text, "column": remark.column, "weight": remark.weight} for remark in verdict.remarks]
    return {"name": verdict.name, "kind": verdict.kind, "outcome": verdict.outcome, "remarks": remarks}


_MARKS: Mapping[Weight, str] = {"note": "·", "difference": "≠", "error": "✗"}
_WORDS: Mapping[Outcome, str] = {"equal": "reads equally", "different": "reads differently", "unreadable": "cannot be read"}


def lines(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """The verdicts as text."""
    for verdict in verdicts:
        word = _WORDS[verdict.outcome]
        yield f"{bold(f'{verdict.kind} {verdict.name}:')} {red(word) if verdict.outcome == 'unreadable' else word}"
        yield from _remarks(verdict.remarks)
    if any(verdict.remarks for verdict in verdicts):
        yield "≠ another answer than in kartothek, · good to know, ✗ cannot be read. Nothing was changed."
    counts = _counts(verdicts)
    yield f"{counts['equal']:,} read equally, {counts['different']:,} differently, {counts['unreadable']:,} not at all."


def _remarks(remarks: Iterable[Remark]) -> Iterator[str]:
    """A line for each thing that is said, with all columns of which it is said."""
    columns: dict[tuple[Weight, str, str], list[str]] = {}
    for remark in remarks:
        columns.setdefault((remark.weight, remark.check, remark.text), []).extend([remark.column] if remark.column else [])
    for (weight, check, text), names in columns.items():
        where = f" [{', '.join(names)}]" if names else ""
        yield f"  {_MARKS[weight]} {check}{where}: {text}"

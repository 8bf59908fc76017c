"""The command `check-migration`: what reads equally, differently, or not at all in a store of kartothek."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import click

from kartothek_cube.cli.context import Session, loading, open_source, working
from kartothek_cube.cli.errors import one_line
from kartothek_cube.cli.options import cube_command
from kartothek_cube.cli.output import bold, red, show
from kartothek_cube.errors import DatasetNotFound, KartothekCubeError

if TYPE_CHECKING:
    import pyarrow as pa

    from kartothek_cube.api.dataset import Finding
    from kartothek_cube.core.stores.contract import Store

__all__ = [
    "Outcome",
    "Remark",
    "Verdict",
    "command",
    "documents",
    "lines",
    "of_members",
    "outcome_of",
    "unreadable",
    "verdicts_of",
]

Outcome: TypeAlias = Literal["equal", "different", "unreadable"]

OUTCOMES: tuple[Outcome, ...] = ("equal", "different", "unreadable")

_VERIFY = 'docs, page "Verify: is it whole?"'

# True of every dataset that another library has written. What follows from it is looked for in the
# files: narrow types.
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


def outcome_of(
    name: str, kind: Literal["dataset", "cube"], findings: Iterable[Finding], more: Sequence[Remark] = ()
) -> Verdict:
    """The verdict from what a verification found, and from other remarks."""
    remarks = (*(_remark(finding) for finding in findings if finding.check not in _SUPPRESSED), *more)
    weights = {remark.weight for remark in remarks}
    return Verdict(
        name, kind, "unreadable" if "error" in weights else "different" if "difference" in weights else "equal", remarks
    )


def unreadable(name: str, kind: Literal["dataset", "cube"], reason: str) -> Verdict:
    """The verdict of what cannot even be verified."""
    return Verdict(name, kind, "unreadable", (Remark("unreadable", " ".join(reason.split()), weight="error"),))


def of_members(prefix: str, members: Sequence[Verdict]) -> tuple[Remark, ...]:
    """What holds for a cube because it holds for some of its datasets."""
    weights: dict[Outcome, Weight] = {"different": "difference", "unreadable": "error"}
    named = {
        outcome: [verdict.name.removeprefix(f"{prefix}++") for verdict in members if verdict.outcome == outcome]
        for outcome in weights
    }
    text = "What is said of its datasets holds for the cube: {}."
    return tuple(
        Remark("members", text.format(", ".join(names)), weight=weights[outcome])
        for outcome, names in named.items()
        if names
    )


def _remark(finding: Finding) -> Remark:
    page = "" if "docs, page" in finding.message else f" ({_VERIFY}, {finding.check})"
    return Remark(
        finding.check, finding.message.replace("deep=True", "--deep") + page, finding.column, _weight(finding)
    )


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
    remarks = [
        {"check": remark.check, "text": remark.text, "column": remark.column, "weight": remark.weight}
        for remark in verdict.remarks
    ]
    return {"name": verdict.name, "kind": verdict.kind, "outcome": verdict.outcome, "remarks": remarks}


_MARKS: Mapping[Weight, str] = {"note": "·", "difference": "≠", "error": "✗"}

_WORDS: Mapping[Outcome, str] = {
    "equal": "reads equally",
    "different": "reads differently",
    "unreadable": "cannot be read",
}


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
        columns.setdefault((remark.weight, remark.check, remark.text), []).extend(
            [remark.column] if remark.column else []
        )
    for (weight, check, text), names in columns.items():
        where = f" [{', '.join(names)}]" if names else ""
        yield f"  {_MARKS[weight]} {check}{where}: {text}"


# What reading a damaged dataset may raise. Errors of the store itself are none of its faults.
DAMAGE = (KartothekCubeError, ValueError, LookupError)

SEEDLESS = (
    "No dataset says that it is the seed: kartothek's build_dataset_indices drops what makes a dataset one of a cube. It can be said again"
    ' (docs, page "Moving from kartothek, plateau and dask", A cube that has lost its seed)'
)


@cube_command("check-migration", "--deep")
@click.option(
    "--deep",
    is_flag=True,
    help="Read the data, too; without it the first file of each dataset tells the widths of its numbers.",
)
@click.pass_context
def command(ctx: click.Context, deep: bool) -> None:
    """Say what of a store of kartothek reads differently here.

    Every dataset and every cube of the store, or those of CUBE, read equally, differently or not at
    all. Each difference names the page of the documentation that tells of it. Nothing is changed.
    The exit status is 1 if something cannot be read.
    """
    session: Session = ctx.obj
    with working(session), loading(session) if session.cube else nullcontext(open_source(session)) as store:
        verdicts = verdicts_of(store, session.cube, deep=deep)
        if session.cube and not verdicts:
            raise DatasetNotFound(f'Could not find seed dataset for cube "{session.cube}".')
    show(session, documents(verdicts), lambda: lines(verdicts))
    if any(verdict.outcome == "unreadable" for verdict in verdicts):
        ctx.exit(1)


def verdicts_of(store: Store, cube: str | None, *, deep: bool) -> list[Verdict]:
    """The verdicts of all datasets and cubes of a store, or of one cube: datasets first, by name."""
    from kartothek_cube.core.dataset.inspect import list_datasets
    from kartothek_cube.core.runtime.executor import map_in_threads
    from kartothek_cube.core.runtime.progress import Phase
    from kartothek_cube.cube.members.discovery import dataset_ids, list_cube_prefixes

    members = {
        prefix: {f"{prefix}++{name}" for name in dataset_ids(prefix, store)}
        for prefix in list_cube_prefixes(store)
        if cube in (None, prefix)
    }
    single = sorted(set(list_datasets(store)).difference(*members.values())) if cube is None else []
    tasks: list[Callable[[], list[Verdict]]] = [
        *(partial(_cube, store, prefix, sorted(uuids), deep=deep) for prefix, uuids in members.items()),
        *(partial(_single, store, uuid, deep=deep) for uuid in single),
    ]
    found = [
        verdict
        for verdicts in map_in_threads(lambda task: task(), tasks, phase=Phase("verify", "datasets"))
        for verdict in verdicts
    ]
    return sorted(found, key=lambda verdict: (verdict.kind != "dataset", verdict.name))


def _single(store: Store, uuid: str, *, deep: bool) -> list[Verdict]:
    from kartothek_cube.core.dataset.maintain import verify_dataset

    try:
        report = verify_dataset(uuid, store, deep)
    except DAMAGE as error:
        return [unreadable(uuid, "dataset", one_line(error))]
    return [_dataset(store, uuid, report.findings, deep=deep)]


def _cube(store: Store, prefix: str, uuids: Sequence[str], *, deep: bool) -> list[Verdict]:
    """Each dataset of a cube, and whether they make one."""
    from kartothek_cube.cube.verbs.discover import discover_cube
    from kartothek_cube.cube.verbs.verify import verify_cube

    try:
        findings = verify_cube(prefix, store, deep).findings
    except DAMAGE as error:
        singles = [verdict for uuid in uuids for verdict in _single(store, uuid, deep=deep)]
        return [*singles, unreadable(prefix, "cube", _reason(store, prefix, singles, error))]
    # That datasets do not fit together is no fault of one of them.
    own = [finding for finding in findings if finding.dataset == prefix or finding.check.startswith("cube-")]
    members = [
        _dataset(
            store, uuid, [finding for finding in findings if finding.dataset == uuid and finding not in own], deep=deep
        )
        for uuid in uuids
    ]
    try:
        discover_cube(prefix, store)
    except DAMAGE as error:
        return [*members, unreadable(prefix, "cube", _reason(store, prefix, members, error))]
    return [*members, outcome_of(prefix, "cube", own, of_members(prefix, members))]


def _reason(store: Store, prefix: str, members: Sequence[Verdict], error: Exception) -> str:
    """Why datasets make no cube; where all can be read and none says that it is the seed, how that came about."""
    from kartothek_cube.cube.cube import KTK_CUBE_METADATA_KEY_IS_SEED
    from kartothek_cube.cube.verbs.discover import discover_datasets_unchecked

    if any(verdict.outcome == "unreadable" for verdict in members):
        return one_line(error)
    datasets = discover_datasets_unchecked(prefix, store).values()
    return (
        one_line(error)
        if any(dataset.metadata.get(KTK_CUBE_METADATA_KEY_IS_SEED) for dataset in datasets)
        else SEEDLESS
    )


def _dataset(store: Store, uuid: str, findings: Sequence[Finding], *, deep: bool) -> Verdict:
    if deep or any(finding.severity == "error" for finding in findings):
        return outcome_of(uuid, "dataset", findings)
    try:
        return outcome_of(uuid, "dataset", findings, tuple(_narrow(store, uuid)))
    except DAMAGE as error:
        return unreadable(uuid, "dataset", one_line(error))


# --- types that kartothek gives back as they are in the files ---------------------------------------------------------


def _narrow(store: Store, uuid: str) -> Iterator[Remark]:
    """Columns whose files have other types than the dataset: kartothek returns those of the file.

    The first file of each table is looked at.
    """
    from kartothek_cube.core.snapshots.loader import load_snapshot

    snapshot = load_snapshot(store, uuid)
    narrow: dict[str, str] = {}
    for table, schema in snapshot.schemas.items():
        keys = snapshot.partitions.files[table].drop_null().to_pylist() if table in snapshot.partitions.files else []
        for key in keys[:1]:
            narrow |= _differences(_stored(store, key, uuid), schema)
    text = 'Stored as {}. kartothek gives that back, this library {} (docs, page "Differences from kartothek", 20)'
    yield from (
        Remark("narrow-type", text.format(*pair.split(" → ")), column) for column, pair in sorted(narrow.items())
    )


def _stored(store: Store, key: str, uuid: str) -> pa.Schema | None:
    """The types in a Parquet file; None for other kinds of files."""
    if not key.endswith(".parquet"):
        return None
    from kartothek_cube.core.io.parquet_source import open_file

    with open_file(store, key, uuid) as source:
        return source.metadata.schema.to_arrow_schema()


def _differences(stored: pa.Schema | None, schema: pa.Schema) -> Mapping[str, str]:
    import pyarrow.types as pt

    if stored is None:
        return {}
    pairs = [(field.name, field.type, schema.field(field.name).type) for field in stored if field.name in schema.names]
    numbers = [
        (name, own, said)
        for name, own, said in pairs
        if (pt.is_integer(own) or pt.is_floating(own)) and not own.equals(said)
    ]
    return {name: f"{own} → {said}" for name, own, said in numbers}

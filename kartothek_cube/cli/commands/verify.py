"""The commands `verify`, and `check-migration`: which data of kartothek reads differently here."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import click

from kartothek_cube.cli.context import (
    Session,
    escaped,
    is_glob,
    loading,
    missing_directory,
    one_line,
    open_source,
    working,
)
from kartothek_cube.cli.options import cube_command
from kartothek_cube.cli.output import bold, red, show
from kartothek_cube.errors import DatasetNotFound, KartothekCubeError

if TYPE_CHECKING:
    from kartothek_cube.api.dataset import Finding, VerifyReport
    from kartothek_cube.core.stores.contract import Store


@cube_command("verify", "--deep")
@click.option("--deep", is_flag=True, help="Read the data, too.")
@click.pass_context
def verify_command(ctx: click.Context, deep: bool) -> None:
    """Say what is wrong with the cube.

    The exit status is 1 if there are errors: answers would be wrong, or reading fails. Nothing is
    changed.
    """
    from kartothek_cube.cube.verbs.verify import verify_cube

    session: Session = ctx.obj
    with working(session), loading(session) as store:
        report = verify_cube(session.prefix, store, deep)
    show(session, report.to_dict(), lambda: repr(with_commands(report, session.prefix)).splitlines())
    if not report.ok:
        ctx.exit(1)


def with_commands(report: VerifyReport, prefix: str) -> VerifyReport:
    """The report with commands instead of calls for repairs, where there is such a command."""
    return replace(report, findings=tuple(replace(finding, mend=_mend(finding, prefix)) for finding in report.findings))


def _mend(finding: Finding, prefix: str) -> str:
    from kartothek_cube.core.maintenance.verify_checks import rebuild

    name, column = finding.dataset.removeprefix(f"{prefix}++"), finding.column
    # Commands name datasets of the cube, so a finding of the cube itself keeps its call.
    if not finding.mend or name == finding.dataset:
        return finding.mend
    if finding.check == "garbage":
        return shlex.join(["kartothek_cube", prefix, "cleanup"])
    if finding.check == "overridden-cells":
        return shlex.join(["kartothek_cube", prefix, "compact", "--include", name])
    is_index = column is not None and finding.mend == rebuild(finding.dataset, column)
    # Globs and commas have a meaning in the argument of `index`.
    if column is not None and is_index and not is_glob(column) and "," not in column:
        return shlex.join(["kartothek_cube", prefix, "index", name, column])
    return finding.mend


Outcome: TypeAlias = Literal["equal", "different", "unreadable"]
Weight: TypeAlias = Literal["note", "difference", "error"]

OUTCOMES: tuple[Outcome, ...] = ("equal", "different", "unreadable")
_VERIFY = 'docs, page "Verify: is it whole?"'

# True for every dataset of another library. Its consequence, narrow types, is checked in the files.
_SUPPRESSED = frozenset({"foreign-dataset"})

# Findings that change no answer.
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


@dataclass(frozen=True, slots=True)
class Remark:
    """A difference, an error or a note, with the page of the documentation that explains it."""

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
    """The verdict from the findings of a verification, and from other remarks."""
    remarks: list[Remark] = []
    for finding in findings:
        if finding.check in _SUPPRESSED:
            continue
        weight: Weight = "note" if finding.check in _NOTES else "difference"
        # Some messages name a page of their own; the rest is explained with the checks.
        page = "" if "docs, page" in finding.message else f" ({_VERIFY}, {finding.check})"
        text = finding.message.replace("deep=True", "--deep") + page
        remarks.append(Remark(finding.check, text, finding.column, "error" if finding.severity == "error" else weight))
    remarks += more
    weights = {remark.weight for remark in remarks}
    return Verdict(
        name,
        kind,
        "unreadable" if "error" in weights else "different" if "difference" in weights else "equal",
        tuple(remarks),
    )


def unreadable(name: str, kind: Literal["dataset", "cube"], reason: str) -> Verdict:
    """The verdict on a dataset or cube that cannot be verified."""
    return Verdict(name, kind, "unreadable", (Remark("unreadable", " ".join(reason.split()), weight="error"),))


def of_members(prefix: str, members: Sequence[Verdict]) -> tuple[Remark, ...]:
    """The remarks on a cube that follow from the verdicts on its datasets."""
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


def documents(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """The verdicts as plain values."""
    return {"counts": _counts(verdicts), "verdicts": [asdict(verdict) for verdict in verdicts]}


def _counts(verdicts: Sequence[Verdict]) -> dict[str, int]:
    return {outcome: sum(verdict.outcome == outcome for verdict in verdicts) for outcome in OUTCOMES}


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
        # Often one text holds for many columns, e.g. narrow types: one line names them all.
        columns: dict[tuple[Weight, str, str], list[str]] = {}
        for remark in verdict.remarks:
            names = columns.setdefault((remark.weight, remark.check, remark.text), [])
            if remark.column:
                names.append(remark.column)
        for (weight, check, text), names in columns.items():
            shown = f" [{', '.join(names)}]" if names else ""
            yield f"  {_MARKS[weight]} {check}{shown}: {text}"
    if any(verdict.remarks for verdict in verdicts):
        yield "≠ another answer than in kartothek, · good to know, ✗ cannot be read. Nothing was changed."
    counts = _counts(verdicts)
    yield f"{counts['equal']:,} read equally, {counts['different']:,} differently, {counts['unreadable']:,} not at all."


# Errors that a damaged dataset may cause. Errors of the store, such as OSError, are no damage.
DAMAGE = (KartothekCubeError, ValueError, LookupError)

SEEDLESS = (
    "No dataset says that it is the seed: kartothek's build_dataset_indices drops what makes a dataset one of a cube. "
    'It can be said again (docs, page "Moving from kartothek, plateau and dask", A cube that has lost its seed)'
)


@cube_command("check-migration", "--deep")
@click.option(
    "--deep",
    is_flag=True,
    help="Read the data, too; without it the first file of each dataset tells the widths of its numbers.",
)
@click.pass_context
def check_migration_command(ctx: click.Context, deep: bool) -> None:
    """Report which kartothek data reads differently here.

    Every dataset and every cube of the store, or those of CUBE, read equally, differently or not at
    all. Each difference names the page of the documentation that tells of it. Nothing is changed.
    The exit status is 1 if something cannot be read.
    """
    session: Session = ctx.obj
    with working(session), loading(session) if session.cube else nullcontext(open_source(session)) as store:
        verdicts = verdicts_of(store, session.cube, deep=deep)
        if session.cube and not verdicts:
            from kartothek_cube.cube.members import other_cubes

            others = other_cubes(session.cube, store)
            raise DatasetNotFound(f'Could not find seed dataset for cube "{session.cube}".{others}')
    missing = missing_directory(store)
    if not verdicts and not session.json:
        click.echo(escaped(f"There is no dataset in this store.{missing}"), err=True)
    show(session, documents(verdicts), lambda: lines(verdicts))
    if missing or any(verdict.outcome == "unreadable" for verdict in verdicts):
        ctx.exit(2 if missing else 1)


def verdicts_of(store: Store, cube: str | None, *, deep: bool) -> list[Verdict]:
    """The verdicts on all datasets and cubes of a store, or of one cube: datasets first."""
    from kartothek_cube.core.dataset.maintain import list_datasets
    from kartothek_cube.core.runtime.executor import map_in_threads
    from kartothek_cube.core.runtime.options import Phase
    from kartothek_cube.core.snapshots.loader import is_visible
    from kartothek_cube.cube.members import dataset_ids, list_cube_prefixes

    listed = {
        prefix: {f"{prefix}++{name}" for name in dataset_ids(prefix, store)}
        for prefix in list_cube_prefixes(store)
        if cube in (None, prefix)
    }
    single = sorted(set(list_datasets(store)).difference(*listed.values())) if cube is None else []
    uuids = sorted(set().union(*listed.values()))
    # Of a cube, the listing also names datasets that no reader sees.
    visible = map_in_threads(partial(is_visible, store), uuids, store=store)
    seen = {uuid for uuid, is_seen in zip(uuids, visible, strict=True) if is_seen}
    members = {prefix: names & seen for prefix, names in listed.items() if names & seen}
    tasks: list[Callable[[], list[Verdict]]] = [
        *(partial(_cube, store, prefix, sorted(uuids), deep=deep) for prefix, uuids in members.items()),
        *(partial(_single, store, uuid, deep=deep) for uuid in single),
    ]
    results = map_in_threads(lambda task: task(), tasks, phase=Phase("verify", "datasets"))
    return sorted(chain.from_iterable(results), key=lambda verdict: (verdict.kind != "dataset", verdict.name))


def _single(store: Store, uuid: str, *, deep: bool) -> list[Verdict]:
    from kartothek_cube.core.dataset.maintain import verify_dataset

    try:
        report = verify_dataset(uuid, store, deep)
    except DAMAGE as error:
        return [unreadable(uuid, "dataset", one_line(error))]
    return [_dataset(store, uuid, report.findings, deep=deep)]


def _cube(store: Store, prefix: str, uuids: Sequence[str], *, deep: bool) -> list[Verdict]:
    """The verdicts on each dataset of a cube, and on the cube."""
    from kartothek_cube.cube.verbs.describe import discover_cube
    from kartothek_cube.cube.verbs.verify import verify_cube

    try:
        findings = verify_cube(prefix, store, deep).findings
    except DAMAGE as error:
        singles = [verdict for uuid in uuids for verdict in _single(store, uuid, deep=deep)]
        return [*singles, unreadable(prefix, "cube", _reason(store, prefix, singles, error))]
    # Datasets that do not fit together are a fault of the cube, not of one of them.
    of_cube = [finding for finding in findings if finding.dataset == prefix or finding.check.startswith("cube-")]
    others = [finding for finding in findings if finding not in of_cube]
    members = [
        _dataset(store, uuid, [finding for finding in others if finding.dataset == uuid], deep=deep) for uuid in uuids
    ]
    try:
        discover_cube(prefix, store)
    except DAMAGE as error:
        return [*members, unreadable(prefix, "cube", _reason(store, prefix, members, error))]
    return [*members, outcome_of(prefix, "cube", of_cube, of_members(prefix, members))]


def _reason(store: Store, prefix: str, members: Sequence[Verdict], error: Exception) -> str:
    """Why datasets are no cube: the error, or that a lost seed flag causes it."""
    from kartothek_cube.core.metadata.snapshot import KTK_CUBE_METADATA_KEY_IS_SEED
    from kartothek_cube.cube.verbs.describe import discover_datasets_unchecked

    if any(verdict.outcome == "unreadable" for verdict in members):
        return one_line(error)
    datasets = discover_datasets_unchecked(prefix, store).values()
    has_seed = any(dataset.metadata.get(KTK_CUBE_METADATA_KEY_IS_SEED) for dataset in datasets)
    return one_line(error) if has_seed else SEEDLESS


def _dataset(store: Store, uuid: str, findings: Sequence[Finding], *, deep: bool) -> Verdict:
    if deep or any(finding.severity == "error" for finding in findings):
        return outcome_of(uuid, "dataset", findings)
    try:
        return outcome_of(uuid, "dataset", findings, tuple(_narrow(store, uuid)))
    except DAMAGE as error:
        return unreadable(uuid, "dataset", one_line(error))


def _narrow(store: Store, uuid: str) -> Iterator[Remark]:
    """Columns of numbers whose type in the first file of each table is not that of the dataset."""
    import pyarrow.types as pt

    from kartothek_cube.core.io.parquet import open_file
    from kartothek_cube.core.snapshots.loader import load_snapshot

    snapshot = load_snapshot(store, uuid)
    types: dict[str, tuple[str, str]] = {}
    for table, schema in snapshot.schemas.items():
        keys = snapshot.partitions.files[table].drop_null().to_pylist() if table in snapshot.partitions.files else []
        if not keys or not keys[0].endswith(".parquet"):
            continue
        # One footer for each table, so that a whole store is checked quickly; --deep reads more.
        with open_file(store, keys[0], uuid) as source:
            stored = source.metadata.schema.to_arrow_schema()
        for field in stored:
            is_number = pt.is_integer(field.type) or pt.is_floating(field.type)
            if is_number and field.name in schema.names and not field.type.equals(schema.field(field.name).type):
                types[field.name] = (str(field.type), str(schema.field(field.name).type))
    # kartothek returns the types of the file.
    text = 'Stored as {}. kartothek gives that back, this library {} (docs, page "Differences from kartothek", 20)'
    yield from (Remark("narrow-type", text.format(*pair), column) for column, pair in sorted(types.items()))

"""The command `check-migration`: what of a store of kartothek reads equally, differently, or not at all. Nothing is changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING

import click

from kartothek_cube.cli.failures import one_line
from kartothek_cube.cli.migration import Remark, Verdict, documents, lines, of_members, outcome_of, unreadable
from kartothek_cube.cli.output import show
from kartothek_cube.cli.parameters import cube_command
from kartothek_cube.cli.progress import working
from kartothek_cube.cli.session import Session, loading, open_source
from kartothek_cube.errors import DatasetNotFound, KartothekCubeError

if TYPE_CHECKING:
    import pyarrow as pa

    from kartothek_cube.api.dataset import Finding
    from kartothek_cube.core.store import Store

__all__ = ["command", "verdicts_of"]

# What reading a damaged dataset may raise. Errors of the store itself are none of its faults.
DAMAGE = (KartothekCubeError, ValueError, LookupError)
SEEDLESS = (
    "No dataset says that it is the seed: kartothek's build_dataset_indices drops what makes a dataset one of a cube. It can be said again"
    ' (docs, page "Moving from kartothek, plateau and dask", A cube that has lost its seed)'
)


@cube_command("check-migration", "--deep")
@click.option("--deep", is_flag=True, help="Read the data, too; without it the first file of each dataset tells the widths of its numbers.")
@click.pass_context
def command(ctx: click.Context, deep: bool) -> None:
    """Say what of a store of kartothek reads differently here.

    Every dataset and every cube of the store, or those of CUBE, read equally, differently or not at all. Each difference names the page of the documentation
    that tells of it. Nothing is changed. The exit status is 1 if something cannot be read.
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
    from kartothek_cube.core.dataset.listing import list_datasets
    from kartothek_cube.core.parallel import map_in_threads
    from kartothek_cube.core.progress import Phase
    from kartothek_cube.cube.discovery import dataset_ids, list_cube_prefixes

    members = {prefix: {f"{prefix}++{name}" for name in dataset_ids(prefix, store)} for prefix in list_cube_prefixes(store) if cube in (None, prefix)}
    single = sorted(set(list_datasets(store)).difference(*members.values())) if cube is None else []
    tasks: list[Callable[[], list[Verdict]]] = [
        *(partial(_cube, store, prefix, sorted(uuids), deep=deep) for prefix, uuids in members.items()),
        *(partial(_single, store, uuid, deep=deep) for uuid in single),
    ]
    found = [verdict for verdicts in map_in_threads(lambda task: task(), tasks, phase=Phase("verify", "datasets")) for verdict in verdicts]
    return sorted(found, key=lambda verdict: (verdict.kind != "dataset", verdict.name))


def _single(store: Store, uuid: str, *, deep: bool) -> list[Verdict]:
    from kartothek_cube.core.dataset.verify import verify_dataset

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
    members = [_dataset(store, uuid, [finding for finding in findings if finding.dataset == uuid and finding not in own], deep=deep) for uuid in uuids]
    try:
        discover_cube(prefix, store)
    except DAMAGE as error:
        return [*members, unreadable(prefix, "cube", _reason(store, prefix, members, error))]
    return [*members, outcome_of(prefix, "cube", own, of_members(prefix, members))]


def _reason(store: Store, prefix: str, members: Sequence[Verdict], error: Exception) -> str:
    """Why datasets make no cube; where all can be read and none says that it is the seed, how that came about."""
    from kartothek_cube.cube.constants import KTK_CUBE_METADATA_KEY_IS_SEED
    from kartothek_cube.cube.verbs.discover import discover_datasets_unchecked

    if any(verdict.outcome == "unreadable" for verdict in members):
        return one_line(error)
    datasets = discover_datasets_unchecked(prefix, store).values()
    return one_line(error) if any(dataset.metadata.get(KTK_CUBE_METADATA_KEY_IS_SEED) for dataset in datasets) else SEEDLESS


def _dataset(store: Store, uuid: str, findings: Sequence[Finding], *, deep: bool) -> Verdict:
    if deep or any(finding.severity == "error" for finding in findings):
        return outcome_of(uuid, "dataset", findings)
    try:
        return outcome_of(uuid, "dataset", findings, tuple(_narrow(store, uuid)))
    except DAMAGE as error:
        return unreadable(uuid, "dataset", one_line(error))


# --- types that kartothek gives back as they are in the files ---------------------------------------------------------


def _narrow(store: Store, uuid: str) -> Iterator[Remark]:
    """Columns whose files have other types than the dataset: kartothek returns those of the file. The first file of each table is looked at."""
    from kartothek_cube.core.snapshots import load_snapshot

    snapshot = load_snapshot(store, uuid)
    narrow: dict[str, str] = {}
    for table, schema in snapshot.schemas.items():
        keys = snapshot.partitions.files[table].drop_null().to_pylist() if table in snapshot.partitions.files else []
        for key in keys[:1]:
            narrow |= _differences(_stored(store, key, uuid), schema)
    text = 'Stored as {}. kartothek gives that back, this library {} (docs, page "Differences from kartothek", 20)'
    yield from (Remark("narrow-type", text.format(*pair.split(" → ")), column) for column, pair in sorted(narrow.items()))


def _stored(store: Store, key: str, uuid: str) -> pa.Schema | None:
    """The types in a Parquet file; None for other kinds of files."""
    if not key.endswith(".parquet"):
        return None
    from kartothek_cube.core.parquet_file import open_file

    with open_file(store, key, uuid) as source:
        return source.metadata.schema.to_arrow_schema()


def _differences(stored: pa.Schema | None, schema: pa.Schema) -> Mapping[str, str]:
    import pyarrow.types as pt

    if stored is None:
        return {}
    pairs = [(field.name, field.type, schema.field(field.name).type) for field in stored if field.name in schema.names]
    numbers = [(name, own, said) for name, own, said in pairs if (pt.is_integer(own) or pt.is_floating(own)) and not own.equals(said)]
    return {name: f"{own} → {said}" for name, own, said in numbers}

"""Verify a cube; report which data of kartothek reads differently.

In order:

- checks: do the datasets fit together, which cells does no query show
- `verify_cube`
- `check_migration`
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import partial
from itertools import chain
from typing import Literal, TypeAlias

import numpy as np
import pyarrow.types as pt

from kartothek_cube.core.arguments import check_flag, pluralize
from kartothek_cube.core.arrow.difference import row_hashes
from kartothek_cube.core.arrow.keys import Hashes, IntArray, pack
from kartothek_cube.core.dataset.maintain import list_datasets, verify_dataset
from kartothek_cube.core.io.parquet import open_file
from kartothek_cube.core.io.reader import FileRequest, open_rows
from kartothek_cube.core.maintenance.inspection import DAMAGE, Counts, Finding, Severity, VerifyReport, report_of
from kartothek_cube.core.maintenance.verify import VerifyPass, verify, verify_rows
from kartothek_cube.core.maintenance.verify_checks import piece_bytes
from kartothek_cube.core.metadata.commit_log import Commit
from kartothek_cube.core.metadata.naming import SINGLE_TABLE, check_uuid
from kartothek_cube.core.metadata.snapshot import (
    KTK_CUBE_METADATA_DIMENSION_COLUMNS,
    KTK_CUBE_METADATA_KEY_IS_SEED,
    KTK_CUBE_METADATA_PARTITION_COLUMNS,
    LEGACY_DIMENSION_COLUMNS,
    LEGACY_IS_SEED,
    LEGACY_PARTITION_COLUMNS,
    Snapshot,
)
from kartothek_cube.core.runtime.executor import map_in_threads
from kartothek_cube.core.runtime.options import Overrides, Phase
from kartothek_cube.core.runtime.telemetry import operation
from kartothek_cube.core.snapshots.loader import is_visible, load_snapshot
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.stores.open import open_instrumented
from kartothek_cube.cube.consistent_read import each_fault, infos_of
from kartothek_cube.cube.cube import (
    KTK_CUBE_METADATA_SUPPRESS_INDEX_ON,
    KTK_CUBE_UUID_SEPERATOR,
    LEGACY_TIMESTAMP_PAYLOAD,
    Cube,
    prefix_of,
    visible_columns,
)
from kartothek_cube.cube.members import cube_of, dataset_ids, list_cube_prefixes, other_cubes
from kartothek_cube.cube.verbs.describe import discover_cube, discover_datasets_unchecked
from kartothek_cube.errors import DatasetNotFound, InvalidInput, one_line
from kartothek_cube.typing import StoreLike

_PAGE = 'docs, page "Differences from kartothek"'

# --- metadata of the datasets -------------------------------------------------------------------

# Key of the metadata, its name in older cubes, attribute of `Cube`.
_COLUMN_ENTRIES: tuple[tuple[str, str | None, str], ...] = (
    (KTK_CUBE_METADATA_DIMENSION_COLUMNS, LEGACY_DIMENSION_COLUMNS, "dimension_columns"),
    (KTK_CUBE_METADATA_PARTITION_COLUMNS, LEGACY_PARTITION_COLUMNS, "partition_columns"),
    (KTK_CUBE_METADATA_SUPPRESS_INDEX_ON, None, "suppress_index_on"),
)


def find_cube(uuid_prefix: str, members: Mapping[str, Snapshot]) -> tuple[Cube | None, list[Finding]]:
    """The cube that the metadata of its datasets describe; None if they describe none."""
    try:
        return cube_of(uuid_prefix, members), []
    except DAMAGE as error:
        return None, [Finding("error", "cube-seed", uuid_prefix, f"The metadata describe no cube. {error}")]


def member_findings(cube: Cube, members: Mapping[str, Snapshot]) -> Iterator[Finding]:
    """Datasets that do not fit together, and what kartothek reads differently from them."""
    yield from _seed_findings(cube, members)
    # Each of these faults makes every query of the cube fail.
    for check, name, error in each_fault(infos_of(members), cube):
        dataset = cube.uuid_prefix if name is None else cube.ktk_dataset_uuid(name)
        mend = ""
        if check == "indices" and name is not None:
            dimensions = [c for c in cube.dimension_columns if c not in cube.suppress_index_on]
            required = [*(dimensions if name == cube.seed_dataset else ()), *sorted(cube.index_columns)]
            present = {*members[name].schema.names} - {*members[name].indexed_columns}
            lacking = [c for c in required if c in present]
            mend = f"build_cube_index(cube, store, {lacking!r}, {name!r})" if lacking else ""
        yield Finding("error", f"cube-{check}", dataset, str(error), mend=mend)
    for name, snapshot in members.items():
        yield from _metadata_findings(cube, name, snapshot)
        several = overriding_files(cube, snapshot) if set(snapshot.tables) == {SINGLE_TABLE} else []
        if several:
            count = f"{pluralize(len(several), 'physical partition')} with several files, {sum(map(len, several)):,}"
            text = f"{count} in all. The newest row wins; kartothek may show older ones ({_PAGE}, 6)"
            label = snapshot.partitions.labels[several[0][0]].as_py()
            yield Finding("info", "several-files", snapshot.uuid, text, label=label, count=len(several))
        hidden = sorted(set(snapshot.schema.names) - set(visible_columns(snapshot.schema.names)))
        if hidden:
            text = (
                f"Columns that begin with two underscores, and {LEGACY_TIMESTAMP_PAYLOAD}, are hidden in cubes: "
                f"{', '.join(hidden)} ({_PAGE}, 16)"
            )
            yield Finding("info", "hidden-column", snapshot.uuid, text, column=hidden[0], count=len(hidden))
    yield from _incomplete_commits(members)


def _seed_findings(cube: Cube, members: Mapping[str, Snapshot]) -> Iterator[Finding]:
    if cube.seed_dataset not in members:
        text = f"The seed dataset {cube.seed_dataset!r} is missing or cannot be read. There are {sorted(members)}."
        yield Finding("error", "cube-seed", cube.uuid_prefix, text)
    for name, snapshot in members.items():
        flag = _metadata_entry(snapshot, KTK_CUBE_METADATA_KEY_IS_SEED, LEGACY_IS_SEED)
        if flag is None and name == cube.seed_dataset:
            text = (
                "The metadata do not say that this is the seed, so open_cube and describe_cube cannot find the cube; "
                "kartothek's index build drops them."
            )
            yield Finding("warning", "cube-metadata", snapshot.uuid, text)
        elif flag is not None and bool(flag) != (name == cube.seed_dataset):
            text = (
                f"The metadata say {flag!r} to whether this is the seed, which is {cube.seed_dataset!r}. "
                "A cube has one."
            )
            yield Finding("error", "cube-seed", snapshot.uuid, text)


def _metadata_entry(snapshot: Snapshot, key: str, legacy: str | None) -> object:
    metadata = snapshot.document.metadata
    return metadata.get(key, None if legacy is None else metadata.get(legacy))


def _metadata_findings(cube: Cube, name: str, snapshot: Snapshot) -> Iterator[Finding]:
    # Readers use the entries of the seed only; in other datasets they are copies.
    severity: Severity = "error" if name == cube.seed_dataset else "warning"
    for key, legacy, attribute in _COLUMN_ENTRIES:
        entry, columns = _metadata_entry(snapshot, key, legacy), getattr(cube, attribute)
        listed = [entry] if isinstance(entry, str) else entry  # a single column may be a bare string
        is_list = isinstance(listed, list) and all(isinstance(column, str) for column in listed)
        if entry is not None and not (is_list and type(columns)(listed) == columns):
            expected = sorted(columns) if isinstance(columns, frozenset) else list(columns)
            text = f"The metadata say {attribute} = {entry!r}, but the cube has {expected!r}."
            yield Finding(severity, "cube-metadata", snapshot.uuid, text)


def overriding_files(cube: Cube, snapshot: Snapshot) -> list[list[int]]:
    """Groups of files whose rows may override each other, as positions of partitions.

    The files of a group have equal values of the cube's partition columns.
    """
    numbers = snapshot.physical_partitions(cube.partition_columns)
    order = np.argsort(numbers, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1)
    return [group.tolist() for group in groups if len(group) > 1]


# --- commits of several datasets ----------------------------------------------------------------


def _incomplete_commits(members: Mapping[str, Snapshot]) -> Iterator[Finding]:
    """Writes to several datasets that some of them lack: of older versions of this library."""
    by_uuid = {snapshot.uuid: snapshot for snapshot in members.values()}
    seen = set()
    for snapshot in members.values():
        for commit in snapshot.chain:
            if commit.cube is None or commit.cube.id in seen:
                continue
            seen.add(commit.cube.id)
            participants = sorted(by_uuid.keys() & {str(uuid) for uuid in commit.cube.datasets})
            lacking = [uuid for uuid in participants if not _may_have(by_uuid[uuid], commit.cube.id, commit.time)]
            # A repetition without txn has a new id: the first write stays incomplete forever.
            if lacking and not _is_repeated(commit, [by_uuid[uuid] for uuid in participants]):
                datasets = ", ".join(map(str, commit.cube.datasets))
                text = (
                    f"The write {commit.cube.id} to {datasets} is not in {', '.join(lacking)}: "
                    "an older version of this library stopped halfway, or is writing."
                )
                mend = f"repeat the write, or undo({snapshot.uuid!r}, store, {commit.id!r})"
                yield Finding("warning", "cube-commit", snapshot.uuid, text, mend=mend)


def _may_have(snapshot: Snapshot, write: str, time: datetime | None) -> bool:
    """Whether a dataset has a write, or may have forgotten it."""
    chain = snapshot.chain
    if any(c.cube is not None and c.cube.id == write for c in chain):
        return True
    # A commit list begins anew after a foreign writer, and a full one drops its oldest entries.
    oldest = chain[0].time if chain else None
    return not chain or oldest is None or time is None or oldest > time


def _is_repeated(commit: Commit, participants: Sequence[Snapshot]) -> bool:
    """Whether all participants have one later write to the same datasets: its repetition."""

    def later_writes(snapshot: Snapshot) -> Iterator[str]:
        for c in snapshot.chain:
            if c.cube is None or commit.cube is None or c.cube.datasets != commit.cube.datasets:
                continue
            if c.time is not None and commit.time is not None and c.time > commit.time:
                yield c.cube.id

    return bool(set.intersection(*(set(later_writes(snapshot)) for snapshot in participants)))


# --- cells of the data --------------------------------------------------------------------------

_VERIFY = Phase("verify", "partitions")


@dataclass(frozen=True, slots=True)
class _CellReader:
    """Reads the cells of a dataset as 64-bit hashes: eight bytes a row, however many columns.

    Equal hashes are taken for equal cells.
    """

    store: Store
    snapshot: Snapshot
    columns: tuple[str, ...]

    def pieces(self, position: int) -> Iterator[Hashes]:
        """Hashes of the rows of one file, piece by piece."""
        request = FileRequest(self.snapshot.uuid, self.snapshot.schema, self.columns)
        constants = {c: self.snapshot.values.column(c)[position].as_py() for c in self.snapshot.values.column_names}
        key = self.snapshot.files[position].as_py()
        for rows in open_rows(self.store, key, request, piece_bytes(), constants)[1] if key is not None else ():
            yield row_hashes(rows, self.columns)

    def read_all(self, positions: Sequence[int]) -> Hashes:
        """Hashes of the rows of several files."""
        return _concat(map_in_threads(lambda position: _concat(self.pieces(position)), positions))

    def positions_in(self, cells: Hashes, position: int) -> IntArray:
        """The positions, in sorted distinct cells, of those that a file has."""
        hits = [np.searchsorted(cells, np.intersect1d(cells, piece)) for piece in self.pieces(position)]
        return np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *hits]))

    def count_overridden(self, positions: Sequence[int]) -> int:
        """Count rows that duplicate a cell across these files."""
        try:
            hashes = self.read_all(positions)
        except DAMAGE:
            return 0  # the check of the file reports it
        return len(hashes) - len(np.unique(hashes))

    def count_unseen(self, seed: _CellReader, files: tuple[list[int], list[int]]) -> int:
        """The number of distinct cells in files of this dataset that no file of the seed has."""
        own_files, seed_files = files
        try:
            # Only the cells of the enrichment are held in memory; the seed's files pass by.
            cells = np.unique(self.read_all(own_files))
            seen = np.zeros(len(cells), dtype=bool)
            for hits in map_in_threads(lambda position: seed.positions_in(cells, position), seed_files):
                seen[hits] = True
        except DAMAGE:
            return 0  # the check of the file reports it
        return int(np.count_nonzero(~seen))


def _concat(hashes: Iterable[Hashes]) -> Hashes:
    return np.concatenate([np.zeros(0, dtype=np.uint64), *hashes])


def _cell_columns(cube: Cube, snapshot: Snapshot) -> tuple[str, ...]:
    """The columns of a dataset that identify the cell of a row."""
    return tuple(c for c in (*cube.dimension_columns, *cube.partition_columns) if c in snapshot.schema.names)


def overridden_findings(cube: Cube, members: Mapping[str, Snapshot], store: Store) -> Iterator[Finding]:
    """Rows that a newer file of the same physical partition overrides."""
    for snapshot in members.values():
        reader = _CellReader(store, snapshot, _cell_columns(cube, snapshot))
        groups = overriding_files(cube, snapshot)
        count = sum(map_in_threads(reader.count_overridden, groups, phase=_VERIFY))
        if count:
            text = (
                f"{pluralize(count, 'row')} overridden by newer ones of the same cell in other files. "
                "Queries show the newest row."
            )
            mend = f"compact_dataset({snapshot.uuid!r}, store)"
            yield Finding("info", "overridden-cells", snapshot.uuid, text, mend=mend, count=count)


# --- enrichments against the seed ---------------------------------------------------------------


def unseen_findings(cube: Cube, members: Mapping[str, Snapshot], store: Store) -> Iterator[Finding]:
    """Cells of enrichments that the seed lacks: no query of the cube shows their rows."""
    seed = members.get(cube.seed_dataset)
    for name, snapshot in members.items():
        if seed is None or name == cube.seed_dataset:
            continue
        columns = tuple(c for c in _cell_columns(cube, snapshot) if c in seed.schema.names)
        enrichment_reader, seed_reader = _CellReader(store, snapshot, columns), _CellReader(store, seed, columns)
        work = partial(enrichment_reader.count_unseen, seed_reader)
        count = sum(map_in_threads(work, _aligned_files(cube, snapshot, seed), phase=_VERIFY))
        if count:
            text = (
                f"{pluralize(count, 'cell')} that the seed {cube.seed_dataset!r} does not have: "
                "no query of the cube shows what is there."
            )
            yield Finding("info", "unseen-cells", snapshot.uuid, text, count=count)


def _aligned_files(cube: Cube, enrichment: Snapshot, seed: Snapshot) -> list[tuple[list[int], list[int]]]:
    """Positions of files of an enrichment, with those of the seed that may hold the same cells."""
    value_columns = (enrichment.values.column_names, seed.values.column_names)
    shared = [c for c in cube.partition_columns if all(c in names for names in value_columns)]
    if not shared or not len(enrichment.partitions):
        return [(list(range(len(enrichment.partitions))), list(range(len(seed.partitions))))]
    enrichment_keys, seed_keys = pack([enrichment.values, seed.values], shared)
    distinct = np.unique(enrichment_keys)
    return list(zip(_positions(enrichment_keys, distinct), _positions(seed_keys, distinct), strict=True))


def _positions(keys: IntArray, distinct: IntArray) -> list[list[int]]:
    """The positions of each distinct key."""
    order = np.argsort(keys, kind="stable")
    first, last = (np.searchsorted(keys[order], distinct, side=side) for side in ("left", "right"))
    return [order[a:b].tolist() for a, b in zip(first, last, strict=True)]


# --- verify_cube ----------------------------------------------------------------------------------


def verify_cube(
    cube: Cube | str, store: StoreLike, deep: bool = False, *, options: Overrides | None = None
) -> VerifyReport:
    """Verify a cube: each dataset as by `verify_dataset`, and whether all fit together.

    Nothing is changed.

    Parameters
    ----------
    cube : Cube or str
        The cube, or its uuid prefix. Then the metadata of its datasets describe it.
    store : str, path, store or callable
        The store of the cube; everything that `open_store` takes.
    deep : bool, default False
        Read the data, too. Beyond the checks of `verify_dataset`: nulls, order and repetitions of
        cells, cells that newer files override, and cells of enrichments that the seed lacks.
    options : optional
        What `options` returns: settings for this call.

    Returns
    -------
    VerifyReport
        The findings, errors first. ``ok`` is True without errors, ``clean`` also without warnings.

    Raises
    ------
    DatasetNotFound
        If the cube has no dataset in the store.
    OSError
        If the store cannot be read.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube import Cube, build_cube, open_store, verify_cube
    >>> store = open_store("hmemory://")
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> sales = pa.table({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"]})
    >>> prices = pa.table({"PRODUCT_ID": [2, 3], "COUNTRY_CODE": ["FR", "FR"], "PRICE": [1.5, 2.5]})
    >>> _ = build_cube({"seed": sales, "prices": prices}, cube, store)
    >>> report = verify_cube(cube, store, deep=True)
    >>> report.ok, report.counts.rows
    (True, 4)
    >>> report.findings[0].message
    "1 cell that the seed 'seed' does not have: no query of the cube shows what is there."
    """
    with operation("verify_cube", options, cube=cube):
        return verified(cube, open_instrumented(store), deep=check_flag(deep, "deep")).report


@dataclass(frozen=True, slots=True)
class Verified:
    """A verification with its data: the cube, the passes of all datasets, the readable datasets.

    ``cube`` is None if the metadata describe none.
    """

    prefix: str
    cube: Cube | None
    passes: Mapping[str, VerifyPass]
    members: Mapping[str, Snapshot]
    report: VerifyReport


def verified(cube: Cube | str, store: Store, *, deep: bool) -> Verified:
    """Verify a cube as `verify_cube` does, and return also the verified data."""
    if isinstance(cube, str) and KTK_CUBE_UUID_SEPERATOR in check_uuid(cube):
        raise InvalidInput(
            f"The prefix of a cube has no {KTK_CUBE_UUID_SEPERATOR!r}, but {cube!r} was given. "
            "verify_dataset verifies a single dataset."
        )
    prefix = prefix_of(cube)
    start = f"{prefix}{KTK_CUBE_UUID_SEPERATOR}"
    names = sorted(dataset_ids(prefix, store))
    if not names:
        raise DatasetNotFound(
            f"There is no dataset of a cube {prefix!r} in the store {store.name}: no uuid begins with '{start}'."
            f"{other_cubes(prefix, store)}"
        )
    phase = Phase("verify", "datasets")
    verifications = map_in_threads(
        lambda name: verify(store, f"{start}{name}", deep=deep), names, store=store, phase=phase
    )
    passes = dict(zip(names, verifications, strict=True))
    readable = {name: p.subject.snapshot for name, p in passes.items() if p.subject is not None}
    members = {name: snapshot for name, snapshot in readable.items() if snapshot.schemas}
    described, findings = find_cube(prefix, members) if isinstance(cube, str) else (cube, [])
    # Without a dataset that readers see, there is no cube, and nothing that it lacks.
    if not readable and not any(f.severity == "error" for p in passes.values() for f in p.findings):
        described, findings = None, []
    if described is not None:
        findings.extend(member_findings(described, members))
    if deep:
        dimensions = described.dimension_columns if described is not None else ()
        passes = {name: verify_rows(store, p, dimensions) for name, p in passes.items()}
    if deep and described is not None:
        # The cells of a dataset can be read if it has one table, and all of its partition values.
        single = {name: s for name, s in members.items() if set(s.tables) == {SINGLE_TABLE}}
        whole = {name: s for name, s in single.items() if {*s.values.column_names} == {*s.partition_keys}}
        findings.extend(overridden_findings(described, whole, store))
        findings.extend(unseen_findings(described, whole, store))
    findings.extend(f for p in passes.values() for f in p.findings)
    counts = sum((p.counts for p in passes.values()), Counts())
    return Verified(prefix, described, passes, members, report_of(f"cube {prefix!r}", findings, counts, deep=deep))


# --- check_migration ------------------------------------------------------------------------------


Outcome: TypeAlias = Literal["equal", "different", "unreadable"]
Weight: TypeAlias = Literal["note", "difference", "error"]

OUTCOMES: tuple[Outcome, ...] = ("equal", "different", "unreadable")
_CHECKS = 'docs, page "Verify: is it whole?"'

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
    """A difference, an error or a note, with the page of the documentation that explains it.

    Examples
    --------
    >>> from kartothek_cube.api.cube import Remark
    >>> Remark("narrow-type", "Stored as int16.", column="UNITS").weight
    'difference'
    """

    check: str
    text: str
    column: str | None = None
    weight: Weight = "difference"


@dataclass(frozen=True, slots=True)
class Verdict:
    """How one dataset or cube reads here, compared with kartothek.

    Examples
    --------
    >>> from kartothek_cube.api.cube import Verdict
    >>> Verdict("sales++seed", "dataset", "equal").remarks
    ()
    """

    name: str
    kind: Literal["dataset", "cube"]
    outcome: Outcome
    remarks: tuple[Remark, ...] = ()


@dataclass(frozen=True, slots=True)
class MigrationReport:
    """How the datasets and cubes of a store read here, compared with kartothek.

    Attributes
    ----------
    verdicts : tuple of Verdict
        Datasets first, then cubes, by name.

    Examples
    --------
    >>> from kartothek_cube.api.cube import MigrationReport, Verdict
    >>> MigrationReport((Verdict("sales++seed", "dataset", "equal"),))
    MigrationReport(1 equal, 0 different, 0 unreadable)
    """

    verdicts: tuple[Verdict, ...]

    @property
    def counts(self) -> dict[str, int]:
        """Outcome → number of verdicts."""
        return {outcome: sum(verdict.outcome == outcome for verdict in self.verdicts) for outcome in OUTCOMES}

    @property
    def ok(self) -> bool:
        """Whether everything can be read."""
        return not self.counts["unreadable"]

    def to_dict(self) -> dict[str, object]:
        """The report as plain values."""
        return {"counts": self.counts, "verdicts": [asdict(verdict) for verdict in self.verdicts]}

    def __repr__(self) -> str:
        return f"MigrationReport({', '.join(f'{count:,} {outcome}' for outcome, count in self.counts.items())})"


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
        page = "" if "docs, page" in finding.message else f" ({_CHECKS}, {finding.check})"
        text = finding.message + page
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


SEEDLESS = (
    "No dataset says that it is the seed: kartothek's build_dataset_indices drops what makes a dataset one of a cube. "
    'It can be said again (docs, page "Moving from kartothek, plateau and dask", A cube that has lost its seed)'
)


def check_migration(
    store: StoreLike, cube: Cube | str | None = None, deep: bool = False, *, options: Overrides | None = None
) -> MigrationReport:
    """Report which data of kartothek reads differently here.

    Every dataset and every cube reads equally, differently or not at all. Each difference names the
    page of the documentation that tells of it. Nothing is changed. See the page *Moving from
    kartothek, plateau and dask*.

    Parameters
    ----------
    store : str, path, store or callable
        The store, in any form that `open_store` takes.
    cube : Cube or str, optional
        A cube or its uuid prefix, by default the whole store.
    deep : bool, default False
        Read the data, too. Without it the first file of each dataset tells the widths of its
        numbers.
    options : optional
        What `options` returns: settings for this call.

    Returns
    -------
    MigrationReport
        The verdicts. ``ok`` is True if everything can be read.

    Raises
    ------
    DatasetNotFound
        If the store has no such cube.
    OSError
        If the store cannot be read.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube import check_migration, open_store
    >>> from kartothek_cube.api.dataset import store_dataframes_as_dataset
    >>> store = open_store("hmemory://")
    >>> _ = store_dataframes_as_dataset(store, "sales", [pa.table({"UNITS": [3]})])
    >>> check_migration(store).counts
    {'equal': 1, 'different': 0, 'unreadable': 0}
    """
    with operation("check_migration", options):
        prefix, opened = None if cube is None else prefix_of(cube), open_instrumented(store)
        verdicts = tuple(_verdicts(opened, prefix, deep=check_flag(deep, "deep")))
        if prefix is not None and not verdicts:
            raise DatasetNotFound(f'Could not find seed dataset for cube "{prefix}".{other_cubes(prefix, opened)}')
        return MigrationReport(verdicts)


def _verdicts(store: Store, cube: str | None, *, deep: bool) -> list[Verdict]:
    """The verdicts on all datasets and cubes of a store, or of one cube: datasets first."""
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
    try:
        report = verify_dataset(uuid, store, deep)
    except DAMAGE as error:
        return [unreadable(uuid, "dataset", one_line(error))]
    return [_dataset(store, uuid, report.findings, deep=deep)]


def _cube(store: Store, prefix: str, uuids: Sequence[str], *, deep: bool) -> list[Verdict]:
    """The verdicts on each dataset of a cube, and on the cube."""
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

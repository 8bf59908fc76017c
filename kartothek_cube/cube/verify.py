"""Findings about a cube as a whole: whether its datasets fit together, and cells that no query shows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from kartothek_cube.core.arrow.sort_keys import IntArray, pack
from kartothek_cube.core.io.reader import FileRequest, open_rows
from kartothek_cube.core.maintenance.statistics import Hashes, row_hashes
from kartothek_cube.core.maintenance.verify.inspection import DAMAGE
from kartothek_cube.core.maintenance.verify.report import Finding, Severity
from kartothek_cube.core.maintenance.verify.rows import piece_bytes
from kartothek_cube.core.metadata.commit_log import Commit
from kartothek_cube.core.metadata.naming import SINGLE_TABLE
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.runtime.executor import map_in_threads
from kartothek_cube.core.runtime.progress import Phase
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.text import pluralize
from kartothek_cube.cube.cube import (
    KTK_CUBE_METADATA_DIMENSION_COLUMNS,
    KTK_CUBE_METADATA_KEY_IS_SEED,
    KTK_CUBE_METADATA_PARTITION_COLUMNS,
    KTK_CUBE_METADATA_SUPPRESS_INDEX_ON,
    LEGACY_DIMENSION_COLUMNS,
    LEGACY_IS_SEED,
    LEGACY_PARTITION_COLUMNS,
    LEGACY_TIMESTAMP_PAYLOAD,
    Cube,
    visible_columns,
)
from kartothek_cube.cube.members.consistency import each_fault, infos_of
from kartothek_cube.cube.members.discovery import cube_of

__all__ = ["find_cube", "member_findings", "overridden_findings", "overriding_files", "unseen_findings"]

_COLUMNS: tuple[tuple[str, str | None, str], ...] = (
    (KTK_CUBE_METADATA_DIMENSION_COLUMNS, LEGACY_DIMENSION_COLUMNS, "dimension_columns"),
    (KTK_CUBE_METADATA_PARTITION_COLUMNS, LEGACY_PARTITION_COLUMNS, "partition_columns"),
    (KTK_CUBE_METADATA_SUPPRESS_INDEX_ON, None, "suppress_index_on"),
)

_PAGE = 'docs, page "Differences from kartothek"'


def find_cube(uuid_prefix: str, members: Mapping[str, Snapshot]) -> tuple[Cube | None, list[Finding]]:
    """The cube as its datasets describe it; None if they do not."""
    try:
        return cube_of(uuid_prefix, members), []
    except DAMAGE as error:
        return None, [Finding("error", "cube-seed", uuid_prefix, f"The metadata describe no cube. {error}")]


def member_findings(cube: Cube, members: Mapping[str, Snapshot]) -> Iterator[Finding]:
    """What does not fit together, and what reads differently here than in kartothek."""
    yield from _seed(cube, members)
    for check, name, error in each_fault(infos_of(members), cube):
        # Several tables in a dataset, or an index that is missing, break every query; so does
        # everything else that the check of a cube refuses.
        yield Finding(
            "error",
            f"cube-{check}",
            cube.uuid_prefix if name is None else cube.ktk_dataset_uuid(name),
            str(error),
            mend=_mend(check, name, cube, members),
        )
    for name, snapshot in members.items():
        yield from _metadata(cube, name, snapshot)
        yield from _several_files(cube, snapshot)
        yield from _hidden(snapshot)
    yield from _incomplete_commits(members)


def _mend(check: str, name: str | None, cube: Cube, members: Mapping[str, Snapshot]) -> str:
    if check != "indices" or name is None:
        return ""
    dimensions = [c for c in cube.dimension_columns if name == cube.seed_dataset and c not in cube.suppress_index_on]
    lacking = [
        c
        for c in (*dimensions, *sorted(cube.index_columns))
        if c in members[name].schema.names and c not in members[name].indexed_columns
    ]
    return f"build_cube_index(cube, store, {lacking!r}, {name!r})" if lacking else ""


def _seed(cube: Cube, members: Mapping[str, Snapshot]) -> Iterator[Finding]:
    if cube.seed_dataset not in members:
        text = f"The seed dataset {cube.seed_dataset!r} is missing or cannot be read. There are {sorted(members)}."
        yield Finding("error", "cube-seed", cube.uuid_prefix, text)
    for name, snapshot in members.items():
        said = _stored(snapshot, KTK_CUBE_METADATA_KEY_IS_SEED, LEGACY_IS_SEED)
        if said is None and name == cube.seed_dataset:
            text = "The metadata do not say that this is the seed, so open_cube and describe_cube cannot find the cube; kartothek's index build drops them."
            yield Finding("warning", "cube-metadata", snapshot.uuid, text)
        elif said is not None and bool(said) != (name == cube.seed_dataset):
            text = f"The metadata say {said!r} to whether this is the seed, which is {cube.seed_dataset!r}. A cube has one."
            yield Finding("error", "cube-seed", snapshot.uuid, text)


def _stored(snapshot: Snapshot, key: str, legacy: str | None) -> Any:
    metadata = snapshot.document.metadata
    return metadata.get(key, None if legacy is None else metadata.get(legacy))


def _metadata(cube: Cube, name: str, snapshot: Snapshot) -> Iterator[Finding]:
    """Only the seed's entries are read back; in the others they are remarks of whoever wrote them."""
    severity: Severity = "error" if name == cube.seed_dataset else "warning"
    for key, legacy, attribute in _COLUMNS:
        said, meant = _stored(snapshot, key, legacy), getattr(cube, attribute)
        if said is not None and not _same(said, meant):
            text = f"The metadata say {attribute} = {said!r}, but the cube has {sorted(meant) if isinstance(meant, frozenset) else list(meant)!r}."
            yield Finding(severity, "cube-metadata", snapshot.uuid, text)


def _same(said: object, meant: tuple[str, ...] | frozenset[str]) -> bool:
    """Whether a list of columns in the metadata is that of the cube."""
    if not isinstance(said, list) or not all(isinstance(column, str) for column in said):
        return said in meant and len(meant) == 1 if isinstance(said, str) else False
    return type(meant)(said) == meant


def _hidden(snapshot: Snapshot) -> Iterator[Finding]:
    hidden = sorted(set(snapshot.schema.names) - set(visible_columns(snapshot.schema.names)))
    if hidden:
        text = f"Columns that begin with two underscores, and {LEGACY_TIMESTAMP_PAYLOAD}, are hidden in cubes: {', '.join(hidden)} ({_PAGE}, 16)"
        yield Finding("info", "hidden-column", snapshot.uuid, text, column=hidden[0], count=len(hidden))


# --- physical partitions --------------------------------------------------------------------------


def overriding_files(cube: Cube, snapshot: Snapshot) -> list[list[int]]:
    """Positions of partitions with equal values of the cube's partition columns, of which newer rows override older ones."""
    numbers = snapshot.physical_partitions(cube.partition_columns)
    order = np.argsort(numbers, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1)
    return [group.tolist() for group in groups if len(group) > 1]


def _several_files(cube: Cube, snapshot: Snapshot) -> Iterator[Finding]:
    several = overriding_files(cube, snapshot) if set(snapshot.tables) == {SINGLE_TABLE} else []
    if several:
        files = sum(map(len, several))
        count = f"{pluralize(len(several), 'physical partition')} with several files, {files:,} in all"
        text = f"{count}. The newest row wins; kartothek may show older ones ({_PAGE}, 6)"
        label = snapshot.partitions.labels[several[0][0]].as_py()
        yield Finding("info", "several-files", snapshot.uuid, text, label=label, count=len(several))


# --- commits of several datasets ------------------------------------------------------------------


def _incomplete_commits(members: Mapping[str, Snapshot]) -> Iterator[Finding]:
    """Writes to several datasets that not all of them have.

    A participant has the write if its chain names it, or if its chain begins later: it may have
    forgotten it. A later write to the same datasets that all of them have stands for it: somebody
    has repeated it.
    """
    by_uuid = {snapshot.uuid: snapshot for snapshot in members.values()}
    seen = set()
    for snapshot in members.values():
        for commit in snapshot.chain:
            if commit.cube is None or commit.cube.id in seen:
                continue
            seen.add(commit.cube.id)
            named = sorted(by_uuid.keys() & {str(uuid) for uuid in commit.cube.datasets})
            lacking = [uuid for uuid in named if not _has(by_uuid[uuid], commit.cube.id, commit.time)]
            if lacking and not _is_repeated(commit, [by_uuid[uuid] for uuid in named]):
                everybody = ", ".join(map(str, commit.cube.datasets))
                text = f"The write {commit.cube.id} to {everybody} is not in {', '.join(lacking)}: it stopped halfway, or is under way."
                yield Finding(
                    "warning",
                    "cube-commit",
                    snapshot.uuid,
                    text,
                    mend=f"repeat the write, or undo({snapshot.uuid!r}, store, {commit.id!r})",
                )


def _is_repeated(commit: Commit, participants: Sequence[Snapshot]) -> bool:
    later = [
        {
            c.cube.id
            for c in p.chain
            if c.cube is not None
            and commit.cube is not None
            and c.cube.datasets == commit.cube.datasets
            and _is_after(c, commit)
        }
        for p in participants
    ]
    return bool(set.intersection(*later))


def _is_after(commit: Commit, other: Commit) -> bool:
    return commit.time is not None and other.time is not None and commit.time > other.time


def _has(snapshot: Snapshot, write: str, time: Any) -> bool:
    chain = snapshot.chain
    if any(c.cube is not None and c.cube.id == write for c in chain):
        return True
    # After a foreign writer, and after as many commits as a chain holds, older ones are forgotten.
    oldest = chain[0].time if chain else None
    return not chain or oldest is None or time is None or oldest > time


_VERIFY = Phase("verify", "partitions")


@dataclass(frozen=True, slots=True)
class _Cells:
    """Reads cells of one dataset as 64-bit hashes: eight bytes a row, whatever the columns.

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

    def all(self, positions: Sequence[int]) -> Hashes:
        """Hashes of the rows of several files."""
        return _joined(map_in_threads(lambda position: _joined(self.pieces(position)), positions))

    def among(self, cells: Hashes, position: int) -> IntArray:
        """The positions among some sorted cells of those that a file has."""
        return np.unique(
            np.concatenate(
                [
                    np.zeros(0, dtype=np.int64),
                    *(np.searchsorted(cells, np.intersect1d(cells, p)) for p in self.pieces(position)),
                ]
            )
        )


def _joined(hashes: Iterable[Hashes]) -> Hashes:
    return np.concatenate([np.zeros(0, dtype=np.uint64), *hashes])


def _address(cube: Cube, snapshot: Snapshot) -> tuple[str, ...]:
    """The columns of a dataset that say to which cell a row belongs."""
    return tuple(c for c in (*cube.dimension_columns, *cube.partition_columns) if c in snapshot.schema.names)


def overridden_findings(cube: Cube, members: Mapping[str, Snapshot], store: Store) -> Iterator[Finding]:
    """Rows that a newer file of the same physical partition overrides."""
    for snapshot in members.values():
        cells = _Cells(store, snapshot, _address(cube, snapshot))
        several = overriding_files(cube, snapshot)
        count = sum(map_in_threads(partial(_repetitions, cells), several, phase=_VERIFY))
        if count:
            text = f"{pluralize(count, 'row')} overridden by newer ones of the same cell in other files. Queries show the newest row."
            yield Finding(
                "info",
                "overridden-cells",
                snapshot.uuid,
                text,
                mend=f"compact_dataset({snapshot.uuid!r}, store)",
                count=count,
            )


def _repetitions(cells: _Cells, part: Sequence[int]) -> int:
    """How many rows of some files are overridden; none where a file cannot be read, which other findings say."""
    try:
        hashes = cells.all(part)
    except DAMAGE:
        return 0
    return len(hashes) - len(np.unique(hashes))


# --- enrichments against the seed -----------------------------------------------------------------


def unseen_findings(cube: Cube, members: Mapping[str, Snapshot], store: Store) -> Iterator[Finding]:
    """Cells of enrichments that the seed lacks: no query of the cube shows their rows."""
    seed = members.get(cube.seed_dataset)
    for name, snapshot in members.items():
        if seed is None or name == cube.seed_dataset:
            continue
        columns = tuple(c for c in _address(cube, snapshot) if c in seed.schema.names)
        pairs = _aligned(cube, snapshot, seed)
        enrichment, other = _Cells(store, snapshot, columns), _Cells(store, seed, columns)
        count = sum(map_in_threads(partial(_unseen_of, enrichment, other), pairs, phase=_VERIFY))
        if count:
            text = f"{pluralize(count, 'cell')} that the seed {cube.seed_dataset!r} does not have: no query of the cube shows what is there."
            yield Finding("info", "unseen-cells", snapshot.uuid, text, count=count)


def _aligned(cube: Cube, snapshot: Snapshot, seed: Snapshot) -> list[tuple[list[int], list[int]]]:
    """Positions of files of an enrichment, and of those of the seed that may hold their cells."""
    everything = [(list(range(len(snapshot.partitions))), list(range(len(seed.partitions))))]
    shared = [c for c in cube.partition_columns if c in snapshot.values.column_names and c in seed.values.column_names]
    if not shared or not len(snapshot.partitions):
        return everything
    mine, theirs = pack([snapshot.values, seed.values], shared)
    keys = np.unique(mine)
    return list(zip(_grouped(mine, keys), _grouped(theirs, keys), strict=True))


def _grouped(values: IntArray, keys: IntArray) -> list[list[int]]:
    """For each key the positions of the values that equal it."""
    order = np.argsort(values, kind="stable")
    first, last = (np.searchsorted(values[order], keys, side=side) for side in ("left", "right"))
    return [order[a:b].tolist() for a, b in zip(first, last, strict=True)]


def _unseen_of(enrichment: _Cells, seed: _Cells, files: tuple[list[int], list[int]]) -> int:
    """`_unseen`; none where a file cannot be read, which other findings say."""
    try:
        return _unseen(enrichment, seed, *files)
    except DAMAGE:
        return 0


def _unseen(enrichment: _Cells, seed: _Cells, files: Sequence[int], seed_files: Sequence[int]) -> int:
    """How many distinct cells are in no file of the seed.

    Those of the enrichment are held, the seed passes by.
    """
    cells = np.unique(enrichment.all(files))
    seen = np.zeros(len(cells), dtype=bool)
    for found in map_in_threads(lambda position: seed.among(cells, position), seed_files):
        seen[found] = True
    return int(np.count_nonzero(~seen))

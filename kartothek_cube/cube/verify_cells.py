"""Checks across the rows of a cube: cells that newer files override, and rows of enrichments that no cell of the seed shows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from kartothek_cube.core.files import FileRequest, open_rows
from kartothek_cube.core.maintenance.hashing import Hashes, row_hashes
from kartothek_cube.core.maintenance.verify_report import Finding
from kartothek_cube.core.maintenance.verify_rows import piece_bytes
from kartothek_cube.core.maintenance.verify_subject import DAMAGE
from kartothek_cube.core.markup import counted
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.parallel import map_in_threads
from kartothek_cube.core.progress import Phase
from kartothek_cube.core.rowkeys import IntArray, pack
from kartothek_cube.core.store import Store
from kartothek_cube.cube.cube import Cube
from kartothek_cube.cube.verify_members import overriding_files

__all__ = ["overridden_findings", "unseen_findings"]

_VERIFY = Phase("verify", "partitions")


@dataclass(frozen=True, slots=True)
class _Cells:
    """Reads cells of one dataset as 64-bit hashes: eight bytes a row, whatever the columns. Equal hashes are taken for equal cells."""

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
        return np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *(np.searchsorted(cells, np.intersect1d(cells, p)) for p in self.pieces(position))]))


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
            text = f"{counted(count, 'row')} overridden by newer ones of the same cell in other files. Queries show the newest row."
            yield Finding("info", "overridden-cells", snapshot.uuid, text, mend=f"compact_dataset({snapshot.uuid!r}, store)", count=count)


def _repetitions(cells: _Cells, part: Sequence[int]) -> int:
    """How many rows of some files are overridden; none where a file cannot be read, which other findings say."""
    try:
        hashes = cells.all(part)
    except DAMAGE:
        return 0
    return len(hashes) - len(np.unique(hashes))


# --- enrichments against the seed -------------------------------------------------------------------------------------


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
            text = f"{counted(count, 'cell')} that the seed {cube.seed_dataset!r} does not have: no query of the cube shows what is there."
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
    """How many distinct cells are in no file of the seed. Those of the enrichment are held, the seed passes by."""
    cells = np.unique(enrichment.all(files))
    seen = np.zeros(len(cells), dtype=bool)
    for found in map_in_threads(lambda position: seed.among(cells, position), seed_files):
        seen[found] = True
    return int(np.count_nonzero(~seen))

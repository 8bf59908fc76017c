"""Statistics of files that garbage collection removes: they repeat values of these files."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from kartothek_cube.core.commit.commit import check_store_can_commit
from kartothek_cube.core.metadata.document import Document, render_document
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.metadata.statistics import STATISTICS_KEY, StatisticsReference, file_names
from kartothek_cube.core.runtime.options import current_options
from kartothek_cube.core.snapshots.documents import put_document
from kartothek_cube.core.snapshots.loader import load_snapshot
from kartothek_cube.core.snapshots.statistics import has_lost_statistics, load_statistics, reference_without
from kartothek_cube.core.stores.contract import Store, VersionMismatch
from kartothek_cube.errors import CommitConflict

__all__ = ["forget_removed_files"]


def forget_removed_files(store: Store, state: Snapshot, kept: Collection[str]) -> bool:
    """Drop the statistics of files that neither the dataset names nor ``kept`` has, and lost ones.

    The document changes, and the state does not: this is no commit. Returns whether there were any.

    Raises
    ------
    CommitConflict
        If other writers came first more often than ``options(commit_retries=...)``.
    """
    tries = 0
    while True:
        # A document that belongs to a write which is not seen yet is for its writer.
        if state.undecided is not None:
            return False
        gone = _gone_files(store, state, kept)
        if not len(gone) and not has_lost_statistics(store, state.document):
            return False
        check_store_can_commit(store)
        document = _with_reference(state.document, reference_without(store, state.document, gone))
        try:
            put_document(store, state.key, render_document(document, msgpack=state.key.endswith(".zstd")), state.token)
        except VersionMismatch as error:
            tries += 1
            if tries > current_options().commit_retries:
                raise CommitConflict(
                    f"Dataset {state.uuid!r} was changed {tries} times while statistics of removed files were being "
                    "dropped. Collect garbage again."
                ) from error
            state = load_snapshot(store, state.uuid)
        else:
            return True


def _gone_files(store: Store, state: Snapshot, kept: Collection[str]) -> pa.Array:
    known = load_statistics(store, state).files
    waiting = pa.array([key for key in kept if key.startswith(f"{state.uuid}/")], type=pa.string())
    named = [file_names(files, state.uuid) for files in (*state.partitions.files.values(), waiting)]
    return known.filter(pc.invert(pc.is_in(known, value_set=pa.concat_arrays(named))))


def _with_reference(document: Document, reference: StatisticsReference) -> Document:
    metadata = {**document.metadata, STATISTICS_KEY: reference.render()}
    if reference == StatisticsReference():
        del metadata[STATISTICS_KEY]
    return replace(document, metadata=metadata)

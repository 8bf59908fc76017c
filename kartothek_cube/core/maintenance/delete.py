"""Deletion of a dataset: the plan, from documents and a listing, and the run, safe to repeat."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from kartothek_cube.core.commit.cube_writes import abort_pending, settle_committed
from kartothek_cube.core.io.formats import check_named_key
from kartothek_cube.core.maintenance.garbage.plan import is_schema_key
from kartothek_cube.core.maintenance.garbage.run import (
    is_bookkeeping,
    own_folders,
    remove_temporary_files,
    temporary_files,
)
from kartothek_cube.core.metadata.commit_log import Ledger, ledger_of, pending_mark
from kartothek_cube.core.metadata.document import Document
from kartothek_cube.core.metadata.history_entry import history_key
from kartothek_cube.core.metadata.naming import is_data_key, schema_key
from kartothek_cube.core.runtime.executor import DELETE_FILES, THREADS, Executor, map_files
from kartothek_cube.core.snapshots.documents import dataset_exists, document_keys, find_documents
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.errors import ReadOnlyStore

__all__ = [
    "Deletion",
    "abort_pending_in",
    "delete_dataset",
    "find_deletion",
    "find_listed_deletion",
    "is_own_key",
    "plan_deletion",
    "run_deletion",
]

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Deletion:
    """The keys of a dataset in the order of their removal.

    ``history`` has history entries and marks of garbage collections. ``kept`` has the files that
    the dataset names, but that belong to another dataset; they stay. ``pending`` has the entries
    without which a reader would take a write that has not committed for one that has.
    ``ledger`` has the uuids of the datasets whose writes the ledger of this one decides.
    """

    history: tuple[str, ...]
    garbage: tuple[str, ...]
    indices: tuple[str, ...]
    files: tuple[str, ...]
    schemas: tuple[str, ...]
    documents: tuple[str, ...]
    kept: tuple[str, ...]
    pending: tuple[str, ...] = ()
    ledger: tuple[str, ...] = ()

    def phases(self) -> tuple[tuple[str, ...], ...]:
        """Keys that are removed together; a phase begins when the one before is complete."""
        # The twin in msgpack goes before the JSON document, or it would come into force.
        documents = [(key,) for key in reversed(self.documents)]
        return (self.history, self.garbage, self.indices, self.files, self.schemas, *documents, self.pending)


def _owner_of(key: str) -> str:
    """The uuid of the dataset to which a key would belong."""
    return key.partition("/")[0].partition(".")[0]


def is_own_key(key: str, uuid: str) -> bool:
    """Whether a key has a prefix of this dataset."""
    return key.startswith((f"{uuid}/", f"{uuid}."))


def plan_deletion(
    uuid: str, documents: Sequence[Document], keys: Sequence[str], others: Iterable[str] = ()
) -> Deletion:
    """Plan the deletion of a dataset.

    ``keys`` are those below ``<uuid>/``, ``others`` the uuids of other datasets, whose files stay.
    """
    own_documents = document_keys(uuid)
    indices = set().union(*(d.index_files for d in documents)) - {*own_documents}
    # Every data file in the folder of an implicit dataset is a partition.
    implicit = () if all(d.partitions is not None for d in documents) else (key for key in keys if is_data_key(key))
    files = set().union(implicit, *(d.files for d in documents)) - indices - {*own_documents}
    tables = {table for d in documents if d.partitions is not None for table in d.partitions.files}
    folders = own_folders(uuid, tables, keys)
    inside = {key for key in keys if key.startswith(folders)}
    schema_keys = {schema_key(uuid, table) for table in tables}
    schemas = {key for key in inside if key in schema_keys or is_schema_key(key)} - indices - files
    owners = {*others}
    kept = {key for key in indices | files if not is_own_key(key, uuid) and _owner_of(key) in owners}
    marks = [mark for d in documents if (mark := pending_mark(d)) is not None]
    pending = {history_key(uuid, mark.commit) for mark in marks}
    history = {key for key in keys if is_bookkeeping(key)} - indices - files - pending
    return Deletion(
        history=tuple(sorted(history)),
        garbage=tuple(sorted(inside - indices - files - schemas - history - pending)),
        indices=tuple(sorted(indices - kept)),
        files=tuple(sorted(files - kept)),
        schemas=tuple(sorted(schemas)),
        documents=own_documents,
        kept=tuple(sorted(kept)),
        pending=tuple(sorted(pending)),
        ledger=tuple(sorted({u for d in documents for u in (ledger_of(d.metadata) or Ledger()).last})),
    )


def delete_dataset(store: Store, uuid: str, executor: Executor = THREADS) -> Deletion:
    """Delete a dataset: history, garbage, index files, data files, schema files, documents.

    After an interruption, run it again.

    Raises
    ------
    DatasetNotFound
        If the dataset does not exist.
    CorruptDocument
        If the document cannot be read. Nothing is removed then.
    """
    plan = find_deletion(store, uuid)
    abort_pending_in(store, {uuid: plan})
    run_deletion(store, uuid, plan, executor)
    return plan


def find_deletion(store: Store, uuid: str) -> Deletion:
    """Plan the deletion of an existing dataset; errors as of `delete_dataset`."""
    if not store.capabilities.writable:
        raise ReadOnlyStore(f"The store {store.name} cannot be written to, so dataset {uuid!r} cannot be deleted.")
    first, twin = find_documents(store, uuid)
    documents = [first.document] if twin is None else [first.document, twin.document]
    named = set().union(*(d.index_files | d.files for d in documents))
    for key in named:
        check_named_key(key, uuid)
    keys = store.list(f"{uuid}/", recursive=True).keys
    owners = sorted({_owner_of(key) for key in named if not is_own_key(key, uuid)})
    others = [owner for owner in owners if owner and dataset_exists(store, owner)]
    return plan_deletion(uuid, documents, keys, others)


def find_listed_deletion(store: Store, uuid: str) -> Deletion:
    """Plan the deletion of a dataset with an unreadable document: all of ``<uuid>/`` and documents.

    The files that the document named elsewhere are unknown; they stay.
    """
    keys = store.list(f"{uuid}/", recursive=True).keys
    history = [key for key in keys if is_bookkeeping(key)]
    schemas = [key for key in keys if is_schema_key(key)]
    files = sorted({*keys} - {*history} - {*schemas})
    return Deletion(tuple(history), (), (), tuple(files), tuple(schemas), document_keys(uuid), ())


def abort_pending_in(store: Store, plans: Mapping[str, Deletion]) -> None:
    """Abort the writes that are pending in what is to be deleted: none may commit elsewhere."""
    for uuid, plan in plans.items():
        if plan.pending:
            abort_pending(store, uuid)


def run_deletion(store: Store, uuid: str, plan: Deletion, executor: Executor = THREADS) -> None:
    """Remove the files of the plan, and temporary files that crashed writers left."""
    # Without the ledger, nobody can tell any more that they have committed.
    settle_committed(store, plan.ledger)
    now = datetime.now(UTC)
    remove_temporary_files(store, temporary_files(store, (f"{uuid}/", f"{uuid}."), now), now)
    for phase in plan.phases():
        list(map_files(store.delete, phase, executor=executor, store=store, phase=DELETE_FILES))
    if plan.kept:
        examples = ", ".join(plan.kept[:5])
        _LOGGER.warning("Dataset %r named %d files of other datasets, which stay: %s", uuid, len(plan.kept), examples)

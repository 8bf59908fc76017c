"""Deleting a dataset: the plan, from its documents and a listing, and the run, in an order that can be interrupted."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from kartothek_cube.core.io.file_format import check_named_key
from kartothek_cube.core.maintenance.garbage.run import (
    is_bookkeeping,
    temporary_files,
    own_folders,
    remove_temporary_files,
)
from kartothek_cube.core.metadata.document import Document
from kartothek_cube.core.metadata.naming import SCHEMA_FILE, is_data_key, schema_key
from kartothek_cube.core.runtime.executor import DELETE_FILES, THREADS, Executor, map_files
from kartothek_cube.core.snapshots.document_store import dataset_exists, document_keys, find_documents
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.errors import ReadOnlyStore

__all__ = [
    "Deletion",
    "delete_dataset",
    "find_deletion",
    "find_listed_deletion",
    "is_own_key",
    "plan_deletion",
    "run_deletion",
]

_LOGGER = logging.getLogger(__name__)
_OWNER = re.compile(r"[^./]*")


@dataclass(frozen=True, slots=True)
class Deletion:
    """The keys of a dataset in the order in which they go.

    ``history`` are history entries and the marks of garbage collections; ``kept`` are files that it
    names, but that lie with another dataset.
    """

    history: tuple[str, ...]
    garbage: tuple[str, ...]
    indices: tuple[str, ...]
    files: tuple[str, ...]
    schemas: tuple[str, ...]
    documents: tuple[str, ...]
    kept: tuple[str, ...]

    def phases(self) -> tuple[tuple[str, ...], ...]:
        """What is removed together; the next phase begins when the one before is done."""
        # Without the JSON document a twin would come into force: it goes first.
        return (
            self.history,
            self.garbage,
            self.indices,
            self.files,
            self.schemas,
            *((key,) for key in reversed(self.documents)),
        )


def _named_indices(document: Document) -> set[str]:
    """Keys of the index files that a document names."""
    return {key for key in document.indices.values() if isinstance(key, str)}


def _named_files(document: Document) -> set[str]:
    columns = document.partitions.files.values() if document.partitions is not None else ()
    return {key for column in columns for key in column.to_pylist() if key is not None}


def _owner_of(key: str) -> str:
    """The uuid of the dataset to which a key would belong."""
    found = _OWNER.match(key)
    return found[0] if found else ""


def is_own_key(key: str, uuid: str) -> bool:
    """Whether a key begins as those of this dataset do."""
    return key.startswith((f"{uuid}/", f"{uuid}."))


def plan_deletion(
    uuid: str, documents: Sequence[Document], keys: Sequence[str], others: Iterable[str] = ()
) -> Deletion:
    """What to remove of a dataset: ``keys`` are those below ``<uuid>/``, ``others`` the uuids of other datasets, whose files stay."""
    own_documents = document_keys(uuid)
    indices = set().union(*(_named_indices(d) for d in documents)) - {*own_documents}
    # Of an implicit dataset every data file that lies there is a partition.
    implicit = () if all(d.partitions is not None for d in documents) else (key for key in keys if is_data_key(key))
    files = set().union(implicit, *(_named_files(d) for d in documents)) - indices - {*own_documents}
    tables = {table for d in documents if d.partitions is not None for table in d.partitions.files}
    folders = own_folders(uuid, tables, keys)
    inside = {key for key in keys if key.startswith(folders)}
    schemas = (
        {key for key in inside if key in {schema_key(uuid, t) for t in tables} or _is_schema(key)} - indices - files
    )
    foreign = {*others}
    kept = {key for key in indices | files if not is_own_key(key, uuid) and _owner_of(key) in foreign}
    history = {key for key in keys if is_bookkeeping(key)} - indices - files
    return Deletion(
        history=tuple(sorted(history)),
        garbage=tuple(sorted(inside - indices - files - schemas - history)),
        indices=tuple(sorted(indices - kept)),
        files=tuple(sorted(files - kept)),
        schemas=tuple(sorted(schemas)),
        documents=own_documents,
        kept=tuple(sorted(kept)),
    )


def _is_schema(key: str) -> bool:
    return key.endswith(f"/{SCHEMA_FILE}") and key.count("/") == 2


def delete_dataset(store: Store, uuid: str, executor: Executor = THREADS) -> Deletion:
    """Delete a dataset: history, garbage, index files, data files, schema files, documents.

    After an interruption it can be run again.

    Raises
    ------
    DatasetNotFound
        If the dataset does not exist.
    CorruptDocument
        If its document cannot be read; nothing is removed then.
    """
    plan = find_deletion(store, uuid)
    run_deletion(store, uuid, plan, executor)
    return plan


def find_deletion(store: Store, uuid: str) -> Deletion:
    """What a dataset that exists consists of; errors as of `delete_dataset`. Nothing is removed."""
    if not store.capabilities.writable:
        raise ReadOnlyStore(f"The store {store.name} cannot be written to, so dataset {uuid!r} cannot be deleted.")
    first, twin = find_documents(store, uuid)
    documents = [first.document] if twin is None else [first.document, twin.document]
    for key in set().union(*(_named_indices(d) | _named_files(d) for d in documents)):
        check_named_key(key, uuid)
    return plan_deletion(
        uuid, documents, store.list(f"{uuid}/", recursive=True).keys, _other_datasets(store, uuid, documents)
    )


def find_listed_deletion(store: Store, uuid: str) -> Deletion:
    """A dataset whose document cannot be read: everything that lies below ``<uuid>/``, and the documents. What it named elsewhere nobody knows."""
    keys = store.list(f"{uuid}/", recursive=True).keys
    history = [key for key in keys if is_bookkeeping(key)]
    schemas = [key for key in keys if _is_schema(key)]
    files = sorted({*keys} - {*history} - {*schemas})
    return Deletion(tuple(history), (), (), tuple(files), tuple(schemas), document_keys(uuid), ())


def run_deletion(store: Store, uuid: str, plan: Deletion, executor: Executor = THREADS) -> None:
    """Remove what the plan names, and what crashed writers of the dataset left."""
    now = datetime.now(UTC)
    remove_temporary_files(store, temporary_files(store, (f"{uuid}/", f"{uuid}."), now), now)
    for phase in plan.phases():
        list(map_files(store.delete, phase, executor=executor, store=store, phase=DELETE_FILES))
    if plan.kept:
        _LOGGER.warning(
            "Dataset %r named %d files of other datasets, which stay: %s",
            uuid,
            len(plan.kept),
            ", ".join(plan.kept[:5]),
        )


def _other_datasets(store: Store, uuid: str, documents: Sequence[Document]) -> list[str]:
    named = set().union(*(_named_indices(d) | _named_files(d) for d in documents))
    owners = {_owner_of(key) for key in named if not is_own_key(key, uuid)}
    return [owner for owner in sorted(owners) if owner and dataset_exists(store, owner)]
